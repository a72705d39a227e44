//! What the kernel knows of the tree: node ids, and how often it has been told of each.
//!
//! A node id is the inode's number, so that a handle on a file (`name_to_handle_at`) means the same file as long as there is one. Only
//! the root's is fixed by the protocol: it changes places with whatever has that number. As long as the kernel knows a node, it
//! stays in use, and so its number cannot become another file's.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use extern4_sync::primitive::Mutex;
use extern4_vfs::{Errno, Location, Namespace, Result};

use crate::abi::ROOT_ID;
use crate::handles::Handle;
use crate::lock::lock;
use crate::surplus::Surplus;

/// Power of two: the low bits of a node id choose.
const SHARDS: usize = 64;
/// What is more is no limit.
const MAX_LIMIT: usize = u32::MAX as usize;

/// Every node that the kernel may name.
pub(crate) struct Nodes {
    namespace: Arc<Namespace>,
    root: Location,
    /// Nodes of a shard that the kernel may know before it is asked to forget some.
    limit: usize,
    /// Those that it is asked to forget.
    pub(crate) surplus: Surplus,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    known: HashMap<u64, Node, BuildHasherDefault<Spread>>,
    /// Where there is a limit, node ids and the stamps of their nodes, those that the kernel has known longest first. What it has
    /// forgotten since is skipped.
    oldest: VecDeque<(u64, u64)>,
    last_stamp: u64,
}

/// Spreads node ids, which come in runs. Nobody but the owner of the volume chooses them.
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
    /// Tells it from others that the id has stood for.
    stamp: u64,
    /// How often the kernel was told; it counts, too, and says how many of these it has forgotten.
    lookups: u64,
    /// It as an open file, for requests that name none.
    file: Option<Arc<Handle>>,
}

impl Nodes {
    /// The kernel knows the root without being told, and about `limit` others.
    pub(crate) fn new(namespace: &Arc<Namespace>, limit: usize) -> Self {
        let limit = limit.div_ceil(SHARDS);
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let (namespace, root) = (Arc::clone(namespace), namespace.root());
        Self { namespace, root, limit, surplus: Surplus::default(), shards }
    }

    /// The node id of an inode number, and in the same way the number behind a node id.
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

    /// What a node id stands for. `ESTALE` for one that the kernel was not told.
    pub(crate) fn get(&self, id: u64) -> Result<Location> {
        if id == ROOT_ID {
            return Ok(self.root.clone());
        }
        let shard = lock(self.shard(id));
        shard.known.get(&id).map(|node| node.location.clone()).ok_or(Errno::ESTALE.into())
    }

    /// The same for who may name nodes that the kernel has forgotten, as handles of files do: `ESTALE` where no file has the number
    /// any more. Whether it is still the file that was meant the kernel finds out by its generation.
    pub(crate) fn find(&self, id: u64) -> Result<Location> {
        self.get(id).or_else(|_| self.namespace.locate_inode(self.id(id), None))
    }

    /// The open file that a node has been given last, if it `fits`.
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
        // It closes a file: not under the lock.
        drop(before);
    }

    /// Notes that the kernel is going to be told of this place; gives the node id.
    pub(crate) fn tell(&self, location: Location) -> u64 {
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
            self.surplus.enter(surplus.into_iter().flatten());
        }
        id
    }

    /// Notes that the kernel has forgotten what it was told so many times.
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
        // Perhaps the last who used a file without a name, which goes now: not under the lock.
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
    /// Where more than `limit` are known, the two that have been for longest: more than come, for some are in use and stay. They are
    /// known until the kernel says otherwise, and the last to be asked for again.
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
