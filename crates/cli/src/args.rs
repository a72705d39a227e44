//! The command line: the global options, the subcommands, and how an image path is written.
//!
//! `main`, scripts and the shell read lines with [`Args::read`] and run the result. `--help`,
//! manual pages and completions show the same definition. A line that is wrong is refused as a
//! whole, before any volume is opened.

use std::ffi::{OsStr, OsString};
use std::io;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::app::{App, Opening};
use crate::caller::Caller;
use crate::cmd;
use crate::progress::When;
use crate::refused;

/// The address of the guide.
pub(crate) const GUIDE: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/guide/index.md"
);

/// How a path into a volume is written.
pub(crate) const IMAGE_PATHS: &str = "\
A file in a volume is written IMAGE:/PATH. IMAGE alone is the root of its volume, IMAGE#2:/PATH is in partition 2, \
IMAGE#NAME:/PATH in the partition with that name in the GPT, or whose volume has that label or UUID, and IMAGE@1M:/PATH in the volume that starts 1 MiB into \
the image. Where an image's own name holds ':', '#' or '@', the longest name that exists is taken. In a path *, ? and \
[...] match names as in a shell, and a pattern that matches nothing is a name. A backslash takes their meaning away \
(\\*), and three octal digits behind one are a byte (\\012).";

const EXIT_CODES: &str = "\
Exit codes: 0 everything succeeded; 1 something failed; 2 wrong usage; 3 not an ext2, ext3 or ext4 volume, or one \
with a feature that cannot be read, or not be written; 4 the volume is corrupt. The highest counts. Those of diff are \
0 no difference, 1 some, 2 trouble.";

/// The heading of the options that most subcommands take.
const GLOBAL: &str = "Global options";

/// Look into ext2, ext3 and ext4 images and devices, and change them, without mounting them.
#[derive(Parser)]
#[command(name = "extern4", version, disable_help_subcommand = true)]
// As getopt_long does: an option may be shortened, and the last of several counts.
#[command(infer_long_args = true, args_override_self = true)]
#[command(after_long_help = format!("{IMAGE_PATHS}\n\n{EXIT_CODES}\n\nGuide: {GUIDE}"))]
pub(crate) struct Args {
    /// See the volume as this user, group and further groups: UID:GID[,GID...], or a UID or a NAME
    /// with the groups that the volume's own /etc/passwd and /etc/group say (default: as root)
    #[arg(long = "as", value_name = "USER", value_parser = Caller::argument, global = true, help_heading = GLOBAL)]
    caller: Option<Caller>,

    #[command(flatten, next_help_heading = GLOBAL)]
    pub(crate) opening: Opening,

    /// When to show the progress: with auto, if standard error is a terminal; lines elsewhere with
    /// always. SIGUSR1 makes the command print a line with it in any case
    #[arg(long, value_name = "WHEN", value_enum, global = true, help_heading = GLOBAL)]
    progress: Option<When>,

    /// Print each path in full, as IMAGE:/PATH, with odd characters as octal digits (\\040), on a
    /// terminal or not: extern4 reads it as exactly this path, and a shell as one word
    #[arg(long, global = true, help_heading = GLOBAL)]
    full_paths: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands for which `--as` would change nothing: they treat volumes as a whole, or open
/// none.
const SAME_FOR_ALL: [&str; 15] = [
    "mkfs",
    "build",
    "info",
    "check",
    "df",
    "quota",
    "recover",
    "mount",
    "umount",
    "inode",
    "block",
    "top",
    "completions",
    "man",
    "help",
];

/// The subcommands that change files of a volume.
const CHANGES: [&str; 17] = [
    "cp", "put", "mkdir", "rm", "rmdir", "mv", "ln", "mknod", "mkfifo", "touch", "truncate",
    "chmod", "chown", "chgrp", "chattr", "setfacl", "setfattr",
];

/// The subcommands that show their progress, or that of the commands in them.
const SHOWS_PROGRESS: [&str; 10] = [
    "check", "cp", "mv", "rm", "script", "shell", "mkfs", "build", "export", "tar",
];

/// The subcommands that print paths, or run those.
const PRINTS_PATHS: [&str; 18] = [
    "ls",
    "tree",
    "stat",
    "head",
    "tail",
    "grep",
    "cmp",
    "sha256sum",
    "readlink",
    "lsattr",
    "find",
    "du",
    "getfacl",
    "getfattr",
    "block",
    "diff",
    "script",
    "shell",
];

/// The subcommands that open no volume.
const WITHOUT_VOLUME: [&str; 7] = [
    "mkfs",
    "build",
    "umount",
    "top",
    "completions",
    "man",
    "help",
];

/// Returns the command line with all that `--help`, the manual pages and completions show. A global
/// option is hidden from the subcommands on which it has no effect.
pub(crate) fn command() -> clap::Command {
    let mut command = Args::command();
    let global: Vec<_> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .cloned()
        .collect();
    for arg in global {
        for name in Command::NAMES
            .iter()
            .filter(|name| is_useless(arg.get_id().as_str(), name))
        {
            command =
                command.mut_subcommand(name, |subcommand| subcommand.arg(arg.clone().hide(true)));
        }
    }
    command
}

/// Returns the command, or a subcommand of it by the words that name it.
pub(crate) fn find<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<clap::Command> {
    let mut command = command();
    command.build();
    words.into_iter().try_fold(command, |command, name| {
        command.find_subcommand(name).cloned()
    })
}

/// Returns whether a global option has no effect on a subcommand.
fn is_useless(option: &str, name: &str) -> bool {
    match option {
        "caller" => SAME_FOR_ALL.contains(&name),
        "progress" => !SHOWS_PROGRESS.contains(&name),
        "full_paths" => !PRINTS_PATHS.contains(&name),
        // Its sources may be volumes.
        "wait" => name != "build" && WITHOUT_VOLUME.contains(&name),
        _ => WITHOUT_VOLUME.contains(&name),
    }
}

impl Args {
    /// Returns the first global option on the command line that has no effect on this subcommand.
    pub(crate) fn useless_option(&self) -> Option<&'static str> {
        let name = self.command.name();
        [
            ("--as", "caller", self.caller.is_some()),
            ("--journal", "journal", self.opening.journal.is_some()),
            (
                "--superblock",
                "superblock",
                self.opening.superblock.is_some(),
            ),
            ("--wait", "wait", self.opening.wait.is_some()),
            ("--progress", "progress", self.progress.is_some()),
            ("--full-paths", "full_paths", self.full_paths),
        ]
        .into_iter()
        .find_map(|(option, id, is_given)| (is_given && is_useless(id, name)).then_some(option))
    }

    /// Reads a command line. Returns with it the words that may be image paths.
    pub(crate) fn read(line: &[OsString]) -> clap::error::Result<(Self, Vec<OsString>)> {
        let mut command = command();
        let line = cmd::tar::with_dashes(line);
        if let Some(option) = refused_start(&command, &line) {
            let mut error = clap::Error::new(ErrorKind::UnknownArgument).with_cmd(&command);
            error.insert(
                ContextKind::InvalidArg,
                ContextValue::String(option.to_owned()),
            );
            return Err(error);
        }
        let matches = command.try_get_matches_from_mut(line.as_ref())?;
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        Ok((args, places(&command, &matches)))
    }

    /// Returns the name of a subcommand if there is one.
    pub(crate) fn subcommand(name: &OsStr) -> Option<&'static str> {
        Command::NAMES.iter().copied().find(|known| name == *known)
    }

    /// Returns the user that the command acts as.
    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone().unwrap_or(Caller::root())
    }

    /// Returns whether paths are printed in full.
    pub(crate) fn full_paths(&self) -> bool {
        self.full_paths
    }

    /// Returns when the progress is shown.
    pub(crate) fn progress(&self) -> When {
        self.progress.unwrap_or_default()
    }
}

/// Returns an option that is refused, but that clap would take for the start of a longer one:
/// `--si` for `--size`.
fn refused_start<'a>(command: &clap::Command, line: &'a [OsString]) -> Option<&'a str> {
    let at = line
        .iter()
        .skip(1)
        .position(|word| Args::subcommand(word).is_some())?
        + 1;
    let subcommand = command.find_subcommand(&line[at])?;
    let options = line[at + 1..]
        .iter()
        .take_while(|word| *word != "--")
        .filter_map(|word| word.to_str());
    let mut options = options.filter(|word| {
        word.starts_with("--") && refused::find(subcommand.get_name(), word).is_some()
    });
    options.find(|word| {
        let mut known = subcommand.get_arguments().filter_map(clap::Arg::get_long);
        known.any(|long| {
            word.strip_prefix("--")
                .is_some_and(|name| long.starts_with(name))
        })
    })
}

/// Returns the words of a command line that may be image paths.
pub(crate) fn places(command: &clap::Command, matches: &clap::ArgMatches) -> Vec<OsString> {
    let places = matches.subcommand().and_then(|(name, matches)| {
        let command = command.find_subcommand(name)?;
        let operands = command.get_positionals().filter(|arg| !arg.is_last_set());
        let words = operands.filter_map(|arg| matches.get_raw(arg.get_id().as_str()));
        let is_place = |word: &&OsStr| name != "find" || !cmd::find::starts_expression(word);
        Some(
            words
                .flatten()
                .take_while(is_place)
                .map(OsStr::to_owned)
                .collect(),
        )
    });
    places.unwrap_or_default()
}

macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $name:literal => $module:ident;)*) => {
        /// The subcommands.
        #[derive(Subcommand)]
        pub(crate) enum Command {
            $($(#[$doc])* #[command(name = $name)] $variant(cmd::$module::Args),)*
        }

        impl Command {
            /// The names of all subcommands.
            const NAMES: &[&str] = &[$($name,)*];

            /// Returns the name of the subcommand as it is typed.
            pub(crate) fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// Returns whether the subcommand changes volumes.
            pub(crate) fn changes(&self) -> bool {
                CHANGES.contains(&self.name())
            }

            /// Runs the subcommand. The error is one of writing the output.
            pub(crate) fn run(&self, app: &mut App) -> io::Result<()> {
                match self { $(Self::$variant(args) => cmd::$module::run(args, app),)* }
            }
        }
    };
}

commands! {
    /// Show what a volume is, or the partitions of a disk
    Info = "info" => info;
    /// Check volumes: verify every checksum and structure
    Check = "check" => check;
    /// List directories
    Ls = "ls" => ls;
    /// Show a directory with everything below it as a tree
    Tree = "tree" => tree;
    /// Show everything about files
    Stat = "stat" => stat;
    /// Write the contents of files to standard output
    Cat = "cat" => cat;
    /// Write the first lines of files to standard output
    Head = "head" => head;
    /// Write the last lines of files to standard output
    Tail = "tail" => tail;
    /// Print the lines of files that match a pattern
    Grep = "grep" => grep;
    /// Compare two files byte by byte
    Cmp = "cmp" => cmp;
    /// Print or check SHA-256 digests of files
    Sha256sum = "sha256sum" => sha256sum;
    /// Copy files and directories out of volumes, into them and between them
    Cp = "cp" => cp;
    /// Write the contents of a file to standard output
    Get = "get" => get;
    /// Replace the contents of a file with standard input, all at once
    Put = "put" => put;
    /// Make directories
    Mkdir = "mkdir" => mkdir;
    /// Remove files and directories
    Rm = "rm" => rm;
    /// Remove empty directories
    Rmdir = "rmdir" => rmdir;
    /// Rename files, or move them to the host, from it and between volumes
    Mv = "mv" => mv;
    /// Give files more names, or make symbolic links
    Ln = "ln" => ln;
    /// Print where symbolic links point
    Readlink = "readlink" => readlink;
    /// Make device nodes and pipes
    Mknod = "mknod" => mknod;
    /// Make pipes
    Mkfifo = "mkfifo" => mkfifo;
    /// Make files, or set their times
    Touch = "touch" => touch;
    /// Make files shorter or longer
    Truncate = "truncate" => truncate;
    /// Change permission bits
    Chmod = "chmod" => chmod;
    /// Change owners and groups
    Chown = "chown" => chown;
    /// Change groups
    Chgrp = "chgrp" => chgrp;
    /// Show attributes such as immutable and append-only
    Lsattr = "lsattr" => lsattr;
    /// Change attributes such as immutable and append-only
    Chattr = "chattr" => chattr;
    /// Search for files, with the expressions of GNU find
    Find = "find" => find;
    /// Sum up the space that files take
    Du = "du" => du;
    /// Show the free space of volumes
    Df = "df" => df;
    /// Show what it takes to look at everything below a directory: hits and misses of every cache;
    /// or what a mount has done
    Stats = "stats" => stats;
    /// Show what happens in a mount, live
    Top = "top" => top;
    /// Show access control lists
    Getfacl = "getfacl" => getfacl;
    /// Show extended attributes
    Getfattr = "getfattr" => getfattr;
    /// Change access control lists
    Setfacl = "setfacl" => setfacl;
    /// Set or remove extended attributes
    Setfattr = "setfattr" => setfattr;
    /// Run many commands on one volume, one a line
    Script = "script" => script;
    /// Look into a volume and change it, command by command
    Shell = "shell" => shell;
    /// Replay the journal of a volume that was not cleanly unmounted
    Recover = "recover" => recover;
    /// Change the label, the UUID and other things of a volume as a whole
    Tune = "tune" => tune;
    /// Show, set and check the quotas of users, groups and projects
    Quota = "quota" => quota;
    /// Make an ext2, ext3 or ext4 volume
    Mkfs = "mkfs" => mkfs;
    /// Build a volume from directories, tar archives, OCI images and other volumes
    Build = "build" => build;
    /// Write a tree of a volume to a tar archive, a directory or an OCI image
    Export = "export" => export;
    /// Make, list and unpack tar archives of files in volumes
    Tar = "tar" => tar;
    /// Compare two trees with their metadata, or the text of two files
    Diff = "diff" => diff;
    /// Mount a volume on a directory
    Mount = "mount" => mount;
    /// Unmount volumes, and wait until everything is written
    Umount = "umount" => umount;
    /// Show inodes as they stand on the volume, and their blocks
    Inode = "inode" => inode;
    /// Show what blocks of the volume are for, and what is in them
    Block = "block" => block;
    /// Measure how fast this machine gets answers from a volume
    Bench = "bench" => bench;
    /// Write a shell's completions to standard output
    Completions = "completions" => completions;
    /// Show the manual page of a command, or write all pages
    Man = "man" => man;
    /// Show the help of a subcommand
    Help = "help" => help;
}

#[cfg(test)]
mod tests {
    use super::{CHANGES, PRINTS_PATHS, SAME_FOR_ALL, SHOWS_PROGRESS, WITHOUT_VOLUME, command};

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_shows_global_options_where_they_have_an_effect() {
        let mut command = command();
        command.build();
        for (name, shown) in [
            ("ls", &["as", "journal", "superblock", "wait"][..]),
            ("check", &["journal", "superblock", "wait", "progress"]),
            ("mkfs", &["progress"]),
            ("man", &[]),
        ] {
            let subcommand = command.find_subcommand_mut(name).expect("a subcommand");
            let help = subcommand.render_long_help().to_string();
            let (own, global) = help.split_once("Global options:").unwrap_or((&help, ""));
            for option in ["as", "journal", "superblock", "wait", "progress"] {
                let text = match option {
                    "wait" => "--wait[=".to_owned(),
                    option => format!("--{option} <"),
                };
                assert_eq!(
                    global.contains(&text),
                    shown.contains(&option),
                    "{name} {option}: {help}"
                );
                assert!(!own.contains(&text), "{name} {option}: {help}");
            }
        }
    }

    #[test]
    fn the_lists_name_subcommands() {
        let command = command();
        let some = SAME_FOR_ALL
            .iter()
            .chain(&WITHOUT_VOLUME)
            .chain(&CHANGES)
            .chain(&SHOWS_PROGRESS);
        for name in some.chain(&PRINTS_PATHS) {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }
}
