//! Many threads at once: what one does must never make another see what was never true.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use extern4_vfs::*;

use crate::fixture::{errno, put, sb, volume, volume_with};

const NONE: RenameFlags = RenameFlags::empty();
const TIME: Duration = Duration::from_millis(400);

/// Runs each of `work` over and over in its own thread, for a while.
fn all_at_once(work: &[&(dyn Fn(u64) + Sync)]) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for act in work {
            scope.spawn(|| {
                for round in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    act(round);
                }
            });
        }
        thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_file_is_found_while_its_neighbours_and_parents_move() {
    let root = volume();
    for dir in ["/a", "/a/b", "/a/b/c", "/other"] {
        root.mkdir(dir, 0o755).unwrap();
    }
    put(&root, "/a/b/c/f", b"x");
    put(&root, "/a/b/c/g", b"x");
    let lookup = |_| {
        assert!(root.stat("/a/b/c/f", LookupFlags::FOLLOW).is_ok());
        assert_eq!(
            errno(root.stat("/a/b/c/none", LookupFlags::FOLLOW)),
            Err(Errno::ENOENT)
        );
    };
    let churn = |round: u64| {
        root.rename("/a/b/c/g", "/other/g", NONE).unwrap();
        root.rename("/other/g", "/a/b/c/g", NONE).unwrap();
        if round.is_multiple_of(8) {
            sb(&root).drop_caches();
        }
    };
    all_at_once(&[&lookup, &lookup, &churn]);
}

#[test]
fn of_two_names_one_is_there_after_the_other_was_not() {
    let root = volume();
    root.mkdir("/x", 0o755).unwrap();
    root.mkdir("/y", 0o755).unwrap();
    put(&root, "/x/f", b"");
    for _ in 0..300 {
        let look = || {
            while root.stat("/x/f", LookupFlags::FOLLOW).is_ok() {}
            assert!(
                root.stat("/y/f", LookupFlags::FOLLOW).is_ok(),
                "missing under both names"
            );
        };
        thread::scope(|scope| {
            let lookers = [scope.spawn(look), scope.spawn(look)];
            root.rename("/x/f", "/y/f", NONE).unwrap();
            for looker in lookers {
                looker.join().unwrap();
            }
        });
        root.rename("/y/f", "/x/f", NONE).unwrap();
    }
}

#[test]
fn exchange_never_shows_a_gap() {
    let root = volume();
    for dir in ["/p", "/q", "/p/one", "/q/two"] {
        root.mkdir(dir, 0o755).unwrap();
    }
    put(&root, "/p/one/f", b"");
    put(&root, "/q/two/f", b"");
    let swap = |_| {
        root.rename("/p/one", "/q/two", RenameFlags::EXCHANGE)
            .unwrap()
    };
    let back = |_| {
        root.rename("/q/two", "/p/one", RenameFlags::EXCHANGE)
            .unwrap()
    };
    let look = |_| {
        for path in ["/p/one/f", "/q/two/f"] {
            assert!(root.stat(path, LookupFlags::FOLLOW).is_ok(), "{path}");
        }
        let up = root.stat("/p/one/../..", LookupFlags::FOLLOW).unwrap().ino;
        assert_eq!(up, 1);
    };
    all_at_once(&[&swap, &back, &look, &look]);
}

#[test]
fn renames_of_directories_in_all_directions_do_not_deadlock_or_tie_knots() {
    let root = volume_with(
        MemLimits::default(),
        SuperOptions {
            budget: CacheBudget::new(64 << 10),
            ..Default::default()
        },
    );
    for dir in ["/a", "/a/b", "/a/b/c", "/d", "/d/e"] {
        root.mkdir(dir, 0o755).unwrap();
    }
    let tries = [
        ("/a/b", "/d/e/b"),
        ("/d/e", "/a/b/e"),
        ("/d/e/b", "/a/b"),
        ("/a/b/e", "/d/e"),
        ("/a/b/c", "/c"),
    ];
    let mess = |round: u64| {
        let (from, to) = tries[usize::try_from(round).unwrap() % tries.len()];
        let _ = root.rename(from, to, NONE);
        let _ = root.mkdir("/a/b/c", 0o755);
        let _ = root.rmdir("/c");
    };
    let back = |round: u64| {
        let (from, to) = tries[usize::try_from(round * 3 + 1).unwrap() % tries.len()];
        let _ = root.rename(to, from, NONE);
    };
    all_at_once(&[&mess, &back, &mess]);
    // Every directory is still reachable, and each leads back up.
    let mut found = Vec::new();
    let mut queue = vec![String::from("/")];
    while let Some(path) = queue.pop() {
        let ino = root.stat(&path, LookupFlags::FOLLOW).unwrap().ino;
        for name in crate::fixture::names(&root, &path) {
            let child = format!("{path}{name}/");
            assert_eq!(
                root.stat(format!("{child}.."), LookupFlags::FOLLOW)
                    .unwrap()
                    .ino,
                ino,
                "{child}"
            );
            queue.push(child);
        }
        found.push(path);
    }
    assert!((5..=7).contains(&found.len()), "{found:?}");
}

#[test]
fn one_of_many_makers_wins() {
    let root = volume();
    for round in 0..200 {
        let path = format!("/tmp/f{round}");
        let wins: usize = thread::scope(|scope| {
            let make = || {
                usize::from(
                    root.open(
                        &path,
                        OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL,
                    )
                    .is_ok(),
                )
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(wins, 1);
    }
    assert_eq!(crate::fixture::names(&root, "/tmp").len(), 200);
}

#[test]
fn removed_directories_stay_empty() {
    let root = volume();
    let make = |_| drop(root.mkdir("/tmp/d", 0o755));
    let fill = |_| drop(root.open("/tmp/d/f", OpenFlags::WRITE | OpenFlags::CREATE));
    let clear = |_| {
        let _ = root.unlink("/tmp/d/f");
        let _ = root.rmdir("/tmp/d");
    };
    all_at_once(&[&make, &fill, &clear]);
    let _ = root.unlink("/tmp/d/f");
    let _ = root.rmdir("/tmp/d");
    sb(&root).drop_caches();
    let stat = root.statfs("/", LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        stat.files - stat.files_free,
        2,
        "nothing is left of what was removed"
    );
}

#[test]
fn a_mode_that_was_set_is_the_mode_that_counts() {
    let root = volume();
    root.mkdir("/d", 0o755).unwrap();
    put(&root, "/d/f", b"");
    let user = crate::fixture::user(&root, 9);
    let shut: Acl = "u::rwx,u:9:---,g::r-x,m::r-x,o::r-x".parse().unwrap();
    // One thread changes mode and ACL and looks each time whether the change counts; others look
    // all the time.
    let change = |round: u64| {
        let (acl, mode) = if round.is_multiple_of(2) {
            (Some(shut.clone()), 0o755)
        } else {
            (None, 0o711)
        };
        root.set_acl("/d", AclKind::Access, acl, LookupFlags::FOLLOW)
            .unwrap();
        root.chmod("/d", mode, LookupFlags::FOLLOW).unwrap();
        let want = if round.is_multiple_of(2) {
            Err(Errno::EACCES)
        } else {
            Ok(())
        };
        assert_eq!(errno(user.stat("/d/f", LookupFlags::FOLLOW)), want);
    };
    let look = |_| {
        let got = errno(user.stat("/d/f", LookupFlags::FOLLOW));
        assert!(matches!(got, Ok(()) | Err(Errno::EACCES)));
    };
    all_at_once(&[&change, &look, &look]);
}

#[test]
fn attributes_are_never_torn() {
    let root = volume();
    put(&root, "/f", b"");
    let change = |round: u64| {
        let id = u32::try_from(round % 1000).unwrap();
        root.chown("/f", Some(id), Some(id), LookupFlags::FOLLOW)
            .unwrap();
    };
    let look = |_| {
        let attr = root.stat("/f", LookupFlags::FOLLOW).unwrap();
        assert_eq!(attr.uid, attr.gid);
    };
    all_at_once(&[&change, &look, &look]);
}
