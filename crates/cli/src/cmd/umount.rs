//! `extern4 umount`: unmounts a volume, and waits until everything is on it. If data could not be
//! written, that is an error.
//!
//! `args` calls [`run`]. `extern4_mountd` unmounts, and asks the serving process how
//! the mount ended.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extern4_mountd::control::mounts::is_dir;
use extern4_mountd::{Patience, Unmounted};

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::text::escape;

/// The longest time that can be waited for, which is a year.
const MOST_SECONDS: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directories on which volumes are mounted, or the mounted images or devices
    #[arg(value_name = "DIR|IMAGE", required = true)]
    mounts: Vec<PathBuf>,
    /// Take the mount away even while it is in use, and do not wait: it ends with its last user
    #[arg(short, long, conflicts_with = "timeout")]
    lazy: bool,
    /// Wait at most this long for the volume; one that is not complete by then is an error
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let seconds = seconds.filter(|seconds| *seconds <= MOST_SECONDS);
    seconds.ok_or_else(|| "write it as a number of seconds".to_owned())
}

impl Args {
    fn patience(&self) -> Patience {
        match self.timeout {
            Some(most) => Patience::AtMost(most),
            None if self.lazy => Patience::Lazy,
            None => Patience::UntilEnd,
        }
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for name in &args.mounts {
        match directories(name) {
            Ok(dirs) if dirs.is_empty() => {
                app.fail_at(ExitStatus::Failed, name.display(), "not mounted by extern4");
            }
            Ok(dirs) => dirs
                .iter()
                .for_each(|dir| unmount(dir, args.patience(), app)),
            Err(error) => {
                app.fail_at(ExitStatus::Failed, name.display(), host_reason(&error));
            }
        }
    }
    Ok(())
}

/// Returns the directories on which the image or device is mounted, the last mount first. A
/// directory stands for itself.
fn directories(name: &Path) -> io::Result<Vec<PathBuf>> {
    if is_dir(name) {
        return Ok(vec![name.to_owned()]);
    }
    let image_path = ImagePath::parse(name.as_os_str());
    if image_path.path.as_os_str() != "/" {
        return Ok(Vec::new());
    }
    extern4_mountd::directories(&image_path.image.source())
}

fn unmount(dir: &Path, patience: Patience, app: &mut App) {
    let still_there = |others: &[u32]| {
        let why = if others.is_empty() {
            "there is much to be written, or other processes have it mounted in namespaces of their own"
                .to_owned()
        } else {
            have_it(others)
        };
        app.note_at(dir.display(), format_args!("waits for the volume: {why}"));
    };
    match extern4_mountd::unmount(dir, patience, still_there) {
        Ok(Unmounted::Ended) => {}
        Ok(Unmounted::Lost(why)) => {
            let why = escape(why.as_bytes());
            app.fail_at(
                ExitStatus::Failed,
                dir.display(),
                format_args!("not all is on the volume: {why}"),
            );
        }
        Ok(Unmounted::Elsewhere) => {
            app.note_at(dir.display(), "the volume is mounted elsewhere, too")
        }
        Ok(Unmounted::Served(_)) if patience == Patience::Lazy => {}
        Ok(Unmounted::Served(others)) => {
            let why = if others.is_empty() {
                "there is much to be written".to_owned()
            } else {
                have_it(&others)
            };
            let message = format_args!("unmounted here, but the volume is still served: {why}");
            app.fail_at(ExitStatus::Failed, dir.display(), message);
        }
        // Source: `extern4_mountd::unmount`.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            app.fail_at(ExitStatus::Failed, dir.display(), "not mounted by extern4");
        }
        Err(error) => app.fail_at(ExitStatus::Failed, dir.display(), host_reason(&error)),
    }
}

/// Says which processes have a mount in other namespaces.
fn have_it(processes: &[u32]) -> String {
    let name = |pid: &u32| {
        let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{pid} ({})", escape(name.trim_ascii_end()))
    };
    let names: Vec<String> = processes.iter().map(name).collect();
    format!(
        "processes have it mounted in namespaces of their own: {}",
        names.join(", ")
    )
}
