//! The parts that all fuzz targets share: real images to start from, and mutations that keep most
//! of their structure.
//!
//! Random bytes are refused at the superblock's magic number. So an input is not an image but a
//! recipe: which of the real images in `fuzz/images` (made by `scripts/fuzz-images`) to take, and a
//! list of small changes to places of it that hold something. Most changes keep the structures
//! around them valid, so that the deep code is reached; the images come with and without checksums,
//! for behind a checksum few changes get far.
//!
//! The real images are read once and shared: a changed one is an overlay of them, which costs what
//! its changes do.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::{Arc, OnceLock};

use extern4_block::{BlockDevice, MemoryDevice, OverlayDevice, SliceDevice};

pub mod archive;
pub mod image;
mod sparse;
pub mod tree;

use sparse::SparseDevice;

/// Bytes a place of interest spans.
const CHUNK: usize = 64;
/// Chunks that hold the superblock and the first descriptors, on which everything depends.
const EARLY: usize = 24;
/// Changes an input can ask for.
const MAX_CHANGES: usize = 48;
/// Bytes the overlay keeps for a change. All places lie inside one such sector.
const SECTOR: u32 = 512;

/// A real image, and where in it something stands.
pub struct Base {
    device: Arc<dyn BlockDevice>,
    /// Indices of the chunks that are not all zeroes.
    chunks: Vec<u64>,
}

/// The images of volumes.
pub fn volumes() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| load("img"))
}

/// The contents of journals, as a volume's journal inode holds them.
pub fn journals() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| load("jnl"))
}

fn load(extension: &str) -> Vec<Base> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}: run scripts/fuzz-images", folder.display()))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    let bases: Vec<_> = paths
        .iter()
        .map(|path| Base::new(std::fs::read(path).unwrap()))
        .collect();
    assert!(
        !bases.is_empty(),
        "no *.{extension} in {}: run scripts/fuzz-images",
        folder.display()
    );
    bases
}

impl Base {
    fn new(bytes: Vec<u8>) -> Self {
        let chunks = bytes.chunks_exact(CHUNK).zip(0..);
        let chunks = chunks
            .filter(|(chunk, _)| chunk.iter().any(|b| *b != 0))
            .map(|(_, index)| index)
            .collect();
        Self {
            device: Arc::new(MemoryDevice::read_only(bytes)),
            chunks,
        }
    }

    /// Where the chunk starts that `pick` names, of all chunks or, with `early`, of the first ones.
    fn place(&self, pick: [u8; 2], early: bool) -> u64 {
        let chunks = if early {
            &self.chunks[..EARLY.min(self.chunks.len())]
        } else {
            &self.chunks
        };
        let pick = usize::from(u16::from_le_bytes(pick));
        chunks[pick * chunks.len() / (usize::from(u16::MAX) + 1)] * CHUNK as u64
    }

    /// Makes one change to `image`: `[kind, within, place lo, place hi, value...4]`.
    fn change(&self, image: &OverlayDevice, change: [u8; 8]) {
        let [kind, within, place @ .., v0, v1, v2, v3] = change;
        let chunk = self.place(place, kind & 0xC0 == 0);
        let mut bytes = [0; CHUNK];
        image.read_at(&mut bytes, chunk).unwrap();
        let at = usize::from(within) % CHUNK;
        match kind % 6 {
            // Another place's bytes, so that valid structures stand where they do not belong.
            0 => image
                .read_at(&mut bytes, self.place([v0, v1], false))
                .unwrap(),
            // A block number or count that is off by a little.
            1 => bytes[at] = bytes[at].wrapping_add(v0),
            width => {
                let width = [1, 2, 4, 4][usize::from(width) - 2];
                let end = CHUNK.min(at + width);
                bytes[at..end].copy_from_slice(&[v0, v1, v2, v3][..end - at]);
            }
        }
        image.write_at(&bytes, chunk).unwrap();
    }
}

/// The image that an input asks for, made from one of `bases`; `None` if the bytes are too few to
/// say anything.
pub fn image(bases: &[Base], data: &[u8]) -> Option<Arc<dyn BlockDevice>> {
    let (&[base, cut], changes) = data.split_first_chunk()?;
    let base = &bases[usize::from(base) % bases.len()];
    let image = OverlayDevice::new(Arc::clone(&base.device), SECTOR).unwrap();
    for change in changes.as_chunks().0.iter().take(MAX_CHANGES) {
        base.change(&image, *change);
    }
    let image: Arc<dyn BlockDevice> = Arc::new(image);
    match cut & 3 {
        // A truncated image, cut at any 16 KiB.
        1 => {
            let keep = image.size_bytes() * u64::from(cut >> 2) / 64 / 16384 * 16384;
            Some(Arc::new(SliceDevice::new(image, 0, keep).unwrap()))
        }
        // A sparse one of up to an exabyte, which has room for whatever the superblock claims.
        2 => Some(Arc::new(SparseDevice::new(
            image,
            1 << (24 + (cut >> 2) % 37),
        ))),
        _ => Some(image),
    }
}

/// Makes another recipe of the one in the first `size` bytes of `data`, and tells how long it is.
///
/// libFuzzer on its own inserts and removes bytes, which turns all changes behind them into noise.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    const HEAD: usize = 2;
    const CHANGE: usize = 8;
    let mut state = u64::from(seed) | 1 << 32;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let mut changes = (size.min(max_size).saturating_sub(HEAD) / CHANGE).min(MAX_CHANGES);
    if size < HEAD {
        data[..HEAD].fill(0);
    }
    match random(16) {
        0 => data[0] = random(256) as u8,
        1 => data[1] = random(256) as u8,
        2 if changes > 0 => {
            let gone = HEAD + CHANGE * random(changes);
            data.copy_within(gone + CHANGE..HEAD + CHANGE * changes, gone);
            changes -= 1;
        }
        3..9 if changes > 0 => {
            let at = HEAD + CHANGE * random(changes);
            libfuzzer_sys::fuzzer_mutate(&mut data[at..at + CHANGE], CHANGE, CHANGE);
        }
        _ if changes < MAX_CHANGES && HEAD + CHANGE * (changes + 1) <= max_size => {
            let at = HEAD + CHANGE * changes;
            data[at..at + CHANGE].fill_with(|| random(256) as u8);
            // Small numbers are counts, lengths and block numbers.
            data[at + 6 - 2 * random(2)..at + CHANGE].fill(0);
            changes += 1;
        }
        _ => {}
    }
    HEAD + CHANGE * changes
}
