//! Maps of files with holes, in the three forms of GNU tar.
//!
//! `read` calls the function for the form, and then [`contents`], which checks that the pieces
//! ascend, do not overlap, and fit into the file and its data. A map that does not is damage. The
//! number of pieces is limited.

use super::header::number;
use super::{BLOCK, Input, pax};
use crate::entry::{Contents, Data, Piece};
use crate::error::Result;

/// The most pieces of a file.
const MAX_PIECES: usize = 4 << 20;

/// The pieces of a file by offset and length.
pub(super) type Map = Vec<(u64, u64)>;

/// The message for a refused map.
pub(super) const DAMAGED: &str = "its map of holes is damaged";

/// Pairs offsets and lengths.
pub(super) fn pairs(numbers: &[u64]) -> Option<Map> {
    let (pairs, rest) = numbers.as_chunks();
    (rest.is_empty() && pairs.len() <= MAX_PIECES)
        .then(|| pairs.iter().map(|[from, len]| (*from, *len)).collect())
}

/// Reads the size of the file and its pieces from a header of GNU tar's old form, and from the
/// blocks that follow it.
pub(super) fn old_gnu(header: &[u8; BLOCK], input: &mut Input<'_>) -> Result<Option<(u64, Map)>> {
    let mut map = Map::new();
    let Some(size) = number(&header[483..495]).and_then(|size| u64::try_from(size).ok()) else {
        return Ok(None);
    };
    if !add_fields(&header[386..482], &mut map) {
        return Ok(None);
    }
    let mut more = header[482] != 0;
    while more {
        let Some(block) = input.block()? else {
            return Ok(None);
        };
        if map.len() > MAX_PIECES || !add_fields(&block[..504], &mut map) {
            return Ok(None);
        }
        more = block[504] != 0;
    }
    Ok(Some((size, map)))
}

/// Adds the pieces of some fields, which end with an empty one.
fn add_fields(fields: &[u8], map: &mut Map) -> bool {
    for field in fields.as_chunks::<24>().0 {
        if field[12] == 0 {
            break;
        }
        let part = |field| number(field).and_then(|number| u64::try_from(number).ok());
        match (part(&field[..12]), part(&field[12..])) {
            (Some(offset), Some(len)) => map.push((offset, len)),
            _ => return false,
        }
    }
    true
}

/// Reads the map before the contents: decimal numbers, one a line, padded to a block. Subtracts the
/// bytes that it reads from `left`, the bytes of the member.
pub(super) fn in_front(input: &mut Input<'_>, left: &mut u64) -> Result<Option<Map>> {
    let mut numbers = Vec::new();
    let mut wanted = 1;
    let mut digits = Vec::new();
    while numbers.len() < wanted {
        if *left < BLOCK as u64 {
            return Ok(None);
        }
        let Some(block) = input.block()? else {
            return Ok(None);
        };
        *left -= BLOCK as u64;
        for byte in block {
            if byte != b'\n' {
                digits.push(byte);
                continue;
            }
            let Some(number) = pax::decimal(&digits) else {
                return Ok(None);
            };
            digits.clear();
            if numbers.is_empty() {
                let Some(count) = usize::try_from(number)
                    .ok()
                    .filter(|count| *count <= MAX_PIECES)
                else {
                    return Ok(None);
                };
                wanted = 1 + 2 * count;
            }
            numbers.push(number);
            if numbers.len() == wanted {
                break;
            }
        }
        if digits.len() > 20 && numbers.len() < wanted {
            return Ok(None);
        }
    }
    Ok(pairs(&numbers[1..]))
}

/// Returns contents by a map whose pieces are stored one after the other from `position` on, in
/// `stored` bytes. `None` if the map does not fit.
pub(super) fn contents(size: u64, map: &Map, position: u64, stored: u64) -> Option<Contents> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(map.len());
    let mut end = 0;
    let mut used = 0_u64;
    for (offset, len) in map.iter().copied().filter(|(_, len)| *len > 0) {
        if offset < end {
            return None;
        }
        end = offset.checked_add(len).filter(|end| *end <= size)?;
        match pieces.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => pieces.push(Piece {
                offset,
                len,
                position: position + used,
            }),
        }
        used = used.checked_add(len).filter(|used| *used <= stored)?;
    }
    let data = match pieces[..] {
        [piece] if piece.len == size => Data::Stored {
            position: piece.position,
        },
        _ => Data::Pieces(pieces.into()),
    };
    Some(Contents { size, data })
}
