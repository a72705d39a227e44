//! `extern4 mkfs`: makes ext2, ext3 and ext4 volumes, with the options of mke2fs.

mod extended;
mod journal;
pub(super) mod size;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4::Volume;
use extern4::block::BlockDevice;
use extern4_mkfs::{Config, Error, Options, Plan, random_uuid};
use rustix::fs::FallocateFlags;

use self::extended::{Extended, JournalOptions};
use self::journal::Journal;
use self::size::Size;
use super::tune::{Uuid, uuid};
use crate::app::{App, host_reason, part};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath, Part};

/// Bytes at the start of a device that tell whether it holds something.
const HEAD_BYTES: u64 = 128 << 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to make the volume: a file, which is made if it is not there, a device or a partition
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// The size, with K, M, G or T; a plain number counts blocks with -b, and KiB without it.
    /// Without a size, the volume fills the file or device
    #[arg(value_name = "SIZE", value_parser = size::parse)]
    size: Option<Size>,
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
    /// The UUID: its digits, 'random' or 'clear'
    #[arg(short = 'U', value_name = "UUID", default_value = "random", value_parser = uuid)]
    uuid: Uuid,
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
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image = &args.image_path.image;
    if args.image_path.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, &args.image_path, "name the image alone");
        return Ok(());
    }
    let made = match make(args, image) {
        Ok(plan) => plan,
        Err(Failure::Usage(reason)) => {
            app.fail(ExitStatus::Usage, reason);
            return Ok(());
        }
        Err(Failure::Failed(reason)) => {
            app.fail_at(ExitStatus::Failed, image, reason);
            return Ok(());
        }
    };
    for warning in made.warnings() {
        app.note_at(image, warning);
    }
    if args.quiet { Ok(()) } else { show(&made) }
}

/// Why no volume was made.
pub(super) enum Failure {
    /// The options are wrong.
    Usage(String),
    /// Anything else.
    Failed(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Options(reason) => Self::Usage(reason),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<extern4::Error> for Failure {
    fn from(error: extern4::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

fn failed(error: impl ToString) -> Failure {
    Failure::Failed(error.to_string())
}

fn make(args: &Args, image: &Image) -> Result<Plan, Failure> {
    let config = config()?;
    let device = args.journal_options.as_ref().and_then(|journal| journal.device.as_deref());
    let journal = device.map(|device| Journal::open(device, args.force)).transpose()?;
    let mut options = options(args)?;
    if let Some(journal) = &journal {
        journal.add_to(&mut options);
    }
    let make = Make { args, image, options, config, journal };
    match std::fs::metadata(&image.file) {
        Ok(found) => make.overwrite(found.file_type().is_block_device()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make.create(),
        Err(error) => Err(failed(host_reason(&error))),
    }
}

/// A volume that is to be made.
struct Make<'a> {
    args: &'a Args,
    image: &'a Image,
    options: Options,
    config: Config,
    journal: Option<Journal>,
}

impl Make<'_> {
    fn plan(&self, bytes: u64) -> Result<Plan, Failure> {
        Ok(Plan::new(&self.options, &self.config, bytes)?)
    }

    /// Writes the volume, to a device that reads as zeroes or may hold anything.
    fn write(&self, plan: &Plan, device: &dyn BlockDevice, is_zero: bool) -> Result<(), Failure> {
        if let Some(journal) = &self.journal {
            journal.set_user(plan)?;
        }
        let written = if is_zero { plan.write_on_zeroes(device) } else { plan.write(device) };
        Ok(written?)
    }

    /// Makes the file and the volume in it; a file that did not become a volume is removed.
    fn create(&self) -> Result<Plan, Failure> {
        let image = self.image;
        if image.part != Part::Whole {
            return Err(failed("it is not there"));
        }
        let bytes = self.options.size.ok_or_else(|| failed("it is not there, so a size has to be given"))?;
        let plan = self.plan(bytes)?;
        if self.args.dry_run {
            return Ok(plan);
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&image.file);
        let made = file
            .map_err(|error| failed(host_reason(&error)))?
            .set_len(plan.size_bytes())
            .map_err(failed)
            .and_then(|()| device(image, false, true))
            .and_then(|device| self.write(&plan, &*device, true));
        if made.is_err() {
            let _ = std::fs::remove_file(&image.file);
        }
        made.map(|()| plan)
    }

    /// Makes the volume in a file, device or partition that is there.
    fn overwrite(&self, is_device: bool) -> Result<Plan, Failure> {
        let image = self.image;
        if self.args.dry_run {
            return self.plan(image_size(image)?);
        }
        let target = device(image, is_device, self.args.force)?;
        let plan = self.plan(target.size_bytes())?;
        if is_device || image.part != Part::Whole {
            let (wanted, have) = (plan.size_bytes(), target.size_bytes());
            if wanted > have {
                return Err(failed(format!("{wanted} bytes are more than its {have}")));
            }
            self.write(&plan, &*target, false)?;
            return Ok(plan);
        }
        let file =
            OpenOptions::new().write(true).open(&image.file).map_err(|error| failed(host_reason(&error)))?;
        if target.size_bytes() < plan.size_bytes() {
            file.set_len(plan.size_bytes()).map_err(failed)?;
        }
        // A hole reads as zeroes and takes no room; a file system without holes has the zeroes
        // written.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let is_hole = rustix::fs::fallocate(&file, flags, 0, plan.size_bytes()).is_ok();
        drop(target);
        let target = device(image, false, true)?;
        self.write(&plan, &*target, is_hole)?;
        Ok(plan)
    }
}

fn image_size(image: &Image) -> Result<u64, Failure> {
    let mut options = Volume::options();
    part(&mut options, image);
    let (device, _) = options.device(&image.file)?;
    Ok(device.size_bytes())
}

/// Opens what is to become a volume. It must be empty, or `force` say that what it holds can go.
pub(super) fn device(image: &Image, is_device: bool, force: bool) -> Result<Box<dyn BlockDevice>, Failure> {
    let mut options = Volume::options();
    options.write(true);
    part(&mut options, image);
    let (device, _) = options.device(&image.file)?;
    if !force {
        let mut head = vec![0; device.size_bytes().min(HEAD_BYTES) as usize];
        device.read_at(&mut head, 0).map_err(failed)?;
        if head.iter().any(|byte| *byte != 0) {
            let kind = if is_device { "device" } else { "file" };
            return Err(failed(format!("the {kind} holds {}; --force overwrites it", contents(&head))));
        }
    }
    Ok(Box::new(device))
}

/// A name for what a device holds.
fn contents(head: &[u8]) -> &'static str {
    let has = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    match () {
        () if has(0x438, &[0x53, 0xef]) => "an ext2, ext3 or ext4 volume",
        () if has(0, b"XFSB") => "an XFS volume",
        () if has(0x10040, b"_BHRfS_M") => "a btrfs volume",
        () if has(0x200, b"EFI PART") => "a partition table (GPT)",
        () if has(510, &[0x55, 0xaa]) => "a partition table or a boot sector",
        () if has(0, b"LUKS\xba\xbe") => "a LUKS volume",
        () if has(4086, b"SWAPSPACE2") => "a swap area",
        () => "data",
    }
}

fn options(args: &Args) -> Result<Options, Failure> {
    let extended = args.extended.clone().unwrap_or_default();
    let journal = args.journal_options.clone().unwrap_or_default();
    let random = || random_uuid().map_err(failed);
    Ok(Options {
        fs_type: args.fs_type.clone(),
        usage: args.usage.clone(),
        block_size: args.block_size,
        blocks_per_group: args.blocks_per_group,
        groups_per_flex: args.groups_per_flex,
        size: args.size.map(|size| size.bytes(args.block_size)),
        inode_ratio: args.inode_ratio,
        inode_size: args.inode_size,
        inodes: args.inodes,
        features: args.features.clone(),
        journal: args.journal,
        journal_size: journal.size,
        fast_commit_kib: journal.fast_commit_kib,
        external_journal: None,
        reserved_percent: args.reserved_percent,
        label: args.label.clone(),
        last_mounted: args.last_mounted.clone(),
        uuid: match args.uuid {
            Uuid::Random => random()?,
            Uuid::Exactly(uuid) => uuid,
        },
        hash_seed: match extended.hash_seed {
            Some(seed) => seed,
            None => random()?,
        },
        errors: args.errors.as_deref().map(|policy| match policy {
            "continue" => 1,
            "remount-ro" => 2,
            _ => 3,
        }),
        revision: args.revision,
        quota: extended.quota,
        root_owner: extended.root_owner,
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
fn time() -> Result<u64, Failure> {
    match epoch()? {
        Some(seconds) => u64::try_from(seconds)
            .map_err(|_| Failure::Usage(format!("SOURCE_DATE_EPOCH is {seconds}, before 1970"))),
        None => Ok(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
    }
}

/// `SOURCE_DATE_EPOCH` of reproducible builds, if it is set.
pub(super) fn epoch() -> Result<Option<i64>, Failure> {
    let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let wrong = |_| Failure::Usage(format!("SOURCE_DATE_EPOCH is '{text}', and no number of seconds"));
    text.parse().map(Some).map_err(wrong)
}

/// The configuration that `MKE2FS_CONFIG` names, or else that of e2fsprogs as its authors ship it.
pub(super) fn config() -> Result<Config, Error> {
    match std::env::var_os("MKE2FS_CONFIG") {
        None => Ok(Config::default()),
        Some(path) => {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Error::Options(format!("{}: {error}", path.display())))?;
            Config::parse(&text)
        }
    }
}

fn show(plan: &Plan) -> io::Result<()> {
    let superblock = plan.superblock();
    let mut out = io::stdout().lock();
    let [size, inodes] = [superblock.block_size(), superblock.inodes_count()];
    writeln!(out, "{} blocks of {size} bytes, {inodes} inodes", superblock.blocks_count())?;
    writeln!(out, "UUID: {}", uuid_text(superblock.uuid()))?;
    if plan.journal_blocks() > 0 {
        writeln!(out, "Journal: {} blocks", plan.journal_blocks())?;
    }
    let backups: Vec<String> = plan.backup_blocks().map(|block| block.to_string()).collect();
    if !backups.is_empty() {
        writeln!(out, "Copies of the superblock in blocks: {}", backups.join(", "))?;
    }
    Ok(())
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}
