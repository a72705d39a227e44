//! `extern4 diff`: compares two trees, or the text of two files.
//!
//! A tree is a volume or a directory in one, a directory of the host, a tar archive, or an image of
//! a container. Both trees are listed whole, at the same time. A walk over both lists in the order
//! of the paths compares types and attributes. Then several threads read the files that have the
//! same size in both trees, and compare their contents.
//!
//! Where one volume may have begun as a copy of the other, the bytes of both images are compared
//! first ([`blocks`]). They tell which inodes are the same ([`inodes`]), and so which directories
//! need no look ([`directories`]). The lists then have only what may differ ([`joint`]).
//!
//! The exit codes are those of diff(1): 0 without differences, 1 with some, 2 for trouble.
//!
//! `args` calls [`run`]. Something that cannot be read is trouble, and is never taken as equal.

mod blocks;
mod change;
mod compare;
mod contents;
mod directories;
mod files;
mod inodes;
mod joint;
mod listing;
mod operand;
mod shared_extents;
mod show;
mod threads;

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
            let differences = compare::trees(args, &trees, app);
            show::differences(args, &trees, &differences, app)
        }
        Some(Operands::Files(pair)) => files::compare(args, &pair, app),
        None => Ok(()),
    }
}

/// The two things that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Both<T> {
    old: T,
    new: T,
}

impl<T> Both<T> {
    fn as_ref(&self) -> Both<&T> {
        Both { old: &self.old, new: &self.new }
    }

    fn map<U>(self, mut each: impl FnMut(T) -> U) -> Both<U> {
        Both { old: each(self.old), new: each(self.new) }
    }
}
