//! The expressions that `find` evaluates: tests, actions and operators.
//!
//! `parse` makes them, and `eval` reads them. They are plain data. Names of users stay names until
//! the volume is known whose names count.

use std::ffi::{OsStr, OsString};
use std::io;

use extern4::Glob;
use extern4::{Access, FileType, Timespec};
use regex::bytes::Regex;

use crate::app::App;

use super::action::Action;
use super::candidate::PathForm;
use super::perm::Perm;

/// An expression: tests, actions and the operators between them.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    /// All of them, until one is false.
    And(Vec<Expr>),
    /// One of them, until it is true.
    Or(Vec<Expr>),
    /// All of them; the last one counts.
    List(Vec<Expr>),
    /// The negation.
    Not(Box<Expr>),
    /// A test of an entry.
    Test(Test),
    /// An action; true.
    Action(Action),
    /// Goes no deeper here; true.
    Prune,
    /// Ends the search; true.
    Quit,
}

/// A test of an entry.
#[derive(Clone, Debug)]
pub(super) enum Test {
    True,
    False,
    Name(Glob),
    Path(Glob, PathForm),
    LinkName(Glob),
    Regex(Regex, PathForm),
    Type(Vec<FileType>),
    OtherType(Vec<FileType>),
    May(Access),
    FsType(String),
    Size {
        count: Count,
        unit: u64,
    },
    Empty,
    Links(Count),
    Inode(Count),
    User(Who),
    Group(Who),
    Uid(Count),
    Gid(Count),
    NoUser,
    NoGroup,
    Perm(Perm),
    Newer {
        time: Time,
        than: Reference,
        of: Time,
    },
    Age {
        time: Time,
        count: Count,
        unit: Unit,
    },
    Xattr(OsString),
    SameFile(Reference),
}

impl Test {
    fn reads_attributes(&self) -> bool {
        match self {
            Self::Size { .. }
            | Self::Links(_)
            | Self::User(_)
            | Self::Group(_)
            | Self::Uid(_)
            | Self::Gid(_)
            | Self::NoUser
            | Self::NoGroup
            | Self::Perm(_)
            | Self::Newer { .. }
            | Self::Age { .. } => true,
            Self::True
            | Self::False
            | Self::Name(_)
            | Self::Path(..)
            | Self::LinkName(_)
            | Self::Regex(..)
            | Self::Type(_)
            | Self::OtherType(_)
            | Self::May(_)
            | Self::FsType(_)
            | Self::Empty
            | Self::Inode(_)
            | Self::Xattr(_)
            | Self::SameFile(_) => false,
        }
    }
}

/// A time stamp of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Access,
    Modify,
    Change,
    Birth,
}

/// A unit of age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Days,
    Minutes,
}

/// A number to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(u64),
    More(u64),
    Less(u64),
}

impl Count {
    /// Returns whether `value` matches.
    pub(super) fn matches(self, value: u64) -> bool {
        match self {
            Self::Exactly(count) => value == count,
            Self::More(count) => value > count,
            Self::Less(count) => value < count,
        }
    }
}

/// A user or group; a name until the volume whose names count is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Id(u32),
    Name(String),
}

/// A file to compare with; its name until the volume is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Name(OsString),
    /// The time that counts.
    Time(Timespec),
    /// The inode number, if the file is in the searched volume.
    Inode(Option<u64>),
}

impl Expr {
    /// Returns whether the expression has an action, so that matches need not be printed.
    pub(super) fn has_action(&self) -> bool {
        match self {
            Self::And(parts) | Self::Or(parts) | Self::List(parts) => {
                parts.iter().any(Self::has_action)
            }
            Self::Not(part) => part.has_action(),
            Self::Action(_) | Self::Quit => matches!(self, Self::Action(_)),
            Self::Test(_) | Self::Prune => false,
        }
    }

    /// Returns whether the expression needs attributes of almost every entry, so that it is best to
    /// read them along with the entries.
    pub(super) fn reads_attributes(&self) -> bool {
        match self {
            // Only a few entries get past the first test.
            Self::And(parts) => parts.first().is_some_and(Self::reads_attributes),
            Self::Or(parts) | Self::List(parts) => parts.iter().any(Self::reads_attributes),
            Self::Not(part) => part.reads_attributes(),
            Self::Test(test) => test.reads_attributes(),
            Self::Action(action) => action.reads_attributes(),
            Self::Prune | Self::Quit => false,
        }
    }

    /// Calls `look` with every action.
    fn actions(&self, look: &mut dyn FnMut(&Action)) {
        match self {
            Self::And(parts) | Self::Or(parts) | Self::List(parts) => {
                parts.iter().for_each(|part| part.actions(look));
            }
            Self::Not(part) => part.actions(look),
            Self::Action(action) => look(action),
            Self::Test(_) | Self::Prune | Self::Quit => {}
        }
    }

    /// Returns whether the search may change the volume.
    pub(super) fn writes(&self) -> bool {
        let mut writes = false;
        self.actions(&mut |action| {
            writes |= match action {
                Action::Delete => true,
                Action::Exec(exec) => exec.writes(),
                _ => false,
            };
        });
        writes
    }

    /// Returns whether the search runs commands.
    pub(super) fn runs_commands(&self) -> bool {
        let mut runs = false;
        self.actions(&mut |action| runs |= matches!(action, Action::Exec(_)));
        runs
    }

    /// Returns the subcommand of extern4's that a command names and that is not there.
    pub(super) fn unknown_subcommand(&self, app: &App) -> Option<OsString> {
        let mut unknown = None;
        self.actions(&mut |action| {
            let Action::Exec(exec) = action else { return };
            let name = exec.subcommand().filter(|name| !app.knows_command(name));
            unknown = unknown.take().or(name.map(OsStr::to_owned));
        });
        unknown
    }

    /// Runs the commands that still wait for more files.
    pub(super) fn finish(&self, app: &mut App) -> io::Result<()> {
        let mut done = Ok(());
        self.actions(&mut |action| {
            if let (Action::Exec(exec), true) = (action, done.is_ok()) {
                done = exec.finish(app);
            }
        });
        done
    }

    /// Returns the expression with every test replaced by the result of `change`.
    pub(super) fn try_map<E>(
        &self,
        change: &mut impl FnMut(&Test) -> Result<Test, E>,
    ) -> Result<Self, E> {
        let mut all = |parts: &[Self]| {
            parts
                .iter()
                .map(|part| part.try_map(change))
                .collect::<Result<_, E>>()
        };
        Ok(match self {
            Self::And(parts) => Self::And(all(parts)?),
            Self::Or(parts) => Self::Or(all(parts)?),
            Self::List(parts) => Self::List(all(parts)?),
            Self::Not(part) => Self::Not(Box::new(part.try_map(change)?)),
            Self::Test(test) => Self::Test(change(test)?),
            Self::Action(action) => Self::Action(action.clone()),
            Self::Prune => Self::Prune,
            Self::Quit => Self::Quit,
        })
    }
}
