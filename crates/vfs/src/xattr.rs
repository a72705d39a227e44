//! Extended attributes: permission to read, list and set them (`xattr(7)`).
//!
//! The calls of `setattr` and `Session` that get, list, set and remove attributes ask this module
//! before they reach the file system. A list omits the names that the caller may not read.
//!
//! [`XattrNamespace`] says which callers each namespace is for; this module checks it.

use std::sync::Arc;

use extern4_acl::{Acl, AclKind, XattrNamespace, namespace};

use crate::attr::{FileType, Timespec};
use crate::cred::{Caps, Cred};
use crate::errno::{Errno, Result};
use crate::fs::XattrFlags;
use crate::inode::Inode;
use crate::mount::Mount;
use crate::permission::{Access, owner_or_capable};
use crate::superblock::SuperBlock;

/// Longest name, the name space included.
pub const XATTR_NAME_MAX: usize = 255;
/// Largest value.
pub const XATTR_SIZE_MAX: usize = 65536;
/// The capabilities that a program has when it is run (`capabilities(7)`).
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// Revisions that `security.capability` may have by the upper bits of its first word, and the flag
/// next to them (`linux/capability.h`).
const CAP_REVISION_2: u32 = 0x0200_0000;
const CAP_REVISION_3: u32 = 0x0300_0000;
const CAP_EFFECTIVE: u32 = 1;

/// Fails with `ERANGE` for a name that is empty or too long.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > XATTR_NAME_MAX {
        Err(Errno::ERANGE.into())
    } else {
        Ok(())
    }
}

/// Returns whether a value can be set as `security.capability`. It can if it is empty, or if it has
/// revision 2 or 3 and that revision's length. Linux no longer accepts revision 1.
pub(crate) fn is_capability(value: &[u8]) -> bool {
    let Some((word, _)) = value.split_first_chunk() else {
        return value.is_empty();
    };
    let revision = u32::from_le_bytes(*word) & !CAP_EFFECTIVE;
    matches!(
        (revision, value.len()),
        (CAP_REVISION_2, 20) | (CAP_REVISION_3, 24)
    )
}

/// Checks that `cred` may use the attribute `name` of `inode`, which is no ACL. Returns the
/// namespace.
///
/// # Errors
/// `EOPNOTSUPP` for a name in no namespace or in `system.`, `EINVAL` for a prefix alone, and
/// `EPERM`, `EACCES` or `ENODATA` for a caller without permission.
pub(crate) fn permission(
    cred: &Cred,
    mount: &Mount,
    inode: &Inode,
    name: &[u8],
    want: Access,
) -> Result<XattrNamespace> {
    let found = namespace::split(name).and_then(|(prefix, rest)| Some((prefix.namespace?, rest)));
    let space = found.map(|(space, _)| space);
    let write = want.contains(Access::WRITE);
    if write && (inode.perm().immutable() || inode.perm().append()) {
        return Err(Errno::EPERM.into());
    }
    let refusal = if write { Errno::EPERM } else { Errno::ENODATA };
    let by_mode = match space {
        Some(XattrNamespace::Security | XattrNamespace::System) => false,
        Some(XattrNamespace::Trusted) if !cred.has(Caps::SYS_ADMIN) => return Err(refusal.into()),
        Some(XattrNamespace::User) => {
            if !matches!(inode.kind(), FileType::Regular | FileType::Directory) {
                return Err(refusal.into());
            }
            // Write permission on a sticky directory is not enough: only its owner may.
            let sticky_dir = inode.is_dir() && inode.perm().mode() & 0o1000 != 0;
            if write && sticky_dir && !owner_or_capable(cred, inode) {
                return Err(Errno::EPERM.into());
            }
            true
        }
        _ => true,
    };
    if by_mode {
        mount
            .superblock()
            .checker
            .permission(cred, inode, want, mount.is_read_only())?;
    }
    match found {
        None | Some((XattrNamespace::System, _)) => Err(Errno::EOPNOTSUPP.into()),
        Some((_, [])) => Err(Errno::EINVAL.into()),
        Some((space, _)) => Ok(space),
    }
}

pub(crate) fn get(cred: &Cred, mount: &Mount, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
    let sb = mount.superblock();
    if let Some(kind) = AclKind::from_xattr_name(name) {
        return match acl(sb, inode, kind)? {
            Some(acl) => Ok(acl.to_xattr()),
            None => Err(Errno::ENODATA.into()),
        };
    }
    permission(cred, mount, inode, name, Access::READ)?;
    sb.fs().get_xattr(inode, name)
}

pub(crate) fn list(cred: &Cred, sb: &SuperBlock, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let see_trusted = cred.has(Caps::SYS_ADMIN);
    sb.fs().list_xattr(inode, &mut |name| {
        if see_trusted || XattrNamespace::of(name) != Some(XattrNamespace::Trusted) {
            names.push(name.to_vec());
        }
    })?;
    if has_acls(sb, inode) {
        for kind in [AclKind::Access, AclKind::Default] {
            if sb.acl(inode, kind)?.is_some() {
                names.push(kind.xattr_name().as_bytes().to_vec());
            }
        }
    }
    Ok(names)
}

pub(crate) fn acl(sb: &SuperBlock, inode: &Inode, kind: AclKind) -> Result<Option<Arc<Acl>>> {
    if !has_acls(sb, inode) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    sb.acl(inode, kind)
}

/// Removes the capabilities of a program from a file that changes, whatever rights the caller has:
/// they were given to the old contents. Locks: `rwsem` exclusive.
pub(crate) fn drop_capabilities(
    cred: &Cred,
    sb: &SuperBlock,
    inode: &Inode,
    now: Timespec,
) -> Result<()> {
    if inode.has_no_caps() {
        return Ok(());
    }
    let fs = sb.fs();
    match fs.get_xattr(inode, CAPABILITY) {
        Ok(_) => fs.set_xattr(
            inode,
            CAPABILITY,
            None,
            XattrFlags::empty(),
            sb.context_at(now, cred),
        )?,
        Err(error) if matches!(error.errno(), Errno::ENODATA | Errno::EOPNOTSUPP) => {}
        Err(error) => return Err(error),
    }
    // The next change need not ask the file system.
    inode.set_no_caps(true);
    Ok(())
}

/// Returns whether the inode can have ACLs.
pub(crate) fn has_acls(sb: &SuperBlock, inode: &Inode) -> bool {
    sb.traits().acl && inode.kind() != FileType::Symlink
}
