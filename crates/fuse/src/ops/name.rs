//! Names: LOOKUP, FORGET, and every request that makes or removes a name.
//!
//! `Server` calls these handlers. Each answer that names a node counts one lookup, and the kernel's
//! FORGETs give the counts back. So the server never drops a node that the kernel may still name.
//! A handler that may take a file's last name pins the file first (`nodes`). The kernel has checked
//! permissions, and the VFS orders requests that change the same name.

use std::time::Duration;

use extern4_vfs::{Errno, FileType, Location, LookupFlags, NewKind, RenameFlags, Result};
use zerocopy::FromBytes as _;

use crate::abi::{
    BatchForgetIn, EntryOut, ForgetIn, ForgetOne, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn,
};
use crate::attributes::{lifetime, rdev, wire_attr};
use crate::reply::Body;
use crate::request::{Request, name, text};
use crate::server::Server;

impl Server {
    /// Returns the answer for a node that the kernel may name from then on.
    pub(crate) fn entry(&self, location: Location) -> EntryOut {
        let attr = self.config().attr_for_kernel(&location);
        let nodeid = self.nodes.count_lookup(location);
        let (entry_valid, entry_valid_nsec) = lifetime(self.name_lifetime());
        let (attr_valid, attr_valid_nsec) = lifetime(self.config().moment());
        EntryOut {
            nodeid,
            generation: u64::from(attr.generation),
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: wire_attr(&attr),
        }
    }

    /// Returns how long the kernel may remember lookups. Where a name may have several spellings,
    /// the kernel treats each as a separate name. It does not know that a change of one spelling
    /// changes the others. This holds for all of a volume with such directories: a file may move
    /// into one, and a directory may become one.
    fn name_lifetime(&self) -> Duration {
        if self.superblock().traits().casefold {
            Duration::ZERO
        } else {
            self.config().lifetime
        }
    }

    pub(crate) fn lookup(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (name, _) = name(request.text())?;
        if name == b"." {
            // A lookup of `.` resolves a file handle, for any type of file.
            return body.put(&self.entry(self.nodes.find(request.header.nodeid)?));
        }
        let dir = self.nodes.find(request.header.nodeid)?;
        match self
            .credentials
            .session(&request.caller, &dir)
            .locate(name, LookupFlags::NOFOLLOW)
        {
            Ok(found) => body.put(&self.entry(found)),
            // Node id 0: the kernel may remember that the name does not exist.
            Err(error) if error == Errno::ENOENT => {
                let (entry_valid, entry_valid_nsec) = lifetime(self.name_lifetime());
                body.put(&EntryOut {
                    entry_valid,
                    entry_valid_nsec,
                    ..EntryOut::default()
                })
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn forget(&self, request: &Request<'_>) -> Result<()> {
        let forget: ForgetIn = request.arg()?;
        self.nodes.forget(request.header.nodeid, forget.nlookup);
        Ok(())
    }

    pub(crate) fn batch_forget(&self, request: &Request<'_>) -> Result<()> {
        let (batch, mut rest) = request.split::<BatchForgetIn>()?;
        for _ in 0..batch.count {
            let (one, more) = ForgetOne::read_from_prefix(rest).map_err(|_| Errno::EINVAL)?;
            rest = more;
            self.nodes.forget(one.nodeid, one.nlookup);
        }
        Ok(())
    }

    pub(crate) fn symlink(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (name, rest) = name(request.text())?;
        let (target, _) = text(rest)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let made = self
            .credentials
            .session(&request.caller, &dir)
            .symlink(target, name)?;
        body.put(&self.entry(made))
    }

    pub(crate) fn mknod(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (node, rest) = request.split::<MknodIn>()?;
        let (name, _) = name(rest)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let mode = low_bits(node.mode);
        let kind = match FileType::from_mode(mode).ok_or(Errno::EINVAL)? {
            FileType::Regular => NewKind::Regular,
            FileType::CharDevice => NewKind::CharDevice(rdev(node.rdev)),
            FileType::BlockDevice => NewKind::BlockDevice(rdev(node.rdev)),
            FileType::Fifo => NewKind::Fifo,
            FileType::Socket => NewKind::Socket,
            FileType::Directory | FileType::Symlink => return Err(Errno::EINVAL.into()),
        };
        let mut session = self.credentials.session(&request.caller, &dir);
        session.set_umask(low_bits(node.umask));
        let made = session.mknod(name, kind, mode & 0o7777)?;
        body.put(&self.entry(made))
    }

    pub(crate) fn mkdir(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (new, rest) = request.split::<MkdirIn>()?;
        let (name, _) = name(rest)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let mut session = self.credentials.session(&request.caller, &dir);
        session.set_umask(low_bits(new.umask));
        let made = session.mkdir(name, low_bits(new.mode) & 0o7777)?;
        body.put(&self.entry(made))
    }

    pub(crate) fn unlink(&self, request: &Request<'_>) -> Result<()> {
        let (name, _) = name(request.text())?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let session = self.credentials.session(&request.caller, &dir);
        let _pin = self.nodes.pin(session.locate(name, LookupFlags::NOFOLLOW)?);
        session.unlink(name)
    }

    pub(crate) fn rmdir(&self, request: &Request<'_>) -> Result<()> {
        let (name, _) = name(request.text())?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let session = self.credentials.session(&request.caller, &dir);
        let _pin = self.nodes.pin(session.locate(name, LookupFlags::NOFOLLOW)?);
        session.rmdir(name)
    }

    pub(crate) fn rename(&self, request: &Request<'_>) -> Result<()> {
        let (rename, rest) = request.split::<RenameIn>()?;
        self.rename_to(request, rename.newdir, RenameFlags::empty(), rest)
    }

    pub(crate) fn rename2(&self, request: &Request<'_>) -> Result<()> {
        let (rename, rest) = request.split::<Rename2In>()?;
        // The numbers come from `renameat2(2)`.
        let flags = RenameFlags::from_bits(rename.flags).ok_or(Errno::EINVAL)?;
        self.rename_to(request, rename.newdir, flags, rest)
    }

    fn rename_to(
        &self,
        request: &Request<'_>,
        newdir: u64,
        flags: RenameFlags,
        names: &[u8],
    ) -> Result<()> {
        let (from, rest) = name(names)?;
        let (to, _) = name(rest)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let session = self.credentials.session(&request.caller, &dir);
        let other = if newdir == request.header.nodeid {
            None
        } else {
            Some(session.at(&self.nodes.get(newdir)?))
        };
        let target = other.as_ref().unwrap_or(&session);
        // The rename itself reports an error of this lookup, in its turn.
        let replaced = target.locate(to, LookupFlags::NOFOLLOW).ok();
        let _pin = replaced.map(|replaced| self.nodes.pin(replaced));
        session.rename_to(from, target, to, flags)
    }

    pub(crate) fn link(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (link, rest) = request.split::<LinkIn>()?;
        let (name, _) = name(rest)?;
        let file = self.nodes.get(link.oldnodeid)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let session = self.credentials.session(&request.caller, &file);
        // A file that gets its first name is no longer held after this.
        let _pin = self.nodes.pin(file.clone());
        session.link_to("", LookupFlags::EMPTY_PATH, &session.at(&dir), name)?;
        body.put(&self.entry(file))
    }
}

/// Returns the low 16 bits of a mode, which hold all of it.
pub(crate) fn low_bits(mode: u32) -> u16 {
    (mode & 0xffff) as u16
}
