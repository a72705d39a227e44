//! The actions on entries that match.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use extern4::{FileType, Metadata};

use crate::json;
use crate::output::Out;
use crate::text::{ListTime, ModeText, escape_bytes};

use super::Search;
use super::eval::Candidate;

/// An action on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Prints the path and a line feed.
    Print,
    /// Prints the path and a NUL.
    Print0,
    /// Prints the entry as `ls -dils` would.
    Ls,
}

impl Action {
    pub(super) fn run(self, search: &Search<'_>, candidate: &Candidate<'_>, out: &mut Out) -> io::Result<()> {
        let path = candidate.path().as_os_str().as_bytes();
        match self {
            Self::Print if search.json => print_json(search, candidate, out),
            Self::Print if search.terminal => {
                let shown = [&search.prefix, path].concat();
                out.write_all(&escape_bytes(&shown, true))?;
                out.write_all(b"\n")
            }
            Self::Print | Self::Print0 => {
                out.write_all(&search.prefix)?;
                out.write_all(path)?;
                out.write_all(if self == Self::Print { b"\n" } else { b"\0" })
            }
            Self::Ls => print_long(search, candidate, out),
        }
    }
}

fn print_json(search: &Search<'_>, candidate: &Candidate<'_>, out: &mut Out) -> io::Result<()> {
    let Some(metadata) = candidate.metadata() else { return Ok(()) };
    let line = json::line(|object| {
        super::super::stat::members(object, &search.volume, candidate.path(), metadata);
    });
    out.write_all(line.as_bytes())
}

fn print_long(search: &Search<'_>, candidate: &Candidate<'_>, out: &mut Out) -> io::Result<()> {
    let Some(metadata) = candidate.metadata() else { return Ok(()) };
    let names = search.volume.names();
    write!(
        out,
        "{:>9} {:>6} {} {:>3} {:<8} {:<8} {:>8} {} ",
        metadata.ino(),
        metadata.blocks().div_ceil(2),
        ModeText { kind: metadata.file_type(), mode: metadata.mode() },
        metadata.nlink(),
        names.user(metadata.uid()),
        names.group(metadata.gid()),
        size(metadata),
        search.time.get_or_init(ListTime::new).format(metadata.mtime()),
    )?;
    let shown = [&search.prefix, candidate.path().as_os_str().as_bytes()].concat();
    out.write_all(escape_ls(&shown).as_bytes())?;
    if metadata.is_symlink()
        && let Ok(link) = candidate.entry.parent().read_link(candidate.entry.file_name())
    {
        write!(out, " -> {}", escape_ls(link.as_os_str().as_bytes()))?;
    }
    out.write_all(b"\n")
}

/// Returns the size, or a device's number.
fn size(metadata: &Metadata) -> String {
    match metadata.file_type() {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{:>3}, {:>3}", metadata.rdev().major, metadata.rdev().minor)
        }
        _ => metadata.len().to_string(),
    }
}

/// Returns a name as `-ls` writes it to any output: C escapes, and a backslash before a space,
/// quote or backslash.
fn escape_ls(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if matches!(c, ' ' | '"' | '\\') {
                text.push('\\');
                text.push(c);
            } else {
                text.push_str(&crate::text::escape(c.encode_utf8(&mut [0; 4]).as_bytes()));
            }
        }
        text.push_str(&crate::text::escape(chunk.invalid()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::escape_ls;

    #[test]
    fn names_are_escaped_as_find_does() {
        assert_eq!(escape_ls(b"./a b"), "./a\\ b");
        assert_eq!(escape_ls(b"x\ny\xff"), "x\\ny\\377");
        assert_eq!(escape_ls(b"q\"\\"), "q\\\"\\\\");
    }
}
