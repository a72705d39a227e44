//! `extern4 build`: builds a volume from directories, tar archives, OCI images and other volumes.
//!
//! `args` calls [`run`]. If the build fails, it leaves no half-made output file.

mod edits;
mod rules;
mod selinux;
pub(crate) mod update;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use extern4::build::{
    BuildOptions, Builder, ImageConfig, Manifest, OldLayout, Options, Pattern, Planned, Platform,
    Size, SourceError, Summary, UpdateOptions, Verity, layout_of,
};

use self::edits::Edits;
pub(crate) use self::rules::Rules;
use self::update::{Reporting, update};
use crate::app::{App, host_reason};
use crate::id_names::{IdNames, MAX_BYTES, NameOrId};
use crate::image_path::{ImagePath, Part};
use crate::interruptible::Interruptible;
use crate::json;
use crate::new_volume::{
    Argument, Filling, NewVolumeError, Room, SourceOptions, config, contents_line, device, epoch,
    features_for, json_container, json_contents, json_numbers, size, systems, threads,
};
use crate::oci_image;
use crate::uuid_option::{Uuid, uuid};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The image file to make, or a device or partition to fill; - writes the image to standard
    /// output, and all else to standard error
    #[arg(value_name = "OUT", value_parser = ImagePath::output_parser())]
    out: ImagePath,
    /// The trees to put into it, each over those before: a directory, a tar archive, - for an
    /// archive on standard input, oci:PATH[:NAME] for an image of a container in a layout, an
    /// archive or on standard input, or an ext2, ext3 or ext4 volume: IMAGE or DISK#PARTITION.
    /// SOURCE:/PATH puts its root at /PATH, and any other file itself there
    #[arg(value_name = "SOURCE", required = true, value_parser = Argument::parser())]
    sources: Vec<Argument>,
    /// The size: auto for the smallest that works, +SIZE or +PERCENT% for that and as much more, or
    /// the size itself, with K, M, G or T. A plain number counts bytes
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = volume_size)]
    size: Size,
    /// Inodes of the volume; it can get a few more
    #[arg(long, short = 'N', value_name = "COUNT")]
    inodes: Option<u64>,
    /// The type of file system: ext2, ext3 or ext4
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    fs_type: String,
    /// How the volume is to be used: types of mke2fs.conf
    #[arg(short = 'T', value_name = "USE[,...]", value_delimiter = ',')]
    usage: Vec<String>,
    /// Bytes of a block: 1024 to 65536
    #[arg(short = 'b', value_name = "BYTES")]
    block_size: Option<u32>,
    /// Bytes of an inode: 128 up to a block
    #[arg(short = 'I', value_name = "BYTES")]
    inode_size: Option<u16>,
    /// Per cent of the blocks that only the superuser can take
    #[arg(short = 'm', value_name = "PERCENT", default_value_t = 0.0)]
    reserved_percent: f64,
    /// Features to add, or with ^ to leave out
    #[arg(
        short = 'O',
        long,
        value_name = "[^]FEATURE[,...]",
        allow_hyphen_values = true
    )]
    features: Vec<String>,
    /// Without the default features that this system cannot use; -O can add them again
    #[arg(long = "for", value_name = "SYSTEM", value_parser = systems())]
    system: Option<String>,
    /// Without a journal
    #[arg(long)]
    no_journal: bool,
    /// The label: 16 bytes at most
    #[arg(short = 'L', long, value_name = "TEXT")]
    label: Option<String>,
    /// The UUID: its digits, 'random', 'time' or 'clear'. Without it, one is derived from the tree
    /// and its contents
    #[arg(short = 'U', long, value_name = "UUID", value_parser = uuid)]
    uuid: Option<Uuid>,
    /// Owner and group of all files: numbers, or names in the tree's own /etc/passwd and /etc/group
    #[arg(long, value_name = "USER:GROUP", value_parser = owner)]
    owner: Option<Owner>,
    /// Leave out inode flags, such as chattr's, and projects
    #[arg(long)]
    no_flags: bool,
    /// Compact and never to be changed: no free space, no journal, and the feature read-only, with
    /// which Linux mounts it for reading alone
    #[arg(long, conflicts_with_all = ["size", "inodes"])]
    read_only: bool,
    /// Make OUT a disk: a GPT, and the volume in its first partition, which is named by the label
    #[arg(long)]
    partition: bool,
    /// Append the hash tree of dm-verity, as veritysetup makes it, and print its root hash
    #[arg(long)]
    verity: bool,
    /// Have fs-verity protect the regular files that GLOB matches, as in --exclude: the volume has
    /// the hash tree of each, and the feature verity
    #[arg(long, value_name = "GLOB")]
    fs_verity: Vec<OsString>,
    /// Keep the layout of an earlier volume: files that did not grow keep their inode numbers and
    /// their blocks, and files that grew get more. UUID and hash seed are OLD's, unless
    /// --uuid gives another one, and the volume is not smaller, unless --size says so
    #[arg(long, value_name = "OLD", value_parser = ImagePath::parser())]
    stable_layout: Option<ImagePath>,
    /// Bring the volume in OUT to the state of the sources, and write only what differs. Names that
    /// the sources lack are removed, but for lost+found and what e2fsck put there
    #[arg(long, conflicts_with_all = NEW_ONLY)]
    update: bool,
    #[command(flatten)]
    edits: Edits,
    #[command(flatten)]
    rules: Rules,
    /// The latest time that a file can have, in seconds since 1970; SOURCE_DATE_EPOCH by default
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    source_date_epoch: Option<i64>,
    /// A manifest of entries to add and of owners, modes and attributes to set: in the form of
    /// mtree(5), or a list of gen_init_cpio
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
    /// Leave out what is on other file systems than a source's directory itself
    #[arg(long, short = 'x')]
    one_file_system: bool,
    /// Leave out extended attributes and ACLs of the sources
    #[arg(long)]
    no_xattrs: bool,
    /// Keep a symbolic link to a directory where a later source or layer has a directory, and put
    /// its files where the link leads, as tar does
    #[arg(long)]
    keep_directory_symlink: bool,
    /// Make holes of blocks of zeroes
    #[arg(long)]
    sparse: bool,
    /// The platform of images with several (default: that of this machine)
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", value_parser = oci_image::platform)]
    platform: Option<Platform>,
    /// Threads that read and write; one for each CPU by default
    #[arg(long, value_name = "COUNT")]
    threads: Option<NonZero<usize>>,
    /// Only show how large the volume would be, or what --update would do
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Replace a file that is there
    #[arg(short = 'F', long)]
    force: bool,
    /// Print a line about each change of --update
    #[arg(short, long, requires = "update")]
    verbose: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
    /// Write one JSON object
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

/// The options that are about a volume that is made.
const NEW_ONLY: [&str; 20] = [
    "size",
    "inodes",
    "fs_type",
    "usage",
    "block_size",
    "inode_size",
    "reserved_percent",
    "features",
    "system",
    "no_journal",
    "label",
    "uuid",
    "read_only",
    "partition",
    "verity",
    "stable_layout",
    "fs_verity",
    "threads",
    "force",
    "json",
];

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if args.update {
        return update_volume(args, app);
    }
    let image = &args.out.image;
    match Filling::run(image, args.quiet, app, |filling, app| {
        build(args, filling, app)
    }) {
        Ok(built) if args.is_stream() => print(args, &built, &mut io::stderr().lock()),
        Ok(built) => print(args, &built, &mut io::stdout().lock()),
        Err(failure) => {
            failure.report(image, app);
            Ok(())
        }
    }
}

/// A volume that is planned, and perhaps written.
struct Built {
    volume: Planned,
    /// Its UUID, if it is written.
    uuid: Option<[u8; 16]>,
    /// Its hash tree, if it has one.
    verity: Option<Verity>,
    /// The configuration of the last image of a container among the sources.
    container: Option<ImageConfig>,
}

fn build(args: &Args, filling: &Filling, app: &mut App) -> Result<Built, NewVolumeError> {
    let image = &args.out.image;
    let threads = threads(args.threads);
    match out_of(args)? {
        Out::File => {
            let (volume, container) = plan(args, args.size, filling, app)?;
            let write = || volume.write_file(&image.file, args.force, threads);
            let written = (!args.dry_run).then(write).transpose()?;
            let uuid = written.as_ref().map(|written| written.uuid);
            Ok(Built {
                volume,
                uuid,
                verity: written.and_then(|written| written.verity),
                container,
            })
        }
        Out::Stream => {
            let mut out = host_output()?;
            let (volume, container) = plan(args, args.size, filling, app)?;
            let write = || volume.write_stream(&mut out, Path::new(STANDARD_OUTPUT), threads);
            let written = (!args.dry_run).then(write).transpose()?;
            let uuid = written.as_ref().map(|written| written.uuid);
            Ok(Built {
                volume,
                uuid,
                verity: written.and_then(|written| written.verity),
                container,
            })
        }
        Out::Device { is_device } => {
            if args.partition || args.verity {
                let reason = "--partition and --verity need OUT to be a new file";
                return Err(NewVolumeError::Usage(format!("'{image}': {reason}")));
            }
            let (target, room) = if args.dry_run {
                (None, Room::of(image, args.force)?)
            } else {
                let (target, room) = device(image, is_device, args.force)?;
                (Some(target), room)
            };
            let size = match args.size {
                Size::Auto => Size::Bytes(room.bytes()?),
                size => size,
            };
            let (volume, container) = plan(args, size, filling, app)?;
            room.check(volume.size_bytes(), args.force)?;
            let uuid = target
                .map(|target| volume.write(&*target, threads))
                .transpose()?;
            Ok(Built {
                volume,
                uuid,
                verity: None,
                container,
            })
        }
    }
}

/// The name of standard output in messages.
const STANDARD_OUTPUT: &str = "standard output";

/// Opens standard output, which is not to be a terminal.
fn host_output() -> Result<File, NewVolumeError> {
    let failed = |reason: &str| NewVolumeError::Failed(format!("{STANDARD_OUTPUT}: {reason}"));
    if io::stdout().is_terminal() {
        return Err(failed("an image is not written to a terminal"));
    }
    let out = rustix::io::dup(io::stdout()).map_err(|error| failed(&host_reason(&error.into())))?;
    Ok(File::from(out))
}

/// The kind of file that the volume goes to.
enum Out {
    /// Standard output.
    Stream,
    /// A new file.
    File,
    /// A device, or a partition.
    Device { is_device: bool },
}

fn update_volume(args: &Args, app: &mut App) -> io::Result<()> {
    let reporting = Reporting {
        dry_run: args.dry_run,
        verbose: args.verbose && !args.quiet,
        numbers: !args.quiet,
        quiet: args.quiet,
    };
    let options = UpdateOptions {
        owners: true,
        ..UpdateOptions::default()
    };
    update(&args.out.image, options, reporting, app, |filling, app| {
        named_alone(args)?;
        if args.is_stream() {
            return Err(NewVolumeError::Usage(
                "--update needs a volume that is there".to_owned(),
            ));
        }
        collect(args, args.size, filling, app).map(|(builder, _)| builder)
    })
}

impl Args {
    /// Returns whether the image goes to standard output.
    fn is_stream(&self) -> bool {
        self.out.image.file.as_os_str() == "-" && self.out.image.part == Part::Whole
    }
}

fn named_alone(args: &Args) -> Result<(), NewVolumeError> {
    if args.out.path.as_os_str() == "/" {
        Ok(())
    } else {
        Err(NewVolumeError::Usage(format!(
            "'{}': name the image alone",
            args.out
        )))
    }
}

fn out_of(args: &Args) -> Result<Out, NewVolumeError> {
    let image = &args.out.image;
    let refused = |reason: &str| Err(NewVolumeError::target(reason));
    if args.is_stream() {
        return Ok(Out::Stream);
    }
    named_alone(args)?;
    let Ok(found) = image.file.symlink_metadata() else {
        return match image.part {
            Part::Whole => Ok(Out::File),
            _ => refused("No such file or directory"),
        };
    };
    let kind = std::fs::metadata(&image.file).map_or(found.file_type(), |found| found.file_type());
    if kind.is_block_device() {
        Ok(Out::Device { is_device: true })
    } else if image.part != Part::Whole {
        Ok(Out::Device { is_device: false })
    } else if kind.is_dir() {
        refused("it is a directory; OUT stands before the sources: extern4 build OUT.img DIR")
    } else if !kind.is_file() && !found.is_symlink() {
        refused("it is neither a file nor a block device")
    } else if !args.force && !args.dry_run {
        refused("File exists (--force replaces it)")
    } else {
        Ok(Out::File)
    }
}

fn plan(
    args: &Args,
    size: Size,
    filling: &Filling,
    app: &mut App,
) -> Result<(Planned, Option<ImageConfig>), NewVolumeError> {
    let (mut builder, container) = collect(args, size, filling, app)?;
    if let Some(old) = &args.stable_layout {
        builder.keep_layout(layout(old, app)?);
    }
    filling.plan(builder, app).map(|volume| (volume, container))
}

/// Puts all sources together. Returns the configuration of the last image of a container, too.
fn collect(
    args: &Args,
    size: Size,
    filling: &Filling,
    app: &mut App,
) -> Result<(Builder, Option<ImageConfig>), NewVolumeError> {
    if args.platform.is_some() && !args.sources.iter().any(Argument::is_image) {
        let reason = "--platform has no effect here: no source is an image of a container";
        return Err(NewVolumeError::Usage(reason.to_owned()));
    }
    let mut builder = filling.builder(options(args, size)?);
    if let Some(edit) = args.edits.edit().map_err(NewVolumeError::Usage)? {
        builder.edit(edit);
    }
    if let Some(label) = args
        .edits
        .label(&app.stop())
        .map_err(NewVolumeError::Usage)?
    {
        builder.label(label);
    }
    let sources = SourceOptions {
        one_file_system: args.one_file_system,
        without_xattrs: args.no_xattrs,
        platform: args.platform.as_ref(),
    };
    let mut container = None;
    for argument in &args.sources {
        container = filling
            .add(&mut builder, argument, sources, app)?
            .or(container);
    }
    if let Some(owner) = args
        .owner
        .as_ref()
        .filter(|owner| owner.numbers().is_none())
    {
        let owner = owner.of_tree(&mut builder)?;
        builder.set_owner(owner);
    }
    for manifest in &args.manifest {
        builder.amend(open(manifest, app)?)?;
    }
    Ok((builder, container))
}

/// Opens a manifest of the host.
fn open(manifest: &Path, app: &App) -> Result<Manifest, SourceError> {
    let name = manifest.to_string_lossy().into_owned();
    match Interruptible::open(manifest, app.stop()) {
        Ok(file) => Manifest::read(io::BufReader::new(file), name),
        Err(source) => Err(SourceError::Io { name, source }),
    }
}

/// Reads the layout of an earlier volume. A failure is reported.
fn layout(old: &ImagePath, app: &mut App) -> Result<OldLayout, NewVolumeError> {
    if old.path.as_os_str() != "/" {
        return Err(NewVolumeError::Usage(format!(
            "'{old}': name the image alone"
        )));
    }
    let opened = app.volume(&old.image).ok_or(NewVolumeError::Reported)?;
    layout_of(&opened.volume).map_err(|error| {
        let path = error
            .path()
            .unwrap_or(Path::new("/"))
            .as_os_str()
            .to_owned();
        app.error(ImagePath::inside(old.image.clone(), &path), &error);
        NewVolumeError::Reported
    })
}

fn options(args: &Args, size: Size) -> Result<BuildOptions, NewVolumeError> {
    let mut features: Vec<_> = args
        .system
        .iter()
        .map(|system| features_for(system))
        .collect();
    features.extend(args.features.iter().cloned());
    if args.no_journal || args.read_only {
        features.push("^has_journal".to_owned());
    }
    if args.read_only {
        features.push("^resize_inode,read-only".to_owned());
    }
    let uuid = args
        .uuid
        .map(Uuid::bytes)
        .transpose()
        .map_err(NewVolumeError::failed)?;
    Ok(BuildOptions {
        volume: Options {
            fs_type: args.fs_type.clone(),
            usage: args.usage.clone(),
            block_size: args.block_size,
            inode_size: args.inode_size,
            inodes: args.inodes,
            features,
            reserved_percent: Some(args.reserved_percent),
            label: args.label.clone(),
            ..Options::default()
        },
        config: config()?,
        mkfs_defaults: false,
        size,
        uuid,
        hash_seed: None,
        latest: match args.source_date_epoch {
            Some(seconds) => Some(seconds),
            None => epoch()?,
        },
        owner: args.owner.as_ref().and_then(Owner::numbers),
        root_owner: None,
        no_flags: args.no_flags,
        filter: args.rules.0.clone(),
        partition: args.partition,
        verity: args.verity,
        without_xattrs: args.no_xattrs,
        keep_directory_links: args.keep_directory_symlink,
        zeroes_are_holes: args.sparse,
        fs_verity: args
            .fs_verity
            .iter()
            .map(|glob| Pattern::new(glob.as_bytes()))
            .collect(),
    })
}

fn volume_size(text: &str) -> Result<Size, String> {
    let bytes = |text: &str| match size::parse(text)? {
        size::Size::Bytes(bytes) | size::Size::Number(bytes) => Ok::<_, String>(bytes),
    };
    match text.strip_prefix('+') {
        _ if text == "auto" => Ok(Size::Auto),
        Some(more) => match more.strip_suffix('%') {
            Some(percent) => share(percent).map(Size::Share),
            None => bytes(more).map(Size::Slack),
        },
        None => bytes(text).map(Size::Bytes),
    }
}

/// Reads a number of per cent as hundredths.
fn share(percent: &str) -> Result<u32, String> {
    let share = size::decimal(percent, 100).and_then(|share| u32::try_from(share).ok());
    share.ok_or_else(|| "write it as +10%".to_owned())
}

/// The owner and the group that all files get.
#[derive(Clone, Debug)]
struct Owner {
    user: NameOrId,
    group: NameOrId,
}

fn owner(text: &str) -> Result<Owner, String> {
    let parts = text
        .split_once(':')
        .filter(|(user, group)| !user.is_empty() && !group.is_empty());
    let (user, group) = parts.ok_or_else(|| "write it as 1000:1000 or web:www".to_owned())?;
    Ok(Owner {
        user: NameOrId::parse(user)?,
        group: NameOrId::parse(group)?,
    })
}

impl Owner {
    /// Returns the numbers, if both are given.
    fn numbers(&self) -> Option<(u32, u32)> {
        match (&self.user, &self.group) {
            (NameOrId::Number(uid), NameOrId::Number(gid)) => Some((*uid, *gid)),
            _ => None,
        }
    }

    /// Looks names up in the tree that the sources make.
    fn of_tree(&self, builder: &mut Builder) -> Result<(u32, u32), NewVolumeError> {
        let mut read = |path: &[u8]| builder.read(path, MAX_BYTES).map(Option::unwrap_or_default);
        let names = IdNames::parse(&read(b"etc/passwd")?, &read(b"etc/group")?);
        let owner = self
            .user
            .uid(&names)
            .and_then(|uid| Ok((uid, self.group.gid(&names)?)));
        owner.map_err(|reason| {
            NewVolumeError::Failed(format!(
                "--owner: {reason} the tree, by its /etc/passwd and /etc/group"
            ))
        })
    }
}

fn print(args: &Args, built: &Built, out: &mut impl io::Write) -> io::Result<()> {
    if args.json {
        out.write_all(json_line(args, built).as_bytes())
    } else {
        show(args, built, out)
    }
}

/// Prints the numbers of a volume and the root hash of its tree; if nothing else is to be printed,
/// that alone.
fn show(
    args: &Args,
    Built { volume, verity, .. }: &Built,
    out: &mut impl io::Write,
) -> io::Result<()> {
    if !args.quiet {
        show_numbers(out, volume)?;
        if let Some(old) = &args.stable_layout {
            let Summary { kept, used, .. } = volume.summary();
            writeln!(
                out,
                "{kept} of {used} bytes in use by files stand where '{}' has them",
                old.image
            )?;
        }
    }
    let Some(Verity {
        root_hash,
        hash_offset,
        ..
    }) = verity
    else {
        return Ok(());
    };
    let root_hash: String = root_hash.iter().map(|byte| format!("{byte:02x}")).collect();
    if args.quiet {
        writeln!(out, "{root_hash}")
    } else {
        writeln!(
            out,
            "A hash tree at its byte {hash_offset}, root hash {root_hash}"
        )
    }
}

fn json_line(
    args: &Args,
    Built {
        volume,
        uuid,
        verity,
        container,
    }: &Built,
) -> String {
    json::line(|object| {
        let summary = volume.summary();
        json_numbers(object, &args.out.image, volume.plan(), *uuid);
        json_contents(object, &summary);
        if args.stable_layout.is_some() {
            object.raw("kept_bytes", summary.kept);
        }
        if let Some(Verity {
            root_hash,
            hash_offset,
            ..
        }) = verity
        {
            object.hex("root_hash", root_hash);
            object.raw("hash_offset", hash_offset);
        }
        if let Some(container) = container {
            json_container(object, container);
        }
    })
}

fn show_numbers(out: &mut impl io::Write, volume: &Planned) -> io::Result<()> {
    let summary = volume.summary();
    writeln!(out, "{}", contents_line(&summary))?;
    let journal = match summary.journal {
        0 => "without a journal".to_owned(),
        bytes => format!("with a journal of {bytes} bytes"),
    };
    writeln!(
        out,
        "A volume of {} bytes {journal}, {} bytes are free",
        summary.size, summary.free
    )
}
