//! `extern4 diff`: compares two trees, or two files.
//!
//! A tree is a volume or a directory in one, a directory of the host, a tar archive, or an image of
//! a container. The library ([`extern4::diff`]) compares trees and files, and these modules write
//! what it finds: `show` the attributes that differ, `names` the comparison of trees by their names
//! that an option of GNU diff asks for, and `texts` the changed lines of two files.
//!
//! The exit codes are diff(1)'s: 0 without differences, 1 with some, 2 for trouble.
//!
//! `args` calls [`run`]. Something that cannot be read is trouble, and is never taken as equal.

mod files;
mod names;
mod operand;
mod options;
mod show;
mod texts;
mod trees;

use std::ffi::OsString;
use std::io;

use extern4::Timespec;
use extern4::build::{Platform, Time};

use crate::app::App;
use crate::color::When;
use crate::exit_status::ExitStatus;
use crate::oci_image;

use operand::Operands;
use options::Gnu;
use texts::Writer;

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// The tree or file to compare with: IMAGE:/PATH, or a directory, a tar archive,
    /// oci:PATH[:NAME], another file of the host, or '-' for standard input
    #[arg(value_name = "OLD")]
    old: OsString,
    /// The tree or file that may have changed, of any of these kinds
    #[arg(value_name = "NEW", required_unless_present_any = ["from_file", "to_file"])]
    new: Option<OsString>,
    /// More of them, for --from-file and --to-file
    #[arg(value_name = "FILE", hide = true)]
    more: Vec<OsString>,
    /// Compare FILE to each operand
    #[arg(long, value_name = "FILE", conflicts_with = "to_file")]
    from_file: Option<OsString>,
    /// Compare each operand to FILE
    #[arg(long, value_name = "FILE")]
    to_file: Option<OsString>,
    #[command(flatten)]
    gnu: Gnu,
    /// The platform of an image that has several (default: that of this machine)
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", value_parser = oci_image::platform)]
    platform: Option<Platform>,
    /// Ignore owners and groups
    #[arg(long)]
    no_owner: bool,
    /// Ignore the times of the last modification
    #[arg(long)]
    no_times: bool,
    /// Ignore inode flags, as chattr sets them, and projects
    #[arg(long)]
    no_flags: bool,
    /// Ignore extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Colour the difference of two texts
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "auto",
        num_args = 0..=1, require_equals = true)]
    color: When,
    /// Write one JSON object a line for each difference
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    app.compares();
    let operands = [&args.old].into_iter().chain(&args.new).chain(&args.more);
    let pairs: Vec<(&OsString, &OsString)> = match (&args.from_file, &args.to_file, &args.new) {
        (Some(from), ..) => operands.map(|operand| (from, operand)).collect(),
        (_, Some(to), _) => operands.map(|operand| (operand, to)).collect(),
        (None, None, Some(new)) => vec![(&args.old, new)],
        (None, None, None) => Vec::new(),
    };
    if pairs.len() == 1
        && let Some(more) = args.more.first()
    {
        app.fail_at(
            ExitStatus::Usage,
            more.display(),
            "two operands are compared, and this is one more",
        );
        return Ok(());
    }
    if args.json && args.gnu != Gnu::default() {
        app.fail(
            ExitStatus::Usage,
            "--json shows attributes, which options of GNU diff do not compare",
        );
        return Ok(());
    }
    if let Some(more) = args.gnu.label.get(2) {
        app.fail_at(ExitStatus::Usage, more.display(), "two labels are enough");
        return Ok(());
    }
    pairs
        .into_iter()
        .try_for_each(|(old, new)| pair(args, old, new, app))
}

fn pair(args: &Args, old: &OsString, new: &OsString, app: &mut App) -> io::Result<()> {
    match Operands::find(old, new, args, app) {
        Some(Operands::Trees(trees)) if args.gnu == Gnu::default() => {
            let differences = trees::compare(args, &trees, app);
            show::differences(args, &trees, &differences, app)
        }
        Some(Operands::Trees(trees)) => {
            let Some(options) = args.gnu.names(app) else {
                return Ok(());
            };
            let Some(writer) = Writer::new(args, true, app) else {
                return Ok(());
            };
            names::compare(&trees, &options, writer, app)
        }
        Some(Operands::Files(pair)) => {
            let Some(writer) = Writer::new(args, false, app) else {
                return Ok(());
            };
            files::compare(args, &pair, writer, app)
        }
        None => Ok(()),
    }
}

fn timespec(time: Time) -> Timespec {
    Timespec {
        sec: time.secs,
        nsec: time.nanos,
    }
}
