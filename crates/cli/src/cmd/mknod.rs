//! `extern4 mknod`: makes device nodes and pipes.
//!
//! `args` calls [`run`], and `mkfifo` uses [`make`]. The node is one in the volume; the host gets
//! none.

use std::ffi::OsString;
use std::io;

use extern4::{NewKind, Rdev};

use crate::app::App;
use crate::checked::{Check, Checked};
use crate::mode_change::ModeChange;

/// The arguments.
pub(crate) type Args = Checked<Options>;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The node to make
    #[arg(value_name = "IMAGE:/PATH")]
    image_path: OsString,
    /// b for a block device, c or u for a character device, p for a pipe
    #[arg(value_name = "TYPE", value_parser = ["b", "c", "u", "p"])]
    kind: String,
    /// The major number of a device: decimal, octal with 0 or hexadecimal with 0x before it
    #[arg(value_name = "MAJOR", value_parser = number)]
    major: Option<u32>,
    /// The minor number of a device
    #[arg(value_name = "MINOR", value_parser = number)]
    minor: Option<u32>,
    /// Permission bits, as chmod takes them (default: 644)
    #[arg(short, long, value_parser = ModeChange::argument)]
    mode: Option<ModeChange>,
}

/// Reads a number as C writes it.
fn number(text: &str) -> Result<u32, String> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let number = u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| !digits.starts_with('+'));
    number.ok_or_else(|| "write it as 8, 010 or 0x8".to_owned())
}

impl Check for Options {
    fn check(&mut self) -> Result<(), String> {
        match (&*self.kind, self.major, self.minor) {
            ("p", None, None) => Ok(()),
            ("p", ..) => Err("a pipe has no device numbers".to_owned()),
            // The limits of Linux.
            (_, Some(major), Some(minor)) if major < 1 << 12 && minor < 1 << 20 => Ok(()),
            (_, Some(_), Some(_)) => {
                Err("a major number is below 4096, a minor number below 1048576".to_owned())
            }
            _ => Err("a device has a major and a minor number".to_owned()),
        }
    }
}

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    let image_path = app.written_path(&args.image_path);
    let Some(target) = app.target(&image_path) else {
        return Ok(());
    };
    let rdev = Rdev {
        major: args.major.unwrap_or(0),
        minor: args.minor.unwrap_or(0),
    };
    let kind = match &*args.kind {
        "p" => NewKind::Fifo,
        "b" => NewKind::BlockDevice(rdev),
        _ => NewKind::CharDevice(rdev),
    };
    if let Err(error) = make(&target, kind, args.mode.as_ref()) {
        app.error(&image_path, &error);
    }
    Ok(())
}

/// Makes a node. The umask does not apply to an explicit mode.
pub(super) fn make(
    target: &crate::app::Target,
    kind: NewKind<'_>,
    mode: Option<&ModeChange>,
) -> extern4::Result<()> {
    let session = target.session();
    let path = target.path();
    let Some(mode) = mode else {
        return session.make_node(path, kind, 0o666);
    };
    session.make_node(path, kind, 0o600)?;
    session.set_permissions(path, mode.apply(0o666, false, 0o022))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_read_as_in_c() {
        for (text, expected) in [
            ("0", Some(0)),
            ("8", Some(8)),
            ("010", Some(8)),
            ("0x1f", Some(31)),
        ] {
            assert_eq!(number(text).ok(), expected, "{text}");
        }
        for text in ["", "x", "-1", "+1", "0x", "08", "0x+1"] {
            assert!(number(text).is_err(), "{text}");
        }
    }
}
