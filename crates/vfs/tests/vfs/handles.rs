//! Files found by number and generation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extern4_vfs::*;

use crate::fixture::{errno, get, put, sb, volume};

fn locate(root: &Session, ino: u64) -> Result<Location> {
    root.namespace().locate_inode(ino, None)
}

/// Number and generation of what `path` leads to.
fn handle(root: &Session, path: &str) -> (u64, u32) {
    let attr = root.stat(path, LookupFlags::NOFOLLOW).unwrap();
    (attr.ino, attr.generation)
}

#[test]
fn files_are_found_again_when_everything_else_is_forgotten() {
    let root = volume();
    root.mkdir("/tmp/dir", 0o755).unwrap();
    put(&root, "/tmp/dir/file", b"text");
    let (ino, generation) = handle(&root, "/tmp/dir/file");
    sb(&root).drop_caches();
    let found = root
        .namespace()
        .locate_inode(ino, Some(generation))
        .unwrap();
    let file = root
        .open_location(found.clone(), OpenFlags::READ | OpenFlags::WRITE, b"")
        .unwrap();
    assert_eq!(file.write_at(b"more", 4).unwrap(), 4);
    assert_eq!(get(&root, "/tmp/dir/file"), b"textmore");
    assert_eq!(
        file.stat(),
        root.stat("/tmp/dir/file", LookupFlags::FOLLOW).unwrap()
    );
    // It gets names like any other.
    root.at(&found)
        .link("", LookupFlags::EMPTY_PATH, "/tmp/second")
        .unwrap();
    assert_eq!(get(&root, "/tmp/second"), b"textmore");
    assert_eq!(
        errno(root.namespace().locate_inode(ino, Some(generation + 1))),
        Err(Errno::ESTALE)
    );
}

#[test]
fn directories_are_found_where_they_hang() {
    let root = volume();
    for dir in ["/tmp/a", "/tmp/a/b", "/tmp/a/b/c", "/tmp/a/other"] {
        root.mkdir(dir, 0o755).unwrap();
    }
    let (ino, _) = handle(&root, "/tmp/a/b/c");
    for forget in [false, true] {
        if forget {
            sb(&root).drop_caches();
        }
        let found = locate(&root, ino).unwrap();
        assert_eq!(root.at(&found).getcwd(), b"/tmp/a/b/c");
        assert!(found.is(&root.locate("/tmp/a/b/c", LookupFlags::FOLLOW).unwrap()));
        assert!(found.is(&root.namespace().locate_known_inode(ino).unwrap()));
        assert_eq!(
            root.at(&found)
                .locate("../..", LookupFlags::FOLLOW)
                .unwrap()
                .ino(),
            handle(&root, "/tmp/a").0
        );
    }
    sb(&root).drop_caches();
    root.rename("/tmp/a/b", "/tmp/a/other/b2", RenameFlags::empty())
        .unwrap();
    assert_eq!(
        root.at(&locate(&root, ino).unwrap()).getcwd(),
        b"/tmp/a/other/b2/c"
    );
    root.rename("/tmp/a/other/b2", "/tmp/a/b3", RenameFlags::empty())
        .unwrap();
    let known = root.namespace().locate_known_inode(ino).unwrap();
    assert_eq!(root.at(&known).getcwd(), b"/tmp/a/b3/c");
    let top = root.root().ino();
    assert!(locate(&root, top).unwrap().is(root.root()));
}

#[test]
fn a_handle_of_a_removed_file_is_stale() {
    let root = volume();
    put(&root, "/tmp/file", b"text");
    root.mkdir("/tmp/dir", 0o755).unwrap();
    let file = handle(&root, "/tmp/file").0;
    let dir = handle(&root, "/tmp/dir").0;
    let open = root.open("/tmp/file", OpenFlags::READ).unwrap();
    root.unlink("/tmp/file").unwrap();
    root.rmdir("/tmp/dir").unwrap();
    for ino in [file, dir, 0, 12_345, u64::MAX] {
        assert_eq!(errno(locate(&root, ino)), Err(Errno::ESTALE), "{ino}");
    }
    drop(open);
    assert_eq!(errno(locate(&root, file)), Err(Errno::ESTALE));
    sb(&root).shut_down(Shutdown::Flush).unwrap();
    assert_eq!(errno(locate(&root, root.root().ino())), Err(Errno::EIO));
}

#[test]
fn no_lookup_finds_a_half_made_or_half_removed_file() {
    const FILES: u64 = 2000;
    let root = volume();
    let newest = AtomicU64::new(root.root().ino());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let maker = root.clone();
        let newest = &newest;
        let done = &done;
        scope.spawn(move || {
            for at in 0..FILES {
                put(&maker, "/tmp/file", &at.to_le_bytes());
                newest.store(handle(&maker, "/tmp/file").0, Ordering::Relaxed);
                maker.unlink("/tmp/file").unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            let finder = root.clone();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // The one that is there, or the one that comes next.
                    let ino = newest.load(Ordering::Relaxed);
                    for ino in [ino, ino + 1] {
                        let Ok(found) = locate(&finder, ino) else {
                            continue;
                        };
                        let file =
                            finder.open_location(found, OpenFlags::READ | OpenFlags::WRITE, b"");
                        let Ok(file) = file else { continue };
                        // Readers that come by name must see this write: there is one inode only.
                        if file.write_at(b"z", 20).is_ok()
                            && let Ok(named) = finder.stat("/tmp/file", LookupFlags::FOLLOW)
                            && named.ino == ino
                        {
                            assert_eq!(named.size, 21);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(
        errno(locate(&root, newest.into_inner())),
        Err(Errno::ESTALE)
    );
}
