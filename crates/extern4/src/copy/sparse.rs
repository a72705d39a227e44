//! The parts of data that a copy writes, where zeroes may become holes.

use super::options::Sparse;

/// Zeroes of this length become a hole, if that is wanted.
const HOLE_BYTES: usize = 4096;

/// Returns the pieces of data that are written, each with its place: all, or the pieces of blocks
/// that are not zeroes.
pub(super) fn pieces(data: &[u8], sparse: Sparse) -> impl Iterator<Item = (usize, &[u8])> {
    let step = if sparse == Sparse::Always {
        HOLE_BYTES
    } else {
        data.len().max(1)
    };
    let is_written =
        move |piece: &[u8]| sparse != Sparse::Always || piece.iter().any(|byte| *byte != 0);
    data.chunks(step)
        .enumerate()
        .map(move |(at, piece)| (at * step, piece))
        .filter(move |(_, piece)| is_written(piece))
}
