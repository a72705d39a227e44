//! The measures of the suite: what each does, for how long, and the unit of its figure.
//!
//! `run` takes each measure on each side. All sides do the same operations on the same files,
//! through `Tree`. A measure that writes works on files that `subjects` has made, and only in the
//! copy.

use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use extern4_measure::load;

use super::Result;
use super::stop::Stop;
use super::subjects::Subjects;
use super::tree::Tree;

/// The most files that a walk looks at.
const MOST_WALKED: u64 = 20_000;
/// The modes and values that files get in turn.
const MODES: [u16; 2] = [0o600, 0o644];
const VALUES: [&[u8]; 2] = [b"one value of it", b"and another one"];

/// An operation that the suite measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Attributes of a file, over and over.
    Stat,
    /// A file opened and closed.
    OpenClose,
    /// A name that is not there.
    Missing,
    /// The names of a directory.
    ReadDir,
    /// The attributes of everything.
    Walk,
    /// A large file.
    Read,
    /// An empty file made and removed.
    CreateUnlink,
    /// A file renamed.
    Rename,
    /// A file's mode changed.
    Chmod,
    /// An extended attribute replaced.
    SetXattr,
    /// A large file written, and made durable.
    Write,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Operations a second.
    Operations,
    /// Names a second.
    Names,
    /// MiB a second.
    Mebibytes,
}

impl Unit {
    /// Returns the name for scripts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations/s",
            Self::Names => "names/s",
            Self::Mebibytes => "MiB/s",
        }
    }
}

/// The load of a measurement: its duration, and the number of threads.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) threads: u32,
    pub(super) duration: Duration,
}

impl Measure {
    /// All measures, in the order they are shown.
    pub(super) const ALL: [Self; 11] = [
        Self::Stat,
        Self::OpenClose,
        Self::Missing,
        Self::ReadDir,
        Self::Walk,
        Self::Read,
        Self::CreateUnlink,
        Self::Rename,
        Self::Chmod,
        Self::SetXattr,
        Self::Write,
    ];

    /// Returns the name for scripts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::OpenClose => "open-close",
            Self::Missing => "missing-name",
            Self::ReadDir => "readdir",
            Self::Walk => "walk",
            Self::Read => "read",
            Self::CreateUnlink => "create-unlink",
            Self::Rename => "rename",
            Self::Chmod => "chmod",
            Self::SetXattr => "setxattr",
            Self::Write => "write-fsync",
        }
    }

    /// Returns the unit of the figure.
    pub(super) fn unit(self) -> Unit {
        match self {
            Self::ReadDir | Self::Walk => Unit::Names,
            Self::Read | Self::Write => Unit::Mebibytes,
            _ => Unit::Operations,
        }
    }

    /// Returns whether the measure needs a copy of the volume.
    pub(super) fn changes(self) -> bool {
        use Measure::*;
        matches!(self, CreateUnlink | Rename | Chmod | SetXattr | Write)
    }

    /// Returns the reason why this volume does not allow the measure.
    pub(super) fn lacks(self, subjects: &Subjects) -> Option<&'static str> {
        if self.changes() && subjects.work.is_none() {
            return Some("nothing is written");
        }
        match self {
            Self::Stat | Self::OpenClose | Self::Missing if subjects.file.is_none() => {
                Some("there is no file that can be read")
            }
            Self::Read if subjects.large.is_none() => Some("there is no large file"),
            Self::Write if subjects.write_bytes == 0 => {
                Some("there is no room for it in the volume")
            }
            _ => None,
        }
    }

    /// Measures `tree`; returns units per second.
    pub(super) fn rate<T: Tree>(
        self,
        tree: &T,
        subjects: &Subjects,
        load: Load,
        stop: &Stop,
    ) -> Result<f64> {
        let duration = if self == Self::Write {
            Duration::ZERO
        } else {
            load.duration
        };
        let begin = |thread: usize| Worker {
            subjects,
            thread: thread as u32,
            load,
        };
        let work = |worker: &mut Worker<'_>| {
            let until = Until {
                start: Instant::now(),
                duration,
                stop,
            };
            worker.run(self, tree, &until)
        };
        let done = load::Load::of(load.threads as usize).run(begin, work, || {})?;
        if self == Self::Write {
            (0..load.threads).try_for_each(|thread| tree.remove(&subjects.own(thread, "large")))?;
        }
        let unit = if self.unit() == Unit::Mebibytes {
            f64::from(1 << 20)
        } else {
            1.0
        };
        Ok(done.per_second() / unit)
    }
}

/// The condition on which a thread stops.
struct Until<'a> {
    start: Instant,
    duration: Duration,
    stop: &'a Stop,
}

impl Until<'_> {
    /// Repeats `step` until the time is up, `batch` times between two checks. Each call returns how
    /// much it has done.
    fn repeat(&self, batch: u64, mut step: impl FnMut(u64) -> Result<u64>) -> Result<u64> {
        let mut turn = 0;
        let mut count = 0;
        loop {
            for _ in 0..batch {
                count += step(turn)?;
                turn += 1;
            }
            self.stop.check()?;
            if self.start.elapsed() >= self.duration {
                return Ok(count);
            }
        }
    }
}

/// The work of one thread.
struct Worker<'a> {
    subjects: &'a Subjects,
    thread: u32,
    load: Load,
}

impl Worker<'_> {
    /// Runs the measure until the time is up; returns how many operations, names or bytes it did.
    fn run<T: Tree>(&self, measure: Measure, tree: &T, until: &Until<'_>) -> Result<u64> {
        // A missing subject is not measured: see `Measure::lacks`.
        let subject = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        let own = |name| self.subjects.own(self.thread, name);
        let once = |result: Result<()>| result.map(|()| 1);
        match measure {
            Measure::Stat => {
                let path = subject(&self.subjects.file);
                until.repeat(64, |_| once(tree.stat(&path)))
            }
            Measure::OpenClose => {
                let path = subject(&self.subjects.file);
                until.repeat(64, |_| once(tree.open(&path)))
            }
            Measure::Missing => {
                let path = subject(&self.subjects.missing);
                until.repeat(64, |_| once(tree.miss(&path)))
            }
            Measure::ReadDir => until.repeat(1, |_| tree.list(&self.subjects.dir)),
            Measure::Walk => until.repeat(1, |_| tree.walk(MOST_WALKED)),
            Measure::Read => {
                let Some((path, bytes)) = &self.subjects.large else {
                    return Ok(0);
                };
                let part = self.part(*bytes);
                until.repeat(1, |_| {
                    tree.read(path, &part).map(|()| part.end - part.start)
                })
            }
            Measure::CreateUnlink => {
                let path = own("new");
                until.repeat(16, |_| once(tree.create_and_remove(&path)))
            }
            Measure::Rename => {
                let names = [own("file"), own("other")];
                // An even number of times, so that the file has its name again.
                until.repeat(16, |turn| {
                    let [from, to] = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
                    once(tree.rename(&names[from], &names[to]))
                })
            }
            Measure::Chmod => {
                let path = own("file");
                until.repeat(16, |turn| {
                    once(tree.chmod(&path, MODES[usize::from(turn % 2 == 1)]))
                })
            }
            Measure::SetXattr => {
                let path = own("file");
                until.repeat(16, |turn| {
                    once(tree.setxattr(&path, VALUES[usize::from(turn % 2 == 1)]))
                })
            }
            Measure::Write => {
                let part = self.part(self.subjects.write_bytes);
                let bytes = part.end - part.start;
                until.repeat(1, |_| tree.write(&own("large"), bytes).map(|()| bytes))
            }
        }
    }

    /// Returns this thread's part of `bytes` bytes.
    fn part(&self, bytes: u64) -> Range<u64> {
        let thread = u64::from(self.thread);
        let threads = u64::from(self.load.threads);
        bytes * thread / threads..bytes * (thread + 1) / threads
    }
}
