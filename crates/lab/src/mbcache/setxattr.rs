//! The workload through `setxattr`: threads set attributes of files on an ext4 volume in memory,
//! with its journal.
//!
//! The baseline and the patch replace the cache by which production finds blocks ([`BlockCache`]).
//! All else is production's on all three sides, also the reference count by which files join and
//! leave a block.
//!
//! `mbcache` measures it next to the workload on the cache alone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(test)]
use extern4_block::BlockDevice;
use extern4_block::MemoryDevice;
use extern4_ext4::{BlockCache, Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_vfs::{
    Cred, LookupFlags, Namespace, NewKind, Session, SuperBlock, SuperOptions, XattrFlags,
};

use super::{Baseline, Cache, Cell, Patch, RUN};
use crate::plan::{Plan, Side, load};
use crate::random::Random;
use crate::row::Sample;

const NAME: &str = "user.value";
/// The bytes of a value: too many for an inode, as in the patch's table.
const BYTES: usize = 512;
/// Attributes set between two checks of whether the time is up.
const BATCH: u64 = 16;

/// A volume for each side, whose files are made once.
pub(super) struct Volumes([Volume; 3]);

impl Volumes {
    /// Creates `files` files for each of `threads` threads, at most 70,000 in all. Returns `None`
    /// if there is no mke2fs to make the volumes.
    pub(super) fn new(threads: usize, files: usize) -> Option<Self> {
        const OPTIONS: &[&str] = &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-N",
            "80000",
            "-J",
            "size=64",
            "-E",
            "nodiscard",
        ];
        let spec = ImageSpec::new("mbcache", 384 << 20, OPTIONS);
        if !spec.can_build() {
            return None;
        }
        let bytes = std::fs::read(spec.build().path).expect("an image that has just been made");
        Some(Self(Side::ALL.map(|side| {
            Volume::new(bytes.clone(), side, threads, files)
        })))
    }

    /// Runs one repetition of a side.
    pub(super) fn take(&self, plan: &Plan, side: Side, cell: Cell, threads: usize) -> Sample {
        let volume = &self.0[side as usize];
        let is_other = volume.clear_for(cell, threads);
        let shared = volume.shared();
        let begin = |thread| {
            let mut setter = Setter::new(volume, thread, cell);
            // All files have an attribute before the time begins.
            (0..if is_other { cell.files } else { 0 }).for_each(|_| setter.set_next());
            setter
        };
        let batch = |setter: &mut Setter| {
            (0..BATCH).for_each(|_| setter.set_next());
            BATCH
        };
        let done = match &plan.repeated {
            // A run like the patch's: a number of attributes, and the time for all.
            None => load(threads).repeat_times(plan.sets / BATCH, begin, batch),
            Some(_) => plan.work(1, threads, begin, batch),
        };
        let mut sample = Sample::of(&done);
        sample.counters.push((RUN, done.wall.as_secs_f64()));
        // Blocks joined before the time began count as well: they are few.
        let joined = volume.shared() - shared;
        sample
            .counters
            .push(("block joined, %", 100.0 * done.per_op(joined as f64)));
        sample
    }

    #[cfg(test)]
    pub(super) fn end(self) -> [Vec<u8>; 3] {
        self.0.map(Volume::end)
    }
}

struct Volume {
    #[cfg(test)]
    device: Arc<MemoryDevice>,
    fs: Arc<Ext4>,
    namespace: Arc<Namespace>,
    /// The cell and the number of threads whose files have attributes.
    set: Mutex<Option<(Cell, usize)>>,
}

impl Volume {
    fn new(bytes: Vec<u8>, side: Side, threads: usize, files: usize) -> Self {
        let block_cache: Option<Arc<dyn BlockCache>> = match side {
            Side::Baseline => Some(Arc::new(Baseline::new())),
            Side::Patch => Some(Arc::new(Patch::new())),
            _ => None,
        };
        let options = OpenOptions {
            block_cache,
            ..OpenOptions::default()
        };
        let device = Arc::new(MemoryDevice::new(bytes));
        let opened = Ext4::open_for_writing(Arc::clone(&device) as _, &options);
        let fs = Arc::new(opened.expect("a new volume"));
        let sb =
            SuperBlock::new(Arc::clone(&fs) as _, SuperOptions::default()).expect("a new volume");
        let namespace = Namespace::new(sb);
        let root = Session::new(&namespace, Cred::root());
        for thread in 0..threads {
            root.mkdir(format!("/{thread}"), 0o755).expect("a new name");
            for file in 0..files {
                root.mknod(path(thread, file), NewKind::Regular, 0o644)
                    .expect("a new name");
            }
        }
        let set = Mutex::new(None);
        Self {
            #[cfg(test)]
            device,
            fs,
            namespace,
            set,
        }
    }

    /// Removes all attributes unless the files of this cell and number of threads have them.
    /// Returns true if it did.
    fn clear_for(&self, cell: Cell, threads: usize) -> bool {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let before = set.replace((cell, threads));
        if before == *set {
            return false;
        }
        if let Some((cell, threads)) = before {
            let root = Session::new(&self.namespace, Cred::root());
            for path in
                (0..threads).flat_map(|thread| (0..cell.files).map(move |file| path(thread, file)))
            {
                root.remove_xattr(path, NAME, LookupFlags::FOLLOW)
                    .expect("it has been set");
            }
        }
        true
    }

    /// Returns how often a file got a block that other files had.
    fn shared(&self) -> u64 {
        self.fs
            .sharing_stats()
            .expect("it is open for writing")
            .blocks_shared
    }

    /// Closes the volume, and returns the contents of its device.
    #[cfg(test)]
    fn end(self) -> Vec<u8> {
        drop(self.namespace);
        self.fs.close().expect("nothing is in use");
        let mut bytes = vec![0; self.device.size_bytes() as usize];
        self.device.read_at(&mut bytes, 0).expect("all of it");
        bytes
    }
}

fn path(thread: usize, file: usize) -> String {
    format!("/{thread}/{file}")
}

/// The state of a thread that sets attributes.
struct Setter {
    session: Session,
    paths: Vec<String>,
    next: usize,
    random: Random,
    value: [u8; BYTES],
    values: u32,
}

impl Setter {
    fn new(volume: &Volume, thread: usize, cell: Cell) -> Self {
        let session = Session::new(&volume.namespace, Cred::root());
        let paths = (0..cell.files).map(|file| path(thread, file)).collect();
        let value = [0x5a; BYTES];
        let values = cell.values;
        Self {
            session,
            paths,
            next: 0,
            random: Random::new(thread),
            value,
            values,
        }
    }

    /// Sets the attribute of the next file to one of the values.
    fn set_next(&mut self) {
        let value = self.random.below(self.values.into()) as u32;
        self.value[..4].copy_from_slice(&value.to_le_bytes());
        let path = &self.paths[self.next];
        let set = self.session.set_xattr(
            path,
            NAME,
            &self.value,
            XattrFlags::empty(),
            LookupFlags::FOLLOW,
        );
        set.expect("there is room");
        self.next = if self.next + 1 == self.paths.len() {
            0
        } else {
            self.next + 1
        };
    }
}

// OK, below: block numbers of such a volume have 32 bits.

impl BlockCache for Baseline {
    fn find(&self, hash: u32, join: &mut dyn FnMut(u64, &dyn Fn() -> bool) -> bool) -> Option<u64> {
        self.join_by(hash, |block, is_there| join(block.into(), is_there))
            .map(u64::from)
    }

    fn insert(&self, hash: u32, block: u64) {
        self.insert(hash, block as u32);
    }

    fn remove(&self, _hash: u32, block: u64) {
        self.leave_by(block as u32, || true);
    }

    fn leave(&self, _hash: u32, block: u64, leave: &mut dyn FnMut() -> bool) {
        self.leave_by(block as u32, leave);
    }

    /// The baseline has no such mark: it tries full blocks again and again.
    fn set_full(&self, _hash: u32, _block: u64, _full: bool) {}
}

impl BlockCache for Patch {
    fn find(&self, hash: u32, join: &mut dyn FnMut(u64, &dyn Fn() -> bool) -> bool) -> Option<u64> {
        // `set_full` tells it that a block is full.
        let join =
            |block: u32, is_there: &dyn Fn() -> bool| join(block.into(), is_there).then_some(0);
        self.join_by(hash, join).map(u64::from)
    }

    fn insert(&self, hash: u32, block: u64) {
        self.insert(hash, block as u32);
    }

    fn remove(&self, hash: u32, block: u64) {
        self.remove(hash, block as u32);
    }

    fn leave(&self, hash: u32, block: u64, leave: &mut dyn FnMut() -> bool) {
        if leave() {
            self.remove(hash, block as u32);
        }
    }

    fn set_full(&self, hash: u32, block: u64, full: bool) {
        self.set_reusable(hash, block as u32, !full);
    }
}

impl fmt::Debug for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Baseline")
            .field("entries", &self.entries())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patch")
            .field("entries", &self.entries())
            .finish_non_exhaustive()
    }
}
