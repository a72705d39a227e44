//! `extern4 mount`: serves a volume as a directory.
//!
//! `args` calls [`run`], also for `mount.extern4` (`mount_helper`). `extern4_mountd` carries it
//! out; this file has the arguments and the messages. The volume is closed before the process
//! ends. If data could not be written, the exit code says so.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use extern4::Backup;
use extern4_mountd::daemon::{self, Started};
use extern4_mountd::options::{self, Words};
use extern4_mountd::{Error, Host, HostOptions, Notice, Observer, OpenError, Opened, Request};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::holder::Waiting;
use crate::image_path::{Image, ImagePath};
use crate::mount_helper::{self, Line};
use crate::text::quoted;

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

/// Serves the volume until it is unmounted, or changes an existing mount.
pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if args.image_path.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, &args.image_path, "name the image alone");
        return Ok(());
    }
    let mut messages = Messages {
        image: args.image_path.image.clone(),
        args,
        app,
    };
    if let Err(error) = messages.mount() {
        messages.fail(&error);
    }
    Ok(())
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

/// The messages of a mount, printed with the name of the directory or image before them.
struct Messages<'a> {
    args: &'a Args,
    app: &'a mut App,
    /// The image as the options name it.
    image: Image,
}

impl Messages<'_> {
    /// Goes through the steps of a mount: reads the options, prepares the host, opens, mounts,
    /// serves.
    fn mount(&mut self) -> Result<(), Error> {
        let args = self.args;
        let mut request = self.request()?;
        if request.is_remount() {
            return self.remount();
        }
        if request.may_be_skipped() {
            return Ok(());
        }
        if !args.foreground && !args.detach {
            return self.start_in_background();
        }
        let host = Host::prepare(HostOptions {
            dir: args.dir.clone(),
            directory_mode: request.directory_mode(),
            metrics: args.metrics,
            log: args.log.clone(),
            detach: args.detach,
            with_parent: args.with_parent,
        })?;
        let opened = self
            .open(&mut request)
            .map_err(|error| request.why_not(error))?;
        if request.is_write_protected() {
            self.app.note_at(
                &self.image,
                "it is write-protected, and mounted for reading only",
            );
        }
        // The log has these, too. Its reader on a terminal has seen them.
        if args.log.is_some() || args.detach {
            for warning in opened.warnings() {
                self.app.note_at(&self.image, warning);
            }
        }
        opened.mount(request, &host, &*self)?.serve(host, self);
        Ok(())
    }

    fn remount(&mut self) -> Result<(), Error> {
        if self.app.refuses_opening("the volume is open already") {
            return Ok(());
        }
        extern4_mountd::remount(&self.args.dir, &self.args.options)
    }

    fn request(&mut self) -> Result<Request, Error> {
        let opening = self.app.opening();
        let request = Request::new(
            &self.image.source(),
            self.args.options.clone(),
            opening.journal.clone(),
            opening.superblock.map(Backup::Block),
        )?;
        self.image = Image::of(request.source().file.clone(), request.source().part);
        Ok(request)
    }

    fn start_in_background(&mut self) -> Result<(), Error> {
        let Line::Run(line) = mount_helper::read(std::env::args_os()) else {
            return Ok(());
        };
        match daemon::start(line.into_iter().skip(1), &self.args.dir)? {
            Started::Serving => {}
            Started::Exited(code) => self.app.end_as(code),
        }
        Ok(())
    }

    /// Opens the volume; waits for it as the command line says.
    fn open(&self, request: &mut Request) -> Result<Opened, OpenError> {
        let say = |message: &str| self.app.note_at(&self.image, message);
        let waiting = Waiting {
            limit: self.app.opening().wait,
            command: "mount",
            stop: self.app.stop(),
            say: &say,
        };
        waiting.until_free(&self.image, OpenError::is_busy, || request.open(self))
    }

    /// Reports a failure.
    fn fail(&mut self, error: &Error) {
        let dir = self.args.dir.display();
        let app = &mut *self.app;
        let image = &self.image;
        match error {
            Error::TwoOffsets => app.fail_at(ExitStatus::Usage, &self.args.image_path, error),
            Error::NameOfBlockDevice | Error::LogLevel => app.fail(ExitStatus::Usage, error),
            Error::Log { file, .. } => app.fail_at(ExitStatus::Failed, file.display(), error),
            Error::Metrics(address, _) => app.fail_at(ExitStatus::Failed, address, error),
            Error::ParentEnded(_)
            | Error::ParentUnwatched(_)
            | Error::Descriptors(_)
            | Error::Background(_)
            | Error::BackgroundEnded(_) => app.fail(ExitStatus::Failed, error),
            Error::Mounted(other) => app.fail_at(
                ExitStatus::Failed,
                image,
                format_args!("it is mounted on {} already", quoted(other.display())),
            ),
            Error::DeadMountOfImage(_) | Error::Claim(_) | Error::TooLarge(_) | Error::Lost(_) => {
                app.fail_at(ExitStatus::Failed, image, error);
            }
            Error::Volume { error, is_readable } => {
                app.refused(image, error);
                if *is_readable {
                    app.note_at(image, "use -o ro to mount it for reading");
                }
            }
            Error::Close(error) => app.error(image, error),
            Error::Mount { close, .. } => {
                app.fail_at(ExitStatus::Failed, dir, error);
                if let Some(error) = close {
                    app.error(image, error);
                }
            }
            Error::Serve { dir, .. } => app.fail_at(ExitStatus::Failed, dir, error),
            Error::Ask(asked) => app.fail_at(asked.into(), dir, error),
            _ => app.fail_at(ExitStatus::Failed, dir, error),
        }
    }
}

impl Observer for Messages<'_> {
    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::NoControl(_) => self.app.note_at(self.args.dir.display(), notice),
            _ => self.app.note_at(&self.image, notice),
        }
    }

    fn was_served(&mut self) {
        self.app.switch_to_log();
    }

    fn failed(&mut self, error: &Error) {
        self.fail(error);
    }
}
