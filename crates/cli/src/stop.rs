//! Signals that end a command.
//!
//! The first signal asks the command to end: it stops between two files or pieces of one, and
//! closes its volume. The exit code tells of the signal. A second signal ends the process at once,
//! and leaves the volume as after a crash. SIGUSR1 ends nothing: the command prints how far it is.
//!
//! Commands that take long listen through `app`, and ask between two files. A command that reads a
//! pipe or a terminal waits for it in [`Stop::wait`], which a signal ends too.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use extern4_mountd::signals::is_hangup_ignored;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::progress::Progress;

/// The request of a signal that the command ends.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<Request>);

#[derive(Default)]
struct Request {
    /// The signal, or 0.
    signal: AtomicI32,
    /// An eventfd(2) that can be read when there is a signal; `None` if none is handled.
    wakes: Option<OwnedFd>,
}

impl Stop {
    /// Waits for signals in a thread.
    pub(crate) fn listen(progress: &Progress) -> io::Result<Self> {
        // Before this process has a second thread, it takes no time.
        extern4_sync::membarrier::register();
        let handled = [SIGHUP, SIGINT, SIGTERM, SIGUSR1].into_iter();
        let mut signals =
            Signals::new(handled.filter(|signal| *signal != SIGHUP || !is_hangup_ignored()))?;
        let progress = progress.clone();
        let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Self(Arc::new(Request {
            wakes: Some(wakes),
            ..Request::default()
        }));
        let told = stop.clone();
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGUSR1 {
                        progress.tell();
                        continue;
                    }
                    // Relaxed: the number guards no other data, and `wake` makes a system call
                    // after it.
                    if told.0.signal.swap(signal, Ordering::Relaxed) != 0 {
                        std::process::exit(code(signal).into());
                    }
                    told.wake();
                }
            })?;
        Ok(stop)
    }

    /// Returns the signal that has asked the command to end.
    pub(crate) fn signal(&self) -> Option<i32> {
        // Relaxed: see `listen`.
        Some(self.0.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Returns whether the command goes on.
    pub(crate) fn check(&self) -> ControlFlow<()> {
        if self.signal().is_none() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Waits until `file` can be read, or until a signal has asked the command to end.
    pub(crate) fn wait(&self, file: impl AsFd) -> ControlFlow<()> {
        loop {
            self.check()?;
            let readable = |file| PollFd::from_borrowed_fd(file, PollFlags::IN);
            let mut files: Vec<_> = std::iter::once(file.as_fd())
                .chain(self.0.wakes.as_ref().map(AsFd::as_fd))
                .map(readable)
                .collect();
            match poll(&mut files, None) {
                // The listening thread stores the signal and then wakes this one. Without a signal,
                // `clear` came between the two.
                Ok(_) if files[0].revents().is_empty() => {
                    self.check()?;
                    self.forget_wake();
                }
                Err(Errno::INTR) => {}
                // Reading reports what is wrong with the file.
                Ok(_) | Err(_) => return ControlFlow::Continue(()),
            }
        }
    }

    /// Forgets the signal, for a program that goes on with the next command.
    pub(crate) fn clear(&self) {
        // Relaxed: see `listen`.
        self.0.signal.store(0, Ordering::Relaxed);
        self.forget_wake();
    }

    fn forget_wake(&self) {
        // If no wake is pending, the read fails at once.
        let _ = self
            .0
            .wakes
            .as_ref()
            .map(|wakes| read(wakes, &mut [0_u8; 8]));
    }

    /// Ends the waits of [`wait`](Self::wait).
    fn wake(&self) {
        // The bytes are any number. It fails only if the sum would overflow.
        let _ = self.0.wakes.as_ref().map(|wakes| write(wakes, &[1; 8]));
    }
}

/// Returns the exit code that a shell reports for a signal.
pub(crate) fn code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
