//! `extern4 tune`: changes the settings in the superblock of a volume.
//!
//! `args` calls [`run`]. All settings of a line are checked first. A volume whose structures have
//! to change with a setting is first checked for faults. Files that a volume has for itself, such
//! as the journal, come before the other settings, and the journal goes after them.

mod settings;
mod structures;

use std::io;
use std::sync::Arc;

use extern4::Volume;
use extern4::block::{BlockDevice, FileDevice, FileOptions};
use extern4_check::{Options, check};
use extern4_disk::superblock::ErrorPolicy;
use extern4_ext4::OpenOptions;
use extern4_ext4::checksum_rewrite::{check_rewritable, rewrite_checksums, was_interrupted};
use extern4_ext4::own_files::journal::remove_journal;
use extern4_ext4::tune::{MountOptions, Tune, rename_journal_user};
use extern4_ext4::unwritable;

use crate::app::{App, Opened};
use crate::cmd::mkfs::extended::{self, JournalOptions};
use crate::exit_status::ExitStatus;
use crate::id_names::NameOrId;
use crate::image_path::{Image, ImagePath};
use crate::text::quoted;
use crate::uuid_option::{Uuid, uuid};

pub(crate) use settings::feature_names;
use settings::{FeatureChange, QuotaChange};
use structures::Structures;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Args {
    /// The volume to change
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// The label: 16 bytes at most
    #[arg(short = 'L', long, value_name = "TEXT", group = "what", value_parser = label)]
    label: Option<String>,
    /// The UUID: its digits, 'random', 'time' or 'clear'. A volume with metadata_csum gets the
    /// feature metadata_csum_seed, unless it has it
    #[arg(short = 'U', long, value_name = "UUID", group = "what", value_parser = uuid)]
    uuid: Option<Uuid>,
    /// With --uuid, compute all checksums again, for readers that do not know metadata_csum_seed.
    /// The volume is not to be used meanwhile. After an interruption, run the same command again
    #[arg(long, requires = "uuid")]
    rewrite: bool,
    /// Set how a kernel reacts when it finds an error
    #[arg(short, long, group = "what")]
    errors: Option<Errors>,
    /// Reserve this many blocks for the superuser only
    #[arg(
        short,
        long,
        value_name = "N",
        group = "what",
        conflicts_with = "reserved_percent"
    )]
    reserved_blocks: Option<u64>,
    /// Reserve this percentage of the blocks for the superuser only: 50 at most
    #[arg(short = 'm', long, value_name = "P", group = "what", value_parser = percent)]
    reserved_percent: Option<f64>,
    /// Let this user take reserved blocks, too: a number, or a name of the volume's
    #[arg(short = 'u', long, value_name = "USER", group = "what", value_parser = NameOrId::parse)]
    reserved_user: Option<NameOrId>,
    /// Let this group take reserved blocks, too: a number, or a name of the volume's
    #[arg(short = 'g', long, value_name = "GROUP", group = "what", value_parser = NameOrId::parse)]
    reserved_group: Option<NameOrId>,
    /// Have the volume checked after this many mounts; -1 for never
    #[arg(short = 'c', long, value_name = "N", group = "what", value_parser = settings::max_mounts, allow_hyphen_values = true)]
    max_mounts: Option<u16>,
    /// Set the number of mounts since the last check
    #[arg(short = 'C', long, value_name = "N", group = "what")]
    mounts: Option<u16>,
    /// Have the volume checked after this time: days, or with d, w or m days, weeks or months; 0
    /// for never
    #[arg(short = 'i', long, value_name = "TIME", group = "what", value_parser = settings::interval)]
    check_interval: Option<u32>,
    /// Set the time of the last check: now, or YYYYMMDD[HH[MM[SS]]]
    #[arg(short = 'T', long, value_name = "TIME", group = "what", value_parser = settings::checked)]
    last_checked: Option<u64>,
    /// Set the directory of the last mount: 63 bytes at most
    #[arg(short = 'M', long, value_name = "DIRECTORY", group = "what", value_parser = directory)]
    last_mounted: Option<String>,
    /// Set default mount options, or with ^ clear them: [^]acl, [^]user_xattr, [^]discard and so on
    #[arg(short = 'o', long, value_name = "[^]OPTION[,...]", group = "what", value_parser = settings::mount_options)]
    mount_options: Option<MountOptions>,
    /// Add features: dir_index, extent, ea_inode, encrypt, large_dir, large_file, huge_file,
    /// dir_nlink, stable_inodes, verity, has_journal, quota, project. Or with ^ take away
    /// has_journal, quota and project, and features that no file uses: dir_index, ea_inode,
    /// encrypt, large_file, huge_file, dir_nlink, stable_inodes
    #[arg(short = 'O', long, value_name = "[^]FEATURE[,...]", group = "what", value_parser = settings::features, allow_hyphen_values = true)]
    features: Option<FeatureChange>,
    /// Add a journal to a volume that has none
    #[arg(short = 'j', group = "what")]
    adds_journal: bool,
    /// Add a journal: size=MiB, fast_commit_size=KiB
    #[arg(short = 'J', value_name = "NAME=VALUE[,...]", group = "what", value_parser = extended::journal)]
    journal_options: Option<JournalOptions>,
    /// Keep quotas, or with ^ keep them no more: usrquota, grpquota, prjquota
    #[arg(short = 'Q', long, value_name = "[^]KIND[,...]", group = "what", value_parser = settings::quotas, allow_hyphen_values = true)]
    quotas: Option<QuotaChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Errors {
    /// Go on
    Continue,
    /// Turn read-only
    RemountRo,
    /// Panic
    Panic,
}

fn label(text: &str) -> Result<String, String> {
    match text.len() {
        0..=16 => Ok(text.to_owned()),
        len => Err(format!("it has {len} bytes, and there is room for 16")),
    }
}

fn directory(text: &str) -> Result<String, String> {
    match text.len() {
        0..=63 => Ok(text.to_owned()),
        len => Err(format!("it has {len} bytes, and there is room for 63")),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=50.0).contains(percent));
    percent.ok_or_else(|| "between 0 and 50".to_owned())
}

/// Completes an interrupted rewriting of checksums, and checks whether the volume is fit for one.
/// Returns false if nothing is left to do, or after a failure, which it reports.
fn prepare(args: &Args, image: &Image, app: &mut App) -> bool {
    let mut options = Volume::options();
    options.part(image.part);
    let interrupted = options
        .device(&image.file)
        .is_ok_and(|(device, _)| was_interrupted(&device));
    if interrupted && !(rewrite(image, app) && matches!(args.uuid, Some(Uuid::Exactly(_)))) {
        return false;
    }
    let opened = match app.open(image, false) {
        Ok(opened) => opened,
        Err(error) => {
            app.refused(image, &error);
            return false;
        }
    };
    if let Err(error) = check_rewritable(opened.ext4().superblock().features()) {
        app.ext4_error(image, &error.into());
        return false;
    }
    let checked = check(opened.ext4(), &Options::default(), &mut |_| {});
    match checked {
        Ok(summary) if summary.faults == 0 => true,
        Ok(summary) => {
            let faults = summary.faults;
            let message =
                format!("{image}: its checksums are not rewritten: check finds {faults} faults");
            app.fail(ExitStatus::Corrupt, message);
            false
        }
        Err(interrupted) => {
            app.fail_at(ExitStatus::Failed, image, interrupted);
            false
        }
    }
}

/// Rewrites the checksums of a volume that is not open. Returns false after a failure, which it
/// reports.
fn rewrite(image: &Image, app: &mut App) -> bool {
    on_device(image, app, rewrite_checksums)
}

/// Works on the device of a volume that is not open. Returns false after a failure, which it
/// reports.
fn on_device(
    image: &Image,
    app: &mut App,
    work: impl FnOnce(&Arc<dyn BlockDevice>) -> extern4_ext4::Result<()>,
) -> bool {
    let mut options = Volume::options();
    options.write(true);
    options.part(image.part);
    let device = match app.when_free(image, || options.device(&image.file)) {
        Ok((device, _)) => Arc::new(device) as Arc<dyn BlockDevice>,
        Err(error) => {
            app.refused(image, &error);
            return false;
        }
    };
    work(&device)
        .inspect_err(|error| app.ext4_error(image, error))
        .is_ok()
}

/// Returns the numbers of the user and the group that may take reserved blocks. Reports a name that
/// the volume does not know.
fn reserved_for(args: &Args, volume: &Opened, app: &mut App) -> Option<(Option<u32>, Option<u32>)> {
    let uid = args
        .reserved_user
        .as_ref()
        .map(|user| user.uid(volume.names()))
        .transpose();
    let gid = args
        .reserved_group
        .as_ref()
        .map(|group| group.gid(volume.names()))
        .transpose();
    match (uid, gid) {
        (Ok(uid), Ok(gid)) => Some((uid, gid)),
        (Err(message), _) | (_, Err(message)) => {
            app.fail(
                ExitStatus::Failed,
                format_args!("{message} {}", quoted(&volume.image)),
            );
            None
        }
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image = &args.image_path.image;
    if args.image_path.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, &args.image_path, "name the image alone");
        return Ok(());
    }
    if !app.is_superuser() {
        app.fail_at(
            ExitStatus::Failed,
            image,
            "only the superuser changes a volume as a whole",
        );
        return Ok(());
    }
    let mut features = args.features.unwrap_or_default();
    let structures = Structures::of(
        args.adds_journal,
        args.journal_options.as_ref(),
        args.quotas.as_ref(),
        &mut features,
    );
    let structures = match structures {
        Ok(structures) => structures,
        Err(message) => {
            app.fail_at(ExitStatus::Usage, image, message);
            return Ok(());
        }
    };
    if args.rewrite && !prepare(args, image, app) {
        return Ok(());
    }
    app.write_to(image);
    let Some(volume) = app.volume(image) else {
        return Ok(());
    };
    let Some(reserved_for) = reserved_for(args, &volume, app) else {
        return Ok(());
    };
    let ext4 = volume.volume.ext4();
    let blocks = ext4.superblock().blocks_count();
    let percent = args
        .reserved_percent
        .map(|percent| (blocks as f64 * percent / 100.0) as u64);
    let tune = Tune {
        label: args.label.as_ref().map(|label| label.clone().into_bytes()),
        uuid: args.uuid.map(Uuid::bytes).transpose()?,
        errors: args.errors.map(|errors| match errors {
            Errors::Continue => ErrorPolicy::Continue,
            Errors::RemountRo => ErrorPolicy::RemountReadOnly,
            Errors::Panic => ErrorPolicy::Panic,
        }),
        reserved_blocks: args.reserved_blocks.or(percent),
        reserved_for,
        mounts: args.mounts,
        max_mounts: args.max_mounts,
        check_interval: args.check_interval,
        last_checked: args.last_checked,
        last_mounted: args
            .last_mounted
            .as_ref()
            .map(|directory| directory.clone().into_bytes()),
        mount_options: args.mount_options.unwrap_or_default(),
        features: features.with,
        without: features.without,
    };
    if let Some(wanted) = tune.reserved_blocks.filter(|wanted| *wanted > blocks / 2) {
        let most = blocks / 2;
        app.fail_at(
            ExitStatus::Failed,
            image,
            format_args!("{wanted} blocks cannot be reserved; half of them can, {most}"),
        );
        return Ok(());
    }
    if !structures.change(ext4, image, app) {
        return Ok(());
    }
    let superblock = ext4.superblock().clone();
    let old = ext4.superblock().uuid();
    if let Err(error) = ext4.tune(&tune) {
        app.ext4_error(image, &error);
        return Ok(());
    }
    drop(volume);
    let unwritable = unwritable(tune.features.difference(superblock.features()));
    if !unwritable.is_empty() {
        let names: Vec<String> = unwritable.iter().map(ToString::to_string).collect();
        let follows = "from now on extern4 only reads this volume; Linux writes to it, and no tool takes away";
        app.note_at(image, format_args!("{follows} {}", names.join(", ")));
    }
    if structures.removes_journal {
        app.close();
        if app.status() != ExitStatus::Success
            || !on_device(image, app, |device| {
                remove_journal(device, &OpenOptions::default())
            })
        {
            return Ok(());
        }
    }
    if args.rewrite {
        app.close();
        rewrite(image, app);
    }
    if let (Some(new), Some(journal)) = (tune.uuid, app.opening().journal.clone()) {
        app.close();
        let options = FileOptions {
            write: true,
            ..FileOptions::default()
        };
        let device = FileDevice::open_with(&journal, &options).map_err(extern4_ext4::Error::from);
        let renamed = device
            .and_then(|device| rename_journal_user(Arc::new(device), &superblock, &old, &new));
        if let Err(error) = renamed {
            app.ext4_error(
                format_args!("{image}: its journal {}", journal.display()),
                &error,
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{label, percent};

    #[test]
    fn arguments_are_read() {
        assert!(label("sixteen bytes ok").is_ok());
        assert!(label("seventeen bytes n").is_err());
        assert_eq!(percent("3.7"), Ok(3.7));
        assert!(percent("51").is_err() && percent("-1").is_err() && percent("NaN").is_err());
    }
}
