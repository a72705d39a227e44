//! A volume that is dropped and not closed: either its changes are on the device, or it reports the
//! loss.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use extern4::{Errno, Session, Shutdown, Volume};
use extern4_block::device::fault::{Effect, Fault};
use extern4_block::{BlockDevice, FaultDevice, FileDevice, FileOptions, MemoryDevice, Op};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;

const JOURNALED: ImageSpec = ImageSpec::new("dropped", 16 << 20, &["-t", "ext4"]);
const PLAIN: ImageSpec = ImageSpec::new("dropped", 16 << 20, &["-t", "ext2"]);

fn open(image: &Image) -> Volume {
    Volume::options()
        .write(true)
        .open(&image.path)
        .unwrap_or_else(|e| panic!("{e}"))
}

/// Makes a file and syncs nothing of it.
fn write(session: &Session) {
    let mut file = session.create("/file").expect("a file");
    file.write_all(b"kept").expect("it is written");
}

/// Checks that the volume is clean, and the file there.
fn is_kept(image: &Image, what: &str) {
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let volume = Volume::open(&image.path).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(
        volume.ext4().replayed().is_none(),
        "{what}: it was not closed"
    );
    assert_eq!(
        volume.superuser().read("/file").expect(what),
        b"kept",
        "{what}"
    );
}

/// Drops everything that it is given, in another order.
type Drop = fn(Volume, Session);

const LAST: &[(&str, Drop)] = &[
    ("a volume", |volume, session| drop((session, volume))),
    ("a session", |volume, session| drop((volume, session))),
    ("a clone", |volume, session| {
        let clone = volume.clone();
        drop((volume, session));
        drop(clone);
    }),
    ("an open file", |volume, session| {
        let file = session.open("/file").expect("it opens");
        drop((volume, session));
        drop(file);
    }),
    ("an open file that has been removed", |volume, session| {
        let mut file = session.create("/gone").expect("a file");
        file.write_all(&[7; 100_000]).expect("it is written");
        session.remove_file("/gone").expect("it is removed");
        drop((volume, session));
        drop(file);
    }),
    ("a listing", |volume, session| {
        let mut listing = session.read_dir("/").expect("it opens");
        listing.next().expect("an entry").expect("an entry");
        drop((volume, session));
        drop(listing);
    }),
    ("a thread's session", |volume, session| {
        drop(volume);
        std::thread::spawn(move || drop(session))
            .join()
            .expect("it ends");
    }),
];

#[test]
fn the_drop_of_the_last_handle_closes_the_volume() {
    for spec in [JOURNALED, PLAIN] {
        if !spec.can_run() {
            return;
        }
        for (what, drop_all) in LAST {
            let image = spec.build();
            let volume = open(&image);
            let session = volume.superuser();
            write(&session);
            drop_all(volume, session);
            is_kept(&image, what);
        }
    }
}

#[test]
fn times_that_are_in_memory_only_are_stored_by_a_drop() {
    if !JOURNALED.can_run() {
        return;
    }
    let image = JOURNALED.build();
    let atime = || {
        Volume::open(&image.path)
            .unwrap()
            .superuser()
            .metadata("/file")
            .unwrap()
            .atime()
    };
    write(&open(&image).superuser());
    let made = atime();
    // The file has the time of the last clock tick. The read has to come in a later tick.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let mut options = Volume::options();
    let volume = options
        .write(true)
        .lazytime(true)
        .atime(extern4::Atime::Strict)
        .open(&image.path)
        .unwrap();
    volume.superuser().read("/file").unwrap();
    drop(volume);
    assert!(atime() > made);
    is_kept(&image, "with lazytime");
}

#[test]
fn a_drop_after_a_shutdown_writes_nothing() {
    if !JOURNALED.can_run() {
        return;
    }
    let image = JOURNALED.build();
    let volume = open(&image);
    write(&volume.superuser());
    volume.shut_down(Shutdown::Forget).expect("it is shut down");
    let before = std::fs::read(&image.path).expect("the image");
    drop(volume);
    assert!(std::fs::read(&image.path).expect("the image") == before);
    let error = Volume::open(&image.path)
        .unwrap()
        .superuser()
        .read("/file")
        .unwrap_err();
    assert_eq!(error.errno(), Errno::ENOENT);
}

#[test]
fn a_drop_during_a_panic_writes_and_does_not_panic_again() {
    if !JOURNALED.can_run() {
        return;
    }
    let image = JOURNALED.build();
    let panicked = catch_unwind(|| {
        let volume = open(&image);
        write(&volume.superuser());
        panic!("a fault of the caller");
    });
    panicked.expect_err("it panics");
    is_kept(&image, "a panic");
    // This also holds where the volume cannot write, and where the callback panics, too.
    let broken = Broken::new(&image);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let volume = broken.open(|_| panic!("a fault of what is told"));
        write(&volume.superuser());
        broken.breaks(Op::Write);
        panic!("a fault of the caller");
    }));
    let payload = panicked.expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&"a fault of the caller"));
}

/// A copy of an image in memory whose device can break.
struct Broken(Arc<FaultDevice>);

impl Broken {
    fn new(image: &Image) -> Self {
        let bytes = std::fs::read(&image.path).expect("the image");
        Self(Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(
            bytes,
        )))))
    }

    fn open(&self, told: impl Fn(&str) + Send + Sync + 'static) -> Volume {
        let mut options = Volume::options();
        options
            .write(true)
            .on_loss(told)
            .commit_interval(Duration::from_secs(1000));
        options
            .open_device(Arc::clone(&self.0) as _)
            .unwrap_or_else(|e| panic!("{e}"))
    }

    fn breaks(&self, op: Op) {
        self.0.inject(Fault::every(op, Effect::Error(28)));
    }
}

/// A way for an operation to meet a device's failure.
type Meets = fn(Volume, Session) -> extern4::Result<()>;

const MEETINGS: &[(&str, Meets)] = &[
    ("a drop", |volume, session| {
        drop((volume, session));
        Ok(())
    }),
    ("a close", |volume, session| {
        drop(session);
        Err(volume.close().expect_err("it cannot be closed"))
    }),
    ("a sync", |volume, _session| {
        Err(volume.sync().expect_err("it cannot be synced"))
    }),
    ("a sync, and then a close", |volume, session| {
        volume.sync().expect_err("it cannot be synced");
        drop(session);
        Err(volume.close().expect_err("it cannot be closed"))
    }),
    ("a commit without a waiting thread", |volume, session| {
        volume.ext4().begin_sync();
        // The next change meets the failed commit.
        while session.set_permissions("/file", 0o600).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(session);
        Err(volume.close().expect_err("it cannot be closed"))
    }),
];

#[test]
fn a_lost_change_is_reported_once_and_is_an_error_of_close() {
    for spec in [JOURNALED, PLAIN] {
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        for (what, meet) in MEETINGS {
            for op in [Op::Write, Op::Flush] {
                let told: Arc<Mutex<Vec<String>>> = Arc::default();
                let broken = Broken::new(&image);
                let volume = {
                    let told = Arc::clone(&told);
                    broken.open(move |why| {
                        told.lock()
                            .expect("no thread has panicked")
                            .push(why.to_owned())
                    })
                };
                let session = volume.superuser();
                write(&session);
                broken.breaks(op);
                let result = meet(volume, session);
                let told = told.lock().expect("no thread has panicked");
                let [why] = &told[..] else {
                    panic!("{what}, {op:?}: told {told:?}")
                };
                assert!(why.contains("No space left"), "{what}, {op:?}: {why}");
                if let Err(error) = result {
                    assert!(
                        error.to_string().contains("No space left"),
                        "{what}, {op:?}: {error}"
                    );
                }
            }
        }
    }
}

/// The locks belong to the open file description, of which a process that is just being started has
/// a copy.
#[test]
fn an_image_can_be_opened_again_while_another_process_has_its_descriptor() {
    if !JOURNALED.can_run() {
        return;
    }
    let image = JOURNALED.build();
    let options = FileOptions {
        write: true,
        ..FileOptions::default()
    };
    for window in [None, Some(8 << 20)] {
        let options = FileOptions {
            len_bytes: window,
            ..options.clone()
        };
        let device = FileDevice::open_with(&image.path, &options).expect("it opens");
        // As between fork and exec, the child holds the files that are open here for as long as it
        // waits.
        let (file, _) = device.file_range(0..4096).expect("a file of the host");
        let inherited = file.try_clone().expect("a descriptor");
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .stdin(inherited)
            .spawn()
            .expect("it runs");
        FileDevice::open_with(&image.path, &options)
            .map(drop)
            .expect_err("it is locked");
        drop(device);
        let again = FileDevice::open_with(&image.path, &options);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        drop(again.expect("it is not locked any more"));
    }
}
