//! A process that visits the paths of a tree with `stat`, by the library or by system calls.
//!
//! Each visit runs in a separate process, so that its CPU time is that of all its threads, and
//! its memory that of one volume. The CPU time of a daemon that serves the tree is added. The
//! kernel's threads that read a loop device are not counted.

use std::ffi::{CStr, CString, OsStr};
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use extern4::{Cred, Session, Volume};
use extern4_measure::json;
use extern4_sync::{allocations, rcu};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::Result;
use super::paths::{self, Order};
use super::walk::{UID, become_user, output};

/// Questions of a warm visit, at least, so that the clock tells.
const WARM_QUESTIONS: usize = 250_000;

/// Rounds over all paths that a visit is timed for. A cold path is warm in a second round, and the
/// second question for an absent name would not be for a new one.
pub(super) fn rounds(order: Order, caches: Caches, paths: usize) -> usize {
    if caches != Caches::Warm || order == Order::Absent {
        return 1;
    }
    WARM_QUESTIONS.div_ceil(paths.max(1))
}

/// The side that answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side<'p> {
    /// The library, with a volume.
    Library(&'p Path),
    /// The kernel, below this mount point.
    System(&'p Path),
    /// The kernel, below a mount point that this process serves.
    Served(&'p Path, u32),
}

/// The caches before a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caches {
    /// The volume has just been opened.
    Cold,
    /// Every path has been visited.
    Warm,
    /// As for `Cold`. The allocator counts bytes, which slows the visit down.
    Counted,
}

impl Caches {
    const ALL: [(&str, Self); 3] = [
        ("cold", Self::Cold),
        ("warm", Self::Warm),
        ("counted", Self::Counted),
    ];

    fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, caches)| *caches == self)
            .map_or("", |(name, _)| name)
    }

    fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, caches)| *caches)
            .ok_or_else(|| format!("there are no caches {name}"))
    }
}

/// The result of a visit.
#[derive(Debug)]
pub(super) struct Visited {
    /// Nanoseconds of CPU time for a path.
    pub(super) nanos: f64,
    /// Paths that are there.
    pub(super) found: f64,
    /// Inodes in memory after the visit, if the library was asked.
    pub(super) inodes: f64,
    /// Nanoseconds of CPU time to close the volume, for a path.
    pub(super) close_nanos: f64,
    /// Bytes that were allocated from the opening to the end of the visit, if they were counted.
    pub(super) cached: f64,
    /// Bytes of these that are blocks of the volume.
    pub(super) blocks: f64,
    /// Bytes that were still allocated after the volume was closed, if they were counted.
    pub(super) kept: f64,
    /// MiB that the process had more after closing the volume than before opening it.
    pub(super) resident: f64,
}

impl Visited {
    /// Visits in a new process. `list` is a file with all paths.
    pub(super) fn of(side: Side<'_>, list: &Path, order: Order, caches: Caches) -> Result<Self> {
        let this = std::env::current_exe().map_err(|e| e.to_string())?;
        let text = output(
            Command::new(this)
                .arg("visit")
                .args(arguments(side, list, order, caches)),
        )?;
        let said: Value = serde_json::from_str(&text).map_err(|e| format!("{e} in {text}"))?;
        // A side leaves out the figures that it does not have.
        let number = |key: &str| said[key].as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            nanos: number("nanos"),
            found: number("found"),
            inodes: number("inodes"),
            close_nanos: number("close_nanos"),
            cached: number("cached"),
            blocks: number("blocks"),
            kept: number("kept"),
            resident: number("resident_mib"),
        })
    }
}

/// The arguments of the hidden subcommand `visit`.
pub(super) fn arguments(side: Side<'_>, list: &Path, order: Order, caches: Caches) -> Vec<String> {
    let (kind, place, server) = match side {
        Side::Library(image) => ("library", image, None),
        Side::System(root) => ("system", root, None),
        Side::Served(root, server) => ("system", root, Some(server)),
    };
    let place = place.display().to_string();
    let words = [
        kind,
        &place,
        &list.display().to_string(),
        order.name(),
        caches.name(),
    ]
    .map(str::to_owned);
    words
        .into_iter()
        .chain(server.map(|server| server.to_string()))
        .collect()
}

/// The hidden subcommand `visit library|system PLACE LIST ORDER CACHES [SERVER]`: visits paths as
/// an ordinary user, and prints the cost.
pub(super) fn visit(args: &[String]) -> Result<()> {
    let [kind, place, list, order, caches, server @ ..] = args else {
        return Err(
            "visit takes a side, a place, a list of paths, an order, and caches".to_owned(),
        );
    };
    let place = Path::new(place);
    let order = Order::named(order)?;
    let caches = Caches::named(caches)?;
    let all = paths::read(Path::new(list))?;
    let plan = Plan {
        asked: order.of(&all),
        rounds: rounds(order, caches, all.len()),
        all,
        caches,
    };
    match kind.as_str() {
        "library" => library(place, &plan),
        "system" => {
            let server = server
                .first()
                .map(|id| id.parse().map_err(|_| "a server is a number"))
                .transpose()?;
            system(place, &plan, server)
        }
        _ => Err(format!("there is no side {kind}")),
    }
}

/// The paths that a visit asks for.
struct Plan {
    /// All paths of the tree.
    all: Vec<CString>,
    asked: Vec<CString>,
    rounds: usize,
    caches: Caches,
}

fn library(image: &Path, plan: &Plan) -> Result<()> {
    let resident = resident_mib()?;
    allocations::count_live(plan.caches == Caches::Counted);
    let unopened = allocations::live_bytes();
    let volume = Volume::open(image).map_err(|e| e.to_string())?;
    let session = volume.session(Cred::new(UID, UID, &[]));
    let opened = allocations::live_bytes();
    let stat = |path: &CString| stat_by_us(&session, path);
    let (found, nanos) = plan.visit(stat, cpu_time)?;
    let cached = allocations::live_bytes().wrapping_sub(opened);
    let blocks =
        volume.stats().blocks.resident * u64::from(volume.ext4().superblock().block_size());
    let inodes = volume.cache_stats().inodes;
    let before = cpu_time()?;
    drop(session);
    volume.close().map_err(|e| e.to_string())?;
    // Objects that readers could still see are freed later, at the latest here.
    rcu::pin().flush_all();
    let closed = cpu_time()?.saturating_sub(before);
    let kept = allocations::live_bytes().wrapping_sub(unopened);
    let resident = resident_mib()? - resident;
    print!(
        "{}",
        json::line(|object| {
            object.number("nanos", nanos);
            object.raw("found", found);
            object.raw("inodes", inodes);
            object.number(
                "close_nanos",
                closed.as_nanos() as f64 / plan.all.len() as f64,
            );
            if plan.caches == Caches::Counted {
                object.raw("cached", cached);
                object.raw("blocks", blocks);
                object.raw("kept", kept.cast_signed());
            }
            object.number("resident_mib", resident);
        })
    );
    Ok(())
}

fn system(root: &Path, plan: &Plan, server: Option<u32>) -> Result<()> {
    // Opened before this process goes below the root.
    let server = server.map(Server::open).transpose()?;
    become_user(root)?;
    let clock = || {
        Ok(cpu_time()?
            + server
                .as_ref()
                .map_or(Ok(Duration::ZERO), Server::cpu_time)?)
    };
    let (found, nanos) = plan.visit(|path| stat_by_kernel(path), clock)?;
    print!(
        "{}",
        json::line(|object| {
            object.number("nanos", nanos);
            object.raw("found", found);
        })
    );
    Ok(())
}

impl Plan {
    /// Returns the number of paths that are there, and the nanoseconds for one of the paths asked
    /// for.
    fn visit(
        &self,
        stat: impl Fn(&CString) -> Result<bool>,
        clock: impl Fn() -> Result<Duration>,
    ) -> Result<(usize, f64)> {
        if self.caches == Caches::Warm {
            self.all.iter().try_for_each(|path| stat(path).map(drop))?;
        }
        let before = clock()?;
        let mut found = 0;
        for _ in 0..self.rounds {
            found = visit_each(&self.asked, &stat)?;
        }
        let took = clock()?.saturating_sub(before);
        Ok((
            found,
            took.as_nanos() as f64 / (self.rounds * self.asked.len()) as f64,
        ))
    }
}

/// The function in which callgrind counts.
pub(super) const COUNTED: &str = "*visit::visit_each*";

#[inline(never)]
fn visit_each(paths: &[CString], stat: impl Fn(&CString) -> Result<bool>) -> Result<usize> {
    let mut found = 0;
    for path in paths {
        found += usize::from(stat(black_box(path))?);
    }
    Ok(found)
}

/// Whether a path is there, or behind a directory that the user may not search.
pub(super) fn stat_by_us(session: &Session, path: &CStr) -> Result<bool> {
    use extern4::{Errno, ErrorKind};
    match session.symlink_metadata(OsStr::from_bytes(path.to_bytes())) {
        Ok(found) => Ok(black_box(found).ino() != 0),
        Err(error) if matches!(error.kind(), ErrorKind::Os(Errno::ENOENT | Errno::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error.to_string()),
    }
}

fn stat_by_kernel(path: &CStr) -> Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::statx(
        CWD,
        path,
        AtFlags::SYMLINK_NOFOLLOW,
        StatxFlags::BASIC_STATS,
    ) {
        Ok(found) => Ok(black_box(found).stx_ino != 0),
        Err(Errno::NOENT | Errno::ACCESS) => Ok(false),
        Err(error) => Err(format!("{}: {error}", path.to_string_lossy())),
    }
}

/// The CPU time of all threads of this process.
pub(super) fn cpu_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // OK: neither is negative.
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// A daemon whose CPU time is asked for.
struct Server(std::fs::File);

impl Server {
    /// Ticks of a second in which the kernel tells CPU times.
    const TICKS: u64 = 100;
    /// Fields of `/proc/PID/stat` between the name of the program and its time as a user.
    const BEFORE: usize = 11;

    fn open(id: u32) -> Result<Self> {
        let path = format!("/proc/{id}/stat");
        std::fs::File::open(&path)
            .map(Self)
            .map_err(|e| format!("{path}: {e}"))
    }

    fn cpu_time(&self) -> Result<Duration> {
        use std::os::unix::fs::FileExt as _;
        let mut text = [0; 1024];
        let len = self.0.read_at(&mut text, 0).map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&text[..len]);
        let fields = text
            .rsplit_once(')')
            .map(|(_, fields)| fields.split_whitespace().skip(Self::BEFORE));
        let ticks: Option<u64> =
            fields.map(|fields| fields.take(2).flat_map(str::parse::<u64>).sum());
        let ticks = ticks.ok_or("the kernel does not say how much time the server has had")?;
        Ok(Duration::from_millis(ticks * 1000 / Self::TICKS))
    }
}

/// MiB of memory that this process has.
pub(super) fn resident_mib() -> Result<f64> {
    status_mib("VmRSS:")
}

/// The most MiB of memory that this process has had.
pub(super) fn peak_mib() -> Result<f64> {
    status_mib("VmHWM:")
}

fn status_mib(key: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib: Option<f64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(|kib| kib / 1024.0)
        .ok_or_else(|| format!("the kernel does not say {key}"))
}
