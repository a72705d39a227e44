//! Sets and removes ACLs, and gives new inodes theirs.
//!
//! `InodeOps::set_acl` calls [`change_acl`]: the ACL and the permission bits that go with it change
//! in one transaction, and the VFS gets both at once. `set_attr` uses [`plan_acl`], and
//! `ops::create` and `ops::link` use [`room_for_acls`] before a change and [`init_attributes`] in
//! it. An ACL without room is `ENOSPC` before anything changes.

use std::sync::Arc;

use extern4_disk::acl::encode;
use extern4_disk::feature::Incompat;
use extern4_disk::xattr::NameIndex;
use extern4_disk::{inline, inode as disk_inode};
use extern4_vfs::{Acl, AclKind, ChangeContext, Errno, Inode};

use crate::alloc::reserve::Demand;
use crate::error::Result;
use crate::fs::Ext4;
use crate::handle::Handle;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::time::timestamp;
use crate::xattr::list::{Attribute, Attributes, Need, Plan};
use crate::xattr::set::{apply_plan, set_attribute};

/// Sets an ACL and the permission bits that go with it. Removes the ACL if `acl` is `None`.
pub(crate) fn change_acl(
    fs: &Ext4,
    inode: &Inode,
    kind: AclKind,
    acl: Option<Arc<Acl>>,
    mode: Option<u16>,
    context: ChangeContext,
) -> Result<()> {
    let ChangeContext { now, rights } = context;
    let cached = inode.private::<CachedInode>();
    let mut info = cached.info();
    let _map = info.is_inline().then(|| cached.change_map());
    let _attributes = cached.change_attributes();
    let value = acl.as_deref().map(encode);
    let old = info.attributes(fs)?;
    if old.has_value(index(kind), b"", value.as_deref())
        && mode.is_none_or(|mode| mode == info.fields().permissions())
    {
        return Ok(());
    }
    let plan = info.plan(fs, &old, (index(kind), b""), value.as_deref())?;
    let need = plan.need(fs);
    let tid = fs.with_handle(need.credits, Demand::new(need.blocks, rights), |handle| {
        handle.admit_plan(&info, rights, &plan)?;
        let fields = info.fields_mut();
        if let Some(mode) = mode {
            fields.set_permissions(mode);
        }
        fields.set_ctime(timestamp(now));
        apply_plan(handle, &mut info, plan)?;
        Ok(handle.tid())
    })?;
    let attr = info.attr(fs)?;
    cached.set_attributes(&info, tid);
    inode.update_acl(kind, acl, |old| *old = attr);
    Ok(())
}

/// Plans how to set an ACL. `ENOSPC` if there is no room for it.
pub(crate) fn plan_acl(fs: &Ext4, info: &InodeInfo, kind: AclKind, acl: &Acl) -> Result<Plan> {
    info.plan(
        fs,
        &info.attributes(fs)?,
        (index(kind), b""),
        Some(&encode(acl)),
    )
}

/// Returns the room that [`init_attributes`] needs for an inode with this mode.
///
/// # Errors
/// `ENOSPC` if there is no room for the ACLs.
pub(crate) fn room_for_acls(
    fs: &Ext4,
    mode: u16,
    acl: Option<&Acl>,
    default_acl: Option<&Acl>,
) -> Result<Need> {
    let mut need = Need::default();
    if acl.is_none() && default_acl.is_none() {
        return Ok(need);
    }
    let sb = fs.superblock();
    let blank = vec![0; usize::from(sb.inode_size())];
    let inode = disk_inode::Inode::new(disk_inode::ROOT_INO, mode, 0, sb);
    let info = InodeInfo::new(inode, fs.inode_position(disk_inode::ROOT_INO)?, None);
    let mut attributes = Attributes::none(inode.xattr_area(&blank).len());
    if sb.features().incompat.contains(Incompat::INLINE_DATA) {
        // The new inode may have this attribute before the ACLs.
        attributes
            .own
            .push(Attribute::in_inode(inline::XATTR.0, inline::XATTR.1, b""));
    }
    for (kind, acl) in [(AclKind::Access, acl), (AclKind::Default, default_acl)] {
        let Some(acl) = acl else { continue };
        let plan = info.plan(fs, &attributes, (index(kind), b""), Some(&encode(acl)))?;
        if plan.value.is_some() && fs.writer()?.allocator.free_inodes() < 3 {
            return Err(Errno::ENOSPC.into());
        }
        let more = plan.need(fs);
        need = Need {
            credits: need.credits + more.credits,
            blocks: need.blocks + more.blocks,
        };
        attributes = attributes.after(&plan);
    }
    Ok(need)
}

/// Sets the ACLs of a new inode, and stores it. Its record has been cleared.
///
/// # Errors
/// `ENOSPC` if there is no room for them, which [`room_for_acls`] finds before anything is changed.
pub(crate) fn init_attributes(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    acl: Option<&Acl>,
    default_acl: Option<&Acl>,
) -> Result<()> {
    for (kind, acl) in [(AclKind::Access, acl), (AclKind::Default, default_acl)] {
        if let Some(acl) = acl {
            set_attribute(handle, info, index(kind), b"", Some(&encode(acl)))?;
        }
    }
    Ok(())
}

const fn index(kind: AclKind) -> NameIndex {
    match kind {
        AclKind::Access => NameIndex::POSIX_ACL_ACCESS,
        AclKind::Default => NameIndex::POSIX_ACL_DEFAULT,
    }
}
