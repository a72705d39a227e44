//! `/dev/fuse`: each request is one read, each answer one write.
//!
//! One thread a CPU, each with a channel of its own (`FUSE_DEV_IOC_CLONE`), so that answers do not meet at one lock in the kernel. What
//! waits for the device, such as `fsync`, goes to further threads, so that others' requests do not wait for it.

use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use extern4_sync::primitive::thread;
use extern4_vfs::Errno;
use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes as _;

use crate::abi::{InHeader, Opcode, OutHeader, WriteIn};
use crate::init::MAX_DATA_BYTES;
use crate::reply::Answer;
use crate::request::Request;
use crate::server::Server;
use crate::transport::clone::clone_channel;
use crate::transport::waiters::Waiters;

/// Room for a request: that which writes most, and what may be appended to it.
const REQUEST_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>() + MAX_DATA_BYTES + 4096;
/// Room for an answer.
const ANSWER_BYTES: usize = size_of::<OutHeader>() + MAX_DATA_BYTES + 4096;

/// Room for an answer that says no more than that something is done.
const SHORT_ANSWER_BYTES: usize = 64;

/// Answers what comes through `device`, which is mounted, until it is unmounted. `ready` is called when the kernel can use it.
///
/// # Errors
/// What ends it but the end of the mount. Requests that are then under way are answered.
pub fn serve(server: &Arc<Server>, device: OwnedFd, ready: impl FnOnce()) -> io::Result<()> {
    let first = Arc::new(device);
    let mut channel = Channel::new(Arc::clone(&first));
    // INIT comes first, and alone.
    let alive = channel.step(server, None)?;
    ready();
    if !alive {
        return Ok(());
    }
    let waiters = Waiters::default();
    let workers = match server.config().workers {
        0 => thread::available_parallelism().map_or(1, NonZero::get),
        workers => workers,
    };
    let result = thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 1..workers {
            let own = clone_channel(&first).map_or_else(|_| Arc::clone(&first), Arc::new);
            let waiters = &waiters;
            threads.push(scope.spawn(move || Channel::new(own).run(server, waiters)));
        }
        let mut result = channel.run(server, &waiters);
        for thread in threads {
            let other = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")));
            result = result.and(other);
        }
        result
    });
    waiters.finish();
    result
}

/// A way to the kernel, and room for what goes through it.
struct Channel {
    device: Arc<OwnedFd>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Channel {
    fn new(device: Arc<OwnedFd>) -> Self {
        Self { device, request: vec![0; REQUEST_BYTES], answer: vec![0; ANSWER_BYTES] }
    }

    fn run(&mut self, server: &Arc<Server>, waiters: &Waiters) -> io::Result<()> {
        while self.step(server, Some(waiters))? {}
        Ok(())
    }

    /// Answers one request. False once the mount is no more.
    fn step(&mut self, server: &Arc<Server>, waiters: Option<&Waiters>) -> io::Result<bool> {
        let len = match rustix::io::read(&*self.device, &mut self.request[..]) {
            Ok(len) => len,
            // One that was taken back before it was read.
            Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => return Ok(true),
            Err(OsErrno::NODEV | OsErrno::CONNABORTED) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Some(request) = Request::parse(&self.request[..len]) else { return Ok(true) };
        if let Some(waiters) = waiters
            && waits(request.header.opcode)
        {
            let (server, device) = (Arc::clone(server), Arc::clone(&self.device));
            let bytes = self.request[..len].to_vec();
            waiters.hand_over(Box::new(move || {
                let request = Request::parse(&bytes).expect("it was parsed before");
                respond(&server, &device, &request, &mut [0; SHORT_ANSWER_BYTES]);
            }));
            return Ok(true);
        }
        respond(server, &self.device, &request, &mut self.answer);
        Ok(true)
    }
}

/// Answers a request. Whether anybody takes the answer is not ours to know.
fn respond(server: &Server, device: &OwnedFd, request: &Request<'_>, answer: &mut [u8]) {
    const HEADER: usize = size_of::<OutHeader>();
    let (error, body) = match server.answer(request, &mut answer[HEADER..]) {
        Answer::None => return,
        Answer::Error(errno) => (errno, 0),
        Answer::Body(len) => (Errno::from_raw(0), len),
    };
    let len = u32::try_from(HEADER + body).expect("no longer than there is room");
    let header = OutHeader { len, error: -i32::from(error.raw()), unique: request.header.unique };
    answer[..HEADER].copy_from_slice(header.as_bytes());
    match rustix::io::write(device, &answer[..HEADER + body]) {
        // Nobody waits for it any more; or the mount has gone, which the next read tells.
        Ok(_) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED | OsErrno::NOTCONN) => {}
        Err(error) => {
            server.log(&format!("an answer to opcode {} was not taken: {error}", request.header.opcode));
        }
    }
}

/// It may wait for the device for long.
fn waits(opcode: u32) -> bool {
    matches!(
        Opcode::from_raw(opcode),
        Some(
            Opcode::Fsync
                | Opcode::Fsyncdir
                | Opcode::Syncfs
                | Opcode::CopyFileRange
                | Opcode::CopyFileRange64
        )
    )
}
