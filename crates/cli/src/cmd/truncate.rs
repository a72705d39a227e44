//! `extern4 truncate`: makes files shorter or longer; a longer file ends with a hole.
//!
//! `args` calls [`run`]. A length that the volume cannot hold is an error, and the file keeps its
//! length.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::{Errno, File, Session};

use crate::app::{App, host_reason};
use crate::checked::{Check, Checked};
use crate::exit_status::ExitStatus;
use crate::input::Input;
use crate::targets::written_paths;

/// The arguments.
pub(crate) type Args = Checked<Line>;

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Line {
    /// Files to change, which are made if they are not there
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// The size in bytes, or with a unit: K, M, G, T, P or E are powers of 1024, KB, MB and so on
    /// of 1000. Before it, + and - say by how much, < at most, > at least, / down to a multiple, %
    /// up to a multiple
    #[arg(short, long, value_parser = size, allow_hyphen_values = true, required_unless_present = "reference")]
    size: Option<Size>,
    /// Sizes are numbers of blocks of the volume
    #[arg(short = 'o', long, requires = "size")]
    io_blocks: bool,
    /// The size of this file of a volume or of the host; with a size that says by how much,
    /// relative to it
    #[arg(short, long, value_name = "FILE")]
    reference: Option<OsString>,
    /// Do not make files that are not there
    #[arg(short = 'c', long)]
    no_create: bool,
}

impl Check for Line {
    fn check(&mut self) -> Result<(), String> {
        match (&self.reference, self.size) {
            (
                Some(_),
                Some(Size {
                    rule: Rule::Exactly,
                    ..
                }),
            ) => Err(
                "with --reference, a size is relative: +SIZE, -SIZE, <SIZE, >SIZE, /SIZE or %SIZE"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }
}

/// The new length of a file, by its old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    rule: Rule,
    /// Bytes, or blocks.
    number: u64,
}

/// How a number gives a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Exactly,
    Longer,
    Shorter,
    AtMost,
    AtLeast,
    DownToMultiple,
    UpToMultiple,
}

fn size(text: &str) -> Result<Size, String> {
    let text = text.trim_start();
    let rules = [
        ('+', Rule::Longer),
        ('-', Rule::Shorter),
        ('<', Rule::AtMost),
        ('>', Rule::AtLeast),
        ('/', Rule::DownToMultiple),
        ('%', Rule::UpToMultiple),
    ];
    let found = rules
        .into_iter()
        .find_map(|(mark, rule)| Some((text.strip_prefix(mark)?, rule)));
    let (number, rule) = found.unwrap_or((text, Rule::Exactly));
    // A unit alone is one of it.
    let is_unit = number.starts_with(|c: char| c.is_ascii_alphabetic());
    let read = if is_unit {
        crate::text::size(&format!("1{number}"))
    } else {
        crate::text::size(number)
    };
    match (rule, read) {
        (Rule::DownToMultiple | Rule::UpToMultiple, Some(0)) => {
            Err("0 has no multiples".to_owned())
        }
        (_, Some(number)) => Ok(Size { rule, number }),
        (_, None) => Err("write it as 4096, 16M, +1K or %4096".to_owned()),
    }
}

impl Size {
    /// Returns the new length, where the old one is known and a unit has this many bytes.
    fn of(self, old: u64, unit: u64) -> Option<u64> {
        let number = self.number.checked_mul(unit)?;
        match self.rule {
            Rule::Exactly => Some(number),
            Rule::Longer => old.checked_add(number),
            Rule::Shorter => Some(old.saturating_sub(number)),
            Rule::AtMost => Some(old.min(number)),
            Rule::AtLeast => Some(old.max(number)),
            Rule::DownToMultiple => Some(old - old % number),
            Rule::UpToMultiple => old.checked_next_multiple_of(number),
        }
    }
}

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    let image_paths = written_paths(&args.image_paths, app);
    let old = match &args.reference {
        Some(reference) => match length(&Input::or_host(reference, app), app) {
            None => return Ok(()),
            found => found,
        },
        None => None,
    };
    for image_path in image_paths {
        let Some(target) = app.target(&image_path) else {
            continue;
        };
        if let Err(error) = truncate(args, old, target.session(), target.path()) {
            app.error(&image_path, &error);
        }
    }
    Ok(())
}

/// Returns the length of the reference. Reports a failure.
fn length(reference: &Input, app: &mut App) -> Option<u64> {
    match reference {
        Input::Volume(image_path) => {
            let target = app.target(image_path)?;
            let found = target.session().metadata(target.path());
            found
                .map(|found| found.len())
                .map_err(|error| app.error(image_path, &error))
                .ok()
        }
        Input::Host(path) => {
            let found = std::fs::metadata(path).map(|found| found.len());
            let report =
                |error| app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
            found.map_err(report).ok()
        }
        Input::Standard => {
            app.fail(ExitStatus::Usage, "standard input has no length");
            None
        }
    }
}

/// Changes the length of a file, relative to `reference` if that is given.
fn truncate(
    args: &Line,
    reference: Option<u64>,
    session: &Session,
    path: &Path,
) -> extern4::Result<()> {
    let file = match session.open_with(path, File::options().write(true).create(!args.no_create)) {
        Err(error) if args.no_create && error.errno() == Errno::ENOENT => return Ok(()),
        opened => opened?,
    };
    let found = file.metadata();
    let old = reference.unwrap_or(found.len());
    let unit = if args.io_blocks {
        u64::from(found.blksize())
    } else {
        1
    };
    let new = args.size.map_or(Some(old), |size| size.of(old, unit));
    // A length above the maximum of any file, which the volume refuses.
    file.set_len(new.unwrap_or(i64::MAX as u64))
}

#[cfg(test)]
mod tests {
    use super::{Rule, Size, size};

    #[test]
    fn sizes_are_read() {
        let check =
            |text: &str, rule, number| assert_eq!(size(text), Ok(Size { rule, number }), "{text}");
        check("0", Rule::Exactly, 0);
        check("16M", Rule::Exactly, 16 << 20);
        check("K", Rule::Exactly, 1024);
        check("+1KB", Rule::Longer, 1000);
        check("-7", Rule::Shorter, 7);
        check("<1KiB", Rule::AtMost, 1024);
        check("%2", Rule::UpToMultiple, 2);
        for text in ["", "+", "--1", "x", "%0", "/0", "+ 5", "9Z"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_follow_from_sizes() {
        let check = |text: &str, old, unit, new| {
            assert_eq!(
                size(text).expect("a size").of(old, unit),
                new,
                "{text} {old}"
            );
        };
        check("-7", 5, 1, Some(0));
        check("+1", u64::MAX, 1, None);
        check("%4", 10, 1, Some(12));
        check("/4", 10, 1, Some(8));
        check("<4", 10, 1, Some(4));
        check(">4", 10, 1, Some(10));
        check("+1", 5, 4096, Some(4101));
    }
}
