//! Evaluates an expression on an entry.
//!
//! `find` calls it for each entry. Tests run from left to right and only as far as the result needs
//! them, as GNU `find` has it.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4::Timespec;

use super::action::Action;
use super::candidate::Candidate;
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

/// Evaluates an expression; `act` runs its actions.
pub(super) fn eval(
    expr: &Expr,
    candidate: &Candidate<'_>,
    flow: &mut Flow,
    act: &mut dyn FnMut(&Action) -> io::Result<bool>,
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
        Expr::Action(action) => act(action),
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
        Test::Name(glob) => glob.matches(name(candidate)),
        Test::Path(glob, form) => candidate.path_matches(*form, |path| glob.matches(path)),
        Test::LinkName(glob) => glob.matches(candidate.link()?.as_os_str().as_bytes()),
        Test::Regex(regex, form) => candidate.path_matches(*form, |path| regex.is_match(path)),
        Test::Type(types) => types.contains(&candidate.kind()?),
        Test::OtherType(types) => types.contains(&candidate.other_kind()?),
        Test::May(access) => candidate.may(*access),
        Test::Size { count, unit } => count.matches(metadata()?.len().div_ceil(*unit)),
        Test::Empty => candidate.is_empty()?,
        Test::Links(count) => count.matches(u64::from(metadata()?.nlink())),
        Test::Inode(count) => count.matches(candidate.ino()?),
        Test::User(Who::Id(uid)) => metadata()?.uid() == *uid,
        Test::Group(Who::Id(gid)) => metadata()?.gid() == *gid,
        Test::Uid(count) => count.matches(u64::from(metadata()?.uid())),
        Test::Gid(count) => count.matches(u64::from(metadata()?.gid())),
        Test::NoUser => !candidate.volume.names().has_user(metadata()?.uid()),
        Test::NoGroup => !candidate.volume.names().has_group(metadata()?.gid()),
        Test::Perm(perm) => perm.matches(metadata()?.mode()),
        Test::Newer {
            time,
            than: Reference::Time(than),
            ..
        } => time_of(candidate, *time)? > *than,
        Test::Age { time, count, unit } => is_aged(age(time_of(candidate, *time)?), *count, *unit),
        Test::Xattr(name) => candidate.has_xattr(name)?,
        Test::SameFile(Reference::Inode(ino)) => *ino == candidate.ino(),
        // Names are bound to a volume before any evaluation.
        Test::User(Who::Name(_))
        | Test::Group(Who::Name(_))
        | Test::Newer { .. }
        | Test::SameFile(_)
        | Test::FsType(_) => false,
    })
}

/// Returns a time of the entry.
fn time_of(candidate: &Candidate<'_>, time: Time) -> Option<Timespec> {
    let metadata = candidate.metadata()?;
    Some(match time {
        Time::Access => metadata.atime(),
        Time::Modify => metadata.mtime(),
        Time::Change => metadata.ctime(),
        Time::Birth => metadata.btime()?,
    })
}

/// Returns the name that `-name` tests: the last name of the starting point, a slash for the root.
fn name<'a>(candidate: &'a Candidate<'_>) -> &'a [u8] {
    if candidate.depth > 0 {
        return candidate.entry.file_name().as_bytes();
    }
    let name = candidate.path.as_os_str().as_bytes();
    let Some(last) = name.iter().rposition(|byte| *byte != b'/') else {
        return b"/";
    };
    name[..=last]
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or(name)
}

/// Returns the nanoseconds since `time`; negative for a time in the future.
fn age(time: Timespec) -> i128 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
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
            ages.into_iter()
                .filter(|age| is_aged(age * SECOND, count, unit))
                .collect()
        };
        assert_eq!(of(Count::Exactly(1), Unit::Minutes), [30, 59]);
        assert_eq!(of(Count::Exactly(2), Unit::Minutes), [61, 90, 119]);
        assert_eq!(of(Count::Exactly(0), Unit::Minutes), [-30, 0]);
        assert_eq!(
            of(Count::More(1), Unit::Minutes),
            [61, 90, 119, 121, 86_399, 86_401]
        );
        assert_eq!(of(Count::Less(1), Unit::Minutes), [-30, 0, 30, 59]);
        assert_eq!(of(Count::Exactly(1), Unit::Days), [86_401]);
        assert_eq!(of(Count::More(0), Unit::Days), [86_401]);
    }
}
