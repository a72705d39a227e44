//! Path walk on a tree that does not change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extern4_vfs::*;

use crate::fixture::{put, volume_with};
use crate::tree::TreeFs;

fn tree() -> Arc<TreeFs> {
    TreeFs::new(&[
        ("/a", "dir", 0o755, 0, 0),
        ("/a/b", "dir", 0o755, 0, 0),
        ("/a/b/f", "file", 0o644, 1, 1),
        ("/a/up", "../a/b", 0o777, 0, 0),
        ("/a/abs", "/a/b/", 0o777, 0, 0),
        ("/a/file", "b/f", 0o777, 0, 0),
        ("/a/fileslash", "b/f/", 0o777, 0, 0),
        ("/a/root", "/", 0o777, 0, 0),
        ("/a/out", "../../../..", 0o777, 0, 0),
        ("/dangling", "nowhere", 0o777, 0, 0),
        ("/loop", "loop", 0o777, 0, 0),
        ("/ping", "pong/x", 0o777, 0, 0),
        ("/pong", "ping/x", 0o777, 0, 0),
        ("/shut", "dir", 0o700, 1, 1),
        ("/shut/f", "file", 0o666, 1, 1),
        ("/noexec", "dir", 0o644, 1, 1),
        ("/noexec/f", "file", 0o666, 1, 1),
    ])
}

fn session(cred: Cred) -> Session {
    let sb = SuperBlock::new(tree(), SuperOptions::default()).unwrap();
    Session::new(&Namespace::new(sb), cred)
}

fn ino(session: &Session, path: &str) -> u64 {
    session.stat(path, LookupFlags::NOFOLLOW).unwrap().ino
}

#[test]
fn paths_lead_where_they_say() {
    let mut session = session(Cred::root());
    let same = |session: &Session, path: &str, as_path: &str| {
        let got = session
            .stat(path, LookupFlags::FOLLOW)
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(got.ino, ino(session, as_path), "{path}");
    };
    for (path, as_path) in [
        ("/", "/"),
        ("//", "/"),
        ("/.", "/"),
        ("/..", "/"),
        ("/../..//a/./b/../b/f", "/a/b/f"),
        ("/a/b//", "/a/b"),
        ("a/b/f", "/a/b/f"),
        ("a/up/f", "/a/b/f"),
        ("a/up", "/a/b"),
        ("a/up/..", "/a"),
        ("a/abs/f", "/a/b/f"),
        ("a/abs", "/a/b"),
        ("a/file", "/a/b/f"),
        ("a/root/a/root/a", "/a"),
        ("a/root", "/"),
        ("a/out", "/"),
        ("a/out/a", "/a"),
    ] {
        same(&session, path, as_path);
    }
    session.chdir("/a/b").unwrap();
    for (path, as_path) in [
        ("f", "/a/b/f"),
        (".", "/a/b"),
        ("..", "/a"),
        ("../../a/up", "/a/b"),
        ("../..", "/"),
    ] {
        same(&session, path, as_path);
    }
    assert_eq!(session.getcwd(), b"/a/b");
}

#[test]
fn errors_are_linux_s() {
    let root = session(Cred::root());
    let long_name = "n".repeat(256);
    let long_path = "/".repeat(4096);
    for (path, follow, errno) in [
        ("", true, Errno::ENOENT),
        ("/nowhere", true, Errno::ENOENT),
        ("/nowhere/", true, Errno::ENOENT),
        ("/nowhere/x", true, Errno::ENOENT),
        ("/dangling", true, Errno::ENOENT),
        ("/dangling/", false, Errno::ENOENT),
        ("/a/b/f/", true, Errno::ENOTDIR),
        ("/a/b/f/x", true, Errno::ENOTDIR),
        ("/a/b/f/..", true, Errno::ENOTDIR),
        ("/a/b/f/.", true, Errno::ENOTDIR),
        ("/a/file/", true, Errno::ENOTDIR),
        ("/a/fileslash", true, Errno::ENOTDIR),
        ("/loop", true, Errno::ELOOP),
        ("/loop/", false, Errno::ELOOP),
        ("/ping", true, Errno::ELOOP),
        (&long_name, true, Errno::ENAMETOOLONG),
        (&long_path, true, Errno::ENAMETOOLONG),
        ("a\0b", true, Errno::EINVAL),
        ("/unseen/a\0b", true, Errno::EINVAL),
    ] {
        let how = if follow {
            LookupFlags::FOLLOW
        } else {
            LookupFlags::NOFOLLOW
        };
        let got = root.stat(path, how).map(|attr| attr.ino);
        assert_eq!(got.unwrap_err().errno(), errno, "{path}");
    }
    assert!(root.stat("/loop", LookupFlags::NOFOLLOW).is_ok());
    assert!(root.stat(&long_path[1..], LookupFlags::FOLLOW).is_ok());
    assert_eq!(
        root.stat(&long_name[1..], LookupFlags::FOLLOW).unwrap_err(),
        Errno::ENOENT
    );
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let names: Vec<(String, String)> = (1..=41)
        .map(|n| {
            (
                format!("/l{n}"),
                if n == 1 {
                    "file".into()
                } else {
                    format!("l{}", n - 1)
                },
            )
        })
        .collect();
    let mut table = vec![("/file", "file", 0o644, 0, 0)];
    // A table's second column is a kind or a target: the first link's target must not read as a
    // kind.
    table.extend(names.iter().map(|(path, to)| {
        (
            path.as_str(),
            if to == "file" { "./file" } else { to.as_str() },
            0o777,
            0,
            0,
        )
    }));
    let sb = SuperBlock::new(TreeFs::new(&table), SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(sb), Cred::root());
    assert!(session.stat("/l40", LookupFlags::FOLLOW).is_ok());
    assert_eq!(
        session.stat("/l41", LookupFlags::FOLLOW).unwrap_err(),
        Errno::ELOOP
    );
}

#[test]
fn every_directory_on_the_way_must_be_searchable() {
    let other = session(Cred::new(2, 2, &[]));
    let owner = session(Cred::new(1, 1, &[]));
    for path in [
        "/shut/f",
        "/shut/nowhere",
        "/shut/.",
        "/shut/..",
        "/shut/../a",
        "/noexec/f",
    ] {
        assert_eq!(
            other.stat(path, LookupFlags::FOLLOW).unwrap_err(),
            Errno::EACCES,
            "{path}"
        );
    }
    assert!(other.stat("/shut", LookupFlags::FOLLOW).is_ok());
    assert!(owner.stat("/shut/f", LookupFlags::FOLLOW).is_ok());
    assert_eq!(
        owner.stat("/noexec/f", LookupFlags::FOLLOW).unwrap_err(),
        Errno::EACCES
    );
    let searcher = session(Cred::new(2, 2, &[]).with_caps(Caps::DAC_READ_SEARCH));
    assert!(searcher.stat("/shut/f", LookupFlags::FOLLOW).is_ok());
    assert_eq!(
        searcher
            .access("/shut", Access::WRITE, LookupFlags::FOLLOW)
            .unwrap_err(),
        Errno::EROFS
    );
}

#[test]
fn resolve_flags_limit_the_walk() {
    let session = session(Cred::root());
    let a = session.at(&session.locate("/a", LookupFlags::FOLLOW).unwrap());
    let stat = |path: &str, resolve| {
        a.stat(path, resolve | LookupFlags::FOLLOW)
            .map(|attr| attr.ino)
    };
    let check = |path: &str, resolve, want: std::result::Result<&str, Errno>| {
        let got = stat(path, resolve).map_err(|error| error.errno());
        assert_eq!(
            got,
            want.map(|as_path| ino(&session, as_path)),
            "{path} {resolve:?}"
        );
    };
    for (path, want) in [
        ("b/f", Ok("/a/b/f")),
        ("b/..", Ok("/a")),
        ("b/../..", Err(Errno::EXDEV)),
        ("..", Err(Errno::EXDEV)),
        ("/a", Err(Errno::EXDEV)),
        ("up", Err(Errno::EXDEV)),
        ("abs", Err(Errno::EXDEV)),
        ("file", Ok("/a/b/f")),
    ] {
        check(path, LookupFlags::BENEATH, want);
    }
    for (path, want) in [
        ("/b/f", Ok("/a/b/f")),
        ("..", Ok("/a")),
        ("root", Ok("/a")),
        ("out", Ok("/a")),
        ("abs", Err(Errno::ENOENT)),
        ("up", Err(Errno::ENOENT)),
    ] {
        check(path, LookupFlags::IN_ROOT, want);
    }
    for (path, want) in [
        ("b/f", Ok("/a/b/f")),
        ("file", Err(Errno::ELOOP)),
        ("up/f", Err(Errno::ELOOP)),
    ] {
        check(path, LookupFlags::NO_SYMLINKS, want);
    }
    check(
        "b",
        LookupFlags::BENEATH | LookupFlags::IN_ROOT,
        Err(Errno::EINVAL),
    );
    check(
        "up",
        LookupFlags::NO_XDEV | LookupFlags::NO_MAGICLINKS,
        Ok("/a/b"),
    );
}

/// Acts at the second search check of one directory. The first comes from the RCU walk, which
/// leaves a scoped `..` to the walk with references.
struct OnTheWayUp {
    ino: OnceLock<u64>,
    asked: AtomicU64,
    act: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl SecurityHook for OnTheWayUp {
    fn permission(&self, _: &Cred, inode: &Inode, _: Access) -> Result<()> {
        if self.ino.get() == Some(&inode.ino()) && self.asked.fetch_add(1, Ordering::Relaxed) == 1 {
            (self.act.get().unwrap())();
        }
        Ok(())
    }
}

#[test]
fn a_walk_does_not_leave_its_scope_with_a_directory_that_moves() {
    for (from, to, flags) in [
        ("/jail/d", "/out/d", RenameFlags::empty()),
        ("/jail/d", "/out/f", RenameFlags::EXCHANGE),
        ("/out/f", "/jail/d", RenameFlags::EXCHANGE),
    ] {
        let hook = Arc::new(OnTheWayUp {
            ino: OnceLock::new(),
            asked: AtomicU64::new(0),
            act: OnceLock::new(),
        });
        let options = SuperOptions {
            security: Some(hook.clone()),
            ..SuperOptions::default()
        };
        let root = volume_with(MemLimits::default(), options);
        for dir in ["/jail", "/jail/d", "/jail/d/in", "/out"] {
            root.mkdir(dir, 0o755).unwrap();
        }
        put(&root, "/out/f", b"");
        put(&root, "/secret", b"");
        let jail = root.at(&root.locate("/jail", LookupFlags::FOLLOW).unwrap());
        let mover = root.clone();
        let act = move || mover.rename(from, to, flags).unwrap();
        assert!(hook.act.set(Box::new(act)).is_ok());
        hook.ino.set(ino(&root, "/jail/d/in")).unwrap();
        for resolve in [LookupFlags::BENEATH, LookupFlags::IN_ROOT] {
            hook.asked.store(0, Ordering::Relaxed);
            let how = resolve | LookupFlags::FOLLOW;
            let got = jail.stat("d/in/../../../secret", how).unwrap_err();
            assert_eq!(got, Errno::EAGAIN, "{from} {to} {flags:?} {resolve:?}");
            let back = if flags.is_empty() {
                (to, from)
            } else {
                (from, to)
            };
            root.rename(back.0, back.1, flags).unwrap();
        }
    }
}

#[test]
fn a_session_does_not_leave_its_root() {
    let mut jail = session(Cred::root());
    let b = ino(&jail, "/a/b");
    jail.chroot("/a").unwrap();
    jail.chdir("/").unwrap();
    for path in ["/b", "../../b", "/../b", "b/../../../b"] {
        assert_eq!(ino(&jail, path), b, "{path}");
    }
    assert_eq!(jail.getcwd(), b"/");
    assert_eq!(
        jail.stat("/abs", LookupFlags::FOLLOW).unwrap_err(),
        Errno::ENOENT
    );
    let mut nobody = session(Cred::new(9, 9, &[]));
    assert_eq!(nobody.chroot("/a").unwrap_err(), Errno::EPERM);
}

#[test]
fn the_empty_path_is_the_base_if_asked_for() {
    let session = session(Cred::root());
    let file = session.locate("/a/b/f", LookupFlags::FOLLOW).unwrap();
    let at = session.at(&file);
    assert_eq!(
        at.stat("", LookupFlags::EMPTY_PATH).unwrap().ino,
        file.ino()
    );
    assert_eq!(at.stat("", LookupFlags::FOLLOW).unwrap_err(), Errno::ENOENT);
    assert_eq!(
        at.stat("x", LookupFlags::EMPTY_PATH).unwrap_err(),
        Errno::ENOTDIR
    );
    assert_eq!(
        at.stat("/a", LookupFlags::EMPTY_PATH).unwrap().ino,
        ino(&session, "/a")
    );
}

#[test]
fn mounts_cover_and_dotdot_leaves_them() {
    let session = session(Cred::root());
    let upper = TreeFs::new(&[
        ("/deep", "dir", 0o755, 0, 0),
        ("/deep/er", "file", 0o644, 0, 0),
    ]);
    let upper = SuperBlock::new(upper, SuperOptions::default()).unwrap();
    let at = session.locate("/a/b", LookupFlags::FOLLOW).unwrap();
    let file = session.locate("/a/b/f", LookupFlags::FOLLOW).unwrap();
    let namespace = session.namespace();
    assert_eq!(
        namespace
            .mount(&file, Arc::clone(&upper), false)
            .err()
            .unwrap(),
        Errno::ENOTDIR
    );
    namespace.mount(&at, Arc::clone(&upper), false).unwrap();
    assert_eq!(
        namespace
            .mount(&at, Arc::clone(&upper), false)
            .err()
            .unwrap(),
        Errno::EBUSY
    );

    let deep = session.locate("/a/up/deep", LookupFlags::FOLLOW).unwrap();
    assert_eq!(deep.superblock().id(), upper.id());
    assert_eq!(namespace.path_of(&deep, session.root()), b"/a/b/deep");
    assert_eq!(ino(&session, "/a/b/deep/../.."), ino(&session, "/a"));
    assert_eq!(
        session.stat("/a/b/f", LookupFlags::FOLLOW).unwrap_err(),
        Errno::ENOENT
    );
    let no_xdev = LookupFlags::NO_XDEV | LookupFlags::FOLLOW;
    assert_eq!(
        session.stat("/a/b/deep", no_xdev).unwrap_err(),
        Errno::EXDEV
    );
    assert_eq!(
        session.at(&deep).stat("../..", no_xdev).unwrap_err(),
        Errno::EXDEV
    );
    assert_eq!(
        session
            .at(&deep)
            .stat("/", no_xdev)
            .map(|attr| attr.ino)
            .unwrap(),
        1
    );

    let root = || session.locate("/a/b", LookupFlags::FOLLOW).unwrap();
    assert_eq!(namespace.unmount(root()).unwrap_err(), Errno::EBUSY);
    drop(deep);
    namespace.unmount(root()).unwrap();
    assert_eq!(namespace.unmount(root()).unwrap_err(), Errno::EINVAL);
    assert!(session.stat("/a/b/f", LookupFlags::FOLLOW).is_ok());
}

#[test]
fn a_miss_is_asked_for_once() {
    let fs = tree();
    let dyn_fs: Arc<dyn FileSystem> = Arc::<TreeFs>::clone(&fs);
    let sb = SuperBlock::new(dyn_fs, SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert!(session.stat("/a/b/f", LookupFlags::FOLLOW).is_ok());
                    assert_eq!(
                        session.stat("/a/b/none", LookupFlags::FOLLOW).unwrap_err(),
                        Errno::ENOENT
                    );
                }
            });
        }
    });
    assert_eq!(fs.lookups.load(Ordering::Relaxed), 4);
    assert_eq!(fs.reads.load(Ordering::Relaxed), 4);
    let stats = sb.stats();
    assert_eq!(
        (stats.lookups, stats.inode_reads, stats.full_searches),
        (4, 4, 0)
    );
    // One check a component, and more where a walk without a lock came to a name that was not
    // cached yet.
    assert!(stats.fast_searches >= 8 * 50 * 6 && stats.rcu_walks >= 8 * 50 * 2);
}

#[test]
fn a_walk_goes_on_where_it_met_an_unknown_name() {
    let sb = SuperBlock::new(tree(), SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
    let stat = |path: &str| session.stat(path, LookupFlags::FOLLOW).map(drop);
    stat("/a/b").unwrap();
    let calls: [&dyn Fn(); 4] = [
        &|| stat("/a/b/f").unwrap(),
        &|| assert_eq!(stat("/a/b/none").unwrap_err(), Errno::ENOENT),
        &|| {
            let readable = session.access("/a/./b/../abs", Access::READ, LookupFlags::NOFOLLOW);
            readable.unwrap();
        },
        &|| drop(session.locate("/a/up", LookupFlags::NOFOLLOW).unwrap()),
    ];
    for (call, searches) in calls.into_iter().zip([3, 3, 5, 2]) {
        let before = sb.stats();
        call();
        let after = sb.stats();
        // The directories above the name are passed once.
        assert_eq!(
            (
                after.rcu_walks - before.rcu_walks,
                after.walk_fallbacks - before.walk_fallbacks,
                after.fast_searches - before.fast_searches,
            ),
            (1, 1, searches)
        );
    }
}

/// A file system that adds checks gets the full check in every directory, and no other
/// walk.
#[test]
fn search_checks_are_fast_where_the_file_system_allows_it() {
    for (fast, searches) in [(true, (3, 0)), (false, (0, 3))] {
        let fs = tree();
        fs.fast_may_exec.store(fast, Ordering::Relaxed);
        let sb = SuperBlock::new(fs, SuperOptions::default()).unwrap();
        let session = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
        assert!(session.stat("/a/b/f", LookupFlags::FOLLOW).is_ok());
        let warm = sb.stats();
        assert!(session.stat("/a/b/f", LookupFlags::FOLLOW).is_ok());
        let stats = sb.stats();
        let counted = (
            stats.fast_searches - warm.fast_searches,
            stats.full_searches - warm.full_searches,
        );
        assert_eq!(counted, searches);
        assert_eq!(stats.rcu_walks - warm.rcu_walks, 1);
        assert_eq!(
            (stats.walk_fallbacks, stats.walk_restarts),
            (warm.walk_fallbacks, 0)
        );
    }
}

#[test]
fn caches_stay_within_their_limits() {
    let names: Vec<String> = (0..5000).map(|n| format!("/f{n}")).collect();
    let table: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "file", 0o644, 0, 0))
        .collect();
    let options = SuperOptions {
        budget: CacheBudget::new(640 << 10),
        ..Default::default()
    };
    let sb = SuperBlock::new(TreeFs::new(&table), options).unwrap();
    let session = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
    for name in &names {
        assert!(session.stat(name, LookupFlags::FOLLOW).is_ok());
    }
    let stats = sb.stats();
    assert!(
        (320..=2500).contains(&stats.dentries) && stats.inodes <= stats.dentries + 2,
        "{stats:?}"
    );
    sb.drop_caches();
    assert_eq!((sb.stats().dentries, sb.stats().inodes), (0, 1));
    for number in 0..10_000 {
        assert_eq!(
            session
                .stat(format!("/none{number}"), LookupFlags::FOLLOW)
                .unwrap_err(),
            Errno::ENOENT
        );
    }
    let negatives = sb.stats().dentries;
    assert!((320..=6000).contains(&negatives), "{negatives}");
}

#[test]
fn a_volume_that_is_opened_gets_room_from_others() {
    let names: Vec<String> = (0..5000).map(|n| format!("/f{n}")).collect();
    let table: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "file", 0o644, 0, 0))
        .collect();
    let budget = CacheBudget::new(1 << 20);
    let open = || {
        let options = SuperOptions {
            budget: Arc::clone(&budget),
            ..Default::default()
        };
        SuperBlock::new(TreeFs::new(&table), options).unwrap()
    };
    let read = |sb: &Arc<SuperBlock>| {
        let session = Session::new(&Namespace::new(Arc::clone(sb)), Cred::root());
        names
            .iter()
            .for_each(|name| assert!(session.stat(name, LookupFlags::FOLLOW).is_ok()));
    };
    let first = open();
    read(&first);
    let before = first.stats();
    assert!(
        before.evictions > 0 && before.memory_used > 900 << 10,
        "{before:?}"
    );
    let second = open();
    let after = first.stats();
    assert!(
        after.memory_used < 600 << 10 && after.dentries < before.dentries,
        "{after:?}"
    );
    read(&second);
    // Under memory pressure, all give up a part.
    let used = budget.used();
    assert!(budget.reclaim(used / 2) > used / 3);
    assert!(budget.used() < used * 2 / 3, "{} of {used}", budget.used());
    drop(first);
    budget.reclaim(u64::MAX);
    assert!(
        second.stats().dentries <= 1 && second.stats().inodes <= 2,
        "{:?}",
        second.stats()
    );
}

#[test]
fn a_file_system_is_let_go_with_its_superblock() {
    let fs = MemFs::new(MemLimits::default());
    let dyn_fs: Arc<dyn FileSystem> = Arc::<MemFs>::clone(&fs);
    let sb = SuperBlock::new(dyn_fs, SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(sb), Cred::root());
    session.mkdir("/a", 0o755).unwrap();
    session.mkdir("/a/b", 0o755).unwrap();
    for _ in 0..3 {
        assert!(session.stat("/a/b", LookupFlags::FOLLOW).is_ok());
        assert!(session.stat("/a/none", LookupFlags::FOLLOW).is_err());
    }
    assert!(Arc::strong_count(&fs) > 1);
    drop(session);
    // At once: whatever readers may still be looking at keeps memory, and nothing else.
    assert_eq!(Arc::strong_count(&fs), 1);
}

#[test]
fn a_removed_directory_is_let_go_though_names_in_it_were_asked_for() {
    let limits = MemLimits {
        inodes: 4,
        ..MemLimits::default()
    };
    let session = crate::fixture::volume_with(limits, SuperOptions::default());
    for _ in 0..20 {
        session.mkdir("/tmp/a", 0o755).unwrap();
        session.mkdir("/tmp/a/b", 0o755).unwrap();
        for _ in 0..3 {
            assert!(session.stat("/tmp/a/b/none", LookupFlags::FOLLOW).is_err());
            assert!(session.stat("/tmp/a/b", LookupFlags::FOLLOW).is_ok());
        }
        session.rmdir("/tmp/a/b").unwrap();
        session.rmdir("/tmp/a").unwrap();
        assert_eq!(
            session
                .stat("/tmp/a/b/none", LookupFlags::FOLLOW)
                .unwrap_err(),
            Errno::ENOENT
        );
    }
}

#[test]
fn listing_with_attributes_asks_the_directory_nothing() {
    let fs = tree();
    let dyn_fs: Arc<dyn FileSystem> = Arc::<TreeFs>::clone(&fs);
    let session = Session::new(
        &Namespace::new(SuperBlock::new(dyn_fs, SuperOptions::default()).unwrap()),
        Cred::root(),
    );
    let dir = session.open("/", OpenFlags::READ).unwrap();
    let mut batch = DirBatch::new();
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        dir.read_dir_plus(cookie, 3, &mut batch).unwrap();
        let Some(next) = batch.next_cookie() else {
            break;
        };
        seen.extend(
            batch
                .iter()
                .map(|entry| (entry.name.to_vec(), entry.attr.unwrap().ino == entry.ino)),
        );
        cookie = next;
    }
    assert_eq!(seen.len(), 7);
    assert!(seen.iter().all(|(_, same)| *same));
    // Directories can be walked into at once.
    assert!(
        session
            .at(dir.location())
            .stat("a", LookupFlags::FOLLOW)
            .is_ok()
    );
    assert_eq!(fs.lookups.load(Ordering::Relaxed), 0);
}

#[test]
fn a_batch_says_that_it_reaches_the_end_of_its_directory() {
    let sb = SuperBlock::new(tree(), SuperOptions::default()).unwrap();
    let dir = Session::new(&Namespace::new(sb), Cred::root())
        .open("/", OpenFlags::READ)
        .unwrap();
    let mut batch = DirBatch::new();
    // The root has seven entries. A batch of seven is full, so it does not say.
    for (max, reaches_end) in [(6, false), (7, false), (8, true)] {
        dir.read_dir(0, max, &mut batch).unwrap();
        assert_eq!(
            (batch.len(), batch.reaches_end()),
            (max.min(7), reaches_end)
        );
    }
    dir.read_dir(batch.next_cookie().unwrap(), 1, &mut batch)
        .unwrap();
    assert!(batch.is_empty() && batch.reaches_end());
}

#[test]
fn listing_with_places_asks_the_directory_nothing_and_leads_where_walks_do() {
    let fs = tree();
    let dyn_fs: Arc<dyn FileSystem> = Arc::<TreeFs>::clone(&fs);
    let sb = SuperBlock::new(dyn_fs, SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(sb), Cred::root());
    let dir = session.open("/a", OpenFlags::READ).unwrap();
    let before = fs.lookups.load(Ordering::Relaxed);
    let mut batch = DirBatch::new();
    let mut found = Vec::new();
    let mut cookie = 0;
    loop {
        let mut places = Vec::new();
        dir.read_dir_places(cookie, 3, &mut batch, &mut places)
            .unwrap();
        let Some(next) = batch.next_cookie() else {
            break;
        };
        found.extend(
            batch
                .iter()
                .zip(places)
                .map(|(entry, place)| (entry.name.to_vec(), entry.ino, place)),
        );
        cookie = next;
    }
    assert_eq!(fs.lookups.load(Ordering::Relaxed), before);
    for (name, ino, place) in found {
        let Some(place) = place else {
            assert!(name == b"." || name == b"..");
            continue;
        };
        let walked = session
            .at(dir.location())
            .locate(&name, LookupFlags::NOFOLLOW)
            .unwrap();
        assert!(
            place.is(&walked) && place.ino() == ino,
            "{}",
            name.escape_ascii()
        );
    }
    assert_eq!(fs.lookups.load(Ordering::Relaxed), before);
    let user = session.with_cred(Cred::new(9, 9, &[]));
    let shut = user.open("/noexec", OpenFlags::READ).unwrap();
    assert_eq!(
        shut.read_dir_places(0, 3, &mut batch, &mut Vec::new())
            .unwrap_err(),
        Errno::EACCES
    );
}

/// Reading an ACL may take long: memory that others give up must not wait for it.
#[test]
fn a_file_system_is_asked_for_acls_outside_of_read_sections() {
    let fs = TreeFs::new(&[
        ("/dir", "dir", 0o755, 0, 0),
        ("/dir/file", "file", 0o644, 0, 0),
    ]);
    fs.asks_for_acls.store(true, Ordering::Relaxed);
    let sb = SuperBlock::new(fs, SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(sb), Cred::new(1000, 1000, &[]));
    // By a walk, and at its end.
    session
        .access("/dir/file", Access::READ, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        session
            .access("/dir/file", Access::WRITE, LookupFlags::FOLLOW)
            .unwrap_err(),
        Errno::EROFS
    );
    assert_eq!(
        session
            .acl("/dir", AclKind::Default, LookupFlags::FOLLOW)
            .unwrap(),
        None
    );
}

#[test]
fn all_spellings_of_a_folded_name_share_a_dentry() {
    let fs = TreeFs::new(&[
        ("/plain", "dir", 0o755, 0, 0),
        ("/fold", "fold", 0o755, 0, 0),
        ("/fold/ReadMe", "file", 0, 0, 0),
    ]);
    let dyn_fs: Arc<dyn FileSystem> = Arc::<TreeFs>::clone(&fs);
    let sb = SuperBlock::new(dyn_fs, SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(sb), Cred::root());
    for name in ["readme", "README", "ReadMe"] {
        assert!(
            session
                .stat(format!("/fold/{name}"), LookupFlags::FOLLOW)
                .is_ok(),
            "{name}"
        );
        assert_eq!(
            session
                .stat(format!("/fold/x{name}"), LookupFlags::FOLLOW)
                .unwrap_err(),
            Errno::ENOENT
        );
        assert_eq!(
            session
                .stat(format!("/plain/{name}"), LookupFlags::FOLLOW)
                .unwrap_err(),
            Errno::ENOENT
        );
    }
    assert_eq!(
        session.stat("/FOLD", LookupFlags::FOLLOW).unwrap_err(),
        Errno::ENOENT
    );
    // `fold`, `plain`, `FOLD`; two names in the folding directory, three in the plain one.
    assert_eq!(fs.lookups.load(Ordering::Relaxed), 3 + 2 + 3);
}

#[test]
fn a_directory_with_two_names_is_damage_not_an_endless_path() {
    let fs = TreeFs::new(&[
        ("/a", "dir", 0o755, 0, 0),
        ("/a/b", "dir", 0o755, 0, 0),
        ("/a/b/up", "=/a", 0, 0, 0),
        ("/a/b/self", "=/a/b", 0, 0, 0),
        ("/a/b/root", "=/", 0, 0, 0),
        ("/twin", "=/a/b", 0, 0, 0),
        ("/f", "file", 0o644, 0, 0),
        ("/hard", "=/f", 0, 0, 0),
    ]);
    let sb = SuperBlock::new(fs, SuperOptions::default()).unwrap();
    let session = Session::new(&Namespace::new(Arc::clone(&sb)), Cred::root());
    for _ in 0..2 {
        for path in ["/a/b/up", "/a/b/self", "/a/b/root", "/a/b/up/b/up"] {
            let error = session.stat(path, LookupFlags::FOLLOW).unwrap_err();
            assert_eq!(error, Errno::EUCLEAN, "{path}");
            assert!(error.to_string().contains("has two names"), "{error}");
        }
        assert_eq!(
            session.stat("/f", LookupFlags::FOLLOW).unwrap().ino,
            session.stat("/hard", LookupFlags::FOLLOW).unwrap().ino
        );
        // Whichever name of the twins is used first counts while it is remembered.
        assert_eq!(
            session.stat("/twin", LookupFlags::FOLLOW).unwrap_err(),
            Errno::EUCLEAN
        );
        sb.drop_caches();
        assert!(session.stat("/twin", LookupFlags::FOLLOW).is_ok());
        sb.drop_caches();
    }
}

#[test]
fn a_link_says_the_same_read_and_read_again() {
    let session = session(Cred::new(1000, 1000, &[]));
    let mut target = b"something longer that was there before".to_vec();
    // First from the file system, then from what is cached.
    for _ in 0..2 {
        for (path, says) in [
            ("/a/up", "../a/b"),
            ("/loop", "loop"),
            ("/a/up/../../dangling", "nowhere"),
        ] {
            assert_eq!(
                &*session.read_link(path, LookupFlags::FOLLOW).unwrap(),
                says.as_bytes()
            );
            session
                .read_link_into(path, LookupFlags::FOLLOW, &mut target)
                .unwrap();
            assert_eq!(target, says.as_bytes());
        }
        let errors = [
            ("/a/b/f", Errno::EINVAL),
            ("/none", Errno::ENOENT),
            ("", Errno::ENOENT),
            ("/a/up/", Errno::EINVAL),
        ];
        for (path, errno) in errors {
            assert_eq!(
                session.read_link(path, LookupFlags::NOFOLLOW).unwrap_err(),
                errno,
                "{path}"
            );
            assert_eq!(
                session
                    .read_link_into(path, LookupFlags::NOFOLLOW, &mut target)
                    .unwrap_err(),
                errno,
                "{path}"
            );
        }
        assert_eq!(target, b"nowhere");
    }
}
