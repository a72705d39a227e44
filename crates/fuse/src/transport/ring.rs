//! FUSE over `io_uring`: a queue a CPU, served by a thread on that CPU.
//!
//! `transport` starts these threads where the kernel offers rings (Linux 6.14 and later, if
//! enabled). FORGETs do not come through rings, so one thread reads them from `/dev/fuse`.
//!
//! The kernel puts a request into memory that the server has given it, and reports it as a
//! completion. The server puts the answer in the same place. One system call hands the answer over
//! and waits for the next request. A caller sleeps on the CPU that makes its answer, so no thread
//! on another CPU has to be woken.
//!
//! The reader of a long file does not sleep: the kernel reads ahead, and the reader has its CPU
//! while another one copies ([`Placement`]). The layout is that of the kernel's document on FUSE
//! over io_uring and of `linux/fuse.h`.
//!
//! ```text
//! thread of CPU n          kernel
//!   REGISTER entry  ─────▶  queue n: an entry is free
//!   completion      ◀─────  a request of a program on CPU n
//!   COMMIT_AND_FETCH ────▶  the answer; the entry is free again
//! ```
//!
//! An entry's memory belongs to the kernel from its hand-over until its completion comes. It then
//! belongs to the server until the next hand-over ([`Slot`]). Further threads answer requests that
//! wait for the device, from a copy of the request. They leave the answer and wake the thread of
//! the queue, which hands it over.

mod placement;
mod slot;

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extern4_sync::primitive::{Mutex, thread};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno as OsErrno;
use rustix::thread::sched_yield;
use zerocopy::IntoBytes as _;

use self::placement::{Cpu, Placement};
use self::slot::{Slot, answer_parts, push_poll};
use super::cpus::{listed, run_on};
use super::{BUSY, BlockingPool, POLL_TIME, SHORT_ANSWER_BYTES, Start, Worker, named, waits};
use crate::abi::{OutHeader, RING_COMMIT_AND_FETCH, RING_REGISTER};
use crate::init::{MAX_DATA_BYTES, PAGE_BYTES};
use crate::lock::lock;
use crate::server::Server;

/// Requests that one CPU may have under way.
const DEPTH: usize = 8;
/// The least that one request carries, if memory is short.
const LEAST_BYTES: usize = 128 << 10;
/// The name of the wake-up's completion.
const WAKE: u64 = u64::MAX;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// Returns whether the kernel offers no rings for FUSE, as it does by default. Then the server need
/// not make any.
pub(super) fn are_off() -> bool {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    std::fs::read(SWITCH).is_ok_and(|switch| switch.trim_ascii() == b"N")
}

/// Makes a queue for each possible CPU: the kernel uses none before it has all. The requests of the
/// present CPUs take `max_bytes` of memory together, unless that is too little to work with.
pub(super) fn queues(device: &Arc<OwnedFd>, max_bytes: usize) -> io::Result<Vec<Queue>> {
    let bytes = request_bytes(max_bytes, listed("online")?.len());
    let last = listed("possible")?
        .into_iter()
        .max()
        .ok_or(io::ErrorKind::InvalidData)?;
    (0..=last)
        .map(|number| Queue::new(number, device, bytes))
        .collect()
}

/// Returns how much one request carries, with `cpus` CPUs. Memory that is never written takes no
/// room; but programs that read long files on all CPUs make the server write all of it.
fn request_bytes(max_bytes: usize, cpus: usize) -> usize {
    let share = max_bytes / DEPTH / cpus.max(1);
    share.clamp(LEAST_BYTES, MAX_DATA_BYTES) / PAGE_BYTES * PAGE_BYTES
}

/// Starts a thread for each queue, to serve once `start` lets it.
pub(super) fn start<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    queues: Vec<Queue>,
    server: &Arc<Server>,
    pool: &Arc<BlockingPool>,
    start: &'scope Start,
) -> io::Result<Vec<Worker<'scope>>> {
    let start_one = |mut queue: Queue| {
        let server = Arc::clone(server);
        let pool = Arc::clone(pool);
        let run = move || {
            if start.wait() {
                queue.run(&server, &pool)
            } else {
                Ok(())
            }
        };
        thread::Builder::new().spawn_scoped(scope, run)
    };
    queues.into_iter().map(start_one).collect()
}

/// The queue of a CPU.
pub(super) struct Queue {
    number: u16,
    device: Arc<OwnedFd>,
    ring: Ring,
    slots: Vec<Slot>,
    /// Slots that the kernel has, or that a thread of the blocking pool answers.
    away: usize,
    late: Arc<Late>,
    /// How long the thread polls for the next request before it sleeps.
    poll_time: Duration,
    placement: Placement,
}

/// Answers of other threads, and the event that wakes the queue's thread.
struct Late {
    answers: Mutex<Vec<(usize, OutHeader, Vec<u8>)>>,
    wake: OwnedFd,
}

impl Queue {
    fn new(number: u16, device: &Arc<OwnedFd>, request_bytes: usize) -> io::Result<Self> {
        let entries = u32::try_from(DEPTH * 2).expect("a small number");
        // Only the thread that serves it submits, and completions come when it returns from the
        // kernel anyway.
        let ring = Ring::builder()
            .setup_coop_taskrun()
            .setup_single_issuer()
            .setup_r_disabled()
            .build(entries)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let late = Arc::new(Late {
            answers: Mutex::default(),
            wake,
        });
        let slots = (0..DEPTH)
            .map(|_| Slot::new(request_bytes))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            number,
            device: Arc::clone(device),
            ring,
            slots,
            away: 0,
            late,
            poll_time: Duration::ZERO,
            placement: Placement::default(),
        })
    }

    /// Returns how much one request carries.
    pub(super) fn request_bytes(&self) -> usize {
        self.slots[0].payload_bytes()
    }

    /// Answers requests until the end of the mount.
    fn run(&mut self, server: &Arc<Server>, pool: &BlockingPool) -> io::Result<()> {
        run_on(self.number.into());
        // The ring is this thread's from now on.
        self.ring.submitter().register_enable_rings()?;
        self.listen()?;
        for index in 0..self.slots.len() {
            self.hand_over(index, RING_REGISTER)?;
        }
        let mut done = Vec::new();
        while self.away > 0 {
            match self.wait() {
                Ok(()) => {}
                Err(error) if is_transient(&error) => {
                    sched_yield();
                    continue;
                }
                Err(error) => return Err(error),
            }
            done.extend(
                self.ring
                    .completion()
                    .map(|entry| (entry.user_data(), entry.result())),
            );
            for (name, result) in done.drain(..) {
                match usize::try_from(name) {
                    Ok(index) if index < self.slots.len() => {
                        self.complete(server, pool, index, result)?
                    }
                    _ => self.woken()?,
                }
            }
        }
        Ok(())
    }

    /// Hands over all answers, and waits for a completion.
    ///
    /// A caller that gets an answer mostly sends its next request at once. In a virtual machine, a
    /// CPU that has gone to sleep meanwhile takes longer to wake than the request itself. So after
    /// a request, the thread polls for the next one for a moment. It yields its CPU after each
    /// poll. Where requests are seldom it sleeps at once.
    fn wait(&mut self) -> io::Result<()> {
        if !self.poll_time.is_zero() {
            self.ring.submit()?;
            // The caller that the answer woke may have sent its next request before the system call
            // returned.
            if !self.ring.completion().is_empty() {
                return Ok(());
            }
        }
        let start = Instant::now();
        while start.elapsed() < self.poll_time {
            sched_yield();
            if !self.ring.completion().is_empty() {
                return Ok(());
            }
        }
        self.ring.submit_and_wait(1)?;
        self.poll_time = if start.elapsed() < BUSY {
            POLL_TIME
        } else {
            Duration::ZERO
        };
        Ok(())
    }

    /// Handles the completion of a slot.
    fn complete(
        &mut self,
        server: &Arc<Server>,
        pool: &BlockingPool,
        index: usize,
        result: i32,
    ) -> io::Result<()> {
        self.slots[index].come_back();
        self.away -= 1;
        if result < 0 {
            let error = OsErrno::from_raw_os_error(-result);
            // The end of the mount. A slot whose answer was not taken gets no further request.
            if !matches!(
                error,
                OsErrno::NOTCONN | OsErrno::CANCELED | OsErrno::CONNABORTED
            ) {
                server.log(&format!(
                    "a place of queue {} is lost: {}",
                    self.number,
                    named(error)
                ));
            }
            return Ok(());
        }
        let request = self.slots[index].request();
        if waits(request.header.opcode) {
            self.answer_later(server, pool, index);
            return Ok(());
        }
        let next = self.placement.after(request);
        self.slots[index].answer(server);
        self.hand_over(index, RING_COMMIT_AND_FETCH)?;
        match next {
            Some(Cpu::Own) => run_on(self.number.into()),
            Some(Cpu::Any) => pool.cpus().run_on_any(),
            None => {}
        }
        Ok(())
    }

    fn answer_later(&mut self, server: &Arc<Server>, pool: &BlockingPool, index: usize) {
        let server = Arc::clone(server);
        let late = Arc::clone(&self.late);
        let (parts, payload) = self.slots[index].copy();
        self.away += 1;
        pool.spawn(Box::new(move || {
            let mut body = vec![0; SHORT_ANSWER_BYTES];
            let (header, len) = answer_parts(&server, &parts, &payload, &mut body);
            body.truncate(len);
            lock(&late.answers).push((index, header, body));
            // The write fails only where the counter is full, and then a wake-up is on its way.
            let _ = rustix::io::write(&late.wake, 1_u64.as_bytes());
        }));
    }

    /// Hands over the answers of other threads.
    fn woken(&mut self) -> io::Result<()> {
        // The counter is emptied before the thread looks for answers: a later one wakes it again.
        let _ = rustix::io::read(&self.late.wake, &mut [0_u8; 8]);
        let answers = std::mem::take(&mut *lock(&self.late.answers));
        for (index, header, body) in answers {
            self.slots[index].set_answer(header, &body);
            self.away -= 1;
            self.hand_over(index, RING_COMMIT_AND_FETCH)?;
        }
        self.listen()
    }

    /// Gives a slot to the kernel.
    fn hand_over(&mut self, index: usize, command: u32) -> io::Result<()> {
        self.away += 1;
        let device = self.device.as_raw_fd();
        self.slots[index].hand_over(&mut self.ring, device, self.number, command, index as u64)
    }

    /// Makes the next wake-up come as a completion.
    fn listen(&mut self) -> io::Result<()> {
        push_poll(
            &mut self.ring,
            self.late.wake.as_raw_fd(),
            PollFlags::IN,
            WAKE,
        )
    }
}

/// Returns whether the kernel may succeed at a second try, as when it is short of memory. If the
/// thread ended instead, the callers on its CPU would never get an answer.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::Interrupted | Kind::WouldBlock | Kind::ResourceBusy | Kind::OutOfMemory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_outlives_a_shortage() {
        for errno in [OsErrno::INTR, OsErrno::AGAIN, OsErrno::BUSY, OsErrno::NOMEM] {
            assert!(is_transient(&errno.into()), "{errno:?}");
        }
        assert!(!is_transient(&OsErrno::BADF.into()));
    }

    #[test]
    fn many_cpus_have_smaller_requests() {
        let quarter = 48 << 20;
        assert_eq!(request_bytes(quarter, 2), MAX_DATA_BYTES);
        assert_eq!(request_bytes(quarter, 6), MAX_DATA_BYTES);
        assert_eq!(request_bytes(quarter, 16), 384 << 10);
        assert_eq!(request_bytes(quarter, 7) % PAGE_BYTES, 0);
        for cpus in 1..=48 {
            assert!(
                cpus * DEPTH * request_bytes(quarter, cpus) <= quarter,
                "{cpus}"
            );
        }
        assert_eq!(request_bytes(0, 1), LEAST_BYTES);
        assert_eq!(request_bytes(usize::MAX, 1024), MAX_DATA_BYTES);
    }
}
