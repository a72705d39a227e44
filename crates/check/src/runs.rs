//! The blocks of one of the volume's own small files, such as the orphan file or a quota file.
//!
//! `special` and `quota` read these files through it. It reports no fault of the map, since the
//! pass over inodes does that; it returns the runs that can be read.

use extern4_disk::Place;
use extern4_disk::inode::Inode;
use extern4_ext4::{DataRun, Error, MapNode, MapVisitor};

use crate::Checker;

impl Checker<'_> {
    /// Returns the runs of `inode`. Follows fewer than `most` blocks of its map, since a hostile
    /// map has no end. The pass over all inodes reports faults of the map.
    pub(crate) fn runs_of(&self, inode: &Inode, most: u32) -> Vec<DataRun> {
        let mut found = Runs {
            runs: Vec::new(),
            nodes_left: most,
        };
        self.fs.walk_map(inode, &mut found);
        found.runs
    }
}

struct Runs {
    runs: Vec<DataRun>,
    nodes_left: u32,
}

impl MapVisitor for Runs {
    fn node(&mut self, _node: MapNode) -> bool {
        self.nodes_left = self.nodes_left.saturating_sub(1);
        self.nodes_left > 0
    }

    fn run(&mut self, run: DataRun) {
        self.runs.push(run);
    }

    fn fault(&mut self, _place: Place, _error: Error) {}
}
