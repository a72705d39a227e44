//! The layout of a volume: the inode numbers and the blocks of its files.
//!
//! `build --stable-layout` reads the earlier volume through [`layout_of`]. It is all or nothing: a
//! file whose inode or map cannot be read fails the call.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4_build::{OldInode, OldLayout};
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_ext4::{DataRun, MapNode, MapVisitor};
use extern4_mkfs::map::Run;

use crate::error::{Error, Result};
use crate::volume::Volume;

/// Reads the inode numbers and the blocks of all files of a volume, so that
/// [`Builder::keep_layout`](super::Builder::keep_layout) can give the files of a new one the same.
///
/// # Errors
/// A directory or an inode that cannot be read, or is corrupt.
pub fn layout_of(volume: &Volume) -> Result<OldLayout> {
    let ext4 = volume.ext4();
    let mut layout = OldLayout::new(ext4.superblock().clone());
    for entry in volume.superuser().walk("/") {
        let entry = entry?;
        let path = entry.path();
        // No ext4 volume has an inode beyond 32 bits.
        let ino = u32::try_from(entry.ino()).unwrap_or(0);
        let name = path.as_os_str().as_bytes();
        layout.add_name(name.strip_prefix(b"/").unwrap_or(name), ino);
        if !layout.has_inode(ino) {
            layout.add_inode(ino, inode(volume, ino, path)?);
        }
    }
    Ok(layout)
}

fn inode(volume: &Volume, ino: u32, path: &Path) -> Result<OldInode> {
    let ext4 = volume.ext4();
    let failed = |error: extern4_ext4::Error| Error::vfs("read", path, error.into());
    let inode = ext4.raw_inode(ino).map_err(failed)?;
    let place = Place::new(Structure::Inode).ino(ino);
    let mut map = Map {
        runs: Vec::new(),
        nodes: Vec::new(),
        place,
        most_nodes: ext4.superblock().blocks_count(),
        fault: None,
    };
    if inode.has_map() {
        ext4.walk_map(&inode, &mut map);
    }
    let Map {
        runs,
        nodes: map_blocks,
        fault,
        ..
    } = map;
    match fault {
        Some(error) => Err(failed(error)),
        None => Ok(OldInode {
            kind: inode.kind(),
            runs,
            map_blocks,
            xattr_block: inode.xattr_block(),
        }),
    }
}

/// Collects the runs of a file and the blocks of its map until it meets a fault.
struct Map {
    runs: Vec<Run>,
    nodes: Vec<u64>,
    place: Place,
    /// How many blocks the map can have.
    most_nodes: u64,
    fault: Option<extern4_ext4::Error>,
}

impl MapVisitor for Map {
    fn node(&mut self, node: MapNode) -> bool {
        self.nodes.push(node.block);
        if self.nodes.len() as u64 > self.most_nodes {
            let what = "the map has more blocks than the volume";
            self.fault
                .get_or_insert(self.place.corrupt(CorruptKind::Mismatch { what }).into());
        }
        self.fault.is_none()
    }

    fn run(&mut self, run: DataRun) {
        self.runs.push(Run {
            logical: run.logical,
            start: run.physical,
            len: run.len,
        });
    }

    fn fault(&mut self, _: Place, error: extern4_ext4::Error) {
        self.fault.get_or_insert(error);
    }
}
