//! The changes that are durable when a call returns, even if the power fails then: a file that was
//! synced, and every change of files and directories whose flags ask for it (`chattr +S`, `+D`).

use std::sync::Arc;
use std::time::Duration;

use extern4_block::CrashDevice;
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::assert_same;
use extern4_vfs::{
    AclKind, FallocateMode, FileFlags, FileOps as _, LookupFlags, NewKind, OpenFile, OpenFlags,
    RenameFlags, Session, XattrFlags,
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
        Op::Fallocate(
            file(),
            FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
            100,
            3000,
        ),
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

/// Runs the operations, and after each looks at what a power loss would leave: nothing that has not
/// been flushed.
fn each_is_durable(
    spec: &ImageSpec,
    lazy_times: Option<Duration>,
    prepare: impl Fn(&Session),
    ops: Vec<Op>,
) {
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
    let options = OpenOptions {
        lazy_times,
        ..OpenOptions::default()
    };
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &options).expect("it opens");
    let fs = Arc::new(fs);
    let session = session(Arc::clone(&fs) as _);
    prepare(&session);
    session
        .namespace()
        .root()
        .superblock()
        .sync()
        .expect("sync");
    for op in ops {
        let what = format!("{}, {op:?}", spec.name);
        run(&session, &op).unwrap_or_else(|e| panic!("{what}: {e}"));
        let left = Arc::new(device.crash(device.moment(), |_| false));
        assert_same(&what, &memory::tree(&what, &left), &walk::tree(&*fs));
    }
}

/// Times stay in memory.
const LONG: Duration = Duration::from_secs(1000);

const VOLUMES: [ImageSpec; 2] = [
    ImageSpec::new(
        "ext4",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    ),
    ImageSpec::new(
        "ext4-inline",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "inline_data",
        ],
    ),
];

#[test]
fn changes_of_a_synchronous_file_are_durable() {
    let prepare = |session: &Session| {
        run(session, &Op::Create("/file".to_owned(), 0o644)).expect("a file");
        session
            .set_flags("/file", FileFlags::SYNC, LookupFlags::FOLLOW)
            .expect("flags");
    };
    for spec in &VOLUMES {
        each_is_durable(spec, None, prepare, on_a_file());
        each_is_durable(spec, Some(LONG), prepare, on_a_file());
    }
}

#[test]
fn changes_in_a_synchronous_directory_are_durable() {
    for flags in [FileFlags::SYNC, DIRSYNC] {
        let prepare = |session: &Session| {
            run(session, &Op::Mkdir("/dir".to_owned(), 0o755)).expect("a directory");
            session
                .set_flags("/dir", flags, LookupFlags::FOLLOW)
                .expect("flags");
        };
        VOLUMES
            .iter()
            .for_each(|spec| each_is_durable(spec, None, prepare, in_a_directory()));
    }
}

/// A changed inode may have left the memory, and been read again, before it is synced.
#[test]
fn a_sync_of_a_file_that_was_forgotten_makes_it_durable() {
    for spec in VOLUMES.iter().filter(|spec| spec.can_run()) {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
            .expect("it opens");
        let fs = Arc::new(fs);
        let session = session(Arc::clone(&fs) as _);
        run(&session, &Op::Create("/file".to_owned(), 0o644)).expect("a file");
        run(&session, &Op::Write("/file".to_owned(), 0, 5000)).expect("contents");
        session.namespace().root().superblock().drop_caches();
        open(&session, "/file", OpenFlags::READ, 0)
            .expect("it opens")
            .sync(false)
            .expect("a sync");
        let left = Arc::new(device.crash(device.moment(), |_| false));
        assert_same(
            spec.name,
            &memory::tree(spec.name, &left),
            &walk::tree(&*fs),
        );
    }
}

/// Names that come within one tick of the clock leave the directory as it is, but for them.
#[test]
fn a_sync_of_a_directory_makes_names_of_the_same_tick_durable() {
    for spec in VOLUMES.iter().filter(|spec| spec.can_run()) {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
            .expect("it opens");
        let session = session(Arc::new(fs) as _);
        run(&session, &Op::Mkdir("/dir".to_owned(), 0o755)).expect("a directory");
        let dir =
            open(&session, "/dir", OpenFlags::READ | OpenFlags::DIRECTORY, 0).expect("it opens");
        let changed = || {
            session
                .stat("/dir", LookupFlags::FOLLOW)
                .expect("it is there")
                .ctime
        };
        let mut in_one_tick = 0;
        let make = |name: &str| {
            run(&session, &Op::Mknod(name.to_owned(), NewKind::Fifo)).expect("a name");
        };
        for number in 0..50 {
            make(&format!("/dir/{number}"));
            dir.sync(false).expect("a sync");
            let before = changed();
            let name = format!("/dir/{number} again");
            make(&name);
            in_one_tick += u32::from(before == changed());
            dir.sync(false).expect("a sync");
            let left = memory::open(&name, &Arc::new(device.crash(device.moment(), |_| false)));
            assert!(
                walk::resolve(&left, &name).is_ok(),
                "{}: {name} after a sync",
                spec.name
            );
        }
        assert!(in_one_tick > 0, "each change is in a tick of its own");
    }
}

/// A file on a device that remembers what has been flushed.
struct Written {
    device: Arc<CrashDevice>,
    fs: Arc<Ext4>,
    session: Session,
    file: OpenFile,
}

impl Written {
    /// Its contents are durable.
    fn new(spec: &ImageSpec, lazy_times: Option<Duration>) -> Self {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let options = OpenOptions {
            lazy_times,
            ..OpenOptions::default()
        };
        let fs =
            Arc::new(Ext4::open_for_writing(Arc::clone(&device) as _, &options).expect("it opens"));
        let session = session(Arc::clone(&fs) as _);
        run(&session, &Op::Create("/file".to_owned(), 0o644)).expect("a file");
        let file =
            open(&session, "/file", OpenFlags::READ | OpenFlags::WRITE, 0).expect("it opens");
        file.write_at(&[0xff; 5000], 0).expect("contents");
        file.sync(false).expect("a sync");
        Self {
            device,
            fs,
            session,
            file,
        }
    }

    /// Writes bytes that say `number`, and returns whether that has changed the times.
    fn write(&self, number: u8, offset: u64) -> bool {
        let changed = || {
            self.session
                .stat("/file", LookupFlags::FOLLOW)
                .expect("it is there")
                .ctime
        };
        let before = changed();
        assert_eq!(
            self.file
                .write_at(&[number; 1000], offset)
                .expect("a write"),
            1000
        );
        before != changed()
    }

    /// The volume as power loss leaves it, to be read.
    fn volume_left(&self) -> Ext4 {
        let left = Arc::new(self.device.crash(self.device.moment(), |_| false));
        Ext4::open(left, &OpenOptions::default()).expect("it opens")
    }

    /// The contents of the file that a power loss leaves.
    fn left(&self) -> Vec<u8> {
        let left = self.volume_left();
        let inode = walk::resolve(&left, "/file").expect("the file");
        let mut bytes = vec![0; usize::try_from(inode.attr().size).expect("a short file")];
        assert_eq!(
            left.read_at(&inode, &mut bytes, 0).expect("a read"),
            bytes.len()
        );
        bytes
    }

    fn counts(&self) -> (u64, u64) {
        let stats = self.fs.journal_stats().expect("it is written");
        (stats.transactions, stats.flushes)
    }
}

const UNJOURNALED: ImageSpec =
    ImageSpec::new("unjournaled", 16 << 20, &["-t", "ext2", "-b", "1024"]);

/// Contents that are written over within one tick of the clock leave the inode as it is.
#[test]
fn a_sync_makes_overwritten_contents_durable_within_a_tick() {
    let specs = [&VOLUMES[0], &UNJOURNALED]
        .into_iter()
        .filter(|spec| spec.can_run());
    for (spec, lazy_times) in specs.flat_map(|spec| [(spec, None), (spec, Some(LONG))]) {
        let written = Written::new(spec, lazy_times);
        let mut in_one_tick = 0;
        for number in 0..100 {
            // To look what is left takes longer than a tick on a busy machine: one write and its
            // sync come right before the other.
            written.write(!number, 100);
            written.file.sync(number % 2 != 0).expect("a sync");
            in_one_tick += u32::from(!written.write(number, 100));
            written.file.sync(number % 3 != 0).expect("a sync");
            assert_eq!(
                written.left()[100..1100],
                [number; 1000],
                "{}, {lazy_times:?}, {number}",
                spec.name
            );
        }
        assert!(in_one_tick > 0, "each change is in a tick of its own");
    }
}

#[test]
fn contents_that_are_written_over_are_made_durable_by_a_flush_alone() {
    for spec in [&VOLUMES[0], &UNJOURNALED]
        .into_iter()
        .filter(|spec| spec.can_run())
    {
        let written = Written::new(spec, None);
        let (transactions, flushes) = written.counts();
        for number in 0..20 {
            written.write(number, 0);
            written.file.sync(true).expect("a sync");
            written.file.sync(true).expect("nothing to be done");
        }
        assert_eq!(
            written.counts(),
            (transactions, flushes + 20),
            "{}",
            spec.name
        );
        // A write that makes it longer is durable, too.
        written.write(20, 4500);
        written.file.sync(true).expect("a sync");
        assert_eq!(written.left()[4500..], [20; 1000], "{}", spec.name);
        // Times that were asked for are not lost.
        std::thread::sleep(Duration::from_millis(1100));
        assert!(written.write(21, 0), "another tick");
        written.file.sync(false).expect("a sync");
        let left = written.volume_left();
        let left = walk::resolve(&left, "/file").expect("the file").attr();
        let now = written
            .session
            .stat("/file", LookupFlags::FOLLOW)
            .expect("it is there");
        assert_eq!(left.mtime.sec, now.mtime.sec, "{}", spec.name);
    }
}

/// A file that was read again may have an earlier change that is not durable. Once that is durable,
/// it need not be asked for again.
#[test]
fn a_file_that_was_forgotten_is_looked_at_once() {
    if !VOLUMES[0].can_run() {
        return;
    }
    let Written {
        device,
        fs,
        session,
        file,
    } = Written::new(&VOLUMES[0], None);
    drop(file);
    session.namespace().root().superblock().drop_caches();
    let file = open(&session, "/file", OpenFlags::READ | OpenFlags::WRITE, 0).expect("it opens");
    let written = Written {
        device,
        fs,
        session,
        file,
    };
    written.write(1, 0);
    written.file.sync(true).expect("a sync");
    let (transactions, flushes) = written.counts();
    written.write(2, 0);
    written.file.sync(true).expect("a sync");
    assert_eq!(written.counts(), (transactions, flushes + 1));
    assert_eq!(written.left()[..1000], [2; 1000]);
}

/// A rename changes no more of the file than when it was changed.
#[test]
fn a_synchronous_file_that_is_renamed_again_within_a_tick_is_durable() {
    for spec in VOLUMES.iter().filter(|spec| spec.can_run()) {
        let device = Arc::new(CrashDevice::new(memory::bytes_of(spec)));
        let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &OpenOptions::default())
            .expect("it opens");
        let session = session(Arc::new(fs) as _);
        let name = |number: u32| format!("/{number}");
        run(&session, &Op::Create(name(0), 0o644)).expect("a file");
        session
            .set_flags(name(0), FileFlags::SYNC, LookupFlags::FOLLOW)
            .expect("flags");
        let changed = |number| {
            session
                .stat(name(number), LookupFlags::FOLLOW)
                .expect("it is there")
                .ctime
        };
        let rename = |from| {
            let op = Op::Rename(name(from), name(from + 1), RenameFlags::empty());
            run(&session, &op).expect("a rename");
        };
        let mut in_one_tick = 0;
        for number in (0..100).step_by(2) {
            rename(number);
            let before = changed(number + 1);
            rename(number + 1);
            in_one_tick += u32::from(before == changed(number + 2));
            let left = memory::open(
                spec.name,
                &Arc::new(device.crash(device.moment(), |_| false)),
            );
            assert!(
                walk::resolve(&left, &name(number + 2)).is_ok(),
                "{}: {number}",
                spec.name
            );
        }
        assert!(in_one_tick > 0, "each change is in a tick of its own");
    }
}
