//! Options of GNU tar that ask for what is always done.

use clap::{Arg, ArgAction, ArgMatches, Command};

/// Their names, letters and further names.
const OPTIONS: &[(&str, Option<char>, &[&str])] = &[
    ("no-seek", None, &[]),
    ("seek", Some('n'), &[]),
    ("sparse", Some('S'), &[]),
    ("recursion", None, &[]),
    ("wildcards", None, &[]),
    ("overwrite-dir", None, &[]),
    ("unlink-first", Some('U'), &[]),
    ("delay-directory-restore", None, &[]),
    ("preserve-order", Some('s'), &["same-order"]),
    ("acls", None, &[]),
    ("selinux", None, &[]),
    ("xattrs", None, &[]),
    ("force-local", None, &[]),
    ("read-full-records", Some('B'), &[]),
    ("posix", None, &[]),
    ("no-auto-compress", None, &[]),
    ("one-file-system", None, &[]),
];

/// Takes the options, and remembers none. The guide lists them, and not the help.
#[derive(Clone, Debug, Default)]
pub(super) struct AsAlways;

impl clap::Args for AsAlways {
    fn augment_args(command: Command) -> Command {
        OPTIONS
            .iter()
            .fold(command, |command, (name, letter, aliases)| {
                let arg = Arg::new(*name).long(*name).aliases(aliases.iter().copied());
                let arg = arg.action(ArgAction::SetTrue).hide(true);
                command.arg(match letter {
                    Some(letter) => arg.short(*letter),
                    None => arg,
                })
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for AsAlways {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}
