//! Transports: they take requests from the kernel and return the answers.
//!
//! The command calls [`serve`], which chooses the transport: rings (`ring`) where kernel and
//! options allow them, otherwise `/dev/fuse` (`channel`). It starts the threads, and returns when
//! the mount has ended and every request that was taken is answered. If a thread cannot be started,
//! none serves and `serve` fails.

mod blocking_pool;
mod channel;
mod clone;
mod cpu_sharing;
mod cpus;
mod pipe;
mod pollers;
mod ring;
mod ring_error;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use extern4_sync::primitive::{Condvar, Mutex, thread};
use extern4_vfs::Errno;
use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes as _;

use crate::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, Opcode, OutHeader};
use crate::lock::lock;
use crate::reply::{Answer, Outlet};
use crate::request::Request;
use crate::server::{Server, Transport};
use blocking_pool::BlockingPool;
use channel::Channel;
use cpus::Cpus;
use ring::Queue;

/// A thread that answers requests.
type Worker<'scope> = thread::ScopedJoinHandle<'scope, io::Result<()>>;

/// How long a thread polls for the next request before it sleeps: a few times the cost of waking.
const POLL_TIME: Duration = Duration::from_micros(100);
/// After a longer sleep than this, a thread does not poll for the next request. So polling in vain
/// takes a tenth of a CPU at most.
const BUSY: Duration = Duration::from_millis(1);
/// Memory that must be free before a mount is served: the stacks of later threads, and the buffers
/// of the requests under way.
const SPARE_BYTES: usize = 16 << 20;

/// Answers the requests from `device`, which is mounted, until it is unmounted. Calls `ready` when
/// the kernel can use it.
///
/// # Errors
/// Too little memory; any failure that ends it, except the end of the mount. Requests that are then
/// under way are answered.
pub fn serve(server: &Arc<Server>, device: OwnedFd, ready: impl FnOnce()) -> io::Result<()> {
    let device = Arc::new(device);
    // Made before kernel and server agree on rings: a container may not be allowed any.
    let max_bytes = server.config().max_ring_bytes;
    let queues = match server.config().transport {
        Transport::Device => None,
        Transport::Auto if ring::are_off() => None,
        Transport::Auto => ring::queues(&device, max_bytes).ok(),
        Transport::Ring => Some(
            ring::queues(&device, max_bytes).map_err(|error| ring_error::explain(Some(&error)))?,
        ),
    };
    server.protocol.set_rings(
        queues
            .as_ref()
            .and_then(|queues| queues.first())
            .map(Queue::request_bytes),
    );
    // INIT comes first, and alone.
    let alive = Channel::new(Arc::clone(&device))?.run_once(server)?;
    let rings = server.transport() == Transport::Ring;
    if server.config().transport == Transport::Ring && !rings {
        return Err(ring_error::explain(None));
    }
    let pool = Arc::new(BlockingPool::new(Cpus::of_this_thread()));
    if alive {
        // Without a further channel, the server may miss the room of a removed file for a moment.
        let _ = channel::read_forgets_through(server, &device, &pool);
        invalidate_through(server, &device);
    }
    let start = Start::default();
    let result = thread::scope(|scope| {
        let gate = CancelStart(&start);
        let mut forgets = None;
        let threads = match (alive, queues.filter(|_| rings)) {
            (false, _) => Vec::new(),
            (true, Some(queues)) => {
                forgets = Some(Channel::separate(&device)?);
                ring::start(scope, queues, server, &pool, &start)?
            }
            (true, None) => channel::start(scope, server, &device, &pool, &start)?,
        };
        check_memory()?;
        gate.0.decide(true);
        ready();
        let mut result = match forgets {
            Some(mut channel) => channel.run_for_forgets(server, &pool),
            None => Ok(()),
        };
        for thread in threads {
            let other = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")));
            result = result.and(other);
        }
        result
    });
    pool.finish();
    result
}

/// Checks that requests can be served: a request whose memory cannot be allocated ends the process.
///
/// # Errors
/// Less than [`SPARE_BYTES`] of memory can be had.
fn check_memory() -> io::Result<()> {
    let mut spare = Vec::<u8>::new();
    let reserved = spare.try_reserve_exact(SPARE_BYTES);
    // Otherwise the compiler may leave out memory that is not used.
    std::hint::black_box(&spare);
    reserved
        .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, "too little memory for a mount"))
}

/// A gate at which threads wait until all have been started, or until one could not be. In the
/// second case they end without having served.
#[derive(Default)]
struct Start {
    decision: Mutex<Option<bool>>,
    decided: Condvar,
}

impl Start {
    /// Waits for the start; returns whether to serve.
    fn wait(&self) -> bool {
        let decision = lock(&self.decision);
        let decided = self
            .decided
            .wait_while(decision, |decision| decision.is_none());
        decided
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .unwrap_or(false)
    }

    /// Makes the threads serve, or end; the first call counts.
    fn decide(&self, decision: bool) {
        lock(&self.decision).get_or_insert(decision);
        self.decided.notify_all();
    }
}

/// On drop, makes the threads end, unless they serve already.
struct CancelStart<'a>(&'a Start);

impl Drop for CancelStart<'_> {
    fn drop(&mut self) {
        self.0.decide(false);
    }
}

/// Makes the server invalidate attributes in the kernel. For that the kernel takes no lock that the
/// caller of the pending request may hold. It marks the attributes as out of date and releases the
/// node, which that caller still uses.
fn invalidate_through(server: &Server, device: &Arc<OwnedFd>) {
    let device = Arc::downgrade(device);
    let invalidate = move |server: &Server, ino| {
        let Some(device) = device.upgrade() else {
            return;
        };
        let changed = NotifyInvalInodeOut {
            ino,
            off: -1,
            len: 0,
        };
        match notify(&device, NOTIFY_INVAL_INODE, &[changed.as_bytes()]) {
            // The kernel has forgotten the node, or the mount has gone.
            Ok(())
            | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED | OsErrno::NOTCONN) => {}
            Err(error) => server.log(&format!(
                "cannot tell the kernel of changed attributes: {}",
                named(error)
            )),
        }
    };
    // There is one for a mount.
    let _ = server.invalidate.set(Box::new(invalidate));
}

/// Sends the kernel a notification.
fn notify(device: &OwnedFd, what: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
    let body = parts.concat();
    let len = u32::try_from(size_of::<OutHeader>() + body.len()).expect("a short message");
    let header = OutHeader {
        len,
        error: what,
        unique: 0,
    };
    rustix::io::write(device, &[header.as_bytes(), &body].concat()).map(drop)
}

/// Answers a request, with the body in `space`; returns the header of the answer, and the length of
/// the body. `None` if the kernel does not wait, or the answer has gone through `outlet`.
fn answer<'a>(
    server: &Server,
    request: &Request<'_>,
    space: &'a mut [u8],
    outlet: Option<&'a mut dyn Outlet>,
) -> Option<(OutHeader, usize)> {
    let (error, body) = match server.answer(request, space, outlet) {
        Answer::None => return None,
        Answer::Error(errno) => (-i32::from(errno.raw()), 0),
        Answer::Body(len) => (0, len),
    };
    let len = u32::try_from(size_of::<OutHeader>() + body).expect("no longer than there is room");
    Some((
        OutHeader {
            len,
            error,
            unique: request.header.unique,
        },
        body,
    ))
}

/// Returns whether a request may wait for the device for long.
fn waits(opcode: u32) -> bool {
    use Opcode as Op;
    let opcode = Opcode::from_raw(opcode);
    matches!(
        opcode,
        Some(
            Op::Fsync
                | Op::Fsyncdir
                | Op::Syncfs
                | Op::CopyFileRange
                | Op::CopyFileRange64
                | Op::Ioctl
                | Op::Bmap
        )
    )
}

/// Room for an answer to a request that [`waits`].
const SHORT_ANSWER_BYTES: usize = 4096;

/// Returns an error of the system without the number that Rust appends to its text.
fn named(error: OsErrno) -> Errno {
    Errno::from_raw(u16::try_from(error.raw_os_error()).unwrap_or_default())
}
