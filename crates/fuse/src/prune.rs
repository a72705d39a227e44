//! Nodes that the server asks the kernel to forget, because the kernel knows more than the limit on
//! memory allows.
//!
//! Each known node keeps an inode and a name in memory. A thread that reports a node beyond the
//! limit to the kernel pushes the nodes known longest. Another thread then asks the kernel to
//! forget these, in batches (`FUSE_NOTIFY_PRUNE`). The kernel forgets the unused ones among them,
//! and sends FORGETs as it always does.
//!
//! The second thread does nothing else: to forget a file, the kernel may first write its changed
//! data, and wait for that.
//!
//! `nodes` pushes, and the thread that `transport` starts takes the batches. The limit is a target:
//! in use, the kernel may know more nodes than it.

use extern4_sync::primitive::{Condvar, Mutex};

use crate::lock::lock;

/// The number of node ids that are worth a call.
const BATCH: usize = 256;

/// The queue of nodes to be forgotten.
#[derive(Default)]
pub(crate) struct PruneQueue {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    ids: Vec<u64>,
    /// The mount has gone.
    ended: bool,
}

impl PruneQueue {
    /// Adds nodes that the kernel is to forget.
    pub(crate) fn push(&self, ids: impl IntoIterator<Item = u64>) {
        let mut queue = lock(&self.queue);
        queue.ids.extend(ids);
        if queue.ids.len() >= BATCH {
            self.more.notify_one();
        }
    }

    /// Makes [`each_batch`](Self::each_batch) return.
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.more.notify_one();
    }

    /// Calls `forget` with batches of node ids, as they come, until the end.
    pub(crate) fn each_batch(&self, mut forget: impl FnMut(&[u64])) {
        loop {
            let mut queue = lock(&self.queue);
            while queue.ids.len() < BATCH && !queue.ended {
                queue = self.more.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if queue.ended {
                return;
            }
            let ids = std::mem::take(&mut queue.ids);
            drop(queue);
            ids.chunks(BATCH).for_each(&mut forget);
        }
    }
}
