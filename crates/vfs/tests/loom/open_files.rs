//! Open files, and ways to end.

use extern4_sync::model::{race, race_for};
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering};

use crate::errno::Errno;
use crate::open_files::registry::Registry as _;
use crate::open_files::slab_registry::{SlabRegistry, Ticket};
use crate::open_flags::OpenFlags;
use crate::superblock::Shutdown;

use super::{World, errno, make_file};

/// A file system is made read-only while a thread opens a file for writing: either the remount
/// finds the file open, or the open fails. No file is open for writing when the file system is
/// read-only. Mutation that this catches: the state looked at before the count is raised.
#[test]
fn remount_ro_vs_open_write() {
    race_for(
        || World::new(|root| assert_eq!(make_file(root, "/a"), None)),
        |world| {
            world
                .root
                .open("/a", OpenFlags::WRITE)
                .map_err(|error| error.errno())
        },
        |world| errno(world.sb.remount(true)),
        |world, opened, remounted| {
            assert!(opened.is_ok() != remounted.is_none(), "both or neither");
            assert_eq!(world.sb.is_read_only(), remounted.is_none());
            match opened {
                Ok(file) => {
                    assert_eq!(remounted, Some(Errno::EBUSY));
                    assert_eq!(errno(world.sb.remount(true)), Some(Errno::EBUSY));
                    drop(file);
                    assert_eq!(errno(world.sb.remount(true)), None);
                }
                Err(error) => assert_eq!(error, Errno::EROFS),
            }
        },
    );
}

/// A thread closes a file that another has opened, during a remount: the remount waits for it or
/// fails.
#[test]
fn remount_ro_vs_close_write() {
    race_for(
        || {
            let world = World::new(|root| assert_eq!(make_file(root, "/a"), None));
            let file = world.root.open("/a", OpenFlags::WRITE).unwrap();
            (world, Mutex::new(Some(file)))
        },
        |(_, file)| drop(file.lock().unwrap().take()),
        |(world, file)| {
            (
                errno(world.sb.remount(true)),
                file.lock().unwrap().is_some(),
            )
        },
        |(world, _), (), (remounted, still_open)| {
            assert!(
                !(still_open && remounted.is_none()),
                "read-only with a writer"
            );
            if remounted.is_some() {
                assert_eq!(errno(world.sb.remount(true)), None);
            }
        },
    );
}

/// The last who has a removed file open closes it: what is read-only has freed it by then. Mutation
/// that this catches: the count of inodes without links left before the file system has heard.
#[test]
fn remount_ro_vs_end_of_removed() {
    race_for(
        || {
            let world = World::new(|root| assert_eq!(make_file(root, "/a"), None));
            let file = world.root.open("/a", OpenFlags::READ).unwrap();
            world.root.unlink("/a").unwrap();
            (world, Mutex::new(Some(file)))
        },
        |(_, file)| drop(file.lock().unwrap().take()),
        |(world, _)| {
            let remounted = errno(world.sb.remount(true));
            (remounted, world.inodes())
        },
        |(world, _), (), (remounted, inodes)| {
            assert!(
                remounted == Some(Errno::EBUSY) || inodes == 1,
                "read-only with a file to free"
            );
            if remounted.is_some() {
                assert_eq!(errno(world.sb.remount(true)), None);
            }
        },
    );
}

/// A shutdown that waits for changes under way: what a change did is there whole, or it was
/// refused; none is in progress afterwards.
#[test]
fn shutdown_vs_change() {
    race_for(
        || World::new(|_| ()),
        |world| make_file(&world.root, "/a"),
        |world| {
            world.sb.shut_down(Shutdown::Flush).unwrap();
            world.inodes()
        },
        |world, made, inodes| {
            assert!(made.is_none() || made == Some(Errno::EIO));
            assert_eq!((world.inodes(), made.is_none()), (inodes, inodes == 2));
        },
    );
}

type Records = SlabRegistry<Twice>;

/// A record that says the same twice.
#[derive(Default)]
struct Twice(AtomicU64, AtomicU64);

impl Twice {
    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
        self.1.store(value, Ordering::Relaxed);
    }

    fn load(&self) -> (u64, u64) {
        (
            self.0.load(Ordering::Relaxed),
            self.1.load(Ordering::Relaxed),
        )
    }
}

fn enter(records: &Records, value: u64) -> Ticket {
    records.add(|record| record.store(value)).unwrap()
}

fn values(records: &Records) -> Vec<u64> {
    let pairs = records.list(|record| Some(record.load()));
    assert!(
        pairs.iter().all(|(one, other)| one == other),
        "half of one record and half of another: {pairs:?}"
    );
    pairs.into_iter().map(|(value, _)| value).collect()
}

/// A thread closes what another has opened, and that one opens the next file in its place, while
/// the list is made: a file that stays is in it once, each other one at most once, and nothing that
/// never was. Mutation that this catches: no fences in `add` and `list`.
#[test]
fn open_close_remote_vs_scan() {
    race(
        || {
            let records = Records::default();
            let _stays = enter(&records, 1);
            let goes = enter(&records, 2);
            (records, goes)
        },
        |(records, goes)| {
            assert!(records.remove(goes, |_| ()));
            assert!(!records.remove(goes, |_| ()), "closed twice");
            let comes = enter(records, 3);
            assert!(records.remove(&comes, |_| ()));
            enter(records, 4);
        },
        |(records, _)| {
            let mut list = values(records);
            list.sort_unstable();
            assert!(
                list.starts_with(&[1]) && list.iter().all(|value| (1..5).contains(value)),
                "{list:?}"
            );
            assert!(list.windows(2).all(|pair| pair[0] != pair[1]), "{list:?}");
        },
        |(records, _)| {
            let mut list = values(records);
            list.sort_unstable();
            assert_eq!(list, [1, 4]);
        },
    );
}

/// The opener reuses places that another thread clears: each is given out once.
#[test]
fn open_vs_close_remote() {
    race_for(
        || {
            let records = Records::default();
            let tickets = [enter(&records, 1), enter(&records, 2)];
            (records, Mutex::new(Some(tickets)))
        },
        |(records, tickets)| {
            let tickets = tickets.lock().unwrap().take().unwrap();
            tickets.iter().for_each(|ticket| {
                assert!(records.remove(ticket, |record| assert!(record.load().0 < 3)));
            });
        },
        |(records, _)| [3, 4, 5].map(|value| (value, enter(records, value))),
        |(records, _), (), entered| {
            for (value, ticket) in entered {
                assert_eq!(records.with(&ticket, Twice::load), Some((value, value)));
            }
            let mut list = values(records);
            list.sort_unstable();
            assert_eq!(list, [3, 4, 5]);
        },
    );
}
