//! `extern4 diff`: compares two trees, or the text of two files.
//!
//! A tree is a volume or a directory in one, a directory of the host, a tar archive, or an image of
//! a container. The library compares them ([`extern4::diff`]); this module prints what it finds.
//!
//! The exit codes are those of diff(1): 0 without differences, 1 with some, 2 for trouble.
//!
//! `args` calls [`run`]. Something that cannot be read is trouble, and is never taken as equal.

mod files;
mod operand;
mod show;
mod trees;

use std::ffi::OsString;
use std::io;

use extern4_tree::Platform;

use crate::app::App;
use crate::color::When;
use crate::oci_image;

use operand::Operands;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The tree or file to compare with: IMAGE:/PATH, or a directory, a tar archive,
    /// oci:PATH[:NAME] or another file of the host
    #[arg(value_name = "OLD")]
    old: OsString,
    /// The tree or file that may have changed, of any of these kinds
    #[arg(value_name = "NEW")]
    new: OsString,
    /// The platform of an image that has several (default: that of this machine)
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", value_parser = oci_image::platform)]
    platform: Option<Platform>,
    /// Of two files, only say whether they differ
    #[arg(short = 'q', long)]
    brief: bool,
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
    match Operands::find(&args.old, &args.new, args.platform.as_ref(), app) {
        Some(Operands::Trees(trees)) => {
            let differences = trees::compare(args, &trees, app);
            show::differences(args, &trees, &differences, app)
        }
        Some(Operands::Files(pair)) => files::compare(args, &pair, app),
        None => Ok(()),
    }
}
