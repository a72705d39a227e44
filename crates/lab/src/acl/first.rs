//! The first who asks for the ACL of an inode.

use std::hint::black_box;
use std::sync::Arc;

use extern4_vfs::permission::lab;
use extern4_vfs::{Access, AclKind, Inode};

use super::{Before, Mechanism, New, Seed, Slot};
use crate::crowd;
use crate::plan::{Plan, Side};
use crate::row::Sample;
use crate::volume::{PATH, Production, Volume, judge};

/// Questions between two looks at whether the time is up.
const BATCH: u64 = 64;

pub(super) fn take(side: Side, production: &Production, plan: &Plan, threads: usize) -> Sample {
    match side {
        Side::Before => ask::<Before>(production, plan, threads),
        Side::Seed => ask::<Seed>(production, plan, threads),
        Side::New => ask::<New>(production, plan, threads),
    }
}

fn ask<M: Mechanism>(production: &Production, plan: &Plan, threads: usize) -> Sample {
    let ino = production.stat(PATH).expect("it is there").ino;
    let batch = |_: &mut ()| {
        for _ in 0..BATCH {
            assert!(black_box(M::first(production, &read(production, ino))), "the user may read");
        }
        BATCH
    };
    let done = crowd::work(plan, 1, threads, |_| (), batch);
    Sample::of(&done)
}

/// An inode as the file system knows it.
pub(super) fn read(production: &Production, ino: u64) -> Inode {
    Inode::detached(production.superblock().fs().read_inode(ino).expect("it is there"))
}

/// What a model's slot says, which nobody has asked yet.
pub(super) fn by_slot<S: Slot>(production: &Production, inode: &Inode) -> bool {
    let (slot, fs) = (S::default(), production.superblock().fs());
    let attr = inode.attr();
    let ask = || fs.get_acl(inode, AclKind::Access).expect("memory can be read").map(Arc::new);
    judge(production.user.cred(), (attr.uid, attr.gid, attr.mode), Access::READ, || slot.get(ask))
}

/// What production says.
pub(super) fn by_word(production: &Production, inode: &Inode) -> bool {
    lab::check(production.superblock(), production.user.cred(), inode, Access::READ).is_ok()
}
