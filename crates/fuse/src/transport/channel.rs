//! `/dev/fuse`: each request is one read, each answer one write.
//!
//! One thread a CPU serves, each with its own channel (`FUSE_DEV_IOC_CLONE`), so that answers
//! do not meet at one lock in the kernel. Requests that wait for the device, such as `fsync`, go to
//! further threads, so that other requests do not wait for them.
//!
//! `transport` starts these threads, and `pollers` decides which of them wait in the kernel. They
//! end when the mount ends. Every request that a thread has read is answered first.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extern4_sync::biased_rwlock::BiasedReadGuard;
use extern4_sync::primitive::{Mutex, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes as _;

use super::clone::clone_channel;
use super::cpu_sharing::CpuSharing;
use super::cpus::run_on;
use super::pipe::Pipe;
use super::pollers::{Next, Pollers};
use super::{
    BUSY, BlockingPool, POLL_TIME, SHORT_ANSWER_BYTES, Start, Worker, answer, named, waits,
};
use crate::abi::{InHeader, Opcode, OutHeader, WriteIn};
use crate::forgets::Drain;
use crate::init::MAX_DATA_BYTES;
use crate::lock::lock;
use crate::reply::Outlet;
use crate::request::Request;
use crate::server::{Server, has_no_reply};

/// Room for a request: the largest write, and what the kernel may append to it.
const REQUEST_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>() + MAX_DATA_BYTES + 4096;
/// Room for an answer.
const ANSWER_BYTES: usize = HEADER_BYTES + MAX_DATA_BYTES + 4096;
const HEADER_BYTES: usize = size_of::<OutHeader>();

/// The pause in which FORGETs collect. It is so long that a program that removes many files rarely
/// has to wake the thread. It is so short that users do not notice when the room of a removed file
/// becomes free.
const NAP: Duration = Duration::from_micros(500);

/// Makes the server read the kernel's FORGETs through its own channel, which never blocks.
/// Where there are no rings, other requests come there, too. Other threads answer those: the thread
/// that reads the FORGETs already has a request to answer.
pub(super) fn read_forgets_through(
    server: &Arc<Server>,
    device: &Arc<OwnedFd>,
    pool: &Arc<BlockingPool>,
) -> io::Result<()> {
    let channel = Channel::separate(device)?;
    let channel = Mutex::new(channel);
    let pool = Arc::clone(pool);
    let us = Arc::downgrade(server);
    server.forgets.set_reader(move |drain| {
        if let Some(server) = us.upgrade() {
            lock(&channel).drain(&server, &pool, drain);
        }
    });
    Ok(())
}

/// A channel to the kernel, and room for its requests and answers.
pub(super) struct Channel {
    device: Arc<OwnedFd>,
    request: Vec<u8>,
    answer: Vec<u8>,
    pipe: Pipe,
    /// How long the thread polls for the next request before it sleeps.
    poll_time: Duration,
    sharing: CpuSharing,
}

/// Starts a thread on each CPU, with its own channel, to serve once `start` lets it.
pub(super) fn start<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    server: &Arc<Server>,
    device: &Arc<OwnedFd>,
    pool: &Arc<BlockingPool>,
    start: &'scope Start,
) -> io::Result<Vec<Worker<'scope>>> {
    let pollers = Arc::new(Pollers::new()?);
    let start_one = |cpu| {
        // A lack of memory is an error here, before the mount is served.
        let mut channel =
            Channel::new(clone_channel(device).map_or_else(|_| Arc::clone(device), Arc::new))?;
        let server = Arc::clone(server);
        let pool = Arc::clone(pool);
        let pollers = Arc::clone(&pollers);
        thread::Builder::new().spawn_scoped(scope, move || {
            if !start.wait() {
                return Ok(());
            }
            // Polling threads never sleep, so without this they would collect on one CPU. A caller
            // on another CPU would then find that CPU asleep.
            run_on(cpu);
            channel.run_with_pollers(&server, &pool, &pollers)
        })
    };
    pool.cpus().numbers().into_iter().map(start_one).collect()
}

/// Allocates zeroes that take no memory before they are written to.
fn zeroes(len: usize) -> io::Result<Vec<u8>> {
    // A failed allocation of zeroes ends the process, so this one is tried first.
    Vec::<u8>::new().try_reserve_exact(len)?;
    Ok(vec![0; len])
}

impl Channel {
    /// Opens a channel. Fails if there is no memory for a request and its answer.
    pub(super) fn new(device: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            device,
            request: zeroes(REQUEST_BYTES)?,
            answer: zeroes(ANSWER_BYTES)?,
            pipe: Pipe::default(),
            poll_time: Duration::ZERO,
            sharing: CpuSharing::default(),
        })
    }

    /// Opens one more channel to the mount of `device`. Reads from it never block.
    pub(super) fn separate(device: &OwnedFd) -> io::Result<Self> {
        let channel = Self::new(Arc::new(clone_channel(device)?))?;
        fcntl_setfl(&channel.device, OFlags::NONBLOCK)?;
        Ok(channel)
    }

    /// Reads the kernel's FORGETs, which come only here where there are rings, until the end of the
    /// mount. Also answers any other request that comes here.
    ///
    /// The kernel does not wait for an answer to a FORGET. But the removal of a file would wake
    /// this thread, mostly on another CPU, which takes the caller longer than the rest of the
    /// removal. So this thread sleeps for a moment without waiting for requests, and then reads
    /// many at once.
    pub(super) fn run_for_forgets(
        &mut self,
        server: &Arc<Server>,
        pool: &BlockingPool,
    ) -> io::Result<()> {
        loop {
            match self.receive(server)? {
                Received::Request(found) => {
                    let naps = found.forgetting.is_some();
                    self.respond(server, pool, found);
                    if naps {
                        std::thread::sleep(NAP);
                    }
                }
                Received::Nothing => self.sleep()?,
                Received::End => return Ok(()),
            }
        }
    }

    /// Answers all waiting requests.
    fn drain(&mut self, server: &Arc<Server>, pool: &BlockingPool, drain: Drain) {
        // The threads that serve the channels find and report errors.
        while let Ok(Received::Request(found)) = self.receive(server) {
            if found.forgetting.is_some() {
                self.respond(server, pool, found);
                continue;
            }
            self.answer_later(server, pool, found.len);
            if drain == Drain::UntilRequest {
                return;
            }
        }
    }

    /// Answers requests until the end of the mount, as one of several threads that poll for them.
    fn run_with_pollers(
        &mut self,
        server: &Arc<Server>,
        pool: &BlockingPool,
        pollers: &Pollers,
    ) -> io::Result<()> {
        // This runs on every return.
        let _closes = ClosePollers(pollers);
        fcntl_setfl(&self.device, OFlags::NONBLOCK)?;
        while let Some(found) = self.search(server, pollers)? {
            self.respond(server, pool, found);
        }
        Ok(())
    }

    /// Waits for the first request, and answers it. Returns false if the mount is gone.
    pub(super) fn run_once(&mut self, server: &Server) -> io::Result<bool> {
        loop {
            match self.receive(server)? {
                Received::Request(Found { len, .. }) => {
                    if let Some(request) = Request::parse(&self.request[..len]) {
                        respond(server, &self.device, &request, &mut self.answer, None);
                    }
                    return Ok(true);
                }
                Received::Nothing => {}
                Received::End => return Ok(false),
            }
        }
    }

    /// Sleeps until there may be a request to read.
    fn sleep(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&*self.device, PollFlags::IN)], None) {
            Ok(_) | Err(OsErrno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Searches for a request, with sleep in between if need be; `None` if the mount is gone.
    fn search<'a>(
        &mut self,
        server: &'a Server,
        pollers: &Pollers,
    ) -> io::Result<Option<Found<'a>>> {
        let mut found = pollers.begin();
        let received = loop {
            match self.poll_for_a_moment(server, pollers) {
                Ok(Received::Request(request)) => break Ok(Some(request)),
                Ok(Received::Nothing) => {}
                Ok(Received::End) => break Ok(None),
                Err(error) => break Err(error),
            }
            self.sharing.end(pollers);
            let start = Instant::now();
            let slept = match pollers.found_nothing(&mut found) {
                Next::Poll => Duration::ZERO,
                Next::Sleep => pollers
                    .sleep(self.device.as_fd())
                    .map(|()| start.elapsed())?,
            };
            self.poll_time = if slept < BUSY {
                POLL_TIME
            } else {
                Duration::ZERO
            };
        };
        let found = received.as_ref().ok().and_then(Option::as_ref);
        pollers.end(
            found
                .and_then(|found| found.tid)
                .filter(|_| self.sharing.is_shared()),
        );
        received
    }

    fn poll_for_a_moment<'a>(
        &mut self,
        server: &'a Server,
        pollers: &Pollers,
    ) -> io::Result<Received<'a>> {
        let start = Instant::now();
        loop {
            match self.receive(server)? {
                Received::Nothing if start.elapsed() < self.poll_time => {
                    let device = &self.device;
                    self.sharing.yield_cpu(pollers, || is_readable(device))
                }
                received => return Ok(received),
            }
        }
    }

    /// Reads a request. Between the read of a FORGET and the release of its nodes, no other thread
    /// could know of it. So both happen under the shared lock of
    /// [`Forgets`](crate::forgets::Forgets), as one step for a thread that takes it exclusively.
    fn receive<'a>(&mut self, server: &'a Server) -> io::Result<Received<'a>> {
        let forgetting = server.forgets.handle();
        match rustix::io::read(&*self.device, &mut self.request[..]) {
            Ok(len) => {
                let request = Request::parse(&self.request[..len]);
                let tid = request
                    .as_ref()
                    .filter(|request| !needs_no_answer(request))
                    .map(|request| request.header.pid);
                let forgetting = request
                    .as_ref()
                    .is_some_and(needs_no_answer)
                    .then_some(forgetting);
                Ok(Received::Request(Found {
                    len,
                    tid,
                    forgetting,
                }))
            }
            // The kernel took the request back before the read, or there is none.
            Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => Ok(Received::Nothing),
            Err(OsErrno::NODEV | OsErrno::CONNABORTED) => Ok(Received::End),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers the request that was read, or gives it to a thread that may wait.
    fn respond(&mut self, server: &Arc<Server>, pool: &BlockingPool, found: Found<'_>) {
        // This holds `found` until the answer.
        let len = found.len;
        let Some(request) = Request::parse(&self.request[..len]) else {
            return;
        };
        if !waits(request.header.opcode) {
            respond(
                server,
                &self.device,
                &request,
                &mut self.answer,
                Some(&mut self.pipe),
            );
            return;
        }
        self.answer_later(server, pool, len);
    }

    /// Gives the request that was read to a thread that may wait.
    fn answer_later(&mut self, server: &Arc<Server>, pool: &BlockingPool, len: usize) {
        let server = Arc::clone(server);
        let device = Arc::clone(&self.device);
        let bytes = self.request[..len].to_vec();
        pool.spawn(Box::new(move || {
            let Some(request) = Request::parse(&bytes) else {
                return;
            };
            let room = if waits(request.header.opcode) {
                SHORT_ANSWER_BYTES
            } else {
                ANSWER_BYTES
            };
            respond(&server, &device, &request, &mut vec![0; room], None);
        }));
    }
}

/// Returns whether there is a request to read.
fn is_readable(device: &OwnedFd) -> bool {
    poll(
        &mut [PollFd::new(device, PollFlags::IN)],
        Some(&Timespec::default()),
    )
    .is_ok_and(|ready| ready > 0)
}

/// Returns whether the kernel waits for no answer to this request.
fn needs_no_answer(request: &Request<'_>) -> bool {
    Opcode::from_raw(request.header.opcode).is_some_and(has_no_reply)
}

/// A request that was read.
struct Found<'a> {
    /// The request's length in bytes.
    len: usize,
    /// The id of the thread that waits for the answer.
    tid: Option<u32>,
    /// For a request without an answer, the guard of
    /// [`Forgets::handle`](crate::forgets::Forgets::handle), held until it is handled.
    forgetting: Option<BiasedReadGuard<'a, ()>>,
}

/// The result of a read from a channel.
enum Received<'a> {
    Request(Found<'a>),
    Nothing,
    /// The mount is gone.
    End,
}

/// Lets the other threads end, too.
struct ClosePollers<'a>(&'a Pollers);

impl Drop for ClosePollers<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Sends the answer to a request. The server cannot know whether a program takes the answer.
fn respond(
    server: &Server,
    device: &OwnedFd,
    request: &Request<'_>,
    space: &mut [u8],
    pipe: Option<&mut Pipe>,
) {
    let mut outlet = pipe.map(|pipe| pipe.outlet(device));
    let outlet = outlet.as_mut().map(|outlet| -> &mut dyn Outlet { outlet });
    let Some((header, body)) = answer(server, request, &mut space[HEADER_BYTES..], outlet) else {
        return;
    };
    space[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    match rustix::io::write(device, &space[..HEADER_BYTES + body]) {
        // The caller does not wait any more, or the mount has gone, which the next read reports.
        Ok(_) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED | OsErrno::NOTCONN) => {}
        Err(error) => {
            server.log(&format!(
                "an answer to opcode {} was not taken: {}",
                request.header.opcode,
                named(error)
            ));
        }
    }
}
