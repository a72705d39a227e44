//! Creates files, directories, links and devices, each in one transaction.
//!
//! [`create_node`] allocates an inode, stores it, and adds its name to the directory; without a
//! name (`O_TMPFILE`) it adds the inode to the orphans. It checks everything that can fail for
//! other reasons than damage before it changes anything: name, space, quota, ACLs.
//! `InodeOps::create` calls it. A rename creates its whiteout with [`new_inode`], and `link` uses
//! the helpers for times and link counts.

use extern4_disk::dirent;
use extern4_disk::feature::RoCompat;
use extern4_disk::inode::{DeviceNumber, Inode as DiskInode, InodeFlags, MAP_SIZE};
use extern4_sync::slab::new_box;
use extern4_vfs::{Errno, FileType, Inode, NewInode, NewKind, NewNode, Timespec};

use crate::alloc::reserve::Demand;
use crate::dir::insert::{blocks_for_name, check_new_name, has_much_room, new_directory};
use crate::error::Result;
use crate::fs::Ext4;
use crate::fs::quota_accounts::Owners;
use crate::handle::Handle;
use crate::inode::cached::{CachedInode, LockedNames};
use crate::inode::info::InodeInfo;
use crate::map::change::allocate_for;
use crate::map::map_blocks::empty_map;
use crate::time::timestamp;
use crate::xattr::acl::set::{init_attributes, room_for_acls};

/// The most links of a file, and of a directory whose links are counted.
pub(crate) const LINK_MAX: u16 = 65_000;

/// The most blocks of metadata that an operation on names changes: two directories with their
/// trees, bitmaps, descriptors, inode records, attributes, the superblock.
pub(crate) const NAME_CREDITS: u32 = 64;

/// Blocks that adding a name may allocate: a leaf, nodes of the tree above it, and blocks of the
/// map.
pub(crate) const NAME_BLOCKS: u32 = 12;

/// Blocks that a new inode may allocate: contents of a directory or link, blocks of their map, and
/// attributes.
pub(crate) const NODE_BLOCKS: u32 = 6;

/// The flags that a new file inherits from its directory.
const INHERITED: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMPR)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);

/// Creates an inode, and adds it to `dir` as `name`, or to the orphans.
pub(crate) fn create_node(
    fs: &Ext4,
    dir: &Inode,
    name: Option<&[u8]>,
    new: &NewNode<'_>,
) -> Result<NewInode> {
    let parent = dir.private::<CachedInode>().info();
    if parent.is_encrypted() {
        return Err(Errno::ENOKEY.into());
    }
    let is_dir = new.kind == NewKind::Directory;
    if let NewKind::Symlink(target) = new.kind
        && target.len() >= crate::volume::group::to_usize(fs.superblock().block_size())
    {
        // A target and its final NUL must fit into a block.
        return Err(Errno::ENAMETOOLONG.into());
    }
    let owners = Owners::of_new(&parent, new);
    fs.open_accounts(owners)?;
    let mode = new.kind.file_type().mode_bits() | new.mode;
    let acls = room_for_acls(fs, mode, new.acl, new.default_acl)?;
    // Other threads may add names meanwhile. If a few names more could make this one fail, the
    // names are locked before the checks.
    let asks_first = match name {
        None => false,
        Some(name) => is_dir || fs.writer()?.quotas.is_some() || !has_much_room(fs, &parent, name)?,
    };
    let contents = blocks_for_contents(&new.kind) + acls.blocks;
    let exactly = || {
        let names = name.map(|_| Box::new(LockedNames::lock(dir)));
        let for_name = match (&names, name) {
            (Some(names), Some(name)) => blocks_for_name(fs, &names.info, name)?,
            _ => 0,
        };
        Ok((names, contents + for_name))
    };
    let blocks = NODE_BLOCKS + if name.is_some() { NAME_BLOCKS } else { 0 } + acls.blocks;
    let demand = Demand::new(blocks, new.rights);
    // The inode is built in place here, because moving it is costly.
    let mut made = None;
    let tid = fs.with_exact_demand(
        NAME_CREDITS + acls.credits,
        demand,
        exactly,
        |handle, names| {
            let mut early = names.flatten();
            if asks_first && early.is_none() {
                early = Some(Box::new(LockedNames::lock(dir)));
            }
            handle.admit(owners, new.rights, || Ok(handle.amount(contents, 1)))?;
            if let (Some(names), Some(name)) = (&early, name) {
                check_new_name(fs, &names.info, name)?;
                if is_dir {
                    names.info.check_room_for_link(fs)?;
                }
                handle.admit_blocks(&names.info, new.rights, || {
                    blocks_for_name(fs, &names.info, name)
                })?;
            }
            let info = made.insert(new_inode(handle, &parent, new)?);
            if name.is_none() {
                info.fields_mut().set_links(0);
            }
            init_attributes(handle, info, new.acl, new.default_acl)?;
            store_new(handle, info, new)?;
            if name.is_none() {
                // Only after it is stored: once it is on the list, a thread that removes its
                // neighbour changes its record.
                handle.writer.orphans.orphan_add(info);
                handle.store(info)?;
            }
            if let Some(name) = name {
                let kind = dirent::FileType::from_mode(info.fields().mode());
                let mut late;
                let names = match &mut early {
                    Some(names) => names,
                    None => {
                        late = LockedNames::lock(dir);
                        &mut late
                    }
                };
                names.add(handle, name, info.ino(), kind)?;
                if is_dir {
                    count_link(&mut names.info);
                }
                touch_names(handle, &mut names.info, new.now)?;
                names.publish(fs, handle.tid());
            }
            Ok(handle.tid())
        },
    )?;
    // OK: the closure has made it.
    let info = made.ok_or(Errno::EIO)?;
    let attr = info.attr(fs)?;
    let no_acl = new.acl.is_none() && new.default_acl.is_none();
    Ok(NewInode {
        attr,
        no_acl,
        no_caps: true,
        private: new_box(CachedInode::changed(&info, tid)),
    })
}

impl InodeInfo {
    /// Returns `EMLINK` if a directory cannot have one more subdirectory.
    pub(crate) fn check_room_for_link(&self, fs: &Ext4) -> Result<()> {
        let full = self.fields().links() >= LINK_MAX;
        let uncounted = fs
            .superblock()
            .features()
            .ro_compat
            .contains(RoCompat::DIR_NLINK);
        if full && !uncounted {
            Err(Errno::EMLINK.into())
        } else {
            Ok(())
        }
    }
}

/// Returns a new inode with its contents. The caller stores it.
pub(crate) fn new_inode(
    handle: &Handle<'_>,
    parent: &InodeInfo,
    new: &NewNode<'_>,
) -> Result<InodeInfo> {
    let (ino, generation) = handle.writer.allocator.allocate_inode(
        handle,
        parent.ino(),
        new.kind == NewKind::Directory,
    )?;
    let mut info = new_info(handle, (ino, generation), parent, new)?;
    if is_in_pieces(new) {
        handle.writer.allocator.clear_record(handle, ino)?;
    }
    fill(handle, &mut info, parent, new)?;
    Ok(info)
}

/// Stores a new inode: its whole record, or its fields if the record has data already.
pub(crate) fn store_new(handle: &Handle<'_>, info: &InodeInfo, new: &NewNode<'_>) -> Result<()> {
    handle.writer.held_files.note_new(info.ino());
    if is_in_pieces(new) {
        handle.store(info)
    } else {
        handle.store_whole(info)
    }
}

/// Returns the inode of a new file, with owner, mode, times and inherited flags.
fn new_info(
    handle: &Handle<'_>,
    (ino, generation): (u32, u32),
    parent: &InodeInfo,
    new: &NewNode<'_>,
) -> Result<InodeInfo> {
    let sb = handle.fs.superblock();
    let kind = new.kind.file_type();
    let mut inode = DiskInode::new(ino, kind.mode_bits() | new.mode & 0o7777, generation, sb);
    inode.set_uid(new.uid);
    inode.set_gid(new.gid);
    inode.set_flags(inherited(parent.fields().flags(), kind));
    if parent.fields().flags().contains(InodeFlags::PROJINHERIT) {
        inode.set_project(parent.fields().project());
    }
    let now = timestamp(new.now);
    inode.set_atime(now);
    inode.set_mtime(now);
    inode.set_ctime(now);
    inode.set_crtime(now);
    Ok(InodeInfo::new(
        inode,
        handle.fs.inode_position(ino)?,
        sb.metadata_seed(),
    ))
}

/// Gives a new inode its contents and links.
fn fill(
    handle: &Handle<'_>,
    info: &mut InodeInfo,
    parent: &InodeInfo,
    new: &NewNode<'_>,
) -> Result<()> {
    info.fields_mut().set_links(1);
    match new.kind {
        NewKind::Regular => empty_map(handle, info),
        NewKind::Directory => {
            info.fields_mut().set_links(2);
            empty_map(handle, info);
            new_directory(handle, info, parent.ino())?;
        }
        NewKind::Symlink(target) => write_target(handle, info, target)?,
        NewKind::CharDevice(rdev) | NewKind::BlockDevice(rdev) => {
            info.fields_mut().set_device(DeviceNumber {
                major: rdev.major,
                minor: rdev.minor,
            });
        }
        NewKind::Fifo | NewKind::Socket => {}
    }
    Ok(())
}

/// Writes the target of a new symbolic link: in place of the map if it is short, else to a block.
fn write_target(handle: &Handle<'_>, info: &mut InodeInfo, target: &[u8]) -> Result<()> {
    info.fields_mut().set_size(target.len() as u64);
    if target.len() < MAP_SIZE {
        let mut map = [0; MAP_SIZE];
        map[..target.len()].copy_from_slice(target);
        info.fields_mut().set_map(&map);
        return Ok(());
    }
    empty_map(handle, info);
    let run = allocate_for(handle, info, 0, 1, false)?;
    let block = run
        .mapped()
        .map(|mapped| mapped.start)
        .ok_or(Errno::ENOSPC)?;
    let mut buffer = handle.fresh(block)?;
    handle.edit(&mut buffer, |bytes| {
        bytes[..target.len()].copy_from_slice(target)
    });
    Ok(())
}

/// Counts one more subdirectory.
pub(crate) fn count_link(dir: &mut InodeInfo) {
    let links = dir.fields().links();
    // One link means that there are too many to be counted.
    let more = if links == 1 || links >= LINK_MAX {
        1
    } else {
        links + 1
    };
    dir.fields_mut().set_links(more);
}

/// Counts one subdirectory less.
pub(crate) fn uncount_link(dir: &mut InodeInfo) {
    let links = dir.fields().links();
    if links > 2 {
        dir.fields_mut().set_links(links - 1);
    }
}

/// Stores a directory whose names have changed, unless its record has these times and all fields
/// already. So its version grows once a clock tick. No reader sees the version while the volume is
/// open here.
pub(crate) fn touch_names(handle: &Handle<'_>, dir: &mut InodeInfo, now: Timespec) -> Result<()> {
    let now = timestamp(now);
    if !dir.is_touched() && (dir.fields().mtime(), dir.fields().ctime()) == (now, now) {
        handle.note_sync(dir.fields());
        return Ok(());
    }
    dir.fields_mut().set_mtime(now);
    dir.fields_mut().set_ctime(now);
    let version = dir.fields().version();
    dir.fields_mut().set_version(version.wrapping_add(1));
    handle.store(dir)
}

/// Sets the time of the last change to `now` and stores the inode, unless its record has that time
/// already.
pub(crate) fn touch_ctime(handle: &Handle<'_>, info: &mut InodeInfo, now: Timespec) -> Result<()> {
    let now = timestamp(now);
    if !info.is_touched() && info.fields().ctime() == now {
        handle.note_sync(info.fields());
        return Ok(());
    }
    info.fields_mut().set_ctime(now);
    handle.store(info)
}

/// Whether a new inode's record may get attributes or inline names before its fields are stored.
/// The record then has to be cleared first.
fn is_in_pieces(new: &NewNode<'_>) -> bool {
    new.kind == NewKind::Directory || new.acl.is_some() || new.default_acl.is_some()
}

/// Returns how many blocks the contents of a new file need.
fn blocks_for_contents(kind: &NewKind<'_>) -> u32 {
    match kind {
        NewKind::Directory => 1,
        NewKind::Symlink(target) => u32::from(target.len() >= MAP_SIZE),
        _ => 0,
    }
}

/// Returns the flags that a new file inherits.
fn inherited(parent: InodeFlags, kind: FileType) -> InodeFlags {
    let flags = parent & INHERITED;
    match kind {
        FileType::Directory => flags,
        FileType::Regular => {
            flags - (InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD)
        }
        _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}
