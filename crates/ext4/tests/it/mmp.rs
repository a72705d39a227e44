//! Multiple mount protection: only one writer at a time, whichever program it is, and no reader
//! with it.

use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use extern4_block::{
    BlockDevice, DeviceWrapper, FileDevice, FileOptions, MemoryDevice, Op, RecordDevice,
};
use extern4_disk::mmp::{Mmp, MmpNode, MmpState};
use extern4_disk::{Place, Structure};
use extern4_ext4::{Error, Ext4, Listener, OpenOptions};
use extern4_testkit::image::ImageSpec;
use extern4_vfs::{Errno, FileSystem, LookupFlags, OpenFlags, Session};

use crate::memory;
use crate::model::{judge, open as open_file, open_for_writing, session};
use crate::walk;

const SPEC: ImageSpec = ImageSpec::new(
    "mmp",
    16 << 20,
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "mmp",
        "-E",
        "mmp_update_interval=1",
    ],
);

fn device() -> Option<Arc<MemoryDevice>> {
    SPEC.can_run()
        .then(|| Arc::new(MemoryDevice::new(memory::bytes_of(&SPEC))))
}

fn open(device: &Arc<MemoryDevice>) -> Result<Ext4, Error> {
    Ext4::open_for_writing(Arc::clone(device) as _, &OpenOptions::default())
}

fn read(device: &Arc<MemoryDevice>, shared: bool) -> Result<Ext4, Error> {
    read_shared(Arc::clone(device) as _, shared)
}

fn read_shared(device: Arc<dyn BlockDevice>, shared: bool) -> Result<Ext4, Error> {
    Ext4::open(
        device,
        &OpenOptions {
            shared,
            ..OpenOptions::default()
        },
    )
}

/// How often the protection's block is read. An opener that waits for another reads it twice.
fn looks(device: &Arc<MemoryDevice>, open: impl FnOnce(Arc<dyn BlockDevice>)) -> usize {
    let fs = read(device, true).expect("a shared reader");
    let at = fs.superblock().mmp_block().expect("a block") * 1024;
    let recorded = Arc::new(RecordDevice::new(Arc::clone(device) as _));
    open(Arc::clone(&recorded) as _);
    recorded
        .log()
        .iter()
        .filter(|request| request.op == Op::Read && request.offset == at)
        .count()
}

/// A device whose first write waits until the test opens the gate.
#[derive(Debug)]
struct Gate {
    base: Arc<MemoryDevice>,
    arrived: Mutex<Option<mpsc::Sender<()>>>,
    opened: Mutex<mpsc::Receiver<()>>,
}

impl DeviceWrapper for Gate {
    type Inner = MemoryDevice;

    fn inner(&self) -> &MemoryDevice {
        &self.base
    }

    fn before_request(&self, op: Op, _range: Range<u64>) -> extern4_block::Result<()> {
        if op == Op::Write
            && let Some(arrived) = self.arrived.lock().expect("no writer panics").take()
        {
            arrived.send(()).expect("the test waits");
            self.opened
                .lock()
                .expect("no writer panics")
                .recv()
                .expect("the test opens it");
        }
        Ok(())
    }
}

fn in_use(result: Result<Ext4, Error>) -> String {
    let error = result.map(drop).expect_err("another node has it");
    assert_eq!(error.errno(), Errno::EBUSY, "{error}");
    error.to_string()
}

/// The block, and how to write another.
fn block(fs: &Ext4, device: &MemoryDevice) -> Mmp {
    let sb = fs.superblock();
    let mut bytes = [0; 1024];
    device
        .read_at(&mut bytes, sb.mmp_block().expect("a block") * 1024)
        .expect("memory");
    Mmp::decode(&bytes, sb, Place::new(Structure::Mmp)).expect("a good block")
}

fn write_block(fs: &Ext4, device: &MemoryDevice, mmp: &Mmp) {
    let at = fs.superblock().mmp_block().expect("a block") * 1024;
    device
        .write_at(&mmp.encode(fs.superblock()), at)
        .expect("memory");
}

fn note(session: &Session, path: &str) -> extern4_vfs::Result<()> {
    open_file(session, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?
        .write_at(b"note", 0)
        .map(drop)
}

#[test]
fn one_of_two_openers_is_refused() {
    let Some(device) = device() else { return };
    let first = open(&device).expect("a clean volume");
    assert!(matches!(block(&first, &device).state(), MmpState::Live(_)));
    let host = rustix::system::uname();
    let host = host.nodename().to_str().expect("a name");
    let start = Instant::now();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| in_use(read(&device, false)));
        let says = format!("it is in use on host {host}, as memory, which wrote so ");
        let writer = in_use(open(&device));
        assert!(writer.starts_with(&says), "{writer}");
        let reader = reader.join().expect("the reader ends");
        assert!(reader.starts_with(&says), "{reader}");
    });
    assert!(
        start.elapsed() >= Duration::from_secs(4),
        "too soon to know"
    );
    read(&device, true).expect("a reader that ignores the block");
    first.close().expect("close");
    assert_eq!(block(&first, &device).state(), MmpState::Clean);
    open(&device)
        .expect("a clean volume")
        .close()
        .expect("close");
    assert_eq!(
        looks(&device, |device| read_shared(device, false)
            .map(drop)
            .expect("a clean volume")),
        1
    );
    memory::fsck("mmp", &device);
}

/// The number of the first opener is on its way for so long that a second opener, which has not
/// seen it, opens the volume.
#[test]
fn a_late_node_waits_until_the_other_has_stopped() {
    let Some(device) = device() else { return };
    let (arrived, has_arrived) = mpsc::channel();
    let (release, opened) = mpsc::channel();
    let arrived = Mutex::new(Some(arrived));
    let slow = Arc::new(Gate {
        base: Arc::clone(&device),
        arrived,
        opened: Mutex::new(opened),
    });
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let late = Ext4::open_for_writing(Arc::clone(&slow) as _, &OpenOptions::default());
            (late, Instant::now())
        });
        has_arrived.recv().expect("it writes its number");
        let fs = Arc::new(open(&device).expect("it has found no other node"));
        let session = session(Arc::clone(&fs) as _);
        // Longer than the first opener takes for soon.
        std::thread::sleep(Duration::from_millis(600));
        release.send(()).expect("it waits");
        let mut last = Ok(());
        let mut at = Instant::now();
        let start = Instant::now();
        while last.is_ok() && start.elapsed() < Duration::from_secs(60) {
            at = Instant::now();
            last = note(&session, "/note");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(last.expect_err("it is given up").errno(), Errno::EROFS);
        let (late, opened) = late.join().expect("it ends");
        drop(late.expect("it has the volume now"));
        assert!(opened > at, "both have had it");
    });
}

#[test]
fn a_dead_node_is_waited_for_and_replaced() {
    let Some(device) = device() else { return };
    let fs = Arc::new(open(&device).expect("a clean volume"));
    let first = session(Arc::clone(&fs) as _);
    note(&first, "/kept").expect("a file");
    fs.sync().expect("sync");
    drop((first, fs));
    let start = Instant::now();
    let fs = Arc::new(open(&device).expect("no node has it"));
    assert!(
        start.elapsed() >= Duration::from_secs(4),
        "too soon to know"
    );
    let second = session(Arc::clone(&fs) as _);
    second
        .stat("/kept", LookupFlags::FOLLOW)
        .expect("the synced file");
    note(&second, "/new").expect("a file");
    drop(second);
    fs.close().expect("close");
    memory::fsck("mmp", &device);
}

/// The volume is not in use afterwards, and nothing was written: not that it was mounted, either.
#[test]
fn a_volume_without_a_root_is_left_alone() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    image.debugfs("set_inode_field <2> mode 0100644\n");
    let bytes = std::fs::read(&image.path).expect("the image is read");
    let device = Arc::new(MemoryDevice::new(bytes.clone()));
    let error = open(&device).map(drop).expect_err("the root is a file");
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let fs = read(&device, false).expect("no node has it");
    assert_eq!(block(&fs, &device).state(), MmpState::Clean);
    let mut after = vec![0; bytes.len()];
    let own = fs.superblock().mmp_block().expect("a block") as usize * 1024;
    device.read_at(&mut after, 0).expect("memory");
    after[own..own + 1024].copy_from_slice(&bytes[own..own + 1024]);
    assert!(after == bytes, "it was written");
}

#[test]
fn a_volume_that_another_node_has_taken_is_halted() {
    let Some(device) = device() else { return };
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let told = || TOLD.lock().expect("no thread has failed");
    let on_loss = Some(Listener::new(|why| {
        TOLD.lock()
            .expect("no thread has failed")
            .push(why.to_owned())
    }));
    let options = OpenOptions {
        on_loss,
        ..OpenOptions::default()
    };
    let fs = Ext4::open_for_writing(Arc::clone(&device) as _, &options).expect("a clean volume");
    let fs = Arc::new(fs);
    let session = session(Arc::clone(&fs) as _);
    note(&session, "/kept").expect("a file");
    fs.sync().expect("sync");
    note(&session, "/lost").expect("a file");
    let node = MmpNode {
        host: b"other",
        device: b"sdz",
    };
    let theirs = block(&fs, &device).taken(12345, &node, 2, 1);
    write_block(&fs, &device, &theirs);
    let refused = (0..600).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        note(&session, "/late").err()
    });
    assert_eq!(refused.expect("the volume is halted").errno(), Errno::EROFS);
    // First the volume is halted, then the callback is called.
    let why = (0..3000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        told().pop()
    });
    let why = why.unwrap_or_default();
    assert!(
        why.starts_with("it is in use on host other, as sdz"),
        "{why}"
    );
    drop(session);
    assert!(fs.close().is_err());
    assert_eq!(block(&fs, &device).state(), theirs.state(), "it is theirs");
    drop(fs);
    let what_is_left = memory_tree(&device);
    assert!(
        what_is_left.contains(&b"/kept"[..].to_vec()),
        "{what_is_left:?}"
    );
    assert!(
        !what_is_left.contains(&b"/late"[..].to_vec()),
        "{what_is_left:?}"
    );
}

fn memory_tree(device: &Arc<MemoryDevice>) -> Vec<Vec<u8>> {
    let fs = read(device, true).expect("a reader that ignores the block");
    walk::tree(&fs)
        .entries
        .into_keys()
        .map(|path| path.to_vec())
        .collect()
}

#[test]
fn a_file_system_check_is_not_disturbed() {
    let spec = ImageSpec::new(
        "mmp-plain",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "mmp,^metadata_csum"],
    );
    if !spec.can_run() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(memory::bytes_of(&spec)));
    let fs = read(&device, false).expect("a clean volume");
    // The block as a check writes it while it works; fields by the format's documentation.
    let at = fs.superblock().mmp_block().expect("a block") * 1024;
    device
        .write_at(&u32::to_le_bytes(0xe24d_4d50), at + 4)
        .expect("memory");
    device.write_at(b"checker\0", at + 16).expect("memory");
    let refused = |error: String| {
        assert!(
            error.contains("e2fsck is at work on it on host checker"),
            "{error}"
        )
    };
    refused(in_use(open(&device)));
    assert_eq!(
        looks(&device, |device| refused(in_use(read_shared(
            device, false
        )))),
        1
    );
    read(&device, true).expect("a reader that ignores the block");
}

#[test]
fn the_kernel_and_we_take_turns() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    for turn in 0..2 {
        let mount = image.mount("noatime");
        std::fs::write(mount.path.join(format!("theirs{turn}")), b"theirs").expect("a file");
        mount.unmount();
        let fs = open_for_writing(&image.path);
        let session = session(fs.clone() as _);
        session
            .stat(format!("/theirs{turn}"), LookupFlags::FOLLOW)
            .expect("their file");
        note(&session, &format!("/ours{turn}")).expect("a file");
        // Long enough to be renewed.
        std::thread::sleep(Duration::from_millis(1500));
        drop(session);
        fs.close().expect("close");
        drop(fs);
        assert_eq!(judge("mmp turns", &image).entries.len(), 2 + 2 * (turn + 1));
    }
}

#[test]
fn the_kernel_and_we_refuse_each_other() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let ours = image.copy();
    let theirs = image.copy();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mount = theirs.mount("noatime");
            let device = FileDevice::open(&theirs.path).expect("a device");
            let error = in_use(Ext4::open(Arc::new(device), &OpenOptions::default()));
            assert!(error.contains(", as loop"), "{error}");
            mount.unmount();
        });
        scope.spawn(|| {
            let options = FileOptions {
                write: true,
                ..FileOptions::default()
            };
            let device = FileDevice::open_with(&ours.path, &options).expect("a device");
            let fs = Ext4::open_for_writing(Arc::new(device), &OpenOptions::default())
                .expect("a volume");
            assert!(
                ours.try_mount("noatime").is_err(),
                "the kernel waits, and sees that we are there"
            );
            fs.close().expect("close");
            drop(fs);
            judge("mmp refused", &ours);
        });
    });
}
