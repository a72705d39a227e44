//! Rules that each source of entries must keep, whatever its input.

use extern4_tree::{
    Contents, Data, Entry, Kind, Piece, Result, Sink, Source, TarSource, TarWriter,
};

/// Where temporary files are made: in memory.
pub const SPOOL: &str = "/dev/shm";

/// The most bytes of a file that are read.
const MOST_READ: u64 = 1 << 20;

/// A sink that keeps the entries.
#[derive(Default)]
pub struct Entries(pub Vec<Entry>);

impl Sink for Entries {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        check(&entry);
        self.0.push(entry);
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        check_path(path);
        Ok(())
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        check_path(path);
        Ok(())
    }

    fn warn(&mut self, _: String) {}
}

fn check_path(path: &[u8]) {
    let bad =
        |name: &[u8]| matches!(name, b"" | b"." | b"..") || name.len() > 255 || name.contains(&0);
    assert!(
        path.is_empty() || !path.split(|byte| *byte == b'/').any(bad),
        "{path:?}"
    );
}

fn check(entry: &Entry) {
    check_path(&entry.path);
    assert!(entry.mode <= 0o7777 && entry.mtime.nanos < 1_000_000_000);
    assert!(
        entry.xattrs.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "{:?}",
        entry.xattrs
    );
    assert!(
        entry
            .xattrs
            .iter()
            .all(|(name, _)| !name.is_empty() && !name.contains(&0))
    );
    match &entry.kind {
        Kind::HardLink(target) => {
            check_path(target);
            assert_ne!(*target, entry.path);
        }
        Kind::Symlink(target) => assert!(!target.is_empty() && !target.contains(&0)),
        Kind::File(Contents {
            size,
            data: Data::Pieces(pieces),
        }) => {
            let mut end = 0;
            for piece in pieces {
                assert!(piece.offset >= end && piece.len > 0, "{pieces:?}");
                end = piece.offset + piece.len;
            }
            assert!(end <= *size);
        }
        kind => assert!(entry.path.is_empty() <= (*kind == Kind::Directory)),
    }
}

/// The pieces of a file that can be read: offset, length, position.
fn pieces(contents: &Contents) -> Vec<Piece> {
    match &contents.data {
        Data::HostFile { .. } => panic!("no file of the host"),
        Data::Stored { position } => vec![Piece {
            offset: 0,
            len: contents.size,
            position: *position,
        }],
        Data::Pieces(pieces) => pieces.to_vec(),
    }
}

/// Reads a file at an offset that is not in a hole.
fn read(source: &dyn Source, entry: &Entry, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
    let Kind::File(contents) = &entry.kind else {
        panic!("no file")
    };
    let opened = source
        .open(&entry.path, contents)
        .expect("the contents were kept");
    let inside = |piece: &&Piece| (piece.offset..piece.offset + piece.len).contains(&offset);
    let pieces = pieces(contents);
    let piece = pieces.iter().find(inside).expect("a piece");
    opened.read_exact_at(buf, piece.position + (offset - piece.offset))
}

/// Writes the entries as an archive, reads that again, and compares.
pub fn survives(source: &dyn Source, entries: &[Entry]) {
    let mut writer = TarWriter::new(Vec::new());
    let mut written = Vec::new();
    for entry in entries {
        if let Kind::File(contents) = &entry.kind
            && pieces(contents).iter().map(|piece| piece.len).sum::<u64>() > MOST_READ
        {
            continue;
        }
        let mut bytes = Vec::new();
        let mut read = |offset: u64, buf: &mut [u8]| {
            read(source, entry, offset, buf)?;
            bytes.extend_from_slice(buf);
            Ok(())
        };
        writer
            .append(entry, &mut read)
            .expect("an entry is written");
        written.push((entry, bytes));
    }
    let archive = writer.finish().expect("memory");
    let again = TarSource::from_stream(std::io::Cursor::new(archive), "again", SPOOL);
    let mut found = Entries::default();
    again
        .scan(&mut found)
        .expect("what was written can be read");
    assert_eq!(found.0.len(), written.len());
    for (found, (entry, bytes)) in found.0.iter().zip(written) {
        same(entry, found);
        let Kind::File(contents) = &found.kind else {
            continue;
        };
        let mut back = Vec::new();
        for piece in pieces(contents) {
            let mut part = vec![0; piece.len as usize];
            if !part.is_empty() {
                read(&again, found, piece.offset, &mut part).expect("contents");
            }
            back.extend(part);
        }
        assert_eq!(back, bytes);
    }
}

fn same(entry: &Entry, found: &Entry) {
    assert_eq!((&entry.path, entry.mode), (&found.path, found.mode));
    assert_eq!(
        (entry.uid, entry.gid, entry.mtime),
        (found.uid, found.gid, found.mtime)
    );
    match (&entry.kind, &found.kind) {
        (Kind::File(entry), Kind::File(found)) => {
            assert_eq!(entry.size, found.size);
        }
        (Kind::HardLink(entry), Kind::HardLink(found)) => return assert_eq!(entry, found),
        (entry, found) => assert_eq!(entry, found),
    }
    assert_eq!(entry.xattrs, found.xattrs);
}

/// Inputs that do not change from run to run, for tests.
#[cfg(test)]
pub(crate) fn random_inputs(count: usize, len: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 7_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(move |_| (0..len).map(|_| random()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Recipe;

    #[test]
    fn random_recipes_give_entries() {
        let mut given = 0;
        for bytes in random_inputs(20_000, 200) {
            let archive = Recipe(&bytes).archive();
            let source = TarSource::from_stream(std::io::Cursor::new(archive), "tar", SPOOL);
            let mut found = Entries::default();
            let _ = source.scan(&mut found);
            given += found.0.len();
            survives(&source, &found.0);
        }
        assert!(given > 10_000, "{given}");
    }
}
