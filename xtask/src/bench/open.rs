//! Rows of opening and closing: a file that is cached, over and over.
//!
//! Ours is the library as user 1000, in this process; the kernel's is `open(2)` and `close(2)` by
//! the same user on a loop mount of the same image, in a process whose root is the mount. The lab
//! measures registries of open files by themselves.

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use extern4::{Cred, Session, Volume};
use extern4_measure::load::{Load, for_span};

use super::image::{Mount, Rival};
use super::row::{Row, Unit};
use super::walk::{self, Call, PATH, SECONDS, UID};
use super::{Bench, RUNS, Result};

const OTHER: &str = "/usr/include/linux/elf.h";
/// Operations between two looks at whether the time is up.
const BATCH: u64 = 64;

impl Bench {
    pub(super) fn open_close(&self) -> Result<Row> {
        let (_volume, session) = self.session()?;
        let mount = Mount::new(Rival::Kernel, self.include()?, &self.folder.join("mnt"))?;
        let mut row = Row::faster("open-close-vs-kernel", Unit::Nanoseconds, 10.0);
        row.rounds(RUNS, || {
            let ours = open_close(&session, &[PATH])?;
            let theirs = walk::kernel(Call::Open, mount.path(), PATH)?;
            Ok((ours, theirs))
        })?;
        Ok(row)
    }

    /// Two threads, each with its own file, compared with one: nanoseconds of the clock for an
    /// operation of any thread.
    pub(super) fn open_close_threads(&self) -> Result<Row> {
        let (_volume, session) = self.session()?;
        let mut row = Row::faster("open-close-2-threads-vs-1", Unit::Nanoseconds, 1.9);
        row.rounds(RUNS, || {
            let two = open_close(&session, &[PATH, OTHER])?;
            let one = open_close(&session, &[PATH])?;
            Ok((two, one))
        })?;
        row.set_note("two threads, one session, two files".to_owned());
        Ok(row)
    }

    /// Locked instructions, as the footprint test finds them: its atomics record each access.
    pub(super) fn open_close_locked(&self) -> Result<Row> {
        const SAYS: &str = "locked instructions on lines that another thread uses:";
        let mut test = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        test.args([
            "test",
            "--quiet",
            "--package",
            "extern4-vfs",
            "--features",
            "audit",
            "--test",
            "footprint",
        ]);
        test.args(["open_and_close", "--", "--nocapture"]);
        let text = walk::output(&mut test)?;
        let counts = text
            .lines()
            .filter_map(|line| line.strip_prefix(SAYS)?.trim().parse().ok());
        let fewest = counts
            .reduce(f64::min)
            .ok_or_else(|| format!("the test says {text:?}"))?;
        let mut row = Row::below("open-close-shared-locked-instructions", Unit::Count, 0.0);
        row.add(fewest, 0.0);
        row.set_note(
            "closed by the thread that opened; counted by the test called footprint".to_owned(),
        );
        Ok(row)
    }

    fn session(&self) -> Result<(Volume, Session)> {
        let volume = Volume::open(self.include()?).map_err(|e| e.to_string())?;
        let session = volume.session(Cred::new(UID, UID, &[]));
        Ok((volume, session))
    }
}

/// Nanoseconds of the clock for one open and close of any thread, a thread for each path.
fn open_close(session: &Session, paths: &[&str]) -> Result<f64> {
    let open = |path: &str| {
        session
            .open(black_box(path))
            .map(|_| 1)
            .map_err(|e| e.to_string())
    };
    let work = |path: &mut &str| for_span(Duration::from_secs_f64(SECONDS), BATCH, |_| open(path));
    Ok(Load::of(paths.len())
        .run(|thread| paths[thread], work, || {})?
        .nanos())
}
