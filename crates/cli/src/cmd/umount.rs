//! `extern4 umount`: unmounts a volume, and waits until everything is on it. If data could not be
//! written, that is an error.
//!
//! `args` calls [`run`]. It asks the serving process how the mount ended (`control::waiting`).

use std::io;
use std::path::{Path, PathBuf};

use crate::app::{App, host_reason};
use crate::control::mounts::is_dir;
use crate::control::waiting::Listener;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::mount_table::MountEntry;
use crate::text::escape;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directories on which volumes are mounted, or the mounted images or devices
    #[arg(value_name = "DIR|IMAGE", required = true)]
    mounts: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    for name in &args.mounts {
        match directories(name) {
            Ok(dirs) if dirs.is_empty() => {
                app.fail_at(ExitStatus::Failed, name.display(), "not mounted by extern4");
            }
            Ok(dirs) => dirs.iter().for_each(|dir| unmount(dir, app)),
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
    let mut dirs: Vec<_> = MountEntry::of(&image_path.image)?.into_iter().map(|entry| entry.dir).collect();
    dirs.reverse();
    Ok(dirs)
}

fn unmount(dir: &Path, app: &mut App) {
    let still_there = || {
        let why =
            "there is much to be written, or other processes have it mounted in namespaces of their own";
        app.note_at(dir.display(), format_args!("waits for the volume: {why}"));
    };
    let listener = Listener::of(dir);
    match extern4_fuse::unmount(dir, still_there) {
        Ok(true) => {
            if let Some(why) = listener.and_then(Listener::lost) {
                let why = escape(why.as_bytes());
                app.fail_at(
                    ExitStatus::Failed,
                    dir.display(),
                    format_args!("not all is on the volume: {why}"),
                );
            }
        }
        Ok(false) => app.note_at(dir.display(), "the volume is mounted elsewhere, too"),
        // Source: `extern4_fuse::unmount`.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            app.fail_at(ExitStatus::Failed, dir.display(), "not mounted by extern4");
        }
        Err(error) => app.fail_at(ExitStatus::Failed, dir.display(), host_reason(&error)),
    }
}
