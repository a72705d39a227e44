//! `-o writeback_cache`: the kernel caches writes for a while, and only the number of its writes
//! shows that.

use std::fs::{self, File, FileTimes};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, Instant, SystemTime};

use extern4::{Volume, system_time};
use extern4_testkit::mounts::{EMPTY, can_mount, can_mount_as_root, sound, transports};
use extern4_testkit::tools::run_in as tool;
use extern4_testkit::tools::{Need, can_run};

use crate::served::Served;

/// Mounts, runs `work` in the mount, unmounts, and checks everything.
fn in_mounts(work: impl Fn(&Served) -> Vec<(&'static str, Stat)>) {
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport, "-o", "writeback_cache"]);
        let files = work(&served);
        served.umount();
        sound(&image);
        let session = Volume::open(&image.path).expect("a volume").superuser();
        for (name, stat) in files {
            let found = session.metadata(name).expect("attributes");
            let changed = system_time(found.ctime());
            assert_eq!((found.len(), found.modified(), changed), stat, "{name}");
        }
    }
}

/// Size, and times of the last changes of the contents and of the inode.
type Stat = (u64, SystemTime, SystemTime);

/// Returns a file's attributes in the mount.
fn stat(served: &Served, name: &'static str) -> (&'static str, Stat) {
    let found = fs::metadata(served.path(name)).expect("attributes");
    let nanoseconds = u32::try_from(found.ctime_nsec()).expect("a part of a second");
    let since = Duration::new(found.ctime().try_into().expect("a date"), nanoseconds);
    let modified = found.modified().expect("a time");
    (
        name,
        (found.len(), modified, SystemTime::UNIX_EPOCH + since),
    )
}

#[test]
fn small_writes_come_as_large_ones() {
    if !can_mount() {
        return;
    }
    in_mounts(|served| {
        let mut file = File::create(served.path("file")).expect("a file");
        for number in 0..10_000 {
            writeln!(file, "{number:6}").expect("it is written");
        }
        assert_eq!(file.metadata().expect("attributes").size(), 70_000);
        file.sync_all().expect("it is synced");
        let writes = served.requests("write");
        assert!(writes < 100, "{writes}");
        let text = fs::read_to_string(served.path("file")).expect("a file");
        assert!(
            text.lines()
                .enumerate()
                .all(|(at, line)| line.trim() == at.to_string())
        );
        vec![stat(served, "file")]
    });
}

#[test]
fn times_are_those_of_the_writes() {
    if !can_mount() {
        return;
    }
    in_mounts(|served| {
        let path = |name| served.path(name);
        fs::write(path("written"), "text").expect("a file");
        let written = stat(served, "written");
        fs::write(path("changed"), "text").expect("a file");
        fs::set_permissions(path("changed"), fs::Permissions::from_mode(0o600)).expect("its mode");
        let changed = stat(served, "changed");
        // The program sets the time while the earlier write is still in the kernel's cache.
        let file = File::create(path("dated")).expect("a file");
        file.write_all_at(b"text", 0).expect("it is written");
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        file.set_times(FileTimes::new().set_modified(time))
            .expect("its time");
        drop(file);
        assert_eq!(
            fs::metadata(path("dated"))
                .and_then(|found| found.modified())
                .expect("a time"),
            time
        );
        let cut = File::create(path("cut")).expect("a file");
        cut.write_all_at(&[b'x'; 10_000], 0)
            .and_then(|()| cut.set_len(5000))
            .expect("it is cut");
        let cut = stat(served, "cut");
        // Later events and the time of the write do not change the times.
        std::thread::sleep(Duration::from_millis(30));
        let dated = stat(served, "dated");
        vec![written, changed, dated, cut]
    });
}

#[test]
fn data_that_the_kernel_keeps_is_no_hole() {
    if !can_mount() {
        return;
    }
    in_mounts(|served| {
        let file = File::create(served.path("file")).expect("a file");
        file.write_all_at(b"end", 1 << 20).expect("it is written");
        // Before the kernel has written it.
        tool(&served.dir, "cp", ["--sparse=auto", "file", "copy"]);
        tool(&served.dir, "cmp", ["file", "copy"]);
        vec![stat(served, "copy")]
    });
}

#[test]
fn an_append_only_file_grows() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("chattr")]) {
        return;
    }
    in_mounts(|served| {
        fs::write(served.path("log"), "one\n").expect("a file");
        tool(&served.dir, "chattr", ["+a", "log"]);
        // The kernel does not see a change within one tick of its clock, and does not look at the
        // flags that have changed.
        std::thread::sleep(Duration::from_millis(20));
        for line in ["two\n", "three\n"] {
            let mut log = File::options()
                .append(true)
                .open(served.path("log"))
                .expect("it opens");
            log.write_all(line.as_bytes())
                .and_then(|()| log.sync_all())
                .expect("it is appended to");
            log.write_all(line.as_bytes()).expect("it is appended to");
        }
        assert_eq!(
            File::create(served.path("log")).unwrap_err().raw_os_error(),
            Some(1)
        );
        let text = fs::read_to_string(served.path("log")).expect("a file");
        assert_eq!(text, "one\ntwo\ntwo\nthree\nthree\n");
        vec![stat(served, "log")]
    });
}

#[test]
fn a_sync_reports_a_full_volume() {
    if !can_mount() {
        return;
    }
    in_mounts(|served| {
        let file = File::create(served.path("large")).expect("a file");
        let written = (0..100).try_for_each(|at| file.write_all_at(&[b'x'; 1 << 20], at << 20));
        let error = written
            .and_then(|()| file.sync_all())
            .expect_err("it does not fit");
        assert_eq!(error.raw_os_error(), Some(28));
        drop(file);
        fs::remove_file(served.path("large")).expect("it goes");
        // A moment later there is room again.
        let start = Instant::now();
        let small = File::create(served.path("small")).expect("a file");
        while let Err(error) = small
            .write_all_at(b"text", 0)
            .and_then(|()| small.sync_all())
        {
            assert_eq!(
                (error.raw_os_error(), start.elapsed().as_secs() < 60),
                (Some(28), true)
            );
        }
        drop(small);
        vec![stat(served, "small")]
    });
}
