//! Has the process that serves a mount open its volume for writing, for `mount -o remount,rw`.
//!
//! ```text
//! extern4 mount -- "extern4/1 write\n" -> socket -> responder
//!                                         -> a thread: Volume::set_read_only(false)
//!               <- "writes\n", or "refused: " and the reason ----
//! ```
//!
//! A long journal makes that slow, so the responder goes on with other requests meanwhile.
//!
//! `control` begins it, and `remount` asks. A refused volume stays open for reading.

use std::io::Write as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use extern4::Volume;
use extern4::terminal::escape;
use tracing::info;

use super::client::{self, AskError};
use super::mounts::Mount;
use super::socket;

/// The request.
const WRITE: &str = "extern4/1 write";
const WRITES: &str = "writes";
const REFUSED: &str = "refused: ";
/// The time limit for a client. It is long because a journal can be long, and because the process
/// waits longer where another host may have died.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Starts opening the volume for writing, if that is the request. The new thread answers on the
/// connection.
pub(super) fn begin(volume: &Volume, request: &[u8], from: BorrowedFd<'_>) -> Option<String> {
    if request.trim_ascii_end() != WRITE.as_bytes() {
        return None;
    }
    let volume = volume.clone();
    let begun = from.try_clone_to_owned().and_then(|stream| {
        let answer = move || tell(stream, &answer(&volume));
        thread::Builder::new()
            .name("remount".to_owned())
            .spawn(answer)
    });
    // An empty answer: the thread's own answer follows.
    Some(begun.map_or_else(|error| format!("{REFUSED}{error}\n"), |_| String::new()))
}

fn answer(volume: &Volume) -> String {
    match volume.set_read_only(false) {
        Ok(()) => {
            info!("the volume is open for writing now");
            WRITES.to_owned()
        }
        Err(error) => format!("{REFUSED}{}", error.to_string().replace('\n', " ")),
    }
}

fn tell(stream: OwnedFd, text: &str) {
    let mut stream = UnixStream::from(stream);
    // A client that has gone does not receive it.
    let _ = stream
        .set_nonblocking(false)
        .and_then(|()| stream.write_all(format!("{text}\n").as_bytes()));
}

/// Asks for the volume to be opened for writing. Returns the reason of a refusal, or `None` if the
/// volume can be written to now.
pub(crate) fn ask(mount: &Mount) -> Result<Option<String>, AskError> {
    let (_, answer) = client::exchange(socket::connect(mount)?, WRITE, Instant::now() + TIMEOUT)?;
    if answer == WRITES.as_bytes() {
        return Ok(None);
    }
    match answer.strip_prefix(REFUSED.as_bytes()) {
        Some(why) => Ok(Some(escape(why).into_owned())),
        None => Err(AskError::Answer(
            String::from_utf8_lossy(&answer).into_owned(),
        )),
    }
}
