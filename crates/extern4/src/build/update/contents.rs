//! Contents of files: compared with the contents that they are to have, and copied.

use std::ops::ControlFlow;

use extern4_build::MemberContents;

use super::error::{Failure, Result};
use crate::file::File;

/// Bytes that are compared or copied at a time.
const CHUNK_BYTES: u64 = 256 << 10;

/// Returns whether a file has these contents. Where both have holes, nothing is read.
pub(super) fn are_same(contents: &MemberContents<'_>, file: &File) -> Result<bool> {
    let size = contents.size();
    if file.metadata().len() != size {
        return Ok(false);
    }
    let mut wanted = Vec::new();
    let mut has = Vec::new();
    let mut data = contents.data()?.into_iter().peekable();
    let mut at = 0;
    while at < size {
        while data.next_if(|(offset, len)| offset + len <= at).is_some() {}
        let in_source = data.peek().map_or(size, |(offset, _)| *offset);
        let in_file = file.seek_data(at)?.unwrap_or(size);
        at = at.max(in_source.min(in_file));
        let len = (size - at).min(CHUNK_BYTES) as usize;
        wanted.resize(len, 0);
        has.resize(len, 0);
        contents.read_exact_at(&mut wanted, at)?;
        file.read_exact_at(&mut has, at)?;
        if wanted != has {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

/// Writes the contents to a new file. Holes stay holes. After each write, it calls `written`
/// with the number of bytes, and a break ends the copy.
pub(super) fn copy(
    contents: &MemberContents<'_>,
    file: &File,
    written: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    let mut buf = Vec::new();
    for (mut at, len) in contents.data()? {
        let end = at + len;
        while at < end {
            buf.resize((end - at).min(CHUNK_BYTES) as usize, 0);
            contents.read_exact_at(&mut buf, at)?;
            file.write_all_at(&buf, at)?;
            at += buf.len() as u64;
            if written(buf.len() as u64).is_break() {
                return Err(Failure::Interrupted);
            }
        }
    }
    if file.metadata().len() < contents.size() {
        file.set_len(contents.size())?;
    }
    Ok(())
}
