//! `extern4 mount`: serves a volume as a directory.
//!
//! `args` calls [`run`], also for `mount.extern4` (`mount_helper`). The volume is closed before the
//! process ends. If data could not be written, the exit code says so.

mod daemon;
mod log;
mod open;
mod options;
mod remount;
mod serve;
mod service;
mod signals;

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use extern4::{Backup, Volume};
use extern4_disk::feature::RoCompat;
use extern4_fuse::{Claim, MountOptions, Mounted, device_name};
use rustix::process::geteuid;
use tracing::{debug, info};

use self::log::Log;
use self::open::Opened;
use self::options::{Options, Words};
pub(crate) use self::options::{rows as option_rows, starts as option_starts};
pub(crate) use self::signals::outlive_size_limit;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::mount_table::MountEntry;
use crate::text::escape;

#[derive(clap::Args)]
#[command(after_long_help = options::help())]
pub(crate) struct Args {
    /// Stay in the foreground until the volume is unmounted
    #[arg(short, long)]
    foreground: bool,
    /// Options as mount(8) spells them, with commas between them; a later one overrides an earlier
    /// one. They are listed below
    #[arg(short, value_name = "OPTIONS", value_parser = options::parse)]
    options: Vec<Words>,
    /// The volume to mount
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// The directory to mount it on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Serve metrics for Prometheus at http://ADDR/metrics; ADDR is of this machine only, such as
    /// 127.0.0.1:9464
    #[arg(long, value_name = "ADDR", value_parser = loopback)]
    metrics: Option<SocketAddr>,
    /// Append messages to FILE, in place of standard error, or of the system's log when in the
    /// background. EXTERN4_LOG says up to which level: error, warn, info (the default) or debug
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Leave the terminal once the volume is mounted: how the command starts itself to stay in the
    /// background
    #[arg(long, hide = true)]
    detach: bool,
    /// Unmount when process PID, which has started this one, ends, however it does
    #[arg(long, value_name = "PID", hide = true)]
    with_parent: Option<u32>,
}

/// Serves the volume until it is unmounted: reads the options, prepares the host, mounts, serves. A
/// step that fails reports the failure and returns `None`.
pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(request) = Request::read(args, app) else {
        return Ok(());
    };
    if !args.foreground && !args.detach {
        return daemon::start(&args.dir, app);
    }
    let Some(host) = Host::prepare(args, &request.options, app)? else {
        return Ok(());
    };
    let Some(made) = Made::open_and_mount(args, request, app) else {
        return Ok(());
    };
    serve::until_unmounted(args, host, made, app);
    Ok(())
}

/// The request of the command line.
struct Request {
    image: Image,
    /// The options as they were written.
    lists: Vec<Words>,
    options: Options,
}

impl Request {
    /// Reads and checks the options. Returns `None` also if there is nothing to mount, as after a
    /// remount.
    fn read(args: &Args, app: &mut App) -> Option<Self> {
        let lists = args.options.clone();
        let mut options = Options::of(&lists);
        options.journal = options.journal.or_else(|| app.opening().journal.clone());
        options.ext4.superblock = options
            .ext4
            .superblock
            .or(app.opening().superblock.map(Backup::Block));
        let Some(image) = options.image(&args.image_path.image) else {
            app.fail_at(
                ExitStatus::Usage,
                &args.image_path,
                "it says already where the volume is",
            );
            return None;
        };
        if args.image_path.path.as_os_str() != "/" {
            app.fail_at(ExitStatus::Usage, &args.image_path, "name the image alone");
            return None;
        }
        if options.remount {
            if !app.refuses_opening("the volume is open already") {
                remount::remount(&args.dir, &args.options, app);
            }
            return None;
        }
        if options.fsname().is_some() && options.fuseblk == Some(true) {
            app.fail(
                ExitStatus::Usage,
                "fsname: the mount table names the block device of a fuseblk mount",
            );
            return None;
        }
        let is_missing = options.nofail && !image.file.exists();
        (!is_missing).then_some(Self {
            image,
            lists,
            options,
        })
    }
}

/// The resources of the host that a served mount needs.
struct Host {
    metrics: Option<TcpListener>,
    /// `/dev/null`, for the standard streams of a process in the background.
    nowhere: File,
}

impl Host {
    /// Checks and makes the directory, and opens the listener, the log and the spare file
    /// descriptors.
    fn prepare(args: &Args, options: &Options, app: &mut App) -> io::Result<Option<Self>> {
        if let Some(mount) = MountEntry::dead_at(&args.dir) {
            app.fail_at(ExitStatus::Failed, args.dir.display(), open::dead(&mount));
            return Ok(None);
        }
        if let Some(mode) = options.mkdir
            && let Err(error) = DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(&args.dir)
        {
            app.fail_at(ExitStatus::Failed, args.dir.display(), host_reason(&error));
            return Ok(None);
        }
        if let Some(parent) = args.with_parent
            && !end_with(parent)?
        {
            app.fail(
                ExitStatus::Failed,
                format_args!("process {parent}, which was to be waited for, has ended"),
            );
            return Ok(None);
        }
        let Ok(metrics) = args
            .metrics
            .map(|address| serve_metrics(address, app))
            .transpose()
        else {
            return Ok(None);
        };
        if !start_log(args, app) {
            return Ok(None);
        }
        match daemon::nowhere() {
            Ok(nowhere) => Ok(Some(Self { metrics, nowhere })),
            Err(error) => {
                let reason = host_reason(&error);
                app.fail(
                    ExitStatus::Failed,
                    format_args!("too few file descriptors for a mount (ulimit -n): {reason}"),
                );
                Ok(None)
            }
        }
    }
}

/// A mount that is not served yet.
struct Made {
    request: Request,
    volume: Volume,
    /// The directory, resolved and quoted, for messages.
    dir: String,
    device: OwnedFd,
    mount: Mounted,
    /// Set when serving begins; the thread for signals waits for it.
    mounted: Arc<OnceLock<Mounted>>,
    /// Held while a signal unmounts.
    ending: Arc<Mutex<()>>,
}

impl Made {
    fn open_and_mount(args: &Args, mut request: Request, app: &mut App) -> Option<Self> {
        let Request {
            image,
            lists,
            options,
        } = &mut request;
        let Opened { volume, claim } = open::open(image, options, lists, app)?;
        // The log has these, too. Its reader on a terminal has seen them.
        if args.log.is_some() || args.detach {
            volume
                .warnings()
                .iter()
                .for_each(|warning| app.note_at(&*image, warning));
        }
        if let Some(most) = options
            .size_limit
            .filter(|most| size_bytes(&volume) > *most)
        {
            app.fail_at(
                ExitStatus::Failed,
                image,
                format_args!("the volume has more than sizelimit={most} bytes"),
            );
            return None;
        }
        if options.quota
            && !volume
                .ext4()
                .superblock()
                .features()
                .ro_compat
                .contains(RoCompat::QUOTA)
        {
            app.note_at(
                &*image,
                "it has no quotas, and none are kept: tune2fs -O quota makes them",
            );
        }
        // The path is resolved before the mount: a mount that is not served yet does not answer.
        let dir = args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone());
        let dir = escape(dir.as_os_str().as_bytes()).to_string();
        let mounted = Arc::new(OnceLock::new());
        let made = signals::end_on_signals(&mounted)
            .and_then(|ending| Ok((ending, mount(image, &volume, claim, &args.dir, options)?)));
        match made {
            Ok((ending, (device, mount))) => Some(Self {
                request,
                volume,
                dir,
                device,
                mount,
                mounted,
                ending,
            }),
            Err(error) => {
                let why = format!("cannot mount: {}", host_reason(&error));
                app.fail_at(ExitStatus::Failed, args.dir.display(), why);
                if let Err(error) = close(&volume) {
                    app.error(&*image, &error);
                }
                None
            }
        }
    }
}

/// Has the kernel send this process `SIGTERM` when its parent ends, if the parent is process
/// `parent`. Returns false if that process has ended already.
fn end_with(parent: u32) -> io::Result<bool> {
    // Until this process handles the signal, its default action, to end the process, is right, too.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    Ok(std::os::unix::process::parent_id() == parent)
}

/// Listens at the address for metrics. Reports a failure.
fn serve_metrics(address: SocketAddr, app: &mut App) -> Result<TcpListener, ()> {
    TcpListener::bind(address).map_err(|error| {
        let why = host_reason(&error);
        app.fail_at(
            ExitStatus::Failed,
            address,
            format_args!("cannot serve metrics there: {why}"),
        );
    })
}

/// Starts the log at the destination that the command line names. Reports a failure.
fn start_log(args: &Args, app: &mut App) -> bool {
    let Some(level) = log::level() else {
        app.fail(
            ExitStatus::Usage,
            "EXTERN4_LOG is error, warn, info or debug",
        );
        return false;
    };
    let log = match &args.log {
        Some(file) => Log::File(file),
        None if args.detach => Log::System,
        None => Log::Terminal,
    };
    if let Err(error) = log.start(level) {
        let file = args.log.as_deref().unwrap_or(Path::new("the system's log"));
        app.fail_at(
            ExitStatus::Failed,
            file.display(),
            format_args!("cannot keep a log there: {}", host_reason(&error)),
        );
        return false;
    }
    true
}

fn mount(
    image: &Image,
    volume: &Volume,
    claim: Option<Claim>,
    dir: &Path,
    options: &Options,
) -> io::Result<(OwnedFd, Mounted)> {
    if let Some(claim) = claim {
        return claim.attach(dir, &options.mount);
    }
    let file = device_name(&image.file);
    let wants_blk = options
        .fuseblk
        .unwrap_or(!options.is_read_only() && options.fsname().is_none());
    let blk = volume
        .bytes()
        .filter(|_| wants_blk)
        .map(|bytes| (file.clone(), bytes));
    // The image is named so that readers of the mount table find it.
    let name = || Image::of(file, image.part).to_string().into();
    let source = options.fsname().map_or_else(name, OsStr::to_owned);
    let (device, mounted) = extern4_fuse::mount(
        dir,
        &MountOptions {
            source,
            blk,
            ..options.mount.clone()
        },
    )?;
    let Some(reason) = mounted.not_blk() else {
        return Ok((device, mounted));
    };
    let reason = host_reason(reason);
    if options.fuseblk == Some(true) {
        mounted.end()?;
        return Err(io::Error::other(format!(
            "there is no loop device for it: {reason}"
        )));
    }
    let lacks = format!(
        "there is no loop device for it ({reason}): sync(2) and umount(8) do not wait for the volume"
    );
    // Users other than root expect no loop device.
    if geteuid().is_root() {
        info!("{lacks}")
    } else {
        debug!("{lacks}")
    }
    Ok((device, mounted))
}

/// Returns how many bytes the volume has by its superblock.
fn size_bytes(volume: &Volume) -> u64 {
    let superblock = volume.ext4().superblock();
    superblock
        .blocks_count()
        .saturating_mul(superblock.block_size().into())
}

/// Reads an address that only this machine can reach.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => {
            Err("other machines could reach it; there are 127.0.0.1:PORT and [::1]:PORT".to_owned())
        }
        Err(_) => Err("write it as 127.0.0.1:9464".to_owned()),
    }
}

/// Writes the remaining changes, and closes the volume.
fn close(volume: &Volume) -> extern4::Result<()> {
    volume.clone().close()
}
