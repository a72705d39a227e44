//! `bench ops`: repeated changes, on a copy of the image.
//!
//! The copy's name is removed before the copy is opened. So it is gone with this process, however
//! that ends.
//!
//! `bench` calls [`run`]. The first failed operation ends the run, without figures.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use extern4::{Session, XattrFlags};
use extern4_measure::load::{Done, Load, for_span};
use extern4_sync::allocations;

use super::copy;
use crate::app::{App, Opening, host_reason, open};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::json;
use crate::text::counted;

/// Operations between two checks of the time.
const BATCH: u64 = 16;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Op {
    /// Make an empty file and remove it
    CreateUnlink,
    /// Rename a file, to another name and back in turn
    Rename,
    /// Change the mode of a file
    Chmod,
    /// Replace an extended attribute of a file
    Setxattr,
    /// Give a file another name and take it away
    LinkUnlink,
    /// Open a file and close it
    OpenClose,
    /// Write a block of a file and make it durable
    Fsync,
    /// Make a file, write a block of it, make it durable, and remove it
    CreateWriteFsync,
}

#[derive(clap::Args)]
pub(super) struct Args {
    /// A volume, or a directory in it; a copy of the image is changed, never the image itself
    #[arg(value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// The operation
    #[arg(long)]
    op: Op,
    /// Threads that do it at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// All threads work in one directory, instead of each in its own
    #[arg(long)]
    shared: bool,
    /// Seconds to do it for
    #[arg(long, default_value_t = 3.0, value_parser = super::seconds)]
    seconds: f64,
    /// Write a JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if app.refuses_opening("a copy of the image is measured") {
        return Ok(());
    }
    let image_path = &args.image_path;
    let copy = match copy(&image_path.image.file) {
        Ok(copy) => copy,
        Err(error) => {
            app.fail_at(
                ExitStatus::Failed,
                &image_path.image,
                format_args!("cannot be copied: {}", host_reason(&error)),
            );
            return Ok(());
        }
    };
    let path = PathBuf::from(format!("/proc/self/fd/{}", copy.as_raw_fd()));
    let volume = match open(
        &Image::of(path, image_path.image.part),
        true,
        &Opening::default(),
    ) {
        Ok(volume) => volume,
        Err(error) => {
            app.refused(&image_path.image, &error);
            return Ok(());
        }
    };
    let Some(cred) = app.cred(&image_path.image, &volume) else {
        return Ok(());
    };
    let session = volume.session(cred);
    let measured = measure(args, &session);
    drop(session);
    let closed = volume.close();
    match measured.and_then(|done| closed.map(|()| done)) {
        Ok(done) => {
            let text = if args.json {
                json(&done, args)
            } else {
                people(&done, args)
            };
            io::Write::write_all(&mut io::stdout(), text.as_bytes())?;
        }
        Err(error) => app.error(image_path, &error),
    }
    Ok(())
}

/// Copies the image to a file without a name.
fn copy(image: &Path) -> io::Result<File> {
    let from = File::open(image)?;
    let size = io::Seek::seek(&mut &from, io::SeekFrom::End(0))?;
    let name =
        copy::directory(image, &from)?.join(format!(".extern4-bench.{}", std::process::id()));
    let to = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&name)?;
    std::fs::remove_file(&name)?;
    copy::copy(&from, &(0..size), &to, |_| Ok(()))?;
    Ok(to)
}

fn measure(args: &Args, session: &Session) -> extern4::Result<Done> {
    let base = session.at(&args.image_path.path)?;
    let top = ".extern4-bench";
    base.create_dir(top)?;
    let mut workers = Vec::new();
    for thread in 0..args.threads {
        let directory = if args.shared {
            PathBuf::from(top)
        } else {
            Path::new(top).join(thread.to_string())
        };
        if !args.shared {
            base.create_dir(&directory)?;
        }
        workers.push(Worker::new(args.op, base.at(&directory)?, thread)?);
    }
    let duration = Duration::from_secs_f64(args.seconds);
    let load = Load::counting(workers.len(), allocations::of_this_thread);
    load.run(
        |thread| &workers[thread],
        |worker| worker.run(duration),
        || {},
    )
}

/// The work of one thread.
struct Worker {
    op: Op,
    directory: Session,
    /// The names it works with, which no other thread has.
    file: OsString,
    other: OsString,
    open: extern4::File,
}

impl Worker {
    fn new(op: Op, directory: Session, thread: u32) -> extern4::Result<Self> {
        let file = OsString::from(format!("file{thread}"));
        let other = OsString::from(format!("other{thread}"));
        // Files that the operation needs are made before the time runs.
        let open = directory.create(&file)?;
        open.write_all_at(&[0x5a; 4096], 0)?;
        Ok(Self {
            op,
            directory,
            file,
            other,
            open,
        })
    }

    /// Runs the operation until the time is up; returns how often.
    fn run(&self, duration: Duration) -> extern4::Result<u64> {
        // An operation that makes data durable takes long enough to check the time after each one.
        let batch = if matches!(self.op, Op::Fsync | Op::CreateWriteFsync) {
            1
        } else {
            BATCH
        };
        for_span(duration, batch, |turn| self.step(turn % 2 == 1).map(|()| 1))
    }

    fn step(&self, odd: bool) -> extern4::Result<()> {
        let directory = &self.directory;
        let file = &self.file;
        let other = &self.other;
        match self.op {
            Op::CreateUnlink => {
                drop(
                    directory
                        .open_with(other, extern4::File::options().write(true).create_new(true))?,
                );
                directory.remove_file(other)
            }
            Op::Rename if odd => directory.rename(other, file),
            Op::Rename => directory.rename(file, other),
            Op::Chmod => directory.set_permissions(file, if odd { 0o644 } else { 0o600 }),
            Op::Setxattr => {
                let value: &[u8] = if odd {
                    b"one value of it"
                } else {
                    b"and another one"
                };
                directory.setxattr(file, "user.bench", value, XattrFlags::empty())
            }
            Op::LinkUnlink => {
                directory.hard_link(file, other)?;
                directory.remove_file(other)
            }
            Op::OpenClose => directory.open(file).map(drop),
            Op::Fsync => {
                self.open
                    .write_all_at(&[if odd { 1 } else { 2 }; 4096], 0)?;
                self.open.sync_all()
            }
            Op::CreateWriteFsync => {
                let new = directory
                    .open_with(other, extern4::File::options().write(true).create_new(true))?;
                new.write_all_at(&[0x5a; 4096], 0)?;
                new.sync_all()?;
                directory.remove_file(other)
            }
        }
    }
}

/// Returns the result for scripts.
fn json(done: &Done, args: &Args) -> String {
    json::line(|object| {
        object.text("op", &name(args.op));
        object.raw("threads", args.threads);
        object.raw("shared", args.shared);
        super::write(done, args.threads, object);
    })
}

/// Returns the result for people.
fn people(done: &Done, args: &Args) -> String {
    let place = if args.shared { " in one directory" } else { "" };
    let threads = counted(args.threads, "thread", "threads");
    format!(
        "{}, {threads}{place}: {}\n",
        name(args.op),
        super::sentence(done, args.threads)
    )
}

/// Returns the operation as the command line spells it.
fn name(op: Op) -> String {
    op.to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}
