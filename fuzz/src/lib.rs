//! What the fuzz targets share: real images to start from, and mutations that keep most of their structure.
//!
//! Random bytes are refused at the superblock's magic number. So an input is not an image but a recipe: which of the
//! real images in `fuzz/images` (made by `scripts/fuzz-images`) to take, and a list of small changes to places of it
//! that hold something. Most changes keep the structures around them valid, so that the deep code is reached; the images
//! come with and without checksums, for behind a checksum few changes get far.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::OnceLock;

/// Bytes a place of interest spans.
const CHUNK: usize = 64;
/// Changes an input can ask for.
const MAX_CHANGES: usize = 48;

/// A real image, and where in it something stands.
pub struct Base {
    bytes: Vec<u8>,
    /// Indices of the chunks that are not all zeroes.
    chunks: Vec<usize>,
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
    let bases: Vec<_> = paths.iter().map(|path| Base::new(std::fs::read(path).unwrap())).collect();
    assert!(!bases.is_empty(), "no *.{extension} in {}: run scripts/fuzz-images", folder.display());
    bases
}

impl Base {
    fn new(bytes: Vec<u8>) -> Self {
        let chunks =
            bytes.chunks(CHUNK).enumerate().filter(|(_, c)| c.iter().any(|b| *b != 0)).map(|(i, _)| i).collect();
        Self { bytes, chunks }
    }

    fn place(&self, pick: u16, within: u8) -> usize {
        self.chunks[usize::from(pick) * self.chunks.len() / (usize::from(u16::MAX) + 1)] * CHUNK
            + usize::from(within) % CHUNK
    }
}

/// The image that an input asks for, made from one of `bases`; `None` if the bytes are too few to say anything.
pub fn image(bases: &[Base], data: &[u8]) -> Option<Vec<u8>> {
    let (head, mut rest) = data.split_at_checked(2)?;
    let base = &bases[usize::from(head[0]) % bases.len()];
    let mut image = base.bytes.clone();
    for _ in 0..MAX_CHANGES {
        let Some((change, after)) = rest.split_at_checked(8) else { break };
        rest = after;
        apply(base, &mut image, change);
    }
    if head[1] & 1 != 0 {
        // A truncated image, cut at any 8 KiB.
        let keep = usize::from(head[1] >> 1) * image.len() / 128;
        image.truncate(keep / 8192 * 8192);
    }
    Some(image)
}

/// One change: `[kind, within, place lo, place hi, value...4]`.
fn apply(base: &Base, image: &mut [u8], change: &[u8]) {
    let at = base.place(u16::from_le_bytes([change[2], change[3]]), change[1]);
    let value = &change[4..8];
    let width = match change[0] % 6 {
        0 => 1,
        1 => 2,
        2 | 3 => 4,
        4 => {
            // Another place's bytes, so that valid structures stand where they do not belong.
            let from = base.place(u16::from_le_bytes([value[0], value[1]]), 0);
            let len = CHUNK.min(image.len() - from).min(image.len() - at);
            image.copy_within(from..from + len, at);
            return;
        }
        _ => {
            // A block number or count that is off by a little.
            if let Some(byte) = image.get_mut(at) {
                *byte = byte.wrapping_add(value[0]);
            }
            return;
        }
    };
    let end = image.len().min(at + width);
    image[at..end].copy_from_slice(&value[..end - at]);
}

/// Checks a volume; what it finds does not matter here.
pub fn check(volume: &extern4::Volume) -> usize {
    let _ = volume;
    0
}
