//! A sink that keeps what it gets, for tests.

use crate::{Data, Entry, Kind, Result, Sink, Source};

/// What a sink got.
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
        let found = self.entries.iter().rev().find(|entry| entry.path == path.as_bytes());
        found.unwrap_or_else(|| panic!("no entry '{path}' in {:?}", self.paths()))
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.entries.iter().map(|entry| crate::error::shown(&entry.path)).collect()
    }
}

/// Reads a file's contents through its source.
#[track_caller]
pub(crate) fn read(source: &dyn Source, entry: &Entry) -> Vec<u8> {
    let Kind::File(contents) = &entry.kind else { panic!("{entry:?} is no file") };
    let mut bytes = vec![0; contents.size as usize];
    let opened = source.open(&entry.path, contents).unwrap();
    match &contents.data {
        Data::HostFile { .. } => opened.read_exact_at(&mut bytes, 0).unwrap(),
        Data::Stored { position } => opened.read_exact_at(&mut bytes, *position).unwrap(),
        Data::Pieces(pieces) => {
            for piece in pieces {
                let range = piece.offset as usize..(piece.offset + piece.len) as usize;
                opened.read_exact_at(&mut bytes[range], piece.position).unwrap();
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
