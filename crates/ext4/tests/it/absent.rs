//! Names that are not there: directories map their names in memory, and no name that is there is
//! taken for absent.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extern4_block::MemoryDevice;
use extern4_ext4::Ext4;
use extern4_testkit::image::ImageSpec;
use extern4_vfs::{Errno, InodeOps, LookupFlags, NewKind, RenameFlags, Session};

use crate::memory;
use crate::model::session;
use crate::walk;

const LINEAR: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-O",
    "^dir_index",
    "-J",
    "size=4",
];
const HASHED: &[&str] = &["-t", "ext4", "-b", "1024", "-J", "size=4"];
const INLINE: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-O",
    "inline_data",
    "-J",
    "size=4",
];

fn volume(mke2fs: &'static [&'static str]) -> Option<(Arc<Ext4>, Session)> {
    let spec = ImageSpec::new("ext4-absent", 32 << 20, mke2fs);
    if !spec.can_run() {
        return None;
    }
    let bytes = std::fs::read(&spec.build().path).expect("the image is read");
    let fs = memory::open(spec.name, &Arc::new(MemoryDevice::new(bytes)));
    Some((Arc::clone(&fs), session(fs)))
}

fn is_there(session: &Session, path: &str) -> bool {
    match session.stat(path, LookupFlags::FOLLOW) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Errno::ENOENT, "{path}");
            false
        }
    }
}

fn make(session: &Session, path: &str) {
    session
        .mknod(path, NewKind::Regular, 0o644)
        .unwrap_or_else(|e| panic!("{path}: {e}"));
}

#[test]
fn absent_names_cost_no_lookup_and_no_dentry() {
    for (mke2fs, files) in [(LINEAR, 300), (HASHED, 300), (INLINE, 2)] {
        let Some((fs, session)) = volume(mke2fs) else {
            return;
        };
        session.mkdir("/d", 0o755).unwrap();
        (0..files).for_each(|at| make(&session, &format!("/d/a-name-of-some-length-{at}")));
        let sb = Arc::clone(session.root().superblock());
        (0..200).for_each(|at| assert!(!is_there(&session, &format!("/d/first-{at}"))));
        let before = sb.stats();
        for at in 0..1000 {
            assert!(!is_there(&session, &format!("/d/absent-{at}")));
        }
        assert_eq!(
            (sb.stats().lookups, sb.stats().dentries),
            (before.lookups, before.dentries)
        );
        for at in 0..100 {
            let old = format!("/d/old-{at}");
            let new = format!("/d/new-{at}");
            make(&session, &old);
            sb.drop_caches();
            assert!(is_there(&session, &old) && !is_there(&session, &new));
            session.rename(&old, &new, RenameFlags::empty()).unwrap();
            sb.drop_caches();
            assert!(!is_there(&session, &old) && is_there(&session, &new));
            if at % 2 == 0 {
                session.unlink(&new).unwrap();
                sb.drop_caches();
                assert!(!is_there(&session, &new));
            }
        }
        drop((session, sb));
        fs.close().unwrap();
    }
}

/// A thread renames a file from `0` to `1`, `2` and so on, and another makes and removes files,
/// while others ask for the names with caches that are dropped all the time.
#[test]
fn no_name_is_absent_that_another_thread_has_left_there() {
    for mke2fs in [LINEAR, HASHED, INLINE] {
        let Some((fs, session)) = volume(mke2fs) else {
            return;
        };
        const CHANGES: u64 = 1500;
        session.mkdir("/d", 0o755).unwrap();
        (0..40).for_each(|at| make(&session, &format!("/d/stays-{at}")));
        make(&session, "/d/0");
        // Keeps the directory, and so its map, in use.
        let _dir = session.locate("/d", LookupFlags::FOLLOW).unwrap();
        let sb = Arc::clone(session.root().superblock());
        let [renamed, begun, made] = [0, 0, 0].map(AtomicU64::new);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..CHANGES {
                    begun.store(at + 1, Ordering::SeqCst);
                    let from = format!("/d/{at}");
                    let to = format!("/d/{}", at + 1);
                    session.rename(&from, &to, RenameFlags::empty()).unwrap();
                    renamed.store(at + 1, Ordering::SeqCst);
                }
            });
            scope.spawn(|| {
                for at in 0..CHANGES {
                    make(&session, &format!("/d/made-{at}"));
                    made.store(2 * at + 1, Ordering::SeqCst);
                    made.store(2 * at + 2, Ordering::SeqCst);
                    session.unlink(format!("/d/made-{at}")).unwrap();
                }
            });
            for reader in 0..2_u64 {
                let session = &session;
                let sb = &sb;
                let renamed = &renamed;
                let begun = &begun;
                let made = &made;
                scope.spawn(move || {
                    for turn in reader.. {
                        if turn % 4 == 0 {
                            sb.drop_caches();
                        }
                        let at = renamed.load(Ordering::SeqCst);
                        if !is_there(session, &format!("/d/{at}")) {
                            assert!(begun.load(Ordering::SeqCst) > at, "{at} was there");
                        }
                        assert!(at == 0 || !is_there(session, &format!("/d/{}", at - 1)));
                        let state = made.load(Ordering::SeqCst);
                        let there = is_there(session, &format!("/d/made-{}", state / 2));
                        let is_still = made.load(Ordering::SeqCst) == state;
                        assert!(
                            there || state % 2 == 0 || !is_still,
                            "made-{} was there",
                            state / 2
                        );
                        assert!(is_there(session, &format!("/d/stays-{}", turn % 40)));
                        if at == CHANGES {
                            return;
                        }
                    }
                });
            }
        });
        drop((session, sb, _dir));
        fs.close().unwrap();
    }
}

#[test]
fn a_damaged_directory_goes_on_to_fail_lookups() {
    let spec = ImageSpec::new(
        "ext4-absent",
        16 << 20,
        &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
    );
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let commands: String = (0..60)
        .map(|at| format!("symlink /a-name-of-some-length-{at} to\n"))
        .collect();
    image.debugfs(&commands);
    let block = image.debugfs("bmap / 1\n");
    let block: u64 = block
        .trim()
        .rsplit('\n')
        .next()
        .unwrap_or("")
        .parse()
        .expect("a block");
    let file = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("the image");
    // The length of the first record.
    file.write_all_at(&[1], block * 1024 + 4).expect("a write");
    let fs = walk::open(&image.path);
    let root = walk::inode(&fs, 2).expect("the root");
    for at in 0..50 {
        let error = fs
            .lookup(&root, format!("absent-{at}").as_bytes())
            .expect_err("damage");
        assert_eq!(error, Errno::EUCLEAN);
        assert!(!fs.is_absent(&root, b"absent"));
        assert!(
            fs.lookup(&root, b"a-name-of-some-length-0")
                .expect("a name before it")
                .is_some()
        );
    }
}
