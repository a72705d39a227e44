//! Nodes that the kernel is asked to forget, because it knows more than there is to be memory for.
//!
//! Each that it knows keeps an inode and a name in memory. Whoever tells it of a node beyond the limit enters the ones that it has known
//! longest here, and a thread asks for them in batches (`FUSE_NOTIFY_PRUNE`). It forgets those that nobody uses, and says so as it
//! always does. The thread does nothing else: to forget a file, the kernel may first write what is changed of it, and wait for that.

use extern4_sync::primitive::{Condvar, Mutex};

use crate::lock::lock;

/// Node ids that are worth a call.
const BATCH: usize = 256;

/// Nodes to be forgotten.
#[derive(Default)]
pub(crate) struct Surplus {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    ids: Vec<u64>,
    /// The mount has gone.
    ended: bool,
}

impl Surplus {
    /// Has the kernel asked to forget these.
    pub(crate) fn enter(&self, ids: impl IntoIterator<Item = u64>) {
        let mut queue = lock(&self.queue);
        queue.ids.extend(ids);
        if queue.ids.len() >= BATCH {
            self.more.notify_one();
        }
    }

    /// Lets [`each_batch`](Self::each_batch) return.
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.more.notify_one();
    }

    /// Calls `forget` with node ids, as they come, until the end.
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
