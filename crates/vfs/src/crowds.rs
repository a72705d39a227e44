//! Crowds: eight threads on a file system in memory, in schedules that shuttle chooses.
//!
//! What loom explores with two threads in every way ([`crate::models`]) is here run with many: names that move, are made
//! and removed, rights that change, while others look. The tables have few buckets and the caches few entries, so that
//! everybody meets everybody. Memory is sequentially consistent here; what weaker memory does is for loom to say.

use std::sync::Arc;

use extern4_sync::model::crowd;
use extern4_sync::primitive::{AtomicU64, Ordering};

use crate::acl::{Acl, AclKind};
use crate::cred::Cred;
use crate::errno::Errno;
use crate::fs::{NewKind, RenameFlags};
use crate::memfs::{MemFs, MemLimits};
use crate::mount::Namespace;
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
