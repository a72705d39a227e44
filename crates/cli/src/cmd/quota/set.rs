//! `extern4 quota set`: sets the limits of users, groups and projects.

use extern4::quota::{Kind, LimitChange};

use super::limit::{inodes, space};
use super::owners::Owners;
use super::{kept, whole};
use crate::app::App;
use crate::image_path::ImagePath;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("owner").required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
pub(super) struct Args {
    /// The volume to change
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    #[command(flatten)]
    owners: Owners,
    /// The space that may be exceeded for the grace time only; 0 for no limit. A number is in
    /// KiB, or in the unit behind it: 10M, 1G
    #[arg(long, value_name = "SIZE", group = "limit", value_parser = space)]
    block_soft: Option<u64>,
    /// The space that is never exceeded; 0 for no limit
    #[arg(long, value_name = "SIZE", group = "limit", value_parser = space)]
    block_hard: Option<u64>,
    /// The number of files that may be exceeded for the grace time only; 0 for no limit. 2k is
    /// for 2000
    #[arg(long, value_name = "N", group = "limit", value_parser = inodes)]
    inode_soft: Option<u64>,
    /// The number of files that is never exceeded; 0 for no limit
    #[arg(long, value_name = "N", group = "limit", value_parser = inodes)]
    inode_hard: Option<u64>,
}

impl Args {
    fn limits(&self) -> LimitChange {
        LimitChange {
            space_soft: self.block_soft,
            space_hard: self.block_hard,
            inodes_soft: self.inode_soft,
            inodes_hard: self.inode_hard,
        }
    }
}

pub(super) fn run(args: &Args, app: &mut App) -> Option<()> {
    let image = whole(&args.image_path, app)?;
    let names = app.names_of(image)?;
    let owners = args.owners.find(&names, image, app)?;
    app.write_to(image);
    let volume = app.volume(image)?;
    let quotas = volume.volume.quotas();
    let kinds: Vec<Kind> = owners.iter().map(|(kind, _)| *kind).collect();
    kept(quotas, &kinds, image, app)?;
    for (kind, id) in owners {
        if let Err(error) = quotas.set_limits(kind, id, &args.limits()) {
            app.error(format_args!("{image}: {kind} {id}"), &error);
        }
    }
    Some(())
}
