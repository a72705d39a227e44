//! Large reads in a mount: they return the contents of the file, whatever its map on the volume and
//! the form of the answer.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extern4_testkit::image::ImageSpec;
use extern4_testkit::plan::pattern;

use crate::mounting::{
    EMPTY, Served, as_user, can_mount, can_mount_as_root, copy_command, in_foreground, patiently,
    sound, transports, users_can_mount,
};
use crate::run::{partitioned, tool};

const SMALL_BLOCKS: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "1024"]);
const INDIRECT: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext2", "-b", "4096"]);

/// `O_DIRECT`: bypasses the kernel's cache, so that each read reaches the server.
const O_DIRECT: i32 = 0o40000;

/// Opens a file so that each read of it reaches the server.
fn uncached(path: &Path) -> File {
    File::options()
        .read(true)
        .custom_flags(O_DIRECT)
        .open(path)
        .expect("it opens")
}

/// A file and its contents.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
}

/// Writes parts of a file that is then `size` bytes long, and leaves holes between them.
fn write_parts(path: &Path, size: usize, parts: &[(usize, usize)]) -> Vec<u8> {
    let file = File::create(path).expect("a file");
    file.set_len(size as u64).expect("its size");
    let mut bytes = vec![0; size];
    for &(at, len) in parts {
        let part = pattern(7, at as u64, len);
        file.write_all_at(&part, at as u64).expect("it is written");
        bytes[at..at + len].copy_from_slice(&part);
    }
    bytes
}

/// Makes files with all kinds of block maps.
fn make_cases(served: &Served) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut make = |name, size, parts: &[(usize, usize)]| {
        cases.push(Case {
            name,
            bytes: write_parts(&served.path(name), size, parts),
        });
    };
    make("whole", (3 << 20) + 777, &[(0, (3 << 20) + 777)]);
    make(
        "holes",
        2 << 20,
        &[(4096, 100_000), (600_001, 300_000), ((2 << 20) - 3, 3)],
    );
    let scattered: Vec<_> = (0..250).map(|at| (at * 8192, 4000)).collect();
    make("scattered", 2 << 20, &scattered);
    make("short", 100, &[(0, 100)]);
    // Two files that grow in turn have interleaved blocks.
    let ends: Vec<_> = (0..120).map(|at| (at * 12_288, 12_288)).collect();
    let files = ["one", "other"].map(|name| File::create(served.path(name)).expect("a file"));
    for &(at, len) in &ends {
        for (seed, file) in (1..).zip(&files) {
            file.write_all_at(&pattern(seed, at as u64, len), at as u64)
                .expect("it is written");
            file.sync_data().expect("it is synced");
        }
    }
    for (seed, name) in [(1, "one"), (2, "other")] {
        cases.push(Case {
            name,
            bytes: pattern(seed, 0, 120 * 12_288),
        });
    }
    cases
}

/// Makes a file with unwritten extents.
fn make_unwritten(served: &Served) -> Case {
    let mut bytes = write_parts(
        &served.path("unwritten"),
        2 << 20,
        &[(0, 65_536), (1 << 20, 500_000)],
    );
    tool(
        &served.dir,
        "fallocate",
        ["-l", "1M", "-o", "64K", "unwritten"],
    );
    tool(
        &served.dir,
        "fallocate",
        ["-z", "-l", "128K", "-o", "1100K", "unwritten"],
    );
    bytes[1100 << 10..1228 << 10].fill(0);
    Case {
        name: "unwritten",
        bytes,
    }
}

/// Asserts that every read of a file returns its contents, through the kernel's cache and past it.
#[track_caller]
fn assert_reads(served: &Served, case: &Case) {
    let Case { name, bytes } = case;
    let ranges = [
        (0, 1 << 20),
        (0, 4 << 20),
        (65_536, 131_072),
        (1, 1 << 20),
        (12_345, 300_001),
        (1_000_000, 1 << 20),
        (bytes.len().saturating_sub(100_000), 1 << 20),
        (bytes.len(), 100_000),
    ];
    for file in [
        uncached(&served.path(name)),
        File::open(served.path(name)).expect("it opens"),
    ] {
        for (at, len) in ranges {
            let mut buffer = vec![0xee; len];
            let read = file.read_at(&mut buffer, at as u64).expect("it is read");
            let want = &bytes[at.min(bytes.len())..(at + len).min(bytes.len())];
            assert_eq!(read, want.len(), "{name}: {len} bytes at {at}");
            assert!(buffer[..read] == *want, "{name}: {len} bytes at {at}");
        }
    }
}

#[test]
fn every_read_gives_what_the_file_holds() {
    if !can_mount() {
        return;
    }
    // The mount options, and whether the volume has unwritten extents.
    let ways = [
        (EMPTY, "rw", true),
        (EMPTY, "data=journal", true),
        (SMALL_BLOCKS, "rw", true),
        (INDIRECT, "rw", false),
    ];
    let each = transports()
        .into_iter()
        .flat_map(|by| ways.map(|way| (by, way)));
    for (transport, (spec, options, knows_unwritten)) in each {
        let image = spec.build();
        let options = format!("{transport},{options}");
        let served = Served::new(&image, &["-o", &options]);
        let mut cases = make_cases(&served);
        if knows_unwritten {
            cases.push(make_unwritten(&served));
        }
        // Before anything is committed, then from the volume.
        cases.iter().for_each(|case| assert_reads(&served, case));
        served.umount();
        let served = Served::new(&image, &["-o", &options]);
        cases.iter().for_each(|case| assert_reads(&served, case));
        served.umount();
        sound(&image);
    }
}

#[test]
fn journaled_data_is_read_from_the_journal() {
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        let path = served.path("file");
        fs::write(&path, vec![b'o'; 300_000]).expect("a file");
        for (change, byte) in [("+j", b'j'), ("-j", b'd'), ("+j", b'k')] {
            tool(&served.dir, "chattr", [change, "file"]);
            let file = File::options().write(true).open(&path).expect("it opens");
            file.write_all_at(&[byte; 200_000], 50_000)
                .expect("it is written");
            let mut bytes = vec![0; 1 << 20];
            let read = uncached(&path).read_at(&mut bytes, 0).expect("it is read");
            let want = [&[b'o'; 50_000][..], &[byte; 200_000], &[b'o'; 50_000]].concat();
            assert!(bytes[..read] == want, "{transport}, {change}");
        }
        served.umount();
        sound(&image);
    }
}

#[test]
fn parts_of_disks_are_read_from_where_they_begin() {
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        fs::rename(partitioned(&image), &image.path).expect("it takes the image's place");
        let served = Served::new(&image, &["-o", &format!("offset=1048576,{transport}")]);
        let cases = make_cases(&served);
        cases.iter().for_each(|case| assert_reads(&served, case));
        served.umount();
    }
}

/// Returns the bytes that a process has written from its memory, which excludes spliced bytes.
fn written_by(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/io")).expect("a process");
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("wchar: "))
        .expect("it is counted");
    count.parse().expect("a number")
}

#[test]
fn large_answers_do_not_pass_through_the_daemon() {
    const LEN: usize = 8 << 20;
    if !can_mount() {
        return;
    }
    let image = EMPTY
        .from_directory(&[|root| fs::write(root.join("file"), pattern(4, 0, LEN))])
        .build();
    let dir = image.scratch().join("mnt");
    let mut daemon = in_foreground(&image, &dir, "transport=device");
    let written = [512 << 10, 4 << 10].map(|part| {
        let file = uncached(&dir.join("file"));
        let before = written_by(daemon.id());
        let mut bytes = vec![0; part];
        for at in (0..LEN).step_by(part) {
            file.read_exact_at(&mut bytes, at as u64)
                .expect("it is read");
            assert!(bytes == pattern(4, at as u64, part), "{part} bytes at {at}");
        }
        written_by(daemon.id()) - before
    });
    patiently(&["umount"], &dir);
    assert!(daemon.wait().expect("it ends").success());
    let [large, small] = written;
    assert!(large < 1 << 20, "{large} bytes were copied");
    assert!(small > LEN as u64, "only {small} bytes were copied");
}

#[test]
fn users_mounts_give_large_answers() {
    const USER: u32 = 1000;
    if !users_can_mount() {
        return;
    }
    let spec =
        EMPTY.from_directory(&[|root| fs::write(root.join("file"), pattern(3, 0, 3_000_001))]);
    let image = spec.build();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    std::os::unix::fs::chown(&image.path, Some(USER), None).expect("its owner");
    fs::write(scratch.join("want"), pattern(3, 0, 3_000_001)).expect("a file");
    for transport in transports() {
        let script = format!(
            "mkdir -p mnt; ./extern4 mount -o ro,{transport} disk.img mnt; trap './extern4 umount mnt' EXIT; \
             cmp mnt/file want; dd if=mnt/file bs=1M iflag=direct status=none | cmp - want"
        );
        let run = as_user(USER, scratch, &script).output().expect("setpriv");
        assert!(
            run.status.success(),
            "{transport}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

/// Stops the readers when dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_file_shows_the_blocks_of_another() {
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        let own = served.path("own");
        let foreign = served.path("foreign");
        let size = 20 << 20;
        fs::write(&own, vec![b'o'; size]).expect("a file");
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            for start in [0, 5 << 20] {
                let own = &own;
                let ends = &ends;
                scope.spawn(move || {
                    let file = uncached(own);
                    let mut bytes = vec![0; 1 << 20];
                    let mut at = start;
                    while !ends.load(Ordering::Relaxed) {
                        let read = file.read_at(&mut bytes, at).expect("it is read");
                        let strange = bytes[..read]
                            .iter()
                            .position(|byte| !matches!(byte, b'o' | 0));
                        assert_eq!(strange, None, "{transport}: in {read} bytes at {at}");
                        at = if read == 0 {
                            0
                        } else {
                            (at + 700_001) % size as u64
                        };
                    }
                });
            }
            // Also on a panic.
            let _ends = Ends(&ends);
            let start = Instant::now();
            for round in 0.. {
                if start.elapsed() > Duration::from_secs(3) {
                    break;
                }
                let file = File::options().write(true).open(&own).expect("it opens");
                match round % 3 {
                    0 => file.set_len(0).expect("it is cut"),
                    1 => drop(tool(
                        &served.dir,
                        "fallocate",
                        ["-p", "-o", "1M", "-l", "17M", "own"],
                    )),
                    _ => file.set_len(9_000_001).expect("it is cut"),
                }
                // Other files may take the freed blocks once that is durable.
                file.sync_all().expect("it is synced");
                fs::write(&foreign, vec![b'f'; 30 << 20]).expect("a file");
                File::open(&foreign)
                    .and_then(|file| file.sync_all())
                    .expect("it is synced");
                fs::remove_file(&foreign).expect("it is removed");
                file.write_all_at(&vec![b'o'; size], 0)
                    .expect("it is written");
            }
        });
        served.umount();
        sound(&image);
    }
}

#[test]
fn a_volume_that_ends_early_is_an_error_of_that_read() {
    if !can_mount() {
        return;
    }
    let spec = EMPTY.from_directory(&[|root| {
        fs::write(root.join("first"), pattern(1, 0, 1 << 20))?;
        fs::write(root.join("last"), pattern(2, 0, 40 << 20))
    }]);
    for transport in transports() {
        let image = spec.build();
        let served = Served::new(&image, &["-o", &format!("ro,{transport}")]);
        let last = uncached(&served.path("last"));
        let file = File::options()
            .write(true)
            .open(&image.path)
            .expect("the image");
        let size = file.metadata().expect("its size").len();
        file.set_len(20 << 20).expect("it is cut");
        let mut bytes = vec![0; 1 << 20];
        let error = last.read_at(&mut bytes, 39 << 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{transport}: {error}");
        // Reads of other parts are answered, and later reads of this part are, too.
        let read = uncached(&served.path("first"))
            .read_at(&mut bytes, 0)
            .expect("it is read");
        assert!(
            read == 1 << 20 && bytes == pattern(1, 0, 1 << 20),
            "{transport}"
        );
        file.set_len(size).expect("it is long again");
        assert_eq!(
            last.read_at(&mut bytes, 39 << 20).expect("it is read"),
            1 << 20
        );
        assert!(bytes.iter().all(|byte| *byte == 0), "what it ended before");
        drop(last);
        served.umount();
    }
}

#[test]
fn files_are_read_far_ahead() {
    if !can_mount_as_root() {
        return;
    }
    for (transport, kind) in transports()
        .into_iter()
        .flat_map(|by| [(by, "rw"), (by, "nofuseblk")])
    {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", &format!("{transport},{kind}")]);
        // The limits from the first request are known once another request has been answered.
        let device = fs::metadata(&served.dir).expect("the root").dev();
        let device = format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        );
        let names = [format!("{device}-fuseblk"), device];
        let said = names.iter().find_map(|name| {
            fs::read_to_string(format!("/sys/class/bdi/{name}/read_ahead_kb")).ok()
        });
        let kib: u32 = said.expect("it is told").trim().parse().expect("a number");
        // As far as one request reads.
        assert!(kib >= 1020, "{transport}, {kind}: {kib} KiB");
        served.umount();
    }
}
