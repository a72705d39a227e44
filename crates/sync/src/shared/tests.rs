use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

struct Watched {
    released: Arc<AtomicU64>,
}

impl Release for Watched {
    fn release(&self) {
        self.released.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn watched() -> (Arc<AtomicU64>, Shared<Watched>) {
    let released = Arc::new(AtomicU64::new(0));
    (released.clone(), Shared::new(Watched { released }))
}

fn is(released: &AtomicU64, times: u64) -> bool {
    released.load(std::sync::atomic::Ordering::Relaxed) == times
}

#[test]
fn the_last_reference_releases_at_once_and_readers_still_look() {
    let (released, value) = watched();
    let link = Link::new(Some(value.clone()));
    let guard = pin();
    let seen = link.see(&guard).unwrap();
    drop(value);
    assert!(is(&released, 0));
    drop(link.take());
    assert!(is(&released, 1));
    assert!(seen.hold().is_none() && is(&seen.released, 1));
}

#[test]
fn only_a_last_reference_is_taken() {
    let (released, value) = watched();
    let link = Link::new(Some(value.clone()));
    assert!(link.take_last().is_none());
    drop(value);
    let guard = pin();
    assert!(link.see(&guard).unwrap().hold().is_some());
    let last = link.take_last().unwrap();
    assert!(link.see(&guard).is_none() && is(&released, 0));
    drop(last);
    assert!(is(&released, 1));
}

#[test]
fn the_last_reference_but_one_is_given_up_with_the_link() {
    let (released, value) = watched();
    let link = Link::new(Some(value.clone()));
    let other = value.clone();
    let value = link.give_up_last(value).err().unwrap();
    drop(other);
    let guard = pin();
    let seen = link.see(&guard).unwrap();
    let last = link.give_up_last(value).ok().unwrap();
    assert!(seen.hold().is_none() && link.see(&guard).is_none() && is(&released, 0));
    drop(last);
    assert!(is(&released, 1));
}

#[test]
fn a_lease_that_is_passed_on_is_given_up_by_who_has_it_then() {
    let (released, value) = watched();
    let first = Lease::new(value.clone());
    let guard = pin();
    // SAFETY: there is no owner, and one thread.
    let second = unsafe { first.pass_on() }.unwrap();
    assert!(value.has_references(2) && second.get().ptr_eq(first.get()));
    // SAFETY: as above.
    unsafe {
        assert!(first.pass_on().is_none());
        first.release();
    }
    drop(value);
    assert!(is(&released, 0));
    // SAFETY: as above.
    unsafe { second.release() };
    assert!(is(&released, 1) && is(&first.get().released, 1));
    drop(guard);
}

struct Chained(Option<Lease<Chained>>);

impl Release for Chained {
    fn release(&self) {
        if let Some(lease) = &self.0 {
            // SAFETY: the owner has no reference any more, and no link leads to it.
            unsafe { lease.release() };
        }
    }
}

#[test]
fn a_long_chain_ends_on_a_short_stack() {
    let mut chain = Shared::new(Chained(None));
    for _ in 0..1_000_000 {
        chain = Shared::new(Chained(Some(Lease::new(chain))));
    }
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(chain)).unwrap().join().unwrap();
}
