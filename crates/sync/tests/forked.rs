//! A child of `fork(2)` uses the locks and the memory that the whole process shares, although other
//! threads held them at the fork.

#![cfg(all(target_os = "linux", not(any(miri, feature = "loom"))))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use extern4_sync::biased_rwlock::BiasedRwLock;
use extern4_sync::cache_budget::{CacheAccount, CacheBudget, Reclaim};
use extern4_sync::rcu::{Rcu, pin};
use extern4_sync::rcu_arc::{First, Release};
use extern4_sync::rcu_hash_map::RcuHashMap;
use extern4_sync::slab::Bytes;
use extern4_sync::thread_slots::thread_number;

/// The exit code of a child whose work succeeded.
const DONE: i32 = 7;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` in a child. Returns whether it ended, and succeeded.
fn succeeds_in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls `work`, which is here to work without the other threads, and then
    // ends without returning from here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child");
    if child == 0 {
        let code = if work() { DONE } else { 1 };
        // SAFETY: it ends the process at once.
        unsafe { libc::_exit(code) };
    }
    let start = Instant::now();
    let mut status = 0;
    // SAFETY: the child is this process's own, and `status` is its.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > PATIENCE {
            // SAFETY: as above: it has not been waited for.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
            }
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == DONE
}

/// Replaces values until the first one is freed, which many flushes do unless a thread is pinned.
fn frees(cell: &Rcu<Arc<()>>, first: &Arc<()>) -> bool {
    cell.store(Arc::new(()));
    (0..1000).any(|_| {
        pin().flush();
        Arc::strong_count(first) == 1
    })
}

/// Runs `act` while another thread is in the middle of `held`.
fn meanwhile(held: impl FnOnce(&dyn Fn()) + Send, act: impl FnOnce()) {
    let [begun, ended] = [(); 2].map(|()| Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            held(&|| {
                begun.wait();
                ended.wait();
            })
        });
        begun.wait();
        let done = catch_unwind(AssertUnwindSafe(act));
        ended.wait();
        if let Err(panic) = done {
            resume_unwind(panic);
        }
    });
}

#[test]
fn memory_is_freed_although_a_thread_was_pinned() {
    let first = Arc::new(());
    let cell = Rcu::new(Arc::clone(&first));
    meanwhile(
        |wait| {
            let _guard = pin();
            wait();
        },
        || {
            assert!(succeeds_in_child(|| frees(&cell, &first)));
            // The parent has that thread, which is still pinned.
            assert!(!frees(&cell, &first));
        },
    );
}

#[test]
fn a_pin_of_the_forking_thread_lasts() {
    let first = Arc::new(());
    let cell = Rcu::new(Arc::clone(&first));
    let guard = pin();
    assert!(succeeds_in_child(|| {
        let kept = !frees(&cell, &first);
        drop(guard);
        kept && frees(&cell, &first)
    }));
}

/// Reads until the lock is biased, as a lock is that no thread writes.
fn read_often(lock: &BiasedRwLock<u64>) {
    for _ in 0..100 {
        drop(lock.read());
    }
    // A bias may begin a millisecond after the last one ended.
    thread::sleep(Duration::from_millis(2));
    for _ in 0..100 {
        drop(lock.read());
    }
}

#[test]
fn a_biased_lock_can_be_written_although_a_thread_read_it() {
    let lock = BiasedRwLock::new(0);
    read_often(&lock);
    meanwhile(
        |wait| {
            let _read = lock.read();
            wait();
        },
        || {
            assert!(succeeds_in_child(|| {
                *lock.write() += 1;
                *lock.read() == 1
            }));
            assert_eq!(*lock.read(), 0);
        },
    );
    *lock.write() += 1;
}

#[test]
fn a_read_of_the_forking_thread_lasts() {
    let lock = Arc::new(BiasedRwLock::new(0));
    read_often(&lock);
    let read = lock.read();
    assert!(succeeds_in_child(|| {
        let writer = Arc::clone(&lock);
        let writer = thread::spawn(move || *writer.write() += 1);
        thread::sleep(Duration::from_millis(20));
        let waits = !writer.is_finished();
        drop(read);
        writer.join().is_ok() && waits
    }));
}

#[test]
fn locks_of_the_process_are_free_in_each_child() {
    let stop = &AtomicBool::new(false);
    // Memory of a layout that no other test uses, more than two magazines of it.
    let exchange = || {
        let buffers: Vec<_> = (0..2000).map(|_| Bytes::zeroed(3000)).collect();
        buffers.len() == 2000
    };
    let number = || thread::spawn(thread_number).join().is_ok();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                exchange();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                number();
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                pin().flush();
            }
        });
        let failed = (0..200).position(|_| {
            let first = Arc::new(());
            let cell = Rcu::new(Arc::clone(&first));
            !succeeds_in_child(|| exchange() && number() && frees(&cell, &first))
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
}

struct Value;

impl Release for Value {
    type Link = First;
}

#[test]
fn values_of_a_map_end_in_each_child_although_threads_insert_and_remove() {
    let stop = &AtomicBool::new(false);
    let map = &RcuHashMap::new();
    let insert_and_remove = |hash| {
        let guard = pin();
        let mut stripe = map.lock(hash, &guard);
        stripe.insert(hash, map.alloc(Value));
        let value = stripe.find(hash, |_| true).expect("it is there");
        let value = stripe.remove(value);
        drop(stripe);
        drop(guard);
        drop(value);
    };
    thread::scope(|scope| {
        for hash in 1..3 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    insert_and_remove(hash << 60);
                }
            });
        }
        let failed = (0..200).position(|_| {
            !succeeds_in_child(|| {
                pin().flush_all();
                true
            })
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
}

/// A cache that waits in an eviction, as one does whose lock is taken.
struct Stuck<'a>(CacheAccount, &'a (dyn Fn() + Sync));

impl Reclaim for Stuck<'static> {
    fn account(&self) -> &CacheAccount {
        &self.0
    }

    fn reclaim(&self, _bytes: u64) -> u64 {
        (self.1)();
        0
    }
}

#[test]
fn a_budget_can_be_used_although_a_cache_was_evicting() {
    static BEGUN: Barrier = Barrier::new(2);
    static ENDED: Barrier = Barrier::new(2);
    let budget = CacheBudget::new(1000);
    let cache = Arc::new(Stuck(CacheAccount::new(&budget), &|| {
        BEGUN.wait();
        ENDED.wait();
    }));
    cache.0.add(900);
    let mut registration = Some(budget.register(Arc::clone(&cache) as _));
    thread::scope(|scope| {
        scope.spawn(|| budget.reclaim(100));
        BEGUN.wait();
        assert!(succeeds_in_child(|| {
            let account = CacheAccount::new(&budget);
            account.add(900);
            let quiet = Arc::new(Stuck(account, &|| {}));
            let own = budget.register(quiet as _);
            budget.make_room();
            drop((own, registration.take()));
            true
        }));
        ENDED.wait();
    });
    // Without an eviction under way, the child's drop takes the cache out.
    assert!(succeeds_in_child(|| {
        let before = Arc::strong_count(&cache);
        drop(registration.take());
        Arc::strong_count(&cache) == before - 2
    }));
}
