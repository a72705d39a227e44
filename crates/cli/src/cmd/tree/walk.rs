//! The walk over a tree, one file after the other.
//!
//! `tree` asks for the next item. A directory is read before it is shown, so that the walk knows
//! whether anything is in it. A failure is reported, and the walk goes on.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::{DirEntry, FileType, Metadata, Timespec};

use super::args::{Args, Order};
use super::entry::{Item, Link, TreeFile};
use super::filter::Patterns;
use crate::app::{App, Opened};
use crate::exit_status::ExitStatus;
use crate::output::{Out, flush};
use crate::text::compare_versions;

/// A walk below one directory.
pub(super) struct Walk<'a> {
    args: &'a Args,
    volume: &'a Opened,
    patterns: Patterns,
    ignored: Patterns,
    levels: Vec<Level>,
    /// The directories that were shown, with the number of the link that led there.
    seen: HashSet<(usize, u64)>,
    /// The directories that links are not followed to again.
    visited: HashSet<u64>,
    /// How many links have been followed.
    followed: usize,
}

/// A directory on the way down to the current one, with the entries that are left.
struct Level {
    entries: std::vec::IntoIter<TreeFile>,
    /// The number of the link that led here; 0 for none.
    link: usize,
}

/// The entries to show below a directory.
struct Below {
    entries: Vec<TreeFile>,
    note: Option<String>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(args: &'a Args, volume: &'a Opened) -> Self {
        let patterns = |texts| Patterns::new(texts, args.ignore_case);
        let (patterns, ignored) = (patterns(&args.pattern), patterns(&args.ignored));
        let levels = Vec::new();
        let seen = HashSet::new();
        let visited = HashSet::new();
        Self {
            args,
            volume,
            patterns,
            ignored,
            levels,
            seen,
            visited,
            followed: 0,
        }
    }

    /// Begins with a directory. Returns it, unless it cannot be read, which is reported.
    pub(super) fn start(
        &mut self,
        path: &Path,
        app: &mut App,
        out: &mut Out,
    ) -> io::Result<Option<Item>> {
        let found = self
            .volume
            .reach(path, |session, path| session.metadata(path));
        let found = found.and_then(|found| Ok((found, self.read(path, false)?)));
        let (metadata, below) = match found {
            Ok(found) => found,
            Err(error) => {
                flush(out)?;
                app.error(self.volume.image_path(path), &error);
                return Ok(None);
            }
        };
        self.visited.insert(metadata.ino());
        let name = path.file_name().unwrap_or_default().to_owned();
        let entry = TreeFile {
            name,
            path: path.to_owned(),
            ino: metadata.ino(),
            kind: FileType::Directory,
            metadata: Some(metadata),
            link: None,
        };
        Ok(Some(self.item(entry, 0, true, false, Some(below), 0)))
    }

    /// Returns the next file.
    pub(super) fn next(&mut self, app: &mut App, out: &mut Out) -> io::Result<Option<Item>> {
        let (entry, is_last, link) = loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            match level.entries.next() {
                Some(entry) => break (entry, level.entries.as_slice().is_empty(), level.link),
                None => drop(self.levels.pop()),
            }
        };
        let depth = self.levels.len();
        let name = entry.name.as_bytes();
        let is_matched =
            self.args.matchdirs && self.patterns.matches(name, true) && entry.is_directory();
        let (below, link) = self.below(&entry, depth, is_matched, link, app, out)?;
        Ok(Some(
            self.item(entry, depth, is_last, is_matched, below, link),
        ))
    }

    /// Returns what is below an entry, if the tree shows that, and the number of the link that led
    /// there.
    fn below(
        &mut self,
        entry: &TreeFile,
        depth: usize,
        is_matched: bool,
        link: usize,
        app: &mut App,
        out: &mut Out,
    ) -> io::Result<(Option<Below>, usize)> {
        let note = |text: &str| {
            Some(Below {
                entries: Vec::new(),
                note: Some(text.to_owned()),
            })
        };
        let leads_to = entry
            .link
            .as_ref()
            .and_then(|link| link.metadata.as_ref())
            .map(Metadata::ino);
        let (ino, link) = match (entry.kind, leads_to) {
            (FileType::Directory, _) => (entry.ino, link),
            (_, Some(ino)) if self.args.follow && entry.leads_to_directory() => {
                if self.visited.contains(&ino) {
                    return Ok((note("recursive, not followed"), link));
                }
                self.followed += 1;
                (ino, self.followed)
            }
            _ => return Ok((None, link)),
        };
        self.visited.insert(ino);
        if self.args.level.is_some_and(|most| depth >= most as usize) {
            return Ok((None, link));
        }
        // A directory has one parent, so one that occurs twice is a loop in a corrupt volume.
        if !self.seen.insert((link, ino)) {
            flush(out)?;
            let image_path = self.volume.image_path(&entry.path);
            app.fail_at(
                ExitStatus::Corrupt,
                image_path,
                "directory is in another place too",
            );
            return Ok((note("error opening dir"), link));
        }
        match self.read(&entry.path, is_matched) {
            Ok(below) => Ok((Some(below), link)),
            Err(error) => {
                flush(out)?;
                app.error(self.volume.image_path(&entry.path), &error);
                Ok((note("error opening dir"), link))
            }
        }
    }

    /// Makes an item, and goes on below it.
    fn item(
        &mut self,
        entry: TreeFile,
        depth: usize,
        is_last: bool,
        is_matched: bool,
        below: Option<Below>,
        link: usize,
    ) -> Item {
        let Below { entries, note } = below.unwrap_or(Below {
            entries: Vec::new(),
            note: None,
        });
        let has_children = !entries.is_empty();
        if has_children {
            self.levels.push(Level {
                entries: entries.into_iter(),
                link,
            });
        }
        let size = entry.metadata.as_ref().map_or(0, Metadata::len);
        Item {
            entry,
            depth,
            is_last,
            has_children,
            is_matched,
            note,
            size,
        }
    }

    /// Returns the entries of a directory that are to be shown, in order.
    fn read(&self, path: &Path, is_matched: bool) -> extern4::Result<Below> {
        let mut entries = Vec::new();
        let mut listed = self
            .volume
            .reach(path, |session, path| session.read_dir(path))?;
        if self.args.needs_metadata() {
            listed = listed.with_metadata();
        }
        for found in listed {
            let found = found?;
            let name = found.file_name().as_bytes();
            if name.starts_with(b".") && !self.args.all {
                continue;
            }
            let kind = found.file_type()?;
            let is_directory = kind == FileType::Directory;
            let is_wanted = is_matched || is_directory || self.patterns.is_empty();
            if self.ignored.matches(name, is_directory)
                || !is_wanted && !self.patterns.matches(name, false)
            {
                continue;
            }
            let entry = self.entry(path, &found, kind)?;
            if entry.is_directory() || !self.args.directories {
                entries.push(entry);
            }
        }
        if self.args.filelimit.is_some_and(|most| entries.len() > most) {
            let note = format!(
                "{} entries exceeds filelimit, not opening dir",
                entries.len()
            );
            return Ok(Below {
                entries: Vec::new(),
                note: Some(note),
            });
        }
        self.sort(&mut entries);
        Ok(Below {
            entries,
            note: None,
        })
    }

    fn entry(
        &self,
        directory: &Path,
        found: &DirEntry,
        kind: FileType,
    ) -> extern4::Result<TreeFile> {
        let path = directory.join(found.file_name());
        let link = (kind == FileType::Symlink).then(|| Link {
            target: self
                .volume
                .reach(&path, |session, path| session.read_link(path))
                .map(|target| target.as_os_str().as_bytes().to_vec())
                .unwrap_or_default(),
            metadata: self
                .volume
                .reach(&path, |session, path| session.metadata(path))
                .ok(),
        });
        let metadata = self
            .args
            .needs_metadata()
            .then(|| found.metadata())
            .transpose()?;
        Ok(TreeFile {
            name: found.file_name().to_owned(),
            path,
            ino: found.ino(),
            kind,
            metadata,
            link,
        })
    }

    fn sort(&self, entries: &mut [TreeFile]) {
        let order = self.args.order();
        if order == Order::None {
            return;
        }
        entries.sort_by(|a, b| {
            let ordering = compare(a, b, order);
            let ordering = if self.args.reverse {
                ordering.reverse()
            } else {
                ordering
            };
            let directories_first = b.is_directory().cmp(&a.is_directory());
            match (self.args.dirsfirst, self.args.filesfirst) {
                (true, _) => directories_first.then(ordering),
                (false, true) => directories_first.reverse().then(ordering),
                (false, false) => ordering,
            }
        });
    }
}

fn compare(a: &TreeFile, b: &TreeFile, order: Order) -> Ordering {
    let names = || a.name.as_bytes().cmp(b.name.as_bytes());
    let by_time = |time: fn(&Metadata) -> Timespec| {
        // As tree(1), which takes no notice of fractions.
        let time = |entry: &TreeFile| entry.metadata.as_ref().map(|found| time(found).sec);
        time(a).cmp(&time(b))
    };
    let size = |entry: &TreeFile| entry.metadata.as_ref().map(Metadata::len);
    let ordering = match order {
        Order::Version => compare_versions(a.name.as_bytes(), b.name.as_bytes()),
        Order::Size => size(b).cmp(&size(a)),
        Order::Mtime => by_time(Metadata::mtime),
        Order::Ctime => by_time(Metadata::ctime),
        Order::Name | Order::None => Ordering::Equal,
    };
    ordering.then_with(names)
}
