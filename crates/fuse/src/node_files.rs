//! Open files of nodes, for requests that name none: by default, the kernel opens files without the
//! server, and does not say when it closes them.
//!
//! The first read or write of a node opens it, and `nodes` keeps the open file here, so that later
//! ones need not open it again. Above the limit, an insertion closes the file that the hand of a
//! clock comes to first, except those used since the hand passed them (second chance).

use std::sync::Arc;

use crate::handles::Handle;
use crate::nodes::NodeMap;

/// Open files, one a node at most.
pub(crate) struct NodeFiles {
    limit: usize,
    /// The position of each node's file.
    index: NodeMap<usize>,
    files: Vec<NodeFile>,
    /// The position where the search for a file to close begins.
    hand: usize,
}

struct NodeFile {
    id: u64,
    handle: Arc<Handle>,
    /// Whether a request has used it since the hand passed it.
    used: bool,
}

impl NodeFiles {
    /// Returns an empty collection that keeps at most `limit` files.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            index: NodeMap::default(),
            files: Vec::new(),
            hand: 0,
        }
    }

    /// Returns the open file of a node.
    pub(crate) fn get(&mut self, id: u64) -> Option<&Arc<Handle>> {
        let file = &mut self.files[*self.index.get(&id)?];
        file.used = true;
        Some(&file.handle)
    }

    /// Gives a node an open file; returns a file that has to be closed.
    pub(crate) fn insert(&mut self, id: u64, handle: Arc<Handle>) -> Option<Arc<Handle>> {
        let new = NodeFile {
            id,
            handle,
            used: false,
        };
        let position = match self.index.get(&id) {
            Some(position) => *position,
            None if self.files.len() < self.limit => {
                self.index.insert(id, self.files.len());
                self.files.push(new);
                return None;
            }
            None => self.pass_hand(),
        };
        let old = std::mem::replace(self.files.get_mut(position)?, new);
        self.index.remove(&old.id);
        self.index.insert(id, position);
        Some(old.handle)
    }

    /// Removes the open file of a node, which the caller closes.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Arc<Handle>> {
        let position = self.index.remove(&id)?;
        let removed = self.files.swap_remove(position);
        if let Some(moved) = self.files.get(position) {
            self.index.insert(moved.id, position);
        }
        Some(removed.handle)
    }

    /// Moves the hand behind the next file without use; returns the position of that file.
    fn pass_hand(&mut self) -> usize {
        loop {
            let position = self.hand % self.files.len().max(1);
            self.hand = position + 1;
            match self.files.get_mut(position) {
                Some(file) if file.used => file.used = false,
                _ => return position,
            }
        }
    }
}
