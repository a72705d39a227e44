//! `extern4 quota set`: sets the limits of users, groups and projects.

use extern4_disk::quota::{Entry, Kind};
use extern4_ext4::quota::Limits;

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
    /// Returns the limits of an entry after the change: those that are not named stay.
    fn limits(&self, entry: &Entry) -> Limits {
        let Entry { space, inodes, .. } = entry;
        Limits {
            space: (
                self.block_soft.unwrap_or(space.soft),
                self.block_hard.unwrap_or(space.hard),
            ),
            inodes: (
                self.inode_soft.unwrap_or(inodes.soft),
                self.inode_hard.unwrap_or(inodes.hard),
            ),
        }
    }
}

pub(super) fn run(args: &Args, app: &mut App) -> Option<()> {
    let image = whole(&args.image_path, app)?;
    let names = app.names_of(image)?;
    let owners = args.owners.find(&names, image, app)?;
    app.write_to(image);
    let volume = app.volume(image)?;
    let ext4 = volume.volume.ext4();
    let kinds: Vec<Kind> = owners.iter().map(|(kind, _)| *kind).collect();
    kept(ext4, &kinds, image, app)?;
    for (kind, id) in owners {
        let changed = ext4.quota(kind, id).and_then(|entry| {
            let limits = args.limits(&entry.unwrap_or_default());
            ext4.set_quota(kind, id, &limits)
        });
        if let Err(error) = changed {
            app.ext4_error(format_args!("{image}: {kind} {id}"), &error);
        }
    }
    Some(())
}
