//! The nodes that the kernel knows: their ids, and how often the server has reported each.
//!
//! A node id is the inode's number, so that a handle on a file (`name_to_handle_at`) means the same
//! file as long as there is one. Only the root's is fixed by the protocol: the root swaps numbers
//! with the inode that has this one.
//!
//! A kernel may know millions of nodes, so the table has only a number for each: how often the
//! server has reported it. A request finds the file again by the inode's number, in the cache or on
//! the volume (`Namespace::locate_known_inode`). A directory is found at its place in the tree, any
//! other file without a name.
//!
//! No other file gets the number of a known node. Before a handler calls the VFS for a change that
//! may take a file's last name, it *pins* the file ([`Nodes::pin`]): the table then holds a
//! location of it, which keeps its inode in use. After the change, the table goes on holding a file
//! without links until the kernel has forgotten it. So a request finds a location of the file here,
//! or it finds the inode by its number. If it finds neither, the file has just been pinned and has
//! lost its last name, and the request looks here once more.
//!
//! `Server` owns the table. The handlers of `ops` find the file of each request here and count each
//! lookup that they report; FORGETs and the end of the mount take those counts back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use extern4_sync::cache_budget::CacheAccount;
use extern4_sync::primitive::Mutex;
use extern4_vfs::{Errno, Location, Namespace, Result};

use crate::abi::ROOT_ID;
use crate::handles::Handle;
use crate::lock::lock;
use crate::node_files::NodeFiles;

/// Power of two: the low bits of a node id choose the shard.
const SHARDS: usize = 64;
/// The most bytes of a known node: an entry of the table takes 17, and the table is half empty when
/// it has just grown.
const NODE_BYTES: u64 = 40;
/// About the bytes of an open file that a node keeps, with its inode.
const FILE_BYTES: u64 = 2048;
/// The part of the cache budget that the open files of nodes may take.
const FILES_PART: u64 = 8;

/// A map by node id.
pub(crate) type NodeMap<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;

/// Every node that the kernel may name.
pub(crate) struct Nodes {
    namespace: Arc<Namespace>,
    root: Location,
    /// The memory of the table, a part of the budget of the volume's caches.
    account: CacheAccount,
    shards: Box<[Mutex<Shard>]>,
}

struct Shard {
    /// How often the server has reported each node to the kernel. The kernel counts these reports,
    /// too, and says how many of them it has forgotten.
    lookups: NodeMap<u64>,
    /// Files that are pinned, and known ones that have to be held.
    held: NodeMap<Held>,
    /// The nodes as open files, for requests that name none.
    files: NodeFiles,
}

struct Held {
    location: Location,
    /// The number of handlers that have pinned it.
    pins: usize,
}

/// A file that may lose its last name, and stays in use meanwhile. If the kernel knows the file and
/// it has no links when this is dropped, it stays in use until the kernel has forgotten it.
pub(crate) struct Pin<'a> {
    nodes: &'a Nodes,
    id: u64,
}

/// A hasher that spreads node ids, which come in runs. Only the owner of the volume chooses them.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Nodes {
    /// Creates the table for the root, which the kernel knows without a report.
    pub(crate) fn new(namespace: &Arc<Namespace>) -> Self {
        let (namespace, root) = (Arc::clone(namespace), namespace.root());
        let budget = namespace.superblock().cache_budget();
        let account = CacheAccount::new(budget);
        let max_files = budget.limit() / FILES_PART / FILE_BYTES / SHARDS as u64;
        let max_files = usize::try_from(max_files).unwrap_or(usize::MAX).max(1);
        let shards = (0..SHARDS)
            .map(|_| Mutex::new(Shard::new(max_files)))
            .collect();
        Self {
            root,
            account,
            shards,
            namespace,
        }
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
        if let Some(held) = self.held(id)? {
            return Ok(held);
        }
        let located = self.namespace.locate_known_inode(self.id(id));
        located.or_else(|error| match error.errno() {
            // It has lost its last name since then.
            Errno::ESTALE => self.held(id)?.ok_or(error),
            _ => Err(error),
        })
    }

    /// Returns the location of a node if the table holds one. `ESTALE` for an unknown node.
    fn held(&self, id: u64) -> Result<Option<Location>> {
        let shard = lock(self.shard(id));
        if !shard.lookups.contains_key(&id) {
            return Err(Errno::ESTALE.into());
        }
        Ok(shard.held.get(&id).map(|held| held.location.clone()))
    }

    /// Returns the location of a node id that the kernel may have forgotten, as the ids in file
    /// handles may be. `ESTALE` where no file has the number any more. The kernel checks by the
    /// generation that it is still the file that was meant.
    pub(crate) fn find(&self, id: u64) -> Result<Location> {
        self.get(id)
            .or_else(|_| self.namespace.locate_inode(self.id(id), None))
    }

    /// Keeps a file in use that may lose its last name now.
    pub(crate) fn pin(&self, location: Location) -> Pin<'_> {
        let id = self.id(location.ino());
        match lock(self.shard(id)).held.entry(id) {
            Entry::Occupied(mut held) => held.get_mut().pins += 1,
            Entry::Vacant(free) => {
                free.insert(Held { location, pins: 1 });
            }
        }
        Pin { nodes: self, id }
    }

    /// Returns the open file that a node was given last, if it `fits`.
    pub(crate) fn file(&self, id: u64, fits: impl FnOnce(&Handle) -> bool) -> Option<Arc<Handle>> {
        lock(self.shard(id))
            .files
            .get(id)
            .filter(|file| fits(file))
            .cloned()
    }

    /// Gives a node an open file. It lasts until the kernel has forgotten the node, or until there
    /// are too many of these.
    pub(crate) fn set_file(&self, id: u64, file: &Arc<Handle>) {
        let replaced = {
            let mut shard = lock(self.shard(id));
            if !shard.lookups.contains_key(&id) {
                return;
            }
            shard.files.insert(id, Arc::clone(file))
        };
        // This may close a file, so it happens without the lock.
        self.close(replaced);
    }

    /// Counts a lookup that the caller is about to report to the kernel; returns the node id of the
    /// location.
    pub(crate) fn count_lookup(&self, location: Location) -> u64 {
        let id = self.id(location.ino());
        if id == ROOT_ID {
            return id;
        }
        let mut shard = lock(self.shard(id));
        let lookups = shard.lookups.entry(id).or_default();
        *lookups += 1;
        if *lookups == 1 {
            self.account.add(NODE_BYTES);
        }
        // If it loses its last name after this, it is pinned now, and stays held.
        if is_held(&location)
            && let Entry::Vacant(free) = shard.held.entry(id)
        {
            free.insert(Held { location, pins: 0 });
        }
        id
    }

    /// Notes that the kernel has forgotten `times` of the lookups that the server has reported to
    /// it.
    pub(crate) fn forget(&self, id: u64, times: u64) {
        let forgotten = {
            let mut shard = lock(self.shard(id));
            let Entry::Occupied(mut lookups) = shard.lookups.entry(id) else {
                return;
            };
            *lookups.get_mut() = lookups.get().saturating_sub(times);
            if *lookups.get() > 0 {
                return;
            }
            lookups.remove();
            self.account.sub(NODE_BYTES);
            shard.give_memory_back();
            (shard.files.remove(id), shard.unhold(id))
        };
        // This may be the last use of a file without a name, which is freed now, so it happens
        // without the lock.
        let (file, location) = forgotten;
        drop(location);
        self.close(file);
    }

    /// Closes an open file of a node. Its name may have left the caches before the file itself
    /// could.
    fn close(&self, file: Option<Arc<Handle>>) {
        if let Some(file) = file {
            let ino = file.file.location().ino();
            drop(file);
            self.namespace.superblock().trim_inode(ino);
        }
    }

    /// Forgets everything: the kernel is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let empty = Shard::new(0);
            let known = std::mem::replace(&mut *lock(shard), empty);
            self.account.sub(known.lookups.len() as u64 * NODE_BYTES);
            drop(known);
        }
    }
}

impl Shard {
    fn new(max_files: usize) -> Self {
        Self {
            lookups: NodeMap::default(),
            held: NodeMap::default(),
            files: NodeFiles::new(max_files),
        }
    }

    /// Takes the location of a file out of the table, unless the file is pinned, or is known and
    /// has to be held.
    fn unhold(&mut self, id: u64) -> Option<Location> {
        let Entry::Occupied(held) = self.held.entry(id) else {
            return None;
        };
        let is_known = self.lookups.contains_key(&id);
        let stays = held.get().pins > 0 || is_known && is_held(&held.get().location);
        (!stays).then(|| held.remove().location)
    }

    /// Shrinks a table that has become far too large.
    fn give_memory_back(&mut self) {
        let known = self.lookups.len();
        if self.lookups.capacity() > 8 * known + 64 {
            self.lookups.shrink_to(2 * known);
        }
    }
}

/// Returns whether the table has to hold a known file. Without links, its number would become
/// another file's. A misplaced file must not be opened without its name.
fn is_held(location: &Location) -> bool {
    location.inode().nlink() == 0 || location.is_misplaced()
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let location = {
            let mut shard = lock(self.nodes.shard(self.id));
            if let Some(held) = shard.held.get_mut(&self.id) {
                held.pins -= 1;
            }
            shard.unhold(self.id)
        };
        // This may free a file, so it happens without the lock.
        drop(location);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_node_takes_no_more_than_is_counted() {
        let mut lookups = NodeMap::<u64>::default();
        for id in 1..=200_000 {
            lookups.insert(id, 1);
            // Seven in eight places of a table are used at most. Each has an entry and a byte.
            let places = lookups.capacity() as u64 * 8 / 7;
            assert!(
                id < 64 || places * (size_of::<(u64, u64)>() as u64 + 1) <= NODE_BYTES * id,
                "{id}"
            );
        }
    }
}
