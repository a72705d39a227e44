//! Shuttle tests: eight threads on a file system in memory, in schedules that shuttle chooses.
//!
//! Threads move, make and remove names and change rights, while others look. The tables have few
//! buckets and the caches few entries, so that all threads meet. Memory is sequentially consistent
//! here: loom explores weaker memory with two threads, in `tests/loom`. A scenario that loom
//! explores in every interleaving is not repeated here.

use std::collections::HashSet;
use std::sync::Arc;

use extern4_sync::model::race_many;
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering};

use extern4_vfs::*;

const THREADS: usize = 8;

fn world() -> Session {
    let options = SuperOptions {
        budget: CacheBudget::new(8 << 10),
        ..SuperOptions::default()
    };
    let sb = SuperBlock::new(MemFs::new(MemLimits::default()), options).unwrap();
    Session::new(&Namespace::new(sb), Cred::root())
}

fn make_file(root: &Session, path: &str) -> u64 {
    root.mknod(path, NewKind::Regular, 0o644).unwrap().ino()
}

/// The inode number behind a path, if it is there.
fn ino(root: &Session, path: &str) -> Option<u64> {
    match root.stat(path, LookupFlags::FOLLOW) {
        Ok(attr) => {
            assert!(attr.nlink > 0, "{path} leads to a file without links");
            Some(attr.ino)
        }
        Err(error) => {
            assert_eq!(error.errno(), Errno::ENOENT, "{path}");
            None
        }
    }
}

/// Four files that move, each by its own thread, and four threads that look.
#[test]
fn names_that_move_are_found_at_one_place() {
    let setup = || {
        let root = world();
        for dir in ["/x", "/y"] {
            root.mkdir(dir, 0o755).unwrap();
        }
        let inos: Vec<u64> = (0..4)
            .map(|n| make_file(&root, &format!("/x/{n}")))
            .collect();
        (root, inos)
    };
    race_many(
        THREADS,
        setup,
        |(root, inos), index| {
            let n = index % 4;
            let from = format!("/x/{n}");
            let to = format!("/y/{n}");
            if index < 4 {
                root.rename(&from, &to, RenameFlags::empty()).unwrap();
                assert_eq!((ino(root, &from), ino(root, &to)), (None, Some(inos[n])));
            } else {
                let old = ino(root, &from);
                let new = ino(root, &to);
                assert!(
                    old.or(new) == Some(inos[n]),
                    "the file {n} is nowhere, or another one"
                );
                let new = ino(root, &to);
                let old = ino(root, &from);
                assert!(
                    new.is_none() || old.is_none(),
                    "the file {n} is at two places"
                );
            }
        },
        |(root, inos)| assert!((0..4).all(|n| ino(root, &format!("/y/{n}")) == Some(inos[n]))),
    );
}

/// Two files move back and forth between two directories. Meanwhile they are exchanged, other names
/// come and go, and one of the directories is removed if it is empty. No thread waits for ever, and
/// no file gets lost.
#[test]
fn files_that_cross_are_not_lost() {
    let setup = || {
        let root = world();
        for dir in ["/x", "/y"] {
            root.mkdir(dir, 0o755).unwrap();
        }
        let inos = ["/x/a", "/y/b"].map(|path| make_file(&root, path));
        (root, inos)
    };
    const PLACES: [&str; 4] = ["/x/a", "/x/b", "/y/a", "/y/b"];
    race_many(
        THREADS,
        setup,
        |(root, _), index| {
            let rename = |from, to, flags| match root.rename(from, to, flags) {
                Ok(()) => {}
                Err(error) => assert!(
                    [Errno::ENOENT, Errno::EEXIST].contains(&error.errno()),
                    "{error}"
                ),
            };
            match index {
                0 => rename("/x/a", "/y/a", RenameFlags::NOREPLACE),
                1 => rename("/y/a", "/x/a", RenameFlags::NOREPLACE),
                2 => rename("/y/b", "/x/b", RenameFlags::NOREPLACE),
                3 => rename("/x/b", "/y/b", RenameFlags::NOREPLACE),
                4 => rename("/x/a", "/y/b", RenameFlags::EXCHANGE),
                5 => {
                    make_file(root, "/y/c");
                    root.unlink("/y/c").unwrap();
                }
                6 => root.root().superblock().drop_caches(),
                _ => match root.rmdir("/x") {
                    Ok(()) => {}
                    Err(error) => assert_eq!(error.errno(), Errno::ENOTEMPTY),
                },
            }
        },
        |(root, inos)| {
            let mut found: Vec<u64> = PLACES.iter().filter_map(|place| ino(root, place)).collect();
            found.sort_unstable();
            assert_eq!(found, *inos);
        },
    );
}

/// One file is written over, gets other permission bits, an ACL, extended attributes and names, and
/// loses some: all of it is there in the end, and no thread waits for ever.
#[test]
fn a_file_is_written_while_everything_else_of_it_changes() {
    let setup = || {
        let root = world();
        root.mkdir("/x", 0o755).unwrap();
        let ino = make_file(&root, "/a");
        for name in ["/b", "/c", "/d"] {
            root.link("/a", LookupFlags::FOLLOW, name).unwrap();
        }
        make_file(&root, "/e");
        let file = root.open("/a", OpenFlags::READ | OpenFlags::WRITE).unwrap();
        file.write_at(b"..", 0).unwrap();
        (root, ino, file)
    };
    const ATTRIBUTE: [&str; 2] = ["user.a", "user.b"];
    race_many(
        THREADS,
        setup,
        |(root, _, file), index| match index {
            0 | 1 => assert_eq!(file.write_at(b"x", index as u64).unwrap(), 1),
            2 => root.chmod("/a", 0o600, LookupFlags::FOLLOW).unwrap(),
            3 | 4 => {
                let name = ATTRIBUTE[index - 3];
                root.set_xattr(
                    "/a",
                    name,
                    b"value",
                    XattrFlags::empty(),
                    LookupFlags::FOLLOW,
                )
                .unwrap();
            }
            5 => root.link("/a", LookupFlags::FOLLOW, "/f").unwrap(),
            6 => root.rename("/e", "/b", RenameFlags::empty()).unwrap(),
            _ => {
                root.rename("/c", "/x/c", RenameFlags::empty()).unwrap();
                root.unlink("/d").unwrap();
            }
        },
        |(root, right, file)| {
            let attr = root.stat("/a", LookupFlags::FOLLOW).unwrap();
            assert_eq!((attr.ino, attr.mode, attr.nlink), (*right, 0o600, 3));
            let names =
                ["/b", "/c", "/d", "/x/c", "/f"].map(|name| ino(root, name) == Some(*right));
            assert_eq!(names, [false, false, false, true, true]);
            for name in ATTRIBUTE {
                assert_eq!(
                    root.get_xattr("/a", name, LookupFlags::FOLLOW).unwrap(),
                    b"value"
                );
            }
            let mut bytes = [0; 2];
            assert_eq!((file.read_at(&mut bytes, 0).unwrap(), bytes), (2, *b"xx"));
        },
    );
}

/// A file gets another name, by which it is removed before the rename is done. Meanwhile the caches
/// drop unused entries, and other threads ask for the old name: all of them get an answer.
#[test]
fn a_file_is_removed_by_its_new_name_while_it_is_moved() {
    let setup = || {
        let root = world();
        make_file(&root, "/old");
        root
    };
    let is_absent = |error: &Error| error.errno() == Errno::ENOENT;
    race_many(
        THREADS,
        setup,
        move |root: &Session, index| match index {
            0 => root.rename("/old", "/new", RenameFlags::empty()).unwrap(),
            1 | 2 => drop(
                root.unlink("/new")
                    .inspect_err(|error| assert!(is_absent(error))),
            ),
            3 | 4 => root.root().superblock().drop_caches(),
            _ => drop(
                root.stat("/old", LookupFlags::FOLLOW)
                    .inspect_err(|error| assert!(is_absent(error))),
            ),
        },
        |root| {
            assert_eq!(ino(root, "/old"), None);
            drop(root.unlink("/new"));
            assert_eq!(ino(root, "/new"), None);
        },
    );
}

/// Two files get and lose names in every way, while the caches drop unused entries and other
/// threads ask for the names. All get an answer. In the end each file has as many links as names,
/// and is gone if it has none.
#[test]
fn names_change_in_every_way_while_caches_are_emptied() {
    const NAMES: [&str; 3] = ["/a", "/b", "/c"];
    let setup = || {
        let root = world();
        for name in &NAMES[..2] {
            make_file(&root, name);
        }
        root
    };
    race_many(
        THREADS,
        setup,
        |root: &Session, index| {
            let changed = match index {
                0 => root.rename("/a", "/c", RenameFlags::empty()),
                1 => root.rename("/b", "/c", RenameFlags::NOREPLACE),
                2 => root.rename("/c", "/b", RenameFlags::EXCHANGE),
                3 => root
                    .link("/b", LookupFlags::NOFOLLOW, "/a")
                    .and_then(|()| root.unlink("/b")),
                4 => root.unlink("/c"),
                5 => root
                    .chmod("/c", 0o600, LookupFlags::FOLLOW)
                    .and_then(|()| root.rename("/c", "/a", RenameFlags::empty())),
                6 => {
                    root.root().superblock().drop_caches();
                    Ok(())
                }
                _ => NAMES
                    .iter()
                    .try_for_each(|name| root.stat(name, LookupFlags::NOFOLLOW).map(drop)),
            };
            let refused = changed.err().map(|error| error.errno());
            assert!(
                matches!(refused, None | Some(Errno::ENOENT | Errno::EEXIST)),
                "{index}: {refused:?}"
            );
        },
        |root| {
            let there: Vec<_> = NAMES
                .iter()
                .filter_map(|name| root.stat(name, LookupFlags::NOFOLLOW).ok())
                .collect();
            for attr in &there {
                let names = there.iter().filter(|other| other.ino == attr.ino).count();
                assert_eq!(attr.nlink as usize, names);
            }
            let files: HashSet<_> = there.iter().map(|attr| attr.ino).collect();
            assert_eq!(used_inodes(root), 1 + files.len() as u64);
        },
    );
}

/// Directories move under those who walk through them, and everything is thrown out of the caches
/// meanwhile.
#[test]
fn paths_through_moving_directories_lead_to_the_right_file_or_nowhere() {
    let setup = || {
        let root = world();
        for dir in ["/a", "/a/d", "/b"] {
            root.mkdir(dir, 0o755).unwrap();
        }
        let ino = make_file(&root, "/a/d/f");
        (root, ino)
    };
    race_many(
        THREADS,
        setup,
        |(root, right), index| match index {
            0 => {
                root.rename("/a/d", "/b/d", RenameFlags::empty()).unwrap();
                assert_eq!(ino(root, "/b/d/f"), Some(*right));
                root.rename("/b/d", "/a/d", RenameFlags::empty()).unwrap();
            }
            1 => root.root().superblock().drop_caches(),
            _ => {
                for path in ["/a/d/f", "/b/d/f", "/a/d/../d/f"] {
                    assert!(ino(root, path).is_none_or(|ino| ino == *right), "{path}");
                }
            }
        },
        |(root, right)| assert_eq!(ino(root, "/a/d/f"), Some(*right)),
    );
}

/// All threads make and remove the same two names.
#[test]
fn a_name_is_made_once_and_removed_once() {
    let setup = || (world(), AtomicU64::new(0));
    race_many(
        THREADS,
        setup,
        |(root, there), index| {
            let path = if index % 2 == 0 { "/p" } else { "/q" };
            if root.mknod(path, NewKind::Regular, 0o644).is_ok() {
                there.fetch_add(1, Ordering::SeqCst);
            }
            if index >= 4 && root.unlink(path).is_ok() {
                there.fetch_sub(1, Ordering::SeqCst);
            }
        },
        |(root, there)| {
            let found = ["/p", "/q"]
                .iter()
                .filter(|path| ino(root, path).is_some())
                .count();
            assert_eq!(found as u64, there.load(Ordering::SeqCst));
        },
    );
}

/// One thread removes a directory, another makes names in it: one of them fails.
#[test]
fn nothing_is_made_in_a_removed_directory() {
    let setup = || {
        let root = world();
        root.mkdir("/d", 0o755).unwrap();
        (root, AtomicU64::new(0))
    };
    race_many(
        THREADS,
        setup,
        |(root, made), index| match index {
            0 | 1 => {
                let _ = root.rmdir("/d");
            }
            _ => {
                if root
                    .mknod(format!("/d/{}", index % 2), NewKind::Regular, 0o644)
                    .is_ok()
                {
                    made.fetch_add(1, Ordering::SeqCst);
                }
                ino(root, "/d/0");
            }
        },
        |(root, made)| {
            let found = (0..2)
                .filter(|n| ino(root, &format!("/d/{n}")).is_some())
                .count();
            assert_eq!(found as u64, made.load(Ordering::SeqCst));
            assert_eq!(ino(root, "/d").is_some(), found > 0);
        },
    );
}

/// Rights change between two states, each of which refuses user 5: no mixture of the two lets it
/// in.
#[test]
fn no_mixture_of_two_rights_is_ever_granted() {
    let setup = || {
        let root = world();
        root.mkdir("/d", 0o755).unwrap();
        make_file(&root, "/d/f");
        root.set_acl("/d", AclKind::Access, Some(refusing()), LookupFlags::FOLLOW)
            .unwrap();
        let user = root.with_cred(Cred::new(5, 5, &[]));
        (root, user)
    };
    race_many(
        THREADS,
        setup,
        |(root, user), index| match index {
            0 => {
                root.set_acl(
                    "/d",
                    AclKind::Access,
                    Some(Acl::from_mode(0o750)),
                    LookupFlags::FOLLOW,
                )
                .unwrap();
                root.set_acl("/d", AclKind::Access, Some(refusing()), LookupFlags::FOLLOW)
                    .unwrap();
            }
            1 => root.root().superblock().drop_caches(),
            _ => {
                let refused = user.access("/d/f", Access::empty(), LookupFlags::FOLLOW);
                assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::EACCES));
            }
        },
        |(root, _)| assert!(ino(root, "/d/f").is_some()),
    );
}

/// Every user may search, except user 5.
fn refusing() -> Acl {
    "u::rwx,u:5:---,g::r-x,m::r-x,o::r-x".parse().unwrap()
}

/// All threads link and unlink one file: it is freed once, with its last link.
#[test]
fn the_last_link_frees_the_file() {
    let setup = || {
        let root = world();
        make_file(&root, "/f");
        let used = used_inodes(&root);
        (root, used)
    };
    race_many(
        THREADS,
        setup,
        |(root, _), index| {
            let name = format!("/l{index}");
            // A thread that comes after the last name has gone cannot link it any more.
            if root.link("/f", LookupFlags::FOLLOW, &name).is_ok() {
                assert!(ino(root, &name).is_some());
                root.unlink(&name).unwrap();
            }
            if index == 0 {
                root.unlink("/f").unwrap();
            }
        },
        |(root, used)| assert_eq!(used_inodes(root), used - 1),
    );
}

fn used_inodes(root: &Session) -> u64 {
    let sb: &Arc<SuperBlock> = root.root().superblock();
    let statfs = sb.statfs().unwrap();
    statfs.files - statfs.files_free
}

/// All threads open and close files, and close some that others opened. Meanwhile two list them,
/// and one keeps turning the file system read-only. Every list has the files that are open
/// throughout, and no thread writes to a read-only file system.
#[test]
fn open_close_list_and_remount() {
    type Shared = (Session, OpenFile, Mutex<Vec<OpenFile>>);
    let setup = || {
        let root = world();
        for n in 0..THREADS {
            make_file(&root, &format!("/{n}"));
        }
        let stays = root.open("/0", OpenFlags::READ).unwrap();
        (root, stays, Mutex::new(Vec::new()))
    };
    race_many(
        THREADS,
        setup,
        |(root, stays, handed): &Shared, index| {
            let sb = root.root().superblock();
            match index {
                0 | 1 => {
                    let list = sb.open_files();
                    let there = list
                        .iter()
                        .filter(|open| open.ino == stays.location().ino());
                    assert_eq!(there.count(), 1, "{list:?}");
                    assert!(
                        list.iter()
                            .all(|open| open.path.len() == 2 && open.uid == 0),
                        "{list:?}"
                    );
                }
                2 => {
                    if sb.remount(true).is_ok() {
                        let writes = sb
                            .open_files()
                            .iter()
                            .any(|open| open.flags == OpenFlags::WRITE);
                        assert!(!writes, "read-only with a writer");
                        sb.remount(false).unwrap();
                    }
                }
                _ => {
                    let path = format!("/{index}");
                    drop(root.open(&path, OpenFlags::READ).unwrap());
                    match root.open(&path, OpenFlags::WRITE) {
                        Ok(file) => {
                            assert!(!sb.is_read_only());
                            handed.lock().unwrap().push(file);
                        }
                        Err(error) => assert_eq!(error.errno(), Errno::EROFS),
                    }
                    drop(handed.lock().unwrap().pop());
                }
            }
        },
        |(root, _, handed)| {
            assert!(handed.lock().unwrap().is_empty());
            let sb = root.root().superblock();
            assert_eq!(sb.open_files().len(), 1);
            let stats = sb.open_file_stats();
            let closed = stats.closed_on_cpu + stats.closed_on_node + stats.closed_elsewhere;
            assert_eq!(stats.opened, closed + 1);
            sb.remount(true).unwrap();
        },
    );
}
