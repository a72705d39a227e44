//! Parses lists of the kernel's `gen_init_cpio`.
//!
//! `Manifest::read` asks [`is_list`] and then calls [`read`]. Every line becomes an amendment that
//! can be made, and a `file` line further ones for its hard links. A line that is not understood is
//! an error.

use std::os::unix::ffi::OsStringExt;

use super::{AmendedKind, Amendment, Lines, Manifest, number, words};
use crate::Kind;
use crate::error::Result;
use crate::path;

/// The first words of its lines.
const WORDS: [&[u8]; 6] = [b"file", b"dir", b"nod", b"slink", b"pipe", b"sock"];

/// Whether these lines are such a list, by the first of them.
pub(super) fn is_list(lines: &[(usize, Vec<u8>)]) -> bool {
    lines.first().is_some_and(|(_, line)| {
        let mut words = words(line);
        // In mtree(5), words with `=` follow the name.
        WORDS.contains(&words.next().unwrap_or_default())
            && words.nth(1).is_some_and(|word| !word.contains(&b'='))
    })
}

pub(super) fn read(lines: &Lines, manifest: &mut Manifest) -> Result<()> {
    for (line, text) in &lines.lines {
        let words: Vec<&[u8]> = words(text).collect();
        let added =
            amendments(&words, *line, manifest).map_err(|reason| lines.error(*line, reason))?;
        manifest.amendments.extend(added);
    }
    Ok(())
}

/// Parses a line: an entry, and further names of it.
fn amendments(
    words: &[&[u8]],
    line: usize,
    manifest: &mut Manifest,
) -> Result<Vec<Amendment>, String> {
    let clean = |name: &[u8]| match path::clean(name) {
        Ok(cleaned) => Ok(cleaned.path),
        Err(reason) => Err(format!("'{}': {reason}", String::from_utf8_lossy(name))),
    };
    let (kind, name, rest) = match words {
        [kind, name, rest @ ..] => (*kind, clean(name)?, rest),
        _ => return Err("a name is missing".to_owned()),
    };
    // These have one word more before the mode.
    let (target, rest) = match (kind, rest) {
        (b"file" | b"slink", [target, rest @ ..]) => (*target, rest),
        (_, rest) => (&b""[..], rest),
    };
    let [mode, uid, gid, rest @ ..] = rest else {
        return Err("the mode, the owner or the group is missing".to_owned());
    };
    let damaged = |what: &str| format!("the {what} is no number");
    let mut amendment = Amendment::new(name, line);
    let mode = number(mode, 8).ok_or_else(|| damaged("mode"))?;
    amendment.mode = Some(mode as u16 & 0o7777);
    amendment.uid = Some(number(uid, 10).ok_or_else(|| damaged("owner"))?);
    amendment.gid = Some(number(gid, 10).ok_or_else(|| damaged("group"))?);
    let mut links = Vec::new();
    let made = match (kind, rest) {
        (b"file", names) => {
            links = names
                .iter()
                .map(|name| clean(name))
                .collect::<Result<_, _>>()?;
            let location = std::ffi::OsString::from_vec(expand(target)?);
            manifest.contents(&amendment.path, location.into())?
        }
        (b"dir", []) => Kind::Directory,
        (b"slink", []) => Kind::Symlink(target.to_vec()),
        (b"pipe", []) => Kind::Fifo,
        (b"sock", []) => Kind::Socket,
        (b"nod", [kind, major, minor]) => {
            let major = number(major, 10).ok_or_else(|| damaged("major number"))?;
            let minor = number(minor, 10).ok_or_else(|| damaged("minor number"))?;
            match *kind {
                b"c" => Kind::CharDevice { major, minor },
                b"b" => Kind::BlockDevice { major, minor },
                _ => return Err("the type of a device is neither 'b' nor 'c'".to_owned()),
            }
        }
        _ => return Err("the line is not understood".to_owned()),
    };
    amendment.kind = AmendedKind::Made(made);
    let links = links.into_iter().map(|path| {
        let kind = AmendedKind::Made(Kind::HardLink(amendment.path.clone()));
        Amendment {
            path,
            kind,
            ..amendment.clone()
        }
    });
    let links: Vec<_> = links.collect();
    Ok([amendment].into_iter().chain(links).collect())
}

/// Replaces `${NAME}` by the variable of the environment.
fn expand(word: &[u8]) -> Result<Vec<u8>, String> {
    let mut expanded = Vec::new();
    let mut rest = word;
    while let Some(start) = rest.windows(2).position(|two| two == b"${") {
        let Some(len) = rest[start..].iter().position(|byte| *byte == b'}') else {
            break;
        };
        let name = String::from_utf8_lossy(&rest[start + 2..start + len]).into_owned();
        let value =
            std::env::var_os(&name).ok_or_else(|| format!("the variable '{name}' is not set"))?;
        expanded.extend_from_slice(&rest[..start]);
        expanded.extend(value.into_vec());
        rest = &rest[start + len + 1..];
    }
    expanded.extend_from_slice(rest);
    Ok(expanded)
}
