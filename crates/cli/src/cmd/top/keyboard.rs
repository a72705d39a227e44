//! Keyboard input while the command shows something on a terminal: `q` ends it, without Enter.
//!
//! `top` waits with it between two reports. Without a terminal it only waits.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, stdin};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

/// Standard input, if that is a terminal. Dropping it restores the terminal's former mode.
pub(super) struct Keyboard(Option<Terminal>);

struct Terminal {
    /// The terminal's mode before the command changed it.
    before: Termios,
    /// Becomes readable after a signal that ends the process.
    signals: RefCell<UnixStream>,
    /// The signal that arrived.
    signal: Arc<AtomicUsize>,
}

impl Keyboard {
    /// Opens standard input, if that is a terminal.
    pub(super) fn open() -> io::Result<Self> {
        if !stdin().is_terminal() {
            return Ok(Self(None));
        }
        let (signals, wake) = UnixStream::pair()?;
        let signal = Arc::new(AtomicUsize::new(0));
        for kind in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            let number = kind.unsigned_abs() as usize;
            signal_hook::flag::register_usize(kind, Arc::clone(&signal), number)?;
            signal_hook::low_level::pipe::register(kind, wake.try_clone()?)?;
        }
        Ok(Self(Some(Terminal {
            before: tcgetattr(stdin())?,
            signals: RefCell::new(signals),
            signal,
        })))
    }

    /// Waits until `then`; returns true if the user ends the command.
    pub(super) fn wait_until(&self, then: Instant) -> io::Result<bool> {
        let Some(terminal) = &self.0 else {
            thread::sleep(then.saturating_duration_since(Instant::now()));
            return Ok(false);
        };
        loop {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if terminal.wait(left.as_secs(), left.subsec_nanos())? {
                return Ok(true);
            }
        }
    }
}

impl Terminal {
    /// Waits for a key or a signal. Returns true if the key is `q`, or if no more input can come.
    fn wait(&self, seconds: u64, nanoseconds: u32) -> io::Result<bool> {
        let input = stdin();
        // A shell may have put the command into the background, or have changed the mode.
        let is_ours = tcgetpgrp(&input).is_ok_and(|group| group == getpgrp());
        if is_ours {
            self.read_keys()?;
        }
        let keys = if is_ours {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let signals = self.signals.borrow();
        let mut files = [
            PollFd::new(&input, keys),
            PollFd::new(&*signals, PollFlags::IN),
        ];
        let timeout = Timespec {
            tv_sec: seconds.try_into().unwrap_or(i64::MAX),
            tv_nsec: nanoseconds.into(),
        };
        match poll(&mut files, Some(&timeout)) {
            Err(Errno::INTR) => {}
            ready => drop(ready?),
        }
        let has_keys = files[0].revents().contains(PollFlags::IN);
        let has_gone = files[0].revents().contains(PollFlags::HUP);
        let signal = self.signal.load(Ordering::Relaxed);
        if signal != 0 {
            self.restore();
            emulate_default_handler(signal.try_into().unwrap_or(SIGTERM))?;
        }
        if !has_keys {
            return Ok(has_gone);
        }
        let mut typed = [0; 64];
        let len = rustix::io::read(&input, &mut typed)?;
        Ok(len == 0 || typed[..len].iter().any(|key| matches!(key, b'q' | b'Q')))
    }

    /// Has the terminal deliver single keys without echo. Keys that raise signals still do.
    fn read_keys(&self) -> io::Result<()> {
        let mut mode = self.before.clone();
        mode.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        Ok(tcsetattr(stdin(), OptionalActions::Now, &mode)?)
    }

    fn restore(&self) {
        // A terminal that is gone needs no mode.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.restore();
    }
}
