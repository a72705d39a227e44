//! `extern4 truncate`: makes files shorter or longer; a longer file ends with a hole.
//!
//! `args` calls [`run`]. A length that the volume cannot hold is an error, and the file keeps its
//! length.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::{Errno, File, Session};

use crate::app::App;
use crate::image_path;
use crate::targets::written_paths;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to change, which are made if they are not there
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// The size in bytes, or with K, M, G or T; with + or - before it, by how much
    #[arg(short, long, value_parser = size, allow_hyphen_values = true)]
    size: Size,
    /// Do not make files that are not there
    #[arg(short = 'c', long)]
    no_create: bool,
}

/// The new length of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Exactly(u64),
    Longer(u64),
    Shorter(u64),
}

fn size(text: &str) -> Result<Size, String> {
    let (size, number): (fn(u64) -> Size, &str) = match text.as_bytes().first() {
        Some(b'+') => (Size::Longer, &text[1..]),
        Some(b'-') => (Size::Shorter, &text[1..]),
        _ => (Size::Exactly, text),
    };
    image_path::offset(number).map(size).ok_or_else(|| "write it as 4096, 16M or +1K".to_owned())
}

impl Size {
    fn of(self, old: u64) -> Option<u64> {
        match self {
            Self::Exactly(size) => Some(size),
            Self::Longer(by) => old.checked_add(by),
            Self::Shorter(by) => Some(old.saturating_sub(by)),
        }
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else { continue };
        if let Err(error) = truncate(args, target.session(), target.path()) {
            app.error(&image_path, &error);
        }
    }
    Ok(())
}

fn truncate(args: &Args, session: &Session, path: &Path) -> extern4::Result<()> {
    let file = match session.open_with(path, File::options().write(true).create(!args.no_create)) {
        Err(error) if args.no_create && error.errno() == Errno::ENOENT => return Ok(()),
        opened => opened?,
    };
    // A length above the maximum of any file, which the volume refuses.
    file.set_len(args.size.of(file.metadata().len()).unwrap_or(i64::MAX as u64))
}

#[cfg(test)]
mod tests {
    use super::{Size, size};

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("0"), Ok(Size::Exactly(0)));
        assert_eq!(size("16M"), Ok(Size::Exactly(16 << 20)));
        assert_eq!(size("+1K"), Ok(Size::Longer(1024)));
        assert_eq!(size("-7"), Ok(Size::Shorter(7)));
        assert_eq!(Size::Shorter(7).of(5), Some(0));
        assert_eq!(Size::Longer(u64::MAX).of(5), None);
        for text in ["", "+", "--1", "1k", "x"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
