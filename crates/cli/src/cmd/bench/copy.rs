//! Copies of images, which the benchmarks change in place of the originals.
//!
//! `ops` and `suite` make them. Holes stay holes, and the file to copy to is not otherwise used. If
//! there is no room, the copy fails and its file is removed by the caller.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, ioctl_ficlone, seek};

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Returns the directory for a copy: where `TMPDIR` says, else next to the image, where the file
/// system may let both share their blocks. There is no room next to a device, so its copies go to
/// the directory of temporary files.
pub(super) fn directory(image: &Path, opened: &File) -> io::Result<PathBuf> {
    Ok(
        match std::env::var_os("TMPDIR").filter(|directory| !directory.is_empty()) {
            Some(directory) => PathBuf::from(directory),
            None if opened.metadata()?.is_file() => {
                let parent = image
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty());
                parent.unwrap_or(Path::new(".")).to_owned()
            }
            None => std::env::temp_dir(),
        },
    )
}

/// Copies these bytes of `from` to the beginning of `to`, which is empty, and leaves holes. It
/// calls `copied` after each piece with the piece's length; an error from that ends the copy.
pub(super) fn copy(
    from: &File,
    bytes: &Range<u64>,
    to: &File,
    mut copied: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let whole = bytes.start == 0 && bytes.end == from.metadata()?.len();
    if whole && ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    to.set_len(bytes.end - bytes.start)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    for data in data_of(from, bytes) {
        let mut at = data.start;
        while at < data.end {
            let wanted =
                usize::try_from(data.end - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            from.read_exact_at(&mut buffer[..wanted], at)?;
            to.write_all_at(&buffer[..wanted], at - bytes.start)?;
            at += wanted as u64;
            copied(wanted as u64)?;
        }
    }
    Ok(())
}

/// Returns how many of these bytes are not in holes.
pub(super) fn data_bytes(file: &File, bytes: &Range<u64>) -> u64 {
    data_of(file, bytes).map(|data| data.end - data.start).sum()
}

/// Returns the parts of these bytes that are not in holes.
fn data_of(file: &File, bytes: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = bytes.end;
    let mut at = bytes.start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (start, data_end) = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => (start, seek(file, SeekFrom::Hole(start)).unwrap_or(end)),
            Err(rustix::io::Errno::NXIO) => return None,
            // A device has no holes.
            Err(_) => (at, end),
        };
        at = data_end;
        (start < end).then(|| start..data_end.min(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_copied_with_its_holes() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = |name| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            options.open(scratch.path().join(name)).expect("a file")
        };
        let from = file("from");
        let to = file("to");
        from.set_len(8 << 20).expect("a size");
        from.write_all_at(&[1; 10], 1 << 20).expect("it is written");
        from.write_all_at(&[2; 5000], 6 << 20)
            .expect("it is written");
        let part = 1 << 20..7 << 20;
        let mut told = 0;
        copy(&from, &part, &to, |bytes| {
            told += bytes;
            Ok(())
        })
        .expect("a copy");
        let mut expected = vec![0; 6 << 20];
        expected[..10].fill(1);
        expected[5 << 20..][..5000].fill(2);
        let mut read = vec![0; 6 << 20];
        to.read_exact_at(&mut read, 0).expect("it is read");
        assert!(read == expected && to.metadata().expect("its size").len() == 6 << 20);
        assert_eq!(told, data_bytes(&from, &part));
        let nothing_more = copy(
            &from,
            &part,
            &to,
            |_| Err(io::ErrorKind::Interrupted.into()),
        );
        assert_eq!(
            nothing_more.expect_err("it ends").kind(),
            io::ErrorKind::Interrupted
        );
    }
}
