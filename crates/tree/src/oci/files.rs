//! [`Files`]: the files of an image, in a directory or in an uncompressed tar archive.
//!
//! `image` reads JSON files, and `layer` reads blobs. A blob is a range of a host file, so a layer
//! in an archive is read in place. Links inside an archive are followed a few times only. In a
//! directory, symbolic links are followed for blobs only, because their digests are verified.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::Reason;
use super::digest::Digest;
use crate::entry::{Contents, Data, Entry, Kind};
use crate::error::{Error, Result};
use crate::source::{Sink, Source};
use crate::tar::{InPlace, TarSource};

/// The largest JSON file that is read.
const LARGEST_JSON: u64 = 8 << 20;

/// How many links are followed from one file of an archive to another.
const MAX_LINKS: usize = 8;

/// The files of an image.
pub(super) enum Files {
    Directory(PathBuf),
    Archive {
        tar: Box<TarSource>,
        members: BTreeMap<Vec<u8>, Kind>,
    },
}

/// A file of an image: a part of a file of the host.
#[derive(Clone)]
pub(super) struct Blob {
    pub(super) file: Arc<File>,
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Blob {
    pub(super) fn reader(&self) -> std::io::Result<InPlace> {
        InPlace::new(Arc::clone(&self.file), self.start, Some(self.len))
    }
}

impl Files {
    pub(super) fn open(path: &Path, spool: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let metadata = std::fs::metadata(path).map_err(|error| Error::io(&name, error))?;
        if metadata.is_dir() {
            return Ok(Self::Directory(path.to_owned()));
        }
        Self::in_archive(TarSource::open(path, spool)?)
    }

    /// Returns the files in an archive.
    pub(super) fn in_archive(tar: TarSource) -> Result<Self> {
        let mut members = Members(BTreeMap::new());
        tar.scan(&mut members)?;
        Ok(Self::Archive {
            tar: Box::new(tar),
            members: members.0,
        })
    }

    /// Whether there is a file with this path.
    pub(super) fn has(&self, path: &str) -> bool {
        match self {
            Self::Directory(root) => root.join(path).is_file(),
            Self::Archive { members, .. } => members.contains_key(path.as_bytes()),
        }
    }

    /// Returns the file with this path, in which no component is `..`.
    pub(super) fn file(&self, path: &str) -> Result<Blob, Reason> {
        match self {
            Self::Directory(root) => {
                let name = root.join(path).to_string_lossy().into_owned();
                let file = in_directory(root, path).map_err(|error| Error::io(&name, error))?;
                let len = file
                    .metadata()
                    .map_err(|error| Error::io(&name, error))?
                    .len();
                Ok(Blob {
                    file: Arc::new(file),
                    start: 0,
                    len,
                })
            }
            Self::Archive { tar, members } => in_archive(tar, members, path),
        }
    }

    /// Reads a JSON file, and verifies its digest if there is one.
    pub(super) fn json(&self, path: &str, digest: Option<&Digest>) -> Result<Value, Reason> {
        let blob = self.file(path)?;
        if blob.len > LARGEST_JSON {
            return Err(format!("'{path}' has {} bytes, more than 8 MiB", blob.len).into());
        }
        let mut bytes = Vec::new();
        let error = |error| Error::io(path, error);
        std::io::Read::read_to_end(&mut blob.reader().map_err(error)?, &mut bytes)
            .map_err(error)?;
        if digest.is_some_and(|digest| !digest.is_of(&bytes[..]).unwrap_or(false)) {
            return Err(format!("'{path}' does not have the digest that its name says").into());
        }
        serde_json::from_slice(&bytes)
            .map_err(|error| format!("'{path}' is damaged: {error}").into())
    }
}

/// Opens a file of a layout. A blob may be a symbolic link, as some build tools make them, since
/// its digest is verified; other files may not.
fn in_directory(root: &Path, path: &str) -> std::io::Result<File> {
    if path.starts_with("blobs/") {
        return File::open(root.join(path));
    }
    let top = OwnedFd::from(File::open(root)?);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    Ok(crate::directory::open_beneath(&top, path.as_bytes(), flags)?.into())
}

fn in_archive(
    tar: &TarSource,
    members: &BTreeMap<Vec<u8>, Kind>,
    path: &str,
) -> Result<Blob, Reason> {
    let mut at = path.as_bytes().to_vec();
    for _ in 0..MAX_LINKS {
        match members.get(&at) {
            Some(Kind::File(contents)) => {
                let Data::Stored { position } = contents.data else {
                    break;
                };
                let opened = tar.open(&at, contents)?;
                let start = opened.offset(position);
                let Some(file) = opened.shared() else { break };
                return Ok(Blob {
                    file: Arc::clone(file),
                    start,
                    len: contents.size,
                });
            }
            Some(Kind::HardLink(target)) => at.clone_from(target),
            // Archives of old versions have a layer once and link to it.
            Some(Kind::Symlink(target)) => at = follow(&at, target),
            _ => return Err(format!("it has no file '{path}'").into()),
        }
    }
    Err(format!("its file '{path}' cannot be read in place").into())
}

/// Returns the path that a symbolic link at `path` refers to.
fn follow(path: &[u8], target: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    names.pop();
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names.join(&b'/')
}

/// A sink that keeps the files of an archive.
struct Members(BTreeMap<Vec<u8>, Kind>);

impl Sink for Members {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        if matches!(
            entry.kind,
            Kind::File(Contents { .. }) | Kind::HardLink(_) | Kind::Symlink(_)
        ) {
            self.0.insert(entry.path, entry.kind);
        }
        Ok(())
    }

    fn remove(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn clear(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn warn(&mut self, _: String) {}
}
