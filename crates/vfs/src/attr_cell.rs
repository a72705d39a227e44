//! The attributes of an inode, copied whole without a lock.
//!
//! The words are atomics under a sequence count (see `extern4_sync::seqcount` for the protocol): a reader copies them and
//! checks that no writer came between, and takes the writers' lock only if one came again and again. Number, type and
//! generation of an inode never change and stay outside.

use extern4_sync::primitive::{AtomicU32, AtomicU64, Ordering};
use extern4_sync::seqcount::SeqCount;

use crate::attr::{Attr, FileFlags, FileType, NamesAttr, Rdev, Timespec};
use crate::lock::{self, Latch, LatchGuard};

const WORDS: usize = 11;
/// Where some of them are.
const MODE: usize = 1;
const SIZE: usize = 2;
const BLOCKS: usize = 3;
const FLAGS: usize = 5;
const ATIME: usize = 6;
const MTIME: usize = 7;
const CTIME: usize = 8;

/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | `seq` | `Writer`'s methods | `get`, `owner` | those of `SeqCount` |
/// | `words`, `nsecs` | `Writer`'s methods | `get`, `owner` | Relaxed, ordered by `seq` |
pub(crate) struct AttrCell {
    ino: u64,
    generation: u32,
    kind: FileType,
    seq: SeqCount,
    words: [AtomicU64; WORDS],
    /// Nanoseconds of the four times.
    nsecs: [AtomicU32; 4],
    writers: Latch<()>,
}

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
            seq: SeqCount::new(),
            words: words.map(AtomicU64::new),
            nsecs: nsecs.map(AtomicU32::new),
            writers: Latch::new(()),
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
        self.consistent(|| self.copy()).decode()
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

    /// Owner, group, and what `word` loads, of one moment: `word` is something that only [`Writer::store`] changes.
    #[inline]
    pub(crate) fn owner_with<T>(&self, word: impl Fn() -> T) -> (u32, u32, T) {
        let (ids, word) = self.consistent(|| (self.load(0), word()));
        let (uid, gid) = halves(ids);
        (uid, gid, word)
    }

    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer { cell: self, _writers: lock::latch(&self.writers) }
    }

    #[inline]
    fn consistent<T>(&self, copy: impl Fn() -> T) -> T {
        self.seq.read(&copy).unwrap_or_else(|| {
            let _writers = lock::latch(&self.writers);
            copy()
        })
    }

    #[inline]
    fn load(&self, index: usize) -> u64 {
        // Relaxed: ordered by `seq`, or by the writers' lock.
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
        let time = |index: usize| Timespec { sec: words[ATIME + index].cast_signed(), nsec: nsecs[index] };
        let ((uid, gid), (mode, nlink)) = (halves(words[0]), halves(words[MODE]));
        let ((major, minor), (blksize, flags)) = (halves(words[4]), halves(words[5]));
        let (project, has_btime) = halves(words[10]);
        Attr {
            ino,
            uid,
            gid,
            nlink,
            generation,
            rdev: Rdev { major, minor },
            size: words[2],
            blocks: words[3],
            blksize,
            flags: FileFlags::from_bits_retain(flags),
            atime: time(0),
            mtime: time(1),
            ctime: time(2),
            btime: (has_btime != 0).then_some(time(3)),
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

    /// Changes everything but number, type and generation, and with it what `publish` stores.
    pub(crate) fn store(&self, attr: &Attr, publish: impl FnOnce()) {
        let _section = self.cell.seq.write();
        publish();
        let (words, nsecs) = encode(attr);
        // Relaxed, both: ordered by `seq`.
        for (word, value) in self.cell.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        for (nsec, value) in self.cell.nsecs.iter().zip(nsecs) {
            nsec.store(value, Ordering::Relaxed);
        }
    }

    /// Changes no more than mode, number of links, and when the inode was last changed, and with it what `publish` stores.
    pub(crate) fn touch(&self, mode: u16, nlink: u32, ctime: Timespec, publish: impl FnOnce()) {
        let _section = self.cell.seq.write();
        publish();
        // Relaxed, all: as in `store`.
        self.cell.words[MODE].store(pair(u32::from(mode & 0o7777), nlink), Ordering::Relaxed);
        self.cell.words[CTIME].store(ctime.sec.cast_unsigned(), Ordering::Relaxed);
        self.cell.nsecs[CTIME - ATIME].store(ctime.nsec, Ordering::Relaxed);
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
            cell.nsecs[word - ATIME].store(time.nsec, Ordering::Relaxed);
        }
    }
}

fn encode(attr: &Attr) -> ([u64; WORDS], [u32; 4]) {
    let btime = attr.btime.unwrap_or_default();
    let words = [
        pair(attr.uid, attr.gid),
        pair(u32::from(attr.mode & 0o7777), attr.nlink),
        attr.size,
        attr.blocks,
        pair(attr.rdev.major, attr.rdev.minor),
        pair(attr.blksize, attr.flags.bits()),
        attr.atime.sec.cast_unsigned(),
        attr.mtime.sec.cast_unsigned(),
        attr.ctime.sec.cast_unsigned(),
        btime.sec.cast_unsigned(),
        pair(attr.project, u32::from(attr.btime.is_some())),
    ];
    (words, [attr.atime.nsec, attr.mtime.nsec, attr.ctime.nsec, btime.nsec])
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
            cell.lock().store(&second, || ());
            prop_assert_eq!(cell.get(), Attr { ino: first.ino, ..second });
            prop_assert_eq!(cell.owner(), (second.uid, second.gid, second.mode));
            cell.lock().touch(first.mode, first.nlink, first.ctime, || ());
            let touched = Attr { ino: first.ino, mode: first.mode, nlink: first.nlink, ctime: first.ctime, ..second };
            prop_assert_eq!(cell.get(), touched);
            let Attr { size, blocks, nlink, mtime, ctime, flags, .. } = second;
            let names = NamesAttr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags };
            cell.lock().touch_names(&names);
            let renamed =
                Attr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags, ..touched };
            prop_assert_eq!(cell.get(), renamed);
        }
    }
}
