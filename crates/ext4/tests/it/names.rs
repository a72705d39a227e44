//! Names: listings that stop and continue, case-folded and encrypted names, damaged hash trees.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;

use extern4_ext4::Ext4;
use extern4_testkit::zoo::{ENCRYPTED, spec};
use extern4_vfs::{Errno, FileOps, FileType, Inode, InodeOps};

use crate::walk;

#[test]
fn a_listing_may_stop_after_any_entry() {
    for name in [
        "ext4_default",
        "ext4_no_dir_index",
        "ext4_inline_data_1k",
        "hash_legacy",
    ] {
        let spec = spec(name);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let fs = walk::open(&image.path);
        let mut todo = vec![walk::inode(&fs, 2).expect("the root")];
        while let Some(dir) = todo.pop() {
            let whole = walk::names(&fs, &dir, usize::MAX).expect("a listing");
            for stop in [1, 2, 3, 50, 1000] {
                let pieces = walk::names(&fs, &dir, stop).expect("a listing");
                assert!(
                    whole == pieces,
                    "{name}: inode {} differs, {stop} a call",
                    dir.ino()
                );
            }
            for (name, ino) in whole {
                let inode = walk::inode(&fs, ino).expect("an inode");
                if inode.kind() == FileType::Directory && name != b"." && name != b".." {
                    todo.push(inode);
                }
            }
        }
    }
}

#[test]
fn folded_names_are_found_in_any_case() {
    let spec = spec("ext4_casefold");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = walk::open(&image.path);
    for (stored, asked) in [
        ("Name-Number-77", "nAME-nUMBER-77"),
        ("ÄÖÜ.Txt", "a\u{308}o\u{308}U\u{308}.TXT"),
        ("Straße", "STRASSE"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("e\u{301}", "É"),
        ("ﬁn", "FI\u{ad}N"),
    ] {
        for dir in ["/folded", "/folded/Inner", "/FOLDED"] {
            let stored = format!("{dir}/{stored}");
            let asked = format!("{dir}/{asked}");
            if dir == "/FOLDED" || dir.ends_with("Inner") && stored.contains("Number") {
                assert_eq!(errno(walk::resolve(&fs, &asked)), Errno::ENOENT, "{asked}");
            } else {
                let stored = walk::resolve(&fs, &stored)
                    .expect("the name as it is")
                    .ino();
                assert_eq!(
                    walk::resolve(&fs, &asked).expect("the folded name").ino(),
                    stored,
                    "{asked}"
                );
            }
        }
    }
    // The root does not fold, nor does a directory next to it.
    assert_eq!(errno(walk::resolve(&fs, "/exact/STRASSE")), Errno::ENOENT);
    assert_eq!(
        errno(walk::resolve(&fs, "/folded/no such name")),
        Errno::ENOENT
    );
    assert_eq!(
        errno(walk::resolve(&fs, "/folded/nö such name")),
        Errno::ENOENT
    );
}

fn errno(found: extern4_vfs::Result<Inode>) -> Errno {
    found.map(|inode| inode.ino()).unwrap_err().errno()
}

#[test]
fn encrypted_names_show_as_the_kernel_shows_them() {
    if !ENCRYPTED.can_run() {
        return;
    }
    let image = ENCRYPTED.build();
    let fs = walk::open(&image.path);
    let mount = image.mount("ro,noatime");
    compare_names(
        &fs,
        &walk::resolve(&fs, "/").expect("the root"),
        &mount.path,
    );

    let secret = walk::resolve(&fs, "/secret").expect("the directory is listed");
    for (name, ino) in walk::names(&fs, &secret, usize::MAX).expect("a listing") {
        if name.starts_with(b".") {
            continue;
        }
        assert_eq!(
            fs.lookup(&secret, &name).expect("a lookup"),
            Some(ino),
            "{}",
            name.escape_ascii()
        );
        let inode = walk::inode(&fs, ino).expect("an inode");
        if inode.kind() != FileType::Regular {
            continue;
        }
        let error = fs.read_at(&inode, &mut [0; 10], 0).unwrap_err();
        assert_eq!(error.errno(), Errno::ENOKEY);
        assert!(error.to_string().contains("is encrypted"), "{error}");
    }
    assert_eq!(fs.lookup(&secret, b"100000").expect("a lookup"), None);
}

/// Compares the names below a directory with the names in the kernel's mount.
fn compare_names(fs: &Ext4, dir: &Inode, real: &std::path::Path) {
    let ours = walk::names(fs, dir, usize::MAX).expect("a listing");
    let theirs: BTreeSet<Vec<u8>> = std::fs::read_dir(real)
        .expect("a listing")
        .map(|entry| {
            std::os::unix::ffi::OsStringExt::into_vec(entry.expect("an entry").file_name())
        })
        .collect();
    let names = ours
        .iter()
        .map(|(name, _)| name.clone())
        .filter(|name| name != b"." && name != b"..");
    assert_eq!(names.collect::<BTreeSet<_>>(), theirs, "{}", real.display());
    for (name, ino) in &ours {
        let inode = walk::inode(fs, *ino).expect("an inode");
        if inode.kind() == FileType::Directory && name != b"." && name != b".." {
            let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
            compare_names(fs, &inode, &real.join(name));
        }
    }
}

#[test]
fn names_are_found_without_their_hash_tree() {
    let spec = spec("hash_half_md4");
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = walk::open(&image.path);
    let dir = walk::resolve(&fs, "/crowd/of-3000").expect("a large directory");
    let mut whole = walk::names(&fs, &dir, usize::MAX).expect("a listing");
    whole.sort();

    // The count of entries follows `.`, `..` and the tree's parameters.
    let root: u64 = image
        .debugfs("bmap /crowd/of-3000 0\n")
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
    file.write_all_at(&[0xff; 4], root * 1024 + 32)
        .expect("a write");

    let fs = walk::open(&image.path);
    let dir = walk::resolve(&fs, "/crowd/of-3000").expect("the directory");
    for stop in [usize::MAX, 7] {
        let mut names = walk::names(&fs, &dir, stop).expect("a listing without the tree");
        names.sort();
        assert!(
            names == whole,
            "{} names, {} before",
            names.len(),
            whole.len()
        );
    }
    let (name, ino) = whole.last().expect("a name");
    assert_eq!(
        fs.lookup(&dir, name).expect("a lookup without the tree"),
        Some(*ino)
    );
    assert_eq!(
        fs.lookup(&dir, b"no such name")
            .expect("a lookup without the tree"),
        None
    );
}
