//! The form of the paths that a command prints.
//!
//! `app` makes it from the command line. By default, the form is that of the namesake. With
//! `--full-paths` each path is an operand that is read as exactly this path, in any output.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::image_path::{Image, ImagePath};
use crate::text::{complete, escape_bytes, operand};

/// How paths are printed: alone if all are in one volume, otherwise with their image before them.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    with_image: bool,
    /// Whether the output goes to a terminal.
    pub(crate) terminal: bool,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Plain,
    /// With escapes where it would be read as a pattern.
    Operand,
    /// With its image, and without a character that means something to a reader.
    Complete,
}

impl Shown {
    /// Returns the form for the output of a command about `image_paths`.
    pub(crate) fn new<'a>(image_paths: impl IntoIterator<Item = &'a ImagePath>) -> Self {
        let mut images = image_paths.into_iter().map(|image_path| &image_path.image);
        let first = images.next();
        let with_image = images.any(|image| Some(image) != first);
        Self {
            with_image,
            terminal: io::stdout().is_terminal(),
            form: Form::Plain,
        }
    }

    /// Returns the form that has each path behind its image.
    pub(crate) fn with_images() -> Self {
        Self {
            with_image: true,
            terminal: io::stdout().is_terminal(),
            form: Form::Plain,
        }
    }

    /// Returns the form of `--full-paths` if that is given, else this one.
    pub(crate) fn completely(self, is_complete: bool) -> Self {
        if is_complete {
            Self {
                with_image: true,
                form: Form::Complete,
                ..self
            }
        } else {
            self
        }
    }

    /// Returns the form for lists that end each path with a NUL, which programs read: at least,
    /// no path is read as a pattern.
    pub(crate) fn as_operands(self) -> Self {
        if self.form == Form::Plain {
            Self {
                form: Form::Operand,
                ..self
            }
        } else {
            self
        }
    }

    /// Returns the form for an output that is no terminal.
    pub(crate) fn off_terminal(self) -> Self {
        Self {
            terminal: false,
            ..self
        }
    }

    /// Returns whether it is that of `--full-paths`.
    pub(crate) fn is_complete(self) -> bool {
        self.form == Form::Complete
    }

    /// Returns the text before every path of this volume.
    pub(crate) fn prefix(self, image: &Image) -> Vec<u8> {
        if self.with_image {
            image.prefix()
        } else {
            Vec::new()
        }
    }

    /// Returns a path as it is printed.
    pub(crate) fn path(self, image: &Image, path: &Path) -> Vec<u8> {
        let path = path.as_os_str().as_bytes();
        if self.is_complete() {
            let prefix = image.prefix();
            // Words that begin in another way are options, comments or home directories.
            let is_plain = prefix.first().is_some_and(|first| !b"-#~=".contains(first));
            let here: &[u8] = if is_plain { b"" } else { b"./" };
            return complete(&[here, &prefix, path].concat());
        }
        let path = if self.form == Form::Operand {
            operand(path)
        } else {
            Cow::Borrowed(path)
        };
        escape_bytes(&[&self.prefix(image), &path[..]].concat(), self.terminal).into_owned()
    }

    /// Returns a text of the volume that is no path from its root, such as the target of a link.
    pub(crate) fn text(self, text: &[u8]) -> Cow<'_, [u8]> {
        if self.is_complete() {
            Cow::Owned(complete(text))
        } else {
            escape_bytes(text, self.terminal)
        }
    }
}
