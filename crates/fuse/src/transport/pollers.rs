//! Decides which of the threads that serve `/dev/fuse` poll for the next request.
//!
//! The threads of `channel` ask it after each poll. No request waits for ever: some thread polls or
//! sleeps in the kernel whenever one is idle.
//!
//! A caller that gets an answer mostly sends its next request at once. In a virtual machine, a CPU
//! that sleeps takes longer to wake than most requests take. So after a request, a thread polls for
//! the next one for a moment ([`POLL_TIME`](super::POLL_TIME)) before it sleeps. If all threads
//! polled, they would contend for a lock of the kernel. If only one did, a request that takes long
//! would delay the others. So two threads poll while there are requests, and the others are parked:
//!
//! * A thread that takes a request and leaves no other thread polling unparks one. So a thread is
//!   always polling, or all threads are busy.
//! * A thread that has polled in vain for its moment parks if two others poll. If one other polls,
//!   the thread parks once that one has found nothing either.
//! * The last one never parks: once no thread finds anything, it sleeps in the kernel, which wakes
//!   it. So a request wakes one thread, not all.
//! * A thread that has its CPU alone leaves requests to threads that share their CPU with callers
//!   ([`cpu_sharing`](super::cpu_sharing)).
//! * A thread that finds a request while another sleeps in the kernel makes that one poll, too.
//!   Otherwise the kernel would wake it for every request that this thread finds, and it would
//!   sleep again without knowing.
//!
//! One lock guards this state, and each thread holds it for a few instructions.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use extern4_sync::primitive::{Condvar, Mutex};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes as _;

use crate::lock::lock;

/// The number of threads that poll while there are requests.
const ENOUGH: usize = 2;

/// The threads of a mount.
pub(super) struct Pollers {
    state: Mutex<State>,
    unparked: Condvar,
    /// Wakes the thread that sleeps in the kernel.
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    /// Threads that search for a request, polling or asleep in the kernel.
    searching: usize,
    /// Threads that are parked, and have not been unparked.
    parked: usize,
    /// Threads that have been unparked and have not noticed yet. They count as searching already.
    unparks: usize,
    /// Requests found.
    found: u64,
    /// Threads that share their CPU with others.
    sharing: usize,
    /// The requests that those threads have found.
    shared_finds: Finds,
    /// A searching thread is asleep in the kernel, and no thread has woken it.
    asleep: bool,
    /// The mount has gone.
    ended: bool,
}

/// The requests that the threads that share their CPU have found.
#[derive(Clone, Copy, Default)]
pub(super) struct Finds {
    requests: u64,
    /// The thread id of the last caller.
    tid: u32,
    /// Requests from another caller than the one before.
    turns: u64,
}

/// The activity of the threads that share their CPU ([`cpu_sharing`](super::cpu_sharing)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharingThreads {
    /// There are none.
    None,
    /// They have found nothing.
    Idle,
    /// They have found requests, all of one caller.
    OneCaller,
    /// They have found requests of several callers.
    SeveralCallers,
}

/// The next step of a thread that has polled in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It polls again: others find requests, or it was parked and has been unparked.
    Poll,
    /// It sleeps in the kernel.
    Sleep,
}

impl Pollers {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            state: Mutex::default(),
            unparked: Condvar::default(),
            wake,
        })
    }

    /// Registers the calling thread as searching. Returns how many requests have been found so far.
    pub(super) fn begin(&self) -> u64 {
        let mut state = lock(&self.state);
        state.searching += 1;
        state.found
    }

    /// Ends a search: the thread has found a request, or gives up for good. Thread `tid` waits for
    /// the answer; it is given only if this thread shares its CPU.
    pub(super) fn end(&self, tid: Option<u32>) {
        let mut state = lock(&self.state);
        state.searching -= 1;
        state.found += 1;
        if let Some(tid) = tid {
            state.shared_finds.requests += 1;
            state.shared_finds.turns += u64::from(state.shared_finds.tid != tid);
            state.shared_finds.tid = tid;
        }
        if std::mem::take(&mut state.asleep) {
            self.wake_up();
        }
        if state.searching == 0 && state.parked > 0 {
            state.parked -= 1;
            state.searching += 1;
            state.unparks += 1;
            drop(state);
            self.unparked.notify_one();
        }
    }

    /// Decides the next step of a thread that has polled in vain since `found` requests had been
    /// found. Updates `found`.
    pub(super) fn found_nothing(&self, found: &mut u64) -> Next {
        let mut state = lock(&self.state);
        let others_found = std::mem::replace(found, state.found) != state.found;
        if others_found && state.searching <= ENOUGH && !state.ended {
            return Next::Poll;
        }
        if state.ended || state.searching == 1 {
            state.asleep = true;
            return Next::Sleep;
        }
        state.searching -= 1;
        state.parked += 1;
        while state.unparks == 0 && !state.ended {
            state = self
                .unparked
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        if state.unparks > 0 {
            state.unparks -= 1;
        } else {
            state.parked -= 1;
            state.searching += 1;
        }
        *found = state.found;
        Next::Poll
    }

    /// Sleeps until there may be a request at `device`.
    pub(super) fn sleep(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let mut events =
            [device, self.wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let result = poll(&mut events, None);
        // Another thread may have woken this one all the same, so that it polls once more than
        // needed.
        lock(&self.state).asleep = false;
        if events[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        }
        match result {
            Ok(_) | Err(OsErrno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Records that the calling thread now shares its CPU with others, or has it alone again.
    pub(super) fn note_sharing(&self, shares: bool) {
        let sharing = &mut lock(&self.state).sharing;
        *sharing = if shares { *sharing + 1 } else { *sharing - 1 };
    }

    /// Returns the activity of the threads that share their CPU since they had found `found`.
    /// Updates `found`.
    pub(super) fn sharing(&self, found: &mut Finds) -> SharingThreads {
        let state = lock(&self.state);
        let now = state.shared_finds;
        let before = std::mem::replace(found, now);
        match (now.requests - before.requests, now.turns - before.turns) {
            _ if state.sharing == 0 => SharingThreads::None,
            (0, _) => SharingThreads::Idle,
            (_, 0) => SharingThreads::OneCaller,
            _ => SharingThreads::SeveralCallers,
        }
    }

    fn wake_up(&self) {
        // The write fails only where the counter is full, and then the sleeper wakes anyway.
        let _ = rustix::io::write(&self.wake, 1_u64.as_bytes());
    }

    /// Unparks all threads: the mount has gone.
    pub(super) fn close(&self) {
        lock(&self.state).ended = true;
        self.unparked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    /// Sets up pollers of which one searches, and another has polled in vain and is parked. That
    /// one reports when it is unparked.
    fn one_parked<'a>(
        scope: &'a std::thread::Scope<'a, '_>,
    ) -> (&'static Pollers, mpsc::Receiver<Next>) {
        let pollers: &Pollers = Box::leak(Box::new(Pollers::new().unwrap()));
        pollers.begin();
        let (say, said) = mpsc::channel();
        scope.spawn(move || {
            let mut found = pollers.begin();
            say.send(pollers.found_nothing(&mut found)).unwrap();
        });
        assert!(said.recv_timeout(SOON).is_err(), "it is parked");
        (pollers, said)
    }

    #[test]
    fn the_last_thread_sleeps_in_the_kernel() {
        let pollers = Pollers::new().unwrap();
        let mut found = pollers.begin();
        assert_eq!(pollers.found_nothing(&mut found), Next::Sleep);
    }

    #[test]
    fn the_last_searcher_unparks_one_when_it_takes_a_request() {
        std::thread::scope(|scope| {
            let (pollers, said) = one_parked(scope);
            pollers.end(None);
            assert_eq!(said.recv_timeout(LONG), Ok(Next::Poll));
            pollers.begin();
            let mut before = 0;
            assert_eq!(
                pollers.found_nothing(&mut before),
                Next::Poll,
                "it is the second, and something was found"
            );
            assert_eq!(before, 1);
        });
    }

    #[test]
    fn no_thread_is_unparked_while_another_searches() {
        std::thread::scope(|scope| {
            let (pollers, said) = one_parked(scope);
            pollers.begin();
            pollers.end(None);
            assert!(said.recv_timeout(SOON).is_err(), "the other still searches");
            pollers.end(None);
            assert_eq!(said.recv_timeout(LONG), Ok(Next::Poll));
        });
    }

    #[test]
    fn a_thread_that_finds_a_request_wakes_the_sleeper() {
        let pollers = Pollers::new().unwrap();
        let (never, _end) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut found = pollers.begin();
        assert_eq!(pollers.found_nothing(&mut found), Next::Sleep);
        std::thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let pollers = &pollers;
            let never = &never;
            scope.spawn(move || say.send(pollers.sleep(never.as_fd()).is_ok()).unwrap());
            pollers.begin();
            assert!(said.recv_timeout(SOON).is_err(), "nothing has been found");
            pollers.end(None);
            assert_eq!(said.recv_timeout(LONG), Ok(true));
        });
        assert_eq!(
            pollers.found_nothing(&mut found),
            Next::Poll,
            "something has been found"
        );
        assert_eq!(
            pollers.found_nothing(&mut found),
            Next::Sleep,
            "the other is at work"
        );
    }

    #[test]
    fn the_activity_of_threads_that_share_their_cpu_is_known() {
        let pollers = Pollers::new().unwrap();
        let find = |tid| {
            pollers.begin();
            pollers.end(tid);
        };
        let mut found = Finds::default();
        let mut sharing = || pollers.sharing(&mut found);
        assert_eq!(sharing(), SharingThreads::None);
        pollers.note_sharing(true);
        find(Some(1));
        sharing();
        find(None);
        assert_eq!(
            sharing(),
            SharingThreads::Idle,
            "no thread waits for it, or its finder has its CPU alone"
        );
        find(Some(1));
        find(Some(1));
        assert_eq!(sharing(), SharingThreads::OneCaller);
        find(Some(2));
        find(Some(1));
        assert_eq!(
            (sharing(), sharing()),
            (SharingThreads::SeveralCallers, SharingThreads::Idle)
        );
        pollers.note_sharing(false);
        find(Some(2));
        assert_eq!(sharing(), SharingThreads::None);
    }

    #[test]
    fn no_thread_is_parked_once_the_mount_has_gone() {
        std::thread::scope(|scope| {
            let (pollers, said) = one_parked(scope);
            pollers.close();
            assert_eq!(said.recv_timeout(LONG), Ok(Next::Poll));
            let mut found = pollers.begin();
            assert_eq!(pollers.found_nothing(&mut found), Next::Sleep);
        });
    }
}
