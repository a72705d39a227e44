//! `extern4 touch`: makes files, or sets their times.
//!
//! `args` calls [`run`].

mod time;

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::{Errno, File, Session, SetTime, Timespec};

use crate::app::App;
use crate::checked::{Check, Checked};
use crate::targets::{followed, written_paths};

/// The arguments.
pub(crate) type Args = Checked<Options>;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Files to touch
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Do not make files that are not there
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time instead of the present, as GNU's tools take it: 2024-02-29T12:00:00Z, @SECONDS,
    /// yesterday, '2 days ago'; with -r relative to the time of that file
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true)]
    date: Option<String>,
    /// This time instead of the present: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = time::stamp, conflicts_with_all = ["date", "reference"])]
    stamp: Option<Timespec>,
    /// The times of this file instead of the present
    #[arg(short, long, value_name = "PATH")]
    reference: Option<OsString>,
    /// Set only the time of the last reading
    #[arg(short = 'a')]
    access: bool,
    /// Set only the time of the last change
    #[arg(short = 'm')]
    modification: bool,
    /// Set only the time that is named: access, atime or use; modify or mtime
    #[arg(long, value_name = "WORD")]
    time: Option<Word>,
    /// Set the times of symbolic links themselves
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// No effect
    #[arg(short)]
    f: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// A word for one of the times.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    #[value(aliases = ["atime", "use"])]
    Access,
    #[value(alias = "mtime")]
    Modify,
}

impl Check for Options {
    /// Refuses a date that makes no sense before anything is changed.
    fn check(&mut self) -> Result<(), String> {
        self.access |= self.time == Some(Word::Access);
        self.modification |= self.time == Some(Word::Modify);
        if let Some(date) = &self.date {
            time::parse(date, time::now())?;
        }
        Ok(())
    }
}

/// Reads a time as `-d` takes it.
pub(super) fn date(text: &str) -> Result<Timespec, String> {
    time::parse(text, time::now())
}

/// The two times that a run sets.
type Times = (SetTime, SetTime);

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    let image_paths = written_paths(&args.image_paths, app);
    let Some(mut times) = times(args, app) else {
        return Ok(());
    };
    if args.access != args.modification {
        let omitted = if args.access {
            &mut times.1
        } else {
            &mut times.0
        };
        *omitted = SetTime::Omit;
    }
    for image_path in &image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        if let Err(error) = touch(target.session(), target.path(), args, times) {
            app.error(image_path, &error);
        }
    }
    Ok(())
}

/// Returns the times to set. Reports a failure.
fn times(args: &Options, app: &mut App) -> Option<Times> {
    let base = match &args.reference {
        Some(reference) => {
            let image_path = app.image_path(reference);
            let target = app.target(&image_path)?;
            let found = if args.no_dereference {
                target.session().symlink_metadata(target.path())
            } else {
                target.session().metadata(target.path())
            };
            let found = found.map_err(|error| app.error(&image_path, &error)).ok()?;
            Some((found.atime(), found.mtime()))
        }
        None => args.stamp.map(|stamp| (stamp, stamp)),
    };
    let both = |(access, modification)| (SetTime::At(access), SetTime::At(modification));
    let Some(date) = &args.date else {
        return Some(base.map_or((SetTime::Now, SetTime::Now), both));
    };
    let (access, modification) = base.unwrap_or_else(|| (time::now(), time::now()));
    let read = |base| time::parse(date, base);
    let times = read(access).and_then(|access| Ok((access, read(modification)?)));
    times
        .map(both)
        .map_err(|message| app.fail(crate::exit_status::ExitStatus::Failed, message))
        .ok()
}

fn touch(
    session: &Session,
    path: &Path,
    args: &Options,
    (access, modification): Times,
) -> extern4::Result<()> {
    let found = if args.no_dereference {
        session.symlink_metadata(path)
    } else {
        session.metadata(path)
    };
    match found {
        Ok(_) => {}
        Err(error) if error.errno() == Errno::ENOENT => {
            if args.no_create {
                return Ok(());
            }
            if args.no_dereference {
                return Err(error);
            }
            session.open_with(path, File::options().write(true).create(true))?;
        }
        Err(error) => return Err(error),
    }
    if args.no_dereference {
        return session.lset_times(path, access, modification);
    }
    session.lset_times(followed(session, path)?, access, modification)
}
