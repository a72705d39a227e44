//! Attributes: GETATTR, STATX, SETATTR, ACCESS, READLINK.
//!
//! `Server` calls these handlers, one for each request. The kernel has checked permissions; the
//! session of the caller checks inode flags. A SETATTR sets the size first and then all other
//! attributes in one step. The answer has the attributes after the change.

use std::time::SystemTime;

use extern4_vfs::{
    Access, Attr, Attributes, Errno, FileType, Location, LookupFlags, OpenFlags, Result, SetTime,
    Timespec,
};

use crate::abi::{AccessIn, AttrOut, SetattrIn, SetattrValid, StatxOut};
use crate::attributes::{lifetime, timespec, wire_attr, wire_statx};
use crate::reply::Body;
use crate::request::Request;
use crate::server::{Config, Server};

impl Config {
    /// Writes attributes with their lifetime.
    fn put_attr(&self, attr: &Attr, body: &mut Body<'_>) -> Result<()> {
        let is_dir = attr.kind == FileType::Directory;
        let (attr_valid, attr_valid_nsec) =
            lifetime(if is_dir { self.moment() } else { self.lifetime });
        body.put(&AttrOut {
            attr_valid,
            attr_valid_nsec,
            dummy: 0,
            attr: wire_attr(attr),
        })
    }
}

impl Server {
    pub(crate) fn getattr(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let location = self.nodes.get(request.header.nodeid)?;
        self.config().put_attr(&self.config().attr(&location), body)
    }

    pub(crate) fn statx(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let location = self.nodes.get(request.header.nodeid)?;
        let (attr_valid, attr_valid_nsec) = lifetime(self.config().lifetime);
        let stat = wire_statx(&self.config().attr(&location));
        body.put(&StatxOut {
            attr_valid,
            attr_valid_nsec,
            flags: 0,
            spare: [0; 2],
            stat,
        })
    }

    pub(crate) fn setattr(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let set: SetattrIn = request.arg()?;
        let location = self.nodes.get(request.header.nodeid)?;
        let valid = SetattrValid::from_bits_truncate(set.valid);
        if valid == WRITTEN && set.fh != 0 {
            let mtime = timespec(set.mtime, set.mtimensec);
            let ctime = timespec(set.ctime, set.ctimensec);
            self.handles.get(set.fh)?.file.set_written(mtime, ctime)?;
            return self
                .config()
                .put_attr(&self.config().attr_for_kernel(&location), body);
        }
        if valid.contains(SetattrValid::SIZE) {
            self.set_size(request, &location, &set, valid)?;
        }
        let owner_or_mode = SetattrValid::UID | SetattrValid::GID | SetattrValid::MODE;
        let times = SetattrValid::ATIME | SetattrValid::MTIME;
        let session = self.credentials.session(&request.caller, &location);
        if valid.intersects(owner_or_mode | SetattrValid::CTIME) {
            let time = |bit, now, sec, nsec| {
                valid.contains(bit).then(|| {
                    if valid.contains(now) {
                        present()
                    } else {
                        timespec(sec, nsec)
                    }
                })
            };
            let new = Attributes {
                mode: valid
                    .contains(SetattrValid::MODE)
                    .then_some(set.mode & 0o7777),
                uid: valid.contains(SetattrValid::UID).then_some(set.uid),
                gid: valid.contains(SetattrValid::GID).then_some(set.gid),
                atime: time(
                    SetattrValid::ATIME,
                    SetattrValid::ATIME_NOW,
                    set.atime,
                    set.atimensec,
                ),
                mtime: time(
                    SetattrValid::MTIME,
                    SetattrValid::MTIME_NOW,
                    set.mtime,
                    set.mtimensec,
                ),
                ctime: valid
                    .contains(SetattrValid::CTIME)
                    .then(|| timespec(set.ctime, set.ctimensec)),
            };
            session.set_attributes("", &new, LookupFlags::EMPTY_PATH)?;
        } else if valid.intersects(times) {
            let time = |bit, now, sec, nsec| {
                if !valid.contains(bit) {
                    SetTime::Omit
                } else if valid.contains(now) {
                    SetTime::Now
                } else {
                    SetTime::At(timespec(sec, nsec))
                }
            };
            let atime = time(
                SetattrValid::ATIME,
                SetattrValid::ATIME_NOW,
                set.atime,
                set.atimensec,
            );
            let mtime = time(
                SetattrValid::MTIME,
                SetattrValid::MTIME_NOW,
                set.mtime,
                set.mtimensec,
            );
            session.utimens("", atime, mtime, LookupFlags::EMPTY_PATH)?;
        }
        self.config()
            .put_attr(&self.config().attr_for_kernel(&location), body)
    }

    fn set_size(
        &self,
        request: &Request<'_>,
        location: &Location,
        set: &SetattrIn,
        valid: SetattrValid,
    ) -> Result<()> {
        let kill = valid.contains(SetattrValid::KILL_SUIDGID);
        if valid.contains(SetattrValid::FH) && set.fh != 0 && !kill {
            let handle = self.handles.get(set.fh)?;
            if handle.file.flags().contains(OpenFlags::WRITE) {
                return handle.file.set_len(set.size);
            }
        }
        if kill {
            return self
                .credentials
                .session_of_writer(&request.caller, location)
                .truncate("", set.size, LookupFlags::EMPTY_PATH);
        }
        self.credentials
            .session(&request.caller, location)
            .truncate("", set.size, LookupFlags::EMPTY_PATH)
    }

    /// Answers ACCESS, which the kernel sends only without `default_permissions`.
    pub(crate) fn access(&self, request: &Request<'_>) -> Result<()> {
        let access: AccessIn = request.arg()?;
        let location = self.nodes.get(request.header.nodeid)?;
        let want = u8::try_from(access.mask)
            .ok()
            .and_then(Access::from_bits)
            .ok_or(Errno::EINVAL)?;
        self.credentials
            .session_unchecked(&request.caller, &location)
            .access("", want, LookupFlags::EMPTY_PATH)
    }

    pub(crate) fn readlink(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let location = self.nodes.get(request.header.nodeid)?;
        body.push(
            &self
                .credentials
                .superuser(&location)
                .read_link("", LookupFlags::EMPTY_PATH)?,
        )
    }
}

/// The fields that a kernel with a write-back cache sets in one request. No system call sets just
/// these.
const WRITTEN: SetattrValid = SetattrValid::MTIME
    .union(SetattrValid::CTIME)
    .union(SetattrValid::FH);

fn present() -> Timespec {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timespec {
        sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nsec: since.subsec_nanos(),
    }
}
