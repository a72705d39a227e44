//! Signals: a signal that would end the process ends the mount instead.
//!
//! A signal whose default action ends a process unmounts and closes the volume, so that nothing is
//! lost. Excepted are:
//! * `KILL`, which no process can handle, and the two that the C library keeps for itself (32 and
//!   33);
//! * `SEGV`, `BUS`, `ILL`, `FPE` and `ABRT`: the process itself is at fault then, and nothing of
//!   its memory must get to the volume. The next mount replays the journal, as after a crash;
//! * `PIPE` and `XFSZ`: the write that met a closed pipe, or a limit (`RLIMIT_FSIZE`), fails, and
//!   the process goes on.
//!
//! `mount` starts the thread before it serves.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use extern4_fuse::Mounted;
use nix::libc;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;
use tracing::{error, info};

/// The ending signals that have a name.
const ENDING: [i32; 15] = [
    SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTRAP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSYS,
];

/// Starts a thread that unmounts when a signal tells the process to end, which ends the serving. A
/// signal that comes before the mount exists takes effect once it does. The thread holds the
/// returned lock while it unmounts.
pub(crate) fn end_on_signals(mounted: &Arc<OnceLock<Mounted>>) -> io::Result<Arc<Mutex<()>>> {
    let all = ENDING
        .into_iter()
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    let mut signals = Signals::new(all.filter(|signal| *signal != SIGHUP || !is_hangup_ignored()))?;
    let ending = Arc::new(Mutex::new(()));
    let lock = Arc::clone(&ending);
    let mounted = Arc::clone(mounted);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let mounted = mounted.wait();
                let _held = lock.lock();
                info!(
                    "ends on {}",
                    signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
                );
                match mounted.end() {
                    Ok(()) => return,
                    // The next signal may find the mount free.
                    Err(error) => error!("cannot unmount: {error}"),
                }
            }
        })?;
    Ok(ending)
}

/// Has a write beyond `RLIMIT_FSIZE` fail with `EFBIG`. Otherwise the signal would end the process
/// half way through a change.
pub fn outlive_size_limit() {
    // If this fails, the signal ends the process as it would any other.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Returns whether nohup(1) started the process, which then outlives its terminal.
pub fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0)
}
