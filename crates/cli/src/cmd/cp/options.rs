//! The options of a copy, as they take effect together.
//!
//! `cp` makes the library's options from its arguments here. Later options override earlier ones,
//! as GNU's `cp` has it; a list with an unknown attribute is a usage error.

use std::ffi::OsString;

use clap::{ArgMatches, Command, FromArgMatches};
use extern4::copy::{CopyMethod, CopyOptions, Follow, Preserve};

use super::Args;
use crate::operands::DestinationKind;
use crate::owner::OwnerIds;

/// The attributes that copies keep, by the options that say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(pub(super) Preserve);

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
                _ => {
                    return Err(
                        "write it as mode,ownership,timestamps,links,xattr or all".to_owned()
                    );
                }
            })
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the attributes of the list.
    fn preserve(&self) -> Preserve {
        let has = |attribute| self.0.contains(&attribute) || self.0.contains(&Attribute::All);
        Preserve {
            mode: has(Attribute::Mode),
            ownership: has(Attribute::Ownership),
            timestamps: has(Attribute::Timestamps),
            links: has(Attribute::Links),
            xattr: has(Attribute::Xattr),
            new_modes: false,
        }
    }
}

impl Kept {
    /// Returns what the options keep; the last one counts.
    fn of(matches: &ArgMatches) -> Self {
        let mut changes: Vec<(usize, Preserve, bool)> = Vec::new();
        let plain = Preserve {
            mode: true,
            ownership: true,
            timestamps: true,
            ..Preserve::default()
        };
        let links = Preserve {
            links: true,
            ..Preserve::default()
        };
        for (flag, kept) in [
            ("archive", Preserve::ALL),
            ("preserve_usual", plain),
            ("links", links),
        ] {
            if matches.get_flag(flag) {
                changes.extend(
                    matches
                        .indices_of(flag)
                        .into_iter()
                        .flatten()
                        .map(|at| (at, kept, true)),
                );
            }
        }
        for (list, keeps) in [("preserve", true), ("no_preserve", false)] {
            let places = matches.indices_of(list).into_iter().flatten();
            let lists = matches
                .get_many::<AttributeList>(list)
                .into_iter()
                .flatten();
            changes.extend(
                places
                    .zip(lists)
                    .map(|(at, list)| (at, list.preserve(), keeps)),
            );
        }
        changes.sort_by_key(|(at, ..)| *at);
        let none = Preserve::default();
        Self(
            changes
                .into_iter()
                .fold(none, |kept, (_, named, keeps)| changed(kept, named, keeps)),
        )
    }
}

/// Returns attributes of which the named ones are kept, or not.
fn changed(kept: Preserve, named: Preserve, keeps: bool) -> Preserve {
    let one = |kept, named| if named { keeps } else { kept };
    Preserve {
        mode: one(kept.mode, named.mode),
        ownership: one(kept.ownership, named.ownership),
        timestamps: one(kept.timestamps, named.timestamps),
        links: one(kept.links, named.links),
        xattr: one(kept.xattr, named.xattr),
        new_modes: if named.mode { !keeps } else { kept.new_modes },
    }
}

/// The options themselves are in [`Args`]. The derived parsers would lose their order.
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

impl From<Sparse> for extern4::copy::Sparse {
    fn from(sparse: Sparse) -> Self {
        match sparse {
            Sparse::Auto => Self::Auto,
            Sparse::Always => Self::Always,
            Sparse::Never => Self::Never,
        }
    }
}

impl Args {
    /// Returns the options of the copy, in which copies get this owner.
    pub(super) fn options(&self, owner: OwnerIds) -> CopyOptions {
        CopyOptions {
            recursive: self.recursive(),
            special_files: !self.no_specials,
            preserve: self.kept.0,
            uid: owner.uid,
            gid: owner.gid,
            follow: self.follow(),
            sparse: self.sparse.unwrap_or_default().into(),
            method: self.method(),
            no_target_directory: self.operands.0.kind() == DestinationKind::Name,
            parents: self.parents,
            attributes_only: self.attributes_only,
            one_file_system: self.one_file_system,
            force: self.force,
            remove_destination: self.removes_existing(),
            asks: !self.overwrite.is_plain(),
            sets_aside: self.overwrite.backup.is_on(),
            ..CopyOptions::default()
        }
    }

    /// Returns which links the copy follows.
    fn follow(&self) -> Follow {
        let copies_links = self.recursive() || self.links;
        match (self.no_dereference, self.command_line, self.dereference) {
            (true, ..) => Follow::Never,
            (false, true, _) => Follow::Named,
            (false, false, true) => Follow::Always,
            (false, false, false) if copies_links => Follow::Never,
            (false, false, false) => Follow::Named,
        }
    }

    /// Returns how copies are made.
    pub(super) fn method(&self) -> CopyMethod {
        match (self.link, self.symbolic_link) {
            (true, _) => CopyMethod::HardLink,
            (false, true) => CopyMethod::Symlink,
            (false, false) => CopyMethod::Copy,
        }
    }

    /// Returns whether files that are there are removed first.
    fn removes_existing(&self) -> bool {
        self.remove_destination || self.force && self.method() != CopyMethod::Copy
    }
}

/// Returns a source of the command line without the slashes at its end, if that is wanted.
pub(super) fn source(args: &Args, text: &OsString) -> OsString {
    if args.strip_trailing_slashes {
        crate::operands::without_slashes(text)
    } else {
        text.clone()
    }
}
