//! `extern4 tune`: changes the settings in the superblock of a volume.
//!
//! `args` calls [`run`]. All settings of a line are checked first. A volume whose checksums are to
//! be rewritten is first checked for faults. `extern4::tune` makes the changes, in a safe order.

mod settings;

use std::io;

use extern4::Volume;
use extern4::tune::{
    self, Applied, Changes, ErrorPolicy, Fields, MountOptions, NewJournal, QuotaChange,
};
use extern4_check::{Options, check};

use crate::app::{App, Opened, reason};
use crate::cmd::mkfs::extended::{self, JournalOptions};
use crate::exit_status::ExitStatus;
use crate::id_names::NameOrId;
use crate::image_path::{Image, ImagePath};
use crate::text::quoted;
use crate::uuid_option::{Uuid, uuid};

use settings::FeatureChange;
pub(crate) use settings::feature_names;

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
    if tune::is_rewriting_interrupted(&options, &image.file) {
        let completed = app.when_free(image, || tune::rewrite_checksums(&options, &image.file));
        if let Err(error) = &completed {
            app.refused(image, error);
        }
        if completed.is_err() || !matches!(args.uuid, Some(Uuid::Exactly(_))) {
            return false;
        }
    }
    let opened = match app.open(image, false) {
        Ok(opened) => opened,
        Err(error) => {
            app.refused(image, &error);
            return false;
        }
    };
    if let Err(error) = tune::check_rewritable(&opened) {
        app.error(image, &error);
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

/// Does the work that needs the volume closed. Reports a failure.
fn finish(applied: &Applied, image: &Image, app: &mut App) {
    let mut options = Volume::options();
    options.part(image.part);
    let journal = app.opening().journal.clone();
    if let Some(journal) = &journal {
        options.journal(journal);
    }
    if !applied.is_unfinished(&options) {
        return;
    }
    if !app.close() {
        return;
    }
    let finished = app.when_free(image, || applied.finish(&options, &image.file));
    let Err(error) = finished else {
        return;
    };
    match journal.filter(|journal| error.path() == Some(journal)) {
        Some(journal) => app.error(
            format_args!("{image}: its journal {}", journal.display()),
            &error,
        ),
        None => app.refused(image, &error),
    }
}

/// Returns the changes that the options ask for, as far as they do not depend on the volume. The
/// error is a contradiction.
fn changes(args: &Args) -> Result<Changes, String> {
    let journal = args.journal_options.as_ref();
    if journal.is_some_and(|journal| journal.device.is_some()) {
        return Err("-J device=: only mkfs gives a volume a journal on another device".to_owned());
    }
    if journal.is_some_and(|journal| journal.location.is_some()) {
        return Err("-J location=: a journal that is added gets the first room for it".to_owned());
    }
    let new_journal = journal.map(|journal| NewJournal {
        size: journal.size,
        fast_commit_kib: journal.fast_commit_kib,
    });
    let features = args.features.unwrap_or_default();
    let fields = Fields {
        label: args.label.as_ref().map(|label| label.clone().into_bytes()),
        errors: args.errors.map(|errors| match errors {
            Errors::Continue => ErrorPolicy::Continue,
            Errors::RemountRo => ErrorPolicy::RemountReadOnly,
            Errors::Panic => ErrorPolicy::Panic,
        }),
        reserved_blocks: args.reserved_blocks,
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
        ..Fields::default()
    };
    let changes = Changes {
        fields,
        reserved_percent: args.reserved_percent,
        journal: new_journal.or(args.adds_journal.then(NewJournal::default)),
        quotas: args.quotas.clone().unwrap_or_default(),
        rewrites_checksums: args.rewrite,
    };
    match changes.check() {
        Ok(()) => Ok(changes),
        Err(error) => Err(reason(&error)),
    }
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
    let mut changes = match changes(args) {
        Ok(changes) => changes,
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
    changes.fields.reserved_for = reserved_for;
    changes.fields.uuid = args.uuid.map(Uuid::bytes).transpose()?;
    let applied = match changes.apply(&volume.volume) {
        Ok(applied) => applied,
        Err(error) => {
            app.error(image, &error);
            return Ok(());
        }
    };
    drop(volume);
    let read_only = applied.read_only_features();
    if !read_only.is_empty() {
        let names: Vec<String> = read_only.iter().map(ToString::to_string).collect();
        let follows = "from now on extern4 only reads this volume; Linux writes to it, and no tool takes away";
        app.note_at(image, format_args!("{follows} {}", names.join(", ")));
    }
    finish(&applied, image, app);
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
