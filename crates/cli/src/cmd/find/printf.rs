//! `-printf`: GNU `find`'s %-directives and escapes.
//!
//! `action` prints with it. Names are escaped on a terminal. An unknown directive is a usage error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::{Metadata, Timespec};

use crate::app::Shown;
use crate::text::{Chars, Field, ModeText, escape_sequence, format_time};

use super::Search;
use super::candidate::{Candidate, letter_of};

/// The directives that stand for numbers.
const NUMBERS: &str = "dm";

/// A format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Directive {
        field: Field,
        letter: char,
        argument: Option<char>,
    },
}

impl Format {
    /// Reads a format. The error describes its fault.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text.chars().peekable();
        let mut plain = Vec::new();
        while let Some(c) = rest.next() {
            match c {
                '\\' => match escape_sequence(&mut rest) {
                    Some(bytes) => plain.extend(bytes),
                    None => break,
                },
                '%' if rest.peek() == Some(&'%') => {
                    rest.next();
                    plain.push(b'%');
                }
                '%' => {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(directive(&mut rest)?);
                }
                c => plain.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Self { pieces })
    }

    /// Returns whether the format needs attributes.
    pub(super) fn reads_attributes(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Text(_) => false,
            Piece::Directive { letter, .. } => !"pPfhHdiylF".contains(*letter),
        })
    }

    /// Returns what to print of an entry; `None` if its attributes cannot be read.
    pub(super) fn text(
        &self,
        search: &Search<'_>,
        candidate: &Candidate<'_>,
        shown: Shown,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Directive {
                    field,
                    letter,
                    argument,
                } => {
                    let value = value(*letter, *argument, search, candidate, shown)?;
                    match std::str::from_utf8(&value) {
                        Ok(number) if NUMBERS.contains(*letter) => {
                            field.push_number(number, &mut out)
                        }
                        _ => field.push_text(&value, &mut out),
                    }
                }
            }
        }
        Some(out)
    }
}

fn directive(rest: &mut Chars<'_>) -> Result<Piece, String> {
    let field = Field::parse(rest);
    let letter = rest.next().ok_or("-printf: the format ends with a %")?;
    let argument = match letter {
        'A' | 'B' | 'C' | 'T' => Some(
            rest.next()
                .ok_or_else(|| format!("-printf: %{letter} needs a letter of a time"))?,
        ),
        _ => None,
    };
    if !"abBcCdfFgGhHiklmMnpPstTuUyYAs".contains(letter) {
        return Err(format!("-printf: %{letter} is not there"));
    }
    Ok(Piece::Directive {
        field,
        letter,
        argument,
    })
}

/// Returns what a directive stands for.
fn value(
    letter: char,
    argument: Option<char>,
    search: &Search<'_>,
    candidate: &Candidate<'_>,
    shown: Shown,
) -> Option<Vec<u8>> {
    let path = candidate.path().as_os_str().as_bytes();
    let start = search.start.path.as_os_str().as_bytes();
    let with_image =
        |path: &[u8]| Some(shown.path(&search.volume.image, Path::new(OsStr::from_bytes(path))));
    let plain = |text: &[u8]| Some(shown.text(text).into_owned());
    let text = match letter {
        'p' => return with_image(path),
        'P' => {
            let below = path.strip_prefix(start).unwrap_or(path);
            return plain(below.strip_prefix(b"/").unwrap_or(below));
        }
        'H' => return with_image(start),
        'f' => return plain(&base_name(candidate.path())),
        'h' => {
            let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            return with_image(&path[..end]);
        }
        'l' => return plain(&candidate.link_text().unwrap_or_default()),
        'd' => candidate.depth.to_string(),
        'y' => letter_of(candidate.kind()?),
        'F' => search.volume.type_name().to_owned(),
        'i' => candidate.ino()?.to_string(),
        'Y' => candidate.target_letter()?,
        'g' | 'u' => {
            return plain(of_metadata(letter, argument, search, candidate.metadata()?).as_bytes());
        }
        _ => of_metadata(letter, argument, search, candidate.metadata()?),
    };
    Some(text.into_bytes())
}

fn base_name(path: &Path) -> Vec<u8> {
    path.file_name()
        .map_or_else(|| b"/".to_vec(), |name| name.as_bytes().to_vec())
}

fn of_metadata(
    letter: char,
    argument: Option<char>,
    search: &Search<'_>,
    metadata: &Metadata,
) -> String {
    let names = search.volume.names();
    match letter {
        'a' => long_time(metadata.atime()),
        'c' => long_time(metadata.ctime()),
        't' => long_time(metadata.mtime()),
        'A' => part_of_time(metadata.atime(), argument),
        'C' => part_of_time(metadata.ctime(), argument),
        'T' => part_of_time(metadata.mtime(), argument),
        'B' => metadata
            .btime()
            .map_or_else(String::new, |time| part_of_time(time, argument)),
        'b' => metadata.blocks().to_string(),
        'g' => names.group(metadata.gid()).into_owned(),
        'G' => metadata.gid().to_string(),
        'k' => metadata.blocks().div_ceil(2).to_string(),
        'm' => format!("{:o}", metadata.mode() & 0o7777),
        'M' => ModeText {
            kind: metadata.file_type(),
            mode: metadata.mode(),
        }
        .to_string(),
        'n' => metadata.nlink().to_string(),
        's' => metadata.len().to_string(),
        'u' => names.user(metadata.uid()).into_owned(),
        _ => metadata.uid().to_string(),
    }
}

/// Returns a time as ctime(3) writes it, with the fraction of its second.
fn long_time(time: Timespec) -> String {
    format_time(time, &format!("%a %b %e %H:%M:%S.{:09}0 %Y", time.nsec))
}

/// Returns the part of a time that a letter means: the letters of strftime(3), and GNU's own.
fn part_of_time(time: Timespec, letter: Option<char>) -> String {
    let fraction = format!("{:09}0", time.nsec);
    match letter.unwrap_or('@') {
        '@' => format!("{}.{fraction}", time.sec),
        '+' => format_time(time, &format!("%Y-%m-%d+%H:%M:%S.{fraction}")),
        'S' => format_time(time, &format!("%S.{fraction}")),
        'T' | 'X' => format_time(time, &format!("%H:%M:%S.{fraction}")),
        'c' => format_time(time, &format!("%a %b %e %H:%M:%S.{fraction} %Y")),
        'r' => format_time(time, &format!("%I:%M:%S.{fraction} %p")),
        'h' => format_time(time, "%b"),
        'D' | 'x' => format_time(time, "%m/%d/%y"),
        letter if "aAbBdFGgHIjklmMpRsuUVwWyYZze".contains(letter) => {
            format_time(time, &format!("%{letter}"))
        }
        letter => format!("%{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn formats_are_read() {
        let check = |text: &str, pieces: usize| {
            assert_eq!(
                Format::parse(text).expect(text).pieces.len(),
                pieces,
                "{text}"
            );
        };
        check("", 1);
        check("a%%b\\n\\101", 1);
        check("%-8.3p %T@\\c%p never", 5);
        for text in ["%", "%T", "%Z", "%5"] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
    }
}
