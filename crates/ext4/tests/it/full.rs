//! Full volumes. With a handful of free blocks or inodes, or none, every kind of operation
//! succeeds, or answers `ENOSPC` and has changed nothing. Operations that take no block are done on
//! a volume that has none left.

use std::sync::Arc;

use extern4_block::MemoryDevice;
use extern4_testkit::image::{ImageSpec, Step};
use extern4_testkit::tree::assert_same;
use extern4_vfs::*;

use crate::model::{ALL_QUOTAS, Op, data, judge, open, open_for_writing, run, session};
use crate::{memory, walk};

/// Files whose blocks can be given back one by one.
const PADS: u64 = 20;
/// A name that takes so much that few fit into a block.
const LONG: usize = 250;

/// An operation, and what it may need.
struct Trial {
    op: Op,
    /// The number of free blocks with which it must be done.
    enough: u64,
    /// The part done before there was no room left stays, as with Linux.
    in_parts: bool,
    /// It takes an inode.
    inodes: u64,
}

fn trial(op: Op, enough: u64) -> Trial {
    Trial {
        op,
        enough,
        in_parts: false,
        inodes: 0,
    }
}

fn new_file(op: Op, enough: u64) -> Trial {
    Trial {
        inodes: 1,
        ..trial(op, enough)
    }
}

fn in_parts(op: Op, enough: u64) -> Trial {
    Trial {
        in_parts: true,
        ..trial(op, enough)
    }
}

fn long(letter: &str) -> String {
    letter.repeat(LONG)
}

fn trials(block: u64, fallocate: bool) -> Vec<Trial> {
    let s = str::to_owned;
    let none = RenameFlags::empty();
    let set = XattrFlags::empty();
    let mut trials = vec![
        new_file(Op::Create(s("/room/new"), 0o644), 0),
        new_file(Op::Create(s("/lists/new"), 0o644), 0),
        new_file(Op::Create(format!("/packed/{}", long("x")), 0o644), 3),
        new_file(Op::Create(format!("/tree/{}", long("x")), 0o644), 4),
        new_file(Op::Mkdir(s("/room/new"), 0o755), 1),
        new_file(Op::Mkdir(s("/lists/new"), 0o755), 2),
        new_file(Op::Mkdir(format!("/packed/{}", long("x")), 0o755), 4),
        new_file(Op::Symlink("t".repeat(30), s("/room/new")), 0),
        new_file(Op::Symlink("t".repeat(200), s("/room/new")), 1),
        new_file(Op::Mknod(s("/room/new"), NewKind::Fifo), 0),
        new_file(Op::Tmpfile(s("/room"), None), 4),
        new_file(Op::Tmpfile(s("/room"), Some(s("/room/new"))), 4),
        trial(Op::Link(s("/room/file"), s("/room/new")), 0),
        trial(
            Op::Link(s("/room/file"), format!("/packed/{}", long("x"))),
            3,
        ),
        trial(Op::Unlink(s("/room/file")), 0),
        trial(Op::Rmdir(s("/empty")), 0),
        trial(Op::Rename(s("/room/file"), s("/room/new"), none), 0),
        trial(Op::Rename(s("/room/file"), s("/room/other"), none), 0),
        trial(Op::Rename(s("/room/file"), s("/lists/new"), none), 0),
        trial(Op::Rename(s("/empty"), s("/room/new"), none), 0),
        trial(
            Op::Rename(s("/room/file"), s("/small"), RenameFlags::EXCHANGE),
            0,
        ),
        trial(
            Op::Rename(s("/room/file"), format!("/packed/{}", long("x")), none),
            3,
        ),
        trial(
            Op::Rename(s("/room/file"), format!("/tree/{}", long("x")), none),
            4,
        ),
        new_file(
            Op::Rename(s("/room/file"), s("/room/new"), RenameFlags::WHITEOUT),
            0,
        ),
        new_file(
            Op::Rename(s("/room/file"), s("/lists/new"), RenameFlags::WHITEOUT),
            0,
        ),
        new_file(
            Op::Rename(s("/room/file"), s("/room/other"), RenameFlags::WHITEOUT),
            0,
        ),
        new_file(
            Op::Rename(s("/lists/file"), s("/room/new"), RenameFlags::WHITEOUT),
            0,
        ),
        trial(Op::Chmod(s("/room/file"), 0o600), 0),
        trial(Op::Chown(s("/room/file"), 70_000, 5), 0),
        trial(Op::Utimens(s("/room/file"), 5), 0),
        trial(Op::Write(s("/room/file"), 0, 3 * block as usize), 0),
        trial(Op::Write(s("/small"), 5, 50), 0),
        // The fifth piece, which the inode has no room to map.
        trial(Op::Write(s("/pieces"), 8 * block, 10), 2),
        trial(Op::Write(s("/empty-file"), 0, 1), 1),
        // Behind the blocks that the inode maps itself, or a hole before it.
        trial(Op::Write(s("/empty-file"), 300 * block, 1), 4),
        in_parts(Op::Write(s("/empty-file"), 0, 12 * block as usize), 13),
        in_parts(Op::Append(s("/small"), 5000), 5),
        in_parts(Op::WriteUnlinked(s("/room/file"), 100), 1),
        trial(Op::Truncate(s("/cut"), block + 7), 0),
        trial(Op::Truncate(s("/small"), 100_000), 0),
        trial(Op::SetXattr(s("/small"), s("user.a"), 20, set), 0),
        trial(Op::SetXattr(s("/small"), s("user.a"), 500, set), 1),
        trial(Op::RemoveXattr(s("/attributes"), s("user.large")), 0),
        trial(Op::SetAcl(s("/room"), AclKind::Default, 5), 1),
        trial(Op::SetAcl(s("/small"), AclKind::Access, 5), 0),
    ];
    if fallocate {
        let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        let mut on = |path: &str, mode, from: u64, len: u64, enough| {
            trials.push(in_parts(
                Op::Fallocate(s(path), mode, from * block, len * block),
                enough,
            ));
        };
        on("/cut", punch, 3, 2, 0);
        on("/pieces", punch, 2, 1, 0);
        on("/pieces", FallocateMode::ZERO_RANGE, 2, 1, 1);
        on("/cut", FallocateMode::COLLAPSE_RANGE, 3, 2, 0);
        on("/cut", FallocateMode::INSERT_RANGE, 3, 2, 1);
        on("/empty-file", FallocateMode::empty(), 0, 4, 4);
        on("/empty-file", FallocateMode::KEEP_SIZE, 0, 10, 10);
    }
    trials
}

fn write(session: &Session, path: &str, offset: u64, bytes: &[u8]) -> Result<usize> {
    open(session, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?.write_at(bytes, offset)
}

fn sync(session: &Session) {
    session
        .namespace()
        .root()
        .superblock()
        .sync()
        .expect("sync");
}

fn free(session: &Session) -> StatFs {
    session.statfs("/", LookupFlags::FOLLOW).expect("statfs")
}

/// Makes the files that the trials need, and leaves nothing free.
fn furnish(session: &Session, block: u64) {
    let dirs = ["/room", "/lists", "/packed", "/tree", "/empty", "/pads"];
    dirs.iter()
        .for_each(|path| drop(session.mkdir(path, 0o755).expect(path)));
    let bytes = data(0, 20 * block as usize);
    let part = |blocks: u64| &bytes[..(blocks * block) as usize];
    let files = [
        ("/room/file", 3),
        ("/room/other", 1),
        ("/cut", 20),
        ("/empty-file", 0),
        ("/attributes", 0),
        ("/lists/file", 0),
    ];
    files
        .iter()
        .for_each(|(path, blocks)| _ = write(session, path, 0, part(*blocks)).expect(path));
    write(session, "/small", 0, b"0123456789").expect("a small file");
    for at in [0, 2, 4, 6] {
        write(session, "/pieces", at * block, part(1)).expect("a piece");
        // So that the next piece is not adjacent to this one.
        write(session, "/between", at * block, part(1)).expect("a block between");
    }
    for at in 0..(block - 36) / 260 {
        let name = format!("/packed/{}{at:02}", &long("n")[2..]);
        session
            .link("/small", LookupFlags::FOLLOW, name)
            .expect("a name");
    }
    for at in 0..10 * block / 1024 {
        let name = format!("/tree/{}{at:03}", &long("n")[3..]);
        session
            .link("/small", LookupFlags::FOLLOW, name)
            .expect("a name");
    }
    let set = XattrFlags::empty();
    session
        .set_xattr(
            "/attributes",
            "user.large",
            &data(0, 400),
            set,
            LookupFlags::FOLLOW,
        )
        .expect("an attribute");
    run(
        session,
        &Op::SetAcl("/lists".to_owned(), AclKind::Default, 5),
    )
    .expect("a default ACL");
}

/// Takes all blocks that are free.
fn fill_blocks(session: &Session, block: u64) {
    let mut pads: Vec<u64> = vec![1; PADS as usize];
    let bytes = data(0, 1 << 20);
    for at in 0..PADS {
        write(session, &format!("/pads/{at}"), 0, &bytes[..block as usize]).expect("a pad");
    }
    let mut at = 0;
    while let Ok(written) = write(session, "/big", at, &bytes) {
        at += written as u64;
    }
    sync(session);
    for (at, blocks) in pads.iter_mut().enumerate() {
        let path = format!("/pads/{at}");
        while *blocks < 4
            && write(session, &path, *blocks * block, &bytes[..block as usize]).is_ok()
        {
            *blocks += 1;
        }
    }
    sync(session);
    assert_eq!(free(session).blocks_free, 0, "all free blocks can be used");
}

/// Gives back blocks of the pads until `blocks` are free.
fn give_blocks(session: &Session, block: u64, blocks: u64) {
    for at in 0..PADS {
        let path = format!("/pads/{at}");
        let mut size = session
            .stat(&path, LookupFlags::FOLLOW)
            .expect("a pad")
            .size;
        while size > 0 && free(session).blocks_free < blocks {
            size -= block;
            session
                .truncate(&path, size, LookupFlags::FOLLOW)
                .expect("a pad can be cut");
        }
    }
    sync(session);
    assert_eq!(free(session).blocks_free, blocks);
}

fn fill_inodes(session: &Session) {
    let mut at = 0;
    while write(session, &format!("/pads/i{at}"), 0, b"").is_ok() {
        at += 1;
    }
    assert_eq!(free(session).files_free, 0, "every inode can be used");
}

fn give_inodes(session: &Session, inodes: u64) {
    (0..inodes).for_each(|at| {
        session
            .unlink(format!("/pads/i{at}"))
            .expect("a pad can go")
    });
    sync(session);
    assert_eq!(free(session).files_free, inodes);
}

/// The resource that is scarce.
#[derive(Clone, Copy, PartialEq)]
enum Scarce {
    Blocks,
    Inodes,
}

fn prepared(spec: &ImageSpec, block: u64, scarce: Scarce) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(spec)));
    let fs = memory::open(spec.name, &device);
    let session = session(Arc::clone(&fs) as _);
    furnish(&session, block);
    match scarce {
        Scarce::Blocks => fill_blocks(&session, block),
        Scarce::Inodes => fill_inodes(&session),
    }
    drop(session);
    fs.close().expect("close");
    memory::contents(&device)
}

/// Tries one operation on a volume with `left` free.
fn attempt(
    what: &str,
    bytes: &[u8],
    block: u64,
    scarce: Scarce,
    left: u64,
    it: &Trial,
    judged: bool,
) {
    let device = Arc::new(MemoryDevice::new(bytes.to_vec()));
    let fs = memory::open(what, &device);
    let session = session(Arc::clone(&fs) as _);
    match scarce {
        Scarce::Blocks => give_blocks(&session, block, left),
        Scarce::Inodes => give_inodes(&session, left),
    }
    let before = walk::tree(&*fs);
    let enough = match scarce {
        Scarce::Blocks => left >= it.enough,
        Scarce::Inodes => left >= it.inodes,
    };
    let result = run(&session, &it.op);
    match &result {
        Ok(()) => {}
        Err(error) => {
            assert_eq!(
                error.errno(),
                Errno::ENOSPC,
                "{what}: {error:?} {:?}",
                error.cause()
            );
            assert!(!enough, "{what}: there is enough for it");
        }
    }
    drop(session);
    let after = walk::tree(&*fs);
    if result.is_err() && !it.in_parts {
        assert_same(&format!("{what}, refused"), &after, &before);
    }
    fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    assert_same(
        &format!("{what}, closed"),
        &memory::tree(what, &device),
        &after,
    );
    if judged {
        memory::fsck(what, &device);
    }
}

/// The interval at which volumes are shown to `e2fsck`: one in this number.
fn judged_every() -> u64 {
    memory::number("EXTERN4_FULL", 8).max(1)
}

fn explore(spec: ImageSpec, block: u64, fallocate: bool, scarce: Scarce, lefts: &[u64]) {
    if !spec.can_run() {
        return;
    }
    let bytes = prepared(&spec, block, scarce);
    let all: Vec<u64> = (0..=20).collect();
    let lefts = if judged_every() == 1 { &all } else { lefts };
    let mut count = 0;
    let mut failed = Vec::new();
    for mut it in trials(block, fallocate) {
        if spec.name.contains("quota") && matches!(it.op, Op::Chown(..)) {
            // Each new owner gets an entry in a quota file, which may take four blocks and what
            // maps them.
            it.enough = 2 * (4 + 2);
        }
        for &left in lefts {
            let op: String = format!("{:?}", it.op).chars().take(60).collect();
            let what = format!("{}, {left} free, {op}", spec.name);
            count += 1;
            let judged = count % judged_every() == 0;
            let try_it = || attempt(&what, &bytes, block, scarce, left, &it, judged);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(try_it)).is_err() {
                failed.push(what);
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {count} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

const LEFTS: [u64; 7] = [0, 1, 2, 3, 4, 8, 20];

#[test]
fn ext4_without_free_blocks() {
    let spec = ImageSpec::new(
        "full-ext4",
        4 << 20,
        &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"],
    );
    explore(spec, 1024, true, Scarce::Blocks, &LEFTS);
}

#[test]
fn ext4_with_large_blocks_without_free_blocks() {
    let mke2fs = &["-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal"];
    explore(
        ImageSpec::new("full-ext4-4k", 4 << 20, mke2fs),
        4096,
        true,
        Scarce::Blocks,
        &LEFTS,
    );
}

#[test]
fn ext4_with_quotas_without_free_blocks() {
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-m",
        "0",
        "-J",
        "size=1",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    explore(
        ImageSpec::new("full-quota", 4 << 20, mke2fs),
        1024,
        true,
        Scarce::Blocks,
        &LEFTS,
    );
}

#[test]
fn ext2_without_free_blocks() {
    let spec = ImageSpec::new(
        "full-ext2",
        2 << 20,
        &["-t", "ext2", "-b", "1024", "-m", "0"],
    );
    explore(spec, 1024, false, Scarce::Blocks, &LEFTS);
}

#[test]
fn ext4_without_free_inodes() {
    let mke2fs = &[
        "-t", "ext4", "-b", "1024", "-m", "0", "-N", "128", "-J", "size=1",
    ];
    explore(
        ImageSpec::new("full-inodes", 4 << 20, mke2fs),
        1024,
        true,
        Scarce::Inodes,
        &[0, 1, 2],
    );
}

/// While there is plenty, threads set blocks aside for themselves. A thread that needs the last
/// ones gets them all the same.
#[test]
fn blocks_reserved_by_other_threads_can_be_used() {
    const THREADS: u64 = 4;
    let block = 1024;
    let mke2fs = &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"];
    let spec = ImageSpec::new("full-threads", 40 << 20, mke2fs);
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(&spec)));
    let fs = memory::open(spec.name, &device);
    let main = session(Arc::clone(&fs) as _);
    main.mkdir("/pads", 0o755).expect("a directory");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = main.clone();
            scope.spawn(move || {
                session
                    .mkdir(format!("/{thread}"), 0o755)
                    .expect("there is room");
                for at in 0..20 {
                    let path = format!("/{thread}/{at}");
                    write(&session, &path, 0, &data(0, (block * at) as usize))
                        .expect("there is room");
                    session.unlink(&path).expect("it is there");
                }
            });
        }
    });
    let before = free(&main).blocks_free;
    assert!(before > 30_000, "{before} blocks were free");
    fill_blocks(&main, block);
    drop(main);
    fs.close().expect("close");
    memory::fsck(spec.name, &device);
}

/// Every block of a directory has to be revoked in the journal when it is freed, and these are more
/// than one transaction can tell.
#[test]
fn a_huge_directory_goes_with_a_small_journal() {
    const DELETED: &str = "fallocate huge 0 230000\nsif huge mode 040755\nsif huge size 235521024\nsif huge links_count 0\n\
                           ssv last_orphan 12\nset_bg 0 used_dirs_count 3\nunlink huge\n";
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "64bit,^metadata_csum,^uninit_bg",
    ];
    // When the kernel mounts it the numbers in the journal get 64 bits.
    let spec = ImageSpec::new("huge", 300 << 20, mke2fs)
        .mounted(&[|root| std::fs::write(root.join("huge"), "")])
        .then(&[Step::Debugfs(DELETED)]);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let free = fs.statfs().expect("statistics").blocks_free;
    assert!(free > 280_000, "{free} blocks are free");
    fs.close().expect("close");
    drop(fs);
    judge("a huge directory", &image);
}
