//! The form of names, messages, sizes, modes and times in output.
//!
//! Subcommands print with these functions, so that the same thing looks the same everywhere. They
//! do no I/O.

mod block_size;
mod columns;
mod counted;
mod field;
mod human;
mod message;
mod mode;
mod name;
mod octal;
mod operand;
mod size;
mod time;
mod uuid;
mod version;
mod visible;

pub(crate) use block_size::BlockSize;
pub(crate) use columns::{columns, commas, rows};
pub(crate) use counted::counted;
pub(crate) use field::{Chars, Field, escape_sequence};
pub(crate) use human::{human, units};
pub(crate) use message::message_of;
pub(crate) use mode::{ModeText, octal_mode, type_letter, type_name};
pub(crate) use name::{
    always_quoted, escape, escape_bytes, is_printable, needs_quotes, quoted, shell_quote, width,
};
pub(crate) use octal::{Backslash, push_octal, unescape};
pub(crate) use operand::{Byte, bytes, complete, is_pattern, operand, unescaped};
pub(crate) use size::size;
pub(crate) use time::{ListTime, format_time, full_time, iso_time, rfc3339};
pub(crate) use uuid::uuid;
pub(crate) use version::compare_versions;
pub(crate) use visible::push_visible;
