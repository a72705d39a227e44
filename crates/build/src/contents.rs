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

/// The parts that pieces cover.
pub(crate) fn data_of_pieces(pieces: &[Piece]) -> Vec<(u64, u64)> {
    pieces.iter().map(|piece| (piece.offset, piece.len)).collect()
}

/// The parts of an open file that are no holes: offsets and lengths. Only the host knows holes.
fn data_of(file: Option<&std::fs::File>, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let Some(file) = file else { return Ok(vec![(0, size)]) };
    let (mut data, mut at) = (Vec::new(), 0);
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
pub(crate) fn read(opened: &Opened, contents: &Contents, buf: &mut [u8], offset: u64) -> io::Result<()> {
    match &contents.data {
        Data::HostFile { .. } => opened.read_exact_at(buf, offset),
        Data::Stored { position } => opened.read_exact_at(buf, position + offset),
        Data::Pieces(pieces) => {
            let end = offset + buf.len() as u64;
            buf.fill(0);
            for piece in pieces.iter() {
                let (from, to) = (piece.offset.max(offset), (piece.offset + piece.len).min(end));
                if from < to {
                    let part = (from - offset) as usize..(to - offset) as usize;
                    opened.read_exact_at(&mut buf[part], piece.position + (from - piece.offset))?;
                }
            }
            Ok(())
        }
    }
}
