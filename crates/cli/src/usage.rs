//! Errors in command lines, in the form of all other messages.
//!
//! `main` and `fsck_helper` print with it. Words of the command line are escaped in the message.

use std::io::{self, Write as _};

use crate::text::escape;

/// Prints clap's error about a command line to standard error: its reason after `name`, its tips,
/// and `help`, the way to the help. Returns false if it is no error: `--help` or `--version` was
/// asked for.
pub(crate) fn print_error(says: &clap::Error, name: &str, help: &str) -> bool {
    let text = says.render().to_string();
    let Some(error) = text.strip_prefix("error: ") else {
        return false;
    };
    print(&message(error, name, help));
    true
}

/// Prints a message about a command line to standard error.
pub(crate) fn print(message: &str) {
    // A pattern of the shell may have put in the name of another user's file.
    let lines = message
        .lines()
        .map(|line| escape(line.as_bytes()).into_owned() + "\n");
    let _ = io::stderr()
        .lock()
        .write_all(lines.collect::<String>().as_bytes());
}

fn message(error: &str, name: &str, help: &str) -> String {
    let ends = ["\n\nUsage:", "\n\nFor more"]
        .into_iter()
        .filter_map(|end| error.find(end));
    let error = &error[..ends.min().unwrap_or(error.len())];
    let mut paragraphs = error
        .split("\n\n")
        .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = format!("{name}: {}", paragraphs.next().unwrap_or_default());
    std::iter::once(first)
        .chain(paragraphs)
        .chain([help.to_owned()])
        .collect::<Vec<_>>()
        .join("\n")
}
