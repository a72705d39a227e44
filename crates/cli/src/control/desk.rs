//! The desk where questions are answered: one thread, whatever comes.
//!
//! It waits for all its [`Counter`]s and guests at once and never for one of them: reading and writing do not block, a question is of
//! limited length, and a guest has [`PATIENCE`] for all of it. Of a counter so many may be served at a time; one more takes the
//! place of the one who has been there longest, so those who only stand there keep nobody out. A fault in an answer is the end of
//! that guest only.

use std::any::Any;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a guest may take from when he comes until he has his answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Guests at one counter.
const MAX_GUESTS: usize = 8;
/// How long nobody is let in after that has failed, as it does where too many files are open.
const PAUSE: Duration = Duration::from_millis(500);

/// Where guests come in.
pub(super) trait Guest: AsFd + Send {
    /// The connection with one.
    type Stream: Read + Write + AsFd + Send + 'static;

    /// Lets one in; `None` for who may not come in.
    fn admit(&self) -> io::Result<Option<Self::Stream>>;

    /// From now on, letting in fails where nobody waits.
    fn never_wait(&self) -> io::Result<()>;
}

impl Guest for TcpListener {
    type Stream = TcpStream;

    fn admit(&self) -> io::Result<Option<TcpStream>> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(Some(stream))
    }

    fn never_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

/// A connection of any kind.
trait Stream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Stream for T {}

/// Gives the answer to a question.
type Answer = Box<dyn Fn(&[u8]) -> Vec<u8> + Send>;

/// What listens, and what is answered there.
pub(super) struct Counter {
    door: Box<dyn Door>,
    /// What a question ends with.
    end: &'static [u8],
    max_bytes: usize,
    answer: Answer,
    closed_until: Option<Instant>,
}

/// A [`Guest`] of any kind.
trait Door: Send {
    fn fd(&self) -> BorrowedFd<'_>;
    fn admit(&self) -> io::Result<Option<Box<dyn Stream>>>;
    fn never_wait(&self) -> io::Result<()>;
}

impl<T: Guest> Door for T {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn admit(&self) -> io::Result<Option<Box<dyn Stream>>> {
        Ok(Guest::admit(self)?.map(|stream| Box::new(stream) as Box<dyn Stream>))
    }

    fn never_wait(&self) -> io::Result<()> {
        Guest::never_wait(self)
    }
}

impl Counter {
    /// A question is everything up to `end`, or what came of it when it got too long or nothing more came.
    pub(super) fn new(
        door: impl Guest + 'static,
        end: &'static [u8],
        max_bytes: usize,
        answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Self {
        Self { door: Box::new(door), end, max_bytes, answer: Box::new(answer), closed_until: None }
    }

    fn is_open(&self) -> bool {
        self.closed_until.is_none_or(|until| until <= Instant::now())
    }

    /// Lets one in.
    fn admit(&mut self) -> Option<Box<dyn Stream>> {
        match self.door.admit() {
            Ok(guest) => guest,
            // He has gone again.
            Err(error) if is_for_now(&error) || error.kind() == io::ErrorKind::ConnectionAborted => None,
            Err(_) => {
                self.closed_until = Some(Instant::now() + PAUSE);
                None
            }
        }
    }
}

/// Somebody who is being served.
struct Visit {
    /// At which counter.
    counter: usize,
    stream: Box<dyn Stream>,
    question: Vec<u8>,
    answer: Option<Vec<u8>>,
    sent: usize,
    until: Instant,
}

/// Answers until it is dropped.
pub(super) struct Desk {
    /// The thread ends when this is closed, which it sees at the other end.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    /// Starts its thread.
    pub(super) fn open(counters: Vec<Counter>) -> io::Result<Self> {
        for counter in &counters {
            counter.door.never_wait()?;
        }
        let (stop, stopped) = UnixStream::pair()?;
        let mut room = Room { counters, visits: Vec::new() };
        let thread = thread::Builder::new().name("control".to_owned()).spawn(move || room.serve(&stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has before it.
struct Room {
    counters: Vec<Counter>,
    visits: Vec<Visit>,
}

impl Room {
    fn serve(&mut self, stop: &UnixStream) {
        loop {
            let (stopped, knocking, ready) = match self.wait(stop) {
                Ok(what) => what,
                Err(error) if is_for_now(&error) => continue,
                Err(_) => {
                    // Out of memory, at most.
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if stopped {
                return;
            }
            let mut ready = ready.into_iter();
            let now = Instant::now();
            let counters = &self.counters;
            self.visits.retain_mut(|visit| {
                let goes_on = !ready.next().unwrap_or(false) || visit.step(&counters[visit.counter]);
                goes_on && visit.until > now
            });
            for (counter, knocks) in knocking.into_iter().enumerate() {
                if knocks {
                    self.admit(counter);
                }
            }
        }
    }

    /// Waits until something is to be done: whether it is to stop, and at which counters and for which visits.
    fn wait(&self, stop: &UnixStream) -> io::Result<(bool, Vec<bool>, Vec<bool>)> {
        let mut files = vec![PollFd::new(stop, PollFlags::IN)];
        for counter in &self.counters {
            let wanted = if counter.is_open() { PollFlags::IN } else { PollFlags::empty() };
            files.push(PollFd::from_borrowed_fd(counter.door.fd(), wanted));
        }
        for visit in &self.visits {
            let wanted = if visit.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            files.push(PollFd::from_borrowed_fd(visit.stream.as_fd(), wanted));
        }
        let closed = self.counters.iter().filter(|counter| !counter.is_open()).map(|_| PAUSE);
        let left = self.visits.iter().map(|visit| visit.until.saturating_duration_since(Instant::now()));
        let timeout = left.chain(closed).min().map(timespec);
        poll(&mut files, timeout.as_ref())?;
        let mut ready = files.iter().map(|file| !file.revents().is_empty());
        let stopped = ready.next().unwrap_or(false);
        let knocking = ready.by_ref().take(self.counters.len()).collect();
        Ok((stopped, knocking, ready.collect()))
    }

    fn admit(&mut self, counter: usize) {
        let Some(stream) = self.counters[counter].admit() else { return };
        let here = |visit: &&Visit| visit.counter == counter;
        if self.visits.iter().filter(here).count() >= MAX_GUESTS
            && let Some(oldest) = self.visits.iter().position(|visit| visit.counter == counter)
        {
            self.visits.remove(oldest);
        }
        let until = Instant::now() + PATIENCE;
        self.visits.push(Visit { counter, stream, question: Vec::new(), answer: None, sent: 0, until });
    }
}

impl Visit {
    /// Reads or writes what is possible. False once the visit is over.
    fn step(&mut self, counter: &Counter) -> bool {
        if self.answer.is_none() {
            match self.listen(counter) {
                Ok(false) => return true,
                Ok(true) => {
                    let answer = catch_unwind(AssertUnwindSafe(|| (counter.answer)(&self.question)));
                    let Ok(answer) = answer.map_err(|_: Box<dyn Any + Send>| ()) else { return false };
                    self.answer = Some(answer);
                }
                Err(error) => return is_for_now(&error),
            }
        }
        match self.speak() {
            Ok(done) => !done,
            Err(error) => is_for_now(&error),
        }
    }

    /// Reads what is there; true when that is a question.
    fn listen(&mut self, counter: &Counter) -> io::Result<bool> {
        let mut space = [0; 512];
        let len = self.stream.read(&mut space)?;
        // An end may come in two parts.
        let seen = self.question.len().saturating_sub(counter.end.len());
        self.question.extend_from_slice(&space[..len]);
        let mut parts = self.question[seen..].windows(counter.end.len());
        if let Some(end) = parts.position(|part| part == counter.end) {
            self.question.truncate(seen + end + counter.end.len());
            return Ok(true);
        }
        Ok(len == 0 || self.question.len() > counter.max_bytes)
    }

    /// Writes what can be written; true when that is all.
    fn speak(&mut self) -> io::Result<bool> {
        let answer = self.answer.as_deref().unwrap_or_default();
        while self.sent < answer.len() {
            self.sent += self.stream.write(&answer[self.sent..])?;
        }
        Ok(true)
    }
}

/// It may work later.
fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Rounded up, so that what is waited for has come.
fn timespec(duration: Duration) -> Timespec {
    let duration = duration + Duration::from_millis(1);
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    /// A desk that answers a question by its length and a lot of text.
    fn desk() -> (Desk, PathBuf, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let answer = |question: &[u8]| {
            assert!(question != b"panic\n", "a planted fault");
            let mut text = format!("{}\n", question.len()).into_bytes();
            text.resize(1 << 20, b'x');
            text
        };
        let listener = UnixListener::bind(&path).expect("a socket");
        let counter = Counter::new(listener, b"\n", 100, answer);
        (Desk::open(vec![counter]).expect("a thread"), path, dir)
    }

    fn ask(path: &PathBuf, question: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(question).expect("it is heard");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn questions_are_answered_however_they_come() {
        let (_desk, path, _dir) = desk();
        assert_eq!(ask(&path, b"hello\nand more"), "6");
        assert_eq!(ask(&path, &[b'x'; 5000][..101]), "101");
        let mut slow = UnixStream::connect(&path).expect("it listens");
        for byte in b"slow\n" {
            slow.write_all(&[*byte]).expect("it is heard");
            thread::sleep(Duration::from_millis(5));
            assert_eq!(ask(&path, b"quick\n"), "6");
        }
        let mut text = String::new();
        slow.read_to_string(&mut text).expect("it answers");
        assert!(text.starts_with("5\n") && text.len() == 1 << 20);
        // Who says no more has asked.
        let mut half = UnixStream::connect(&path).expect("it listens");
        half.write_all(b"half").expect("it is heard");
        half.shutdown(std::net::Shutdown::Write).expect("a half-closed socket");
        let mut text = String::new();
        half.read_to_string(&mut text).expect("it answers");
        assert!(text.starts_with("4\n"));
    }

    #[test]
    fn who_only_stands_there_keeps_nobody_out() {
        let (_desk, path, _dir) = desk();
        // They say nothing, or half a question, or do not take their answer.
        let connect = |_| UnixStream::connect(&path).expect("it listens");
        let mut idle: Vec<_> = (0..100).map(connect).collect();
        for (at, stream) in idle.iter_mut().enumerate() {
            // Those who were sent away cannot.
            let _ = stream.write_all([&b""[..], b"ha", b"question\n"][at % 3]);
        }
        assert_eq!(ask(&path, b"hello\n"), "6");
        drop(idle);
        assert_eq!(ask(&path, b"hello\n"), "6");
    }

    #[test]
    fn a_fault_in_an_answer_ends_one_visit() {
        let (_desk, path, _dir) = desk();
        assert_eq!(ask(&path, b"panic\n"), "");
        assert_eq!(ask(&path, b"hello\n"), "6");
    }

    #[test]
    fn it_stops_whoever_is_there() {
        let (desk, path, _dir) = desk();
        let mut waiting = UnixStream::connect(&path).expect("it listens");
        waiting.write_all(b"no answer is taken\n").expect("it is heard");
        drop(desk);
        assert!(UnixStream::connect(&path).is_err());
    }
}
