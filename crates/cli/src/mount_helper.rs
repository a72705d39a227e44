//! Acting as the helper that `mount(8)` calls for a type of file system: `mount.extern4`, or
//! `mount.fuse.extern4`, is a link to the command.
//!
//! `main` calls it when the program was started by such a name, and runs the command line that it
//! returns. Words that only mount(8) needs are dropped.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, Command};

/// The names of such a link.
const NAMES: [&str; 2] = ["mount.extern4", "mount.fuse.extern4"];

/// The result of reading a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A command with these arguments.
    Run(Vec<OsString>),
    /// A dry run (`mount -f`), which does nothing.
    Fake,
}

/// Turns `mount.extern4 SOURCE DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]` into
/// `extern4 mount [-o OPTIONS] SOURCE DIR`. Returns every other command line as it is.
pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Line {
    let args: Vec<_> = args.into_iter().collect();
    let called = args.first().and_then(|name| Path::new(name).file_name());
    if !called.is_some_and(|called| NAMES.iter().any(|name| called == *name)) {
        return Line::Run(args);
    }
    let mut line: Vec<OsString> = ["extern4", "mount"].map(OsString::from).into();
    let mut rest = args.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-o") => line.extend([Some(arg), rest.next()].into_iter().flatten()),
            // Types and namespaces concern mount(8) only.
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if is_flags(flags) && flags.contains('f') => return Line::Fake,
            Some(flags) if is_flags(flags) => {}
            _ => line.push(arg),
        }
    }
    Line::Run(line)
}

/// Returns the command line of the helper, for its manual page.
pub(crate) fn command() -> clap::Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .short(name.chars().next())
            .help(help)
            .action(ArgAction::SetTrue)
    };
    let ignored = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .short(name.chars().next())
            .value_name(value)
            .help(help)
    };
    Command::new(NAMES[0])
        .about("Mount an ext2, ext3 or ext4 volume for mount(8)")
        .long_about(
            "mount(8) calls this helper for the type extern4. It serves the volume in the background through FUSE, \
             as extern4 mount does, until it is unmounted.",
        )
        .override_usage("mount.extern4 SOURCE DIR [-fnsv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]")
        .disable_help_flag(true)
        .args([
            Arg::new("SOURCE").required(true).help("The volume: a block device or an image, as in extern4(1)"),
            Arg::new("DIR").required(true).help("The directory to mount it on"),
            Arg::new("o")
                .short('o')
                .value_name("OPTIONS")
                .help("Options with commas between them; a later one overrides an earlier one"),
            flag("f", "Do nothing, and succeed"),
            flag("n", "Ignored: a FUSE mount is never in /etc/mtab"),
            flag("s", "Ignored: which options are tolerated is in the table below"),
            flag("v", "Ignored"),
            ignored("N", "NAMESPACE", "Ignored: mount(8) has switched to the namespace"),
            ignored("t", "TYPE", "Ignored: mount(8) has chosen this helper by it"),
        ])
}

/// Returns whether `text` has only the flags sloppy, fake, no table and verbose.
fn is_flags(text: &str) -> bool {
    text.strip_prefix('-')
        .is_some_and(|flags| !flags.is_empty() && flags.chars().all(|flag| "sfnv".contains(flag)))
}

#[cfg(test)]
mod tests {
    use super::{Line, read};
    use std::ffi::OsString;

    fn check(line: &str, expected: Option<&str>) {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            read(words(line)),
            expected.map_or(Line::Fake, |line| Line::Run(words(line))),
            "{line}"
        );
    }

    #[test]
    fn lines_of_mount_are_ours() {
        check(
            "/sbin/mount.extern4 disk.img /mnt -o rw,noatime",
            Some("extern4 mount disk.img /mnt -o rw,noatime"),
        );
        check(
            "mount.fuse.extern4 disk.img /mnt -sn -v -t fuse.extern4 -o ro",
            Some("extern4 mount disk.img /mnt -o ro"),
        );
        check("/sbin/mount.extern4 disk.img /mnt -nf", None);
        check(
            "/usr/bin/extern4 mount -f disk.img /mnt",
            Some("/usr/bin/extern4 mount -f disk.img /mnt"),
        );
    }
}
