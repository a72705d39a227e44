//! Waiting for the end of a mount: whether all written data became durable.
//!
//! ```text
//! extern4 umount -- "extern4/1 end\n" -> socket -> responder
//!                <- "waits\n" -----------
//!      umount(2)                          the volume is closed
//!                <- "ended\n", or "lost: " and the reason, and the end of the connection
//! ```
//!
//! `control` keeps the waiting clients, and `umount` waits. A connection that ends without a word
//! means that the process has died, and counts as lost.

use std::io::Write as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::client::TIMEOUT;
use super::{client, socket};

/// The request.
const END: &str = "extern4/1 end";
const WAITS: &str = "waits";
const ENDED: &str = "ended";
const LOST: &str = "lost: ";
/// The limit for the connections that are kept. One more replaces the first, whose client may have
/// given up.
const MOST: usize = 8;

/// The connections of waiting clients, in the process that serves the mount.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Vec<OwnedFd>>);

impl Waiting {
    /// Returns the answer to a request to wait, and keeps the connection. `None` for any other
    /// request.
    pub(super) fn answer(&self, request: &[u8], from: BorrowedFd<'_>) -> Option<String> {
        if request.trim_ascii_end() != END.as_bytes() {
            return None;
        }
        let stream = from.try_clone_to_owned().ok()?;
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.len() == MOST {
            streams.remove(0);
        }
        streams.push(stream);
        Some(format!("{WAITS}\n"))
    }

    /// Tells all waiting clients how the mount has ended, with the reason if data were lost.
    pub(crate) fn tell(&self, lost: Option<&str>) {
        let text = lost.map_or(ENDED.to_owned(), |why| {
            format!("{LOST}{}", why.replace('\n', " "))
        });
        for stream in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // A client that has gone does not receive it.
            let _ = UnixStream::from(stream).write_all(format!("{text}\n").as_bytes());
        }
    }
}

/// A connection on which the serving process tells the end of a mount.
pub(crate) struct Listener(UnixStream);

impl Listener {
    /// Asks the process that serves the mount on `dir`. Returns `None` if it cannot be asked.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let stream = socket::connect(&client::find(dir).ok()?).ok()?;
        let (stream, answer) = client::exchange(stream, END, Instant::now() + TIMEOUT).ok()?;
        (answer == WAITS.as_bytes()).then_some(Self(stream))
    }

    /// Waits for the end of the mount. Returns the reason if data were lost, or if the process
    /// ended without an answer.
    pub(crate) fn lost(mut self) -> Option<String> {
        let line = client::line(&mut self.0, Instant::now() + TIMEOUT).unwrap_or_default();
        if line == ENDED.as_bytes() {
            return None;
        }
        let why = line
            .strip_prefix(LOST.as_bytes())
            .map(|why| String::from_utf8_lossy(why).into_owned());
        Some(why.unwrap_or_else(|| {
            "the process that served it ended before all was written".to_owned()
        }))
    }
}
