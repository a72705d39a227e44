//! `extern4 readlink`: prints where symbolic links point.
//!
//! `args` calls [`run`]. Without options it prints the stored target, escaped on a terminal.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use extern4::Errno;

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::json;
use crate::output::flush;
use crate::real_path::{Missing, real_path};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Symbolic links
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Print the path that each leads to in the end; its last name need not exist
    #[arg(short = 'f', long, overrides_with_all = ["canonicalize_existing", "canonicalize_missing"])]
    canonicalize: bool,
    /// Print the path that each leads to in the end, which has to exist
    #[arg(short = 'e', long, overrides_with = "canonicalize_missing")]
    canonicalize_existing: bool,
    /// Print the path that each leads to in the end, whether or not it exists
    #[arg(short = 'm', long)]
    canonicalize_missing: bool,
    /// Print no newline behind a single line
    #[arg(short, long)]
    no_newline: bool,
    /// Print no messages about files that are no links (the default)
    #[arg(
        short,
        long,
        visible_short_alias = 's',
        visible_alias = "silent",
        overrides_with = "verbose"
    )]
    quiet: bool,
    /// Print messages about files that are no links
    #[arg(short, long)]
    verbose: bool,
    /// End each line with NUL
    #[arg(short, long)]
    zero: bool,
    /// Write one JSON object a line for each link
    #[arg(long, conflicts_with_all = ["no_newline", "zero"])]
    json: bool,
}

impl Args {
    /// Returns which names of a path need not exist; `None` if only links are read.
    fn missing(&self) -> Option<Missing> {
        let modes = [
            (self.canonicalize, Missing::Last),
            (self.canonicalize_existing, Missing::Never),
            (self.canonicalize_missing, Missing::Anywhere),
        ];
        modes
            .into_iter()
            .find_map(|(given, missing)| given.then_some(missing))
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image_paths: Vec<_> = args
        .image_paths
        .iter()
        .map(|text| app.image_path(text))
        .collect();
    let shown = app.shown_for(&image_paths);
    let mut out = app.out(shown.is_complete());
    let end: &[u8] = match (args.zero, args.no_newline && image_paths.len() == 1) {
        (_, true) => b"",
        (true, false) => b"\0",
        (false, false) => b"\n",
    };
    for image_path in &image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        match read(&target, args.missing()) {
            Ok(path) if args.json => {
                let line = json::line(|object| {
                    json::file(object, &image_path.image, target.path());
                    object.bytes("target", path.as_os_str().as_bytes());
                });
                out.write_all(line.as_bytes())?;
                continue;
            }
            Ok(path) if args.missing().is_some() => {
                out.write_all(&shown.path(&image_path.image, &path))?
            }
            Ok(path) => out.write_all(&shown.text(path.as_os_str().as_bytes()))?,
            Err(error) => {
                flush(&mut out)?;
                let status = if error == Errno::EUCLEAN {
                    ExitStatus::Corrupt
                } else {
                    ExitStatus::Failed
                };
                if args.verbose {
                    app.fail_at(status, image_path, error);
                }
                app.found(status);
                continue;
            }
        }
        out.write_all(end)?;
    }
    app.end_output(&mut out)
}

fn read(target: &Target, missing: Option<Missing>) -> Result<PathBuf, Errno> {
    match missing {
        Some(missing) => real_path(target.session(), target.path(), missing),
        None => target
            .session()
            .read_link(target.path())
            .map_err(|error| error.errno()),
    }
}
