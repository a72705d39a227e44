//! Sets attributes of inodes: mode, owner, times, flags, project, and the ACL that goes with a
//! mode.
//!
//! `InodeOps::set_attr` calls [`change_attr`], after the VFS has checked permissions. All that one
//! call sets is in one transaction. It takes the inode's map and attribute locks only for changes
//! that readers of those could see. Flags that users may not set stay; unknown ones are
//! `EOPNOTSUPP`, as in Linux. A change of the owner moves usage between quotas, and may fail with
//! `EDQUOT`.

use extern4_disk::feature::Incompat;
use extern4_disk::inode::{Inode as Fields, InodeFlags};
use extern4_vfs::{AclKind, Errno, FileFlags, Inode, SetAttr, SpaceRights, Timespec};

use crate::alloc::reserve::Demand;
use crate::dir::insert::is_empty_directory;
use crate::error::Result;
use crate::file::data_journal::prepare_switch;
use crate::fs::Ext4;
use crate::fs::inode::SHOWN_FLAGS;
use crate::fs::quota_accounts::Owners;
use crate::handle::Handle;
use crate::handle::publish::{publish, publish_times};
use crate::handle::times::note_read_lazily;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;
use crate::time::timestamp;
use crate::xattr::acl::set::plan_acl;
use crate::xattr::list::Need;
use crate::xattr::set::apply_plan;

/// The flags that only directories can have.
const DIRECTORIES_ONLY: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::PROJINHERIT);

/// Sets attributes, and the ACL that goes with a mode.
pub(crate) fn change_attr(fs: &Ext4, inode: &Inode, set: &SetAttr) -> Result<()> {
    if note_read_lazily(fs, inode, set)? {
        return Ok(());
    }
    if let (Some(mode), true) = (set.mode, sets_only_mode(set)) {
        return change_mode(fs, inode, mode, set.ctime);
    }
    let cached = inode.private::<CachedInode>();
    let mut info = cached.info();
    // A flag can change how contents are read, so it needs the map lock. An ACL needs the lock on
    // attributes.
    let sets_flags = set.flags.is_some();
    let sets_acl = set.acl.is_some();
    let locks_map = sets_flags && !info.is_directory() || sets_acl && info.is_inline();
    let _map = locks_map.then(|| cached.change_map());
    let _attributes = sets_acl.then(|| cached.change_attributes());
    let flags = set
        .flags
        .map(|flags| new_flags(fs, &info, flags, set.rights))
        .transpose()?;
    if let Some(flags) = flags {
        check_flags_and_project(info.fields(), flags, set.project)?;
        if (flags ^ info.fields().flags()).contains(InodeFlags::JOURNAL_DATA) {
            prepare_switch(fs, &info)?;
        }
    }
    let plan = set
        .acl
        .as_deref()
        .map(|acl| plan_acl(fs, &info, AclKind::Access, acl))
        .transpose()?;
    let need = plan.as_ref().map_or(
        Need {
            credits: 1,
            blocks: 0,
        },
        |plan| plan.need(fs),
    );
    let counts =
        set.uid.is_some() || set.gid.is_some() || set.project.is_some() || set.acl.is_some();
    let owners = counts.then(|| Owners::of(info.fields()).after(set));
    if let Some(owners) = owners {
        fs.open_accounts(owners)?;
    }
    let operate = |handle: &Handle<'_>| {
        if let Some(owners) = owners {
            handle.admit_transfer(&info, owners, set.rights)?;
        }
        if let Some(plan) = &plan {
            handle.admit_plan(&info, set.rights, plan)?;
        }
        set_fields(info.fields_mut(), set);
        if let Some(flags) = flags {
            info.fields_mut().set_flags(flags);
        }
        match plan {
            Some(plan) => apply_plan(handle, &mut info, plan)?,
            None => handle.store(&info)?,
        }
        Ok(handle.tid())
    };
    let tid = fs.with_handle(need.credits, Demand::new(need.blocks, set.rights), operate)?;
    if sets_only_times(set) {
        return publish_times(fs, inode, &info, tid);
    }
    let Some(acl) = &set.acl else {
        return publish(fs, inode, &info, tid);
    };
    let attr = info.attr(fs)?;
    cached.set_attributes(&info, tid);
    inode.update_acl(AclKind::Access, Some(acl.clone()), |old| *old = attr);
    Ok(())
}

fn change_mode(fs: &Ext4, inode: &Inode, mode: u16, ctime: Option<Timespec>) -> Result<()> {
    fs.with_handle(1, 0, |handle| {
        handle.touch(inode, |fields, _| {
            fields.set_permissions(mode);
            if let Some(ctime) = ctime {
                fields.set_ctime(timestamp(ctime));
            }
        })
    })
}

/// Returns the flags of the inode after a user has set `wanted`.
fn new_flags(
    fs: &Ext4,
    info: &InodeInfo,
    wanted: FileFlags,
    rights: SpaceRights,
) -> Result<InodeFlags> {
    let old = info.fields().flags();
    let wanted = InodeFlags::from_bits_retain(wanted.bits());
    let misplaced = !info.is_directory() && wanted.intersects(DIRECTORIES_ONLY);
    if wanted.bits() & !SHOWN_FLAGS != 0 || misplaced {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let changed = old ^ wanted;
    if changed.contains(InodeFlags::JOURNAL_DATA) && !rights.sys_resource {
        return Err(Errno::EPERM.into());
    }
    // Journaled contents cannot be mapped directly from the device.
    if changed.contains(InodeFlags::DAX) && (old | wanted).contains(InodeFlags::JOURNAL_DATA) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if changed.contains(InodeFlags::CASEFOLD) {
        check_casefold(fs, info)?;
    }
    // Without a journal the flag has no effect, and does not change.
    let switch = if fs.has_data_journal() {
        InodeFlags::JOURNAL_DATA
    } else {
        InodeFlags::empty()
    };
    let settable = InodeFlags::SETTABLE | switch;
    Ok((old - settable) | (wanted & settable))
}

/// Checks that case folding can be switched: only an empty directory can.
fn check_casefold(fs: &Ext4, info: &InodeInfo) -> Result<()> {
    if !fs
        .superblock()
        .features()
        .incompat
        .contains(Incompat::CASEFOLD)
    {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if !info.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    if is_empty_directory(fs, info)? {
        Ok(())
    } else {
        Err(Errno::ENOTEMPTY.into())
    }
}

/// Returns `EPERM` for a file that stays immutable, and `EOPNOTSUPP` if the volume has no projects,
/// or the record no room for one.
fn check_flags_and_project(old: &Fields, flags: InodeFlags, project: Option<u32>) -> Result<()> {
    let mut new = *old;
    let project = project.unwrap_or(old.project());
    let changes = flags != old.flags() || project != old.project();
    if changes && (flags & old.flags()).contains(InodeFlags::IMMUTABLE) {
        return Err(Errno::EPERM.into());
    }
    new.set_project(project);
    if new.project() == project {
        Ok(())
    } else {
        Err(Errno::EOPNOTSUPP.into())
    }
}

/// Whether only the mode and the time of change are set.
fn sets_only_mode(set: &SetAttr) -> bool {
    let ids = [set.uid, set.gid, set.project].iter().any(Option::is_some);
    !ids && set.flags.is_none() && set.acl.is_none() && set.atime.is_none() && set.mtime.is_none()
}

/// Whether only times are set.
fn sets_only_times(set: &SetAttr) -> bool {
    let times = SetAttr {
        atime: set.atime,
        mtime: set.mtime,
        ctime: set.ctime,
        rights: set.rights,
        ..SetAttr::default()
    };
    *set == times
}

fn set_fields(fields: &mut Fields, set: &SetAttr) {
    if let Some(mode) = set.mode {
        fields.set_permissions(mode);
    }
    if let Some(uid) = set.uid {
        fields.set_uid(uid);
    }
    if let Some(gid) = set.gid {
        fields.set_gid(gid);
    }
    if let Some(project) = set.project {
        fields.set_project(project);
    }
    if let Some(time) = set.atime {
        fields.set_atime(timestamp(time));
    }
    if let Some(time) = set.mtime {
        fields.set_mtime(timestamp(time));
    }
    if let Some(time) = set.ctime {
        fields.set_ctime(timestamp(time));
    }
}
