//! One name in a listing, with the attributes that the listing needs.
//!
//! `ls` makes entries, `order` sorts them, and `long` prints their columns. Attributes are read
//! only where an option needs them. Names are escaped on a terminal.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{DirEntry, FileType, Metadata};

use crate::app::{Opened, Shown};
use crate::color::{Colors, Look};
use crate::text::width;

use super::name::{Indicators, Quoting};

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
    /// Whether it is a directory, or a link to one where links are looked at.
    pub(super) leads_to_directory: bool,
    /// The error, where they could not be read.
    pub(super) error: Option<extern4::Error>,
}

/// The facts that a listing needs of each file.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// Attributes, and not only names, numbers and types.
    pub(super) metadata: bool,
    /// Symbolic links stand for what they lead to.
    pub(super) dereference: bool,
    /// Whether links lead to directories.
    pub(super) link_targets: bool,
}

/// How names are written.
pub(super) struct NameStyle {
    pub(super) colors: Option<Colors>,
    pub(super) quoting: Quoting,
    pub(super) hides_control: bool,
    pub(super) indicators: Indicators,
    /// The form of `--full-paths`, which comes before the others.
    pub(super) complete: Option<Shown>,
    /// The indicator of a link is that of its target, which is shown as well.
    pub(super) with_targets: bool,
    /// Whether a name had a colour. As in GNU `ls`, the first one begins with a reset.
    pub(super) has_painted: Cell<bool>,
}

impl NameStyle {
    /// Appends a text in the colour of a file.
    fn paint(&self, colors: &Colors, text: &[u8], name: &[u8], look: Look, out: &mut Vec<u8>) {
        let start = out.len();
        colors.paint(out, &String::from_utf8_lossy(text), name, look);
        if out[start..].starts_with(b"\x1b") && !self.has_painted.replace(true) {
            out.splice(start..start, *b"\x1b[0m");
        }
    }
}

impl Entry {
    /// Returns an entry for a file whose attributes are known.
    pub(super) fn new(name: OsString, path: PathBuf, metadata: Metadata) -> Self {
        let ino = metadata.ino();
        let kind = metadata.file_type();
        let leads_to_directory = kind == FileType::Directory;
        Self {
            name,
            path,
            ino,
            kind,
            metadata: Some(metadata),
            leads_to_directory,
            error: None,
        }
    }

    /// Returns an entry of `directory`.
    pub(super) fn found(volume: &Opened, entry: &DirEntry, directory: &Path, needs: Needs) -> Self {
        let mut found = Self {
            name: entry.file_name().to_owned(),
            path: super::join(directory, entry.file_name()),
            ino: entry.ino(),
            kind: FileType::Regular,
            metadata: None,
            leads_to_directory: false,
            error: None,
        };
        match entry.file_type() {
            Ok(kind) => found.kind = kind,
            Err(error) => found.error = Some(error),
        }
        if found.kind == FileType::Symlink && needs.dereference {
            match found.target(volume) {
                Ok(target) => return Self::new(found.name, found.path, target),
                Err(error) => found.error = Some(error),
            }
        }
        if needs.metadata && found.error.is_none() {
            match entry.metadata() {
                Ok(metadata) => found.metadata = Some(metadata),
                Err(error) => found.error = Some(error),
            }
        }
        found.leads_to_directory = match found.kind {
            FileType::Directory => true,
            FileType::Symlink if needs.link_targets => {
                found.target(volume).is_ok_and(|target| target.is_dir())
            }
            _ => false,
        };
        found
    }

    /// Returns the attributes of what the path leads to.
    fn target(&self, volume: &Opened) -> extern4::Result<Metadata> {
        volume.reach(&self.path, |session, path| session.metadata(path))
    }

    /// Returns whether `-R` goes into it.
    pub(super) fn is_subdirectory(&self) -> bool {
        self.kind == FileType::Directory && self.name != "." && self.name != ".."
    }

    /// Appends the name in its form, and returns its width.
    pub(super) fn write_name(
        &self,
        volume: &Opened,
        style: &NameStyle,
        out: &mut Vec<u8>,
    ) -> usize {
        let name = self.name.as_bytes();
        let look = style
            .colors
            .as_ref()
            .and_then(|colors| Some((colors, self.look(volume, colors)?)));
        // Without a terminal, colours are for a later reader of the output.
        let quoting = if look.is_some() {
            Quoting::ShellEscape
        } else {
            style.quoting
        };
        let quoted = match style.complete {
            Some(shown) => Cow::Owned(shown.path(&volume.image, &self.path)),
            None => quoting.quote(name, style.hides_control),
        };
        match look {
            Some((colors, look)) => style.paint(colors, &quoted, name, look, out),
            None => out.extend_from_slice(&quoted),
        }
        let parts = quoted
            .utf8_chunks()
            .map(|chunk| width(chunk.valid()) + chunk.invalid().len());
        let mut columns: usize = parts.sum();
        if !(style.with_targets && self.kind == FileType::Symlink)
            && let Some(mark) = style
                .indicators
                .of(self.kind, self.metadata.as_ref().map(Metadata::mode))
        {
            out.push(mark);
            columns += 1;
        }
        columns
    }

    fn look(&self, volume: &Opened, colors: &Colors) -> Option<Look> {
        let mode = self.metadata?.mode();
        let look = Look {
            kind: self.kind,
            mode,
            orphan: false,
        };
        if self.kind != FileType::Symlink || !colors.follows_links() {
            return Some(look);
        }
        Some(match self.target(volume) {
            Ok(target) if colors.link_is_target() => Look {
                kind: target.file_type(),
                mode: target.mode(),
                orphan: false,
            },
            Ok(_) => look,
            Err(_) => Look {
                orphan: true,
                ..look
            },
        })
    }

    /// Appends the target of a symbolic link.
    pub(super) fn write_target(&self, volume: &Opened, style: &NameStyle, out: &mut Vec<u8>) {
        let Ok(target) = volume.reach(&self.path, |session, path| session.read_link(path)) else {
            return;
        };
        out.extend_from_slice(b" -> ");
        let text = target.as_os_str().as_bytes();
        match style.complete {
            Some(shown) => out.extend_from_slice(&shown.text(text)),
            None => out.extend_from_slice(&style.quoting.quote(text, style.hides_control)),
        }
        if !matches!(style.indicators, Indicators::None | Indicators::Slash)
            && let Ok(target) = self.target(volume)
        {
            out.extend(style.indicators.of(target.file_type(), Some(target.mode())));
        }
    }

    /// Returns the security context (SELinux), or a question mark.
    pub(super) fn context(&self, volume: &Opened) -> String {
        let read =
            |session: &extern4::Session, path: &Path| session.lgetxattr(path, "security.selinux");
        let context = volume.reach(&self.path, read).ok().flatten();
        let context = context.map(|context| {
            let end = context
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(context.len());
            crate::text::escape(&context[..end]).into_owned()
        });
        context.unwrap_or_else(|| "?".to_owned())
    }
}
