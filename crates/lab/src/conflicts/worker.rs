//! A worker: a thread that makes the calls of one side of each pair, and keeps its open files.
//!
//! `run` gives it one order at a time and waits for the report.
//!
//! Workers live as long as the volume. So the data of each thread are warm, as in a running
//! program.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use extern4_sync::audit::{Footprint, locked_instructions, record};
use extern4_vfs::{
    DirBatch, Errno, LookupFlags, NewKind, OpenFile, OpenFlags, RenameFlags, Session, XattrFlags,
};
use rustix::time::{ClockId, clock_gettime};

use crate::spec::{Call, NameSlot, Outcome, PLACES};

/// Bytes in a block of [`spec`](crate::spec).
pub(super) const BLOCK_BYTES: u64 = 4096;
/// The extended attribute of [`spec`](crate::spec).
const ATTRIBUTE: &str = "user.lab";
/// The number of warm-up rounds. In each, the thread makes every kind of call, on files that stay
/// and on names of its own.
const ROUNDS: usize = 3;
/// The number of lookups after these rounds. It is enough for structures that adapt to frequent
/// reads.
const LOOKUPS: usize = 16;
/// The time after which reads of changed data are as fast as of others. It is longer than the
/// millisecond for which [`biased_rwlock`](extern4_sync::biased_rwlock) remembers a writer. It is
/// also longer than a tick, within which an access time is not yet later than that of the change.
const COOLDOWN: Duration = Duration::from_millis(12);
/// A shorter pause, after which reads of changed data are as fast as of others. It ignores access
/// times, and leaves most of a tick.
const SHORT_COOLDOWN: Duration = Duration::from_micros(1200);

/// An order to the worker.
enum Order {
    /// Warm up below a directory, with this file open.
    Prepare { base: String, open: NameSlot },
    /// Look at all files once more.
    StatAll,
    /// Make a call, and report nothing.
    Repeat { call: Call },
    /// Make a call, and report it. It is single-stepped if `step`.
    Call { call: Call, step: bool },
    /// Close everything.
    Forget,
}

/// The report on a call.
pub(super) struct CallReport {
    /// The outcome of the call. An error that the specification does not have is text.
    pub(super) outcome: Result<ObservedOutcome, String>,
    /// Its accesses to shared memory.
    pub(super) footprint: Footprint,
    /// Locked instructions that the audit did not record, if they were counted.
    pub(super) unseen: Option<u64>,
}

/// An outcome as the volume reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ObservedOutcome {
    /// An outcome of the specification.
    As(Outcome),
    /// Attributes: inode number, number of names, permission bits.
    Attributes(u64, u32, u16),
}

/// A handle to the thread.
pub(super) struct Worker {
    orders: Sender<Order>,
    told: Receiver<Option<CallReport>>,
}

impl Worker {
    /// Starts a worker, which ends when the handle is dropped.
    pub(super) fn start<'s>(scope: &'s thread::Scope<'s, '_>, number: usize, session: Session) -> Self {
        let ((orders, ordered), (tell, told)) = (channel(), channel());
        scope.spawn(move || {
            let mut hands = WorkerState::new(number, session);
            for order in ordered {
                let told = hands.follow(order);
                if tell.send(told).is_err() {
                    return;
                }
            }
        });
        Self { orders, told }
    }

    fn order(&self, order: Order) -> Option<CallReport> {
        self.begin(order);
        self.end()
    }

    fn begin(&self, order: Order) {
        self.orders.send(order).expect("the worker lives");
    }

    fn end(&self) -> Option<CallReport> {
        self.told.recv().expect("the worker has not panicked")
    }

    /// Has the worker warm up.
    pub(super) fn prepare(&self, base: &str, open: NameSlot) {
        self.order(Order::Prepare { base: base.to_owned(), open });
    }

    /// Has all workers warm up at the same time.
    pub(super) fn prepare_at_once(workers: &[Self], base: &str, open: NameSlot) {
        workers.iter().for_each(|worker| worker.begin(Order::Prepare { base: base.to_owned(), open }));
        workers.iter().for_each(|worker| drop(worker.end()));
    }

    /// Has all workers in turn look again at the files that any of them changed while it warmed up.
    /// In the end, a read of these files is like one of files that do not change.
    pub(super) fn stat_in_turn(workers: &[Self]) {
        // The first worker that looks at a file may update its access time, which is a change as
        // well.
        for times in [1, LOOKUPS] {
            thread::sleep(COOLDOWN);
            for _ in 0..times {
                workers.iter().for_each(|worker| drop(worker.order(Order::StatAll)));
            }
        }
    }

    /// Has the workers make their calls, if any, in turn, until the results are cached as those of
    /// frequent calls are. A change of contents also changes times, once a tick. The calls begin
    /// right after a tick, so that the next change does not.
    pub(super) fn repeat(workers: &[Self; 2], calls: [Option<Call>; 2]) {
        if calls == [None; 2] {
            return;
        }
        wait_for_tick();
        let in_turns = || {
            for (worker, call) in workers.iter().zip(calls) {
                if let Some(call) = call {
                    worker.order(Order::Repeat { call });
                }
            }
        };
        in_turns();
        thread::sleep(SHORT_COOLDOWN);
        (0..LOOKUPS).for_each(|_| in_turns());
    }

    /// Has the worker make a call. If `step`, it counts locked instructions, which takes long.
    pub(super) fn call(&self, call: Call, step: bool) -> CallReport {
        self.order(Order::Call { call, step }).expect("a call is told of")
    }

    /// Has the worker close all files.
    pub(super) fn forget(&self) {
        self.order(Order::Forget);
    }
}

/// Waits until just after a tick of the clock that stamps changes.
fn wait_for_tick() {
    let now = || clock_gettime(ClockId::RealtimeCoarse).tv_nsec;
    let before = now();
    while now() == before {
        thread::sleep(Duration::from_micros(50));
    }
}

/// The state of the thread.
struct WorkerState {
    number: usize,
    session: Session,
    /// The paths of the places, so that no recorded call allocates them.
    paths: [String; PLACES],
    directories: Vec<OpenFile>,
    descriptor: Option<OpenFile>,
    opened: Option<OpenFile>,
    batch: DirBatch,
}

impl WorkerState {
    fn new(number: usize, session: Session) -> Self {
        Self {
            number,
            session,
            paths: Default::default(),
            directories: Vec::new(),
            descriptor: None,
            opened: None,
            batch: DirBatch::new(),
        }
    }

    fn follow(&mut self, order: Order) -> Option<CallReport> {
        match order {
            Order::Prepare { base, open } => {
                self.prepare(&base, open);
                None
            }
            Order::StatAll => {
                self.stat_all();
                None
            }
            Order::Repeat { call } => {
                // Only the outcome of the measured call is checked.
                drop(self.act(call));
                None
            }
            Order::Call { call, step } => {
                let mut locked = None;
                let (outcome, footprint) = record(|| match step {
                    true => match locked_instructions(|| self.act(call)) {
                        Some((outcome, count)) => {
                            locked = Some(count);
                            outcome
                        }
                        None => self.act(call),
                    },
                    false => self.act(call),
                });
                let unseen = locked.map(|locked| locked.saturating_sub(footprint.locked_instructions()));
                let outcome = match outcome {
                    Ok(seen) => Ok(seen),
                    Err(error) => match error.errno() {
                        Errno::ENOENT => Ok(ObservedOutcome::As(Outcome::Absent)),
                        Errno::EEXIST => Ok(ObservedOutcome::As(Outcome::Exists)),
                        errno => Err(format!("{call}: {errno:?}")),
                    },
                };
                Some(CallReport { outcome, footprint, unseen })
            }
            Order::Forget => {
                (self.descriptor, self.opened) = (None, None);
                self.directories.clear();
                None
            }
        }
    }

    fn prepare(&mut self, base: &str, open: NameSlot) {
        NameSlot::all().for_each(|at| self.paths[at.index()] = format!("{base}/{}", at.path()));
        let session = &self.session;
        let open_dir = |dir| session.open(format!("{base}/d{dir}"), OpenFlags::READ | OpenFlags::DIRECTORY);
        self.directories = [0, 1].map(|dir| open_dir(dir).expect("it is there")).into();
        self.open_descriptor(open);
        for _ in 0..ROUNDS {
            self.stat_all();
            [0, 1].iter().for_each(|dir| self.create_and_remove(&format!("{base}/d{dir}")));
        }
        self.stat_all();
        for _ in 0..LOOKUPS {
            // Some names do not exist.
            NameSlot::all().for_each(|at| drop(self.act(Call::Open(at))));
        }
        self.opened = None;
        self.open_descriptor(open);
    }

    fn open_descriptor(&mut self, at: NameSlot) {
        let descriptor = self.session.open(&self.paths[at.index()], OpenFlags::READ | OpenFlags::WRITE);
        self.descriptor = Some(descriptor.expect("it is there"));
    }

    /// Looks at all files.
    fn stat_all(&mut self) {
        for at in NameSlot::all() {
            // Some names do not exist, and the results do not matter here.
            let _ = self.act(Call::Stat(at));
            let _ = self.act(Call::Open(at));
        }
        self.opened = None;
        for call in [Call::Read(0), Call::Read(1), Call::ReadDir(0), Call::ReadDir(1)] {
            self.act(call).expect("it can be read");
        }
    }

    /// Creates, changes and removes files of the thread's own.
    fn create_and_remove(&self, dir: &str) {
        let [one, two, three] =
            ["x", "y", "z"].map(|name| format!("{dir}/of thread {}: {name}", self.number));
        let session = &self.session;
        let work = || {
            session.mknod(&one, NewKind::Regular, 0o644)?;
            session.set_xattr(&one, ATTRIBUTE, &[0; 8], XattrFlags::empty(), LookupFlags::FOLLOW)?;
            session.set_xattr(&one, ATTRIBUTE, &[1; 8], XattrFlags::empty(), LookupFlags::FOLLOW)?;
            session.chmod(&one, 0o600, LookupFlags::FOLLOW)?;
            session.open(&one, OpenFlags::WRITE)?.write_at(&[1; 64], 0)?;
            session.link(&one, LookupFlags::FOLLOW, &two)?;
            session.rename(&two, &three, RenameFlags::empty())?;
            session.unlink(&one)?;
            session.unlink(&three)
        };
        work().expect("nothing is in the way");
    }

    fn act(&mut self, call: Call) -> extern4_vfs::Result<ObservedOutcome> {
        let Self { session, paths, .. } = self;
        let path = |at: NameSlot| &paths[at.index()];
        let done = ObservedOutcome::As(Outcome::Done);
        match call {
            Call::Stat(at) => {
                let attr = session.stat(path(at), LookupFlags::FOLLOW)?;
                return Ok(ObservedOutcome::Attributes(attr.ino, attr.nlink, attr.mode));
            }
            Call::Open(at) => self.opened = Some(session.open(path(at), OpenFlags::READ)?),
            Call::Close => self.descriptor = None,
            Call::Create(at) => drop(session.mknod(path(at), NewKind::Regular, 0o644)?),
            Call::Unlink(at) => session.unlink(path(at))?,
            Call::Link(from, to) => session.link(path(from), LookupFlags::FOLLOW, path(to))?,
            Call::Rename(from, to) => session.rename(path(from), path(to), RenameFlags::empty())?,
            Call::Chmod(at, mode) => session.chmod(path(at), mode, LookupFlags::FOLLOW)?,
            Call::SetXattr(at, value) => {
                session.set_xattr(
                    path(at),
                    ATTRIBUTE,
                    &[value; 8],
                    XattrFlags::empty(),
                    LookupFlags::FOLLOW,
                )?;
            }
            Call::Read(block) => {
                let mut bytes = [0; 64];
                self.descriptor().read_at(&mut bytes, block as u64 * BLOCK_BYTES)?;
                return Ok(ObservedOutcome::As(Outcome::Block(bytes[0])));
            }
            Call::Write(block, value) => {
                self.descriptor().write_at(&[value; 64], block as u64 * BLOCK_BYTES)?;
            }
            Call::ReadDir(dir) => {
                self.directories[dir].read_dir(0, 64, &mut self.batch)?;
                let has = |name: &[u8]| self.batch.iter().any(|entry| entry.name == name);
                return Ok(ObservedOutcome::As(Outcome::Names([has(b"a"), has(b"b")])));
            }
        }
        Ok(done)
    }

    fn descriptor(&self) -> &OpenFile {
        self.descriptor.as_ref().expect("no thread reads a closed file")
    }
}
