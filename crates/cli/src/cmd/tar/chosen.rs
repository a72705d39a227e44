//! The members of an archive that the command line chooses.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use extern4::build::{Contents, Entry, Kind, Opened, Sink, Source, SourceError, TarSource};

use super::member_line::MemberLines;
use super::{Args, member_name};
use crate::cmd::build::Rules;

/// Members that the command line names.
#[derive(Default)]
pub(super) struct Named {
    /// Their names, and whether the archive has each.
    names: Vec<(Vec<u8>, AtomicBool)>,
    rules: Rules,
}

impl Named {
    /// Chooses what these names and all rules of the command line choose.
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a OsStr>, args: &Args) -> Self {
        let names = names
            .into_iter()
            .map(|name| (member_name(name), AtomicBool::new(false)));
        Self {
            names: names.collect(),
            rules: args.rules.clone(),
        }
    }

    /// Returns whether a member is chosen.
    pub(super) fn has(&self, entry: &Entry) -> bool {
        let path = &*entry.path;
        let above = (0..path.len())
            .filter(|at| path[*at] == b'/')
            .map(|at| (&path[..at], true));
        let mut paths = above.chain([(path, entry.kind == Kind::Directory)]);
        if paths.any(|(path, is_directory)| {
            self.rules
                .leaves_out(Path::new(OsStr::from_bytes(path)), is_directory)
        }) {
            return false;
        }
        let is_in = |name: &[u8]| {
            path.strip_prefix(name)
                .is_some_and(|rest| name.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
        };
        let mut is_chosen = self.names.is_empty();
        for (_, found) in self.names.iter().filter(|(name, _)| is_in(name)) {
            // Relaxed: the flag guards no other data.
            found.store(true, Ordering::Relaxed);
            is_chosen = true;
        }
        is_chosen
    }

    /// Returns the names that no member has.
    pub(super) fn missing(&self) -> impl Iterator<Item = &[u8]> {
        // Relaxed: see `has`.
        self.names
            .iter()
            .filter(|(_, found)| !found.load(Ordering::Relaxed))
            .map(|(name, _)| &**name)
    }
}

/// The chosen members of an archive as a tree.
pub(super) struct Chosen {
    pub(super) archive: TarSource,
    pub(super) named: Arc<Named>,
    /// Names that are removed from the start of each path.
    pub(super) strip: usize,
    /// Makes a line about each member, for the thread that prints them.
    pub(super) lines: Option<(Mutex<MemberLines>, Sender<String>)>,
}

impl Source for Chosen {
    fn scan(&self, sink: &mut dyn Sink) -> Result<(), SourceError> {
        self.archive.scan(&mut Choosing { chosen: self, sink })
    }

    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened, SourceError> {
        self.archive.open(path, contents)
    }
}

/// Passes on the chosen members.
struct Choosing<'a> {
    chosen: &'a Chosen,
    sink: &'a mut dyn Sink,
}

impl Sink for Choosing<'_> {
    fn entry(&mut self, mut entry: Entry) -> Result<(), SourceError> {
        let Chosen {
            named,
            strip,
            lines,
            ..
        } = self.chosen;
        if !named.has(&entry) {
            return Ok(());
        }
        let line = lines.as_ref().map(|(lines, printer)| {
            (
                lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .line(&entry),
                printer,
            )
        });
        let Some(path) = stripped(&entry.path, *strip) else {
            return Ok(());
        };
        entry.path = path;
        if let Kind::HardLink(target) = &mut entry.kind {
            *target = stripped(target, *strip).unwrap_or_default();
        }
        self.sink.entry(entry)?;
        if let Some((line, printer)) = line {
            // The receiver lives until the archive is read.
            let _ = printer.send(line);
        }
        Ok(())
    }

    fn remove(&mut self, path: &[u8]) -> Result<(), SourceError> {
        self.sink.remove(path)
    }

    fn clear(&mut self, path: &[u8]) -> Result<(), SourceError> {
        self.sink.clear(path)
    }

    fn warn(&mut self, message: String) {
        self.sink.warn(message);
    }
}

/// Returns a path without its first `count` names; `None` if it has no more than those.
fn stripped(path: &[u8], count: usize) -> Option<Vec<u8>> {
    if count == 0 {
        return Some(path.to_vec());
    }
    let mut rest = path.splitn(count + 1, |byte| *byte == b'/').skip(count);
    rest.next()
        .filter(|rest| !rest.is_empty())
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::stripped;

    #[test]
    fn names_are_stripped() {
        let check = |path: &str, count, expected: Option<&str>| {
            let found = stripped(path.as_bytes(), count);
            assert_eq!(
                found.as_deref(),
                expected.map(str::as_bytes),
                "{path} {count}"
            );
        };
        check("a/b/c", 0, Some("a/b/c"));
        check("a/b/c", 2, Some("c"));
        check("a/b/c", 3, None);
        check("", 0, Some(""));
        check("", 1, None);
    }
}
