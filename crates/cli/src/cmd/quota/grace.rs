//! `extern4 quota grace`: sets how long soft limits may be exceeded.

use extern4::quota::{GraceChange, Kind};

use super::limit::seconds;
use super::{kept, whole};
use crate::app::App;
use crate::image_path::ImagePath;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("time").required(true).multiple(true))]
pub(super) struct Args {
    /// The volume to change
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// How long the soft limit of space may be exceeded: seconds, or 12h, 7d
    #[arg(long, value_name = "TIME", group = "time", value_parser = seconds)]
    block: Option<u32>,
    /// How long the soft limit of inodes may be exceeded: seconds, or 12h, 7d
    #[arg(long, value_name = "TIME", group = "time", value_parser = seconds)]
    inode: Option<u32>,
    /// Change the times for users (default: for all that the volume keeps quotas of)
    #[arg(short, long)]
    users: bool,
    /// Change the times for groups
    #[arg(short, long)]
    groups: bool,
    /// Change the times for projects
    #[arg(short = 'P', long)]
    projects: bool,
}

pub(super) fn run(args: &Args, app: &mut App) -> Option<()> {
    let image = whole(&args.image_path, app)?;
    let wanted = [args.users, args.groups, args.projects]
        .into_iter()
        .zip(Kind::ALL);
    let wanted: Vec<Kind> = wanted
        .filter_map(|(is_wanted, kind)| is_wanted.then_some(kind))
        .collect();
    app.write_to(image);
    let volume = app.volume(image)?;
    let quotas = volume.volume.quotas();
    let change = GraceChange {
        space: args.block,
        inodes: args.inode,
    };
    for kind in kept(quotas, &wanted, image, app)? {
        if let Err(error) = quotas.set_grace(kind, change) {
            app.error(image, &error);
        }
    }
    Some(())
}
