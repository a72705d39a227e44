//! Decides which of the threads that serve `/dev/fuse` poll for the next request.
//!
//! A caller that gets an answer mostly sends its next request at once. In a virtual machine, a CPU
//! that sleeps takes longer to wake than most requests take. So after a request, a thread polls for
//! the next one for a moment ([`PATIENCE`](super::PATIENCE)) before it sleeps. If all threads
//! polled, they would contend for a lock of the kernel. If only one did, a request that takes long
//! would delay the others. So two threads poll while there are requests, and the others rest:
//!
//! * A thread that takes a request and leaves no other thread polling calls one that rests. So a
//!   thread is always polling, or all threads are busy.
//! * A thread that has polled in vain for its moment rests if two others poll. If one other polls,
//!   the thread rests once that one has found nothing either.
//! * The last one never rests: once no thread finds anything, it sleeps in the kernel, which wakes
//!   it. So a request wakes one thread, not all.
//! * A thread that is alone on its CPU leaves requests to those that are not
//!   ([`company`](super::company)).
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
pub(super) struct Lookout {
    state: Mutex<State>,
    called: Condvar,
    /// Wakes the thread that sleeps in the kernel.
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    /// Threads that look for a request, polling or asleep in the kernel.
    looking: usize,
    /// Threads that rest, and have not been called.
    resting: usize,
    /// Threads that have been called and have not noticed yet. They count as looking already.
    calls: usize,
    /// Requests found.
    found: u64,
    /// Threads that are not alone on their CPU.
    accompanied: usize,
    /// The requests that those threads have found.
    in_company: Finds,
    /// A looking thread is asleep in the kernel, and no thread has woken it.
    asleep: bool,
    /// The mount has gone.
    ended: bool,
}

/// The requests that threads in company have found.
#[derive(Clone, Copy, Default)]
pub(super) struct Finds {
    requests: u64,
    /// The last caller, by its thread id.
    asker: u32,
    /// Requests from another caller than the one before.
    turns: u64,
}

/// The activity of the threads that are not alone on their CPU ([`company`](super::company)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accompanied {
    /// There are none.
    Nobody,
    /// They have found nothing.
    Idle,
    /// They have found requests, all of one caller.
    AskedByOne,
    /// They have found requests of several callers.
    AskedBySeveral,
}

/// The next step of a thread that has polled in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It polls again: others find requests, or it rested and has been called.
    Look,
    /// It sleeps in the kernel.
    Sleep,
}

impl Lookout {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), called: Condvar::default(), wake })
    }

    /// Registers the calling thread as looking. Returns how many requests have been found so far.
    pub(super) fn begin(&self) -> u64 {
        let mut state = lock(&self.state);
        state.looking += 1;
        state.found
    }

    /// Ends looking: the thread has found a request, or gives up for good. `asker` waits for the
    /// request, if this thread is not alone on its CPU.
    pub(super) fn end(&self, asker: Option<u32>) {
        let mut state = lock(&self.state);
        state.looking -= 1;
        state.found += 1;
        if let Some(asker) = asker {
            state.in_company.requests += 1;
            state.in_company.turns += u64::from(state.in_company.asker != asker);
            state.in_company.asker = asker;
        }
        if std::mem::take(&mut state.asleep) {
            self.wake_up();
        }
        if state.looking == 0 && state.resting > 0 {
            state.resting -= 1;
            state.looking += 1;
            state.calls += 1;
            drop(state);
            self.called.notify_one();
        }
    }

    /// Decides the next step of a thread that has polled in vain since `found` requests had been
    /// found. Updates `found`.
    pub(super) fn in_vain(&self, found: &mut u64) -> Next {
        let mut state = lock(&self.state);
        let others_found = std::mem::replace(found, state.found) != state.found;
        if others_found && state.looking <= ENOUGH && !state.ended {
            return Next::Look;
        }
        if state.ended || state.looking == 1 {
            state.asleep = true;
            return Next::Sleep;
        }
        state.looking -= 1;
        state.resting += 1;
        while state.calls == 0 && !state.ended {
            state = self.called.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        if state.calls > 0 {
            state.calls -= 1;
        } else {
            state.resting -= 1;
            state.looking += 1;
        }
        *found = state.found;
        Next::Look
    }

    /// Sleeps until there may be a request at `device`.
    pub(super) fn sleep(&self, device: BorrowedFd<'_>) -> io::Result<()> {
        let mut events = [device, self.wake.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let result = poll(&mut events, None);
        // Another thread may have woken this one all the same, so that it looks once more than
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

    /// Records that the calling thread now has company on its CPU, or is alone again.
    pub(super) fn note_company(&self, is_there: bool) {
        let accompanied = &mut lock(&self.state).accompanied;
        *accompanied = if is_there { *accompanied + 1 } else { *accompanied - 1 };
    }

    /// Returns the activity of the threads in company since they had found `found`. Updates
    /// `found`.
    pub(super) fn accompanied(&self, found: &mut Finds) -> Accompanied {
        let state = lock(&self.state);
        let now = state.in_company;
        let before = std::mem::replace(found, now);
        match (now.requests - before.requests, now.turns - before.turns) {
            _ if state.accompanied == 0 => Accompanied::Nobody,
            (0, _) => Accompanied::Idle,
            (_, 0) => Accompanied::AskedByOne,
            _ => Accompanied::AskedBySeveral,
        }
    }

    fn wake_up(&self) {
        // The write fails only where the counter is full, and then the sleeper wakes anyway.
        let _ = rustix::io::write(&self.wake, 1_u64.as_bytes());
    }

    /// Ends all rests: the mount has gone.
    pub(super) fn close(&self) {
        lock(&self.state).ended = true;
        self.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    /// Sets up a lookout where one thread looks, and another has polled in vain and rests. That one
    /// reports when it is called.
    fn one_rests<'a>(scope: &'a std::thread::Scope<'a, '_>) -> (&'static Lookout, mpsc::Receiver<Next>) {
        let lookout: &Lookout = Box::leak(Box::new(Lookout::new().unwrap()));
        lookout.begin();
        let (say, said) = mpsc::channel();
        scope.spawn(move || {
            let mut found = lookout.begin();
            say.send(lookout.in_vain(&mut found)).unwrap();
        });
        assert!(said.recv_timeout(SOON).is_err(), "it rests");
        (lookout, said)
    }

    #[test]
    fn the_last_sleeps_in_the_kernel() {
        let lookout = Lookout::new().unwrap();
        let mut found = lookout.begin();
        assert_eq!(lookout.in_vain(&mut found), Next::Sleep);
    }

    #[test]
    fn who_takes_what_nobody_else_looks_for_calls_one_that_rests() {
        std::thread::scope(|scope| {
            let (lookout, said) = one_rests(scope);
            lookout.end(None);
            assert_eq!(said.recv_timeout(LONG), Ok(Next::Look));
            lookout.begin();
            let mut before = 0;
            assert_eq!(lookout.in_vain(&mut before), Next::Look, "it is the second, and something was found");
            assert_eq!(before, 1);
        });
    }

    #[test]
    fn nobody_is_called_while_another_looks() {
        std::thread::scope(|scope| {
            let (lookout, said) = one_rests(scope);
            lookout.begin();
            lookout.end(None);
            assert!(said.recv_timeout(SOON).is_err(), "the other still looks");
            lookout.end(None);
            assert_eq!(said.recv_timeout(LONG), Ok(Next::Look));
        });
    }

    #[test]
    fn who_finds_something_wakes_who_sleeps() {
        let lookout = Lookout::new().unwrap();
        let (never, _end) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut found = lookout.begin();
        assert_eq!(lookout.in_vain(&mut found), Next::Sleep);
        std::thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let (lookout, never) = (&lookout, &never);
            scope.spawn(move || say.send(lookout.sleep(never.as_fd()).is_ok()).unwrap());
            lookout.begin();
            assert!(said.recv_timeout(SOON).is_err(), "nothing has been found");
            lookout.end(None);
            assert_eq!(said.recv_timeout(LONG), Ok(true));
        });
        assert_eq!(lookout.in_vain(&mut found), Next::Look, "something has been found");
        assert_eq!(lookout.in_vain(&mut found), Next::Sleep, "the other is at work");
    }

    #[test]
    fn what_threads_do_that_are_not_alone_is_known() {
        let lookout = Lookout::new().unwrap();
        let find = |asker| {
            lookout.begin();
            lookout.end(asker);
        };
        let mut found = Finds::default();
        let mut accompanied = || lookout.accompanied(&mut found);
        assert_eq!(accompanied(), Accompanied::Nobody);
        lookout.note_company(true);
        find(Some(1));
        accompanied();
        find(None);
        assert_eq!(accompanied(), Accompanied::Idle, "nobody waits for it, or who found it is alone");
        find(Some(1));
        find(Some(1));
        assert_eq!(accompanied(), Accompanied::AskedByOne);
        find(Some(2));
        find(Some(1));
        assert_eq!((accompanied(), accompanied()), (Accompanied::AskedBySeveral, Accompanied::Idle));
        lookout.note_company(false);
        find(Some(2));
        assert_eq!(accompanied(), Accompanied::Nobody);
    }

    #[test]
    fn nobody_rests_once_the_mount_has_gone() {
        std::thread::scope(|scope| {
            let (lookout, said) = one_rests(scope);
            lookout.close();
            assert_eq!(said.recv_timeout(LONG), Ok(Next::Look));
            let mut found = lookout.begin();
            assert_eq!(lookout.in_vain(&mut found), Next::Sleep);
        });
    }
}
