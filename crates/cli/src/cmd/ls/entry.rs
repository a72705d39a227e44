//! One name in a listing.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{DirEntry, FileType, Metadata};

use crate::app::Opened;
use crate::color::{Colors, Look};
use crate::text::{escape_bytes, shell_quote, width};

/// A name in a listing, with everything that is known of it.
pub(super) struct Entry {
    /// The name as it is shown.
    pub(super) name: OsString,
    /// The path of the file.
    pub(super) path: PathBuf,
    /// The inode number.
    pub(super) ino: u64,
    /// The file type.
    pub(super) kind: FileType,
    /// The attributes, where they were requested and could be read.
    pub(super) metadata: Option<Metadata>,
    /// The error, where they could not be read.
    pub(super) error: Option<extern4::Error>,
}

impl Entry {
    /// Returns an entry for a file whose attributes are known.
    pub(super) fn new(name: OsString, path: PathBuf, metadata: Metadata) -> Self {
        let (ino, kind) = (metadata.ino(), metadata.file_type());
        Self { name, path, ino, kind, metadata: Some(metadata), error: None }
    }

    /// Returns an entry of `directory`.
    pub(super) fn found(entry: &DirEntry, directory: &Path, with_metadata: bool) -> Self {
        let mut found = Self {
            name: entry.file_name().to_owned(),
            path: super::join(directory, entry.file_name()),
            ino: entry.ino(),
            kind: FileType::Regular,
            metadata: None,
            error: None,
        };
        match entry.file_type() {
            Ok(kind) => found.kind = kind,
            Err(error) => found.error = Some(error),
        }
        if with_metadata && found.error.is_none() {
            match entry.metadata() {
                Ok(metadata) => found.metadata = Some(metadata),
                Err(error) => found.error = Some(error),
            }
        }
        found
    }

    /// Returns whether `-R` goes into it.
    pub(super) fn is_subdirectory(&self) -> bool {
        self.kind == FileType::Directory && self.name != "." && self.name != ".."
    }

    /// Appends the name, quoted for a terminal and coloured, and returns its width.
    pub(super) fn write_name(
        &self,
        volume: &Opened,
        colors: Option<&Colors>,
        terminal: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        let name = self.name.as_bytes();
        let look = colors.and_then(|colors| Some((colors, self.look(volume, colors)?)));
        let Some((colors, look)) = look else {
            if terminal {
                let quoted = shell_quote(name);
                out.extend_from_slice(quoted.as_bytes());
                return width(&quoted);
            }
            out.extend_from_slice(name);
            return name.len();
        };
        // Without a terminal, colours are for a later reader of the output.
        let quoted = shell_quote(name);
        colors.paint(out, &quoted, name, look);
        width(&quoted)
    }

    fn look(&self, volume: &Opened, colors: &Colors) -> Option<Look> {
        let mode = self.metadata?.mode();
        let look = Look { kind: self.kind, mode, orphan: false };
        if self.kind != FileType::Symlink || !colors.follows_links() {
            return Some(look);
        }
        Some(match volume.reach(&self.path, |session, path| session.metadata(path)) {
            Ok(target) if colors.link_is_target() => {
                Look { kind: target.file_type(), mode: target.mode(), orphan: false }
            }
            Ok(_) => look,
            Err(_) => Look { orphan: true, ..look },
        })
    }

    /// Appends the target of a symbolic link.
    pub(super) fn write_target(&self, volume: &Opened, terminal: bool, out: &mut Vec<u8>) {
        if let Ok(target) = volume.reach(&self.path, |session, path| session.read_link(path)) {
            out.extend_from_slice(b" -> ");
            out.extend_from_slice(&escape_bytes(target.as_os_str().as_bytes(), terminal));
        }
    }
}
