//! Standard input, with the errors of reading it.
//!
//! When a program starts with a closed descriptor 0, Rust's runtime opens `/dev/null` there, and `std::io::Stdin` takes a
//! descriptor that cannot be read for an empty one. A command must not take either for empty input, so it looks before the
//! runtime does, and reads the descriptor as a file.

#![allow(
    unsafe_code,
    reason = "a function that runs before the runtime is named in a section of the program"
)]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::{Errno, dup, fcntl_getfd};
use rustix::stdio::stdin;

/// The program was started with a closed standard input. Relaxed: stored before there are threads.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks at the descriptor. Nothing of the runtime is there yet, and nothing of it is needed.
extern "C" fn look() {
    WAS_CLOSED.store(fcntl_getfd(stdin()) == Err(Errno::BADF), Relaxed);
}

/// What the C library calls before `main`.
// SAFETY: the section holds pointers to functions of this kind; arguments that such a function does not take are not looked at.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = look;

/// Opens standard input to be read.
pub(crate) fn open() -> io::Result<File> {
    if WAS_CLOSED.load(Relaxed) { Err(Errno::BADF.into()) } else { Ok(File::from(dup(stdin())?)) }
}
