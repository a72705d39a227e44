//! The attributes of an inode, copied whole without a lock.
//!
//! `Inode` holds one and calls it for `stat` and permission checks; only `Inode::update` changes
//! it. A copy is of one moment: it never has fields of two changes.
//!
//! The words are atomics under a sequence count (see `extern4_sync::seqcount` for the protocol): a
//! reader copies them and checks that no writer stored meanwhile. It takes the writers' lock only
//! if writers have interrupted it again and again. Number, type and generation of an inode never
//! change, and are not under the count.
//!
//! Owner, group and mode have a count of their own, on a cache line with fields that hardly ever
//! change. So a path walk or an open reads no line that is written when names and contents change.
//! Size and times have a line of their own, too. So a write over existing contents reads no line
//! that is written when mode, links or extended attributes change. The first change in a tick of
//! the clock is an exception, because it sets a time.

use extern4_sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use extern4_sync::seqcount::SeqCount;

use crate::attr::{Attr, FileFlags, FileType, NamesAttr, Rdev, Timespec};
use crate::lock::{self, Latch, LatchGuard};

const WORDS: usize = 10;
/// The index of each word. The first four are on the line that is hardly ever written, the others
/// on that of contents and times.
const IDS: usize = 0;
const RDEV: usize = 1;
const BTIME: usize = 2;
const PROJECT: usize = 3;
const SIZE: usize = 4;
const BLOCKS: usize = 5;
const FLAGS: usize = 6;
const ATIME: usize = 7;
const MTIME: usize = 8;
const CTIME: usize = 9;

/// A flag in the word of the block size: a write has to check more than size and times. The inode
/// is no regular file, may have to lose set-id bits, or is immutable. No block is that large.
const GUARDED: u32 = 1 << 31;
/// The set-id bits, which a write may have to remove.
pub(crate) const SET_ID_BITS: u16 = 0o6000;

/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | `seq` | `Writer`'s methods | `get`, `try_get` | those of `SeqCount` |
/// | `owner_seq` | `Writer::store`, within `seq` | `owner`, `owner_with` | those of `SeqCount` |
/// | `words`, `nsecs`, `mode` | `Writer`'s methods | all of these | Relaxed, under the counts |
/// | size and times | `Writer`'s methods | `is_written` | Relaxed: see there |
#[repr(C)]
pub(crate) struct InodeAttrs {
    ino: u64,
    generation: u32,
    kind: FileType,
    /// Odd while owner and group change, or an ACL with the word that says whether there is one.
    owner_seq: SeqCount,
    words: [AtomicU64; WORDS],
    /// Nanoseconds of the four times.
    nsecs: [AtomicU32; 4],
    /// Mode, and number of links.
    mode: AtomicU64,
    seq: SeqCount,
    writers: Latch<()>,
    /// Whether it was made without a name and may get one.
    pub(crate) linkable: AtomicBool,
    /// Whether it is counted among the inodes in use that have no links.
    pub(crate) unlinked: AtomicBool,
}

/// The bytes before the fields that are written often, and those before the fields that writes of
/// contents do not store to.
pub(crate) const STEADY_BYTES: usize =
    std::mem::offset_of!(InodeAttrs, words) + SIZE * size_of::<AtomicU64>();
pub(crate) const CONTENTS_BYTES: usize = std::mem::offset_of!(InodeAttrs, mode);

/// The right to change the attributes.
pub(crate) struct Writer<'a> {
    cell: &'a InodeAttrs,
    _writers: LatchGuard<'a, ()>,
}

impl InodeAttrs {
    pub(crate) fn new(attr: &Attr) -> Self {
        let (words, nsecs, mode) = encode(attr.kind, attr);
        Self {
            ino: attr.ino,
            generation: attr.generation,
            kind: attr.kind,
            owner_seq: SeqCount::new(),
            words: words.map(AtomicU64::new),
            nsecs: nsecs.map(AtomicU32::new),
            mode: AtomicU64::new(mode),
            seq: SeqCount::new(),
            writers: Latch::new(()),
            linkable: AtomicBool::new(false),
            unlinked: AtomicBool::new(false),
        }
    }

    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }

    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }

    /// Returns a consistent copy.
    pub(crate) fn get(&self) -> Attr {
        self.consistent(&self.seq, || self.copy()).decode()
    }

    /// Returns a consistent copy, if no writer stores meanwhile.
    #[inline(always)]
    pub(crate) fn try_get(&self) -> Option<Copied> {
        let seq = self.seq.begin()?;
        let attr = self.copy();
        self.seq.validate(seq).then_some(attr)
    }

    /// Returns owner, group and permission bits, of one moment.
    pub(crate) fn owner(&self) -> (u32, u32, u16) {
        let (uid, gid, mode) = self.owner_with(|| self.load_mode());
        (uid, gid, low16(halves(mode).0))
    }

    /// Returns the number of links.
    pub(crate) fn nlink(&self) -> u32 {
        halves(self.load_mode()).1
    }

    /// Returns owner, group, and the value that `word` loads, of one moment. `word` loads a value
    /// that [`Writer::store`] changes with them, or a single word.
    #[inline]
    pub(crate) fn owner_with<T>(&self, word: impl Fn() -> T) -> (u32, u32, T) {
        let (ids, word) = self.consistent(&self.owner_seq, || (self.load(IDS), word()));
        let (uid, gid) = halves(ids);
        (uid, gid, word)
    }

    /// Returns whether [`Writer::touch`] would have changed nothing at some moment of this call.
    #[inline]
    pub(crate) fn is_touched(&self, mode: u16, nlink: u32, ctime: Timespec) -> bool {
        self.seq.read(|| (self.load_mode(), self.time(CTIME))) == Some((mode_word(mode, nlink), ctime))
    }

    /// Returns whether, at some moment of this call, the inode was last changed at the time
    /// `ctime`.
    #[inline]
    pub(crate) fn is_changed_at(&self, ctime: Timespec) -> bool {
        self.seq.read(|| self.time(CTIME)) == Some(ctime)
    }

    /// Returns whether a write up to byte `end` at time `now` changes no attribute. The inode must
    /// be a regular file, and the write must take no set-id bits off. Locks: `rwsem`, shared at
    /// least.
    ///
    /// This does not read the count, which is written when mode and links change. Size, flags and
    /// time of contents change under `rwsem` exclusive only, so all of them are of one moment. The
    /// time of the last change may be set meanwhile; it is then `now` or later, as if that change
    /// had come after the write. The same holds if its two words are of different moments and match
    /// `now` by chance, because times do not go back.
    #[inline]
    pub(crate) fn is_written(&self, end: u64, now: Timespec) -> bool {
        let guarded = halves(self.load(FLAGS)).0 & GUARDED != 0;
        !guarded && end <= self.load(SIZE) && self.time(MTIME) == now && self.time(CTIME) == now
    }

    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer { cell: self, _writers: lock::latch(&self.writers) }
    }

    #[inline]
    fn consistent<T>(&self, seq: &SeqCount, copy: impl Fn() -> T) -> T {
        seq.read(&copy).unwrap_or_else(|| self.copy_locked(copy))
    }

    /// Returns the result of `copy` with the writers' lock held, because writers have interrupted
    /// the reader again and again.
    #[cold]
    fn copy_locked<T>(&self, copy: impl FnOnce() -> T) -> T {
        let _writers = lock::latch(&self.writers);
        copy()
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        // Relaxed: ordered by a count, or by the writers' lock.
        self.words[index].load(Ordering::Relaxed)
    }

    #[inline]
    fn load_mode(&self) -> u64 {
        // Relaxed: as in `load`.
        self.mode.load(Ordering::Relaxed)
    }

    #[inline]
    fn time(&self, word: usize) -> Timespec {
        // Relaxed: as in `load`.
        let nsec = self.nsecs[nsec_of(word)].load(Ordering::Relaxed);
        Timespec { sec: self.load(word).cast_signed(), nsec }
    }

    /// Sets or clears [`GUARDED`] for this mode. Locks: the writers'.
    #[cold]
    fn guard(&self, mode: u16) {
        let (blksize, flags) = halves(self.load(FLAGS));
        let flags = FileFlags::from_bits_retain(flags);
        self.set(FLAGS, flags_word(blksize & !GUARDED, self.kind, mode, flags));
    }

    /// Stores a word, if that changes it. Locks: the writers'.
    #[inline]
    fn set(&self, index: usize, value: u64) {
        if self.load(index) != value {
            // Relaxed: as in `load`.
            self.words[index].store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn copy(&self) -> Copied {
        Copied {
            ino: self.ino,
            generation: self.generation,
            kind: self.kind,
            words: std::array::from_fn(|index| self.load(index)),
            // Relaxed: as in `load`.
            nsecs: std::array::from_fn(|index| self.nsecs[index].load(Ordering::Relaxed)),
            mode: self.load_mode(),
        }
    }
}

/// Attributes as they were read.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    ino: u64,
    generation: u32,
    kind: FileType,
    words: [u64; WORDS],
    nsecs: [u32; 4],
    mode: u64,
}

impl Copied {
    #[inline(always)]
    pub(crate) fn decode(self) -> Attr {
        let Self { ino, generation, kind, words, nsecs, mode } = self;
        let time = |word: usize| Timespec { sec: words[word].cast_signed(), nsec: nsecs[nsec_of(word)] };
        let ((uid, gid), (mode, nlink)) = (halves(words[IDS]), halves(mode));
        let ((major, minor), (blksize, flags)) = (halves(words[RDEV]), halves(words[FLAGS]));
        let (project, has_btime) = halves(words[PROJECT]);
        Attr {
            ino,
            uid,
            gid,
            nlink,
            generation,
            rdev: Rdev { major, minor },
            size: words[SIZE],
            blocks: words[BLOCKS],
            blksize: blksize & !GUARDED,
            flags: FileFlags::from_bits_retain(flags),
            atime: time(ATIME),
            mtime: time(MTIME),
            ctime: time(CTIME),
            btime: (has_btime != 0).then_some(time(BTIME)),
            project,
            mode: low16(mode),
            kind,
        }
    }
}

impl Writer<'_> {
    pub(crate) fn get(&self) -> Attr {
        self.cell.copy().decode()
    }

    /// Stores all attributes but number, type and generation, together with the values that
    /// `publish` stores. With `sets_acl`, these are more than one word.
    pub(crate) fn store(&self, attr: &Attr, sets_acl: bool, publish: impl FnOnce()) {
        let cell = self.cell;
        let (words, nsecs, mode) = encode(cell.kind, attr);
        let _section = cell.seq.write();
        let _owner = (sets_acl || words[IDS] != cell.load(IDS)).then(|| cell.owner_seq.write());
        publish();
        for (index, &word) in words.iter().enumerate().take(SIZE) {
            cell.set(index, word);
        }
        // Relaxed, all: ordered by the counts.
        cell.mode.store(mode, Ordering::Relaxed);
        let is = |index: usize| cell.load(index) == words[index];
        let was_then = |index: usize| cell.nsecs[index].load(Ordering::Relaxed) == nsecs[index];
        // A change of extended attributes then stores nothing to the line of contents.
        if (SIZE..WORDS).all(is) && (0..nsecs.len()).all(was_then) {
            return;
        }
        for (word, value) in cell.words.iter().zip(words).skip(SIZE) {
            word.store(value, Ordering::Relaxed);
        }
        for (nsec, value) in cell.nsecs.iter().zip(nsecs) {
            nsec.store(value, Ordering::Relaxed);
        }
    }

    /// Stores only mode, number of links and the time of the last change, together with the values
    /// that `publish` stores.
    pub(crate) fn touch(&self, mode: u16, nlink: u32, ctime: Timespec, publish: impl FnOnce()) {
        let cell = self.cell;
        let _section = cell.seq.write();
        publish();
        let old = low16(halves(cell.load_mode()).0);
        // Relaxed, both: as in `store`.
        cell.mode.store(mode_word(mode, nlink), Ordering::Relaxed);
        if (old ^ mode) & SET_ID_BITS != 0 {
            cell.guard(mode);
        }
        if cell.time(CTIME) != ctime {
            cell.set(CTIME, ctime.sec.cast_unsigned());
            cell.nsecs[nsec_of(CTIME)].store(ctime.nsec, Ordering::Relaxed);
        }
    }

    /// Stores the attributes that change with the names in a directory.
    pub(crate) fn touch_names(&self, names: &NamesAttr) {
        let cell = self.cell;
        let _section = cell.seq.write();
        let set = |word: usize, value: u64| cell.words[word].store(value, Ordering::Relaxed);
        // Relaxed, all: as in `store`.
        cell.mode.store(pair(halves(cell.load_mode()).0, names.nlink), Ordering::Relaxed);
        set(SIZE, names.size);
        set(BLOCKS, names.blocks);
        set(FLAGS, pair(halves(cell.load(FLAGS)).0, names.flags.bits()));
        for (word, time) in [(MTIME, names.mtime), (CTIME, names.ctime)] {
            set(word, time.sec.cast_unsigned());
            cell.nsecs[nsec_of(word)].store(time.nsec, Ordering::Relaxed);
        }
    }
}

fn encode(kind: FileType, attr: &Attr) -> ([u64; WORDS], [u32; 4], u64) {
    let btime = attr.btime.unwrap_or_default();
    let words = [
        pair(attr.uid, attr.gid),
        pair(attr.rdev.major, attr.rdev.minor),
        btime.sec.cast_unsigned(),
        pair(attr.project, u32::from(attr.btime.is_some())),
        attr.size,
        attr.blocks,
        flags_word(attr.blksize, kind, attr.mode, attr.flags),
        attr.atime.sec.cast_unsigned(),
        attr.mtime.sec.cast_unsigned(),
        attr.ctime.sec.cast_unsigned(),
    ];
    let nsecs = [btime.nsec, attr.atime.nsec, attr.mtime.nsec, attr.ctime.nsec];
    (words, nsecs, mode_word(attr.mode, attr.nlink))
}

fn flags_word(blksize: u32, kind: FileType, mode: u16, flags: FileFlags) -> u64 {
    let guarded =
        kind != FileType::Regular || mode & SET_ID_BITS != 0 || flags.contains(FileFlags::IMMUTABLE);
    pair(blksize | if guarded { GUARDED } else { 0 }, flags.bits())
}

/// Returns the index of the nanoseconds of the time whose seconds are in this word.
const fn nsec_of(word: usize) -> usize {
    // The birth time comes first, then the other times, whose words are adjacent.
    if word == BTIME { 0 } else { word - ATIME + 1 }
}

fn mode_word(mode: u16, nlink: u32) -> u64 {
    pair(u32::from(mode & 0o7777), nlink)
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

fn low16(word: u32) -> u16 {
    let [low, high, ..] = word.to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time() -> impl Strategy<Value = Timespec> {
        (any::<i64>(), 0..1_000_000_000u32).prop_map(|(sec, nsec)| Timespec { sec, nsec })
    }

    prop_compose! {
        fn attr()(
            (ino, size, blocks) in any::<(u64, u64, u64)>(),
            (mode, uid, gid, nlink) in (0..0o10000u16, any::<u32>(), any::<u32>(), any::<u32>()),
            (major, minor, blksize, flags, project) in any::<(u32, u32, u32, u32, u32)>(),
            (atime, mtime, ctime, btime) in (time(), time(), time(), prop::option::of(time())),
        ) -> Attr {
            let rdev = Rdev { major, minor };
            let (kind, flags) = (FileType::Fifo, FileFlags::from_bits_retain(flags));
            let (generation, blksize) = (7, blksize & !GUARDED);
            Attr {
                ino, generation, kind, mode, uid, gid, nlink, rdev, size, blocks, blksize, atime, mtime, ctime, btime,
                flags, project,
            }
        }
    }

    proptest! {
        #[test]
        fn stored_attributes_are_read_back(first in attr(), second in attr()) {
            let cell = InodeAttrs::new(&first);
            prop_assert_eq!(cell.get(), first);
            cell.lock().store(&second, false, || ());
            prop_assert_eq!(cell.get(), Attr { ino: first.ino, ..second });
            prop_assert_eq!(cell.owner(), (second.uid, second.gid, second.mode));
            cell.lock().touch(first.mode, first.nlink, first.ctime, || ());
            let touched = Attr { ino: first.ino, mode: first.mode, nlink: first.nlink, ctime: first.ctime, ..second };
            prop_assert_eq!(cell.get(), touched);
            prop_assert!(cell.is_touched(first.mode, first.nlink, first.ctime));
            let later = Timespec { nsec: first.ctime.nsec ^ 1, ..first.ctime };
            let others = [(first.mode ^ 1, first.nlink, first.ctime), (first.mode, !first.nlink, first.ctime),
                (first.mode, first.nlink, later)];
            prop_assert!(!others.iter().any(|&(mode, nlink, ctime)| cell.is_touched(mode, nlink, ctime)));
            prop_assert!(cell.is_changed_at(first.ctime) && !cell.is_changed_at(later));
            let Attr { size, blocks, nlink, mtime, ctime, flags, .. } = second;
            cell.lock().touch(first.mode, first.nlink, first.ctime, || ());
            let names = NamesAttr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags };
            cell.lock().touch_names(&names);
            let renamed =
                Attr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags, ..touched };
            prop_assert_eq!(cell.get(), renamed);
        }

        #[test]
        fn a_second_write_in_a_tick_changes_no_attribute(attr in attr(), time in time()) {
            let flags = attr.flags - FileFlags::IMMUTABLE;
            let plain = Attr { kind: FileType::Regular, mode: attr.mode & 0o1777, flags, mtime: time, ctime: time, ..attr };
            let cell = InodeAttrs::new(&plain);
            prop_assert!(cell.is_written(plain.size, time));
            prop_assert_eq!(cell.is_written(plain.size.saturating_add(1), time), plain.size == u64::MAX);
            let other = Timespec { sec: !time.sec, ..time };
            prop_assert!(!cell.is_written(plain.size, other));
            let more_to_do = [
                Attr { kind: FileType::Fifo, ..plain },
                Attr { mode: plain.mode | 0o4000, ..plain },
                Attr { mode: plain.mode | 0o2000, ..plain },
                Attr { flags: flags | FileFlags::IMMUTABLE, ..plain },
                Attr { mtime: other, ..plain },
                Attr { ctime: other, ..plain },
            ];
            for other in &more_to_do {
                prop_assert!(!InodeAttrs::new(other).is_written(plain.size, time), "{other:?}");
                let cell = InodeAttrs::new(&plain);
                cell.lock().store(other, false, || ());
                // The kind stays as it is.
                prop_assert_eq!(cell.is_written(plain.size, time), other.kind != plain.kind, "stored: {:?}", other);
                prop_assert_eq!(cell.get(), Attr { kind: plain.kind, ..*other });
            }
            // `touch` sets the flag, too.
            for mode in [plain.mode | 0o4000, plain.mode | 0o6000, plain.mode] {
                cell.lock().touch(mode, plain.nlink, time, || ());
                prop_assert_eq!(cell.is_written(plain.size, time), mode == plain.mode);
                prop_assert_eq!(cell.get(), Attr { mode, ..plain });
            }
        }
    }
}
