//! The form of messages.

use std::fmt::Display;

/// Returns a message as every command writes it to standard error: GNU's form with the name of the
/// subcommand in it.
pub(crate) fn message_of(command: &str, message: impl Display) -> String {
    format!("extern4: {command}: {message}")
}
