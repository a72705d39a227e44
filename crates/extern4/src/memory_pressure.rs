//! Memory pressure: caches give up memory when the system or the control group runs short of it.
//!
//! The kernel reports pressure in two ways. A trigger on a file of stall information reports that
//! threads wait for memory (Documentation/accounting/psi.rst). The file `memory.events` of a
//! control group changes when the group exceeds its limits
//! (Documentation/admin-guide/cgroup-v2.rst).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use extern4_block::CacheBudget;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// A request for a report when threads have waited for memory for 100 ms within 2 s. Callers
/// without privileges may ask for whole multiples of 2 s only.
const TRIGGER: &[u8] = b"some 100000 2000000\0";
/// The part of the memory in use that the caches give up at each report.
const PART: u64 = 4;
/// The time from one report to the next one that counts.
const PAUSE: Duration = Duration::from_secs(1);

/// A thread that makes the caches of a budget give up memory under pressure, until this is dropped.
#[derive(Debug)]
pub struct PressureWatch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl PressureWatch {
    /// Starts the thread. Fails if the kernel reports no memory pressure to this process.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` or `EOPNOTSUPP` if the kernel reports no memory pressure to this process;
    /// `EAGAIN` if no thread can be started.
    pub fn start(budget: &Arc<CacheBudget>) -> io::Result<Self> {
        Self::over(sources()?, budget)
    }

    fn over(sources: Vec<Source>, budget: &Arc<CacheBudget>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let budget = Arc::clone(budget);
        let watch = move || watch(sources, &stopped, &budget);
        let thread = Some(
            thread::Builder::new()
                .name("extern4-memory".to_owned())
                .spawn(watch)?,
        );
        Ok(Self { stop, thread })
    }
}

impl Drop for PressureWatch {
    fn drop(&mut self) {
        // Any count but 0 will do. The count was 0, so this does not wait.
        if rustix::io::write(&*self.stop, &[1; 8]).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic of the thread has been printed, and leaves nothing to undo.
            _ = thread.join();
        }
    }
}

/// A file whose priority events report pressure.
struct Source {
    file: File,
    kind: Kind,
}

enum Kind {
    /// Each event is a report.
    Stalls,
    /// An event is a report if this count has grown.
    Limits { hits: u64 },
}

impl Source {
    fn stalls(mut file: File) -> io::Result<Self> {
        file.write_all(TRIGGER)?;
        Ok(Self {
            file,
            kind: Kind::Stalls,
        })
    }

    fn limits(file: File) -> io::Result<Self> {
        let mut source = Self {
            file,
            kind: Kind::Limits { hits: 0 },
        };
        source.is_report()?;
        Ok(source)
    }

    /// Returns whether an event of the file reports pressure, and arms the file for the next one.
    fn is_report(&mut self) -> io::Result<bool> {
        let Kind::Limits { hits } = &mut self.kind else {
            return Ok(true);
        };
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        let now = limit_hits(&text);
        let grown = now > *hits;
        *hits = now;
        Ok(grown)
    }
}

/// Returns how often the group of this `memory.events` exceeded a limit.
fn limit_hits(events: &str) -> u64 {
    let count = |line: &str| match line.split_once(' ')? {
        ("high" | "max", count) => count.parse::<u64>().ok(),
        _ => None,
    };
    events.lines().filter_map(count).sum()
}

/// Opens the files that report pressure on this process, of its control group if that has them.
fn sources() -> io::Result<Vec<Source>> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Version 2 has one line, with an empty list of controllers.
    let group = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("/");
    let files = |name: &str| {
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|root| format!("{root}{group}/{name}"))
    };
    let trigger =
        |path: &String| Source::stalls(OpenOptions::new().read(true).write(true).open(path)?);
    let stalls: Vec<_> = files("memory.pressure")
        .into_iter()
        .chain(["/proc/pressure/memory".to_owned()])
        .collect();
    let stalls = stalls.iter().map(trigger).reduce(Result::or);
    let limits = files("memory.events")
        .into_iter()
        .find_map(|path| Source::limits(File::open(path).ok()?).ok());
    match (stalls, limits) {
        (Some(Err(error)), None) => Err(error),
        (stalls, limits) => Ok(stalls
            .and_then(Result::ok)
            .into_iter()
            .chain(limits)
            .collect()),
    }
}

/// Evicts a part of the caches at each report, until `stop` can be read.
fn watch(mut sources: Vec<Source>, stop: &OwnedFd, budget: &CacheBudget) {
    loop {
        let Ok(events) = wait(&sources, stop) else {
            return;
        };
        let mut events = events.into_iter();
        let mut is_short = false;
        sources.retain_mut(|source| {
            let event = events.next().unwrap_or(PollFlags::empty());
            // A file whose group has been removed reports errors only.
            let is_gone = event.intersects(PollFlags::HUP | PollFlags::NVAL)
                || event.contains(PollFlags::ERR) && !event.contains(PollFlags::PRI);
            if !event.contains(PollFlags::PRI) {
                return !is_gone;
            }
            let report = source.is_report();
            is_short |= *report.as_ref().unwrap_or(&true);
            report.is_ok() && !is_gone
        });
        if is_short {
            budget.reclaim(budget.used() / PART);
        }
        if is_stopped(stop, PAUSE) {
            return;
        }
    }
}

/// Waits for an event of a source, and returns the events of each. Fails when `stop` can be read.
fn wait(sources: &[Source], stop: &OwnedFd) -> io::Result<Vec<PollFlags>> {
    let mut files = vec![PollFd::new(stop, PollFlags::IN)];
    files.extend(
        sources
            .iter()
            .map(|source| PollFd::from_borrowed_fd(source.file.as_fd(), PollFlags::PRI)),
    );
    loop {
        match poll(&mut files, None) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) if files[0].revents().is_empty() => {
                return Ok(files[1..].iter().map(PollFd::revents).collect());
            }
            Ok(_) => return Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// Waits for `pause` at most. Returns whether `stop` can be read.
fn is_stopped(stop: &OwnedFd, pause: Duration) -> bool {
    let timeout = Timespec::try_from(pause).expect("a short time");
    let mut files = [PollFd::new(stop, PollFlags::IN)];
    // A signal may end the pause early.
    poll(&mut files, Some(&timeout)).is_ok_and(|events| events > 0)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Mutex, mpsc};

    use extern4_block::{CacheAccount, Reclaim};

    use super::*;

    /// A cache of a thousand bytes that says how many it is asked for.
    struct Asked(CacheAccount, Mutex<mpsc::Sender<u64>>);

    impl Reclaim for Asked {
        fn account(&self) -> &CacheAccount {
            &self.0
        }

        fn reclaim(&self, bytes: u64) -> u64 {
            self.1.lock().unwrap().send(bytes).unwrap();
            bytes
        }
    }

    #[test]
    fn a_report_has_caches_give_up_a_part() {
        let budget = CacheBudget::new(1000);
        let (asked, requests) = mpsc::channel();
        let cache = Asked(CacheAccount::new(&budget), Mutex::new(asked));
        cache.0.add(1000);
        let _registration = budget.register(Arc::new(cache));
        // Urgent data of a socket is an event of the same kind as a report of the kernel.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let kernel = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (file, _) = listener.accept().unwrap();
        let source = Source {
            file: File::from(OwnedFd::from(file)),
            kind: Kind::Stalls,
        };
        let watch = PressureWatch::over(vec![source], &budget).unwrap();
        assert!(requests.try_recv().is_err());
        rustix::net::send(&kernel, b"!", rustix::net::SendFlags::OOB).unwrap();
        assert_eq!(requests.recv().unwrap(), 250);
        drop(watch);
    }

    #[test]
    fn the_kernel_reports_or_says_why_not() {
        match PressureWatch::start(&CacheBudget::new(1000)) {
            Ok(watch) => drop(watch),
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }

    #[test]
    fn hits_of_limits_are_counted() {
        assert_eq!(limit_hits("low 7\nhigh 3\nmax 2\noom 1\noom_kill 1\n"), 5);
        assert_eq!(limit_hits("high x\nlocal\n"), 0);
    }
}
