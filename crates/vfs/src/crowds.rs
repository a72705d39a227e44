//! Crowds: eight threads on a file system in memory, in schedules that shuttle chooses.
//!
//! What loom explores with two threads in every way ([`crate::models`]) is here run with many: names that move, are made
//! and removed, rights that change, while others look. The tables have few buckets and the caches few entries, so that
//! everybody meets everybody. Memory is sequentially consistent here; what weaker memory does is for loom to say.

use std::collections::HashSet;
use std::sync::Arc;

use extern4_sync::model::crowd;
use extern4_sync::primitive::{AtomicU64, Mutex, Ordering};
use extern4_sync::rcu::pin;

use crate::acl::{Acl, AclKind};
use crate::attr::{Attr, Rdev, Timespec};
use crate::cred::Cred;
use crate::errno::Errno;
use crate::file::{OpenFile, OpenFlags};
use crate::fs::{NewKind, RenameFlags, XattrFlags};
use crate::memfs::{MemFs, MemLimits};
use crate::mount::{Location, Namespace};
use crate::namei::How;
use crate::permission::Access;
use crate::session::Session;
use crate::superblock::{SuperBlock, SuperOptions};

const THREADS: usize = 8;

fn world() -> Session {
    let options =
        SuperOptions { max_dentries: 8, max_inodes: 8, max_negatives_per_dir: 3, ..SuperOptions::default() };
    let sb = SuperBlock::new(MemFs::new(MemLimits::default()), options).unwrap();
    Session::new(&Namespace::new(sb), Cred::root())
}

fn make_file(root: &Session, path: &str) -> u64 {
    root.mknod(path, NewKind::Regular, 0o644).unwrap().ino()
}

/// The inode number behind a path, if it is there.
fn ino(root: &Session, path: &str) -> Option<u64> {
    match root.stat(path, How::FOLLOW) {
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

/// Four files that move, each by a thread of its own, and four threads that look.
#[test]
fn names_that_move_are_found_at_one_place() {
    let setup = || {
        let root = world();
        for dir in ["/x", "/y"] {
            root.mkdir(dir, 0o755).unwrap();
        }
        let inos: Vec<u64> = (0..4).map(|n| make_file(&root, &format!("/x/{n}"))).collect();
        (root, inos)
    };
    crowd(
        THREADS,
        setup,
        |(root, inos), index| {
            let n = index % 4;
            let (from, to) = (format!("/x/{n}"), format!("/y/{n}"));
            if index < 4 {
                root.rename(&from, &to, RenameFlags::empty()).unwrap();
                assert_eq!((ino(root, &from), ino(root, &to)), (None, Some(inos[n])));
            } else {
                let (old, new) = (ino(root, &from), ino(root, &to));
                assert!(old.or(new) == Some(inos[n]), "the file {n} is nowhere, or another one");
                let (new, old) = (ino(root, &to), ino(root, &from));
                assert!(new.is_none() || old.is_none(), "the file {n} is at two places");
            }
        },
        |(root, inos)| assert!((0..4).all(|n| ino(root, &format!("/y/{n}")) == Some(inos[n]))),
    );
}

/// Two files move between two directories, to and fro, while they are exchanged, other names come and go beside them, and one of the
/// directories is removed if it is empty: nobody waits for ever, and no file gets lost.
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
    crowd(
        THREADS,
        setup,
        |(root, _), index| {
            let rename = |from, to, flags| match root.rename(from, to, flags) {
                Ok(()) => {}
                Err(error) => assert!([Errno::ENOENT, Errno::EEXIST].contains(&error.errno()), "{error}"),
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

/// One file is written over, and gets other permission bits, an ACL, extended attributes and names, and loses some: all of it is there in
/// the end, and nobody waits for ever.
#[test]
fn a_file_is_written_while_everything_else_of_it_changes() {
    let setup = || {
        let root = world();
        root.mkdir("/x", 0o755).unwrap();
        let ino = make_file(&root, "/a");
        for name in ["/b", "/c", "/d"] {
            root.link("/a", How::FOLLOW, name).unwrap();
        }
        make_file(&root, "/e");
        let file = root.open("/a", OpenFlags::READ | OpenFlags::WRITE).unwrap();
        file.write_at(b"..", 0).unwrap();
        (root, ino, file)
    };
    const ATTRIBUTE: [&str; 2] = ["user.a", "user.b"];
    crowd(
        THREADS,
        setup,
        |(root, _, file), index| match index {
            0 | 1 => assert_eq!(file.write_at(b"x", index as u64).unwrap(), 1),
            2 => root.chmod("/a", 0o600, How::FOLLOW).unwrap(),
            3 | 4 => {
                let name = ATTRIBUTE[index - 3];
                root.set_xattr("/a", name, b"value", XattrFlags::empty(), How::FOLLOW).unwrap();
            }
            5 => root.link("/a", How::FOLLOW, "/f").unwrap(),
            6 => root.rename("/e", "/b", RenameFlags::empty()).unwrap(),
            _ => {
                root.rename("/c", "/x/c", RenameFlags::empty()).unwrap();
                root.unlink("/d").unwrap();
            }
        },
        |(root, right, file)| {
            let attr = root.stat("/a", How::FOLLOW).unwrap();
            assert_eq!((attr.ino, attr.mode, attr.nlink), (*right, 0o600, 3));
            let names = ["/b", "/c", "/d", "/x/c", "/f"].map(|name| ino(root, name) == Some(*right));
            assert_eq!(names, [false, false, false, true, true]);
            for name in ATTRIBUTE {
                assert_eq!(root.get_xattr("/a", name, How::FOLLOW).unwrap(), b"value");
            }
            let mut bytes = [0; 2];
            assert_eq!((file.read_at(&mut bytes, 0).unwrap(), bytes), (2, *b"xx"));
        },
    );
}

/// A file gets another name, by which it is removed before the rename is done, while what nobody uses is let go of, and others ask for the
/// old name: all of them are answered.
#[test]
fn a_file_is_removed_by_its_new_name_while_it_is_moved() {
    let setup = || {
        let root = world();
        make_file(&root, "/old");
        root
    };
    let is_absent = |error: &crate::Error| error.errno() == Errno::ENOENT;
    crowd(
        THREADS,
        setup,
        move |root: &Session, index| match index {
            0 => root.rename("/old", "/new", RenameFlags::empty()).unwrap(),
            1 | 2 => drop(root.unlink("/new").inspect_err(|error| assert!(is_absent(error)))),
            3 | 4 => root.root().superblock().drop_caches(),
            _ => drop(root.stat("/old", How::FOLLOW).inspect_err(|error| assert!(is_absent(error)))),
        },
        |root| {
            assert_eq!(ino(root, "/old"), None);
            drop(root.unlink("/new"));
            assert_eq!(ino(root, "/new"), None);
        },
    );
}

/// Two files get and lose names in every way, while what nobody uses is let go of and others ask for the names: all are answered, and in the
/// end each file has as many links as names, and is gone if it has none.
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
    crowd(
        THREADS,
        setup,
        |root: &Session, index| {
            let changed = match index {
                0 => root.rename("/a", "/c", RenameFlags::empty()),
                1 => root.rename("/b", "/c", RenameFlags::NOREPLACE),
                2 => root.rename("/c", "/b", RenameFlags::EXCHANGE),
                3 => root.link("/b", How::NOFOLLOW, "/a").and_then(|()| root.unlink("/b")),
                4 => root.unlink("/c"),
                5 => root
                    .chmod("/c", 0o600, How::FOLLOW)
                    .and_then(|()| root.rename("/c", "/a", RenameFlags::empty())),
                6 => {
                    root.root().superblock().drop_caches();
                    Ok(())
                }
                _ => NAMES.iter().try_for_each(|name| root.stat(name, How::NOFOLLOW).map(drop)),
            };
            let refused = changed.err().map(|error| error.errno());
            assert!(matches!(refused, None | Some(Errno::ENOENT | Errno::EEXIST)), "{index}: {refused:?}");
        },
        |root| {
            let there: Vec<_> = NAMES.iter().filter_map(|name| root.stat(name, How::NOFOLLOW).ok()).collect();
            for attr in &there {
                let names = there.iter().filter(|other| other.ino == attr.ino).count();
                assert_eq!(attr.nlink as usize, names);
            }
            let files: HashSet<_> = there.iter().map(|attr| attr.ino).collect();
            assert_eq!(used_inodes(root), 1 + files.len() as u64);
        },
    );
}

/// Directories move under those who walk through them, and everything is thrown out of the caches meanwhile.
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
    crowd(
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

/// Everybody makes and removes the same two names.
#[test]
fn a_name_is_made_once_and_removed_once() {
    let setup = || (world(), AtomicU64::new(0));
    crowd(
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
            let found = ["/p", "/q"].iter().filter(|path| ino(root, path).is_some()).count();
            assert_eq!(found as u64, there.load(Ordering::SeqCst));
        },
    );
}

/// Who removes a directory and who makes names in it: one of them is refused.
#[test]
fn nothing_is_made_in_a_removed_directory() {
    let setup = || {
        let root = world();
        root.mkdir("/d", 0o755).unwrap();
        (root, AtomicU64::new(0))
    };
    crowd(
        THREADS,
        setup,
        |(root, made), index| match index {
            0 | 1 => {
                let _ = root.rmdir("/d");
            }
            _ => {
                if root.mknod(format!("/d/{}", index % 2), NewKind::Regular, 0o644).is_ok() {
                    made.fetch_add(1, Ordering::SeqCst);
                }
                ino(root, "/d/0");
            }
        },
        |(root, made)| {
            let found = (0..2).filter(|n| ino(root, &format!("/d/{n}")).is_some()).count();
            assert_eq!(found as u64, made.load(Ordering::SeqCst));
            assert_eq!(ino(root, "/d").is_some(), found > 0);
        },
    );
}

/// Rights change between two states, each of which refuses user 5: no mixture of the two lets it in.
#[test]
fn no_mixture_of_two_rights_is_ever_granted() {
    let setup = || {
        let root = world();
        root.mkdir("/d", 0o755).unwrap();
        make_file(&root, "/d/f");
        root.set_acl("/d", AclKind::Access, Some(refusing()), How::FOLLOW).unwrap();
        let user = root.with_cred(Cred::new(5, 5, &[]));
        (root, user)
    };
    crowd(
        THREADS,
        setup,
        |(root, user), index| match index {
            0 => {
                root.set_acl("/d", AclKind::Access, Some(Acl::from_mode(0o750)), How::FOLLOW).unwrap();
                root.set_acl("/d", AclKind::Access, Some(refusing()), How::FOLLOW).unwrap();
            }
            1 => root.root().superblock().drop_caches(),
            _ => {
                let refused = user.access("/d/f", Access::empty(), How::FOLLOW);
                assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::EACCES));
            }
        },
        |(root, _)| assert!(ino(root, "/d/f").is_some()),
    );
}

/// Everybody may search, but user 5.
fn refusing() -> Acl {
    "u::rwx,u:5:---,g::r-x,m::r-x,o::r-x".parse().unwrap()
}

/// Everybody links and unlinks one file: it is freed once, with its last link.
#[test]
fn the_last_link_frees_the_file() {
    let setup = || {
        let root = world();
        make_file(&root, "/f");
        let used = used_inodes(&root);
        (root, used)
    };
    crowd(
        THREADS,
        setup,
        |(root, _), index| {
            let name = format!("/l{index}");
            // Whoever comes after the last name has gone cannot link it any more.
            if root.link("/f", How::FOLLOW, &name).is_ok() {
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

/// Links take the place of another, one after the other, under those who follow it.
#[test]
fn symlink_replace_vs_follow() {
    /// Which of the targets the link leads to.
    fn follow((root, targets): &(Session, [u64; 3])) -> usize {
        let ino = ino(root, "/s").expect("there is always a link");
        targets.iter().position(|&target| target == ino).expect("a target of one of the links")
    }
    let setup = || {
        let root = world();
        let targets = [("/x", "/s"), ("/y", "/t"), ("/z", "/u")].map(|(file, link)| {
            root.symlink(file, link).unwrap();
            make_file(&root, file)
        });
        (root, targets)
    };
    crowd(
        THREADS,
        setup,
        |shared, index| match index {
            0 => {
                for (n, link) in ["/t", "/u"].into_iter().enumerate() {
                    shared.0.rename(link, "/s", RenameFlags::empty()).unwrap();
                    assert_eq!((ino(&shared.0, link), follow(shared)), (None, n + 1));
                }
            }
            1 => shared.0.root().superblock().drop_caches(),
            _ => {
                let before = follow(shared);
                let moved = ino(&shared.0, "/t").is_none();
                assert!(before == 0 || moved, "at two places");
                // What is replaced loses its link while nobody finds it.
                let link = shared.0.stat_cached(b"/s", How::NOFOLLOW, &mut None);
                assert!(link.is_none_or(|link| link.nlink == 1), "a link that has gone");
                assert!(follow(shared) >= before.max(usize::from(moved)), "and back");
            }
        },
        |shared| assert_eq!(follow(shared), 2),
    );
}

/// `attr` as the one who changes attributes for the `n`-th time leaves them.
fn stamped(attr: Attr, n: u32) -> Attr {
    let time = Timespec { sec: n.into(), nsec: n };
    Attr {
        uid: n,
        gid: n,
        nlink: n + 1,
        rdev: Rdev { major: n, minor: n },
        size: n.into(),
        blocks: n.into(),
        blksize: n,
        atime: time,
        mtime: time,
        ctime: time,
        btime: Some(time),
        project: n,
        mode: u16::try_from(n).unwrap(),
        ..attr
    }
}

/// All attributes of a file change together: nobody reads some of one moment and some of another.
#[test]
fn stat_torn_attrs() {
    const WRITERS: usize = 3;
    fn read((root, file): &(Session, Location)) -> u32 {
        let attr = root.stat("/f", How::FOLLOW).unwrap();
        assert_eq!(attr, stamped(attr, attr.uid), "torn");
        let (uid, gid, bits, _) = file.inode().standing(&pin());
        assert!(uid == gid && uid == u32::from(bits.mode() & 0o7777) && uid >= attr.uid, "torn, or and back");
        uid
    }
    let setup = || {
        let root = world();
        make_file(&root, "/f");
        // In use, so that it is not read anew from the file system, which knows nothing of what we do here.
        let file = root.locate("/f", How::FOLLOW).unwrap();
        file.inode().update(|attr| *attr = stamped(*attr, 0));
        (root, file)
    };
    crowd(
        THREADS,
        setup,
        |shared, index| {
            if index < WRITERS {
                shared.1.inode().update(|attr| *attr = stamped(*attr, attr.uid + 1));
            } else {
                let before = read(shared);
                assert!(read(shared) >= before, "and back");
            }
        },
        |shared| assert_eq!(read(shared) as usize, WRITERS),
    );
}

/// A name that is known not to exist is made: whoever has seen it sees it from then on.
#[test]
fn negative_then_create() {
    let setup = || {
        let (root, made) = (world(), AtomicU64::new(0));
        root.mkdir("/d", 0o755).unwrap();
        assert_eq!(ino(&root, "/d/0"), None);
        (root, made)
    };
    crowd(
        THREADS,
        setup,
        |(root, made), index| match index {
            0 | 1 => {
                if let Ok(file) = root.mknod("/d/0", NewKind::Regular, 0o644) {
                    assert_eq!(made.swap(file.ino(), Ordering::SeqCst), 0, "made twice");
                }
                assert!(ino(root, "/d/0").is_some(), "its maker does not know of it");
            }
            2 => root.root().superblock().drop_caches(),
            // More names that are not there than a directory may have in the cache.
            3 => (1..6).for_each(|n| assert_eq!(ino(root, &format!("/d/{n}")), None)),
            _ => {
                let before = ino(root, "/d/0");
                let after = ino(root, "/d/0");
                assert!(before.is_none() || before == after, "there, and gone again");
            }
        },
        |(root, made)| assert_eq!(ino(root, "/d/0"), Some(made.load(Ordering::SeqCst))),
    );
}

/// An ACL is read for the first time while it is changed, and taken away: nobody keeps an old one.
#[test]
fn acl_fill_vs_set() {
    /// The ACLs that the file has, one after the other.
    fn acls() -> [Option<Acl>; 3] {
        let of = |uid: u32| format!("u::rw-,u:{uid}:r--,g::---,m::r--,o::---").parse().unwrap();
        [Some(of(1)), Some(of(2)), None]
    }
    /// Which of them it has now.
    fn current(root: &Session) -> usize {
        let acl = root.acl("/f", AclKind::Access, How::FOLLOW).unwrap();
        acls().iter().position(|known| known.as_ref() == acl.as_deref()).expect("one of these")
    }
    fn may_read(user: &Session) -> bool {
        user.access("/f", Access::READ, How::FOLLOW).is_ok()
    }
    let setup = || {
        let root = world();
        make_file(&root, "/f");
        let set = |acl| root.set_acl("/f", AclKind::Access, acl, How::FOLLOW).unwrap();
        set(acls()[0].clone());
        root.root().superblock().drop_caches();
        let users = [1, 2].map(|uid| root.with_cred(Cred::new(uid, uid, &[])));
        (root, users)
    };
    crowd(
        THREADS,
        setup,
        |(root, [first, second]), index| match index {
            0 => {
                let set = |acl| root.set_acl("/f", AclKind::Access, Some(acl), How::FOLLOW).unwrap();
                set(acls()[1].clone().unwrap());
                assert!(current(root) == 1 && !may_read(first) && may_read(second));
                set(Acl::from_mode(0o600));
                assert!(current(root) == 2 && !may_read(second));
            }
            1 => root.root().superblock().drop_caches(),
            2 | 3 => {
                let before = may_read(first);
                assert!(before || !may_read(first), "refused, and granted again");
            }
            _ => {
                let before = current(root);
                assert!(current(root) >= before, "and back");
            }
        },
        |(root, users)| assert!(current(root) == 2 && !users.iter().any(may_read)),
    );
}

/// A file of two names is thrown out of the cache and read again, while its rights change: there is one inode of it.
#[test]
fn inode_reuse_vs_walk() {
    let names = ["/d/a", "/d/b"];
    let may_read = |user: &Session, name: &str| user.access(name, Access::READ, How::FOLLOW).is_ok();
    let setup = move || {
        let root = world();
        root.mkdir("/d", 0o755).unwrap();
        make_file(&root, names[0]);
        root.link(names[0], How::FOLLOW, names[1]).unwrap();
        let user = root.with_cred(Cred::new(5, 5, &[]));
        (root, user, Mutex::new(Vec::new()))
    };
    crowd(
        THREADS,
        setup,
        move |(root, user, held), index| match index {
            0 => {
                root.chmod(names[0], 0o600, How::FOLLOW).unwrap();
                assert!(!names.iter().any(|name| may_read(user, name)));
            }
            1 | 2 => root.root().superblock().drop_caches(),
            _ => {
                let (one, other) = (names[index % 2], names[(index + 1) % 2]);
                let before = may_read(user, one);
                let found = root.locate(one, How::FOLLOW).unwrap();
                assert!(before || !may_read(user, other), "refused, and granted again");
                held.lock().unwrap().push(found);
            }
        },
        move |(root, _, held)| {
            let now = root.locate(names[0], How::FOLLOW).unwrap();
            let one = |found: &Location| std::ptr::eq(found.inode(), now.inode());
            assert!(held.lock().unwrap().iter().all(one), "two inodes of one number in use");
        },
    );
}

/// Files are opened and closed by all, some closed by others than their openers, while two list them and one keeps turning the file system
/// read-only: every list has what is open throughout, and nobody writes to what is read-only.
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
    crowd(
        THREADS,
        setup,
        |(root, stays, handed): &Shared, index| {
            let sb = root.root().superblock();
            match index {
                0 | 1 => {
                    let list = sb.open_files();
                    let there = list.iter().filter(|open| open.ino == stays.location().ino());
                    assert_eq!(there.count(), 1, "{list:?}");
                    assert!(list.iter().all(|open| open.path.len() == 2 && open.uid == 0), "{list:?}");
                }
                2 => {
                    if sb.remount(true).is_ok() {
                        let writes = sb.open_files().iter().any(|open| open.flags == OpenFlags::WRITE);
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
