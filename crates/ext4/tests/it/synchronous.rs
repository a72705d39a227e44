//! What is durable when a call returns, whatever the power does then: a file that was synced, and every change of those files and
//! directories whose flags ask for it (`chattr +S`, `+D`).

use std::sync::Arc;

use extern4_block::CrashDevice;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::assert_same;
use extern4_vfs::{
    AclKind, FallocateMode, FileFlags, How, NewKind, OpenFlags, RenameFlags, Session, XattrFlags,
};

use crate::model::{Op, open, run, session};
use crate::{memory, walk};

const DIRSYNC: FileFlags = FileFlags::from_bits_retain(0x1_0000);

fn on_a_file() -> Vec<Op> {
    let file = || "/file".to_owned();
    let name = || "user.name".to_owned();
    vec![
        Op::Write(file(), 0, 10_000),
        // It changes no more than contents and times.
        Op::Write(file(), 500, 3000),
        Op::Append(file(), 700),
        Op::Truncate(file(), 20_000),
        Op::Truncate(file(), 5_001),
        Op::Fallocate(file(), FallocateMode::empty(), 4000, 40_000),
        Op::Fallocate(file(), FallocateMode::ZERO_RANGE, 1000, 3500),
        Op::Fallocate(file(), FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 100, 3000),
        Op::Fallocate(file(), FallocateMode::INSERT_RANGE, 1024, 2048),
        Op::Fallocate(file(), FallocateMode::COLLAPSE_RANGE, 2048, 1024),
        Op::Chmod(file(), 0o600),
        Op::Chown(file(), 5, 6),
        Op::Utimens(file(), 1_000_000),
        Op::SetXattr(file(), name(), 600, XattrFlags::empty()),
        Op::RemoveXattr(file(), name()),
        Op::SetAcl(file(), AclKind::Access, 5),
        Op::RemoveAcl(file(), AclKind::Access),
        Op::Link(file(), "/other".to_owned()),
        Op::Unlink(file()),
    ]
}

fn in_a_directory() -> Vec<Op> {
    let name = |name: &str| format!("/dir/{name}");
    vec![
        Op::Create(name("file"), 0o644),
        Op::Mkdir(name("sub"), 0o755),
        Op::Symlink("target".to_owned(), name("link")),
        Op::Mknod(name("fifo"), NewKind::Fifo),
        Op::Link(name("link"), name("more")),
        Op::Rename(name("file"), "/moved".to_owned(), RenameFlags::empty()),
        Op::Rename("/moved".to_owned(), name("back"), RenameFlags::empty()),
        Op::Unlink(name("more")),
        Op::Rmdir(name("sub")),
        Op::Chmod("/dir".to_owned(), 0o700),
    ]
}

/// Runs the operations, and after each looks at what a power loss would leave: nothing that has not been flushed.
fn each_is_durable(spec: &ImageSpec, prepare: impl Fn(&Session), ops: Vec<Op>) {
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default()).expect("it opens");
    let fs = Arc::new(fs);
    let session = session(Arc::clone(&fs) as _);
    prepare(&session);
    session.namespace().root().superblock().sync().expect("sync");
    for op in ops {
        let what = format!("{}, {op:?}", spec.name);
        run(&session, &op).unwrap_or_else(|e| panic!("{what}: {e}"));
        let left = Arc::new(device.crash(device.moment(), |_| false));
        assert_same(&what, &memory::tree(&what, &left), &walk::tree(&*fs));
    }
}

const VOLUMES: [ImageSpec; 2] = [
    ImageSpec::new("ext4", 16 << 20, &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
    ImageSpec::new(
        "ext4-inline",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "inline_data"],
    ),
];

#[test]
fn what_is_done_to_a_synchronous_file_is_durable() {
    let prepare = |session: &Session| {
        run(session, &Op::Create("/file".to_owned(), 0o644)).expect("a file");
        session.set_flags("/file", FileFlags::SYNC, How::FOLLOW).expect("flags");
    };
    VOLUMES.iter().for_each(|spec| each_is_durable(spec, prepare, on_a_file()));
}

#[test]
fn what_is_done_in_a_synchronous_directory_is_durable() {
    for flags in [FileFlags::SYNC, DIRSYNC] {
        let prepare = |session: &Session| {
            run(session, &Op::Mkdir("/dir".to_owned(), 0o755)).expect("a directory");
            session.set_flags("/dir", flags, How::FOLLOW).expect("flags");
        };
        VOLUMES.iter().for_each(|spec| each_is_durable(spec, prepare, in_a_directory()));
    }
}

/// What was changed may have left the memory, and been read again, before it is synced.
#[test]
fn a_sync_of_a_file_that_was_forgotten_makes_it_durable() {
    for spec in VOLUMES.iter().filter(|spec| spec.can_run()) {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default()).expect("it opens");
        let fs = Arc::new(fs);
        let session = session(Arc::clone(&fs) as _);
        run(&session, &Op::Create("/file".to_owned(), 0o644)).expect("a file");
        run(&session, &Op::Write("/file".to_owned(), 0, 5000)).expect("contents");
        session.namespace().root().superblock().drop_caches();
        open(&session, "/file", OpenFlags::READ, 0).expect("it opens").sync(false).expect("a sync");
        let left = Arc::new(device.crash(device.moment(), |_| false));
        assert_same(spec.name, &memory::tree(spec.name, &left), &walk::tree(&*fs));
    }
}

/// Names that come within one tick of the clock leave the directory as it is, but for them.
#[test]
fn a_sync_of_a_directory_makes_names_of_the_same_tick_durable() {
    for spec in VOLUMES.iter().filter(|spec| spec.can_run()) {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default()).expect("it opens");
        let session = session(Arc::new(fs) as _);
        run(&session, &Op::Mkdir("/dir".to_owned(), 0o755)).expect("a directory");
        let dir = open(&session, "/dir", OpenFlags::READ | OpenFlags::DIRECTORY, 0).expect("it opens");
        let changed = || session.stat("/dir", How::FOLLOW).expect("it is there").ctime;
        let mut in_one_tick = 0;
        for number in 0..100 {
            let (before, name) = (changed(), format!("/dir/{number}"));
            run(&session, &Op::Mknod(name.clone(), NewKind::Fifo)).expect("a name");
            in_one_tick += u32::from(before == changed());
            dir.sync(false).expect("a sync");
            let left = memory::open(&name, &Arc::new(device.crash(device.moment(), |_| false)));
            assert!(walk::resolve(&left, &name).is_ok(), "{}: {name} after a sync", spec.name);
        }
        assert!(in_one_tick > 0, "each change is in a tick of its own");
    }
}

/// A rename changes no more of the file than when it was changed.
#[test]
fn a_synchronous_file_that_is_renamed_again_within_a_tick_is_durable() {
    for spec in VOLUMES.iter().filter(|spec| spec.can_run()) {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default()).expect("it opens");
        let session = session(Arc::new(fs) as _);
        let name = |number: u32| format!("/{number}");
        run(&session, &Op::Create(name(0), 0o644)).expect("a file");
        session.set_flags(name(0), FileFlags::SYNC, How::FOLLOW).expect("flags");
        let changed = |number| session.stat(name(number), How::FOLLOW).expect("it is there").ctime;
        let mut in_one_tick = 0;
        for number in 0..100 {
            let before = changed(number);
            let op = Op::Rename(name(number), name(number + 1), RenameFlags::empty());
            run(&session, &op).expect("a rename");
            in_one_tick += u32::from(before == changed(number + 1));
            let left = memory::open(spec.name, &Arc::new(device.crash(device.moment(), |_| false)));
            assert!(walk::resolve(&left, &name(number + 1)).is_ok(), "{}: {op:?}", spec.name);
        }
        assert!(in_one_tick > 0, "each change is in a tick of its own");
    }
}
