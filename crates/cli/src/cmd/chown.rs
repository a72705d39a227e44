//! `extern4 chown`: changes owners and groups.
//!
//! `args` calls [`run`]; `change` does the work. A file that cannot be changed is reported, and the
//! others still change.

mod change;
mod options;

use std::ffi::OsString;
use std::io;

use crate::app::App;
use crate::checked::{Check, Checked};
use crate::owner::Owner;

pub(super) use change::{OwnerChange, Wanted};
pub(super) use options::Options;

/// The arguments.
pub(crate) type Args = Checked<Line>;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Line {
    /// OWNER, OWNER:GROUP, NAME: or :GROUP, unless --reference is given: numbers, or names of the
    /// volume's own /etc/passwd and /etc/group
    #[arg(value_name = "OWNER[:GROUP]")]
    owner: OsString,
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
        self.options.first(&self.owner, Owner::argument).map(drop)
    }
}

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    let Ok(owner) = args.options.first(&args.owner, Owner::argument) else {
        return Ok(());
    };
    let first = owner.is_none().then_some(&args.owner);
    let paths: Vec<_> = first
        .into_iter()
        .chain(&args.image_paths)
        .cloned()
        .collect();
    OwnerChange {
        options: &args.options,
        wanted: Wanted::Both,
        from: args.from.as_ref(),
    }
    .run(owner, &paths, app);
    Ok(())
}
