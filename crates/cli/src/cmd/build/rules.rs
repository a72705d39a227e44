//! `--exclude` and `--include`: rules that leave out a part of the tree.
//!
//! `build` asks it for each path of a tree. Of all rules, the first that matches decides, as with
//! rsync.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use extern4::build::{Filter, Rule};

/// The rules of a command line. The derived parsers would lose the order of the two options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules(pub(crate) Filter);

impl Rules {
    /// Returns whether this path of a tree is left out.
    pub(crate) fn leaves_out(&self, path: &Path, is_directory: bool) -> bool {
        self.0.leaves_out(path.as_os_str().as_bytes(), is_directory)
    }
}

const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";

impl clap::Args for Rules {
    fn augment_args(command: Command) -> Command {
        let rule = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("GLOB")
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString))
                .help(help)
        };
        command
            .arg(rule(
                EXCLUDE,
                "Leave out what GLOB matches, and all below it, as rsync does: of all rules, the first \
                 that matches decides. GLOB matches the end of a path in the tree, or from its root \
                 if it begins with a slash; * stays within a name, ** crosses directories, a slash at \
                 the end means directories only",
            ))
            .arg(rule(INCLUDE, "Keep what GLOB matches, unless an earlier --exclude matches it"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Rules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |name, rule: fn(&[u8]) -> Rule| {
            let places = matches.indices_of(name).into_iter().flatten();
            let globs = matches.get_many::<OsString>(name).into_iter().flatten();
            places
                .zip(globs)
                .map(move |(at, glob)| (at, rule(glob.as_bytes())))
        };
        let mut rules: Vec<(usize, Rule)> = given(EXCLUDE, Rule::exclude)
            .chain(given(INCLUDE, Rule::include))
            .collect();
        rules.sort_by_key(|(at, _)| *at);
        Ok(Self(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
