//! Helpers for the tests of this crate: sinks that keep entries, and bytes of archives.
//!
//! [`Collected`] records the calls that a sink gets. [`plain`] returns the tree that a source
//! describes, for comparison of two sources. [`Raw`] and [`archive`] make tar archives byte by
//! byte.

use std::collections::BTreeMap;
use std::io::Write as _;

use crate::{Data, Entry, Error, Kind, Result, Sink, Source, Time};

/// The calls that a sink got.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) entries: Vec<Entry>,
    pub(crate) removed: Vec<String>,
    pub(crate) cleared: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Sink for Collected {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.entries.push(entry);
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.removed.push(crate::error::shown(path));
        Ok(())
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        self.cleared.push(crate::error::shown(path));
        Ok(())
    }

    fn warn(&mut self, message: String) {
        self.warnings.push(message);
    }
}

impl Collected {
    pub(crate) fn of(source: &dyn Source) -> Self {
        let mut collected = Self::default();
        source.scan(&mut collected).unwrap();
        collected
    }

    /// The last entry of a path.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> &Entry {
        let found = self
            .entries
            .iter()
            .rev()
            .find(|entry| entry.path == path.as_bytes());
        found.unwrap_or_else(|| panic!("no entry '{path}' in {:?}", self.paths()))
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.entries
            .iter()
            .map(|entry| crate::error::shown(&entry.path))
            .collect()
    }
}

/// Reads a file's contents through its source.
#[track_caller]
pub(crate) fn read(source: &dyn Source, entry: &Entry) -> Vec<u8> {
    let Kind::File(contents) = &entry.kind else {
        panic!("{entry:?} is no file")
    };
    let mut bytes = vec![0; contents.size as usize];
    let opened = source.open(&entry.path, contents).unwrap();
    match &contents.data {
        Data::HostFile { .. } => opened.read_exact_at(&mut bytes, 0).unwrap(),
        Data::Stored { position } => opened.read_exact_at(&mut bytes, *position).unwrap(),
        Data::Pieces(pieces) => {
            for piece in pieces {
                let range = piece.offset as usize..(piece.offset + piece.len) as usize;
                opened
                    .read_exact_at(&mut bytes[range], piece.position)
                    .unwrap();
            }
        }
    }
    opened.check_unchanged(&entry.path).unwrap();
    bytes
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a program of the host with these arguments.
#[track_caller]
pub(crate) fn run(dir: &std::path::Path, program: &str, arguments: &[&str]) {
    let output = std::process::Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// An entry without the places of its contents.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plain {
    pub(crate) kind: Kind,
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: Time,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Returns the tree that a source describes. Which name of a file comes first makes no difference.
#[track_caller]
pub(crate) fn plain(source: &dyn Source) -> BTreeMap<String, Plain> {
    let mut overlay = Overlay::default();
    source.scan(&mut overlay).unwrap();
    let mut first: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let mut plains = BTreeMap::new();
    for (path, (file, entry)) in &overlay.nodes {
        let mut plain = one(source, entry);
        if let Some(first) = first.get(file) {
            plain.kind = Kind::HardLink(first.clone());
        } else {
            first.insert(*file, path.clone());
        }
        plains.insert(crate::error::shown(path), plain);
    }
    plains
}

fn one(source: &dyn Source, entry: &Entry) -> Plain {
    let (kind, bytes) = match &entry.kind {
        Kind::File(_) => (Kind::HardLink(Vec::new()), Some(read(source, entry))),
        kind => (kind.clone(), None),
    };
    let owner = (entry.uid, entry.gid);
    Plain {
        kind,
        bytes,
        mode: entry.mode,
        owner,
        mtime: entry.mtime,
        xattrs: entry.xattrs.clone(),
    }
}

/// A sink in which later entries replace earlier ones, as in the builder of volumes.
#[derive(Default)]
struct Overlay {
    /// Which file a path names, and the entry that made the file.
    nodes: BTreeMap<Vec<u8>, (usize, Entry)>,
    files: usize,
}

impl Overlay {
    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let inside = |other: &[u8]| match path {
            b"" => !other.is_empty(),
            path => other
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with(b"/")),
        };
        self.nodes
            .keys()
            .filter(|other| inside(other))
            .cloned()
            .collect()
    }
}

impl Sink for Overlay {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        let path = entry.path.clone();
        let node = if let Kind::HardLink(target) = &entry.kind {
            self.nodes
                .get(target)
                .cloned()
                .ok_or_else(|| Error::NoTarget {
                    path: crate::error::shown(&path),
                    target: crate::error::shown(target),
                })?
        } else {
            self.files += 1;
            (self.files, entry)
        };
        if node.1.kind != Kind::Directory {
            self.remove(&path)?;
        }
        self.nodes.insert(path, node);
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.clear(path)?;
        self.nodes.remove(path);
        Ok(())
    }

    fn clear(&mut self, path: &[u8]) -> Result<()> {
        for path in self.below(path) {
            self.nodes.remove(&path);
        }
        Ok(())
    }

    fn warn(&mut self, _: String) {}
}

/// A member's header and contents as bytes.
#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) block: [u8; 512],
    pub(crate) data: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(kind: u8, name: &str, data: &[u8]) -> Self {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(b"0000644");
        block[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        Self {
            block,
            data: data.to_vec(),
        }
    }

    pub(crate) fn link(mut self, target: &str) -> Self {
        self.block[157..157 + target.len()].copy_from_slice(target.as_bytes());
        self
    }

    pub(crate) fn field(mut self, at: usize, bytes: &[u8]) -> Self {
        self.block[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn pax(kind: u8, records: &[(&str, &[u8])]) -> Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let bare = key.len() + value.len() + 3;
            let length = (bare + 1..)
                .find(|length| length.to_string().len() + bare == *length)
                .unwrap();
            write!(data, "{length} {key}=").unwrap();
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        Self::new(kind, "pax", &data)
    }
}

pub(crate) fn archive(members: &[Raw]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Raw { block, data } in members {
        let mut block = *block;
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend(block);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}
