//! Times at the ends of the range of inodes, and beyond, set here and through the kernel's mount,
//! and read back.

use std::fs::FileTimes;
use std::time::{Duration, SystemTime};

use extern4_testkit::image::ImageSpec;
use extern4_vfs::{LookupFlags, OpenFlags, SetTime, Timespec};

use crate::model::{open, open_for_writing, session};

/// The last second of an inode without extra bits, and of one with them.
const SHORT: i64 = i32::MAX as i64;
const LONG: i64 = 0x3_7fff_ffff;
const FIRST: i64 = i32::MIN as i64;

const SECONDS: [i64; 21] = [
    i64::MIN / 4,
    FIRST - (1 << 32),
    FIRST - 2,
    FIRST - 1,
    FIRST,
    FIRST + 1,
    -2,
    -1,
    0,
    1,
    SHORT - 1,
    SHORT,
    SHORT + 1,
    1 << 32,
    (1 << 33) + 5,
    LONG - 1,
    LONG,
    LONG + 1,
    LONG + 2,
    1 << 40,
    i64::MAX / 4,
];
const NANOS: [u32; 4] = [0, 1, 500_000_000, 999_999_999];

fn system_time(seconds: i64, nanos: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = SystemTime::UNIX_EPOCH;
    let base = if seconds < 0 {
        base - whole
    } else {
        base + whole
    };
    base + Duration::from_nanos(nanos.into())
}

#[test]
fn times_out_of_range_become_the_nearest_in_range() {
    for mke2fs in [
        &["-t", "ext4", "-I", "256"][..],
        &["-t", "ext4", "-I", "128"],
        &["-t", "ext3", "-I", "128"],
        &["-t", "ext2", "-I", "256"],
    ] {
        let spec = ImageSpec::new("times", 16 << 20, mke2fs);
        if !spec.can_run() {
            return;
        }
        let times = || {
            SECONDS
                .iter()
                .flat_map(|&seconds| NANOS.iter().map(move |&nanos| (seconds, nanos)))
        };
        let theirs = spec.build();
        let ours = spec.build();
        let mount = theirs.mount("noatime");
        for (at, (seconds, nanos)) in times().enumerate() {
            let file = std::fs::File::create(mount.path.join(at.to_string())).expect("a file");
            let time = system_time(seconds, nanos);
            file.set_times(FileTimes::new().set_accessed(time).set_modified(time))
                .expect("it can be set");
        }
        mount.unmount();
        let fs = open_for_writing(&ours.path);
        let root = session(fs.clone() as _);
        for (at, (sec, nsec)) in times().enumerate() {
            let path = format!("/{at}");
            drop(open(&root, &path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("a file"));
            let time = SetTime::At(Timespec { sec, nsec });
            root.utimens(&path, time, time, LookupFlags::FOLLOW)
                .expect("it can be set");
            let stat = root.stat(&path, LookupFlags::FOLLOW).expect("it is there");
            assert_eq!(stat.atime, stat.mtime);
            if mke2fs.contains(&"256") {
                let end = sec <= FIRST || sec >= LONG;
                let held = Timespec {
                    sec: sec.clamp(FIRST, LONG),
                    nsec: if end { 0 } else { nsec },
                };
                assert_eq!(stat.mtime, held, "{mke2fs:?}, {sec} and {nsec}");
            }
        }
        drop(root);
        fs.close().expect("close");
        drop(fs);
        let theirs = extern4_testkit::tree::from_mount(&theirs.mount("ro,noatime").path);
        let ours = extern4_testkit::tree::from_mount(&ours.mount("ro,noatime").path);
        for (at, time) in times().enumerate() {
            let path = format!("/{at}").into_bytes();
            let of = |tree: &extern4_testkit::tree::Tree| {
                (tree.entries[&path].atime, tree.entries[&path].mtime)
            };
            assert_eq!(of(&ours), of(&theirs), "{mke2fs:?}, {time:?}");
        }
    }
}
