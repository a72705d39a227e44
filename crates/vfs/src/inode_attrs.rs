//! The attributes of an inode, copied whole without a lock.
//!
//! `Inode` holds one and calls it for `stat` and permission checks; only `Inode::update` changes
//! it. A copy is of one moment: it never has fields of two changes.
//!
//! The fields are atomics under a sequence count (see `extern4_sync::seqcount` for the protocol): a
//! reader copies them and checks that no writer stored meanwhile. It takes the writers' lock only
//! if writers have interrupted it again and again. Number, type, generation and device of an inode
//! never change.
//!
//! # Two cache lines
//! A `stat` loads two lines. Path walks and opens load the first, and writes over existing contents
//! the second. The place of the sequence count and of the number of links depends on the type:
//!
//! | | first line | second line |
//! |---|---|---|
//! | any file | permission cache, owner, group, project, ACLs | size, blocks, flags, times |
//! | a directory | the count of changes of owner and ACL | the count of all changes, links |
//! | another file | the count of all changes, links | its number, if it is a device |
//!
//! So a path walk reads no line that is written when names in a directory change. A write over
//! existing contents reads no line that is written when mode, links or extended attributes of its
//! file change. The first change in a tick of the clock is an exception, because it sets a time.
//!
//! A time is one word. Its range is that of ext4: from 1901 to 2446.

use extern4_sync::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use extern4_sync::seqcount::SeqCount;

use crate::acl_cache::AclSlots;
use crate::attr::{Attr, FileFlags, FileType, NamesAttr, Rdev, Timespec};
use crate::lock::{self, Latch, LatchGuard};
use crate::permission_cache::{PermBits, PermissionCache};

/// A flag in the word of the block size: a write has to check more than size and times. The inode
/// is no regular file, may have to lose set-id bits, or is immutable. No block is that large.
const GUARDED: u32 = 1 << 31;
/// The set-id bits, which a write may have to remove.
pub(crate) const SET_ID_BITS: u16 = 0o6000;

/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | `perm` | `publish_if`, under the writers' lock | all of these | as in `PermissionCache` |
/// | `seq`, `dir_seq` | `Writer`'s methods | `get`, `try_get`, `owner_with` | as in `SeqCount` |
/// | the other atomics | `Writer`'s methods | all of these | Relaxed, under the counts |
/// | size and times | `Writer`'s methods | `is_written` | Relaxed: see there |
#[repr(C)]
pub(crate) struct InodeAttrs {
    pub(crate) perm: PermissionCache,
    /// Owner, and group.
    ids: AtomicU64,
    ino: u64,
    generation: u32,
    project: AtomicU32,
    /// Odd while any attribute of a file changes. Of a directory, odd while owner and group change,
    /// or an ACL with the word that says whether there is one.
    seq: SeqCount,
    /// The number of links of a file that is no directory.
    nlink: AtomicU32,
    pub(crate) acls: AclSlots,
    _apart: u64,
    /// Odd while any attribute of a directory changes.
    dir_seq: SeqCount,
    /// The number of links of a directory; the number of a device.
    dir_nlink: AtomicU32,
    size: AtomicU64,
    blocks: AtomicU64,
    /// Block size with [`GUARDED`], and flags.
    flags: AtomicU64,
    btime: AtomicU64,
    atime: AtomicU64,
    mtime: AtomicU64,
    ctime: AtomicU64,
    writers: Latch<()>,
    /// Whether it was made without a name and may get one.
    pub(crate) linkable: AtomicBool,
    /// Whether it is counted among the inodes in use that have no links.
    pub(crate) unlinked: AtomicBool,
}

/// The bytes of the first line, and the bytes of both lines.
pub(crate) const STEADY_BYTES: usize = std::mem::offset_of!(InodeAttrs, dir_seq);
pub(crate) const COPIED_BYTES: usize = std::mem::offset_of!(InodeAttrs, writers);

/// The right to change the attributes.
pub(crate) struct Writer<'a> {
    cell: &'a InodeAttrs,
    _writers: LatchGuard<'a, ()>,
}

impl InodeAttrs {
    pub(crate) fn new(attr: &Attr, perm: PermBits) -> Self {
        let Words {
            ids,
            size,
            blocks,
            flags,
            btime,
            atime,
            mtime,
            ctime,
        } = encode(attr.kind, attr);
        let dir_nlink = if attr.kind.is_dir() {
            attr.nlink
        } else {
            rdev_word(attr.rdev)
        };
        Self {
            perm: PermissionCache::new(perm),
            ids: AtomicU64::new(ids),
            ino: attr.ino,
            generation: attr.generation,
            project: AtomicU32::new(attr.project),
            seq: SeqCount::new(),
            nlink: AtomicU32::new(if attr.kind.is_dir() { 0 } else { attr.nlink }),
            acls: AclSlots::default(),
            _apart: 0,
            dir_seq: SeqCount::new(),
            dir_nlink: AtomicU32::new(dir_nlink),
            size: AtomicU64::new(size),
            blocks: AtomicU64::new(blocks),
            flags: AtomicU64::new(flags),
            btime: AtomicU64::new(btime),
            atime: AtomicU64::new(atime),
            mtime: AtomicU64::new(mtime),
            ctime: AtomicU64::new(ctime),
            writers: Latch::new(()),
            linkable: AtomicBool::new(false),
            unlinked: AtomicBool::new(false),
        }
    }

    pub(crate) fn ino(&self) -> u64 {
        self.ino
    }

    #[inline]
    pub(crate) fn kind(&self) -> FileType {
        self.perm.load().kind()
    }

    #[inline]
    pub(crate) fn is_dir(&self) -> bool {
        self.perm.load().is_dir()
    }

    /// Returns the count of all changes.
    #[inline(always)]
    fn changes(&self) -> &SeqCount {
        if self.is_dir() {
            &self.dir_seq
        } else {
            &self.seq
        }
    }

    /// Returns the number of links, as it is stored.
    #[inline(always)]
    fn links(&self) -> &AtomicU32 {
        if self.is_dir() {
            &self.dir_nlink
        } else {
            &self.nlink
        }
    }

    /// Returns a consistent copy.
    pub(crate) fn get(&self) -> Attr {
        self.consistent(self.changes(), || self.copy()).decode()
    }

    /// Returns a consistent copy, if no writer stores meanwhile.
    #[inline(always)]
    pub(crate) fn try_get(&self) -> Option<Copied> {
        let changes = self.changes();
        let seq = changes.begin()?;
        let attr = self.copy();
        changes.validate(seq).then_some(attr)
    }

    /// Returns owner, group and permission bits, of one moment.
    pub(crate) fn owner(&self) -> (u32, u32, u16) {
        let (uid, gid, perm) = self.owner_with(|| self.perm.load());
        (uid, gid, perm.mode() & 0o7777)
    }

    /// Returns the number of links.
    pub(crate) fn nlink(&self) -> u32 {
        // Relaxed: a single word.
        self.links().load(Ordering::Relaxed)
    }

    /// Returns owner, group, and the value that `word` loads, of one moment. `word` loads a value
    /// that [`Writer::store`] changes with them, or a single word.
    #[inline]
    pub(crate) fn owner_with<T>(&self, word: impl Fn() -> T) -> (u32, u32, T) {
        let (ids, word) = self.consistent(&self.seq, || (load(&self.ids), word()));
        let (uid, gid) = halves(ids);
        (uid, gid, word)
    }

    /// Returns whether [`Writer::touch`] would have changed nothing at some moment of this call.
    #[inline]
    pub(crate) fn is_touched(&self, mode: u16, nlink: u32, ctime: Timespec) -> bool {
        let touched = || {
            (
                self.perm.load().mode() & 0o7777,
                self.nlink(),
                load(&self.ctime),
            )
        };
        self.changes().read(touched) == Some((mode & 0o7777, nlink, time_word(ctime)))
    }

    /// Returns whether, at some moment of this call, the inode was last changed at the time
    /// `ctime`.
    #[inline]
    pub(crate) fn is_changed_at(&self, ctime: Timespec) -> bool {
        load(&self.ctime) == time_word(ctime)
    }

    /// Returns whether a write up to byte `end` at time `now` changes no attribute. The inode must
    /// be a regular file, and the write must take no set-id bits off. Locks: `rwsem`, shared at
    /// least.
    ///
    /// This does not read the count, which is written when mode and links change. Size, flags and
    /// time of contents change under `rwsem` exclusive only, so all of them are of one moment. The
    /// time of the last change may be set meanwhile; it is then `now` or later, as if that change
    /// had come after the write.
    #[inline]
    pub(crate) fn is_written(&self, end: u64, now: Timespec) -> bool {
        let guarded = halves(load(&self.flags)).0 & GUARDED != 0;
        let now = time_word(now);
        !guarded && end <= load(&self.size) && load(&self.mtime) == now && load(&self.ctime) == now
    }

    pub(crate) fn lock(&self) -> Writer<'_> {
        Writer {
            cell: self,
            _writers: lock::latch(&self.writers),
        }
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

    /// Sets or clears [`GUARDED`] for this mode. Locks: the writers'.
    #[cold]
    fn guard(&self, mode: u16) {
        let (blksize, flags) = halves(load(&self.flags));
        let flags = FileFlags::from_bits_retain(flags);
        set(
            &self.flags,
            flags_word(blksize & !GUARDED, self.kind(), mode, flags),
        );
    }

    #[inline(always)]
    fn copy(&self) -> Copied {
        Copied {
            perm: self.perm.load(),
            ino: self.ino,
            generation: self.generation,
            // Relaxed, all: as in `load`.
            project: self.project.load(Ordering::Relaxed),
            nlink: self.nlink.load(Ordering::Relaxed),
            dir_nlink: self.dir_nlink.load(Ordering::Relaxed),
            words: Words {
                ids: load(&self.ids),
                size: load(&self.size),
                blocks: load(&self.blocks),
                flags: load(&self.flags),
                btime: load(&self.btime),
                atime: load(&self.atime),
                mtime: load(&self.mtime),
                ctime: load(&self.ctime),
            },
        }
    }
}

#[inline]
fn load(word: &AtomicU64) -> u64 {
    // Relaxed: ordered by a count, or by the writers' lock.
    word.load(Ordering::Relaxed)
}

/// Stores a word, if that changes it. Locks: the writers'.
#[inline]
fn set(word: &AtomicU64, value: u64) {
    if load(word) != value {
        // Relaxed: as in `load`.
        word.store(value, Ordering::Relaxed);
    }
}

/// Stores half a word, if that changes it. Locks: the writers'.
#[inline]
fn set_half(word: &AtomicU32, value: u32) {
    // Relaxed, both: as in `load`.
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

/// The words of attributes, as they are stored.
#[derive(Clone, Copy)]
struct Words {
    ids: u64,
    size: u64,
    blocks: u64,
    flags: u64,
    btime: u64,
    atime: u64,
    mtime: u64,
    ctime: u64,
}

/// Attributes as they were read.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    perm: PermBits,
    ino: u64,
    generation: u32,
    project: u32,
    nlink: u32,
    dir_nlink: u32,
    words: Words,
}

impl Copied {
    #[inline(always)]
    pub(crate) fn decode(self) -> Attr {
        let Self {
            perm,
            ino,
            generation,
            project,
            nlink,
            dir_nlink,
            words,
        } = self;
        let kind = perm.kind();
        let ((uid, gid), (blksize, flags)) = (halves(words.ids), halves(words.flags));
        let (nlink, rdev) = if kind.is_dir() {
            (dir_nlink, 0)
        } else {
            (nlink, dir_nlink)
        };
        Attr {
            ino,
            uid,
            gid,
            nlink,
            generation,
            rdev: Rdev {
                major: rdev >> MINOR_BITS,
                minor: rdev & MAX_MINOR,
            },
            size: words.size,
            blocks: words.blocks,
            blksize: blksize & !GUARDED,
            flags: FileFlags::from_bits_retain(flags),
            atime: time_of(words.atime),
            mtime: time_of(words.mtime),
            ctime: time_of(words.ctime),
            btime: (words.btime != NO_TIME).then(|| time_of(words.btime)),
            project,
            mode: perm.mode() & 0o7777,
            kind,
        }
    }
}

impl Writer<'_> {
    pub(crate) fn get(&self) -> Attr {
        self.cell.copy().decode()
    }

    /// Stores all attributes but number, type, generation and device, together with the values that
    /// `publish` stores: the permission cache, and with `sets_acl` an ACL.
    pub(crate) fn store(&self, attr: &Attr, sets_acl: bool, publish: impl FnOnce()) {
        let cell = self.cell;
        let is_dir = cell.is_dir();
        let words = encode(cell.kind(), attr);
        let _section = cell.changes().write();
        let _owner =
            (is_dir && (sets_acl || words.ids != load(&cell.ids))).then(|| cell.seq.write());
        publish();
        set(&cell.ids, words.ids);
        set_half(&cell.project, attr.project);
        set_half(cell.links(), attr.nlink);
        // A change of extended attributes stores nothing to the second line.
        set(&cell.size, words.size);
        set(&cell.blocks, words.blocks);
        set(&cell.flags, words.flags);
        set(&cell.btime, words.btime);
        set(&cell.atime, words.atime);
        set(&cell.mtime, words.mtime);
        set(&cell.ctime, words.ctime);
    }

    /// Stores only mode, number of links and the time of the last change, together with the
    /// permission cache, which `publish` stores.
    pub(crate) fn touch(&self, mode: u16, nlink: u32, ctime: Timespec, publish: impl FnOnce()) {
        let cell = self.cell;
        let old = cell.perm.load().mode();
        let _section = cell.changes().write();
        publish();
        set_half(cell.links(), nlink);
        if (old ^ mode) & SET_ID_BITS != 0 {
            cell.guard(mode);
        }
        set(&cell.ctime, time_word(ctime));
    }

    /// Stores the attributes that change with the names in a directory.
    pub(crate) fn touch_names(&self, names: &NamesAttr) {
        let cell = self.cell;
        let _section = cell.changes().write();
        set_half(cell.links(), names.nlink);
        set(&cell.size, names.size);
        set(&cell.blocks, names.blocks);
        set(
            &cell.flags,
            pair(halves(load(&cell.flags)).0, names.flags.bits()),
        );
        set(&cell.mtime, time_word(names.mtime));
        set(&cell.ctime, time_word(names.ctime));
    }
}

fn encode(kind: FileType, attr: &Attr) -> Words {
    Words {
        ids: pair(attr.uid, attr.gid),
        size: attr.size,
        blocks: attr.blocks,
        flags: flags_word(attr.blksize, kind, attr.mode, attr.flags),
        btime: attr.btime.map_or(NO_TIME, time_word),
        atime: time_word(attr.atime),
        mtime: time_word(attr.mtime),
        ctime: time_word(attr.ctime),
    }
}

fn flags_word(blksize: u32, kind: FileType, mode: u16, flags: FileFlags) -> u64 {
    let guarded = kind != FileType::Regular
        || mode & SET_ID_BITS != 0
        || flags.contains(FileFlags::IMMUTABLE);
    pair(blksize | if guarded { GUARDED } else { 0 }, flags.bits())
}

/// The bits of nanoseconds in a word; the others count seconds from [`FIRST_SECOND`] on.
const NSEC_BITS: u32 = 30;
const FIRST_SECOND: i64 = -(1 << 31);
const SECONDS: i64 = 1 << 34;
/// No time. It has too many nanoseconds for one.
const NO_TIME: u64 = u64::MAX;

/// Returns the word for a time, or for the time in its range that is next to it.
#[inline(always)]
fn time_word(time: Timespec) -> u64 {
    let second = time.sec.wrapping_sub(FIRST_SECOND);
    if (0..SECONDS).contains(&second) {
        return second.cast_unsigned() << NSEC_BITS | u64::from(time.nsec);
    }
    far_time_word(time)
}

#[cold]
fn far_time_word(time: Timespec) -> u64 {
    const LAST: u64 = (SECONDS.cast_unsigned() - 1) << NSEC_BITS | 999_999_999;
    if time.sec < 0 { 0 } else { LAST }
}

#[inline(always)]
fn time_of(word: u64) -> Timespec {
    // OK: thirty bits.
    let nsec = word as u32 & ((1 << NSEC_BITS) - 1);
    Timespec {
        sec: (word >> NSEC_BITS).cast_signed() + FIRST_SECOND,
        nsec,
    }
}

const MINOR_BITS: u32 = 20;
const MAX_MINOR: u32 = (1 << MINOR_BITS) - 1;

/// Returns the number of a device in one word, as Linux keeps it: 12 bits and 20 bits.
fn rdev_word(rdev: Rdev) -> u32 {
    rdev.major << MINOR_BITS | rdev.minor & MAX_MINOR
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission_cache::AclState;
    use proptest::prelude::*;

    fn time() -> impl Strategy<Value = Timespec> {
        let seconds = FIRST_SECOND..FIRST_SECOND + SECONDS;
        (seconds, 0..1_000_000_000u32).prop_map(|(sec, nsec)| Timespec { sec, nsec })
    }

    /// An inode's attributes, with the permission cache of its mode.
    fn cell(attr: &Attr) -> InodeAttrs {
        InodeAttrs::new(attr, bits(attr))
    }

    fn bits(attr: &Attr) -> PermBits {
        PermBits::new(
            attr.kind.mode_bits() | attr.mode,
            attr.flags,
            AclState::None,
        )
    }

    /// Stores attributes as `Inode::set_attr` does.
    fn store(cell: &InodeAttrs, attr: &Attr) {
        let writer = cell.lock();
        let mode = cell.kind().mode_bits() | attr.mode;
        writer.store(attr, false, || {
            cell.perm
                .publish_if(&writer, |bits| Some(bits.with_mode(mode)))
        });
    }

    /// Touches an inode as `Inode::touch` does.
    fn touch(cell: &InodeAttrs, mode: u16, nlink: u32, ctime: Timespec) {
        let writer = cell.lock();
        let full = cell.kind().mode_bits() | mode;
        writer.touch(mode, nlink, ctime, || {
            cell.perm
                .publish_if(&writer, |bits| Some(bits.with_mode(full)));
        });
    }

    prop_compose! {
        fn attr()(
            (ino, size, blocks) in any::<(u64, u64, u64)>(),
            (mode, uid, gid, nlink) in (0..0o10000u16, any::<u32>(), any::<u32>(), any::<u32>()),
            (kind, major, minor) in (0..2usize, 0..1u32 << 12, 0..=MAX_MINOR),
            (blksize, flags, project) in any::<(u32, u32, u32)>(),
            (atime, mtime, ctime, btime) in (time(), time(), time(), prop::option::of(time())),
        ) -> Attr {
            let kind = [FileType::BlockDevice, FileType::Directory][kind];
            let rdev = if kind.is_dir() { Rdev::default() } else { Rdev { major, minor } };
            let flags = FileFlags::from_bits_retain(flags);
            let generation = 7;
            let blksize = blksize & !GUARDED;
            Attr {
                ino, generation, kind, mode, uid, gid, nlink, rdev, size, blocks, blksize, atime, mtime, ctime, btime,
                flags, project,
            }
        }
    }

    proptest! {
        #[test]
        fn stored_attributes_are_read_back(first in attr(), second in attr()) {
            let cell = cell(&first);
            prop_assert_eq!(cell.get(), first);
            let second = Attr { ino: first.ino, kind: first.kind, rdev: first.rdev, ..second };
            store(&cell, &second);
            prop_assert_eq!(cell.get(), second);
            prop_assert_eq!(cell.try_get().map(Copied::decode), Some(second));
            prop_assert_eq!(cell.owner(), (second.uid, second.gid, second.mode));
            touch(&cell, first.mode, first.nlink, first.ctime);
            let touched = Attr { mode: first.mode, nlink: first.nlink, ctime: first.ctime, ..second };
            prop_assert_eq!(cell.get(), touched);
            prop_assert!(cell.is_touched(first.mode, first.nlink, first.ctime));
            let later = Timespec { nsec: first.ctime.nsec ^ 1, ..first.ctime };
            let others = [(first.mode ^ 1, first.nlink, first.ctime), (first.mode, !first.nlink, first.ctime),
                (first.mode, first.nlink, later)];
            prop_assert!(!others.iter().any(|&(mode, nlink, ctime)| cell.is_touched(mode, nlink, ctime)));
            prop_assert!(cell.is_changed_at(first.ctime) && !cell.is_changed_at(later));
            let Attr { size, blocks, nlink, mtime, ctime, flags, .. } = second;
            touch(&cell, first.mode, first.nlink, first.ctime);
            let names = NamesAttr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags };
            cell.lock().touch_names(&names);
            let renamed =
                Attr { size: size ^ 1, blocks: blocks ^ 1, nlink, mtime: ctime, ctime: mtime, flags: !flags, ..touched };
            prop_assert_eq!(cell.get(), renamed);
        }

        #[test]
        fn a_second_write_in_a_tick_changes_no_attribute(attr in attr(), time in time()) {
            let flags = attr.flags - FileFlags::IMMUTABLE;
            let plain = Attr { kind: FileType::Regular, mode: attr.mode & 0o1777, flags, mtime: time, ctime: time, rdev: Rdev::default(), ..attr };
            let new = cell;
            let cell = new(&plain);
            prop_assert!(cell.is_written(plain.size, time));
            prop_assert_eq!(cell.is_written(plain.size.saturating_add(1), time), plain.size == u64::MAX);
            let other = Timespec { nsec: time.nsec ^ 1, ..time };
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
                prop_assert!(!new(other).is_written(plain.size, time), "{other:?}");
                let cell = new(&plain);
                store(&cell, other);
                // The kind stays as it is.
                prop_assert_eq!(cell.is_written(plain.size, time), other.kind != plain.kind, "stored: {:?}", other);
                prop_assert_eq!(cell.get(), Attr { kind: plain.kind, ..*other });
            }
            // `touch` sets the flag, too.
            for mode in [plain.mode | 0o4000, plain.mode | 0o6000, plain.mode] {
                touch(&cell, mode, plain.nlink, time);
                prop_assert_eq!(cell.is_written(plain.size, time), mode == plain.mode);
                prop_assert_eq!(cell.get(), Attr { mode, ..plain });
            }
        }
    }

    #[test]
    fn a_time_beyond_the_range_becomes_the_one_next_to_it() {
        let last = Timespec {
            sec: FIRST_SECOND + SECONDS - 1,
            nsec: 999_999_999,
        };
        for (sec, kept) in [
            (
                i64::MIN,
                Timespec {
                    sec: FIRST_SECOND,
                    nsec: 0,
                },
            ),
            (
                FIRST_SECOND - 1,
                Timespec {
                    sec: FIRST_SECOND,
                    nsec: 0,
                },
            ),
            (FIRST_SECOND + SECONDS, last),
            (i64::MAX, last),
        ] {
            assert_eq!(time_of(time_word(Timespec { sec, nsec: 5 })), kept);
        }
        assert!(time_word(last) < NO_TIME);
    }
}
