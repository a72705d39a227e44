//! A thread that makes the calls of one side of each pair, and keeps what it has open.
//!
//! Threads live as long as the volume: what a thread has for itself is warm, as it is in a program
//! that runs.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use extern4_sync::audit::{Footprint, locked_instructions, record};
use extern4_vfs::{DirBatch, Errno, How, NewKind, OpenFile, OpenFlags, RenameFlags, Session, XattrFlags};
use rustix::time::{ClockId, clock_gettime};

use crate::spec::{Call, Outcome, PLACES, Place};

/// Bytes in a block of [`spec`](crate::spec).
pub(super) const BLOCK_BYTES: u64 = 4096;
/// The extended attribute of [`spec`](crate::spec).
const ATTRIBUTE: &str = "user.lab";
/// So often each thread does beforehand what a call may do, on things that stay as they are and on
/// names of its own.
const ROUNDS: usize = 3;
/// So often it then looks at what it is to call upon: until what is read again and again is read as
/// such.
const LOOKS: usize = 16;
/// After that time what has been changed is read as what has not: longer than the millisecond for
/// which [`biased_rwlock`](extern4_sync::biased_rwlock) remembers a writer, and than a tick, within
/// which a time of access is not yet later than that of the change.
const MOMENT: Duration = Duration::from_millis(12);
/// The same, but for times of access: it leaves most of a tick.
const LITTLE: Duration = Duration::from_micros(1200);

/// What the worker is to do.
enum Order {
    /// Get warm below a directory, with this file open.
    Prepare { base: String, open: Place },
    /// Look at all there is once more.
    LookAround,
    /// Make a call, and tell nothing.
    Repeat { call: Call },
    /// Make a call, and tell; instruction by instruction, or as fast as one can.
    Call { call: Call, step: bool },
    /// Close everything.
    Forget,
}

/// What a call did.
pub(super) struct Told {
    /// What it returned; an error that no specification knows as text.
    pub(super) outcome: Result<Seen, String>,
    /// What it did to shared memory.
    pub(super) footprint: Footprint,
    /// Locked instructions that took no notes, if they were counted.
    pub(super) unseen: Option<u64>,
}

/// An outcome as the volume tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Seen {
    /// As the specification does.
    As(Outcome),
    /// Attributes: number, names, permission bits.
    Attributes(u64, u32, u16),
}

/// The thread, from outside.
pub(super) struct Worker {
    orders: Sender<Order>,
    told: Receiver<Option<Told>>,
}

impl Worker {
    /// Begins one, which ends with this.
    pub(super) fn start<'s>(scope: &'s thread::Scope<'s, '_>, number: usize, session: Session) -> Self {
        let ((orders, ordered), (tell, told)) = (channel(), channel());
        scope.spawn(move || {
            let mut hands = Hands::new(number, session);
            for order in ordered {
                let told = hands.follow(order);
                if tell.send(told).is_err() {
                    return;
                }
            }
        });
        Self { orders, told }
    }

    fn order(&self, order: Order) -> Option<Told> {
        self.begin(order);
        self.end()
    }

    fn begin(&self, order: Order) {
        self.orders.send(order).expect("the worker lives");
    }

    fn end(&self) -> Option<Told> {
        self.told.recv().expect("the worker has not panicked")
    }

    /// Has it get warm.
    pub(super) fn prepare(&self, base: &str, open: Place) {
        self.order(Order::Prepare { base: base.to_owned(), open });
    }

    /// Has all of them get warm at once.
    pub(super) fn prepare_at_once(workers: &[Self], base: &str, open: Place) {
        workers.iter().for_each(|worker| worker.begin(Order::Prepare { base: base.to_owned(), open }));
        workers.iter().for_each(|worker| drop(worker.end()));
    }

    /// Has all of them, in turns, look again at what all of them have changed while they got warm,
    /// until it is as it is where nothing changes.
    pub(super) fn settle(workers: &[Self]) {
        // The first who looks at something may note the time of that, which is a change, too.
        for times in [1, LOOKS] {
            thread::sleep(MOMENT);
            for _ in 0..times {
                workers.iter().for_each(|worker| drop(worker.order(Order::LookAround)));
            }
        }
    }

    /// Has them make their calls, if any, by turns, as often as it takes to find what has been
    /// asked for often. A change of contents changes times as well, once a tick: so that the next
    /// one does not, they begin with a tick.
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
        thread::sleep(LITTLE);
        (0..LOOKS).for_each(|_| in_turns());
    }

    /// Has it make a call, and count locked instructions if `step`, which takes long.
    pub(super) fn call(&self, call: Call, step: bool) -> Told {
        self.order(Order::Call { call, step }).expect("a call is told of")
    }

    /// Has it close everything.
    pub(super) fn forget(&self) {
        self.order(Order::Forget);
    }
}

/// Returns when the clock that changes are stamped with has moved on just now.
fn wait_for_tick() {
    let now = || clock_gettime(ClockId::RealtimeCoarse).tv_nsec;
    let before = now();
    while now() == before {
        thread::sleep(Duration::from_micros(50));
    }
}

/// What the thread has.
struct Hands {
    number: usize,
    session: Session,
    /// Paths of the places, without an allocation while it is recorded.
    paths: [String; PLACES],
    directories: Vec<OpenFile>,
    descriptor: Option<OpenFile>,
    opened: Option<OpenFile>,
    batch: DirBatch,
}

impl Hands {
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

    fn follow(&mut self, order: Order) -> Option<Told> {
        match order {
            Order::Prepare { base, open } => {
                self.prepare(&base, open);
                None
            }
            Order::LookAround => {
                self.look_around();
                None
            }
            Order::Repeat { call } => {
                // What it returns is looked at when it counts.
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
                        Errno::ENOENT => Ok(Seen::As(Outcome::Absent)),
                        Errno::EEXIST => Ok(Seen::As(Outcome::Exists)),
                        errno => Err(format!("{call}: {errno:?}")),
                    },
                };
                Some(Told { outcome, footprint, unseen })
            }
            Order::Forget => {
                (self.descriptor, self.opened) = (None, None);
                self.directories.clear();
                None
            }
        }
    }

    fn prepare(&mut self, base: &str, open: Place) {
        Place::all().for_each(|at| self.paths[at.index()] = format!("{base}/{}", at.path()));
        let session = &self.session;
        let open_dir = |dir| session.open(format!("{base}/d{dir}"), OpenFlags::READ | OpenFlags::DIRECTORY);
        self.directories = [0, 1].map(|dir| open_dir(dir).expect("it is there")).into();
        self.open_descriptor(open);
        for _ in 0..ROUNDS {
            self.look_around();
            [0, 1].iter().for_each(|dir| self.come_and_go(&format!("{base}/d{dir}")));
        }
        self.look_around();
        for _ in 0..LOOKS {
            // Some are not there.
            Place::all().for_each(|at| drop(self.act(Call::Open(at))));
        }
        self.opened = None;
        self.open_descriptor(open);
    }

    fn open_descriptor(&mut self, at: Place) {
        let descriptor = self.session.open(&self.paths[at.index()], OpenFlags::READ | OpenFlags::WRITE);
        self.descriptor = Some(descriptor.expect("it is there"));
    }

    /// Looks at all there is.
    fn look_around(&mut self) {
        for at in Place::all() {
            // Some are not there; what comes of the calls does not matter here.
            let _ = self.act(Call::Stat(at));
            let _ = self.act(Call::Open(at));
        }
        self.opened = None;
        for call in [Call::Read(0), Call::Read(1), Call::ReadDir(0), Call::ReadDir(1)] {
            self.act(call).expect("it can be read");
        }
    }

    /// Makes, changes and removes files of the thread's own.
    fn come_and_go(&self, dir: &str) {
        let [one, two, three] =
            ["x", "y", "z"].map(|name| format!("{dir}/of thread {}: {name}", self.number));
        let session = &self.session;
        let work = || {
            session.mknod(&one, NewKind::Regular, 0o644)?;
            session.set_xattr(&one, ATTRIBUTE, &[0; 8], XattrFlags::empty(), How::FOLLOW)?;
            session.set_xattr(&one, ATTRIBUTE, &[1; 8], XattrFlags::empty(), How::FOLLOW)?;
            session.chmod(&one, 0o600, How::FOLLOW)?;
            session.open(&one, OpenFlags::WRITE)?.write_at(&[1; 64], 0)?;
            session.link(&one, How::FOLLOW, &two)?;
            session.rename(&two, &three, RenameFlags::empty())?;
            session.unlink(&one)?;
            session.unlink(&three)
        };
        work().expect("nobody is in the way");
    }

    fn act(&mut self, call: Call) -> extern4_vfs::Result<Seen> {
        let Self { session, paths, .. } = self;
        let path = |at: Place| &paths[at.index()];
        let done = Seen::As(Outcome::Done);
        match call {
            Call::Stat(at) => {
                let attr = session.stat(path(at), How::FOLLOW)?;
                return Ok(Seen::Attributes(attr.ino, attr.nlink, attr.mode));
            }
            Call::Open(at) => self.opened = Some(session.open(path(at), OpenFlags::READ)?),
            Call::Close => self.descriptor = None,
            Call::Create(at) => drop(session.mknod(path(at), NewKind::Regular, 0o644)?),
            Call::Unlink(at) => session.unlink(path(at))?,
            Call::Link(from, to) => session.link(path(from), How::FOLLOW, path(to))?,
            Call::Rename(from, to) => session.rename(path(from), path(to), RenameFlags::empty())?,
            Call::Chmod(at, mode) => session.chmod(path(at), mode, How::FOLLOW)?,
            Call::SetXattr(at, value) => {
                session.set_xattr(path(at), ATTRIBUTE, &[value; 8], XattrFlags::empty(), How::FOLLOW)?;
            }
            Call::Read(block) => {
                let mut bytes = [0; 64];
                self.descriptor().read_at(&mut bytes, block as u64 * BLOCK_BYTES)?;
                return Ok(Seen::As(Outcome::Block(bytes[0])));
            }
            Call::Write(block, value) => {
                self.descriptor().write_at(&[value; 64], block as u64 * BLOCK_BYTES)?;
            }
            Call::ReadDir(dir) => {
                self.directories[dir].read_dir(0, 64, &mut self.batch)?;
                let has = |name: &[u8]| self.batch.iter().any(|entry| entry.name == name);
                return Ok(Seen::As(Outcome::Names([has(b"a"), has(b"b")])));
            }
        }
        Ok(done)
    }

    fn descriptor(&self) -> &OpenFile {
        self.descriptor.as_ref().expect("nobody reads what he has closed")
    }
}
