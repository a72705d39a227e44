//! Every inode in use: its fields, its map, its attributes, and which blocks it claims.
//!
//! Inode tables are read in long runs, up to the last inode that a group has ever used. The check
//! keeps eight bytes of each inode for later passes. Of a directory it also keeps where the blocks
//! are, so that it walks each map only once.
//!
//! `check` runs it after `groups`, on all cores. It follows each block of a map once, so a map that
//! loops ends with a fault.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use extern4_disk::dirent::FileType;
use extern4_disk::feature::{Compat, Incompat};
use extern4_disk::group::{GroupDescriptor, GroupFlags};
use extern4_disk::inline;
use extern4_disk::inode::{
    self, BAD_BLOCKS_INO, FileKind, Inode, InodeFlags, MAP_SIZE, RESIZE_INO, ROOT_INO, is_blank,
};
use extern4_disk::superblock::CreatorOs;
use extern4_disk::xattr::Attrs;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_ext4::{DataRun, Error, MapNode, MapVisitor};

use crate::Checker;
use crate::fault::{Fault, Wrong};
use crate::progress::{Interrupted, Pass};
use crate::quota::Owned;
use crate::report::{Report, Sink};
use crate::to_usize;

/// How many bytes of an inode table are read at once.
const READ_BYTES: u32 = 256 << 10;
const SECTOR: u64 = 512;
/// Where the link count stands in a record.
const LINKS: Range<usize> = 0x1a..0x1c;

/// The eight bytes kept of each inode.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The number of names that the inode claims, `i_links_count`.
    pub(crate) links: u16,
    /// The file type, in the numbers of directory entries.
    pub(crate) kind: u8,
    /// The use of the inode.
    pub(crate) usage: Usage,
    /// How many entries name it; of an inode that holds an attribute's value, how many attributes
    /// do.
    pub(crate) names: AtomicU32,
}

/// The use of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Usage {
    /// Nothing.
    #[default]
    Free,
    /// A file that has names.
    Named,
    /// A file without a name, to be deleted or truncated.
    Orphan,
    /// The volume itself.
    Reserved,
    /// The value of an extended attribute.
    Value,
}

/// The inodes of a group.
#[derive(Debug, Default)]
pub(crate) struct GroupInodes {
    /// By index, as far as any has ever been used.
    pub(crate) slots: Box<[Slot]>,
    /// The directories, by inode number.
    pub(crate) dirs: Box<[DirRecord]>,
    /// Where the blocks of the directories are.
    pub(crate) runs: Box<[DirRun]>,
    /// The contents of directories that live inside their inodes.
    pub(crate) inline: Box<[u8]>,
}

/// The record kept of each directory.
#[derive(Debug)]
pub(crate) struct DirRecord {
    pub(crate) ino: u32,
    /// The inode's flags.
    pub(crate) flags: InodeFlags,
    /// The seed of its blocks' checksums.
    pub(crate) seed: u32,
    /// How many blocks it has.
    pub(crate) blocks: u32,
    /// Which of its group's runs are its own; of an inline directory, which bytes.
    pub(crate) parts: Range<u32>,
    /// The directory that has an entry for it; 0 for none.
    pub(crate) named_in: AtomicU32,
    /// The inode that its own `..` names.
    pub(crate) dotdot: AtomicU32,
}

/// A run of a directory's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirRun {
    /// The first block of the directory.
    pub(crate) logical: u32,
    pub(crate) len: u32,
    /// The block of the volume that holds the first.
    pub(crate) physical: u64,
}

impl Checker<'_> {
    /// Checks all inodes.
    pub(crate) fn check_inodes(&mut self, report: &mut Report<'_>) -> Result<(), Interrupted> {
        let this = &*self;
        report.each_item(
            Pass::Inodes,
            self.descriptors.len(),
            |sink| (sink, Vec::new()),
            |(sink, buffer), index| {
                if let Some(descriptor) = &this.descriptors[index] {
                    // OK: the number of groups has 32 bits.
                    let group = index as u32;
                    let found = Scan::new(this, group, sink).run(descriptor, buffer);
                    let _ = this.inodes[index].set(found);
                }
            },
        )
    }

    /// Returns how many inodes at the start of a group's table may be in use.
    pub(crate) fn inodes_to_scan(&self, descriptor: &GroupDescriptor) -> u32 {
        let all = self.geometry.inodes_per_group();
        match self.has_uninit() {
            true if descriptor.flags().contains(GroupFlags::INODE_UNINIT) => 0,
            true => all - descriptor.unused_inodes().min(all),
            false => all,
        }
    }
}

/// The check of the inodes of one group.
struct Scan<'a> {
    checker: &'a Checker<'a>,
    group: u32,
    sink: &'a mut Sink,
    slots: Vec<Slot>,
    dirs: Vec<DirRecord>,
    runs: Vec<DirRun>,
    inline: Vec<u8>,
    scratch: Vec<u8>,
    /// The inode that is being looked at is an orphan: its size says what the next mount keeps of
    /// it, and its map may reach further.
    is_orphan: bool,
    /// The blocks and inodes of each owner, where there are quotas.
    owned: Option<Owned>,
}

impl<'a> Scan<'a> {
    fn new(checker: &'a Checker<'a>, group: u32, sink: &'a mut Sink) -> Self {
        Self {
            checker,
            group,
            sink,
            slots: Vec::new(),
            dirs: Vec::new(),
            runs: Vec::new(),
            inline: Vec::new(),
            scratch: Vec::new(),
            is_orphan: false,
            owned: checker.has_quotas().then(Owned::default),
        }
    }

    fn run(mut self, descriptor: &GroupDescriptor, buffer: &mut Vec<u8>) -> GroupInodes {
        let geometry = self.checker.geometry;
        let size = u32::from(geometry.inode_size());
        let per_block = geometry.block_size() / size;
        let count = self.checker.inodes_to_scan(descriptor);
        let first = self.group * geometry.inodes_per_group() + 1;
        self.slots.resize_with(to_usize(count), Slot::default);
        let step = (READ_BYTES / geometry.block_size()).max(1);
        let blocks = count.div_ceil(per_block);
        for at in (0..blocks).step_by(to_usize(step)) {
            let block = descriptor.inode_table() + u64::from(at);
            let now = step.min(blocks - at);
            if let Err(error) = self.checker.read(block, now, buffer) {
                let place = Place::new(Structure::Inode).group(self.group).block(block);
                self.sink.push(Fault::of_error(place, error));
                self.checker.owners.lack();
                continue;
            }
            let numbers = first + at * per_block..first + count;
            for ((index, record), ino) in
                buffer.chunks_exact(to_usize(size)).enumerate().zip(numbers)
            {
                // OK: no more than a run of blocks.
                let bytes = index as u32 * size;
                let place = Place::new(Structure::Inode)
                    .ino(ino)
                    .block(block + u64::from(bytes / geometry.block_size()))
                    .offset(bytes % geometry.block_size());
                self.record(record, ino, place);
            }
        }
        if let Some(owned) = self.owned {
            self.checker.owners.add(owned);
        }
        GroupInodes {
            slots: self.slots.into(),
            dirs: self.dirs.into(),
            runs: self.runs.into(),
            inline: self.inline.into(),
        }
    }

    /// Looks at one record.
    fn record(&mut self, record: &[u8], ino: u32, place: Place) {
        let links = record
            .get(LINKS)
            .map_or(0, |links| u16::from_le_bytes([links[0], links[1]]));
        let orphan = !self.checker.orphans.is_empty() && self.checker.orphans.contains(&ino);
        self.is_orphan = orphan;
        let reserved = ino < self.checker.sb.first_ino();
        if links == 0 && !orphan && ino != BAD_BLOCKS_INO && ino != ROOT_INO {
            if !reserved {
                self.free(record, ino, place);
            }
            return;
        }
        let inode = match self.decode(record, ino, place) {
            Ok(inode) => inode,
            Err(fault) => {
                self.sink.push(fault);
                self.checker.owners.lack();
                // Its number is taken, even if the record is damaged.
                let kind = record
                    .first_chunk()
                    .map_or(0, |mode| u16::from_le_bytes(*mode));
                return self.keep(ino, links, FileType::from_mode(kind), Usage::Named);
            }
        };
        let usage = if orphan && links == 0 {
            Usage::Orphan
        } else if self.checker.sb.is_hidden(ino) {
            Usage::Reserved
        } else if inode.flags().contains(InodeFlags::EA_INODE) {
            Usage::Value
        } else {
            Usage::Named
        };
        if ino != BAD_BLOCKS_INO {
            self.keep(ino, links, FileType::from_mode(inode.mode()), usage);
        }
        if inode.dtime() != 0 && links != 0 && !orphan {
            self.sink
                .push(Fault::field(place, "i_dtime", inode.dtime().into()));
        }
        self.inode(&inode, record, place);
    }

    fn keep(&mut self, ino: u32, links: u16, kind: FileType, usage: Usage) {
        let index = (ino - 1) % self.checker.geometry.inodes_per_group();
        self.slots[to_usize(index)] = Slot {
            links,
            kind: kind.to_raw(),
            usage,
            names: AtomicU32::new(0),
        };
    }

    /// Checks a record without links: that of a deleted file says when it was deleted.
    fn free(&mut self, record: &[u8], ino: u32, place: Place) {
        if is_blank(record) {
            return;
        }
        if let Ok(inode) = self.decode(record, ino, place)
            && inode.dtime() == 0
            && inode.kind() != FileKind::None
        {
            self.sink.push(Fault::mismatch(
                place,
                "an inode has no links, but was never deleted",
            ));
        }
    }

    /// Returns the inode in `record`. A wrong checksum is reported, and the fields taken as they
    /// stand.
    fn decode(&mut self, record: &[u8], ino: u32, place: Place) -> Result<Inode, Fault> {
        let sb = self.checker.sb;
        Inode::decode(record, ino, sb, place).or_else(|corrupt| {
            if !matches!(corrupt.kind, CorruptKind::Checksum { .. }) {
                return Err(corrupt.into());
            }
            self.sink.push(corrupt);
            self.scratch.clear();
            self.scratch.extend_from_slice(record);
            inode::store_checksum(&mut self.scratch, ino, sb);
            Inode::decode(&self.scratch, ino, sb, place).map_err(Fault::from)
        })
    }

    fn inode(&mut self, inode: &Inode, record: &[u8], place: Place) {
        self.features(inode, place);
        let own = self.own_attributes(inode, record, place);
        let values = own
            .as_ref()
            .map_or(0, |own| self.checker.value_clusters(own, inode));
        let is_inline = inode.flags().contains(InodeFlags::INLINE_DATA);
        let (index, name) = inline::XATTR;
        if is_inline && own.as_ref().and_then(|own| own.get(index, name)).is_none() {
            self.sink.push(Fault::mismatch(
                place,
                "data is in the inode, but not the attribute for it",
            ));
        }
        let runs_before = self.runs.len();
        let mapped = self.map(inode, is_inline);
        let attributes = match inode.xattr_block() {
            Some(block) => self.checker.check_xattr_block(block, inode, self.sink),
            None => 0,
        };
        if let Some(owned) = self
            .owned
            .as_mut()
            .filter(|_| self.checker.counts_for_owners(inode))
        {
            owned.count(inode, self.checker.value_inodes(own.as_ref(), inode));
        }
        self.blocks(inode, mapped.clusters + attributes + values, place);
        match inode.kind() {
            FileKind::Directory if is_inline => self.inline_directory(inode, own, place),
            FileKind::Directory => self.mapped_directory(inode, &mapped, runs_before, place),
            FileKind::Regular if is_inline => {
                let found = inline::attribute(own.as_ref(), place)
                    .and_then(|tail| inline::Data::decode(inode.map(), tail, inode.size(), place));
                if let Err(corrupt) = found {
                    self.sink.push(corrupt);
                }
            }
            FileKind::Regular => self.regular(inode, &mapped, place),
            FileKind::Symlink => self.symlink(inode, own, &mapped, place),
            FileKind::None => {}
            _ => self.device(inode, place),
        }
        if inode.flags().contains(InodeFlags::EA_INODE) && inode.kind() == FileKind::Regular {
            self.checker.check_value_inode(inode, place, self.sink);
        }
    }

    /// Checks flags and halves of words that the volume's features do not allow.
    fn features(&mut self, inode: &Inode, place: Place) {
        let features = self.checker.sb.features();
        let needs = [
            (InodeFlags::EXTENTS, Incompat::EXTENTS),
            (InodeFlags::INLINE_DATA, Incompat::INLINE_DATA),
            (InodeFlags::EA_INODE, Incompat::EA_INODE),
            (InodeFlags::ENCRYPT, Incompat::ENCRYPT),
            (InodeFlags::CASEFOLD, Incompat::CASEFOLD),
        ];
        let foreign = needs.iter().any(|(flag, feature)| {
            inode.flags().contains(*flag) && !features.incompat.contains(*feature)
        });
        let directory = inode.kind() == FileKind::Directory;
        let index = inode.flags().contains(InodeFlags::INDEX);
        let indexed = index && !(directory && features.compat.contains(Compat::DIR_INDEX));
        let both = inode
            .flags()
            .contains(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS);
        // Fragments of blocks were never made. No reader uses the upper halves, and a feature may
        // give a meaning to one that has none.
        let (base, _) = inode.raw();
        let narrow = directory && !features.incompat.contains(Incompat::LARGEDIR);
        let size_high = if narrow { base.i_size_high.get() } else { 0 };
        let short = !features.incompat.contains(Incompat::BIT64)
            && self.checker.sb.creator_os() == CreatorOs::Linux;
        let acl_high = if short {
            base.l_i_file_acl_high.get()
        } else {
            0
        };
        for (field, value) in [
            ("i_faddr", base.i_obso_faddr.get()),
            ("i_size_high", size_high),
            ("i_file_acl_high", acl_high.into()),
        ] {
            if value != 0 {
                self.sink.push(Fault::field(place, field, value.into()));
            }
        }
        if foreign || indexed || both {
            self.sink
                .push(Fault::field(place, "i_flags", inode.flags().bits().into()));
        }
    }

    /// Returns the attributes inside the inode, checked.
    fn own_attributes<'r>(
        &mut self,
        inode: &Inode,
        record: &'r [u8],
        place: Place,
    ) -> Option<Attrs<'r>> {
        let area = inode.xattr_area(record);
        let place = Place {
            structure: Structure::Xattr,
            ..place
        };
        match Attrs::in_inode(area, place) {
            Ok(Some(attrs)) => {
                self.checker
                    .check_attributes(&attrs, inode, place, self.sink);
                Some(attrs)
            }
            Ok(None) => None,
            Err(corrupt) => {
                self.sink.push(corrupt);
                None
            }
        }
    }

    /// Claims what the inode's map names.
    fn map(&mut self, inode: &Inode, is_inline: bool) -> Mapped {
        let by_extents = inode.flags().contains(InodeFlags::EXTENTS);
        let has_map = match inode.kind() {
            FileKind::Regular | FileKind::Directory | FileKind::None => !is_inline,
            FileKind::Symlink => !is_inline && (by_extents || !self.is_fast(inode)),
            _ => false,
        };
        let keep = inode.kind() == FileKind::Directory;
        let mut claimer = Claimer {
            checker: self.checker,
            inode,
            sink: self.sink,
            mapped: Mapped::default(),
            last_cluster: None,
            runs: keep.then_some(&mut self.runs),
        };
        if has_map {
            self.checker.fs.walk_map(inode, &mut claimer);
        }
        claimer.mapped
    }

    /// Returns whether a symbolic link's target stands in place of the map.
    fn is_fast(&self, inode: &Inode) -> bool {
        // Its count of blocks does not tell, because it includes large values of attributes.
        inode.size() < MAP_SIZE as u64 && !inode.flags().contains(InodeFlags::EXTENTS)
    }

    fn blocks(&mut self, inode: &Inode, clusters: u64, place: Place) {
        let counted = clusters * (self.checker.sb.cluster_size() / SECTOR);
        if inode.sectors() != counted && inode.kind() != FileKind::None {
            let wrong = Wrong::Count {
                field: "i_blocks",
                stored: inode.sectors(),
                counted,
            };
            self.sink.push(Fault::new(place, wrong));
        }
    }

    fn regular(&mut self, inode: &Inode, mapped: &Mapped, place: Place) {
        if inode.ino() == RESIZE_INO {
            return;
        }
        let bits = self.checker.geometry.block_bits();
        let verity = inode.flags().contains(InodeFlags::VERITY);
        let short = mapped.written_end > 0 && inode.size() < (mapped.written_end - 1) << bits;
        let most = if inode.flags().contains(InodeFlags::EXTENTS) {
            extern4_disk::extent::LOGICAL_END
        } else {
            self.checker.fs.indirect_map().end()
        };
        if short && !verity && !self.is_orphan || inode.size() >> bits > most {
            self.sink.push(Fault::field(place, "i_size", inode.size()));
        }
    }

    fn symlink(&mut self, inode: &Inode, own: Option<Attrs<'_>>, mapped: &Mapped, place: Place) {
        let place = Place {
            structure: Structure::Symlink,
            ..place
        };
        let size = inode.size();
        if inode.flags().contains(InodeFlags::ENCRYPT) {
            return;
        }
        let fits = size > 0 && size <= u64::from(self.checker.geometry.block_size());
        if !fits {
            return self.sink.push(Fault::field(place, "i_size", size));
        }
        // OK: no larger than a block.
        let len = size as usize;
        let target: &[u8] = if inode.flags().contains(InodeFlags::INLINE_DATA) {
            let tail = match inline::attribute(own.as_ref(), place) {
                Ok(tail) => tail,
                Err(corrupt) => return self.sink.push(corrupt),
            };
            self.scratch = [inode.map(), tail].concat();
            if self.scratch.len() < len || self.scratch.get(len).is_some_and(|&end| end != 0) {
                return self.sink.push(Fault::field(place, "i_size", size));
            }
            &self.scratch[..len]
        } else if mapped.clusters == 0 && len < MAP_SIZE {
            // The byte behind the target ends it for readers that look for a NUL.
            if inode.map()[len] != 0 {
                return self.sink.push(Fault::field(place, "i_size", size));
            }
            &inode.map()[..len]
        } else {
            let Some(block) = mapped.first.filter(|_| mapped.end == 1) else {
                return self
                    .sink
                    .push(Fault::mismatch(place, "a target is not in one block"));
            };
            if let Err(error) = self.checker.read(block, 1, &mut self.scratch) {
                return self.sink.push(Fault::of_error(place.block(block), error));
            }
            if self.scratch.get(len).is_some_and(|&end| end != 0) {
                return self.sink.push(Fault::field(place, "i_size", size));
            }
            &self.scratch[..len]
        };
        if target.contains(&0) {
            self.sink
                .push(Fault::mismatch(place, "a target holds a NUL"));
        }
    }

    /// Checks a device file, pipe or socket: it has no contents, and a device's number takes two
    /// words.
    fn device(&mut self, inode: &Inode, place: Place) {
        let (base, _) = inode.raw();
        let size = u64::from(base.i_size_lo.get()) | u64::from(base.i_size_high.get()) << 32;
        if size != 0 {
            self.sink.push(Fault::field(place, "i_size", size));
        }
        if inode.map()[16..].iter().any(|&byte| byte != 0)
            || inode
                .flags()
                .intersects(InodeFlags::EXTENTS | InodeFlags::INDEX)
        {
            self.sink
                .push(Fault::mismatch(place, "a device, pipe or socket has a map"));
        }
    }

    fn inline_directory(&mut self, inode: &Inode, own: Option<Attrs<'_>>, place: Place) {
        let tail = match inline::attribute(own.as_ref(), place) {
            Ok(tail) => tail,
            Err(corrupt) => {
                self.sink.push(corrupt);
                &[]
            }
        };
        if inode.size() != (MAP_SIZE + tail.len()) as u64 {
            self.sink.push(Fault::field(place, "i_size", inode.size()));
        }
        let start = self.inline.len();
        self.inline.extend_from_slice(inode.map());
        self.inline.extend_from_slice(tail);
        self.keep_directory(inode, 0, start, self.inline.len());
    }

    fn mapped_directory(
        &mut self,
        inode: &Inode,
        mapped: &Mapped,
        runs_before: usize,
        place: Place,
    ) {
        let geometry = self.checker.geometry;
        let whole = inode.size() & u64::from(geometry.block_size() - 1) == 0;
        let blocks = inode.size() >> geometry.block_bits();
        let prealloc = if self
            .checker
            .sb
            .features()
            .compat
            .contains(Compat::DIR_PREALLOC)
        {
            u64::from(self.checker.sb.raw().s_prealloc_dir_blocks)
        } else {
            0
        };
        // The next mount frees the blocks of an orphan, of which some may be free already.
        let is_bad = !whole || blocks == 0 || blocks > mapped.end || mapped.end - blocks > prealloc;
        if is_bad && !self.is_orphan {
            self.sink.push(Fault::field(place, "i_size", inode.size()));
        }
        if (mapped.blocks < mapped.end || mapped.unwritten) && !self.is_orphan {
            self.sink
                .push(Fault::mismatch(place, "a directory has a hole"));
        }
        // Blocks without a place cannot be looked at, and of the others there are no more than the
        // volume has.
        let most = mapped.end.min(mapped.blocks).min(geometry.blocks_count());
        let blocks = u32::try_from(blocks.min(most)).unwrap_or(u32::MAX);
        self.keep_directory(inode, blocks, runs_before, self.runs.len());
    }

    fn keep_directory(&mut self, inode: &Inode, blocks: u32, start: usize, end: usize) {
        let seed = inode.checksum_seed(self.checker.sb.checksum_seed()).get();
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else {
            return;
        };
        self.dirs.push(DirRecord {
            ino: inode.ino(),
            flags: inode.flags(),
            seed,
            blocks,
            parts: start..end,
            named_in: AtomicU32::new(0),
            dotdot: AtomicU32::new(0),
        });
    }
}

impl Slot {
    /// Counts one more name, or attribute, that leads here.
    pub(crate) fn add_name(&self) {
        // Relaxed: the counts are read after the threads that add to them have ended.
        self.names.fetch_add(1, Relaxed);
    }
}

/// The blocks that the check found in a map.
#[derive(Clone, Copy, Debug, Default)]
struct Mapped {
    /// Clusters of data and of the map itself.
    clusters: u64,
    /// Blocks of data.
    blocks: u64,
    /// One past the last block of the file that has a place.
    end: u64,
    /// One past the last that is written.
    written_end: u64,
    /// Where the file's first block is.
    first: Option<u64>,
    /// Whether any block has a place but was never written.
    unwritten: bool,
}

/// Claims what the map of one inode names.
struct Claimer<'a> {
    checker: &'a Checker<'a>,
    inode: &'a Inode,
    sink: &'a mut Sink,
    mapped: Mapped,
    /// The cluster that the last run ended in: the next may go on there.
    last_cluster: Option<u64>,
    /// Where to keep the runs of a directory.
    runs: Option<&'a mut Vec<DirRun>>,
}

impl Claimer<'_> {
    fn claim(&mut self, start: u64, len: u64) -> u64 {
        let shift = self.checker.geometry.cluster_shift();
        if shift == 0 {
            self.mapped.clusters += len;
            return self.checker.claims.claim(start, len, &self.checker.twice);
        }
        // Clusters count from the first block of group 0, which `bigalloc` has at 0.
        let first = start >> shift;
        let last = (start + len - 1) >> shift;
        let begin = if self.last_cluster == Some(first) {
            first + 1
        } else {
            first
        };
        self.last_cluster = Some(last);
        if begin > last {
            return 0;
        }
        self.mapped.clusters += last + 1 - begin;
        let from = start.max(begin << shift);
        self.checker
            .claims
            .claim(from, start + len - from, &self.checker.twice)
    }
}

impl MapVisitor for Claimer<'_> {
    fn node(&mut self, MapNode { block, .. }: MapNode) -> bool {
        if self.inode.ino() == RESIZE_INO && self.checker.may_name(RESIZE_INO, block) {
            self.mapped.clusters += 1;
            return true;
        }
        let before = self.last_cluster.take();
        let clashes = self.claim(block, 1);
        self.last_cluster = before;
        clashes == 0 || self.checker.may_follow_again()
    }

    fn run(&mut self, run: DataRun) {
        let checker = self.checker;
        let ino = self.inode.ino();
        let left_out = checker.claimed_parts(ino, run.physical, run.len, |start, len| {
            self.claim(start, len);
        });
        self.mapped.clusters += left_out;
        if left_out == run.len {
            return;
        }
        let mask = (1 << self.checker.geometry.cluster_shift()) - 1;
        if run.logical & mask != run.physical & mask {
            let place = Place::new(Structure::Inode)
                .ino(self.inode.ino())
                .block(run.physical);
            self.sink.push(Fault::mismatch(
                place,
                "a run of blocks is not aligned to its clusters",
            ));
        }
        let mapped = &mut self.mapped;
        mapped.blocks += run.len;
        mapped.end = mapped.end.max(run.logical + run.len);
        if run.written {
            mapped.written_end = mapped.written_end.max(run.logical + run.len);
        } else {
            mapped.unwritten = true;
        }
        if run.logical == 0 {
            mapped.first = Some(run.physical);
        }
        if let (Some(runs), Ok(logical), Ok(len)) = (
            &mut self.runs,
            u32::try_from(run.logical),
            u32::try_from(run.len),
        ) {
            runs.push(DirRun {
                logical,
                len,
                physical: run.physical,
            });
        }
    }

    fn fault(&mut self, place: Place, error: Error) {
        self.sink.push(Fault::of_error(place, error));
    }
}
