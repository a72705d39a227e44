//! `extern4 mkfs`: makes ext2, ext3 and ext4 volumes, with the options of mke2fs.
//!
//! `args` calls [`run`]. A file or device that holds something is not overwritten without
//! `--force`. A wrong option is refused before anything is written.

pub(crate) mod extended;
mod journal;
mod made;
mod values;

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use extern4::block::{BlockDevice, bad_blocks};
use extern4::build::{BuildOptions, Edit, Size};
use extern4_mkfs::{Config, LABEL_BYTES, LAST_MOUNTED_BYTES, Options, Plan};
use rustix::fs::FallocateFlags;

use self::extended::{Extended, JournalOptions};
use self::journal::Journal;
use self::made::Made;
use self::values::BlockSize;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath, Part};
use crate::json;
use crate::new_volume::size::{self, VolumeSize};
use crate::new_volume::{
    Argument, CONFIG_VARIABLE, Filling, NewVolumeError, Room, SourceOptions, config, contents_line,
    device, epoch, features_for, json_contents, json_numbers, systems, threads,
};
use crate::text::{escape, quoted, uuid as uuid_text};
use crate::uuid_option::{Uuid, uuid};

#[derive(clap::Args)]
#[command(args_override_self = true, version)]
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
    /// Bytes of a block: 1024 to 65536; -BYTES for that or more, as the usage says
    #[arg(short = 'b', value_name = "BYTES", value_parser = values::block_size, allow_hyphen_values = true)]
    block_size: Option<BlockSize>,
    /// Bytes of the volume for each inode
    #[arg(short = 'i', value_name = "BYTES", value_parser = values::bytes::<u64>)]
    inode_ratio: Option<u64>,
    /// Bytes of an inode: 128 up to a block; 0 for the default
    #[arg(short = 'I', value_name = "BYTES", value_parser = values::bytes::<u16>)]
    inode_size: Option<u16>,
    /// Inodes of the volume; it can get a few more; 0 for the default
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u64>,
    /// Blocks of a group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups of a flexible group: a power of two
    #[arg(short = 'G', value_name = "COUNT")]
    groups_per_flex: Option<u32>,
    /// Features to add, or with ^ to leave out
    #[arg(
        short = 'O',
        value_name = "[^]FEATURE[,...]",
        allow_hyphen_values = true
    )]
    features: Vec<String>,
    /// Without the default features that this system cannot use; -O can add them again
    #[arg(long = "for", value_name = "SYSTEM", value_parser = systems())]
    system: Option<String>,
    /// With a journal, whatever the type says
    #[arg(short = 'j', id = "with_journal")]
    journal: bool,
    /// The journal: size=MiB, fast_commit_size=KiB, location=BLOCK, or device=DEVICE for an
    /// external journal that 'mkfs -O journal_dev' made: its path, UUID=UUID or LABEL=TEXT
    #[arg(short = 'J', value_name = "NAME=VALUE[,...]", value_parser = extended::checked_journal)]
    journal_options: Vec<String>,
    /// Further options: encoding=utf8, encoding_flags=strict, hash_seed=UUID, lazy_itable_init,
    /// lazy_journal_init, mmp_update_interval=N, mount_opts=TEXT, no_copy_xattrs, nodiscard,
    /// num_backup_sb=N, offset=BYTES, orphan_file_size=BLOCKS, packed_meta_blocks,
    /// quotatype=KIND[:...] with usrquota, grpquota or prjquota, resize=BLOCKS, root_owner=UID:GID,
    /// root_perms=MODE, stride=N, stripe_width=N, test_fs
    #[arg(short = 'E', visible_short_alias = 'R', value_name = "NAME[=VALUE][,...]", value_parser = extended::checked)]
    extended: Vec<String>,
    /// The label: 16 bytes, and the rest is cut off
    #[arg(short = 'L', value_name = "TEXT")]
    label: Option<String>,
    /// The directory on which the volume was mounted last: 64 bytes, and the rest is cut off
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<String>,
    /// The UUID: its digits, 'random', 'time' or 'clear'. Without it, it is random, and with -d
    /// derived from the tree and its contents
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
    /// The system that the volume is for: linux, hurd, freebsd, lites or its number
    #[arg(short = 'o', value_name = "SYSTEM", value_parser = values::creator_os)]
    creator_os: Option<u32>,
    /// Read all of the device first, and leave out the blocks that cannot be read. Twice: write
    /// patterns and read them again
    #[arg(short = 'c', action = clap::ArgAction::Count)]
    check: u8,
    /// Leave out the blocks in this list, one number a line, as badblocks(8) writes it
    #[arg(short = 'l', value_name = "FILE")]
    bad_blocks: Option<PathBuf>,
    /// Write only superblocks and group descriptors, where all of them are lost: with the options
    /// of the volume that is there, and its UUID. Then run e2fsck
    #[arg(short = 'S', conflicts_with_all = ["source", "check", "bad_blocks"])]
    superblocks: bool,
    /// Only show the numbers of the volume, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Make the volume although something else is there
    #[arg(short = 'F', long)]
    force: bool,
    /// As -E nodiscard
    #[arg(short = 'K')]
    keep: bool,
    /// No effect: extern4 keeps nothing in the system's cache that a program waits for
    #[arg(short = 'D')]
    direct: bool,
    /// Say also which configuration counts, and the types of it
    #[arg(short, long)]
    verbose: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
    /// Write one JSON object
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if args.image_path.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, &args.image_path, "name the image alone");
        return Ok(());
    }
    let asked = match Asked::read(args) {
        Ok(asked) => asked,
        Err(reason) => {
            app.fail(ExitStatus::Usage, reason);
            return Ok(());
        }
    };
    let image = &asked.image;
    let made = match &args.source {
        None => make(args, &asked, None, app),
        Some(source) => {
            let fill =
                |filling: &Filling, app: &mut App| make(args, &asked, Some((filling, source)), app);
            Filling::run(image, args.quiet, app, fill)
        }
    };
    match made {
        Ok(made) => {
            asked
                .warnings
                .iter()
                .for_each(|warning| app.note_at(image, warning));
            made.plan()
                .warnings()
                .iter()
                .for_each(|warning| app.note_at(image, warning));
            match (args.quiet, args.json) {
                (true, _) => Ok(()),
                (_, true) => io::stdout().write_all(json_line(image, &made).as_bytes()),
                (false, false) => show(args, &made),
            }
        }
        Err(failure) => {
            failure.report(image, app);
            Ok(())
        }
    }
}

/// The meaning of several words of the command line together.
struct Asked {
    /// The place of the volume, with `-E offset=`.
    image: Image,
    extended: Extended,
    journal: JournalOptions,
    label: Option<String>,
    last_mounted: Option<String>,
    warnings: Vec<String>,
}

impl Asked {
    /// Reads the words of all `-E` and `-J`, and cuts off what has no room. The error is about
    /// words that contradict each other.
    fn read(args: &Args) -> Result<Self, String> {
        let extended = extended::parse(&args.extended.join(","))?;
        let mut image = args.image_path.image.clone();
        match (extended.offset.filter(|offset| *offset > 0), image.part) {
            (None, _) => {}
            (Some(offset), Part::Whole) => image.part = Part::Offset(offset),
            (Some(_), _) => {
                return Err(format!(
                    "'{image}' says where the volume starts, and so does -E offset="
                ));
            }
        }
        let casefold = args
            .features
            .iter()
            .any(|list| list.split(',').any(|name| name == "casefold"));
        if extended.strict_encoding.is_some() && !extended.casefold && !casefold {
            return Err("-E encoding_flags= needs -E encoding=utf8".to_owned());
        }
        let mut warnings = Vec::new();
        let mut cut = |name: &str, text: &Option<String>, room: usize| {
            let text = text.as_deref()?;
            let kept = &text[..text.floor_char_boundary(room)];
            if kept.len() < text.len() {
                warnings.push(format!(
                    "{name} has {} bytes, and is cut off: {}",
                    text.len(),
                    quoted(kept)
                ));
            }
            Some(kept.to_owned())
        };
        Ok(Self {
            image,
            label: cut("the label", &args.label, LABEL_BYTES),
            last_mounted: cut(
                "the last mount point",
                &args.last_mounted,
                LAST_MOUNTED_BYTES,
            ),
            journal: extended::journal(&args.journal_options.join(","))?,
            extended,
            warnings,
        })
    }
}

fn make(
    args: &Args,
    asked: &Asked,
    filling: Option<(&Filling, &Argument)>,
    app: &mut App,
) -> Result<Made, NewVolumeError> {
    if args.size == Some(VolumeSize::Auto) && args.source.is_none() {
        return Err(NewVolumeError::Usage("the size 'auto' needs -d".to_owned()));
    }
    if args.source.is_some() && args.revision == 0 {
        return Err(NewVolumeError::Usage("-d needs revision 1".to_owned()));
    }
    let config = config()?;
    let journal = asked.journal.device.as_deref();
    let journal = journal
        .map(|device| Journal::open(device, args.force))
        .transpose()?;
    let mut options = options(args, asked)?;
    if let Some(journal) = &journal {
        journal.add_to(&mut options);
    }
    let image = &asked.image;
    let make = Make {
        args,
        asked,
        image,
        options,
        config,
        journal,
        filling,
    };
    match std::fs::metadata(&image.file) {
        Ok(found) => make.overwrite(found.file_type().is_block_device(), app),
        Err(error) if error.kind() == io::ErrorKind::NotFound => make.create(app),
        Err(error) => Err(NewVolumeError::target(host_reason(&error))),
    }
}

/// A volume that is to be made.
struct Make<'a> {
    args: &'a Args,
    asked: &'a Asked,
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
            (Some(VolumeSize::Of(size)), _) => Some(size.bytes(self.options.block_size)),
            (Some(VolumeSize::Auto), _) => None,
            (None, bytes) => bytes,
        };
        let Some((filling, source)) = self.filling else {
            let bytes = bytes.or(given);
            let bytes = bytes.ok_or_else(|| {
                NewVolumeError::target("it is not there, so a size has to be given")
            })?;
            return Ok(Made::Empty(Box::new(Plan::new(
                &self.options,
                &self.config,
                bytes,
            )?)));
        };
        let mut builder = filling.builder(self.build_options(given)?);
        if let Some(edit) = self.edit() {
            builder.edit(edit);
        }
        filling.add(&mut builder, source, SourceOptions::default(), app)?;
        Ok(Made::Filled {
            planned: Box::new(filling.plan(builder, app)?),
            uuid: None,
        })
    }

    /// Returns the change of the source's entries, if there is one.
    fn edit(&self) -> Option<Edit> {
        let no_xattrs = self.asked.extended.no_copy_xattrs;
        let perms = self.asked.extended.root_perms;
        (no_xattrs || perms.is_some()).then(|| -> Edit {
            Box::new(move |entry| {
                if no_xattrs {
                    entry.xattrs.clear();
                }
                if let Some(mode) = perms.filter(|_| entry.path.is_empty()) {
                    entry.set_mode(mode);
                }
                Ok(())
            })
        })
    }

    /// The options of a build of this many bytes, or else of as few as possible.
    fn build_options(&self, bytes: Option<u64>) -> Result<BuildOptions, NewVolumeError> {
        let extended = &self.asked.extended;
        // The journal's device names the volume before that is written.
        let is_derived = self.args.uuid.is_none() && self.journal.is_none();
        Ok(BuildOptions {
            volume: self.options.clone(),
            config: self.config.clone(),
            mkfs_defaults: true,
            size: bytes.map_or(Size::Auto, Size::Bytes),
            uuid: (!is_derived).then_some(self.options.uuid),
            hash_seed: extended.hash_seed.map(|_| self.options.hash_seed),
            latest: epoch()?,
            root_owner: extended.root_owner,
            ..BuildOptions::default()
        })
    }

    /// Writes the volume, to a device that reads as zeroes or may hold anything.
    fn write(
        &self,
        made: &mut Made,
        device: &dyn BlockDevice,
        is_zero: bool,
    ) -> Result<(), NewVolumeError> {
        if self.args.superblocks {
            return Ok(made.plan().write_superblocks(device)?);
        }
        self.set_journal_user(made.plan())?;
        made.write(device, is_zero)
    }

    fn set_journal_user(&self, plan: &Plan) -> Result<(), NewVolumeError> {
        match &self.journal {
            Some(journal) => journal.set_user(plan),
            None => Ok(()),
        }
    }

    /// Makes the file and the volume in it; a file that did not become a volume is removed.
    fn create(&self, app: &mut App) -> Result<Made, NewVolumeError> {
        let image = self.image;
        let start = self.asked.extended.offset.unwrap_or(0);
        if self.args.image_path.image.part != Part::Whole || self.args.superblocks {
            return Err(NewVolumeError::target("it is not there"));
        }
        let mut made = self.plan(None, app)?;
        if self.args.dry_run {
            return Ok(made);
        }
        if let Made::Filled { planned, uuid } = &mut made
            && start == 0
        {
            self.set_journal_user(planned.plan())?;
            *uuid = Some(planned.write_file(&image.file, false, threads(None))?.uuid);
            return Ok(made);
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&image.file);
        let written = file
            .map_err(|error| NewVolumeError::target(host_reason(&error)))?
            .set_len(start.saturating_add(made.plan().size_bytes()))
            .map_err(NewVolumeError::target)
            .and_then(|()| device(image, false, true))
            .and_then(|(device, _)| self.write(&mut made, &*device, true));
        if written.is_err() {
            let _ = std::fs::remove_file(&image.file);
        }
        written.map(|()| made)
    }

    /// Makes the volume in a file, device or partition that is there.
    fn overwrite(mut self, is_device: bool, app: &mut App) -> Result<Made, NewVolumeError> {
        let image = self.image;
        let force = self.args.force;
        // The size of a file can change.
        let is_fixed = is_device || image.part != Part::Whole || self.args.superblocks;
        let planned = |make: &Self, room: &Room, app: &mut App| {
            let made = make.plan(Some(room.bytes()?), app)?;
            if is_fixed {
                room.check(made.plan().size_bytes(), force)?;
            }
            Ok::<_, NewVolumeError>(made)
        };
        if self.args.dry_run {
            return planned(&self, &Room::of(image, force)?, app);
        }
        let (target, room) = device(image, is_device, force)?;
        if self.args.check > 0 {
            self.find_bad_blocks(&*target, &room, app)?;
        }
        let mut made = planned(&self, &room, app)?;
        if is_fixed {
            self.write(&mut made, &*target, false)?;
            return Ok(made);
        }
        let wanted = made.plan().size_bytes();
        let have = target.size_bytes();
        let file = OpenOptions::new().write(true).open(&image.file);
        let file = file.map_err(|error| NewVolumeError::target(host_reason(&error)))?;
        if have < wanted {
            file.set_len(wanted).map_err(NewVolumeError::target)?;
        }
        // A hole reads as zeroes and takes no room; a file system without holes has the zeroes
        // written.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let is_hole =
            !self.options.keep_allocated && rustix::fs::fallocate(&file, flags, 0, wanted).is_ok();
        drop(target);
        let (target, _) = device(image, false, true)?;
        self.write(&mut made, &*target, is_hole)?;
        Ok(made)
    }

    /// Looks for bad blocks of the device, and leaves them out of the volume.
    fn find_bad_blocks(
        &mut self,
        device: &dyn BlockDevice,
        room: &Room,
        app: &mut App,
    ) -> Result<(), NewVolumeError> {
        let plan = Plan::new(&self.options, &self.config, room.bytes()?)?;
        let superblock = plan.superblock();
        let size = superblock.block_size();
        let held = device.size_bytes() / u64::from(size);
        let blocks =
            superblock.geometry().first_data_block().into()..superblock.blocks_count().min(held);
        let stop = app.stop_on_signals();
        let bad = bad_blocks(device, size, blocks, self.args.check > 1, &|| {
            stop.signal().is_some()
        });
        self.options
            .bad_blocks
            .extend(bad.ok_or(NewVolumeError::Stopped)?);
        Ok(())
    }
}

fn options(args: &Args, asked: &Asked) -> Result<Options, NewVolumeError> {
    let extended = asked.extended.clone();
    let journal = asked.journal.clone();
    let block_size = args.block_size.and_then(BlockSize::exactly);
    let uuid = |uuid: Option<Uuid>| {
        uuid.unwrap_or(Uuid::Random)
            .bytes()
            .map_err(NewVolumeError::failed)
    };
    let mut features: Vec<_> = args
        .system
        .iter()
        .map(|system| features_for(system))
        .collect();
    features.extend(args.features.iter().cloned());
    if extended.casefold {
        features.push("casefold".to_owned());
    }
    Ok(Options {
        fs_type: args.fs_type.clone(),
        usage: args.usage.clone(),
        block_size,
        least_block_size: args.block_size.and_then(BlockSize::least),
        blocks_per_group: args.blocks_per_group,
        groups_per_flex: args.groups_per_flex,
        size: match args.size {
            Some(VolumeSize::Of(size)) => Some(size.bytes(block_size)),
            Some(VolumeSize::Auto) | None => None,
        },
        inode_ratio: args.inode_ratio,
        inode_size: args.inode_size.filter(|size| *size > 0),
        inodes: args.inodes.filter(|inodes| *inodes > 0),
        features,
        journal: args.journal,
        journal_size: journal.size,
        journal_location: journal.location,
        checksum_seed: None,
        fast_commit_kib: journal.fast_commit_kib,
        external_journal: None,
        reserved_percent: args.reserved_percent,
        label: asked.label.clone(),
        last_mounted: asked.last_mounted.clone(),
        uuid: uuid(args.uuid)?,
        hash_seed: uuid(extended.hash_seed)?,
        errors: args.errors.as_deref().map(|policy| match policy {
            "continue" => 1,
            "remount-ro" => 2,
            _ => 3,
        }),
        revision: args.revision,
        quota: extended.quota,
        creator_os: args.creator_os.unwrap_or(0),
        root_owner: extended.root_owner.unwrap_or((0, 0)),
        root_perms: extended.root_perms,
        is_test: extended.is_test,
        strict_encoding: extended.strict_encoding.unwrap_or(false),
        packed_metadata: extended.packed_metadata,
        orphan_file_size: extended.orphan_file_size,
        keep_allocated: extended.keep_allocated || args.keep,
        bad_blocks: args
            .bad_blocks
            .as_deref()
            .map(values::bad_blocks)
            .transpose()?
            .unwrap_or_default(),
        superblocks_only: args.superblocks,
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
        Some(seconds) => u64::try_from(seconds).map_err(|_| {
            NewVolumeError::Usage(format!("SOURCE_DATE_EPOCH is {seconds}, before 1970"))
        }),
        None => Ok(SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs())),
    }
}

fn show(args: &Args, made: &Made) -> io::Result<()> {
    let plan = made.plan();
    let mut out = io::stdout().lock();
    let superblock = plan.superblock();
    if args.verbose {
        let config =
            std::env::var_os(CONFIG_VARIABLE).map(|path| escape(path.as_bytes()).into_owned());
        let config = config
            .as_deref()
            .unwrap_or("the built-in one, of e2fsprogs 1.47");
        writeln!(
            out,
            "Configuration: {config}; types {}",
            plan.types().join(", ")
        )?;
    }
    if let Made::Filled { planned, .. } = made {
        writeln!(out, "{}", contents_line(&planned.summary()))?;
    }
    let [size, inodes] = [superblock.block_size(), superblock.inodes_count()];
    writeln!(
        out,
        "{} blocks of {size} bytes, {inodes} inodes",
        superblock.blocks_count()
    )?;
    if let Some(uuid) = made.uuid() {
        writeln!(out, "UUID: {}", uuid_text(uuid))?;
    }
    if plan.journal_blocks() > 0 {
        writeln!(out, "Journal: {} blocks", plan.journal_blocks())?;
    }
    let backups: Vec<String> = plan
        .backup_blocks()
        .map(|block| block.to_string())
        .collect();
    if !backups.is_empty() {
        writeln!(
            out,
            "Copies of the superblock in blocks: {}",
            backups.join(", ")
        )?;
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
