//! Acting as the program that `mkfs(8)` calls for a type of file system: `mkfs.extern4` is a link
//! to the command.
//!
//! `main` calls it when the program was started by such a name, and runs the command line that it
//! returns. It takes the options of `extern4 mkfs`.

use std::ffi::OsString;
use std::path::Path;

/// The name of such a link.
const NAME: &str = "mkfs.extern4";

/// Turns `mkfs.extern4 WORDS` into `extern4 mkfs WORDS`. Returns every other command line as it is.
pub(crate) fn read(line: Vec<OsString>) -> Vec<OsString> {
    match line.first().and_then(|name| Path::new(name).file_name()) {
        Some(called) if called == NAME => ["extern4", "mkfs"]
            .map(OsString::from)
            .into_iter()
            .chain(line.into_iter().skip(1))
            .collect(),
        _ => line,
    }
}

/// Returns the command line of the link, for its manual page.
pub(crate) fn command(mkfs: &clap::Command) -> clap::Command {
    mkfs.clone().name(NAME).display_name(NAME).bin_name(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_the_subcommand() {
        let read = |words: &[&str]| read(words.iter().map(OsString::from).collect());
        assert_eq!(
            read(&["/sbin/mkfs.extern4", "-t", "ext2", "x"]),
            ["extern4", "mkfs", "-t", "ext2", "x"]
        );
        assert_eq!(
            read(&["extern4", "ls", "mkfs.extern4"]),
            ["extern4", "ls", "mkfs.extern4"]
        );
    }
}
