//! `mount -o remount`: changes the options of an existing mount.
//!
//! Decisions from the opening of the volume stay as they are. A request to change one of them is
//! refused before anything has changed. Words that repeat them are fine, because `mount(8)` passes
//! on every word in fstab. A volume that is open for reading only is opened for writing on request.
//! The process that serves it does that first, so that no program writes to it before.
//!
//! The command's `mount` calls it. If it fails, the mount has its old options.

use std::path::Path;

use rustix::process::geteuid;

use crate::control::client::{self, AskError};
use crate::control::mounts::Mount;
use crate::control::{Journaling, data_name, writing};
use crate::error::Error;
use crate::options::{self, Options, Words};

/// Remounts the mount on `dir` with the options.
///
/// # Errors
/// [`Error::RemountRefused`] if the options contradict the first mount, or if the volume cannot be
/// opened for writing; [`Error::Ask`] if the process that serves it cannot be asked for these; and
/// [`Error::Remount`] if the kernel refuses.
pub fn remount(dir: &Path, words: &[Words]) -> Result<(), Error> {
    let options = Options::of(words);
    let refused = match look(dir, words, &options)? {
        Found::Contradiction(why) => Some(why),
        // The kernel refuses the remount to all users but root.
        Found::OnlyRead(mount) if geteuid().is_root() => writing::ask(&mount)?,
        Found::OnlyRead(_) | Found::Fitting => None,
    };
    match refused {
        Some(why) => Err(Error::RemountRefused(why)),
        None => extern4_fuse::remount(dir, &options.mount).map_err(Error::Remount),
    }
}

/// How the options agree with the mount.
enum Found {
    /// They ask for a change that is no longer possible.
    Contradiction(String),
    /// They ask to write to a volume that is open for reading only.
    OnlyRead(Mount),
    Fitting,
}

fn look(dir: &Path, words: &[Words], options: &Options) -> Result<Found, AskError> {
    let asks = options::says_fixed(words);
    if !asks && options.is_read_only() {
        return Ok(Found::Fitting);
    }
    let asked =
        client::find(dir).and_then(|mount| client::ask(&mount).map(|report| (mount, report)));
    let (mount, report) = match asked {
        Ok(asked) => asked,
        // No process answers, and mounts are seldom opened for reading only.
        Err(_) if !asks => return Ok(Found::Fitting),
        Err(error) => return Err(error),
    };
    // A later version may have other words.
    if let Ok(before) = options::parse(&report.options)
        && let Some(why) = fixed_contradiction(&before, words)
    {
        return Ok(Found::Contradiction(why));
    }
    // Without a journal there is neither a data mode nor a commit interval. The kernel's mount
    // ignores both options then, as tests with mount(8) show.
    if let Some(now) = &report.journaling
        && let Some(why) =
            data_contradiction(now, options).or_else(|| commit_contradiction(now, options))
    {
        return Ok(Found::Contradiction(why));
    }
    Ok(if report.read_only && !options.is_read_only() {
        Found::OnlyRead(mount)
    } else {
        Found::Fitting
    })
}

/// Returns the change that the words would make to `before`, the words of the original mount;
/// `None` if there is none.
fn fixed_contradiction(before: &Words, words: &[Words]) -> Option<String> {
    let now = Options::of(std::slice::from_ref(before)).fixed();
    let all: Vec<_> = [before].into_iter().chain(words).cloned().collect();
    let mut changes = now
        .into_iter()
        .zip(Options::of(&all).fixed())
        .filter(|(now, wanted)| now != wanted);
    changes.next().map(|((name, now), (_, wanted))| {
        format!(
            "cannot change {name} on remount from {now} to {wanted}; unmount it, and mount it again"
        )
    })
}

fn data_contradiction(now: &Journaling, options: &Options) -> Option<String> {
    options.ext4.data.filter(|data| data_name(*data) != now.data).map(|_| {
        format!(
            "cannot change the data mode on remount: it is data={}; unmount it, and mount it again",
            now.data
        )
    })
}

fn commit_contradiction(now: &Journaling, options: &Options) -> Option<String> {
    let wanted = options
        .ext4
        .commit_interval
        .map(|interval| interval.as_secs());
    wanted.filter(|seconds| *seconds != now.commit_seconds).map(|_| {
        format!(
            "cannot change the time between commits on remount: it is commit={}; unmount it, and mount it again",
            now.commit_seconds
        )
    })
}
