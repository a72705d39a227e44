//! Standard input, with the errors of reading it.
//!
//! When a program starts with a closed descriptor 0, Rust's runtime opens `/dev/null` there. And
//! `std::io::Stdin` treats a descriptor that cannot be read as an empty one. A command must not
//! take either for empty input. So this module looks at the descriptor before the runtime does, and
//! reads it as a file.
//!
//! `interruptible` opens it for all commands. A closed or unreadable descriptor is an error.

#![allow(
    unsafe_code,
    reason = "a function that runs before the runtime is named in a section of the program"
)]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::{Errno, dup, fcntl_dupfd_cloexec, fcntl_getfd};
use rustix::stdio::{dup2_stdin, stdin};

/// Whether the program was started with a closed standard input. Relaxed: only the thread that
/// runs the commands stores and loads it.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks at the descriptor. The runtime is not set up yet, and this function needs nothing of it.
extern "C" fn look() {
    WAS_CLOSED.store(fcntl_getfd(stdin()) == Err(Errno::BADF), Relaxed);
}

/// The entry for `look` in the table of functions that the C library calls before `main`.
// SAFETY: the section holds pointers to functions of this kind; a function that takes no arguments
// ignores the signals that it is called with.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// Opens standard input for reading.
pub(crate) fn open() -> io::Result<File> {
    if WAS_CLOSED.load(Relaxed) {
        Err(Errno::BADF.into())
    } else {
        Ok(File::from(dup(stdin())?))
    }
}

/// Standard input while another file has taken its place. Dropping it puts it back.
pub(crate) struct Replaced {
    own: OwnedFd,
    was_closed: bool,
}

impl Replaced {
    /// Puts a file in the place of standard input.
    pub(crate) fn with(file: File) -> io::Result<Self> {
        let own = fcntl_dupfd_cloexec(stdin(), 3)?;
        dup2_stdin(&file)?;
        Ok(Self {
            own,
            was_closed: WAS_CLOSED.swap(false, Relaxed),
        })
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        // The number of the descriptor is in use, so it can be given another file.
        let _ = dup2_stdin(&self.own);
        WAS_CLOSED.store(self.was_closed, Relaxed);
    }
}
