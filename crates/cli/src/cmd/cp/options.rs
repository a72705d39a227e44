//! The options of a copy, as they take effect together.
//!
//! `cp` makes them from its arguments, and both directions of a copy read them. Later options
//! override earlier ones, as GNU's `cp` has it; a list with an unknown attribute is a usage error.

use std::ffi::OsString;

use clap::{ArgMatches, Command, FromArgMatches};
use extern4::Timespec;

use super::Args;
use crate::owner::OwnerIds;

/// The attributes that copies keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Modes and ACLs.
    pub(super) mode: bool,
    /// Owners and groups.
    pub(super) ownership: bool,
    /// Times of the last reading and of the last change.
    pub(super) timestamps: bool,
    /// Hard links among the copies.
    pub(super) links: bool,
    /// Extended attributes.
    pub(super) xattr: bool,
    /// New files get modes as if they had no originals.
    pub(super) new_modes: bool,
}

/// A list of attributes, and whether to keep them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttributeList(Vec<Attribute>);

/// One attribute of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    All,
}

impl AttributeList {
    /// Reads a list of attributes of the command line.
    pub(super) fn argument(text: &str) -> Result<Self, String> {
        let one = |name| {
            Ok(match name {
                "mode" => Attribute::Mode,
                "ownership" => Attribute::Ownership,
                "timestamps" => Attribute::Timestamps,
                "links" => Attribute::Links,
                // A context is one of the attributes.
                "xattr" | "context" => Attribute::Xattr,
                "all" => Attribute::All,
                _ => return Err("write it as mode,ownership,timestamps,links,xattr or all".to_owned()),
            })
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

impl Kept {
    /// Everything.
    pub(super) const ALL: Self =
        Self { mode: true, ownership: true, timestamps: true, links: true, xattr: true, new_modes: false };

    /// Returns what the options keep; the last one counts.
    fn of(matches: &ArgMatches) -> Self {
        let mut changes: Vec<(usize, Self, bool)> = Vec::new();
        let plain = Self { mode: true, ownership: true, timestamps: true, ..Self::default() };
        let links = Self { links: true, ..Self::default() };
        for (flag, kept) in [("archive", Self::ALL), ("preserve_usual", plain), ("links", links)] {
            if matches.get_flag(flag) {
                changes.extend(matches.indices_of(flag).into_iter().flatten().map(|at| (at, kept, true)));
            }
        }
        for (list, keeps) in [("preserve", true), ("no_preserve", false)] {
            let places = matches.indices_of(list).into_iter().flatten();
            let lists = matches.get_many::<AttributeList>(list).into_iter().flatten();
            changes.extend(places.zip(lists).map(|(at, list)| (at, Self::named(list), keeps)));
        }
        changes.sort_by_key(|(at, ..)| *at);
        changes.into_iter().fold(Self::default(), |kept, (_, named, keeps)| kept.with(named, keeps))
    }

    /// Returns whether attributes apart from links are kept.
    pub(super) fn has_any(self) -> bool {
        self.mode || self.ownership || self.timestamps || self.xattr
    }

    /// Returns the mode that a new file starts with: its own if no later step changes it, else the
    /// owner's bits.
    pub(super) fn first_mode(self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        match (self.mode, self.new_modes) {
            (true, _) => mode & 0o700,
            (false, false) => mode & 0o777 & !umask,
            (false, true) if is_directory => 0o777 & !umask,
            (false, true) => 0o666 & !umask,
        }
    }

    fn named(list: &AttributeList) -> Self {
        let has = |attribute| list.0.contains(&attribute) || list.0.contains(&Attribute::All);
        Self {
            mode: has(Attribute::Mode),
            ownership: has(Attribute::Ownership),
            timestamps: has(Attribute::Timestamps),
            links: has(Attribute::Links),
            xattr: has(Attribute::Xattr),
            new_modes: false,
        }
    }

    fn with(self, named: Self, keeps: bool) -> Self {
        let one = |kept, named| if named { keeps } else { kept };
        Self {
            mode: one(self.mode, named.mode),
            ownership: one(self.ownership, named.ownership),
            timestamps: one(self.timestamps, named.timestamps),
            links: one(self.links, named.links),
            xattr: one(self.xattr, named.xattr),
            new_modes: if named.mode { !keeps } else { self.new_modes },
        }
    }
}

/// The options themselves are those of [`Args`]. The derived parsers would lose their order.
impl clap::Args for Kept {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Kept {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::of(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::of(matches);
        Ok(())
    }
}

/// Which symbolic links a copy follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// None: it copies them.
    Never,
    /// Those on the command line.
    Named,
    /// All.
    Always,
}

/// The ways to copy holes.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sparse {
    /// Holes stay holes.
    #[default]
    Auto,
    /// Zeroes become holes.
    Always,
    /// Holes become zeroes.
    Never,
}

/// How a copy comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making {
    /// Its contents are copied.
    Copy,
    /// It is a hard link.
    HardLink,
    /// It is a symbolic link.
    Symlink,
}

impl Args {
    /// Returns which links the copy follows.
    pub(super) fn follow(&self) -> Follow {
        let copies_links = self.recursive() || self.links;
        match (self.no_dereference, self.command_line, self.dereference) {
            (true, ..) => Follow::Never,
            (false, true, _) => Follow::Named,
            (false, false, true) => Follow::Always,
            (false, false, false) if copies_links => Follow::Never,
            (false, false, false) => Follow::Named,
        }
    }

    /// Returns how copies come to be.
    pub(super) fn making(&self) -> Making {
        match (self.link, self.symbolic_link) {
            (true, _) => Making::HardLink,
            (false, true) => Making::Symlink,
            (false, false) => Making::Copy,
        }
    }

    /// Returns whether files that are there are removed first.
    pub(super) fn removes_existing(&self) -> bool {
        self.remove_destination || self.force && self.making() != Making::Copy
    }
}

/// The attributes that a copy gets: those of the original, as far as they are kept, and those that
/// the command line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewAttributes {
    /// The owner, if it is set.
    pub(super) uid: Option<u32>,
    /// The group, if it is set.
    pub(super) gid: Option<u32>,
    /// The mode, if it is set.
    pub(super) mode: Option<u32>,
    /// The times, if they are set.
    pub(super) times: Option<(Timespec, Timespec)>,
}

/// The attributes of an original.
#[derive(Clone, Copy)]
pub(super) struct OldAttributes {
    /// The owner.
    pub(super) uid: u32,
    /// The group.
    pub(super) gid: u32,
    /// The mode.
    pub(super) mode: u32,
    /// The times.
    pub(super) times: (Timespec, Timespec),
}

impl OldAttributes {
    /// Returns the attributes of a copy that keeps some of these.
    pub(super) fn kept_by(&self, kept: Kept, owner: &OwnerIds) -> NewAttributes {
        NewAttributes {
            uid: owner.uid.or(kept.ownership.then_some(self.uid)),
            gid: owner.gid.or(kept.ownership.then_some(self.gid)),
            mode: kept.mode.then_some(self.mode & 0o7777),
            times: kept.timestamps.then_some(self.times),
        }
    }
}

/// Returns a source of the command line without the slashes at its end, if that is wanted.
pub(super) fn source(args: &Args, text: &OsString) -> OsString {
    if args.strip_trailing_slashes { crate::operands::without_slashes(text) } else { text.clone() }
}
