//! The workload of first questions, for the chapter on ACLs: the first check of an inode.
//!
//! Each repetition reads inodes afresh, so their ACLs have not been read. `acl` measures how long a
//! side takes to learn that there is none; the tests check that the answer is right.

use std::hint::black_box;

use extern4_vfs::lab;
use extern4_vfs::{Access, Inode};

use crate::plan::Plan;
use crate::row::Sample;
use crate::volume::{PATH, Production};

/// Questions between two checks of whether the time is up.
const BATCH: u64 = 64;

pub(super) fn take(volume: &Production, plan: &Plan, threads: usize) -> Sample {
    let ino = volume.stat(PATH).expect("it is there").ino;
    let batch = |_: &mut ()| {
        for _ in 0..BATCH {
            assert!(
                black_box(may_read(volume, &read(volume, ino))),
                "the user may read"
            );
        }
        BATCH
    };
    let done = plan.work(1, threads, |_| (), batch);
    Sample::of(&done)
}

/// Returns an inode as read from the file system.
pub(super) fn read(volume: &Production, ino: u64) -> Inode {
    Inode::detached(
        volume
            .superblock()
            .fs()
            .read_inode(ino)
            .expect("it is there"),
    )
}

/// Returns whether the user may read the inode.
pub(super) fn may_read(volume: &Production, inode: &Inode) -> bool {
    lab::check(volume.superblock(), volume.user.cred(), inode, Access::READ).is_ok()
}
