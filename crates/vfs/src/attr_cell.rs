//! The attributes of an inode, copied whole without a lock.
//!
//! The words are atomics under a sequence count (see `extern4_sync::seqcount` for the protocol): a reader copies them and
//! checks that no writer came between, and takes the writers' lock only if one came again and again. Number, type and
//! generation of an inode never change and stay outside.
//!
//! What permissions depend on has a count of its own, and stands on a cache line with what hardly ever changes: whoever walks through a
//! directory or opens a file looks at nothing that is written when names and contents change.

use extern4_sync::primitive::{AtomicU32, AtomicU64, Ordering};
use extern4_sync::seqcount::SeqCount;

use crate::attr::{Attr, FileFlags, FileType, NamesAttr, Rdev, Timespec};
use crate::lock::{self, Latch, LatchGuard};

const WORDS: usize = 11;
/// Where they are. The first four are on the line that is hardly ever written.
const IDS: usize = 0;
const RDEV: usize = 1;
const BTIME: usize = 2;
const PROJECT: usize = 3;
const MODE: usize = 4;
const SIZE: usize = 5;
const BLOCKS: usize = 6;
const FLAGS: usize = 7;
const ATIME: usize = 8;
const MTIME: usize = 9;
const CTIME: usize = 10;

/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | `seq` | `Writer`'s methods | `get`, `try_get` | those of `SeqCount` |
/// | `owner_seq` | `Writer::store`, within `seq` | `owner`, `owner_with` | those of `SeqCount` |
/// | `words`, `nsecs` | `Writer`'s methods | all of these | Relaxed, ordered by the counts |
#[repr(C)]
pub(crate) struct AttrCell {
    ino: u64,
    generation: u32,
    kind: FileType,
    /// Odd while owner and group change, or an ACL with the word that says whether there is one.
    owner_seq: SeqCount,
    words: [AtomicU64; WORDS],
    seq: SeqCount,
    writers: Latch<()>,
    /// Nanoseconds of the four times.
    nsecs: [AtomicU32; 4],
}

/// How many bytes of a cell come before what is written often.
pub(crate) const STEADY_BYTES: usize = std::mem::offset_of!(AttrCell, words) + MODE * size_of::<AtomicU64>();

/// The right to change the attributes.
pub(crate) struct Writer<'a> {
    cell: &'a AttrCell,
    _writers: LatchGuard<'a, ()>,
}

impl AttrCell {
    pub(crate) fn new(attr: &Attr) -> Self {
        let (words, nsecs) = encode(attr);
        Self {
            ino: attr.ino,
            generation: attr.generation,
            kind: attr.kind,
            owner_seq: SeqCount::new(),
            words: words.map(AtomicU64::new),
            seq: SeqCount::new(),
            writers: Latch::new(()),
            nsecs: nsecs.map(AtomicU32::new),
        }
    }

    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }

    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }

    /// A consistent copy.
    pub(crate) fn get(&self) -> Attr {
        self.consistent(&self.seq, || self.copy()).decode()
    }

    /// A consistent copy, if no writer comes between.
    #[inline(always)]
    pub(crate) fn try_get(&self) -> Option<Copied> {
        let seq = self.seq.begin()?;
        let attr = self.copy();
        self.seq.validate(seq).then_some(attr)
    }

    /// Owner, group and permission bits, of one moment.
    pub(crate) fn owner(&self) -> (u32, u32, u16) {
        let (uid, gid, mode) = self.owner_with(|| self.load(MODE));
        (uid, gid, low16(halves(mode).0))
    }

    /// The number of links.
    pub(crate) fn nlink(&self) -> u32 {
        halves(self.load(MODE)).1
    }

    /// Owner, group, and what `word` loads, of one moment: `word` is something that [`Writer::store`] changes with them, or one word.
    #[inline]
    pub(crate) fn owner_with<T>(&self, word: impl Fn() -> T) -> (u32, u32, T) {
        let (ids, word) = self.consistent(&self.owner_seq, || (self.load(IDS), word()));
        let (uid, gid) = halves(ids);
        (uid, gid, word)
    }

    /// Whether [`Writer::touch`] would have changed nothing at some moment of this call.
    #[inline]
    pub(crate) fn is_touched(&self, mode: u16, nlink: u32, ctime: Timespec) -> bool {
        // Relaxed: as in `load`.
        let nsec = || self.nsecs[nsec_of(CTIME)].load(Ordering::Relaxed);
        let seen = self.seq.read(|| (self.load(MODE), self.load(CTIME), nsec()));
        seen == Some((mode_word(mode, nlink), ctime.sec.cast_unsigned(), ctime.nsec))
    }

    /// Whether a write up to byte `end` at that moment would have changed nothing at some moment of this call; false if a writer came
    /// between.
    #[inline]
    pub(crate) fn is_written(&self, end: u64, now: Timespec) -> bool {
        // Relaxed: as in `load`.
        let time = |word: usize| (self.load(word), self.nsecs[nsec_of(word)].load(Ordering::Relaxed));
        let seen = self.seq.read(|| (self.load(SIZE), time(MTIME), time(CTIME)));
        let now = (now.sec.cast_unsigned(), now.nsec);
        seen.is_some_and(|(size, mtime, ctime)| end <= size && mtime == now && ctime == now)
    }

    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer { cell: self, _writers: lock::latch(&self.writers) }
    }

    #[inline]
    fn consistent<T>(&self, seq: &SeqCount, copy: impl Fn() -> T) -> T {
        seq.read(&copy).unwrap_or_else(|| self.settled(copy))
    }

    /// Where writers come all the time, it is waited for them.
    #[cold]
    fn settled<T>(&self, copy: impl FnOnce() -> T) -> T {
        let _writers = lock::latch(&self.writers);
        copy()
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        // Relaxed: ordered by a count, or by the writers' lock.
        self.words[index].load(Ordering::Relaxed)
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
}

impl Copied {
    #[inline(always)]
    pub(crate) fn decode(self) -> Attr {
        let Self { ino, generation, kind, words, nsecs } = self;
        let time = |word: usize| Timespec { sec: words[word].cast_signed(), nsec: nsecs[nsec_of(word)] };
        let ((uid, gid), (mode, nlink)) = (halves(words[IDS]), halves(words[MODE]));
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
            blksize,
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

    /// Changes everything but number, type and generation, and with it what `publish` stores: that is more than a word if it `sets_acl`.
    pub(crate) fn store(&self, attr: &Attr, sets_acl: bool, publish: impl FnOnce()) {
        let cell = self.cell;
        let (words, nsecs) = encode(attr);
        let _section = cell.seq.write();
        let _owner = (sets_acl || words[IDS] != cell.load(IDS)).then(|| cell.owner_seq.write());
        publish();
        // Relaxed, all: ordered by the counts.
        for (index, (word, value)) in cell.words.iter().zip(words).enumerate() {
            // Those on the steady line mostly stay as they are.
            if index >= MODE || word.load(Ordering::Relaxed) != value {
                word.store(value, Ordering::Relaxed);
            }
        }
        for (nsec, value) in cell.nsecs.iter().zip(nsecs) {
            nsec.store(value, Ordering::Relaxed);
        }
    }

    /// Changes no more than mode, number of links, and when the inode was last changed, and with it what `publish` stores.
    pub(crate) fn touch(&self, mode: u16, nlink: u32, ctime: Timespec, publish: impl FnOnce()) {
        let _section = self.cell.seq.write();
        publish();
        // Relaxed, all: as in `store`.
        self.cell.words[MODE].store(mode_word(mode, nlink), Ordering::Relaxed);
        self.cell.words[CTIME].store(ctime.sec.cast_unsigned(), Ordering::Relaxed);
        self.cell.nsecs[nsec_of(CTIME)].store(ctime.nsec, Ordering::Relaxed);
    }

    /// Changes what changes with the names in a directory.
    pub(crate) fn touch_names(&self, names: &NamesAttr) {
        let cell = self.cell;
        let _section = cell.seq.write();
        let set = |word: usize, value: u64| cell.words[word].store(value, Ordering::Relaxed);
        // Relaxed, all: as in `store`.
        set(MODE, pair(halves(cell.load(MODE)).0, names.nlink));
        set(SIZE, names.size);
        set(BLOCKS, names.blocks);
        set(FLAGS, pair(halves(cell.load(FLAGS)).0, names.flags.bits()));
        for (word, time) in [(MTIME, names.mtime), (CTIME, names.ctime)] {
            set(word, time.sec.cast_unsigned());
            cell.nsecs[nsec_of(word)].store(time.nsec, Ordering::Relaxed);
        }
    }
}

fn encode(attr: &Attr) -> ([u64; WORDS], [u32; 4]) {
    let btime = attr.btime.unwrap_or_default();
    let words = [
        pair(attr.uid, attr.gid),
        pair(attr.rdev.major, attr.rdev.minor),
        btime.sec.cast_unsigned(),
        pair(attr.project, u32::from(attr.btime.is_some())),
        mode_word(attr.mode, attr.nlink),
        attr.size,
        attr.blocks,
        pair(attr.blksize, attr.flags.bits()),
        attr.atime.sec.cast_unsigned(),
        attr.mtime.sec.cast_unsigned(),
        attr.ctime.sec.cast_unsigned(),
    ];
    (words, [btime.nsec, attr.atime.nsec, attr.mtime.nsec, attr.ctime.nsec])
}

/// Where the nanoseconds of a time are whose seconds are in this word.
const fn nsec_of(word: usize) -> usize {
    // That of birth, then the others, which stand together.
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
            let generation = 7;
            Attr {
                ino, generation, kind, mode, uid, gid, nlink, rdev, size, blocks, blksize, atime, mtime, ctime, btime,
                flags, project,
            }
        }
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(first in attr(), second in attr()) {
            let cell = AttrCell::new(&first);
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
            let Attr { size, blocks, nlink, mtime, ctime, flags, .. } = second;
            prop_assert_eq!(cell.is_written(size, mtime), mtime == first.ctime);
            cell.lock().touch(first.mode, first.nlink, mtime, || ());
            let other = Timespec { sec: !mtime.sec, ..mtime };
            prop_assert!(cell.is_written(size, mtime) && !cell.is_written(size, other));
            prop_assert_eq!(cell.is_written(size.saturating_add(1), mtime), size == u64::MAX);
            cell.lock().touch(first.mode, first.nlink, first.ctime, || ());
            let names = NamesAttr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags };
            cell.lock().touch_names(&names);
            let renamed =
                Attr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags, ..touched };
            prop_assert_eq!(cell.get(), renamed);
        }
    }
}
