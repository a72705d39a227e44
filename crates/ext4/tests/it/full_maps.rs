//! Maps that grow on volumes that are full: what is set aside before a change is enough for every
//! node that the change adds. Otherwise it would meet the full volume half way, and no part of the
//! volume could be changed any more.

use extern4_testkit::image::{ImageSpec, Step};
use extern4_vfs::*;

use crate::memory::{self, Volume};
use crate::model::{LOG_CONTENTS, Random, data, open};

const BLOCK: u64 = 1024;
/// Extents that fit into a leaf.
const FULL_LEAF: u64 = 84;
const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

impl Volume {
    fn file(&self, path: &str) -> OpenFile {
        open(
            &self.session,
            path,
            OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )
        .expect(path)
    }

    /// Writes `blocks` blocks at block `at` of a file.
    fn write(&self, file: &OpenFile, at: u64, blocks: u64) {
        let len = (blocks * BLOCK) as usize;
        assert_eq!(
            file.write_at(&data(at, len), at * BLOCK)
                .expect("there is room"),
            len
        );
    }

    /// Makes files of one block, no two of which are adjacent.
    fn make_pads(&self, count: u64) {
        let between = self.file("/between");
        for at in 0..count {
            let pad = self.file(&format!("/pad{at}"));
            pad.fallocate(FallocateMode::empty(), 0, BLOCK)
                .expect("there is room");
            between
                .fallocate(FallocateMode::empty(), at * BLOCK, BLOCK)
                .expect("there is room");
        }
    }

    /// Takes all blocks that are free.
    fn fill(&self) {
        let big = self.file("/big");
        let mut at = 0;
        while self.free() > 0 {
            for len in [256 * BLOCK, BLOCK] {
                while let Ok(written) = big.write_at(&data(0, len as usize), at) {
                    at += written as u64;
                }
            }
            self.sync();
        }
    }

    /// Gives back pads, so that as many blocks are free.
    fn free_pads(&self, count: u64) {
        (0..count).for_each(|at| self.session.unlink(format!("/pad{at}")).expect("a pad"));
        self.sync();
        assert_eq!(self.free(), count);
    }

    /// Checks that the operation was done or had no room, and that the volume can be changed as
    /// before.
    fn judge(self, result: Result<()>) {
        self.judge_unlike(result, Errno::ENOSPC);
        memory::fsck(self.what, &self.device);
    }

    fn judge_unlike(&self, result: Result<()>, answer: Errno) {
        if let Err(error) = result {
            assert_eq!(
                error.errno(),
                answer,
                "{}: {error:?} {:?}",
                self.what,
                error.cause()
            );
        }
        self.session
            .chmod("/big", 0o600, LookupFlags::FOLLOW)
            .expect("the volume can be changed");
        self.fs.close().expect("close");
    }
}

fn no_journal(name: &'static str) -> ImageSpec {
    ImageSpec::new(
        name,
        6 << 20,
        &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"],
    )
}

/// The first run goes into the leaf that has been split for it, and fills that again.
#[test]
fn a_hole_in_a_full_leaf_is_filled_in_pieces() {
    for allocate in [false, true] {
        let Some(volume) = Volume::new(&no_journal("full-leaf")) else {
            return;
        };
        let file = volume.file("/file");
        (0..FULL_LEAF).for_each(|at| volume.write(&file, at * 4, 1));
        volume.make_pads(4);
        volume.fill();
        volume.free_pads(3);
        let result = if !allocate {
            file.write_at(&data(0, 2 * BLOCK as usize), BLOCK).map(drop)
        } else {
            file.fallocate(FallocateMode::empty(), BLOCK, 2 * BLOCK)
        };
        assert!(
            result.is_ok(),
            "two blocks, and one for the new leaf, are enough: {result:?}"
        );
        drop(file);
        volume.judge(result);
    }
}

/// Both leaves are split, and their parent, too, has room for one more only.
#[test]
fn zeroes_where_two_full_leaves_meet() {
    let Some(volume) = Volume::new(&no_journal("full-leaves")) else {
        return;
    };
    // The writes split the map at every hole while there is room, so that punching the holes needs
    // no new node.
    let comb = volume.file("/comb");
    let holes = 2 * FULL_LEAF + 20;
    comb.fallocate(FallocateMode::empty(), 0, holes * 4 * BLOCK)
        .expect("there is room");
    (0..holes).for_each(|at| volume.write(&comb, at * 4, 2));
    volume.make_pads(4);
    volume.fill();
    (0..holes).for_each(|at| {
        comb.fallocate(PUNCH, (at * 4 + 2) * BLOCK, 2 * BLOCK)
            .expect("a hole")
    });
    volume.sync();
    let file = volume.file("/file");
    (0..2 * FULL_LEAF + 6).for_each(|at| volume.write(&file, at * 2, 2));
    volume.fill();
    volume.free_pads(2);
    let result = file.fallocate(
        FallocateMode::ZERO_RANGE,
        (2 * FULL_LEAF - 1) * BLOCK,
        2 * BLOCK,
    );
    drop((comb, file));
    volume.judge(result);
}

/// One change's part of the hole ends in the middle of an extent, which continues after the hole.
#[test]
fn a_hole_in_a_long_extent_of_a_full_leaf() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"];
    let spec = ImageSpec::new("full-long", 8 << 20, mke2fs).then(LOG_CONTENTS);
    let Some(volume) = Volume::new(&spec) else {
        return;
    };
    let file = volume.file("/file");
    file.fallocate(FallocateMode::empty(), 1000 * BLOCK, 3000 * BLOCK)
        .expect("there is room");
    (0..FULL_LEAF - 1).for_each(|at| volume.write(&file, at * 4, 1));
    volume.fill();
    let result = file.fallocate(PUNCH, 999 * BLOCK, 2001 * BLOCK);
    drop(file);
    volume.judge(result);
}

/// `i_blocks` of this volume counts 2^32 sectors, and the file has most of them already.
#[test]
fn a_write_that_i_blocks_cannot_count_changes_nothing() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-m",
        "0",
        "-O",
        "^huge_file,^has_journal,^metadata_csum",
    ];
    let spec = ImageSpec::new("full-i-blocks", 100 << 20, mke2fs).then(&[Step::Debugfs(
        "write /dev/null big\nsif big blocks 4294887295\n",
    )]);
    let Some(volume) = Volume::new(&spec) else {
        return;
    };
    let file = volume.file("/big");
    let free = volume.free();
    let result = file.fallocate(FallocateMode::empty(), 0, 60_000 * BLOCK);
    assert!(result.is_err(), "40,000 blocks can be counted");
    drop(file);
    assert!(volume.free() < free, "some of them were allocated");
    volume.judge_unlike(result, Errno::EFBIG);
}

/// A change of a file.
type Tried<'a> = &'a dyn Fn(&OpenFile) -> Result<()>;

/// A file of four unwritten extents, which fill its inode, and as many sectors as can be counted: a
/// fifth takes a block more.
#[test]
fn a_cut_that_i_blocks_cannot_count_changes_nothing() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-m",
        "0",
        "-O",
        "^huge_file,^has_journal,^metadata_csum",
    ];
    let spec = ImageSpec::new("cut-i-blocks", 16 << 20, mke2fs).then(&[Step::Debugfs(
        "write /dev/null big\nfallocate big 0 7\nfallocate big 20 27\nfallocate big 40 47\nfallocate big 60 67\n\
         sif big size 100000\nsif big blocks 4294967294\n",
    )]);
    let write = |file: &OpenFile| file.write_at(&[7; BLOCK as usize], 4 * BLOCK).map(drop);
    let insert = |file: &OpenFile| file.fallocate(FallocateMode::INSERT_RANGE, 4 * BLOCK, BLOCK);
    let punch = |file: &OpenFile| file.fallocate(PUNCH, 4 * BLOCK, BLOCK);
    let cases: [(Tried<'_>, bool); 3] = [(&write, false), (&insert, false), (&punch, true)];
    for (change, can_be) in cases {
        let Some(volume) = Volume::new(&spec) else {
            return;
        };
        let file = volume.file("/big");
        let result = change(&file);
        assert_eq!(result.is_ok(), can_be, "{result:?}");
        assert_eq!(
            volume
                .session
                .stat("/big", LookupFlags::FOLLOW)
                .expect("it is there")
                .size,
            100_000
        );
        drop(file);
        volume.judge_unlike(result, Errno::EFBIG);
    }
}

/// One of a few files, or what it is about to be.
fn at_random(volume: &Volume, random: &mut Random) -> Result<()> {
    let path = format!("/{}", random.below(4));
    if random.one_in(60) {
        return volume
            .session
            .truncate(&path, random.below(400) * BLOCK, LookupFlags::FOLLOW);
    }
    let file = volume.file(&path);
    let from = random.below(2000) * BLOCK;
    let len = (1 + random.below(12)) * BLOCK;
    let mode = match random.below(10) {
        0..=3 => return file.write_at(&data(from, len as usize), from).map(drop),
        4 | 5 => FallocateMode::empty(),
        6 | 7 => PUNCH,
        8 => FallocateMode::ZERO_RANGE,
        _ => *random.pick(&[FallocateMode::COLLAPSE_RANGE, FallocateMode::INSERT_RANGE]),
    };
    file.fallocate(mode, from, len)
}

fn at_random_on(spec: &ImageSpec, seed: u64) {
    let Some(volume) = Volume::new(spec) else {
        return;
    };
    let random = &mut Random::new(seed);
    (0..4).for_each(|at| drop(volume.file(&format!("/{at}"))));
    // So that what is free is in pieces, and the files do not all fit.
    volume
        .file("/big")
        .fallocate(FallocateMode::empty(), 0, volume.free() / 2 * BLOCK)
        .expect("there is room");
    for step in 0..memory::number("EXTERN4_FULL_MAPS", 4000) {
        if let Err(error) = at_random(&volume, random) {
            let known = matches!(error.errno(), Errno::ENOSPC | Errno::EINVAL);
            assert!(
                known,
                "{}, seed {seed}, step {step}: {error:?} {:?}",
                spec.name,
                error.cause()
            );
        }
        if random.one_in(100) {
            volume.sync();
        }
    }
    volume.judge(Ok(()));
}

#[test]
fn maps_grow_at_random() {
    let journal = &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"];
    for seed in 1..=4 {
        at_random_on(&no_journal("full-random"), seed);
        at_random_on(
            &ImageSpec::new("full-random-journal", 4 << 20, journal),
            seed,
        );
        at_random_on(
            &ImageSpec::new("full-random-contents", 4 << 20, journal).then(LOG_CONTENTS),
            seed,
        );
    }
}
