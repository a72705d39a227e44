//! Files with holes in tar archives.

use super::header::number;
use super::{BLOCK, Input, pax};
use crate::entry::{Contents, Data, Piece};
use crate::error::Result;

/// The most pieces of a file.
const MOST_PIECES: usize = 4 << 20;

/// Where the pieces of a file are: the place in the file, and the length.
pub(super) type Map = Vec<(u64, u64)>;

/// Why a map is refused.
pub(super) const DAMAGED: &str = "its map of holes is damaged";

/// Pairs offsets and lengths.
pub(super) fn pairs(numbers: &[u64]) -> Option<Map> {
    let (pairs, rest) = numbers.as_chunks();
    (rest.is_empty() && pairs.len() <= MOST_PIECES)
        .then(|| pairs.iter().map(|[from, len]| (*from, *len)).collect())
}

/// Reads the pieces in a header of the old form of GNU tar, and in the blocks that follow it. The
/// real size comes with them.
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
        let Some(block) = input.block()? else { return Ok(None) };
        if map.len() > MOST_PIECES || !add_fields(&block[..504], &mut map) {
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

/// Reads the map that stands in front of the contents: decimal numbers, one a line, padded to a
/// block. `left` is how many bytes the member has, and what is taken goes off it.
pub(super) fn in_front(input: &mut Input<'_>, left: &mut u64) -> Result<Option<Map>> {
    let mut numbers = Vec::new();
    let mut wanted = 1;
    let mut digits = Vec::new();
    while numbers.len() < wanted {
        if *left < BLOCK as u64 {
            return Ok(None);
        }
        let Some(block) = input.block()? else { return Ok(None) };
        *left -= BLOCK as u64;
        for byte in block {
            if byte != b'\n' {
                digits.push(byte);
                continue;
            }
            let Some(number) = pax::decimal(&digits) else { return Ok(None) };
            digits.clear();
            if numbers.is_empty() {
                let Some(count) = usize::try_from(number).ok().filter(|count| *count <= MOST_PIECES) else {
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

/// Makes contents from a map, whose pieces stand one after the other from `position` on, in
/// `stored` bytes. None if the map does not fit them.
pub(super) fn contents(size: u64, map: &Map, position: u64, stored: u64) -> Option<Contents> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(map.len());
    let (mut end, mut used) = (0, 0_u64);
    for (offset, len) in map.iter().copied().filter(|(_, len)| *len > 0) {
        if offset < end {
            return None;
        }
        end = offset.checked_add(len).filter(|end| *end <= size)?;
        match pieces.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => pieces.push(Piece { offset, len, position: position + used }),
        }
        used = used.checked_add(len).filter(|used| *used <= stored)?;
    }
    let data = match pieces[..] {
        [piece] if piece.len == size => Data::Stored { position: piece.position },
        _ => Data::Pieces(pieces.into()),
    };
    Some(Contents { size, data })
}
