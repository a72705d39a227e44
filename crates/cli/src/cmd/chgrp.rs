//! `extern4 chgrp`: changes groups.
//!
//! `args` calls [`run`]; `chown::change` does the work. A file that cannot be changed is reported,
//! and the others still change.

use std::ffi::OsString;
use std::io;

use super::chown::{Options, OwnerChange, Wanted};
use crate::app::App;
use crate::checked::{Check, Checked};
use crate::owner::Owner;

/// The arguments.
pub(crate) type Args = Checked<Line>;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Line {
    /// The group, unless --reference is given: a number, or a name of the volume's own /etc/group
    #[arg(value_name = "GROUP")]
    group: OsString,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required_unless_present = "reference")]
    image_paths: Vec<OsString>,
    /// Change only files with this owner and this group
    #[arg(long, value_name = "OWNER[:GROUP]", value_parser = Owner::argument)]
    from: Option<Owner>,
    #[command(flatten)]
    options: Options,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

impl Check for Line {
    fn check(&mut self) -> Result<(), String> {
        self.options.check()?;
        self.options
            .first(&self.group, Owner::group_argument)
            .map(drop)
    }
}

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    let Ok(group) = args.options.first(&args.group, Owner::group_argument) else {
        return Ok(());
    };
    let first = group.is_none().then_some(&args.group);
    let paths: Vec<_> = first
        .into_iter()
        .chain(&args.image_paths)
        .cloned()
        .collect();
    OwnerChange {
        options: &args.options,
        wanted: Wanted::Group,
        from: args.from.as_ref(),
    }
    .run(group, &paths, app);
    Ok(())
}
