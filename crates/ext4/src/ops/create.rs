//! Making files, and freeing those that nobody can reach any more.

use extern4_disk::dirent;
use extern4_disk::extent::EMPTY_ROOT;
use extern4_disk::feature::{Incompat, RoCompat};
use extern4_disk::inode::{DeviceNumber, Inode as DiskInode, InodeFlags, MAP_SIZE};
use extern4_disk::journal::Tid;
use extern4_disk::time::Timestamp;
use extern4_sync::slab::new_box;
use extern4_vfs::{Errno, FileType, Inode, NamesAttr, NewInode, NewKind, NewNode, Timespec};

use crate::alloc::balloc::Demand;
use crate::error::Result;
use crate::inode::inode_info::{Names, Node};
use crate::inode::{InodeInfo, shown_flags, timespec};
use crate::map::LOGICAL_END;
use crate::map::change::UNMAP_CREDITS;
use crate::mount::Ext4;
use crate::quota::Owners;
use crate::volume::handle::Change;

/// Most links of a file, and of a directory whose links are counted.
pub(crate) const LINK_MAX: u16 = 65_000;

/// Blocks of metadata that an operation on names changes at most: two directories with their trees, bitmaps, descriptors,
/// records of inodes, attributes, the superblock.
pub(crate) const NAME_CREDITS: u32 = 64;

/// Blocks that one more name may take: a leaf, nodes of the tree above it, and what maps them.
pub(crate) const NAME_BLOCKS: u32 = 12;

/// Blocks that a new inode may take: contents of a directory or link, what maps them, and attributes.
pub(crate) const NODE_BLOCKS: u32 = 6;

/// Flags that a new file takes over from its directory.
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

impl Ext4 {
    /// Makes an inode, and enters it in `dir` under `name`, or as an orphan.
    pub(crate) fn create_node(
        &self,
        dir: &Inode,
        name: Option<&[u8]>,
        new: &NewNode<'_>,
    ) -> Result<NewInode> {
        let parent = dir.private::<Node>().info();
        if parent.is_encrypted() {
            return Err(Errno::ENOKEY.into());
        }
        let is_dir = new.kind == NewKind::Directory;
        if let NewKind::Symlink(target) = new.kind
            && target.len() >= crate::volume::group::to_usize(self.superblock().block_size())
        {
            // One block holds a target and its end.
            return Err(Errno::ENAMETOOLONG.into());
        }
        let owners = Owners::of_new(&parent, new);
        self.open_accounts(owners)?;
        let mode = new.kind.file_type().mode_bits() | new.mode;
        let acls = self.room_for_acls(mode, new.acl, new.default_acl)?;
        // Others may add names meanwhile. Where it takes few of them to change the answer, they are kept from it first.
        let asks_first = match name {
            None => false,
            Some(name) => is_dir || self.writer()?.quotas.is_some() || !self.has_much_room(&parent, name)?,
        };
        let contents = blocks_for_contents(&new.kind) + acls.blocks;
        let exactly = || {
            let names = name.map(|_| Box::new(Names::lock(dir)));
            let for_name = match (&names, name) {
                (Some(names), Some(name)) => self.blocks_for_name(&names.info, name)?,
                _ => 0,
            };
            Ok((names, contents + for_name))
        };
        let blocks = NODE_BLOCKS + if name.is_some() { NAME_BLOCKS } else { 0 } + acls.blocks;
        let demand = Demand::new(blocks, new.rights);
        // Not handed from one to the other, for it is large.
        let mut made = None;
        let tid =
            self.changing_sparingly(NAME_CREDITS + acls.credits, demand, exactly, |change, names| {
                let mut early = names.flatten();
                if asks_first && early.is_none() {
                    early = Some(Box::new(Names::lock(dir)));
                }
                change.admit(owners, new.rights, || Ok(change.amount(contents, 1)))?;
                if let (Some(names), Some(name)) = (&early, name) {
                    self.check_new_name(&names.info, name)?;
                    if is_dir {
                        self.check_room_for_link(&names.info)?;
                    }
                    change
                        .admit_blocks(&names.info, new.rights, || self.blocks_for_name(&names.info, name))?;
                }
                let info = made.insert(change.new_inode(&parent, new)?);
                if name.is_none() {
                    info.fields_mut().set_links(0);
                }
                change.init_attributes(info, new.acl, new.default_acl)?;
                change.store_new(info, new)?;
                if name.is_none() {
                    // Not before it is stored: from then on, who takes a neighbour off the list writes to its record.
                    change.orphan_add(info)?;
                    change.store(info)?;
                }
                if let Some(name) = name {
                    let kind = dirent::FileType::from_mode(info.fields().mode());
                    let mut late;
                    let names = match &mut early {
                        Some(names) => names,
                        None => {
                            late = Names::lock(dir);
                            &mut late
                        }
                    };
                    change.add_name(&mut names.info, name, info.ino(), kind)?;
                    if is_dir {
                        change.count_link(&mut names.info);
                    }
                    change.touch_names(&mut names.info, new.now)?;
                    names.show(self, change.tid());
                }
                Ok(change.tid())
            })?;
        // OK: it has been made.
        let info = made.ok_or(Errno::EIO)?;
        let attr = self.attr(&info)?;
        let no_acl = new.acl.is_none() && new.default_acl.is_none();
        Ok(NewInode { attr, no_acl, no_caps: true, private: new_box(Node::changed(info, tid)) })
    }

    /// Hands a changed inode to those who have it in use.
    pub(crate) fn publish(&self, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
        self.publish_by(inode, info, |node| node.set(info, tid))
    }

    /// The same for one of which nothing but times has changed.
    pub(crate) fn publish_times(&self, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
        self.publish_by(inode, info, |node| node.set_times(info, tid))
    }

    /// The same for one whose extended attributes have changed.
    pub(crate) fn publish_attributes(&self, inode: &Inode, info: &InodeInfo, tid: Tid) -> Result<()> {
        self.publish_by(inode, info, |node| node.set_attributes(info, tid))
    }

    fn publish_by(&self, inode: &Inode, info: &InodeInfo, put: impl FnOnce(&Node)) -> Result<()> {
        let attr = self.attr(info)?;
        put(inode.private::<Node>());
        inode.set_attr(&attr);
        Ok(())
    }

    /// The same for one of which nothing that callers see has changed but its permission bits, its links, and when it was changed last.
    pub(crate) fn publish_touched(&self, inode: &Inode, info: &InodeInfo, tid: Tid) {
        if !info.is_touched() {
            return inode.private::<Node>().note(info, tid);
        }
        let fields = info.fields();
        let (mode, links, ctime) = (fields.permissions(), fields.links(), timespec(fields.ctime()));
        let node = inode.private::<Node>();
        match info.is_directory() {
            // Where `..` leads may stand in the inode.
            true => node.set(info, tid),
            false => node.set_touched(info, tid),
        }
        inode.touch(mode, u32::from(links), ctime);
    }

    /// The same for a directory of which nothing has changed but its names, and what they take.
    pub(crate) fn publish_names(&self, dir: &Inode, info: &InodeInfo, tid: Tid) {
        if !info.is_touched() {
            return dir.private::<Node>().note(info, tid);
        }
        let fields = info.fields();
        dir.touch_names(&NamesAttr {
            size: fields.size(),
            blocks: fields.sectors(),
            nlink: u32::from(fields.links()),
            mtime: timespec(fields.mtime()),
            ctime: timespec(fields.ctime()),
            flags: shown_flags(fields.flags(), FileType::Directory),
        });
        dir.private::<Node>().set(info, tid);
    }

    /// `EMLINK` if a directory cannot have one more subdirectory.
    pub(crate) fn check_room_for_link(&self, dir: &InodeInfo) -> Result<()> {
        let full = dir.fields().links() >= LINK_MAX;
        let uncounted = self.superblock().features().ro_compat.contains(RoCompat::DIR_NLINK);
        if full && !uncounted { Err(Errno::EMLINK.into()) } else { Ok(()) }
    }

    /// Frees an inode that has no links and that nobody uses any more.
    pub(crate) fn delete(&self, mut info: InodeInfo) -> Result<()> {
        let metadata = info.holds_metadata();
        if self.has_map(&info) && !self.is_map_empty(&info) {
            self.free_contents(&mut info, 0, metadata)?;
        }
        let has_attributes = self.has_attributes(&info)?;
        if has_attributes {
            self.free_values(&mut info)?;
        }
        self.changing(NAME_CREDITS, 0, |change| {
            if has_attributes {
                change.free_attributes(&mut info)?;
            }
            change.orphan_remove(&mut info)?;
            change.give_back(&mut info, now_seconds())
        })
    }

    /// What it takes to free a file in the step that takes its last name; `None` if there is too much of it.
    pub(crate) fn credits_to_free_at_once(&self, info: &InodeInfo) -> Result<Option<u32>> {
        /// Where the numbers of blocks that map others begin.
        const INDIRECT: usize = 12 * 4;
        if self.has_attributes(info)? {
            return Ok(None);
        }
        if !self.has_map(info) || self.is_map_empty(info) {
            return Ok(Some(0));
        }
        let is_flat = match info.has_extents() {
            // The depth, in the root.
            true => info.i_block()[6..8] == [0, 0],
            false => info.i_block()[INDIRECT..].iter().all(|&byte| byte == 0),
        };
        Ok(is_flat.then_some(UNMAP_CREDITS))
    }

    /// Whether `i_block` says where blocks are.
    pub(crate) fn has_map(&self, info: &InodeInfo) -> bool {
        use extern4_disk::inode::FileKind;
        if info.is_inline() {
            return false;
        }
        match info.fields().kind() {
            FileKind::Regular | FileKind::Directory => true,
            FileKind::Symlink => !self.is_fast(info),
            _ => false,
        }
    }

    /// Whether `i_block`, which says where blocks are, says that there are none.
    fn is_map_empty(&self, info: &InodeInfo) -> bool {
        match info.has_extents() {
            // The number of entries in the root.
            true => info.i_block()[2..4] == [0, 0],
            false => info.i_block().iter().all(|&byte| byte == 0),
        }
    }

    /// Takes the blocks of a file from block `keep` on away, the last first, a bounded part in each
    /// transaction.
    pub(crate) fn free_contents(&self, info: &mut InodeInfo, keep: u64, metadata: bool) -> Result<()> {
        let mut left = keep..LOGICAL_END;
        while !left.is_empty() {
            left = self.changing(UNMAP_CREDITS + 1, 0, |change| {
                let left = change.unmap(info, left.clone(), metadata)?;
                change.store(info)?;
                Ok(left)
            })?;
        }
        Ok(())
    }
}

impl Change<'_> {
    /// Gives back an inode that has no links, no blocks and no attributes any more.
    fn give_back(&self, info: &mut InodeInfo, now: u32) -> Result<()> {
        info.fields_mut().set_dtime(now);
        info.fields_mut().set_size(0);
        self.store(info)?;
        self.settle_freed(info)?;
        self.free_inode(info.ino(), info.is_directory())
    }

    /// Frees a file whose only name has been removed; false if there is more to it than this transaction has room for.
    pub(crate) fn free_with_name(&self, info: &mut InodeInfo, now: Timespec) -> Result<bool> {
        if self.fs.has_map(info) && !self.fs.is_map_empty(info) {
            let left = self.unmap(info, 0..LOGICAL_END, info.holds_metadata())?;
            if !left.is_empty() {
                return Ok(false);
            }
        }
        info.fields_mut().set_links(0);
        info.fields_mut().set_ctime(timestamp(now));
        self.give_back(info, seconds(now.sec))?;
        Ok(true)
    }

    /// A new inode with its contents. The caller stores it.
    pub(crate) fn new_inode(&self, parent: &InodeInfo, new: &NewNode<'_>) -> Result<InodeInfo> {
        let (ino, generation) = self.allocate_inode(parent.ino(), new.kind == NewKind::Directory)?;
        let mut info = self.new_info((ino, generation), parent, new)?;
        if is_in_pieces(new) {
            self.clear_record(ino)?;
        }
        self.fill(&mut info, parent, new)?;
        Ok(info)
    }

    /// Stores a new inode for the first time, or after what it has got in its record.
    pub(crate) fn store_new(&self, info: &InodeInfo, new: &NewNode<'_>) -> Result<()> {
        if is_in_pieces(new) { self.store(info) } else { self.store_whole(info) }
    }

    /// The inode of a new file, with what it has from its maker and its directory.
    fn new_info(
        &self,
        (ino, generation): (u32, u32),
        parent: &InodeInfo,
        new: &NewNode<'_>,
    ) -> Result<InodeInfo> {
        let sb = self.fs.superblock();
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
        Ok(InodeInfo::new(inode, self.fs.inode_position(ino)?, sb.metadata_seed()))
    }

    /// Gives a new inode its contents and links.
    fn fill(&self, info: &mut InodeInfo, parent: &InodeInfo, new: &NewNode<'_>) -> Result<()> {
        info.fields_mut().set_links(1);
        match new.kind {
            NewKind::Regular => self.empty_map(info),
            NewKind::Directory => {
                info.fields_mut().set_links(2);
                self.empty_map(info);
                self.new_directory(info, parent.ino())?;
            }
            NewKind::Symlink(target) => self.write_target(info, target)?,
            NewKind::CharDevice(rdev) | NewKind::BlockDevice(rdev) => {
                info.fields_mut().set_device(DeviceNumber { major: rdev.major, minor: rdev.minor });
            }
            NewKind::Fifo | NewKind::Socket => {}
        }
        Ok(())
    }

    /// A map of no blocks: by extents, where the volume has them.
    pub(crate) fn empty_map(&self, info: &mut InodeInfo) {
        let mut map = [0; MAP_SIZE];
        let mut flags = info.fields().flags();
        if self.fs.superblock().features().incompat.contains(Incompat::EXTENTS) {
            map = EMPTY_ROOT;
            flags |= InodeFlags::EXTENTS;
        }
        info.fields_mut().set_map(&map);
        info.fields_mut().set_flags(flags);
    }

    /// The target of a new symbolic link: in place of the map if it is short, else in a block.
    fn write_target(&self, info: &mut InodeInfo, target: &[u8]) -> Result<()> {
        info.fields_mut().set_size(target.len() as u64);
        if target.len() < MAP_SIZE {
            let mut map = [0; MAP_SIZE];
            map[..target.len()].copy_from_slice(target);
            info.fields_mut().set_map(&map);
            return Ok(());
        }
        self.empty_map(info);
        let run = self.allocate_for(info, 0, 1, false)?;
        let block = run.mapped().map(|mapped| mapped.start).ok_or(Errno::ENOSPC)?;
        let mut buffer = self.fresh(block)?;
        self.edit(&mut buffer, |bytes| bytes[..target.len()].copy_from_slice(target));
        Ok(())
    }

    /// Counts one more subdirectory.
    pub(crate) fn count_link(&self, dir: &mut InodeInfo) {
        let links = dir.fields().links();
        // One stands for more than can be counted.
        let more = if links == 1 || links >= LINK_MAX { 1 } else { links + 1 };
        dir.fields_mut().set_links(more);
    }

    /// Counts one subdirectory less.
    pub(crate) fn uncount_link(&self, dir: &mut InodeInfo) {
        let links = dir.fields().links();
        if links > 2 {
            dir.fields_mut().set_links(links - 1);
        }
    }

    /// Stores a directory whose names have changed, unless the last change was within the same tick of the clock and its record says
    /// all that already. So its version counts the ticks in which it has changed: nobody sees it while the volume is in use here.
    pub(crate) fn touch_names(&self, dir: &mut InodeInfo, now: Timespec) -> Result<()> {
        let now = timestamp(now);
        if !dir.is_touched() && (dir.fields().mtime(), dir.fields().ctime()) == (now, now) {
            self.note_sync(dir.fields());
            return Ok(());
        }
        dir.fields_mut().set_mtime(now);
        dir.fields_mut().set_ctime(now);
        let version = dir.fields().version();
        dir.fields_mut().set_version(version.wrapping_add(1));
        self.store(dir)
    }

    /// Stores an inode that is another since `now`, unless its record says so already.
    pub(crate) fn touch_ctime(&self, info: &mut InodeInfo, now: Timespec) -> Result<()> {
        let now = timestamp(now);
        if !info.is_touched() && info.fields().ctime() == now {
            self.note_sync(info.fields());
            return Ok(());
        }
        info.fields_mut().set_ctime(now);
        self.store(info)
    }
}

/// Whether a new inode gets something into its record before it is stored, such as attributes or what a directory holds, so that
/// the record has to be cleared first.
fn is_in_pieces(new: &NewNode<'_>) -> bool {
    new.kind == NewKind::Directory || new.acl.is_some() || new.default_acl.is_some()
}

/// How many blocks the contents of a new file take.
fn blocks_for_contents(kind: &NewKind<'_>) -> u32 {
    match kind {
        NewKind::Directory => 1,
        NewKind::Symlink(target) => u32::from(target.len() >= MAP_SIZE),
        _ => 0,
    }
}

/// The flags that a new file takes over.
fn inherited(parent: InodeFlags, kind: FileType) -> InodeFlags {
    let flags = parent & INHERITED;
    match kind {
        FileType::Directory => flags,
        FileType::Regular => flags - (InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::CASEFOLD),
        _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}

pub(crate) fn timestamp(time: Timespec) -> Timestamp {
    Timestamp { seconds: time.sec, nanos: time.nsec }
}

/// The present in seconds since 1970, as `i_dtime` and the superblock have it.
pub(crate) fn now_seconds() -> u32 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(1, |time| seconds(time.as_secs().cast_signed()))
}

/// The same of a time; never 0, which is none.
fn seconds(time: i64) -> u32 {
    u32::try_from(time.max(1)).unwrap_or(u32::MAX)
}
