//! Patterns in the paths of a command line: `a.img:/var/log/*.gz` stands for the files that match.
//!
//! `*`, `?` and `[...]` match as in a shell: within one name, and a leading dot only if the pattern
//! has it. A pattern that matches nothing is a name. `text` says what a backslash means.
//!
//! `main` expands each command line with it before it is parsed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use extern4::Glob;
use extern4::{Errno, Session};

use crate::app::App;
use crate::holder::is_busy;
use crate::id_names::IdNames;
use crate::image_path::{Image, ImagePath};
use crate::text::{Byte, bytes, is_pattern, unescaped};

/// Returns the command line with patterns replaced by the paths that match; `None` if there are no
/// patterns. `places` are the words of the line that may be image paths.
pub(crate) fn expand(line: &[OsString], places: &[&OsStr], app: &mut App) -> Option<Vec<OsString>> {
    let mut sessions: Vec<(Image, Session)> = Vec::new();
    let mut expanded = Vec::with_capacity(line.len());
    let mut has_patterns = false;
    for word in line {
        let found = if places.contains(&word.as_os_str()) {
            meaning(word, &mut sessions, app)
        } else {
            None
        };
        match found {
            Some(found) => {
                has_patterns = true;
                expanded.extend(found);
            }
            None => expanded.push(word.clone()),
        }
    }
    has_patterns.then_some(expanded)
}

/// Returns the image paths that a word stands for; `None` if it is a name as it is written.
fn meaning(
    word: &OsStr,
    sessions: &mut Vec<(Image, Session)>,
    app: &mut App,
) -> Option<Vec<OsString>> {
    if !may_be_pattern(word.as_bytes()) || !ImagePath::is_one(word) {
        return None;
    }
    let ImagePath { image, path } = ImagePath::parse(word);
    let text = path.as_os_str().as_bytes();
    let prefix = image.prefix();
    let word = |path: &[u8]| OsString::from_vec([&prefix, path].concat());
    if is_pattern(text)
        && let Some(found) = found(&image, &path, sessions, app)
    {
        return Some(
            found
                .iter()
                .map(|path| word(path.as_os_str().as_bytes()))
                .collect(),
        );
    }
    let name = unescaped(text);
    (name != text).then(|| vec![word(&name)])
}

/// Returns the paths that match a pattern in an image; `None` if there are none.
fn found(
    image: &Image,
    pattern: &Path,
    sessions: &mut Vec<(Image, Session)>,
    app: &mut App,
) -> Option<Vec<PathBuf>> {
    if !sessions.iter().any(|(open, _)| open.is(image)) {
        if app.is_in_use(image) {
            return None;
        }
        // The command itself reports a volume that cannot be opened, unless it may be free by then.
        let volume = match app.open(image, false) {
            Ok(volume) => volume,
            Err(error) if is_busy(&error) => {
                app.refused(image, &error);
                return None;
            }
            Err(_) => return None,
        };
        let cred = app
            .caller()
            .cred(|| IdNames::read(&volume.superuser()))
            .ok()?;
        sessions.push((image.clone(), volume.session(cred)));
    }
    let (_, session) = sessions.iter().find(|(open, _)| open.is(image))?;
    let found = matches(session, pattern, &mut |path, error| {
        app.error(
            ImagePath {
                image: image.clone(),
                path: path.to_owned(),
            },
            error,
        );
    });
    (!found.is_empty()).then_some(found)
}

/// Returns a pattern that only the text itself matches.
pub(crate) fn escaped(text: &[u8]) -> Vec<u8> {
    let is_special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\');
    let escaped = |byte: &u8| {
        is_special(*byte)
            .then_some(b'\\')
            .into_iter()
            .chain([*byte])
    };
    text.iter().flat_map(escaped).collect()
}

fn may_be_pattern(text: &[u8]) -> bool {
    text.iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'))
}

/// Returns one name of a pattern as [`Glob`] reads it, which knows no octal digits.
fn glob(name: &[u8]) -> Glob {
    let mut text = Vec::with_capacity(name.len());
    for byte in bytes(name) {
        match byte {
            Byte::Plain(b'\\') => text.extend_from_slice(b"\\\\"),
            Byte::Escaped(byte) if byte.is_ascii() => text.extend_from_slice(&[b'\\', byte]),
            // A backslash would part the bytes of a character.
            Byte::Plain(byte) | Byte::Escaped(byte) => text.push(byte),
        }
    }
    Glob::new(&text, false)
}

/// Returns the paths that match a pattern, in order. It calls `failed` for each directory that
/// cannot be read because of the volume.
pub(crate) fn matches(
    session: &Session,
    pattern: &Path,
    failed: &mut dyn FnMut(&Path, &extern4::Error),
) -> Vec<PathBuf> {
    let mut found = vec![Vec::new()];
    for name in pattern
        .as_os_str()
        .as_bytes()
        .split(|byte| *byte == b'/')
        .skip(1)
    {
        found = found
            .into_iter()
            .flat_map(|directory| step(session, directory, name, failed))
            .collect();
    }
    let mut found: Vec<PathBuf> = found
        .into_iter()
        .map(|path| PathBuf::from(OsString::from_vec(path)))
        .collect();
    found.retain(|path| session.symlink_metadata(path).is_ok());
    found.sort();
    found
}

/// Returns the paths in a directory whose names match one name of the pattern.
fn step(
    session: &Session,
    directory: Vec<u8>,
    name: &[u8],
    failed: &mut dyn FnMut(&Path, &extern4::Error),
) -> Vec<Vec<u8>> {
    let join = |name: &[u8]| [&directory[..], b"/", name].concat();
    if !is_pattern(name) {
        return vec![join(&unescaped(name))];
    }
    let path = if directory.is_empty() {
        Path::new("/")
    } else {
        Path::new(OsStr::from_bytes(&directory))
    };
    let glob = glob(name);
    let shows_dots = name.starts_with(b".") || name.starts_with(b"\\.");
    let mut found = Vec::new();
    let listed = session.read_dir(path).and_then(|entries| {
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().as_bytes();
            if (shows_dots || !name.starts_with(b".")) && glob.matches(name) {
                found.push(join(name));
            }
        }
        Ok(())
    });
    match listed {
        // As in a shell, there is nothing to match here.
        Err(error)
            if matches!(
                error.errno(),
                Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES
            ) => {}
        Err(error) => failed(path, &error),
        Ok(()) => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{escaped, glob};
    use crate::text::{is_pattern, unescaped};

    #[test]
    fn escapes_in_patterns_are_read() {
        assert!(glob(b"\\303\\274?\\[\\x").matches("üa[\\x".as_bytes()));
        assert!(glob(b"[\\]a]").matches(b"]"));
        for name in [&b"a*?[b]"[..], b"\\052", b"\\\\", b"\n\xff"] {
            assert!(!is_pattern(&escaped(name)));
            assert_eq!(unescaped(&escaped(name)), name);
        }
    }
}
