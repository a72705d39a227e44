//! The nodes that the kernel knows: their ids, and how often the server has reported each.
//!
//! A node id is the inode's number, so that a handle on a file (`name_to_handle_at`) means the same
//! file as long as there is one. Only the root's is fixed by the protocol: the root swaps numbers
//! with the inode that has this one. As long as the kernel knows a node, its inode stays in use,
//! and so its number cannot become another file's.
//!
//! `Server` owns the table. The handlers of `ops` find the file of each request here and count each
//! lookup that they report; FORGETs and the end of the mount take those counts back. If the kernel
//! knows more nodes than the limit, the table asks for the oldest to be forgotten (`prune`).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use extern4_sync::primitive::Mutex;
use extern4_vfs::{Errno, Location, Namespace, Result};

use crate::abi::ROOT_ID;
use crate::handles::Handle;
use crate::lock::lock;
use crate::prune::PruneQueue;

/// Power of two: the low bits of a node id choose the shard.
const SHARDS: usize = 64;
/// A greater value means no limit.
const MAX_LIMIT: usize = u32::MAX as usize;

/// Every node that the kernel may name.
pub(crate) struct Nodes {
    namespace: Arc<Namespace>,
    root: Location,
    /// Nodes of a shard that the kernel may know before the server asks it to forget some.
    limit: usize,
    /// Nodes that the server asks the kernel to forget.
    pub(crate) to_prune: PruneQueue,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    known: HashMap<u64, Node, BuildHasherDefault<Spread>>,
    /// Where there is a limit, node ids and the stamps of their nodes, those known longest first.
    /// The scan skips nodes that the kernel has forgotten since.
    oldest: VecDeque<(u64, u64)>,
    last_stamp: u64,
}

/// A hasher that spreads node ids, which come in runs. Only the owner of the volume chooses them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

struct Node {
    location: Location,
    /// Distinguishes the node from others that the id has stood for.
    stamp: u64,
    /// How often the server has reported the node to the kernel. The kernel counts these reports,
    /// too, and says how many of them it has forgotten.
    lookups: u64,
    /// The node as an open file, for requests that name none.
    file: Option<Arc<Handle>>,
}

impl Nodes {
    /// Creates the table for the root, which the kernel knows without a report, and about `limit`
    /// other nodes.
    pub(crate) fn new(namespace: &Arc<Namespace>, limit: usize) -> Self {
        let limit = limit.div_ceil(SHARDS);
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (namespace, root) = (Arc::clone(namespace), namespace.root());
        Self { namespace, root, limit, to_prune: PruneQueue::default(), shards }
    }

    /// Returns the node id of an inode number, and in the same way the number behind a node id.
    pub(crate) fn id(&self, ino: u64) -> u64 {
        match ino {
            _ if ino == self.root.ino() => ROOT_ID,
            ROOT_ID => self.root.ino(),
            _ => ino,
        }
    }

    fn shard(&self, id: u64) -> &Mutex<Shard> {
        let low = usize::try_from(id % SHARDS as u64).expect("a small number");
        &self.shards[low]
    }

    /// Returns the location of a node id. `ESTALE` for an id that the server has not reported.
    pub(crate) fn get(&self, id: u64) -> Result<Location> {
        if id == ROOT_ID {
            return Ok(self.root.clone());
        }
        let shard = lock(self.shard(id));
        shard.known.get(&id).map(|node| node.location.clone()).ok_or(Errno::ESTALE.into())
    }

    /// Returns the location of a node id that the kernel may have forgotten, as the ids in file
    /// handles may be. `ESTALE` where no file has the number any more. The kernel checks by the
    /// generation that it is still the file that was meant.
    pub(crate) fn find(&self, id: u64) -> Result<Location> {
        self.get(id).or_else(|_| self.namespace.locate_inode(self.id(id), None))
    }

    /// Returns the open file that a node was given last, if it `fits`.
    pub(crate) fn file(&self, id: u64, fits: impl FnOnce(&Handle) -> bool) -> Option<Arc<Handle>> {
        let shard = lock(self.shard(id));
        shard.known.get(&id)?.file.as_ref().filter(|file| fits(file)).cloned()
    }

    /// Gives a node an open file, which lasts as long as the kernel knows the node.
    pub(crate) fn set_file(&self, id: u64, file: &Arc<Handle>) {
        let before = {
            let mut shard = lock(self.shard(id));
            shard.known.get_mut(&id).and_then(|node| node.file.replace(Arc::clone(file)))
        };
        // This may close a file, so it happens without the lock.
        drop(before);
    }

    /// Counts a lookup that the caller is about to report to the kernel; returns the node id of the
    /// location.
    pub(crate) fn count_lookup(&self, location: Location) -> u64 {
        let id = self.id(location.ino());
        if id == ROOT_ID {
            return id;
        }
        let surplus = {
            let shard = &mut *lock(self.shard(id));
            match shard.known.entry(id) {
                // Any name of the file will do, and this one may be gone: the inode is the same.
                Entry::Occupied(mut known) => {
                    known.get_mut().lookups += 1;
                    return id;
                }
                Entry::Vacant(free) => {
                    shard.last_stamp += 1;
                    free.insert(Node { location, stamp: shard.last_stamp, lookups: 1, file: None });
                }
            }
            if self.limit >= MAX_LIMIT {
                return id;
            }
            shard.oldest.push_back((id, shard.last_stamp));
            shard.surplus(self.limit)
        };
        if surplus.iter().any(Option::is_some) {
            self.to_prune.push(surplus.into_iter().flatten());
        }
        id
    }

    /// Notes that the kernel has forgotten `times` of the lookups that the server has reported to
    /// it.
    pub(crate) fn forget(&self, id: u64, times: u64) {
        if id == ROOT_ID {
            return;
        }
        let forgotten = {
            let mut shard = lock(self.shard(id));
            let Entry::Occupied(mut node) = shard.known.entry(id) else { return };
            node.get_mut().lookups = node.get().lookups.saturating_sub(times);
            (node.get().lookups == 0).then(|| node.remove())
        };
        // This may be the last use of a file without a name, which is freed now, so it happens
        // without the lock.
        drop(forgotten);
    }

    /// Forgets everything: the kernel is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let nodes = std::mem::take(&mut *lock(shard));
            drop(nodes);
        }
    }
}

impl Shard {
    /// Returns the two nodes known longest, if more than `limit` are known. There are two for each
    /// new node, because the kernel keeps those in use. Both move to the end of the queue, and stay
    /// known until the kernel forgets them.
    fn surplus(&mut self, limit: usize) -> [Option<u64>; 2] {
        let known = &self.known;
        let is_known = |&(id, stamp): &(u64, u64)| known.get(&id).is_some_and(|node| node.stamp == stamp);
        if self.oldest.len() > 2 * known.len() + 64 {
            self.oldest.retain(is_known);
        }
        if known.len() <= limit {
            return [None; 2];
        }
        let oldest = &mut self.oldest;
        [(); 2].map(|()| {
            let first = std::iter::from_fn(|| oldest.pop_front()).find(is_known)?;
            oldest.push_back(first);
            Some(first.0)
        })
    }
}
