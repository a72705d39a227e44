//! Rows of path walks: one path looked up over and over, everything cached.
//!
//! Ours is the command's `bench walk` as user 1000 on an image where everything belongs to root.
//! The kernel's side is `stat(2)` by the same user on a loop mount of the same image, in a process
//! whose root is the mount, so that both walk the same string.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use extern4_sync::allocations;
use extern4_vfs::{CacheStats, LookupFlags};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;

use super::image::{Mount, Rival};
use super::row::{Row, Unit};
use super::tree::{self, COMPONENTS};
use super::{Bench, RUNS, Result, rival};

pub(super) const PATH: &str = "/usr/include/linux/fs.h";
const MISSING: &str = "/usr/include/linux/no-such.h";
pub(super) const UID: u32 = 1000;
/// How long each side walks in each run.
pub(super) const SECONDS: f64 = 0.5;

impl Bench {
    pub(super) fn walk(&self) -> Result<Row> {
        self.beside_the_kernel("walk-vs-kernel", PATH, &[])
    }

    pub(super) fn walk_missing(&self) -> Result<Row> {
        self.beside_the_kernel("walk-missing-vs-kernel", MISSING, &["--missing"])
    }

    fn beside_the_kernel(&self, name: &'static str, path: &str, options: &[&str]) -> Result<Row> {
        let mount = Mount::new(Rival::Kernel, self.include()?, &self.folder.join("mnt"))?;
        let mut row = Row::faster(name, Unit::Nanoseconds, 15.0);
        row.rounds(RUNS, || {
            let ours = self.ours(path, 1, options)?.ns;
            let theirs = kernel(Call::Stat, mount.path(), path)?;
            Ok((ours, theirs))
        })?;
        Ok(row)
    }

    /// Two threads, compared with one: nanoseconds of the clock for an operation of any thread.
    pub(super) fn walk_threads(&self) -> Result<Row> {
        let mut row = Row::faster("walk-2-threads-vs-1", Unit::Nanoseconds, 1.9);
        row.rounds(RUNS, || {
            let two = self.ours(PATH, 2, &[])?.ns;
            let one = self.ours(PATH, 1, &[])?.ns;
            Ok((two, one))
        })?;
        Ok(row)
    }

    pub(super) fn walk_rust_fs_ext4(&self) -> Result<Row> {
        let mut row = Row::faster("walk-2-threads-vs-rust-fs-ext4", Unit::Nanoseconds, 60.0);
        row.rounds(RUNS, || {
            let ours = self.ours(PATH, 2, &[])?.ns;
            let theirs = rival::stat(self.include()?, PATH, 2, Duration::from_secs_f64(SECONDS))?;
            Ok((ours, theirs))
        })?;
        row.set_note("two threads on one instance of it".to_owned());
        Ok(row)
    }

    /// Allocations for an operation, by the command.
    pub(super) fn walk_allocations(&self) -> Result<Row> {
        let mut row = Row::below("walk-allocations", Unit::Count, 0.0);
        for _ in 0..RUNS {
            row.add(self.ours(PATH, 1, &[])?.allocations, 0.0);
        }
        let missing = self.ours(MISSING, 1, &["--missing"])?.allocations;
        row.set_note(format!(
            "of a missing path, whose error names it: {missing}"
        ));
        Ok(row)
    }

    /// Walks that begin again because another thread renames other names in the directories on the
    /// way.
    pub(super) fn walk_restarts(&self) -> Result<Row> {
        let mut row = Row::below("walk-restarts-percent", Unit::Percent, 0.02);
        let mut most_allocations = 0;
        for _ in 0..RUNS {
            let (percent, allocations) = walk_beside_renames(Duration::from_secs_f64(SECONDS))?;
            row.add(percent, 0.02);
            most_allocations = most_allocations.max(allocations);
        }
        row.set_note(format!(
            "{most_allocations} allocations in the walks of any run"
        ));
        Ok(row)
    }

    /// One run of `extern4 bench walk`.
    fn ours(&self, path: &str, threads: u32, options: &[&str]) -> Result<Walked> {
        let mut command = Command::new(self.extern4()?);
        command
            .args(["bench", "walk"])
            .arg(format!("{}:{path}", self.include()?.display()));
        command.args([
            "--as",
            &format!("{UID}:{UID}"),
            "--json",
            "--seconds",
            &SECONDS.to_string(),
        ]);
        command
            .args(["--threads", &threads.to_string()])
            .args(options);
        let text = output(&mut command)?;
        let done: Value = serde_json::from_str(&text).map_err(|e| format!("{e} in {text}"))?;
        let number = |key: &str| {
            done[key]
                .as_f64()
                .ok_or_else(|| format!("no number {key} in {text}"))
        };
        Ok(Walked {
            ns: 1e9 / number("ops_per_s")?,
            allocations: number("allocs_per_op")?,
        })
    }
}

/// The figures of the command.
struct Walked {
    /// Of the clock, for one operation of any thread.
    ns: f64,
    allocations: f64,
}

/// Restarts in a hundred walks, and allocations, while another thread renames.
fn walk_beside_renames(duration: Duration) -> Result<(f64, u64)> {
    let root = tree::volume(None).map_err(|e| e.to_string())?;
    let user = tree::user(&root);
    let path = tree::path();
    let sb = root.root().superblock();
    let before = sb.stats();
    let end = Instant::now() + duration;
    let (walks, allocations) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut depth = 0;
            while Instant::now() < end {
                tree::rename_beside(&root, depth);
                depth = (depth + 1) % (COMPONENTS - 1);
            }
        });
        let walker = scope.spawn(|| {
            user.stat(&path, LookupFlags::FOLLOW)
                .expect("nobody renames what is on the way");
            let mut walks = 0u64;
            let before = allocations::of_this_thread();
            while Instant::now() < end {
                for _ in 0..64 {
                    std::hint::black_box(user.stat(&path, LookupFlags::FOLLOW))
                        .expect("it is there");
                }
                walks += 64;
            }
            (walks, allocations::of_this_thread() - before)
        });
        walker.join().expect("no panic")
    });
    let restarts = restarts(&sb.stats()) - restarts(&before);
    Ok((restarts as f64 * 100.0 / walks as f64, allocations))
}

/// Walks that had to begin again or to go on with references.
fn restarts(stats: &CacheStats) -> u64 {
    stats.walk_restarts + stats.walk_fallbacks
}

/// The question to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// `stat(2)`.
    Stat,
    /// `open(2)` and `close(2)`.
    Open,
}

impl Call {
    /// The hidden subcommand for it.
    fn command(self) -> &'static str {
        match self {
            Self::Stat => "stat-loop",
            Self::Open => "open-loop",
        }
    }

    fn make(self, path: &CStr) -> rustix::io::Result<()> {
        match self {
            Self::Stat => rustix::fs::stat(path).map(drop),
            Self::Open => rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).map(drop),
        }
    }
}

/// Nanoseconds for one call of the kernel below `root`, in a separate process.
pub(super) fn kernel(call: Call, root: &Path, path: &str) -> Result<f64> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let text = output(
        Command::new(this)
            .arg(call.command())
            .arg(root)
            .args([path, &SECONDS.to_string()]),
    )?;
    text.trim()
        .parse()
        .map_err(|_| format!("{} says {text:?}", call.command()))
}

/// The hidden subcommands `stat-loop ROOT PATH SECONDS` and `open-loop ROOT PATH SECONDS`: go below
/// `ROOT` for good, become an ordinary user, and print how many nanoseconds one call with `PATH`
/// takes. That the path is not there is an answer like any other.
pub(super) fn call_loop(call: Call, args: &[String]) -> Result<()> {
    let [root, path, seconds] = args else {
        return Err(format!(
            "{} takes a root, a path and seconds",
            call.command()
        ));
    };
    let seconds: f64 = seconds.parse().map_err(|_| "seconds are a number")?;
    let path = CString::new(path.as_str()).map_err(|e| e.to_string())?;
    become_user(Path::new(root))?;
    let ask = || match call.make(&path) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.to_string()),
    };
    ask()?;
    let start = Instant::now();
    let mut ops = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        for _ in 0..256 {
            std::hint::black_box(ask()?);
        }
        ops += 256;
    }
    println!("{}", start.elapsed().as_nanos() as f64 / ops as f64);
    Ok(())
}

/// Goes below `root` for good and becomes an ordinary user.
pub(super) fn become_user(root: &Path) -> Result<()> {
    std::os::unix::fs::chroot(root).map_err(|e| e.to_string())?;
    std::env::set_current_dir("/").map_err(|e| e.to_string())?;
    rustix::thread::set_thread_groups(&[]).map_err(|e| e.to_string())?;
    rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(UID))
        .map_err(|e| e.to_string())?;
    rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(UID)).map_err(|e| e.to_string())
}

/// The output of a command, which has to succeed.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8(output.stdout).map_err(|e| e.to_string())
}
