//! Volumes that were built, then changed by the kernel and by us, and that lost power meanwhile.
//!
//! Each change is one operation, which a journal makes whole or not at all. So the names after a
//! crash are those after some operation, not before the last that was synced. Files without
//! a change have their contents.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use extern4::block::{BlockDevice, CrashDevice, MemoryDevice};
use extern4::build::{BuildOptions, Builder, Options, source};
use extern4::{FileType, Session, Volume};
use extern4_testkit::image::Image;
use extern4_testkit::plan;
use extern4_testkit::tools::{self, Need};

/// Operations on a volume, and the number of them after which all is durable.
const OPERATIONS: u64 = 90;
const SYNC_EVERY: u64 = 9;

/// The files of a volume: their types, modes, and links by path.
type Names = BTreeMap<Vec<u8>, (FileType, u32, u32)>;

fn names(volume: &Volume) -> Names {
    let entry = |entry: extern4::Result<extern4::DirEntry>| {
        let entry = entry.expect("an entry");
        let metadata = entry.metadata().expect("an inode");
        let path = entry.path().as_os_str().as_encoded_bytes().to_vec();
        (
            path,
            (metadata.file_type(), metadata.mode(), metadata.nlink()),
        )
    };
    volume.superuser().walk("/").map(entry).collect()
}

/// A volume that is built of files, directories and one of names that is a hash tree.
fn built(fs_type: &str, features: &str) -> Image {
    let tree = tools::temporary("extern4-source-");
    for plan in [
        plan::small_files,
        plan::small_directories,
        plan::small_crowd,
    ] {
        plan(tree.path()).expect("a plan");
    }
    fs::create_dir(tree.path().join("work")).expect("a directory");
    fs::write(tree.path().join("work/built"), plan::pattern(1, 0, 100_000)).expect("a file");
    let volume = Options {
        fs_type: fs_type.to_owned(),
        features: vec![features.to_owned()],
        inode_size: Some(256),
        ..Options::default()
    };
    let size = extern4::build::Size::Slack(12 << 20);
    let mut builder = Builder::new(BuildOptions {
        volume,
        size,
        ..BuildOptions::default()
    });
    builder
        .add(source(tree.path(), "/").expect("a directory"), b"")
        .expect("a tree");
    let image = Image::in_directory(tools::temporary("extern4-built-"), "out.img");
    builder
        .plan()
        .expect("a volume")
        .write_file(&image.path, false, 2)
        .expect("an image");
    image
}

/// One operation.
fn change(session: &Session, number: u64) {
    let name = |number: u64| {
        format!(
            "/work/n{number:03}-{}",
            "x".repeat((number * 37 % 200) as usize)
        )
    };
    let old = number.saturating_sub(8);
    let done = match number % 9 {
        0 => session.create_dir(name(number)),
        1 => session.create(name(number)).map(drop),
        2 => session.hard_link("/work/built", name(number)),
        3 => session.symlink("t".repeat(number as usize * 2 + 1), name(number)),
        4 => session.rename(name(number - 3), format!("/crowd/of-300/moved-{number}")),
        5 => session.remove_file(format!(
            "/crowd/of-long-names/{number:04}{}",
            "x".repeat(251)
        )),
        6 => session.set_permissions(name(old + 2), 0o600 + number as u32 % 64),
        7 => session.setxattr(
            "/work/built",
            "user.n",
            &[1].repeat(number as usize),
            Default::default(),
        ),
        _ => session.remove_dir(name(old)),
    };
    done.unwrap_or_else(|error| panic!("operation {number}: {error}"));
}

/// Recovers a crashed volume; gives its bytes.
fn recovered(what: &str, bytes: Vec<u8>) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut options = Volume::options();
    let volume = options.write(true).open_device(Arc::clone(&device) as _);
    let volume = volume.unwrap_or_else(|error| panic!("{what}: {error}"));
    volume
        .close()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(&mut bytes, 0).expect("memory");
    bytes
}

/// A state that a crash at `moment` may leave. The sectors of the superblock, which has its
/// checksum in the second of them, are written both or not at all.
fn crash(device: &CrashDevice, moment: usize, kind: u64) -> Vec<u8> {
    let mut superblock = (0, false);
    let state = device.crash(moment, |pending| {
        let mixed = (pending.sector ^ pending.event as u64 ^ kind)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 60;
        let keep = match kind % 4 {
            0 => true,
            1 => false,
            2 => mixed < 8,
            _ => mixed != 0,
        };
        match pending.sector {
            2 => superblock = (pending.event, keep),
            3 if superblock.0 == pending.event => return superblock.1,
            _ => {}
        }
        keep
    });
    state.into_bytes()
}

fn fsck(what: &str, path: &Path) {
    tools::e2fsck(path).unwrap_or_else(|said| panic!("{what}: e2fsck: {said}"));
}

/// The kernel changes a volume.
fn change_by_kernel(image: &Image) {
    let mount = image.mount("rw");
    let at = |path: &str| mount.path.join(path);
    fs::rename(at("crowd/of-300"), at("work/of-300")).expect("a rename");
    fs::rename(at("work/of-300"), at("crowd/of-300")).expect("a rename");
    for number in 0..400 {
        let path = at(&format!("crowd/of-300/by-kernel-{number}"));
        fs::write(&path, plan::pattern(number, 0, number as usize * 7)).expect("a file");
        if number % 2 == 0 {
            fs::remove_file(path).expect("a file");
        }
    }
    mount.unmount();
}

#[test]
fn a_built_volume_survives_changes_and_power_losses() {
    if !tools::can_run(&[Need::Mount, Need::Tool("e2fsck")]) {
        return;
    }
    // As many as `make soak` asks for.
    let states = std::env::var("EXTERN4_CRASHES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(20);
    for (fs_type, features) in [
        ("ext4", "64bit"),
        ("ext3", "none,has_journal,dir_index,filetype,ext_attr"),
    ] {
        let image = built(fs_type, features);
        change_by_kernel(&image);
        fsck("changed by the kernel", &image.path);
        let device = Arc::new(CrashDevice::new(fs::read(&image.path).expect("an image")));
        let mut options = Volume::options();
        let volume = options
            .write(true)
            .open_device(Arc::clone(&device) as _)
            .expect("a volume");
        let session = volume.superuser();
        let mut found = vec![names(&volume)];
        let mut begun = Vec::new();
        let mut synced = vec![(0, 0)];
        for number in 0..OPERATIONS {
            begun.push(device.moment());
            change(&session, number);
            found.push(names(&volume));
            if number % SYNC_EVERY == SYNC_EVERY - 1 {
                volume.sync().expect("a sync");
                synced.push((device.moment(), found.len() - 1));
            }
        }
        drop(session);
        volume.close().expect("a volume that is closed");
        let end = device.moment();
        synced.push((end, OPERATIONS as usize));
        for state in 0..states {
            let moment = (end * state / states).max(1);
            let what = format!("{fs_type}, moment {moment} of {end}, state {state}");
            let crashed = crash(&device, moment, state as u64);
            let least = synced
                .iter()
                .filter(|(at, _)| *at <= moment)
                .map(|(_, count)| *count)
                .max();
            let most = begun.iter().filter(|at| **at <= moment).count();
            let allowed = least.unwrap_or(0)..=most.max(least.unwrap_or(0));
            let check = |what: &str| {
                fsck(what, &image.path);
                let volume = Volume::open(&image.path).expect("a volume");
                let now = names(&volume);
                assert!(
                    found[allowed.clone()].contains(&now),
                    "{what}: no operation in {allowed:?} left this"
                );
                let bytes = volume.superuser().read("/work/built").expect("a file");
                assert!(bytes == plan::pattern(1, 0, 100_000), "{what}: contents");
            };
            fs::write(&image.path, recovered(&what, crashed.clone())).expect("an image");
            check(&what);
            if state % 8 == 0 {
                fs::write(&image.path, crashed).expect("an image");
                image.mount("rw").unmount();
                check(&format!("{what}, by the kernel"));
            }
        }
    }
}
