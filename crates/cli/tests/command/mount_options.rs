//! Options of a mount, as `mount(8)` and fstab spell them: tests of their effects.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use extern4_ext4::quota::{Kind, Limits};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools::{self, Need, can_run};

use crate::mounting::{
    EMPTY, Served, as_user, can_mount, can_mount_as_root, sound, transports, users_can_mount,
};
use crate::run::{extern4, failed, ok, partitioned, tool, wipe_superblock};

#[test]
fn files_are_shown_as_one_user_s() {
    if !users_can_mount() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        tools::run("chmod", ["755".as_ref(), image.scratch().as_os_str()]);
        let served = Served::new(&image, &["-o", transport, "-o", "uid=1000,gid=50"]);
        fs::write(served.path("root's"), "text").expect("a file");
        let user = |uid, script: &str| {
            as_user(uid, &served.dir, script)
                .status()
                .expect("setpriv")
                .success()
        };
        assert!(user(
            1000,
            "echo more >> root*s; chmod 600 root*s; echo mine > mine; mkdir dir; mv mine dir"
        ));
        assert!(!user(2000, "cat root*s"));
        for name in ["root's", "dir", "dir/mine"] {
            let found = fs::metadata(served.path(name)).expect("attributes");
            assert_eq!((found.uid(), found.gid()), (1000, 50), "{name}");
        }
        served.umount();
        sound(&image);
        // On the volume they belong to the users that made them.
        let owners = ok(extern4(
            &image,
            ["stat", "-c", "%u:%g", "disk.img:/root's", "disk.img:/dir"],
        ));
        assert_eq!(String::from_utf8_lossy(&owners), "0:0\n1000:1000\n");
    }
}

#[test]
fn a_volume_begins_where_the_option_says() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let disk = partitioned(&image);
    fs::rename(&disk, &image.path).expect("it takes the image's place");
    let served = Served::new(
        &image,
        &["-o", "offset=1M,commit=1,errors=remount-ro,data=ordered"],
    );
    fs::write(served.path("file"), "text").expect("a file");
    served.umount();
    assert_eq!(ok(extern4(&image, ["cat", "disk.img#2:/file"])), b"text");
    let said = failed(
        &extern4(&image, ["mount", "-o", "offset=1M", "disk.img@1M", "."]),
        2,
    );
    assert!(said.contains("disk.img@1048576"), "{said}");
    for (words, named) in [
        ("noauto,data=none", "'data=none'"),
        ("ro,dax=always", "'dax=always' is not supported"),
        ("strictatime", "page cache"),
    ] {
        let said = failed(&extern4(&image, ["mount", "-o", words, "disk.img", "."]), 2);
        assert!(said.contains(named), "{said}");
    }
}

/// Returns the blocks of contents that are in the log, as the mount counts them.
fn blocks_logged(image: &Image) -> u64 {
    let stats = String::from_utf8(ok(extern4(image, ["stats", "mnt"]))).expect("text");
    let count = stats
        .lines()
        .find_map(|line| line.strip_suffix(" blocks_logged"))
        .expect("a counter");
    count.trim().parse().expect("a number")
}

#[test]
fn contents_go_through_the_journal_where_that_is_asked_for() {
    const SIZE: usize = 400_000;
    if !can_mount() {
        return;
    }
    let write = |served: &Served, name: &str| {
        let mut file = fs::File::create(served.path(name)).expect("a file");
        file.write_all(&[7; SIZE]).expect("there is room");
        file.sync_all().expect("a sync");
    };
    for (option, all) in [("data=journal", true), ("data=ordered", false)] {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", option]);
        write(&served, "file");
        let most = SIZE as u64 / 4096;
        assert_eq!(blocks_logged(&image) >= most, all, "{option}");
        // The state after a crash now has all of it.
        let crashed = image.copy();
        assert!(
            ok(extern4(&crashed, ["cat", "disk.img:/file"])) == [7; SIZE],
            "{option}"
        );
        // Also for single files: the superuser sets the flag.
        let before = blocks_logged(&image);
        write(&served, "flagged");
        tool(&served.dir, "chattr", ["+j", "flagged"]);
        assert!(String::from_utf8_lossy(&tool(&served.dir, "lsattr", ["flagged"])).contains('j'));
        write(&served, "flagged");
        assert!(blocks_logged(&image) >= before + most, "{option}");
        tool(&served.dir, "chattr", ["-j", "flagged"]);
        assert!(fs::read(served.path("flagged")).expect("it is read") == [7; SIZE]);
        served.umount();
        sound(&image);
        assert!(
            ok(extern4(&image, ["cat", "disk.img:/flagged"])) == [7; SIZE],
            "{option}"
        );
    }
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-O", "^has_journal"]).build();
    let said = failed(
        &extern4(&image, ["mount", "-o", "data=journal", "disk.img", "."]),
        3,
    );
    assert!(said.contains("no journal"), "{said}");
}

/// Returns a counter of the mount, as `stats` prints it.
#[track_caller]
fn counter(image: &Image, name: &str) -> usize {
    let stats = String::from_utf8(ok(extern4(image, ["stats", "mnt"]))).expect("UTF-8");
    let line = stats
        .lines()
        .find(|line| line.trim_end().ends_with(&format!(" {name}")));
    let number = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {name}: {stats}"))
}

/// The kernel knows more files than the server's caches have room for.
#[test]
fn known_files_leave_the_caches_and_stay_the_same() {
    const FILES: usize = 8_000;
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport, "-o", "memory=4M"]);
        let create =
            |options: &mut fs::OpenOptions| options.create(true).open(served.path("removed"));
        let removed = create(fs::File::options().read(true).write(true)).expect("a file");
        removed.write_all_at(b"text", 0).expect("it is written");
        let number = removed.metadata().expect("attributes").ino();
        fs::remove_file(served.path("removed")).expect("it is removed");
        for dir in 0..FILES / 1000 {
            fs::create_dir(served.path(&format!("{dir}"))).expect("a directory");
            for file in 0..1000 {
                let path = served.path(&format!("{dir}/{file}"));
                fs::write(&path, format!("{file}")).expect("a file");
                // Its number belongs to the file that is open.
                assert_ne!(fs::metadata(&path).expect("attributes").ino(), number);
            }
        }
        // At most 4000 inodes may be in memory; without a bound, all of them would be.
        assert!(
            counter(&image, "inodes") <= 4000,
            "{}",
            counter(&image, "inodes")
        );
        let inner: Vec<fs::File> = (0..FILES / 1000)
            .map(|dir| fs::File::open(served.path(&format!("{dir}"))).expect("it opens"))
            .collect();
        for round in 0..2 {
            for file in (0..FILES).step_by(7) {
                let path = served.path(&format!("{}/{}", file / 1000, file % 1000));
                // The server is asked for this each time.
                let none = rustix::fs::getxattr(&path, "user.none", &mut [0_u8; 8][..]);
                assert_eq!(
                    none.err(),
                    Some(rustix::io::Errno::NODATA),
                    "{round}: {}",
                    path.display()
                );
            }
        }
        // A directory that has left the caches is found at its place.
        for (dir, open) in inner.iter().enumerate().skip(1) {
            let to = served.path(&format!("0/{}", dir + 1000));
            fs::rename(served.path(&format!("{dir}")), &to).expect("it moves");
            let made = rustix::fs::openat(
                open,
                "made",
                rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
                rustix::fs::Mode::RUSR,
            );
            made.expect("a file");
            assert_eq!(fs::read(to.join("made")).expect("a file"), b"");
        }
        assert!(
            fs::rename(served.path("0"), served.path("0/1001/0")).is_err(),
            "it would be below itself"
        );
        let mut text = [0; 9];
        assert_eq!(removed.read_at(&mut text, 0).expect("it is read"), 4);
        let attributes = removed.metadata().expect("attributes");
        assert_eq!((attributes.ino(), attributes.nlink()), (number, 0));
        drop((removed, inner));
        tool(&served.dir, "rm", ["-r", "0"]);
        served.umount();
        sound(&image);
    }
}

/// Remounts with these words; returns the message if that is refused.
fn remount(image: &Image, words: &str) -> Option<String> {
    let run = extern4(
        image,
        [
            "mount",
            "-o",
            &format!("remount,{words}"),
            "disk.img",
            "mnt",
        ],
    );
    (!run.status.success()).then(|| failed(&run, 1))
}

#[test]
fn a_remount_does_not_pretend_to_change_the_data_mode() {
    if !can_mount_as_root() {
        return;
    }
    // The volume's options, the mount's options, and the resulting values.
    let cases = [
        ("", "rw", "ordered", 5),
        ("", "commit=30,data=journal", "journal", 30),
        ("journal_data", "rw", "journal", 5),
        ("journal_data_writeback", "commit=7", "writeback", 7),
        ("journal_data", "data=ordered", "ordered", 5),
    ];
    for (volume, options, data, commit) in cases {
        let image = EMPTY.build();
        if !volume.is_empty() {
            tool(image.scratch(), "tune2fs", ["-o", volume, "disk.img"]);
        }
        let served = Served::new(&image, &["-o", options]);
        let stats =
            String::from_utf8(ok(extern4(&image, ["stats", "mnt", "--json"]))).expect("text");
        assert!(
            stats.contains(&format!("\"data\":\"{data}\",\"commit_seconds\":{commit},")),
            "{stats}"
        );
        let stats = String::from_utf8(ok(extern4(&image, ["stats", "mnt"]))).expect("text");
        assert!(
            stats.contains(&format!("{data:>12} data\n{commit:>12} commit_seconds\n")),
            "{stats}"
        );
        // Words that repeat the current values are accepted, as mount(8) passes on the words of
        // fstab.
        assert_eq!(
            remount(&image, &format!("ro,data={data},commit={commit}")),
            None,
            "{options}"
        );
        let read_only = || fs::write(served.path("file"), "text").is_err();
        assert!(read_only());
        for other in ["ordered", "writeback", "journal"]
            .into_iter()
            .filter(|other| *other != data)
        {
            let said = remount(&image, &format!("rw,data={other}")).unwrap_or_default();
            assert!(
                said.contains("data mode") && said.contains(&format!("data={data}")),
                "{other}: {said}"
            );
        }
        for other in [0, 6]
            .into_iter()
            .filter(|other| (*other, commit) != (0, 5))
        {
            let said = remount(&image, &format!("rw,commit={other}")).unwrap_or_default();
            assert!(
                said.contains(&format!("commit={commit}")),
                "{other}: {said}"
            );
        }
        // The refused remounts have changed nothing.
        assert!(read_only());
        assert_eq!(remount(&image, "rw"), None);
        assert!(!read_only());
        served.umount();
        sound(&image);
    }
    // Without a journal there is nothing to change, and as in Linux, there is no message.
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-O", "^has_journal"]).build();
    let served = Served::new(&image, &[]);
    assert_eq!(remount(&image, "ro,data=journal,commit=9"), None);
    served.umount();
}

#[test]
fn a_remount_does_not_pretend_to_change_fixed_options() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    tool(image.scratch(), "tune2fs", ["-e", "remount-ro", "disk.img"]);
    let served = Served::new(&image, &["-o", "lazytime,memory=32M"]);
    for (words, name) in [
        ("nolazytime", "lazytime"),
        ("noatime", "atime"),
        ("nodiratime", "diratime"),
        ("ro,errors=continue", "errors"),
        ("memory=64M", "memory"),
        ("bsdgroups", "grpid"),
        ("minixdf", "minixdf"),
        ("ro,uid=7", "uid"),
        ("resuid=7", "resuid"),
        ("resgid=7", "resgid"),
        ("ro,norecovery", "noload"),
        ("writeback_cache", "writeback_cache"),
        ("transport=device", "transport"),
        ("lifetime=0", "lifetime"),
    ] {
        let said = remount(&image, words).unwrap_or_default();
        assert!(
            said.contains(&format!("cannot change {name} on remount")),
            "{words}: {said}"
        );
    }
    assert!(
        fs::write(served.path("file"), "text").is_ok(),
        "what was refused has changed nothing"
    );
    // Words that repeat fixed values are accepted, and the others take effect.
    assert_eq!(
        remount(
            &image,
            "ro,lazytime,relatime,errors=remount-ro,memory=32M,nosuid"
        ),
        None
    );
    assert!(fs::write(served.path("file"), "text").is_err());
    served.umount();
    sound(&image);
}

#[test]
fn nodiratime_leaves_access_times_of_directories_alone() {
    if !can_mount_as_root() {
        return;
    }
    for (words, noted) in [("relatime", true), ("relatime,nodiratime", false)] {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", words]);
        fs::write(served.path("file"), "text").expect("a file");
        let before = std::time::SystemTime::UNIX_EPOCH;
        let times = fs::FileTimes::new()
            .set_accessed(before)
            .set_modified(before);
        fs::File::open(&served.dir)
            .and_then(|dir| dir.set_times(times))
            .expect("its times");
        assert_eq!(
            fs::read_dir(&served.dir).expect("it is read").count(),
            2,
            "with lost+found"
        );
        let accessed = |path| {
            fs::metadata(path)
                .and_then(|found| found.accessed())
                .expect("its time")
        };
        assert_eq!(accessed(served.dir.clone()) != before, noted, "{words}");
        // On a remount, mount(8) passes on the words of the table.
        let table = fs::read_to_string("/proc/self/mounts").expect("the mount table");
        let dir = served.dir.to_str().expect("a plain name");
        let line = table
            .lines()
            .find(|line| line.split(' ').nth(1) == Some(dir))
            .expect("it is mounted");
        assert_eq!(line.contains(",nodiratime,"), !noted, "{line}");
        assert_eq!(
            remount(&image, if noted { "ro" } else { "ro,nodiratime" }),
            None,
            "{words}"
        );
        served.umount();
        sound(&image);
    }
}

/// The table has to tell them, because mount(8) passes its words on with a remount.
#[test]
fn the_mount_table_shows_when_access_times_change() {
    if !can_mount_as_root() {
        return;
    }
    for (word, told) in [
        ("noatime", "noatime"),
        ("relatime", "relatime"),
        ("norelatime", "relatime"),
    ] {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", word]);
        let table = fs::read_to_string("/proc/self/mounts").expect("the mount table");
        let dir = served.dir.to_str().expect("a plain name");
        let line = table
            .lines()
            .find(|line| line.split(' ').nth(1) == Some(dir))
            .expect("it is mounted");
        let options: Vec<_> = line
            .split(' ')
            .nth(3)
            .expect("options")
            .split(',')
            .collect();
        assert_eq!(
            options
                .iter()
                .copied()
                .find(|option| option.ends_with("atime")),
            Some(told),
            "{word}: {line}"
        );
        assert_eq!(remount(&image, &format!("{told},ro")), None, "{word}");
        served.umount();
    }
}

/// With noload, neither we nor the kernel replay the journal: the volume shows its blocks as they
/// are.
#[test]
fn noload_ignores_newer_contents_in_the_journal() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    let image = EMPTY.build();
    // As after a crash: durable in the journal, and nowhere else yet.
    let mount = image.mount("noatime");
    fs::write(mount.path.join("file"), "text").expect("a file");
    fs::File::open(&mount.path)
        .and_then(|dir| dir.sync_all())
        .expect("it is synced");
    let crashed = fs::read(&image.path).expect("the image is read");
    mount.unmount();
    fs::write(&image.path, &crashed).expect("the image is written");
    let names = |dir: &std::path::Path| {
        let entries = fs::read_dir(dir)
            .expect("it is read")
            .map(|entry| entry.expect("an entry").file_name());
        entries.collect::<std::collections::BTreeSet<_>>()
    };
    let theirs = names(&image.mount("ro,noload").path);
    assert!(
        !theirs.contains(std::ffi::OsStr::new("file")),
        "a journal to leave aside"
    );
    for (options, has_file) in [("ro,noload", false), ("norecovery,ro", false), ("ro", true)] {
        let served = Served::new(&image, &["-o", options]);
        assert_eq!(
            names(&served.dir).contains(std::ffi::OsStr::new("file")),
            has_file,
            "{options}"
        );
        assert!(has_file || names(&served.dir) == theirs, "{options}");
        served.umount();
    }
    assert!(
        crashed == fs::read(&image.path).expect("the image is read"),
        "nothing is written"
    );
}

#[test]
fn a_quota_option_reports_that_the_volume_has_no_quotas() {
    if !can_mount() {
        return;
    }
    const WITH: ImageSpec = ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-O", "quota"]);
    for (spec, options, is_told) in [
        (EMPTY, "usrquota,grpquota", true),
        (EMPTY, "noquota", false),
        (WITH, "usrquota", false),
    ] {
        let image = spec.build();
        fs::create_dir(image.scratch().join("mnt")).expect("a directory");
        let output = extern4(&image, ["mount", "-o", options, "disk.img", "mnt"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ok(extern4(&image, ["umount", "mnt"]));
        assert!(output.status.success(), "{options}: {said}");
        assert_eq!(
            said.contains("it has no quotas"),
            is_told,
            "{options}: {said}"
        );
    }
}

/// In a mount, `df` shows the limit, too, unless quotas only count.
#[test]
fn a_directory_with_a_project_has_no_more_room_than_that() {
    const PROJECT: &str = "mkdir project\nset_inode_field project projid 77\nset_inode_field project flags 0x20080000\n";
    if !can_mount() {
        return;
    }
    let mke2fs = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "quota,project",
        "-E",
        "quotatype=prjquota",
    ];
    let spec =
        ImageSpec::new("disk", 16 << 20, mke2fs).then(&[Step::Debugfs(PROJECT), Step::E2fsck(&[])]);
    let image = spec.build();
    let volume = extern4::Volume::options()
        .write(true)
        .open(&image.path)
        .expect("a volume");
    let limits = Limits {
        space: (0, 100 << 10),
        inodes: (0, 20),
    };
    volume
        .ext4()
        .set_quota(Kind::Project, 77, &limits)
        .expect("limits");
    volume.close().expect("it is closed");
    for (options, is_limited) in [("prjquota", true), ("noquota", false)] {
        let served = Served::new(&image, &["-o", options]);
        let stat = |name: &str| rustix::fs::statvfs(served.path(name)).expect("totals");
        assert!(stat("").f_blocks > 1000 && stat("lost+found").f_files > 100);
        let of_project = (stat("project").f_blocks, stat("project").f_files);
        assert_eq!(
            of_project == (100, 20),
            is_limited,
            "{options}: {of_project:?}"
        );
        served.umount();
    }
}

#[test]
fn a_volume_is_mounted_by_a_copy_of_its_superblock() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    let image = ImageSpec::new("disk", 160 << 20, &["-t", "ext4", "-b", "4096"]).build();
    ok(extern4(&image, ["mkdir", "disk.img:/dir"]));
    wipe_superblock(&image);
    // As the kernel counts, in KiB: block 32,768.
    assert!(image.mount("ro,noload,sb=131072").path.join("dir").is_dir());
    for args in [
        &["-o", "ro,sb=131072"][..],
        &["-o", "ro", "--superblock", "32768"],
    ] {
        let served = Served::new(&image, args);
        assert!(served.path("dir").is_dir(), "{args:?}");
        served.umount();
    }
    let said = failed(
        &extern4(&image, ["mount", "-o", "sb=131072", "disk.img", "mnt"]),
        3,
    );
    assert!(said.contains("a backup superblock was asked for"), "{said}");
    for wrong in ["ro", "ro,sb=32768", "ro,sb=131073"] {
        let said = failed(
            &extern4(&image, ["mount", "-o", wrong, "disk.img", "mnt"]),
            3,
        );
        assert!(said.contains("--superblock 32768"), "{wrong}: {said}");
    }
}

/// Where only reserved blocks are left, the named user may use them.
#[test]
fn reserved_blocks_are_for_the_ids_in_the_options() {
    if !users_can_mount() {
        return;
    }
    let image = EMPTY.build();
    tool(image.scratch(), "tune2fs", ["-m", "50", "disk.img"]);
    tools::run("chmod", ["755".as_ref(), image.scratch().as_os_str()]);
    let served = Served::new(&image, &["-o", "allow_other,resuid=1001,resgid=1002"]);
    tools::run("chmod", ["777".as_ref(), served.dir.as_os_str()]);
    let can = |uid, script: &str| {
        as_user(uid, &served.dir, script)
            .status()
            .expect("setpriv")
            .success()
    };
    assert!(
        !can(1000, "cat /dev/zero > all 2> /dev/null"),
        "until it is full"
    );
    assert!(!can(1000, "head -c 64K /dev/zero > more 2> /dev/null"));
    assert!(can(1001, "head -c 64K /dev/zero > others"));
    assert!(!can(2000, "head -c 64K /dev/zero > strangers 2> /dev/null"));
    served.umount();
    sound(&image);
}

/// Compares the kernel's own mount of a volume with ours of another volume made like it, with the
/// same options. It calls `each` with the directory of each mount.
fn in_both_mounts(options: &str, each: impl Fn(&std::path::Path) -> String) {
    let ours = EMPTY.build();
    let theirs = EMPTY.build();
    let served = Served::new(&ours, &["-o", options]);
    let mount = theirs.mount(options);
    assert_eq!(each(&served.dir), each(&mount.path), "{options}");
    mount.unmount();
    served.umount();
    sound(&ours);
}

/// Describes new files in a directory of group 77, the counts of blocks, and the target of a link.
fn seen(dir: &std::path::Path) -> String {
    let group = |path: std::path::PathBuf| fs::metadata(path).expect("attributes").gid();
    let of_group = dir.join("77");
    fs::create_dir(&of_group).expect("a directory");
    std::os::unix::fs::chown(&of_group, None, Some(77)).expect("its group");
    fs::write(of_group.join("file"), "text").expect("a file");
    fs::create_dir(of_group.join("dir")).expect("a directory");
    std::os::unix::fs::symlink("77/file", dir.join("link")).expect("a link");
    let totals = rustix::fs::statfs(dir).expect("totals");
    let followed = fs::read_to_string(dir.join("link")).map_err(|error| error.raw_os_error());
    let groups = (group(of_group.join("file")), group(of_group.join("dir")));
    format!(
        "{groups:?} {} {} {followed:?}",
        totals.f_blocks, totals.f_files
    )
}

#[test]
fn options_of_ext4_mean_the_same_as_in_linux() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    for options in [
        "rw",
        "grpid",
        "bsdgroups,nogrpid",
        "minixdf",
        "minixdf,bsddf,sysvgroups",
        "nosymfollow",
    ] {
        in_both_mounts(options, seen);
    }
}
