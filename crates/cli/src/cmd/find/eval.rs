//! Evaluates an expression on an entry.

use std::cell::{Cell, OnceCell};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4::{DirEntry, FileType, Metadata, Timespec};

use crate::app::Opened;

use super::action::Action;
use super::expr::{Count, Expr, Reference, Test, Time, Unit, Who};

/// A second in nanoseconds.
const SECOND: i128 = 1_000_000_000;
const MINUTE: i128 = 60 * SECOND;

/// Where the search goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Into the directory, if the entry is one.
    Descend,
    /// Past the entry.
    Prune,
    /// Nowhere: the search ends.
    Quit,
}

/// An entry under test. A test reads attributes when it first needs them. An attribute that cannot
/// be read makes the test false and is reported.
pub(super) struct Candidate<'a> {
    pub(super) entry: &'a DirEntry,
    pub(super) volume: &'a Opened,
    metadata: OnceCell<Option<Metadata>>,
    error: Cell<Option<extern4::Error>>,
}

impl<'a> Candidate<'a> {
    pub(super) fn new(entry: &'a DirEntry, volume: &'a Opened) -> Self {
        Self { entry, volume, metadata: OnceCell::new(), error: Cell::new(None) }
    }

    /// Takes the error that a test met.
    pub(super) fn take_error(&self) -> Option<extern4::Error> {
        self.error.take()
    }

    /// Returns the value; on an error, keeps the error and returns `None`.
    fn kept<T>(&self, result: extern4::Result<T>) -> Option<T> {
        result.map_err(|error| self.error.set(Some(error))).ok()
    }

    /// Returns the entry's attributes.
    pub(super) fn metadata(&self) -> Option<&Metadata> {
        self.metadata.get_or_init(|| self.kept(self.entry.metadata())).as_ref()
    }

    /// Returns the entry's path.
    pub(super) fn path(&self) -> &Path {
        self.entry.path()
    }

    fn kind(&self) -> Option<FileType> {
        self.kept(self.entry.file_type())
    }

    fn link(&self) -> Option<std::path::PathBuf> {
        if self.kind()? != FileType::Symlink {
            return None;
        }
        self.kept(self.entry.parent().read_link(self.entry.file_name()))
    }

    fn is_empty(&self) -> Option<bool> {
        Some(match self.kind()? {
            FileType::Regular => self.metadata()?.len() == 0,
            FileType::Directory => {
                match self.kept(self.entry.parent().read_dir(self.entry.file_name()))?.next() {
                    None => true,
                    Some(entry) => {
                        self.kept(entry)?;
                        false
                    }
                }
            }
            _ => false,
        })
    }

    fn time(&self, time: Time) -> Option<Timespec> {
        let metadata = self.metadata()?;
        Some(match time {
            Time::Access => metadata.atime(),
            Time::Modify => metadata.mtime(),
            Time::Change => metadata.ctime(),
        })
    }

    fn has_xattr(&self, name: &std::ffi::OsStr) -> Option<bool> {
        Some(self.kept(self.entry.parent().lgetxattr(self.entry.file_name(), name))?.is_some())
    }
}

/// Evaluates an expression; `act` runs its actions.
pub(super) fn eval(
    expr: &Expr,
    candidate: &Candidate<'_>,
    flow: &mut Flow,
    act: &mut dyn FnMut(Action) -> io::Result<()>,
) -> io::Result<bool> {
    if *flow == Flow::Quit {
        return Ok(false);
    }
    match expr {
        Expr::And(parts) => {
            for part in parts {
                if !eval(part, candidate, flow, act)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Expr::Or(parts) => {
            for part in parts {
                if eval(part, candidate, flow, act)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Expr::List(parts) => {
            let mut last = false;
            for part in parts {
                last = eval(part, candidate, flow, act)?;
            }
            Ok(last)
        }
        Expr::Not(part) => Ok(!eval(part, candidate, flow, act)?),
        Expr::Test(test) => Ok(holds(test, candidate).unwrap_or(false)),
        Expr::Action(action) => act(*action).map(|()| true),
        Expr::Prune => {
            *flow = Flow::Prune;
            Ok(true)
        }
        Expr::Quit => {
            *flow = Flow::Quit;
            Ok(true)
        }
    }
}

/// Returns whether a test holds; `None` if the entry could not be read.
fn holds(test: &Test, candidate: &Candidate<'_>) -> Option<bool> {
    let metadata = || candidate.metadata();
    Some(match test {
        Test::True => true,
        Test::False => false,
        Test::Name(glob) => glob.matches(name(candidate.entry)),
        Test::Path(glob) => glob.matches(candidate.path().as_os_str().as_bytes()),
        Test::LinkName(glob) => glob.matches(candidate.link()?.as_os_str().as_bytes()),
        Test::Regex(regex) => regex.is_match(candidate.path().as_os_str().as_bytes()),
        Test::Type(types) => types.contains(&candidate.kind()?),
        Test::Size { count, unit } => count.matches(metadata()?.len().div_ceil(*unit)),
        Test::Empty => candidate.is_empty()?,
        Test::Links(count) => count.matches(u64::from(metadata()?.nlink())),
        Test::Inode(count) => count.matches(candidate.entry.ino()),
        Test::User(Who::Id(uid)) => metadata()?.uid() == *uid,
        Test::Group(Who::Id(gid)) => metadata()?.gid() == *gid,
        Test::Uid(count) => count.matches(u64::from(metadata()?.uid())),
        Test::Gid(count) => count.matches(u64::from(metadata()?.gid())),
        Test::NoUser => !candidate.volume.names().has_user(metadata()?.uid()),
        Test::NoGroup => !candidate.volume.names().has_group(metadata()?.gid()),
        Test::Perm(perm) => perm.matches(metadata()?.mode()),
        Test::Newer { time, than: Reference::Time(than) } => candidate.time(*time)? > *than,
        Test::Age { time, count, unit } => is_aged(age(candidate.time(*time)?), *count, *unit),
        Test::Xattr(name) => candidate.has_xattr(name)?,
        Test::SameFile(Reference::Inode(ino)) => *ino == Some(candidate.entry.ino()),
        // Names are bound to a volume before any evaluation.
        Test::User(Who::Name(_)) | Test::Group(Who::Name(_)) | Test::Newer { .. } | Test::SameFile(_) => {
            false
        }
    })
}

/// Returns the name that `-name` tests: the last name of the starting point, a slash for the root.
fn name(entry: &DirEntry) -> &[u8] {
    let name = entry.file_name().as_bytes();
    if entry.depth() > 0 {
        return name;
    }
    let Some(last) = name.iter().rposition(|byte| *byte != b'/') else { return b"/" };
    name[..=last].rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

/// Returns the nanoseconds since `time`; negative for a time in the future.
fn age(time: Timespec) -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i128::from(now.as_secs()) * SECOND + i128::from(now.subsec_nanos());
    now - (i128::from(time.sec) * SECOND + i128::from(time.nsec))
}

/// Returns whether an age matches. As in GNU `find`, days that are not over do not count, and
/// minutes that are not over do.
fn is_aged(age: i128, count: Count, unit: Unit) -> bool {
    match (unit, count) {
        (Unit::Days, count) => count.matches(u64::try_from(age / (86_400 * SECOND)).unwrap_or(0)),
        (Unit::Minutes, Count::Exactly(count)) => {
            let end = i128::from(count) * MINUTE;
            end - MINUTE < age && age <= end
        }
        (Unit::Minutes, Count::More(count)) => age > i128::from(count) * MINUTE,
        (Unit::Minutes, Count::Less(count)) => age < i128::from(count) * MINUTE,
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, SECOND, Unit, is_aged};

    #[test]
    fn minutes_are_rounded_up_and_days_down() {
        let of = |count, unit| -> Vec<i128> {
            let ages = [-30, 0, 30, 59, 61, 90, 119, 121, 86_399, 86_401];
            ages.into_iter().filter(|age| is_aged(age * SECOND, count, unit)).collect()
        };
        assert_eq!(of(Count::Exactly(1), Unit::Minutes), [30, 59]);
        assert_eq!(of(Count::Exactly(2), Unit::Minutes), [61, 90, 119]);
        assert_eq!(of(Count::Exactly(0), Unit::Minutes), [-30, 0]);
        assert_eq!(of(Count::More(1), Unit::Minutes), [61, 90, 119, 121, 86_399, 86_401]);
        assert_eq!(of(Count::Less(1), Unit::Minutes), [-30, 0, 30, 59]);
        assert_eq!(of(Count::Exactly(1), Unit::Days), [86_401]);
        assert_eq!(of(Count::More(0), Unit::Days), [86_401]);
    }
}
