//! Answers requests on sockets, all of them in one thread.
//!
//! The thread waits for all its [`Service`]s and clients at once and never for a single one.
//! Reading and writing do not block, a request is of limited length, and a client has [`TIMEOUT`]
//! for its whole exchange. A service has at most `MAX_CLIENTS` clients at a time. One more replaces
//! the oldest of them, so silent clients keep no others out. A panic in an answer ends that
//! connection only.
//!
//! `control` opens one for each mount.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The time limit for a client, from its connection to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The limit for the number of clients of one service.
const MAX_CLIENTS: usize = 8;
/// The pause after a failure to accept a client or to wait, as where too many files are open.
const PAUSE: Duration = Duration::from_millis(500);

/// A socket on which clients connect.
pub(super) trait Listener: AsFd + Send {
    /// Accepts a client; `None` for one that may not ask.
    fn admit(&self) -> io::Result<Option<Box<dyn Stream>>>;

    /// Makes accepting fail where no client waits, instead of blocking.
    fn never_wait(&self) -> io::Result<()>;
}

impl Listener for TcpListener {
    fn admit(&self) -> io::Result<Option<Box<dyn Stream>>> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(Some(Box::new(stream)))
    }

    fn never_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

/// A connection of any kind.
pub(super) trait Stream: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Stream for T {}

/// A function that returns the answer to a request, and may keep the connection that it came over.
type Answer = Box<dyn Fn(&[u8], BorrowedFd<'_>) -> Vec<u8> + Send>;

/// A listener, and the answers for its clients.
pub(super) struct Service {
    listener: Box<dyn Listener>,
    /// The end of a request.
    end: &'static [u8],
    max_bytes: usize,
    answer: Answer,
    closed_until: Option<Instant>,
}

impl Service {
    /// Makes a service. A request is everything up to `end`. A request that grows longer than
    /// `max_bytes`, or whose client stops sending, goes to `answer` as it is.
    pub(super) fn new(
        listener: impl Listener + 'static,
        end: &'static [u8],
        max_bytes: usize,
        answer: impl Fn(&[u8], BorrowedFd<'_>) -> Vec<u8> + Send + 'static,
    ) -> Self {
        Self {
            listener: Box::new(listener),
            end,
            max_bytes,
            answer: Box::new(answer),
            closed_until: None,
        }
    }

    fn is_open(&self) -> bool {
        self.closed_until
            .is_none_or(|until| until <= Instant::now())
    }

    /// Accepts a client.
    fn admit(&mut self) -> Option<Box<dyn Stream>> {
        match self.listener.admit() {
            Ok(stream) => stream,
            // The client has gone again.
            Err(error)
                if is_for_now(&error) || error.kind() == io::ErrorKind::ConnectionAborted =>
            {
                None
            }
            Err(_) => {
                self.closed_until = Some(Instant::now() + PAUSE);
                None
            }
        }
    }
}

/// A client that is being served.
struct Client {
    /// The index of its service.
    service: usize,
    stream: Box<dyn Stream>,
    request: Vec<u8>,
    answer: Option<Vec<u8>>,
    sent: usize,
    until: Instant,
}

/// Answers until it is dropped.
pub(super) struct Responder {
    /// The thread ends when it sees at the other end that this one is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Starts the thread of the responder.
    pub(super) fn open(services: Vec<Service>) -> io::Result<Self> {
        for service in &services {
            service.listener.never_wait()?;
        }
        let (stop, stopped) = UnixStream::pair()?;
        let mut state = State {
            services,
            clients: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || state.serve(&stopped))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct State {
    services: Vec<Service>,
    clients: Vec<Client>,
}

impl State {
    fn serve(&mut self, stop: &UnixStream) {
        loop {
            let (stopped, knocking, ready) = match self.wait(stop) {
                Ok(what) => what,
                Err(error) if is_for_now(&error) => continue,
                Err(_) => {
                    // This fails only if the kernel is out of memory.
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if stopped {
                return;
            }
            let mut ready = ready.into_iter();
            let now = Instant::now();
            let services = &self.services;
            self.clients.retain_mut(|client| {
                let goes_on =
                    !ready.next().unwrap_or(false) || client.step(&services[client.service]);
                goes_on && client.until > now
            });
            for (service, knocks) in knocking.into_iter().enumerate() {
                if knocks {
                    self.admit(service);
                }
            }
        }
    }

    /// Waits until something is to be done. Returns whether the thread is to stop, which services
    /// have a client to accept, and which clients are ready.
    fn wait(&self, stop: &UnixStream) -> io::Result<(bool, Vec<bool>, Vec<bool>)> {
        let mut files = vec![PollFd::new(stop, PollFlags::IN)];
        for service in &self.services {
            let wanted = if service.is_open() {
                PollFlags::IN
            } else {
                PollFlags::empty()
            };
            files.push(PollFd::from_borrowed_fd(service.listener.as_fd(), wanted));
        }
        for client in &self.clients {
            let wanted = if client.answer.is_some() {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            files.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
        }
        let closed = self
            .services
            .iter()
            .filter(|service| !service.is_open())
            .map(|_| PAUSE);
        let left = self
            .clients
            .iter()
            .map(|client| client.until.saturating_duration_since(Instant::now()));
        let timeout = left.chain(closed).min().map(timespec);
        poll(&mut files, timeout.as_ref())?;
        let mut ready = files.iter().map(|file| !file.revents().is_empty());
        let stopped = ready.next().unwrap_or(false);
        let knocking = ready.by_ref().take(self.services.len()).collect();
        Ok((stopped, knocking, ready.collect()))
    }

    fn admit(&mut self, service: usize) {
        let Some(stream) = self.services[service].admit() else {
            return;
        };
        let here = |client: &&Client| client.service == service;
        if self.clients.iter().filter(here).count() >= MAX_CLIENTS
            && let Some(oldest) = self
                .clients
                .iter()
                .position(|client| client.service == service)
        {
            self.clients.remove(oldest);
        }
        let until = Instant::now() + TIMEOUT;
        self.clients.push(Client {
            service,
            stream,
            request: Vec::new(),
            answer: None,
            sent: 0,
            until,
        });
    }
}

impl Client {
    /// Reads or writes as much as possible. Returns false once the client is done.
    fn step(&mut self, service: &Service) -> bool {
        if self.answer.is_none() {
            match self.listen(service) {
                Ok(false) => return true,
                Ok(true) => {
                    let answer = catch_unwind(AssertUnwindSafe(|| {
                        (service.answer)(&self.request, self.stream.as_fd())
                    }));
                    let Ok(answer) = answer else {
                        tracing::error!("a question about the mount met a fault in the program");
                        return false;
                    };
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

    /// Reads the available bytes. Returns true when they complete a request.
    fn listen(&mut self, service: &Service) -> io::Result<bool> {
        let mut space = [0; 512];
        let len = self.stream.read(&mut space)?;
        // The end of a request may arrive in two parts.
        let seen = self.request.len().saturating_sub(service.end.len());
        self.request.extend_from_slice(&space[..len]);
        let mut parts = self.request[seen..].windows(service.end.len());
        if let Some(end) = parts.position(|part| part == service.end) {
            self.request.truncate(seen + end + service.end.len());
            return Ok(true);
        }
        Ok(len == 0 || self.request.len() > service.max_bytes)
    }

    /// Writes as much as possible. Returns true when the whole answer is written.
    fn speak(&mut self) -> io::Result<bool> {
        let answer = self.answer.as_deref().unwrap_or_default();
        while self.sent < answer.len() {
            self.sent += match self.stream.write(&answer[self.sent..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => len,
            };
        }
        Ok(true)
    }
}

/// Returns whether the same call may succeed later.
fn is_for_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Converts a duration. It is rounded up, so that the deadline has passed after the wait.
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

    /// Starts a responder that answers a request with its length and a lot of text.
    fn responder() -> (Responder, PathBuf, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let answer = |request: &[u8], _: BorrowedFd<'_>| {
            assert!(request != b"panic\n", "a planted fault");
            let mut text = format!("{}\n", request.len()).into_bytes();
            text.resize(1 << 20, b'x');
            text
        };
        let listener = UnixListener::bind(&path).expect("a socket");
        let service = Service::new(listener, b"\n", 100, answer);
        (Responder::open(vec![service]).expect("a thread"), path, dir)
    }

    fn ask(path: &PathBuf, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).expect("it listens");
        stream.write_all(request).expect("it is heard");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn requests_are_answered_however_they_come() {
        let (_responder, path, _dir) = responder();
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
        // A client that shuts down its sending side has asked.
        let mut half = UnixStream::connect(&path).expect("it listens");
        half.write_all(b"half").expect("it is heard");
        half.shutdown(std::net::Shutdown::Write)
            .expect("a half-closed socket");
        let mut text = String::new();
        half.read_to_string(&mut text).expect("it answers");
        assert!(text.starts_with("4\n"));
    }

    #[test]
    fn an_idle_client_keeps_no_other_out() {
        let (_responder, path, _dir) = responder();
        // The clients send nothing, or half a request, or do not read their answer.
        let connect = |_| UnixStream::connect(&path).expect("it listens");
        let mut idle: Vec<_> = (0..100).map(connect).collect();
        for (at, stream) in idle.iter_mut().enumerate() {
            // Disconnected clients cannot write.
            let _ = stream.write_all([&b""[..], b"ha", b"request\n"][at % 3]);
        }
        assert_eq!(ask(&path, b"hello\n"), "6");
        drop(idle);
        assert_eq!(ask(&path, b"hello\n"), "6");
    }

    #[test]
    fn a_fault_in_an_answer_ends_one_connection() {
        let (_responder, path, _dir) = responder();
        assert_eq!(ask(&path, b"panic\n"), "");
        assert_eq!(ask(&path, b"hello\n"), "6");
    }

    /// The limit is on a client's whole time, not on that between two bytes of its request.
    #[test]
    fn a_slow_client_is_disconnected() {
        let (_responder, path, _dir) = responder();
        let mut slow = UnixStream::connect(&path).expect("it listens");
        let start = Instant::now();
        while slow.write_all(b"x").is_ok() {
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "it may go on for ever"
            );
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(ask(&path, b"hello\n"), "6");
    }

    #[test]
    fn it_stops_whoever_is_there() {
        let (responder, path, _dir) = responder();
        let mut waiting = UnixStream::connect(&path).expect("it listens");
        waiting
            .write_all(b"no answer is taken\n")
            .expect("it is heard");
        drop(responder);
        assert!(UnixStream::connect(&path).is_err());
    }
}
