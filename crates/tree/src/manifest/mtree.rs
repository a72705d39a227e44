//! Parses the format of mtree(5).
//!
//! `Manifest::read` calls [`read`]. It honours `/set`, `/unset`, `..` and the keywords that an
//! entry has a field for; a keyword for a digest or a flag is ignored. Owners are taken by number:
//! a name without a number is warned about. A damaged keyword is an error.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;

use super::{AmendedKind, Amendment, Lines, Manifest, number, words};
use crate::error::Result;
use crate::path;
use crate::{Kind, Time};

type Keywords = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn read(lines: &Lines, manifest: &mut Manifest) -> Result<()> {
    let mut defaults = Keywords::new();
    // The directory that names without a slash are in.
    let mut directory: Vec<u8> = Vec::new();
    for (line, text) in &lines.lines {
        let error = |reason: String| lines.error(*line, reason);
        let mut words = words(text);
        match words.next().unwrap_or_default() {
            // The line with the name of the format.
            first if first.starts_with(b"#") => {}
            b"/set" => defaults.extend(words.map(keyword)),
            b"/unset" => words.for_each(|key| drop(defaults.remove(key))),
            b".." => {
                let end = directory
                    .iter()
                    .rposition(|byte| *byte == b'/')
                    .unwrap_or(0);
                directory.truncate(end);
            }
            first => {
                let mut keywords = defaults.clone();
                keywords.extend(words.map(keyword));
                let (name, whole) = name(&directory, first).map_err(error)?;
                let amendment = amendment(name, &keywords, *line, manifest).map_err(error)?;
                if !whole && amendment.kind == AmendedKind::Made(Kind::Directory) {
                    directory.clone_from(&amendment.path);
                }
                manifest.amendments.push(amendment);
            }
        }
    }
    Ok(())
}

fn keyword(word: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let equals = word.iter().position(|byte| *byte == b'=');
    match equals {
        Some(equals) => (word[..equals].to_vec(), word[equals + 1..].to_vec()),
        None => (word.to_vec(), Vec::new()),
    }
}

/// Returns the path of a name, and whether it was given as a full path, with a slash in it.
fn name(directory: &[u8], word: &[u8]) -> Result<(Vec<u8>, bool), String> {
    let name = unvis(word);
    let whole = name.contains(&b'/');
    let cleaned = path::clean(&name)
        .map_err(|reason| format!("'{}': {reason}", String::from_utf8_lossy(&name)))?
        .path;
    if whole || directory.is_empty() || cleaned.is_empty() {
        return Ok((cleaned, whole));
    }
    Ok(([directory, &cleaned].join(&b'/'), false))
}

fn amendment(
    path: Vec<u8>,
    keywords: &Keywords,
    line: usize,
    manifest: &mut Manifest,
) -> Result<Amendment, String> {
    let damaged = |key: &str| format!("the keyword '{key}' is damaged");
    let given = |key: &str| keywords.get(key.as_bytes()).map(Vec::as_slice);
    let read = |key: &str, base| match given(key) {
        Some(word) => number(word, base).map(Some).ok_or_else(|| damaged(key)),
        None => Ok(None),
    };
    let mut amendment = Amendment::new(path, line);
    amendment.mode = read("mode", 8)?.map(|mode| mode as u16 & 0o7777);
    amendment.uid = read("uid", 10)?;
    amendment.gid = read("gid", 10)?;
    amendment.mtime = match given("time") {
        Some(text) => Some(time(text).ok_or_else(|| damaged("time"))?),
        None => None,
    };
    amendment.optional = given("optional").is_some();
    for (name, id) in [("uname", amendment.uid), ("gname", amendment.gid)] {
        if given(name).is_some() && id.is_none() {
            let about = format!(
                "{}, line {line}: '{name}' needs a number next to it",
                manifest.name
            );
            manifest
                .warnings
                .push(format!("{about}; owners are not looked up by their names"));
        }
    }
    let contents = given("contents").or_else(|| given("content"));
    let device = || {
        let device = given("device").ok_or_else(|| "the keyword 'device' is missing".to_owned())?;
        device_numbers(device).ok_or_else(|| damaged("device"))
    };
    amendment.kind =
        match (given("type"), contents) {
            (None, None) => AmendedKind::Any,
            (Some(b"file"), None) => AmendedKind::File,
            (None | Some(b"file"), Some(location)) => {
                let location = std::ffi::OsString::from_vec(unvis(location));
                AmendedKind::Made(manifest.contents(&amendment.path, location.into())?)
            }
            (Some(b"dir"), _) => AmendedKind::Made(Kind::Directory),
            (Some(b"link"), _) => match given("link").map(unvis) {
                Some(target) if !target.is_empty() => AmendedKind::Made(Kind::Symlink(target)),
                _ => return Err("the keyword 'link' is missing".to_owned()),
            },
            (Some(b"char"), _) => device()
                .map(|(major, minor)| AmendedKind::Made(Kind::CharDevice { major, minor }))?,
            (Some(b"block"), _) => device()
                .map(|(major, minor)| AmendedKind::Made(Kind::BlockDevice { major, minor }))?,
            (Some(b"fifo"), _) => AmendedKind::Made(Kind::Fifo),
            (Some(b"socket"), _) => AmendedKind::Made(Kind::Socket),
            (Some(other), _) => {
                return Err(format!(
                    "the type '{}' is unknown",
                    String::from_utf8_lossy(other)
                ));
            }
        };
    if amendment.path.is_empty()
        && !matches!(
            amendment.kind,
            AmendedKind::Any | AmendedKind::Made(Kind::Directory)
        )
    {
        return Err("the root is a directory".to_owned());
    }
    Ok(amendment)
}

/// Parses seconds, and nanoseconds as a separate number.
fn time(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?;
    let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Time {
        secs: secs.parse().ok()?,
        nanos,
    })
}

/// Parses a major and a minor number: `FORMAT,MAJOR,MINOR`, `MAJOR,MINOR` or one number of Linux.
fn device_numbers(text: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let parse = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let parts: Vec<&str> = text.split(',').collect();
    match parts[..] {
        [device] => {
            parse(device).map(|device| (rustix::fs::major(device), rustix::fs::minor(device)))
        }
        [major, minor] | [_, major, minor] => Some((
            parse(major)?.try_into().ok()?,
            parse(minor)?.try_into().ok()?,
        )),
        _ => None,
    }
}

/// Replaces the escapes of vis(3): three octal digits, and letters of C.
fn unvis(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), tail),
            [b'\\', letter, tail @ ..] => {
                let byte = match letter {
                    b's' => b' ',
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b'a' => 7,
                    b'b' => 8,
                    b'v' => 11,
                    b'f' => 12,
                    b'E' => 27,
                    other => *other,
                };
                (byte, tail)
            }
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::unvis;

    #[test]
    fn escapes_are_replaced() {
        assert_eq!(unvis(br"a\040b\sc\\d\377\#\n"), b"a b c\\d\xff#\n");
        assert_eq!(unvis(br"\4\"), b"4\\");
    }
}
