//! Extended attributes, ACLs included.
//!
//! `Server` calls these handlers, and the caller's session checks rights by namespace. After an ACL
//! has changed the permission bits, they invalidate the attributes that the kernel may remember.

use extern4_vfs::{AclKind, Caps, Errno, LookupFlags, Result, XattrFlags, XattrNamespace};

use crate::abi::{
    Features, GetxattrIn, GetxattrOut, ROOT_ID, SETXATTR_ACL_KILL_SGID, SetxattrIn, SetxattrInExt,
};
use crate::mount::DAEMON;
use crate::reply::Body;
use crate::request::{Request, text};
use crate::server::Server;

impl Server {
    pub(crate) fn setxattr(&self, request: &Request<'_>) -> Result<()> {
        let (set, rest) = if self.protocol.has(Features::SETXATTR_EXT) {
            request.split::<SetxattrInExt>()?
        } else {
            let (SetxattrIn { size, flags }, rest) = request.split()?;
            (
                SetxattrInExt {
                    size,
                    flags,
                    ..SetxattrInExt::default()
                },
                rest,
            )
        };
        let kill_sgid = set.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
        let (name, value) = text(rest)?;
        let size = usize::try_from(set.size).map_err(|_| Errno::EINVAL)?;
        let value = value.get(..size).ok_or(Errno::EINVAL)?;
        // The numbers come from `setxattr(2)`.
        let flags = XattrFlags::from_bits(set.flags).ok_or(Errno::EINVAL)?;
        let location = self.nodes.get(request.header.nodeid)?;
        let without = if kill_sgid {
            Caps::FSETID
        } else {
            Caps::empty()
        };
        let session = self
            .credentials
            .session_without(&request.caller, &location, without);
        session.set_xattr("", name, value, flags, LookupFlags::EMPTY_PATH)?;
        self.mode_changed(request.header.nodeid, name);
        Ok(())
    }

    /// Invalidates the mode after a change of an ACL. An ACL changes the permission bits, and a
    /// kernel that leaves ACLs to the server does not know that.
    fn mode_changed(&self, nodeid: u64, name: &[u8]) {
        if !self.protocol.has(Features::POSIX_ACL) && AclKind::from_xattr_name(name).is_some() {
            self.attributes_changed(nodeid);
        }
    }

    pub(crate) fn removexattr(&self, request: &Request<'_>) -> Result<()> {
        let (name, _) = text(request.text())?;
        let location = self.nodes.get(request.header.nodeid)?;
        self.credentials
            .session(&request.caller, &location)
            .remove_xattr("", name, LookupFlags::EMPTY_PATH)?;
        self.mode_changed(request.header.nodeid, name);
        Ok(())
    }

    pub(crate) fn getxattr(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (get, rest) = request.split::<GetxattrIn>()?;
        let (name, _) = text(rest)?;
        if name == DAEMON.as_bytes() && request.header.nodeid == ROOT_ID {
            return put_sized(std::process::id().to_string().as_bytes(), get.size, body);
        }
        let location = self.nodes.get(request.header.nodeid)?;
        let value = self
            .credentials
            .session(&request.caller, &location)
            .get_xattr("", name, LookupFlags::EMPTY_PATH)?;
        put_sized(&value, get.size, body)
    }

    pub(crate) fn listxattr(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let list: GetxattrIn = request.arg()?;
        let location = self.nodes.get(request.header.nodeid)?;
        let mut listed = self
            .credentials
            .session(&request.caller, &location)
            .list_xattr("", LookupFlags::EMPTY_PATH)?;
        // The kernel leaves hiding these to the file system.
        let is_trusted = |name: &[u8]| XattrNamespace::of(name) == Some(XattrNamespace::Trusted);
        if listed.iter().any(|name| is_trusted(name))
            && !self.credentials.shows_trusted(&request.caller)
        {
            listed.retain(|name| !is_trusted(name));
        }
        let mut names = Vec::new();
        for name in listed {
            names.extend_from_slice(&name);
            names.push(0);
        }
        put_sized(&names, list.size, body)
    }
}

/// Returns a value to a caller with room for `room` bytes, or its length to a caller without room.
fn put_sized(value: &[u8], room: u32, body: &mut Body<'_>) -> Result<()> {
    let size = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    match room {
        0 => body.put(&GetxattrOut { size, padding: 0 }),
        room if room < size => Err(Errno::ERANGE.into()),
        _ => body.push(value),
    }
}
