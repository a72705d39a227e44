//! The workload of calls without ACLs, after the first rows of lmbench, for the chapter on ACLs.
//!
//! `acl` measures it on each side. It is a control: no side should be slower than another here.

use std::hint::black_box;

use extern4_vfs::{LookupFlags, OpenFile, OpenFlags};

use super::NULL_CALL;
use crate::plan::Plan;
use crate::row::Sample;
use crate::volume::{PATH, Production};

/// Calls between two checks of whether the time is up.
const BATCH: u64 = 256;

pub(super) fn take(production: &Production, plan: &Plan, workload: &str, threads: usize) -> Sample {
    production
        .root
        .truncate(PATH, 1, LookupFlags::FOLLOW)
        .expect("there is room for a byte");
    let open = |_| {
        production
            .user
            .open(PATH, OpenFlags::READ)
            .expect("the user may read")
    };
    let batch = |file: &mut OpenFile| {
        for _ in 0..BATCH {
            if workload == NULL_CALL {
                black_box(black_box(&production.user).cred().uid());
            } else {
                let read = file
                    .read_at(black_box(&mut [0]), 0)
                    .expect("memory can be read");
                assert_eq!(read, 1, "a byte");
            }
        }
        BATCH
    };
    let done = plan.work(1, threads, open, batch);
    Sample::of(&done)
}
