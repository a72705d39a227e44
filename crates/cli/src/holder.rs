//! The processes that have a volume open, and the wait until it is free.
//!
//! `app` and `mount` open volumes in [`Waiting::until_free`]. `/proc` names the processes that have
//! a file locked. That is a hint for messages: it may be out of date, or not known at all. The end
//! of a wait depends on it in one case: a process that waits for this one never frees the volume.

use std::error::Error as _;
use std::fmt;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use extern4::block::lock_holders;

use crate::image_path::Image;
use crate::stop::Stop;

/// The time between two attempts to open a volume.
const PAUSE: Duration = Duration::from_millis(50);

/// The most processes between this one and one that has started it.
const MAX_GENERATIONS: usize = 64;

/// How long a command waits for a volume: not at all, or for a time, or for ever.
pub(crate) type Limit = Option<Option<Duration>>;

/// Reads the seconds of `--wait`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "write it as 5 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "write it as 5 or 0.5".to_owned())
}

/// A process that has a file locked.
struct Holder {
    pid: u32,
}

/// How a command waits for volumes that are in use.
pub(crate) struct Waiting<'a> {
    /// The longest time.
    pub(crate) limit: Limit,
    /// The subcommand that waits.
    pub(crate) command: &'a str,
    /// The request of a signal that the command ends.
    pub(crate) stop: Stop,
    /// Prints a message about the volume.
    pub(crate) say: &'a dyn Fn(&str),
}

impl Waiting<'_> {
    /// Calls `attempt` until it ends with anything but an error of a volume in use, or the wait
    /// ends.
    pub(crate) fn until_free<T, E>(
        &self,
        image: &Image,
        is_busy: impl Fn(&E) -> bool,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let start = Instant::now();
        let mut is_said = false;
        loop {
            let error = match attempt() {
                Err(error) if is_busy(&error) => error,
                done => return done,
            };
            let is_over = match self.limit {
                None => true,
                Some(None) => false,
                Some(Some(limit)) => start.elapsed() >= limit,
            };
            if is_over
                || self.stop.check().is_break()
                || holders(&image.file).iter().any(Holder::runs_us)
            {
                return Err(error);
            }
            if !is_said {
                is_said = true;
                (self.say)(&wait_text(image, self.command));
            }
            sleep(PAUSE);
        }
    }
}

/// Returns whether a volume could not be opened because it is in use.
pub(crate) fn is_busy(error: &extern4::Error) -> bool {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<extern4::block::Error>());
    matches!(cause, Some(extern4::block::Error::Busy { .. }))
}

fn holders(file: &Path) -> Vec<Holder> {
    lock_holders(file)
        .into_iter()
        .map(|pid| Holder { pid })
        .collect()
}

impl Holder {
    /// Returns whether the process has started this one, by other processes or itself.
    fn runs_us(&self) -> bool {
        let parent = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name before the last parenthesis may be any text.
            stat.rsplit_once(')')?
                .1
                .split_ascii_whitespace()
                .nth(1)?
                .parse()
                .ok()
        };
        let ours = std::iter::successors(Some(std::process::id()), parent);
        ours.skip(1)
            .take(MAX_GENERATIONS)
            .any(|pid| pid == self.pid)
    }

    /// Returns whether the process is an `extern4 find`.
    fn is_find(&self) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_ours = words.next().is_some_and(|name| name.ends_with(b"extern4"));
        is_ours && words.any(|word| word == b"find")
    }
}

/// Returns the command line that gives the files that are found to a subcommand.
fn by_xargs(command: &str) -> String {
    format!("extern4 find ... -print0 | xargs -0 extern4 {command} ...")
}

/// Returns what to do about a volume in use, as the end of the message that a subcommand is refused
/// with.
pub(crate) fn advice(image: &Image, command: &str, limit: Limit) -> String {
    let holders = holders(&image.file);
    if let Some(holder) = holders.iter().find(|holder| holder.runs_us()) {
        let advice = if holder.is_find() {
            format!(": use {}", by_xargs(command))
        } else {
            String::new()
        };
        return format!("; {holder} runs this command and has it open meanwhile{advice}");
    }
    let find = if holders.iter().any(Holder::is_find) {
        format!(
            "; if extern4 find waits for this command, use {}",
            by_xargs(command)
        )
    } else {
        String::new()
    };
    match limit {
        Some(_) => find,
        None => format!("{find}; --wait waits until it is free"),
    }
}

/// Returns the message of a command that waits.
fn wait_text(image: &Image, command: &str) -> String {
    let holders = holders(&image.file);
    let find = holders.iter().find(|holder| holder.is_find());
    let by = match find.or(holders.first()) {
        Some(holder) => holder.to_string(),
        None => "another program".to_owned(),
    };
    let advice = match find {
        Some(_) => format!("; if it waits for this command, use {}", by_xargs(command)),
        None => String::new(),
    };
    format!("waits for {by}, which has it open{advice}")
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid;
        if self.is_find() {
            return write!(f, "process {pid} (extern4 find)");
        }
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        write!(
            f,
            "process {pid} ({})",
            String::from_utf8_lossy(name.trim_ascii_end())
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Holder, seconds};

    #[test]
    fn seconds_are_read() {
        assert_eq!(seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for bad in ["", "x", "-1", "inf", "nan", "1s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_process_is_started_by_those_above_it() {
        let parent = std::os::unix::process::parent_id();
        assert!(Holder { pid: parent }.runs_us());
        assert!(
            !Holder {
                pid: std::process::id()
            }
            .runs_us()
        );
    }
}
