//! `extern4 mount`: serves a volume as a directory.

mod daemon;
mod memory;
mod options;

use std::fs::File;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use extern4::Volume;
use extern4_fuse::{Config, MountOptions, Mounted, Server, serve};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::options::{Options, Words};
use crate::app::{App, host_reason, part};
use crate::control::Control;
use crate::place::{Image, Place};
use crate::status::Status;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stay in the foreground until the volume is unmounted
    #[arg(short, long)]
    foreground: bool,
    /// Options as mount(8) spells them: ro, noatime, lazytime, nosuid, nodev, noexec, sync, dirsync and their opposites,
    /// allow_other, commit=SECONDS, errors=continue or remount-ro, offset=BYTES, data=ordered; uid=NUMBER and gid=NUMBER, to have all
    /// files shown as theirs; memory=BYTES for caches, 192M by default;
    /// transport=device or transport=ring, in place of what the kernel offers; opens, to be asked whenever a file is opened;
    /// lifetime=0, to be asked for attributes and names each time
    #[arg(short, value_name = "OPTIONS", value_parser = options::parse)]
    options: Vec<Words>,
    /// The volume to mount
    #[arg(value_name = "IMAGE", value_parser = Place::parser())]
    place: Place,
    /// Where
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Serve metrics for Prometheus at http://ADDR/metrics; ADDR is of this machine only, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDR", value_parser = loopback)]
    metrics: Option<SocketAddr>,
    /// Leave the terminal once the volume is mounted: how the command starts itself to stay in the background
    #[arg(long, hide = true)]
    detach: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let options = Options::of(&args.options);
    let Some(image) = options.image(&args.place.image) else {
        app.fail(Status::Usage, format_args!("{}: it says already where the volume is", args.place));
        return Ok(());
    };
    let image = &image;
    if args.place.path.as_os_str() != "/" {
        app.fail(Status::Usage, format_args!("{}: name the image alone", args.place));
        return Ok(());
    }
    if options.remount {
        if let Err(error) = extern4_fuse::remount(&args.dir, &options.mount) {
            app.fail(Status::Failed, format_args!("{}: {}", args.dir.display(), host_reason(&error)));
        }
        return Ok(());
    }
    if !args.foreground && !args.detach {
        return daemon::start(app);
    }
    let metrics = match args.metrics.map(TcpListener::bind).transpose() {
        Ok(metrics) => metrics,
        Err(error) => {
            app.fail(Status::Failed, format_args!("cannot serve metrics there: {}", host_reason(&error)));
            return Ok(());
        }
    };
    let volume = match open(image, &options) {
        Ok(volume) => volume,
        Err(error) => {
            app.refused(image, &error);
            return Ok(());
        }
    };
    let (device, mounted) = match mount(image, &args.dir, &options) {
        Ok(mounted) => mounted,
        Err(error) => {
            app.fail(
                Status::Failed,
                format_args!("{}: cannot mount: {}", args.dir.display(), host_reason(&error)),
            );
            return end(volume, app, image);
        }
    };
    let log = |message: &str| {
        // Where nobody listens, there is nothing more to be done.
        let _ = writeln!(io::stderr().lock(), "extern4: mount: {message}");
    };
    let log = Box::new(log);
    let Options { opens, lifetime, transport, owner, memory, .. } = options;
    let max_known = memory.known;
    let config = Config { opens, lifetime, transport, owner, max_known, log, ..Config::default() };
    let server = Arc::new(Server::new(volume.namespace(), config));
    end_on_signals(mounted)?;
    let note = |what: &str, error: &io::Error| {
        app.note(format_args!("{}: {what}: {}", args.dir.display(), host_reason(error)));
    };
    let mut control = None;
    let ready = || {
        control = Control::start(&args.dir, &server, &volume, image, metrics, note);
        if args.detach {
            daemon::detach();
        }
    };
    let served = serve(&server, device, ready);
    drop(control);
    if let Err(error) = served {
        app.fail(Status::Failed, format_args!("{}: {}", args.dir.display(), host_reason(&error)));
    }
    server.forget_all();
    if server.is_broken() {
        app.fail(
            Status::Failed,
            format_args!("{image}: what was not durable when the fault was met is lost"),
        );
    }
    drop(server);
    end(volume, app, image)
}

fn open(image: &Image, options: &Options) -> extern4::Result<Volume> {
    let mut open = Volume::options();
    open.write(!options.read_only).atime(options.atime).lazytime(options.lazytime);
    open.cache_size(options.memory.blocks_bytes).cached_files(options.memory.remembered);
    if let Some(interval) = options.commit {
        open.commit_interval(interval);
    }
    if let Some(errors) = options.errors {
        open.errors(errors);
    }
    part(&mut open, image);
    open.open(&image.file)
}

fn mount(image: &Image, dir: &Path, options: &Options) -> io::Result<(std::os::fd::OwnedFd, Mounted)> {
    // The image is named so that whoever reads the mount table finds it.
    let source = Image { file: image.file.canonicalize()?, part: image.part }.to_string();
    extern4_fuse::mount(dir, &MountOptions { source: source.into(), ..options.mount.clone() })
}

/// Reads an address that only this machine can reach.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(_) => Err("other machines could reach it; there are 127.0.0.1:PORT and [::1]:PORT".to_owned()),
        Err(_) => Err("write it as 127.0.0.1:9464".to_owned()),
    }
}

/// Unmounts when the process is told to end; what then ends is the serving.
fn end_on_signals(mounted: Mounted) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    thread::spawn(move || {
        if signals.forever().next().is_some()
            && let Err(error) = mounted.end()
        {
            let _ = writeln!(io::stderr().lock(), "extern4: mount: cannot unmount: {error}");
        }
    });
    Ok(())
}

/// Writes what is left, and closes the volume.
fn end(volume: Volume, app: &mut App, image: &Image) -> io::Result<()> {
    if !volume.is_read_only()
        && let Err(error) = volume.close()
    {
        app.error(image, &error);
    }
    Ok(())
}

/// Takes what nobody reads any more.
fn nowhere() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}
