//! Collects the sources of a volume, and decides its size and its identity.
//!
//! The library's users, and through it the commands `build` and `mkfs -d`, make a [`Builder`], add
//! sources to it, and call [`Builder::plan`]. Nothing is written before the plan is complete, so an
//! error in a source leaves no volume behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use extern4_mkfs::{Config, Draft, Error as MakeError, JournalSize, Length, Options, Owner};
use extern4_tree::{
    Entry, Filter, Kind, Manifest, Pattern, Result as TreeResult, Sink, Source, Time, Unwanted,
};

use crate::contents;
use crate::error::{Error, Result, shown};
use crate::fs_verity::Seal;
use crate::holes::Holes;
use crate::identity::TreeDigest;
use crate::layer::Layer;
use crate::layout::{Layout, Placer};
use crate::merged::Merged;
use crate::old_layout::{OldLayout, Precedent};
use crate::planned::Planned;
use crate::progress::{Progress, Watch};
use crate::storage::Storage;
use crate::tree::{Body, Order, Tree};

/// Bytes of the volume for each further inode where there is to be free space.
const INODE_RATIO: u64 = 16_384;
/// The size of a volume that is asked for numbers.
const PROBE_BYTES: u64 = 1 << 30;
/// The largest journal that a volume is asked for numbers with.
const MOST_JOURNAL: u64 = 1 << 40;
/// The most that the size of a volume can be: 2^48 blocks are more than any tree needs.
const MOST_BLOCKS_LOG: u32 = 44;

/// The hundredths of a per cent that are a whole.
const WHOLE_SHARE: u32 = 10_000;

/// How large the volume is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// As small as possible.
    #[default]
    Auto,
    /// As small as possible, with this many bytes more.
    Slack(u64),
    /// As small as possible, and larger by this many hundredths of a per cent.
    Share(u32),
    /// This many bytes.
    Bytes(u64),
}

/// How a volume is built.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Options of the volume itself. Its size, its times and the owner of its root directory come
    /// from the build.
    pub volume: Options,
    /// The defaults of the volume.
    pub config: Config,
    /// Whether options that are not given follow from the configuration and from [`Size::Bytes`],
    /// as `mkfs` chooses them. Otherwise the defaults are the defaults of large volumes, no blocks
    /// are reserved, and free space has an inode for each 16 KiB.
    pub mkfs_defaults: bool,
    /// How large the volume is to be.
    pub size: Size,
    /// The volume's UUID; `None` derives one from the tree and the contents of its files. Where
    /// checksums of a volume depend on its UUID, contents do not count: with `metadata_csum` and
    /// without `metadata_csum_seed`, with `uninit_bg`, or with `ea_inode` and without
    /// `metadata_csum`.
    pub uuid: Option<[u8; 16]>,
    /// The seed of the directories' hashes; `None` derives one from the tree's names and metadata.
    /// Contents do not count, since the order of directories has to be known before they are read.
    pub hash_seed: Option<[u8; 16]>,
    /// The latest time of a file, in seconds since 1970: `SOURCE_DATE_EPOCH`.
    pub latest: Option<i64>,
    /// The owner and the group of all files, in place of the sources' owners.
    pub owner: Option<(u32, u32)>,
    /// The owner and the group of the root directory, in place of the sources' owners.
    pub root_owner: Option<(u32, u32)>,
    /// Whether inode flags and projects of the sources are left out.
    pub no_flags: bool,
    /// Rules that leave out a part of the tree, by paths in the volume. A manifest that comes after
    /// the sources can add such paths again.
    pub filter: Filter,
    /// Whether a new file becomes a disk: with a GPT, and the volume as its only partition, which
    /// has the volume's label as its name.
    pub partition: bool,
    /// Whether a new file gets the hash tree of dm-verity behind the volume.
    pub verity: bool,
    /// Whether extended attributes and ACLs of the sources are left out. Manifests and edits can
    /// give others.
    pub without_xattrs: bool,
    /// Whether a symbolic link to a directory stays where a later source, or a layer, has a
    /// directory, whose files then go where the link leads. Otherwise the directory replaces the
    /// link, with a warning.
    pub keep_directory_links: bool,
    /// Whether blocks of zeroes in regular files become holes.
    pub zeroes_are_holes: bool,
    /// The regular files that fs-verity protects, by paths in the volume. With such a file, the
    /// volume has the feature `verity`.
    pub fs_verity: Vec<Pattern>,
}

/// A change of each entry. The error says why an entry cannot be changed.
pub type Edit = Box<dyn FnMut(&mut Entry) -> Result<(), String>>;

/// A change of the extended attributes of a file; its other changes do not count.
pub type Label = Box<dyn FnMut(&mut Entry)>;

/// Collects the trees that a volume is made of.
pub struct Builder {
    pub(crate) options: BuildOptions,
    edit: Option<Edit>,
    label: Option<Label>,
    pub(crate) watch: Option<Watch>,
    /// Entries that the sources have given.
    entries: u64,
    /// The digest of the whole tree, if the UUID is to be derived.
    pub(crate) digest: Option<TreeDigest>,
    /// The layout to keep.
    old: Option<OldLayout>,
    /// Whether the filter has yet to be applied to what the tree has.
    is_unfiltered: bool,
    /// Whether the use of the volume follows from its size.
    is_use_by_size: bool,
    pub(crate) tree: Tree,
    pub(crate) layers: Vec<Layer>,
    pub(crate) warnings: Vec<String>,
}

impl Builder {
    /// A builder without sources.
    pub fn new(options: BuildOptions) -> Self {
        let keeps_links = options.keep_directory_links;
        Self {
            options,
            edit: None,
            label: None,
            watch: None,
            entries: 0,
            digest: None,
            old: None,
            is_unfiltered: false,
            is_use_by_size: false,
            tree: Tree::new(keeps_links),
            layers: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Has `edit` change each entry of the sources that are added from now on, hard links excepted.
    /// It changes owners, modes, times and attributes; [`Entry::map_ids`] and [`Entry::set_mode`]
    /// help. It sees the entry's path in the volume. Manifests are not edited.
    pub fn edit(&mut self, edit: Edit) {
        self.edit = Some(edit);
    }

    /// Has `label` change the extended attributes of each file, from any source, when the tree is
    /// complete. Directories that no source gives and lost+found are among them. Of several names
    /// of a file, the label sees the first in the order of the paths.
    pub fn label(&mut self, label: Label) {
        self.label = Some(label);
    }

    /// Keeps the layout of an earlier volume: files that did not grow keep their inode numbers and
    /// their blocks, and files that grew get more. UUID and hash seed are taken from that volume
    /// unless the options have others, and so are the sizes of blocks, inodes and groups. The new
    /// volume is not smaller unless the options ask for its size.
    pub fn keep_layout(&mut self, old: OldLayout) {
        self.old = Some(old);
    }

    /// Has `watch` get the progress, of the writing as well. It can end the build.
    pub fn watch(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Reads a source, and puts its tree over what the volume has: its root becomes the directory
    /// `prefix`, which is a path without a slash in front, and empty for the volume's root.
    ///
    /// # Errors
    /// [`Error::Source`], and [`Error::Interrupted`] if the watch breaks.
    pub fn add(&mut self, source: Box<dyn Source>, prefix: &[u8]) -> Result<()> {
        let number = self.next_layer()?;
        self.is_unfiltered = true;
        let mut overlay = Overlay {
            builder: self,
            number,
            prefix,
            is_stopped: false,
        };
        let scanned = source.scan(&mut overlay);
        if overlay.is_stopped {
            return Err(Error::Interrupted);
        }
        scanned?;
        self.warnings
            .extend(self.tree.replaced_links.drain(..).map(|(path, target)| {
                let path = shown(&path);
                let target = String::from_utf8_lossy(&target);
                format!("{path}: a directory replaces the symbolic link to '{target}'")
            }));
        self.layers.push(Layer::new(source, prefix));
        Ok(())
    }

    /// Changes the tree as a manifest says: it adds entries, such as devices, and sets owners,
    /// modes and attributes of files that are there.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub fn amend(&mut self, manifest: Manifest) -> Result<()> {
        let number = self.next_layer()?;
        self.leave_out();
        for amendment in manifest.amendments() {
            self.tree.amend(&amendment.path, number, |entry| {
                manifest.apply(amendment, entry)
            })?;
        }
        self.warnings.extend_from_slice(manifest.warnings());
        self.layers.push(Layer::new(Box::new(manifest), b""));
        Ok(())
    }

    /// Reads a regular file of the tree as it is now, of which more than `most` bytes are left out.
    /// `None` if there is no such file.
    ///
    /// # Errors
    /// [`Error::Source`], or [`Error::Member`] if the file cannot be read.
    pub fn read(&mut self, path: &[u8], most: usize) -> Result<Option<Vec<u8>>> {
        let Some((contents, source, given)) = self.tree.file(path)? else {
            return Ok(None);
        };
        let layer = &self.layers[usize::from(source)];
        let opened = layer.open(&given, &contents)?;
        let mut bytes = vec![0; usize::try_from(contents.size).unwrap_or(most).min(most)];
        let read = contents::read(&opened, &contents, &mut bytes, 0);
        opened.check_unchanged(layer.path_in_source(&given))?;
        read.map_err(|error| Error::reading(path, &error))?;
        Ok(Some(bytes))
    }

    /// Gives all files that the sources have given until now this owner and this group, as
    /// [`BuildOptions::owner`] does, for callers that find the numbers in the tree.
    pub fn set_owner(&mut self, owner: (u32, u32)) {
        self.tree.set_owners(owner);
    }

    /// Applies the filter to what the tree has now: names, places and types are final, whichever
    /// source they come from.
    fn leave_out(&mut self) {
        if std::mem::take(&mut self.is_unfiltered) {
            self.tree.filter(&self.options.filter);
        }
    }

    fn next_layer(&self) -> Result<u16> {
        let number = u16::try_from(self.layers.len());
        Ok(number
            .map_err(|_| extern4_tree::Error::Sink("there are more than 65536 sources".into()))?)
    }

    /// Decides the size of the volume and the place of everything in it.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if the tree does not fit; options that are wrong;
    /// a source that cannot be read.
    pub fn plan(mut self) -> Result<Planned> {
        self.leave_out();
        self.tree.add_lost_found()?;
        let mut order = self.complete()?;
        if self.tree.seal(&self.options.fs_verity) {
            self.options.volume.features.push("verity".to_owned());
        }
        if let Some(old) = &self.old {
            old.set_sizes(&mut self.options.volume)?;
        }
        self.set_identity(&order);
        let holes = self.find_holes(&order)?;
        let owners = self.owners(&order);
        let storage = self.store(&mut order)?;
        let old = match self.old.take() {
            Some(old) => Some(old.for_tree(
                &self.tree,
                &order,
                self.probe(&order)?.superblock().features(),
            )),
            None => None,
        };
        let planning = Planning {
            holes,
            storage,
            owners,
            old,
            builder: self,
            order,
        };
        match planning.builder.options.size {
            Size::Bytes(bytes) => planning.of_size(bytes),
            Size::Auto => planning.smallest(0),
            Size::Slack(slack) => planning.smallest(slack),
            Size::Share(share) => planning.larger_by(share),
        }
    }

    /// Ends the reading, for a caller that writes the tree by itself.
    ///
    /// # Errors
    /// [`Error::Source`] if the label gives a file an attribute that is not possible.
    pub fn merge(mut self) -> Result<Merged> {
        self.complete()?;
        self.warnings.extend(self.tree.xattrs.left_out_warnings());
        Ok(Merged::new(self.tree, self.layers, self.warnings))
    }

    /// Ends the reading of sources, and sorts the tree.
    fn complete(&mut self) -> Result<Order> {
        self.leave_out();
        if let Some(owner) = self.options.root_owner {
            self.tree.set_root_owner(owner);
        }
        let order = self.tree.sort();
        if let Some(label) = &mut self.label {
            self.tree.label(&order, label)?;
        }
        Ok(order)
    }

    /// Derives UUID, hash seed and the time of the volume from the tree, unless they are given or
    /// come from the earlier volume.
    fn set_identity(&mut self, order: &Order) {
        let newest = order
            .inodes
            .iter()
            .map(|&inode| self.tree.node(inode).mtime.secs)
            .max();
        let time = self.options.latest.or(newest).unwrap_or(0).max(0);
        self.tree.set_implied_time(
            order.lost_found,
            Time {
                secs: time,
                nanos: 0,
            },
        );
        let digest = TreeDigest::of(&self.tree, order);
        let old = self.old.as_ref();
        let uuid = self.options.uuid.or_else(|| old.map(OldLayout::uuid));
        let hash_seed = self
            .options
            .hash_seed
            .or_else(|| old.map(OldLayout::hash_seed));
        self.digest = uuid.is_none().then_some(digest);
        let volume = &mut self.options.volume;
        volume.uuid = uuid.unwrap_or_else(|| digest.uuid());
        volume.hash_seed = hash_seed.unwrap_or_else(|| digest.hash_seed());
        volume.time = time.cast_unsigned();
        if !self.tree.xattrs.is_empty() {
            // As Linux adds it with the first extended attribute.
            volume.features.push("ext_attr".to_owned());
        }
        if volume.reserved_percent.is_none() && !self.options.mkfs_defaults {
            volume.reserved_percent = Some(0.0);
        }
        if volume.usage.is_empty() {
            // Where the size follows from the tree, the defaults must not follow from the size.
            let usage = match self.options.size {
                Size::Bytes(bytes) if self.options.mkfs_defaults => {
                    self.is_use_by_size = true;
                    self.options.config.usage(bytes)
                }
                _ => "default",
            };
            volume.usage.push(usage.to_owned());
        }
    }

    /// A volume that is large enough for any options, to ask for numbers that do not depend on the
    /// size.
    fn probe(&self, order: &Order) -> Result<Draft> {
        let mut options = self.options.volume.clone();
        let inodes = order.inodes.len() as u64 + options.inodes.unwrap_or(0);
        let journal = match options.journal_size {
            None => 0,
            Some(JournalSize::Mebibytes(size)) => u64::from(size) << 20,
            Some(JournalSize::Blocks(blocks)) => u64::from(blocks) << 16,
        };
        let bytes = PROBE_BYTES + inodes * INODE_RATIO + 2 * journal.min(MOST_JOURNAL);
        options.size = Some(bytes);
        options.resize_limit = options.resize_limit.map(|_| Length::Blocks(u64::MAX));
        Ok(Draft::new(
            &options,
            &self.options.config,
            bytes,
            &self.owners(order),
        )?)
    }

    /// The users, groups and projects that have files.
    fn owners(&self, order: &Order) -> Vec<Owner> {
        let of = |&inode: &u32| self.tree.node(inode).owner();
        order
            .inodes
            .iter()
            .map(of)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Decides what is in inodes, and gives large values of attributes EA inodes.
    fn store(&mut self, order: &mut Order) -> Result<Storage> {
        let probe = self.probe(order)?;
        self.tree.remove_values(order);
        Storage::decide(&mut self.tree, order, probe.superblock())
    }

    fn find_holes(&self, order: &Order) -> Result<Holes> {
        let mut holes = Holes::default();
        let size = self.probe(order)?.superblock().block_size();
        for &inode in &order.inodes {
            let Body::File {
                contents,
                source,
                name,
            } = &self.tree.node(inode).body
            else {
                continue;
            };
            let layer = &self.layers[usize::from(*source)];
            let parts = || {
                let path = self.tree.source_path(*name);
                let opened = layer.open(&path, contents)?;
                let parts = contents::data(contents, &opened).and_then(|parts| {
                    if self.options.zeroes_are_holes {
                        contents::without_zeroes(contents, &opened, &parts, size)
                    } else {
                        Ok(parts)
                    }
                });
                opened
                    .check_unchanged(layer.path_in_source(&path))
                    .map(|()| parts)
            };
            let seal = self
                .tree
                .node(inode)
                .is_sealed
                .then(|| Seal::new(contents.size, size));
            let may_have_holes =
                self.options.zeroes_are_holes || contents::may_have_holes(contents);
            let found = holes.find(inode, contents, size, seal, may_have_holes.then_some(parts))?;
            found.map_err(|error| Error::reading(&self.tree.path(*name), &error))?;
        }
        Ok(holes)
    }
}

/// A tree that is complete, and gets a volume.
struct Planning {
    builder: Builder,
    order: Order,
    holes: Holes,
    storage: Storage,
    owners: Vec<Owner>,
    /// The layout to keep.
    old: Option<Precedent>,
}

impl Planning {
    /// Begins a volume of `bytes` with at least as many inodes as the tree needs. Without `inodes`,
    /// it has as many as the ratio of bytes and inodes says.
    fn draft(&self, bytes: u64, inodes: Option<u64>) -> Result<Draft> {
        let mut options = self.builder.options.volume.clone();
        options.size = Some(bytes);
        if let Some(old) = &self.old {
            old.set_places(&mut options, bytes);
        }
        let files = self.order.inodes.len() as u64;
        // The first inodes are the file system's own.
        options.inodes = options
            .inodes
            .or(inodes)
            .map(|wanted| wanted.max(files + 11));
        loop {
            let draft = Draft::new(&options, &self.builder.options.config, bytes, &self.owners)?;
            let last = u64::from(draft.first_free_inode()) + files - 3;
            let have = u64::from(draft.superblock().inodes_count());
            let lack = last.saturating_sub(have);
            if lack == 0 {
                // mkfs makes a volume without one then, and says so.
                if !self.builder.options.mkfs_defaults && draft.lacks_journal(&options)? {
                    return Err(MakeError::Size("it is too small for a journal".to_owned()).into());
                }
                return Ok(draft);
            }
            // The number of a group's inodes is rounded, down as well.
            options.inodes = Some(options.inodes.unwrap_or(have) + lack);
        }
    }

    /// The inodes for [`draft`](Self::draft) of a volume in which they are to take little room.
    fn fewest_inodes(&self) -> Option<u64> {
        self.builder
            .options
            .volume
            .inode_ratio
            .is_none()
            .then_some(0)
    }

    /// Returns the bytes for each inode of free space: at least a block, which a file takes.
    fn inode_ratio(&self) -> u64 {
        INODE_RATIO.max(self.builder.options.volume.block_size.unwrap_or(0).into())
    }

    /// Plans a volume of `bytes` with as many inodes as usual where there is room for them.
    fn of_size(self, bytes: u64) -> Result<Planned> {
        let usual = (!self.builder.options.mkfs_defaults).then_some(bytes / self.inode_ratio());
        let mut refusal = None;
        for inodes in [usual, self.fewest_inodes()] {
            match self
                .draft(bytes, inodes)
                .and_then(|draft| self.place(draft))
            {
                Ok(Some((draft, layout))) => return self.finish(draft, layout),
                Ok(None) => {}
                Err(error @ Error::Make(MakeError::Size(_))) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        let least = self.least_bytes()?;
        // A volume can also be too large for its features.
        match refusal.filter(|_| least <= bytes) {
            Some(refusal) => Err(refusal),
            None => Err(Error::NoRoom { size: bytes, least }),
        }
    }

    /// The smallest volume that the tree fits in, and `slack` bytes more. It is not smaller than
    /// the volume whose layout is kept.
    fn smallest(self, slack: u64) -> Result<Planned> {
        let least = self.old.as_ref().map_or(0, Precedent::blocks_count);
        let (draft, layout) = self.fit(slack, least)?;
        self.finish(draft, layout)
    }

    /// The smallest volume that the tree fits in, larger by hundredths of a per cent.
    fn larger_by(self, share: u32) -> Result<Planned> {
        let (draft, _) = self.fit(0, 0)?;
        let sb = draft.superblock();
        let bytes = u128::from(sb.blocks_count()) * u128::from(sb.block_size());
        let slack = bytes * u128::from(share) / u128::from(WHOLE_SHARE);
        self.smallest(u64::try_from(slack).map_err(|_| too_large())?)
    }

    /// The size of the smallest volume that the tree fits in.
    fn least_bytes(mut self) -> Result<u64> {
        let mut least = 0;
        loop {
            let (draft, _) = self.fit(0, 0)?;
            let sb = draft.superblock();
            let bytes = sb.blocks_count() * u64::from(sb.block_size());
            let before = least;
            least = bytes.max(before);
            let usage = self.builder.options.config.usage(bytes);
            let used = &mut self.builder.options.volume.usage;
            if !self.builder.is_use_by_size || bytes <= before || used[..] == [usage] {
                return Ok(least);
            }
            // A volume of this size gets other defaults, such as larger blocks.
            *used = vec![usage.to_owned()];
            self.holes = self.builder.find_holes(&self.order)?;
            self.storage = self.builder.store(&mut self.order)?;
        }
    }

    /// Finds the smallest volume of at least `least` blocks that the tree fits in, with `slack`
    /// bytes more, and gives all files their places in it.
    fn fit(&self, slack: u64, least: u64) -> Result<(Draft, Layout)> {
        let probe = self.builder.probe(&self.order)?;
        let size = u64::from(probe.superblock().block_size());
        let needed = self.placer().least_blocks(&probe)? + slack / size;
        let inodes = self.fewest_inodes().map(|fewest| match slack {
            0 => fewest,
            slack => slack / self.inode_ratio() + self.order.inodes.len() as u64,
        });
        let mut blocks = self.least(needed, size, inodes)?.max(least);
        let mut more = 1;
        loop {
            if let Some(placed) = self.place(self.draft(blocks * size, inodes)?)? {
                return Ok(placed);
            }
            // The maps of files in pieces take blocks as well.
            if blocks >= 1 << MOST_BLOCKS_LOG {
                return Err(too_large());
            }
            blocks += more;
            more *= 2;
        }
    }

    /// The least blocks of a volume with `needed` blocks for files.
    ///
    /// The journal grows in steps, at powers of two of blocks; so the power is searched first, and
    /// then the size below it, where larger volumes have more room.
    fn least(&self, needed: u64, block_size: u64, inodes: Option<u64>) -> Result<u64> {
        let fits = |blocks: u64| match self.draft(blocks * block_size, inodes) {
            Ok(draft) => Ok(draft.free_runs().map(|(_, len)| len).sum::<u64>() >= needed),
            // The options were right for the volume that was asked for numbers. So this one is too
            // small for its inodes or for its own metadata.
            Err(Error::Make(_)) => Ok(false),
            Err(error) => Err(error),
        };
        let mut log = needed.max(64).ilog2();
        while !fits((1 << log) - 1)? {
            log += 1;
            if log > MOST_BLOCKS_LOG {
                // Options can be wrong for all volumes that are large enough.
                let large = PROBE_BYTES + 2 * needed * block_size;
                return Err(self.draft(large, inodes).err().unwrap_or_else(too_large));
            }
        }
        let mut below = needed.saturating_sub(1).min((1 << log) - 2);
        let mut above = (1_u64 << log) - 1;
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if fits(middle)? {
                above = middle
            } else {
                below = middle
            }
        }
        Ok(above)
    }

    /// Gives all files their places in a draft, if there is room for them.
    fn place(&self, mut draft: Draft) -> Result<Option<(Draft, Layout)>> {
        let layout = self.placer().place(&mut draft)?;
        Ok(layout.map(|layout| (draft, layout)))
    }

    fn placer(&self) -> Placer<'_> {
        let tree = &self.builder.tree;
        Placer {
            tree,
            order: &self.order,
            holes: &self.holes,
            storage: &self.storage,
            old: self.old.as_ref(),
        }
    }

    fn finish(mut self, draft: Draft, layout: Layout) -> Result<Planned> {
        if let Some(old) = &self.old {
            self.builder
                .warnings
                .extend(old.differences(draft.superblock()));
        }
        Planned::new(
            self.builder,
            self.order,
            (self.holes, self.storage),
            draft,
            layout,
        )
    }
}

fn too_large() -> Error {
    MakeError::Size("the tree is larger than a volume can be".to_owned()).into()
}

/// Puts a source's entries into the tree.
struct Overlay<'a> {
    builder: &'a mut Builder,
    number: u16,
    prefix: &'a [u8],
    /// Whether the watch has ended the build.
    is_stopped: bool,
}

impl Overlay<'_> {
    /// The path in the volume of a path in the source.
    fn place(&self, path: &[u8]) -> Vec<u8> {
        join(self.prefix, path)
    }
}

impl Sink for Overlay<'_> {
    fn entry(&mut self, mut entry: Entry) -> TreeResult<()> {
        self.builder.entries += 1;
        let progress = Progress::Reading {
            entries: self.builder.entries,
        };
        if self
            .builder
            .watch
            .as_ref()
            .is_some_and(|watch| watch(progress).is_break())
        {
            self.is_stopped = true;
            return Err(extern4_tree::Error::Sink(Box::new(Error::Interrupted)));
        }
        entry.path = self.place(&entry.path);
        if let Kind::HardLink(target) = &mut entry.kind {
            *target = self.place(target);
        }
        let Builder { options, edit, .. } = &mut *self.builder;
        if options.without_xattrs {
            entry.leave_out_xattrs();
        }
        if let (Some(edit), false) = (edit, matches!(entry.kind, Kind::HardLink(_))) {
            edit(&mut entry).map_err(|reason| {
                let path = crate::error::shown(&entry.path);
                extern4_tree::Error::Refused { path, reason }
            })?;
        }
        if let Some((uid, gid)) = options.owner {
            (entry.uid, entry.gid) = (uid, gid);
        }
        if options.no_flags {
            (entry.flags, entry.project) = (None, None);
        }
        if let Some(latest) = options.latest {
            entry.mtime = entry.mtime.min(Time {
                secs: latest,
                nanos: 0,
            });
        }
        self.builder.tree.insert(entry, self.number)
    }

    fn remove(&mut self, path: &[u8]) -> TreeResult<()> {
        self.builder.tree.remove(&self.place(path))
    }

    fn clear(&mut self, path: &[u8]) -> TreeResult<()> {
        self.builder.tree.clear(&self.place(path))
    }

    fn warn(&mut self, message: String) {
        self.builder.warnings.push(message);
    }

    fn unwanted(&self) -> Option<Unwanted> {
        let filter = self.builder.options.filter.clone();
        let prefix = self.prefix.to_vec();
        (!filter.is_empty()).then(|| {
            Arc::new(move |path: &[u8]| filter.leaves_out(&join(&prefix, path), true)) as Unwanted
        })
    }
}

/// The path of `path` in the directory `prefix`.
fn join(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    match (prefix, path) {
        (b"", path) | (path, b"") => path.to_vec(),
        (prefix, path) => [prefix, b"/", path].concat(),
    }
}
