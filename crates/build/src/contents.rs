//! The bytes of files: where they are, and how they are read.

use std::io;

use extern4_tree::{Contents, Data, Opened, Piece};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The parts of open contents that are no holes: offsets and lengths, in order.
pub(crate) fn data(contents: &Contents, opened: &Opened) -> io::Result<Vec<(u64, u64)>> {
    match &contents.data {
        Data::HostFile { sparse: true, .. } => data_of(opened.file(), contents.size),
        Data::Pieces(pieces) => Ok(data_of_pieces(pieces)),
        _ => Ok(vec![(0, contents.size)]),
    }
}

/// Whether [`data`] may find holes.
pub(crate) fn may_have_holes(contents: &Contents) -> bool {
    matches!(
        &contents.data,
        Data::HostFile { sparse: true, .. } | Data::Pieces(_)
    )
}

/// Bytes that are searched for zeroes at a time.
const SEARCH_BYTES: u64 = 1 << 20;

/// Returns these parts of open contents without the blocks that have only zeroes.
pub(crate) fn without_zeroes(
    contents: &Contents,
    opened: &Opened,
    parts: &[(u64, u64)],
    block_size: u32,
) -> io::Result<Vec<(u64, u64)>> {
    let block_size = u64::from(block_size);
    let mut data: Vec<(u64, u64)> = Vec::new();
    let mut buf = vec![0; SEARCH_BYTES as usize];
    for &(offset, len) in parts {
        // A block that begins before the part has a hole there, which reads as zeroes as well.
        let mut at = offset - offset % block_size;
        let end = (offset + len).min(contents.size);
        while at < end {
            let piece = &mut buf[..(end - at).min(SEARCH_BYTES) as usize];
            read(opened, contents, piece, at)?;
            for block in piece.chunks(block_size as usize) {
                let len = block.len() as u64;
                if block.iter().any(|byte| *byte != 0) {
                    match data.last_mut() {
                        Some((start, before)) if *start + *before == at => *before += len,
                        _ => data.push((at, len)),
                    }
                }
                at += len;
            }
        }
    }
    Ok(data)
}

/// The parts that pieces cover.
fn data_of_pieces(pieces: &[Piece]) -> Vec<(u64, u64)> {
    pieces
        .iter()
        .map(|piece| (piece.offset, piece.len))
        .collect()
}

/// The parts of an open file that are no holes: offsets and lengths. Only the host knows holes.
fn data_of(file: Option<&std::fs::File>, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let Some(file) = file else {
        return Ok(vec![(0, size)]);
    };
    let mut data = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            // The rest is a hole.
            Err(Errno::NXIO) => break,
            // The file system does not know holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => size,
            Err(error) => return Err(error.into()),
        };
        data.push((start, end - start));
        at = end.max(start + 1);
    }
    Ok(data)
}

/// Reads bytes of a file; holes read as zeroes.
pub(crate) fn read(
    opened: &Opened,
    contents: &Contents,
    buf: &mut [u8],
    offset: u64,
) -> io::Result<()> {
    match &contents.data {
        Data::HostFile { .. } => opened.read_exact_at(buf, offset),
        Data::Stored { position } => opened.read_exact_at(buf, position + offset),
        Data::Pieces(pieces) => {
            let end = offset + buf.len() as u64;
            buf.fill(0);
            for piece in pieces.iter() {
                let from = piece.offset.max(offset);
                let to = (piece.offset + piece.len).min(end);
                if from < to {
                    let part = (from - offset) as usize..(to - offset) as usize;
                    opened.read_exact_at(&mut buf[part], piece.position + (from - piece.offset))?;
                }
            }
            Ok(())
        }
    }
}
