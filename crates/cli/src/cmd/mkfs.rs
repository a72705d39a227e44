//! `extern4 mkfs`: makes ext2, ext3 and ext4 volumes, with the options of mke2fs.
//!
//! `args` calls [`run`]. A file or device that holds something is not overwritten without
//! `--force`. A wrong option is refused before anything is written.

pub(crate) mod extended;
mod journal;
mod made;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4::block::BlockDevice;
use extern4::build::{BuildOptions, Size};
use extern4_mkfs::{Config, Options, Plan, random_uuid};
use rustix::fs::FallocateFlags;

use self::extended::{Extended, JournalOptions};
use self::journal::Journal;
use self::made::Made;
use super::tune::{Uuid, uuid};
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath, Part};
use crate::json;
use crate::new_volume::size::{self, VolumeSize};
use crate::new_volume::{
    Argument, Filling, NewVolumeError, Room, SourceOptions, config, contents_line, device, epoch,
    json_contents, json_numbers, threads,
};
use crate::text::uuid as uuid_text;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to make the volume: a file, which is made if it is not there, a device or a partition
    #[arg(value_name = "IMAGE", value_parser = ImagePath::output_parser())]
    image_path: ImagePath,
    /// The size, with K, M, G or T; a plain number counts blocks with -b, and KiB without it. auto
    /// is the smallest that works with -d, and the default for a new file. Else the volume fills
    /// the file or device by default
    #[arg(value_name = "SIZE", value_parser = size::parse_or_auto)]
    size: Option<VolumeSize>,
    /// Fill the volume: with a directory, a tar archive, - for an archive on standard input,
    /// oci:DIR[:TAG], or an ext2, ext3 or ext4 volume. SOURCE:/PATH puts its root at /PATH
    #[arg(short = 'd', value_name = "SOURCE", value_parser = Argument::parser())]
    source: Option<Argument>,
    /// The type of file system: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// How the volume is to be used: types of mke2fs.conf, such as small, news or largefile
    #[arg(short = 'T', value_name = "USE[,...]", value_delimiter = ',')]
    usage: Vec<String>,
    /// Bytes of a block: 1024 to 65536
    #[arg(short = 'b', value_name = "BYTES")]
    block_size: Option<u32>,
    /// Bytes of the volume for each inode
    #[arg(short = 'i', value_name = "BYTES")]
    inode_ratio: Option<u64>,
    /// Bytes of an inode: 128 up to a block
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u16>,
    /// Inodes of the volume; it can get a few more
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u64>,
    /// Blocks of a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups of a flexible group: a power of two
    #[arg(short = 'G', value_name = "COUNT")]
    groups_per_flex: Option<u32>,
    /// Features to add, or with ^ to leave out
    #[arg(short = 'O', value_name = "[^]FEATURE[,...]", allow_hyphen_values = true)]
    features: Vec<String>,
    /// With a journal, whatever the type says
    #[arg(short = 'j', id = "with_journal")]
    journal: bool,
    /// The journal: size=MiB, fast_commit_size=KiB, or device=DEVICE for an external journal that
    /// 'mkfs -O journal_dev' made: its path, UUID=UUID or LABEL=TEXT
    #[arg(short = 'J', value_name = "NAME=VALUE[,...]", value_parser = extended::journal)]
    journal_options: Option<JournalOptions>,
    /// Further options: hash_seed=UUID, lazy_itable_init, lazy_journal_init, mmp_update_interval=N,
    /// mount_opts=TEXT, nodiscard, num_backup_sb=N, quotatype=KIND[:...] with usrquota, grpquota or
    /// prjquota, resize=BLOCKS, root_owner=UID:GID, stride=N, stripe_width=N
    #[arg(short = 'E', value_name = "NAME[=VALUE][,...]", value_parser = extended::parse)]
    extended: Option<Extended>,
    /// The label: 16 bytes at most
    #[arg(short = 'L', value_name = "TEXT")]
    label: Option<String>,
    /// The directory on which the volume was mounted last
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<String>,
    /// The UUID: its digits, 'random' or 'clear'. Without it, it is random, and with -d derived
    /// from the tree and its contents
    #[arg(short = 'U', value_name = "UUID", value_parser = uuid)]
    uuid: Option<Uuid>,
    /// Per cent of the blocks that only the superuser can take
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved_percent: Option<f64>,
    /// The reaction of the kernel to an error that it finds: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "POLICY", value_parser = ["continue", "remount-ro", "panic"])]
    errors: Option<String>,
    /// The revision of the format: 1, or 0 for very old kernels
    #[arg(short = 'r', value_name = "REVISION", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(0..=1))]
    revision: u32,
    /// Only show the numbers of the volume, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Make the volume although something else is there
    #[arg(short = 'F', long)]
    force: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
    /// Write one JSON object
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image = &args.image_path.image;
    if args.image_path.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, &args.image_path, "name the image alone");
        return Ok(());
    }
    let made = match &args.source {
        None => make(args, None, app),
        Some(source) => {
            Filling::run(image, args.quiet, app, |filling, app| make(args, Some((filling, source)), app))
        }
    };
    match made {
        Ok(made) => {
            made.plan().warnings().iter().for_each(|warning| app.note_at(image, warning));
            match (args.quiet, args.json) {
                (true, _) => Ok(()),
                (_, true) => io::stdout().write_all(json_line(image, &made).as_bytes()),
                (false, false) => show(&made),
            }
        }
        Err(failure) => {
            failure.report(image, app);
            Ok(())
        }
    }
}

fn make(args: &Args, filling: Option<(&Filling, &Argument)>, app: &mut App) -> Result<Made, NewVolumeError> {
    if args.size == Some(VolumeSize::Auto) && args.source.is_none() {
        return Err(NewVolumeError::Usage("the size 'auto' needs -d".to_owned()));
    }
    if args.source.is_some() && args.revision == 0 {
        return Err(NewVolumeError::Usage("-d needs revision 1".to_owned()));
    }
    let config = config()?;
    let device = args.journal_options.as_ref().and_then(|journal| journal.device.as_deref());
    let journal = device.map(|device| Journal::open(device, args.force)).transpose()?;
    let mut options = options(args)?;
    if let Some(journal) = &journal {
        journal.add_to(&mut options);
    }
    let image = &args.image_path.image;
    let make = Make { args, image, options, config, journal, filling };
    match std::fs::metadata(&image.file) {
        Ok(found) => make.overwrite(found.file_type().is_block_device(), app),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make.create(app),
        Err(error) => Err(NewVolumeError::target(host_reason(&error))),
    }
}

/// A volume that is to be made.
struct Make<'a> {
    args: &'a Args,
    image: &'a Image,
    options: Options,
    config: Config,
    journal: Option<Journal>,
    /// The source that fills it.
    filling: Option<(&'a Filling, &'a Argument)>,
}

impl Make<'_> {
    /// Plans the volume on a device of `bytes`, or in a file that gets any size.
    fn plan(&self, bytes: Option<u64>, app: &mut App) -> Result<Made, NewVolumeError> {
        let given = match (self.args.size, bytes) {
            (Some(VolumeSize::Of(size)), _) => Some(size.bytes(self.args.block_size)),
            (Some(VolumeSize::Auto), _) => None,
            (None, bytes) => bytes,
        };
        let Some((filling, source)) = self.filling else {
            let bytes = bytes.or(given);
            let bytes =
                bytes.ok_or_else(|| NewVolumeError::target("it is not there, so a size has to be given"))?;
            return Ok(Made::Empty(Box::new(Plan::new(&self.options, &self.config, bytes)?)));
        };
        let mut builder = filling.builder(self.build_options(given)?);
        filling.add(&mut builder, source, SourceOptions::default(), app)?;
        Ok(Made::Filled { planned: Box::new(filling.plan(builder, app)?), uuid: None })
    }

    /// The options of a build of this many bytes, or else of as few as possible.
    fn build_options(&self, bytes: Option<u64>) -> Result<BuildOptions, NewVolumeError> {
        let extended = self.args.extended.as_ref();
        // The journal's device names the volume before that is written.
        let is_derived = self.args.uuid.is_none() && self.journal.is_none();
        Ok(BuildOptions {
            volume: self.options.clone(),
            config: self.config.clone(),
            mkfs_defaults: true,
            size: bytes.map_or(Size::Auto, Size::Bytes),
            uuid: (!is_derived).then_some(self.options.uuid),
            hash_seed: extended.and_then(|extended| extended.hash_seed).map(|_| self.options.hash_seed),
            latest: epoch()?,
            root_owner: extended.and_then(|extended| extended.root_owner),
            ..BuildOptions::default()
        })
    }

    /// Writes the volume, to a device that reads as zeroes or may hold anything.
    fn write(&self, made: &mut Made, device: &dyn BlockDevice, is_zero: bool) -> Result<(), NewVolumeError> {
        self.set_journal_user(made.plan())?;
        made.write(device, is_zero)
    }

    fn set_journal_user(&self, plan: &Plan) -> Result<(), NewVolumeError> {
        self.journal.as_ref().map_or(Ok(()), |journal| journal.set_user(plan))
    }

    /// Makes the file and the volume in it; a file that did not become a volume is removed.
    fn create(&self, app: &mut App) -> Result<Made, NewVolumeError> {
        let image = self.image;
        if image.part != Part::Whole {
            return Err(NewVolumeError::target("it is not there"));
        }
        let mut made = self.plan(None, app)?;
        if self.args.dry_run {
            return Ok(made);
        }
        if let Made::Filled { planned, uuid } = &mut made {
            self.set_journal_user(planned.plan())?;
            *uuid = Some(planned.write_file(&image.file, false, threads(None))?.uuid);
            return Ok(made);
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&image.file);
        let written = file
            .map_err(|error| NewVolumeError::target(host_reason(&error)))?
            .set_len(made.plan().size_bytes())
            .map_err(NewVolumeError::target)
            .and_then(|()| device(image, false, true))
            .and_then(|(device, _)| self.write(&mut made, &*device, true));
        if written.is_err() {
            let _ = std::fs::remove_file(&image.file);
        }
        written.map(|()| made)
    }

    /// Makes the volume in a file, device or partition that is there.
    fn overwrite(&self, is_device: bool, app: &mut App) -> Result<Made, NewVolumeError> {
        let image = self.image;
        let force = self.args.force;
        let is_fixed = is_device || image.part != Part::Whole;
        let planned = |room: &Room, app: &mut App| {
            let made = self.plan(Some(room.bytes()?), app)?;
            if is_fixed {
                room.check(made.plan().size_bytes(), force)?;
            }
            Ok::<_, NewVolumeError>(made)
        };
        if self.args.dry_run {
            return planned(&Room::of(image, force)?, app);
        }
        let (target, room) = device(image, is_device, force)?;
        let mut made = planned(&room, app)?;
        if is_fixed {
            self.write(&mut made, &*target, false)?;
            return Ok(made);
        }
        let (wanted, have) = (made.plan().size_bytes(), target.size_bytes());
        let file = OpenOptions::new().write(true).open(&image.file);
        let file = file.map_err(|error| NewVolumeError::target(host_reason(&error)))?;
        if have < wanted {
            file.set_len(wanted).map_err(NewVolumeError::target)?;
        }
        // A hole reads as zeroes and takes no room; a file system without holes has the zeroes
        // written.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let is_hole = rustix::fs::fallocate(&file, flags, 0, wanted).is_ok();
        drop(target);
        let (target, _) = device(image, false, true)?;
        self.write(&mut made, &*target, is_hole)?;
        Ok(made)
    }
}

fn options(args: &Args) -> Result<Options, NewVolumeError> {
    let extended = args.extended.clone().unwrap_or_default();
    let journal = args.journal_options.clone().unwrap_or_default();
    let random = || random_uuid().map_err(NewVolumeError::failed);
    Ok(Options {
        fs_type: args.fs_type.clone(),
        usage: args.usage.clone(),
        block_size: args.block_size,
        blocks_per_group: args.blocks_per_group,
        groups_per_flex: args.groups_per_flex,
        size: match args.size {
            Some(VolumeSize::Of(size)) => Some(size.bytes(args.block_size)),
            Some(VolumeSize::Auto) | None => None,
        },
        inode_ratio: args.inode_ratio,
        inode_size: args.inode_size,
        inodes: args.inodes,
        features: args.features.clone(),
        journal: args.journal,
        journal_size: journal.size,
        journal_location: None,
        checksum_seed: None,
        fast_commit_kib: journal.fast_commit_kib,
        external_journal: None,
        reserved_percent: args.reserved_percent,
        label: args.label.clone(),
        last_mounted: args.last_mounted.clone(),
        uuid: match args.uuid {
            Some(Uuid::Exactly(uuid)) => uuid,
            Some(Uuid::Random) | None => random()?,
        },
        hash_seed: extended.hash_seed.map_or_else(random, Ok)?,
        errors: args.errors.as_deref().map(|policy| match policy {
            "continue" => 1,
            "remount-ro" => 2,
            _ => 3,
        }),
        revision: args.revision,
        quota: extended.quota,
        root_owner: extended.root_owner.unwrap_or((0, 0)),
        stride: extended.stride,
        stripe_width: extended.stripe_width,
        resize_limit: extended.resize_limit,
        backup_superblocks: extended.backup_superblocks,
        mmp_interval: extended.mmp_interval,
        mount_options: extended.mount_options,
        time: time()?,
    })
}

/// `SOURCE_DATE_EPOCH` of reproducible builds, or else now.
fn time() -> Result<u64, NewVolumeError> {
    match epoch()? {
        Some(seconds) => u64::try_from(seconds)
            .map_err(|_| NewVolumeError::Usage(format!("SOURCE_DATE_EPOCH is {seconds}, before 1970"))),
        None => Ok(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
    }
}

fn show(made: &Made) -> io::Result<()> {
    let (plan, mut out) = (made.plan(), io::stdout().lock());
    let superblock = plan.superblock();
    if let Made::Filled { planned, .. } = made {
        writeln!(out, "{}", contents_line(&planned.summary()))?;
    }
    let [size, inodes] = [superblock.block_size(), superblock.inodes_count()];
    writeln!(out, "{} blocks of {size} bytes, {inodes} inodes", superblock.blocks_count())?;
    if let Some(uuid) = made.uuid() {
        writeln!(out, "UUID: {}", uuid_text(uuid))?;
    }
    if plan.journal_blocks() > 0 {
        writeln!(out, "Journal: {} blocks", plan.journal_blocks())?;
    }
    let backups: Vec<String> = plan.backup_blocks().map(|block| block.to_string()).collect();
    if !backups.is_empty() {
        writeln!(out, "Copies of the superblock in blocks: {}", backups.join(", "))?;
    }
    Ok(())
}

fn json_line(image: &Image, made: &Made) -> String {
    json::line(|object| {
        json_numbers(object, image, made.plan(), made.uuid());
        if let Made::Filled { planned, .. } = made {
            json_contents(object, &planned.summary());
        }
    })
}
