//! Volumes that are opened for reading and made writable while they are in use.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use extern4::{Errno, File, Volume};
use extern4_block::device::fault::{Effect, Fault};
use extern4_block::{FaultDevice, MemoryDevice, Op};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{self, Need, can_run};

const SPEC: ImageSpec = ImageSpec::new(
    "remount",
    32 << 20,
    &["-t", "ext4", "-b", "1024", "-J", "size=4"],
);
/// The length in bytes of the file `f`, and the length to which it was being truncated.
const LEN: usize = 300_000;
const LEFT: usize = 1000;

/// A volume with a file `f` of [`LEN`] bytes, and `g`.
fn build(spec: &ImageSpec, script: &str) -> Option<Image> {
    if !spec.can_run() || !can_run(&[Need::Tool("debugfs")]) {
        return None;
    }
    let image = spec.build();
    let file = image.scratch().join("contents");
    fs::write(&file, contents()).expect("a file");
    let from = file.display();
    image.debugfs(&format!("write {from} f\nwrite {from} g\n{script}"));
    Some(image)
}

fn contents() -> Vec<u8> {
    (0..LEN).map(|at| (at / 7 % 251) as u8).collect()
}

fn sound(path: &Path) {
    tools::e2fsck(path).unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the present contents of an open file.
fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 2 * LEN];
    let len = file.read_at(&mut bytes, 0).expect("it is still open");
    bytes.truncate(len);
    bytes
}

fn bytes_of(path: &Path) -> Vec<u8> {
    fs::read(path).expect("the image is read")
}

#[test]
fn a_volume_that_is_read_becomes_writable() {
    let Some(image) = build(&SPEC, "") else {
        return;
    };
    let before = bytes_of(&image.path);
    let volume = Volume::open(&image.path).expect("it opens");
    let root = volume.superuser();
    let file = root.open("/f").expect("it opens");
    assert_eq!(
        root.create("/new")
            .map(drop)
            .expect_err("it is only read")
            .errno(),
        Errno::EROFS
    );
    assert!(before == bytes_of(&image.path), "nothing is written");
    volume.set_read_only(false).expect("it becomes writable");
    let refused = Volume::open(&image.path)
        .map(drop)
        .expect_err("it has been locked")
        .to_string();
    assert!(refused.contains("has it open for writing"), "{refused}");
    root.create("/new")
        .and_then(|new| new.write_all_at(b"text", 0))
        .expect("it can be changed");
    assert_eq!(all(&file), contents());
    volume.sync().expect("it is durable");
    // The image is as after a crash now: the superblock says so, and the journal has the change.
    let crashed = image.scratch().join("crashed.img");
    fs::copy(&image.path, &crashed).expect("a copy");
    let copy = Volume::open(&crashed).expect("it opens");
    assert!(copy.ext4().replayed().is_some());
    assert_eq!(copy.superuser().read("/new").expect("it is there"), b"text");
    for _ in 0..2 {
        volume
            .set_read_only(true)
            .expect("no file is open for writing");
        assert_eq!(
            root.remove_file("/new")
                .expect_err("it is only read")
                .errno(),
            Errno::EROFS
        );
        volume.set_read_only(false).expect("it becomes writable");
    }
    root.remove_file("/g").expect("it can be changed");
    drop((root, file));
    volume.close().expect("it closes");
    sound(&image.path);
}

/// The reader saw the volume through its journal, which is then written to the device. Contents
/// cached until then stay true.
#[test]
fn the_journal_is_replayed_onto_the_device() {
    let Some(image) = build(&SPEC, "") else {
        return;
    };
    let crashed = image.scratch().join("crashed.img");
    let writer = Volume::options()
        .write(true)
        .open(&image.path)
        .expect("it opens");
    let session = writer.superuser();
    session.create_dir("/dir").expect("a directory");
    for name in 0..200 {
        session.create(format!("/dir/{name}")).expect("a file");
    }
    writer.sync().expect("it is durable");
    fs::copy(&image.path, &crashed).expect("a copy");
    drop((session, writer));

    let volume = Volume::open(&crashed).expect("it opens");
    assert!(volume.ext4().replayed().is_some(), "a journal to replay");
    let before = bytes_of(&crashed);
    let root = volume.superuser();
    let file = root.open("/dir/7").expect("it is there");
    assert_eq!(root.read_dir("/dir").expect("it is read").count(), 200);
    assert!(before == bytes_of(&crashed), "nothing is written");
    volume.set_read_only(false).expect("it becomes writable");
    for name in 0..100 {
        root.remove_file(format!("/dir/{name}"))
            .expect("it is there");
    }
    root.create("/dir/new")
        .and_then(|new| new.write_all_at(&contents(), 0))
        .expect("it can be changed");
    assert_eq!(root.read_dir("/dir").expect("it is read").count(), 101);
    drop((root, file));
    volume.close().expect("it closes");
    sound(&crashed);
}

/// A removed file is freed, and the file that was being truncated is cut off; that one is in use
/// meanwhile.
#[test]
fn orphans_are_freed_and_files_in_use_are_right() {
    let script = format!(
        "sif f size {LEFT}\nunlink g\nsif <13> links_count 0\nsif <13> dtime 12\nssv last_orphan 13\n"
    );
    let Some(image) = build(&SPEC, &script) else {
        return;
    };
    let volume = Volume::open(&image.path).expect("it opens");
    let root = volume.superuser();
    let file = root.open("/f").expect("it opens");
    let blocks = || root.metadata("/f").expect("attributes").blocks();
    let free = || volume.stat_fs().expect("counts").blocks_free;
    let blocks_before = blocks();
    let free_before = free();
    assert!(blocks_before >= LEN as u64 / 512, "{blocks_before}");
    volume.set_read_only(false).expect("it becomes writable");
    assert!(
        blocks() < 8,
        "{} of {blocks_before} sectors are left",
        blocks()
    );
    assert!(
        free() > free_before + 2 * (LEN as u64 / 1024) - 8,
        "{free_before} {}",
        free()
    );
    assert_eq!(all(&file), contents()[..LEFT]);
    // By the block map of the inode as it was cached, the writes would go to its freed blocks.
    let writer = root
        .open_with("/f", File::options().write(true))
        .expect("it opens");
    writer
        .write_all_at(&contents()[LEFT..], LEFT as u64)
        .expect("there is room");
    root.create("/other")
        .and_then(|new| new.write_all_at(&contents(), 0))
        .expect("there is room");
    assert_eq!(all(&file), contents());
    drop((writer, file, root));
    volume.close().expect("it closes");
    sound(&image.path);
}

#[test]
fn a_volume_that_cannot_be_written_stays_readable() {
    let Some(image) = build(&SPEC, "") else {
        return;
    };
    // A feature that the library can only read.
    let bigalloc = ImageSpec::new(
        "bigalloc",
        32 << 20,
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    );
    if let Some(image) = build(&bigalloc, "") {
        let volume = Volume::open(&image.path).expect("it opens");
        let refused = volume
            .set_read_only(false)
            .expect_err("it is only read")
            .to_string();
        assert!(refused.contains("bigalloc"), "{refused}");
        assert_eq!(
            volume.superuser().read("/f").expect("it is read"),
            contents()
        );
    }
    // A device of the caller's own that refuses changes.
    let device = Arc::new(MemoryDevice::read_only(bytes_of(&image.path)));
    let volume = Volume::options().open_device(device).expect("it opens");
    let refused = volume
        .set_read_only(false)
        .expect_err("it is only read")
        .to_string();
    assert!(refused.contains("read-only"), "{refused}");
    assert_eq!(
        volume.superuser().read("/f").expect("it is read"),
        contents()
    );
    // Another reader keeps the writer out until it has gone.
    let volume = Volume::open(&image.path);
    let other = Volume::open(&image.path);
    let volume = volume.expect("it opens");
    let other = other.expect("it opens");
    let refused = volume
        .set_read_only(false)
        .expect_err("another has it open");
    assert_eq!(refused.errno(), Errno::EBUSY, "{refused}");
    assert!(
        refused.to_string().contains("this process has it open"),
        "{refused}"
    );
    let writer = Volume::options().write(true).open(&image.path);
    assert_eq!(
        writer.map(drop).expect_err("it is locked again").errno(),
        Errno::EBUSY
    );
    assert_eq!(
        volume.superuser().read("/f").expect("it is read"),
        contents()
    );
    drop(other);
    volume.set_read_only(false).expect("it becomes writable");
    volume
        .superuser()
        .remove_file("/f")
        .expect("it can be changed");
    volume.close().expect("it closes");
    sound(&image.path);
    // A volume that is read while another program writes to it.
    let volume = Volume::options()
        .shared(true)
        .open(&image.path)
        .expect("it opens");
    let refused = volume
        .set_read_only(false)
        .expect_err("others may write to it");
    assert_eq!(refused.errno(), Errno::EROFS, "{refused}");
}

/// Another program wrote to the volume in between; the superblock shows it.
#[test]
fn a_volume_that_was_changed_meanwhile_is_left_alone() {
    let Some(image) = build(&SPEC, "") else {
        return;
    };
    let volume = Volume::open(&image.path).expect("it opens");
    tools::debugfs(&image.path, true, "set_super_value volume_name other");
    let before = bytes_of(&image.path);
    let refused = volume
        .set_read_only(false)
        .expect_err("it has changed")
        .to_string();
    assert!(
        refused.contains("another program has changed it"),
        "{refused}"
    );
    assert!(before == bytes_of(&image.path), "nothing is written");
}

/// The change fails half way, after the first write to the device. A later try reports the reason
/// again.
#[test]
fn a_failure_half_way_leaves_a_volume_that_is_read() {
    let script = format!("sif f size {LEFT}\nssv last_orphan 12\n");
    let Some(image) = build(&SPEC, &script) else {
        return;
    };
    let memory = Arc::new(MemoryDevice::new(bytes_of(&image.path)));
    let device = Arc::new(FaultDevice::new(memory));
    let volume = Volume::options()
        .open_device(Arc::clone(&device) as _)
        .expect("it opens");
    device.inject(Fault::every(Op::Write, Effect::Error(5)));
    volume
        .set_read_only(false)
        .expect_err("it cannot be written");
    device.heal();
    volume
        .set_read_only(false)
        .expect_err("it has failed before");
    let root = volume.superuser();
    assert_eq!(root.read("/f").expect("it is read"), contents()[..LEFT]);
    assert_eq!(
        root.remove_file("/f").expect_err("it is only read").errno(),
        Errno::EROFS
    );
}
