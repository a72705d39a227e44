//! Lines of fstab that Linux takes: each word with its meaning, where it has one, or refused with a
//! reason.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{LoopDevice, Need, can_run};

use crate::mounting::{EMPTY, Served, can_mount, can_mount_as_root, sound};
use crate::run::{extern4, failed, ok, tool};

/// Returns the line of the mount table for a directory: source, directory, type and options.
fn table_line(dir: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mounts").expect("the mount table");
    let dir = dir.to_str().expect("a plain name");
    table
        .lines()
        .find(|line| line.split(' ').nth(1) == Some(dir))
        .expect("it is mounted")
        .to_owned()
}

/// Returns the error number of a tool's failure, by its message.
fn said(dir: &Path, script: &str) -> String {
    let run = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .output();
    String::from_utf8_lossy(&run.expect("sh").stderr).into_owned()
}

#[test]
fn lines_that_linux_takes_are_taken() {
    if !can_mount_as_root() {
        return;
    }
    for line in [
        "defaults,noauto,nofail,_netdev,x-systemd.automount,X-mine,comment=root,user_xattr,acl,barrier=1,stripe=16",
        "journal_checksum,data_err=ignore,noacl,nouser_xattr,nouid32,max_dir_size_kb=1024,errors=remount-ro,commit=30",
        "usrjquota=aquota.user,grpjquota=aquota.group,jqfmt=vfsv1,delalloc,auto_da_alloc,init_itable=10,nombcache",
        "fsname=my disk,nonempty,allow_root,inode_readahead_blks=32,block_validity,dioread_nolock,dax=never,debug",
        "nojournal_checksum,data_err=abort,oldalloc,orlov,bsdgroups,resuid=7,resgid=7,nodiscard,lazytime,iversion,mand",
    ] {
        let image = EMPTY.build();
        fs::create_dir(image.scratch().join("mnt")).expect("a directory");
        // For words about quotas, the command prints that the volume has none.
        let run = extern4(&image, ["mount", "-o", line, "disk.img", "mnt"]);
        assert!(run.status.success(), "{line}: {run:?}");
        fs::write(image.scratch().join("mnt/file"), "text").expect("a file");
        ok(extern4(&image, ["umount", "mnt"]));
        sound(&image);
    }
}

#[test]
fn a_refused_option_has_a_reason_and_no_list() {
    let image = EMPTY.build();
    for (word, reason) in [
        (
            "journal_async_commit",
            "a commit block is written only when",
        ),
        ("context=system_u:object_r:tmp_t:s0", "no SELinux label"),
        ("fscontext=a", "no SELinux label"),
        ("defcontext=a", "no SELinux label"),
        ("rootcontext=a", "no SELinux label"),
        ("dax=always", "not mapped straight"),
        ("memory=1M", "at least 4M"),
        (
            "fsname=name,fuseblk",
            "the mount table names the block device",
        ),
    ] {
        let said = failed(
            &extern4(&image, ["mount", "-o", word, "disk.img", "mnt"]),
            2,
        );
        assert!(
            said.contains(reason) && !said.contains("nodiratime"),
            "{word}: {said}"
        );
    }
}

#[test]
fn the_mount_table_shows_what_linux_shows() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    for words in [
        "lazytime",
        "user",
        "users,exec",
        "owner",
        "group,dev",
        "sync",
        "dirsync",
        "nosymfollow",
        "noatime",
    ] {
        let image = EMPTY.build();
        let options = |line: String| {
            let options = line.split(' ').nth(3).expect("options").to_owned();
            let is_shown = |option: &&str| {
                !option.contains('=') && !["default_permissions", "allow_other"].contains(option)
            };
            options
                .split(',')
                .filter(is_shown)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let mount = image.mount(words);
        let theirs = options(table_line(&mount.path));
        mount.unmount();
        let served = Served::new(&image, &["-o", words]);
        assert_eq!(options(table_line(&served.dir)), theirs, "{words}");
        served.umount();
    }
}

#[test]
fn words_for_mount_8_mean_what_they_mean_there() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let run =
        |options: &str, file: &str, dir: &str| extern4(&image, ["mount", "-o", options, file, dir]);
    ok(run("nofail", "missing.img", "mnt"));
    failed(&run("fail", "missing.img", "mnt"), 1);
    ok(run(
        "X-mount.mkdir=0700,fsname=my,sizelimit=64M",
        "disk.img",
        "deep/mnt",
    ));
    let deep = image.scratch().join("deep/mnt");
    assert!(
        table_line(&deep).starts_with("my "),
        "{}",
        table_line(&deep)
    );
    ok(extern4(&image, ["umount", "deep/mnt"]));
    assert_eq!(
        fs::metadata(&deep)
            .expect("it was made")
            .permissions()
            .mode()
            & 0o7777,
        0o700
    );
    let said = failed(&run("sizelimit=1M", "disk.img", "deep/mnt"), 1);
    assert!(said.contains("sizelimit"), "{said}");
}

#[test]
fn without_acls_only_permission_bits_count() {
    if !can_mount() || !can_run(&[Need::Tool("setfacl")]) {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    fs::create_dir(served.path("dir")).expect("a directory");
    tool(&served.dir, "setfacl", ["-m", "u:5:rwx,d:u:5:rwx", "dir"]);
    served.umount();
    let served = Served::new(&image, &["-o", "noacl"]);
    assert!(said(&served.dir, "setfacl -m u:6:r dir").contains("not supported"));
    assert!(
        !String::from_utf8_lossy(&tool(&served.dir, "getfacl", ["-n", "dir"])).contains("user:5")
    );
    said(&served.dir, "umask 027; touch dir/file");
    assert_eq!(
        fs::metadata(served.path("dir/file")).expect("it").mode() & 0o7777,
        0o640,
        "by the umask alone"
    );
    fs::set_permissions(served.path("dir"), fs::Permissions::from_mode(0o700)).expect("its mode");
    served.umount();
    sound(&image);
    let served = Served::new(&image, &[]);
    assert!(
        String::from_utf8_lossy(&tool(&served.dir, "getfacl", ["-n", "dir"]))
            .contains("user:5:rwx")
    );
    assert!(
        !String::from_utf8_lossy(&tool(&served.dir, "getfacl", ["-n", "dir/file"]))
            .contains("user:5")
    );
    served.umount();
}

#[test]
fn without_user_attributes_there_are_none() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("setfattr")]) {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    fs::write(served.path("file"), "text").expect("a file");
    tool(&served.dir, "setfattr", ["-n", "user.a", "-v", "1", "file"]);
    served.umount();
    let served = Served::new(&image, &["-o", "nouser_xattr"]);
    for command in [
        "setfattr -n user.a -v 2 file",
        "setfattr -x user.a file",
        "getfattr -n user.a file",
    ] {
        assert!(
            said(&served.dir, command).contains("not supported"),
            "{command}"
        );
    }
    tool(
        &served.dir,
        "setfattr",
        ["-n", "trusted.a", "-v", "1", "file"],
    );
    let names = tool(&served.dir, "getfattr", ["-m", "-", "file"]);
    let names = String::from_utf8_lossy(&names);
    assert!(
        names.contains("trusted.a") && !names.contains("user.a"),
        "{names}"
    );
    served.umount();
    sound(&image);
    let values = ok(extern4(&image, ["getfattr", "-d", "disk.img:/file"]));
    assert!(String::from_utf8_lossy(&values).contains("user.a=\"1\""));
}

/// Returns the ids on the volume, as debugfs shows them.
fn stored_ids(image: &Image, name: &str) -> String {
    let shown = image.debugfs(&format!("stat /{name}\n"));
    let words: Vec<_> = shown.split_whitespace().collect();
    let after = |key| {
        words
            .iter()
            .position(|word| *word == key)
            .map(|at| words[at + 1])
    };
    format!("{:?} {:?}", after("User:"), after("Group:"))
}

#[test]
fn ids_have_16_bits_where_that_is_asked_for() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    let ours = EMPTY.build();
    let theirs = EMPTY.build();
    let make = |dir: &Path| {
        for name in ["before", "small", "large"] {
            fs::write(dir.join(name), "text").expect("a file");
        }
        std::os::unix::fs::chown(dir.join("before"), Some(100_000), Some(70_000))
            .expect("its owner");
    };
    let change = |dir: &Path| {
        let before = fs::metadata(dir.join("before")).expect("attributes");
        std::os::unix::fs::chown(dir.join("small"), Some(1000), Some(1001)).expect("its owner");
        std::os::unix::fs::chown(dir.join("large"), Some(100_000), Some(70_000))
            .expect("its owner");
        (before.uid(), before.gid())
    };
    let mount = theirs.mount("rw");
    let served = Served::new(&ours, &[]);
    make(&mount.path);
    make(&served.dir);
    mount.unmount();
    served.umount();
    let mount = theirs.mount("nouid32");
    let served = Served::new(&ours, &["-o", "nouid32"]);
    assert_eq!(change(&served.dir), change(&mount.path));
    mount.unmount();
    served.umount();
    sound(&ours);
    for name in ["before", "small", "large"] {
        assert_eq!(stored_ids(&ours, name), stored_ids(&theirs, name), "{name}");
    }
}

#[test]
fn no_directory_grows_beyond_the_limit() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    let fill = |dir: &Path| {
        fs::create_dir(dir.join("dir")).expect("a directory");
        let names = 0..2000;
        let made = names
            .map(|n| fs::write(dir.join("dir").join(format!("{n:0200}")), ""))
            .take_while(Result::is_ok)
            .count();
        let error =
            fs::write(dir.join("dir").join(format!("{made:0200}")), "").expect_err("no room");
        (
            made,
            error.raw_os_error(),
            fs::metadata(dir.join("dir")).expect("attributes").len(),
        )
    };
    for kib in [4, 16, 64] {
        let option = format!("max_dir_size_kb={kib}");
        let ours = EMPTY.build();
        let theirs = EMPTY.build();
        let mount = theirs.mount(&option);
        let served = Served::new(&ours, &["-o", &option]);
        let our = fill(&served.dir);
        let their = fill(&mount.path);
        assert_eq!(our.1, their.1, "{option}");
        assert!(
            our.2 <= kib << 10 && their.2 <= kib << 10,
            "{option}: {our:?} {their:?}"
        );
        // Beyond one block, hashes with other seeds decide how full the blocks are.
        assert!(kib > 4 || our == their, "{option}: {our:?} {their:?}");
        assert!(our.0 >= (kib as usize) * 2, "{option}: {our:?}");
        mount.unmount();
        served.umount();
        sound(&ours);
    }
}

/// Returns the features of the volume and its state, as stored on it.
fn state(image: &Image) -> String {
    String::from_utf8_lossy(&tool(image.scratch(), "dumpe2fs", ["-h", "disk.img"])).into_owned()
}

#[test]
fn a_clean_volume_is_changed_without_its_journal_where_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    for word in ["noload", "norecovery"] {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", word]);
        fs::write(served.path("file"), "text").expect("a file");
        tool(&served.dir, "sync", ["-f", "."]);
        let during = state(&image);
        assert!(
            !during.contains("needs_recovery") && during.contains("not clean"),
            "{during}"
        );
        served.umount();
        sound(&image);
        let after = state(&image);
        assert!(
            after.contains("has_journal") && !after.contains("not clean"),
            "{after}"
        );
        let served = Served::new(&image, &[]);
        assert_eq!(fs::read(served.path("file")).expect("a file"), b"text");
        served.umount();
        sound(&image);
    }
}

/// Makes a volume as a crash leaves it: a file is durable in the journal, and nowhere else yet.
fn crashed() -> Image {
    let image = EMPTY.build();
    let mount = image.mount("noatime");
    fs::write(mount.path.join("file"), "text").expect("a file");
    fs::File::open(&mount.path)
        .and_then(|dir| dir.sync_all())
        .expect("it is synced");
    let bytes = fs::read(&image.path).expect("the image is read");
    mount.unmount();
    fs::write(&image.path, &bytes).expect("the image is written");
    image
}

#[test]
fn a_volume_that_needs_recovery_is_not_written_without_its_journal() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    let image = crashed();
    let before = fs::read(&image.path).expect("the image is read");
    for word in ["noload", "norecovery"] {
        let said = failed(
            &extern4(&image, ["mount", "-o", word, "disk.img", "mnt"]),
            3,
        );
        assert!(
            said.contains("its journal must be replayed first") && said.contains("with ro"),
            "{said}"
        );
    }
    assert!(
        before == fs::read(&image.path).expect("the image is read"),
        "nothing is written"
    );
    // Media that cannot be written are mounted for reading, as by mount(8), without a replay of the
    // journal.
    let disk = LoopDevice::attach_read_only(&image.path);
    fs::create_dir_all(image.scratch().join("mnt")).expect("a directory");
    for word in ["noload", "norecovery", "ro,noload"] {
        let run = extern4(
            &image,
            [
                "mount".as_ref(),
                "-o".as_ref(),
                word.as_ref(),
                disk.path.as_os_str(),
                "mnt".as_ref(),
            ],
        );
        assert!(run.status.success(), "{word}: {run:?}");
        assert!(
            !image.scratch().join("mnt/file").exists()
                && image.scratch().join("mnt/lost+found").exists()
        );
        assert!(
            table_line(&image.scratch().join("mnt")).contains(" ro,"),
            "{word}"
        );
        ok(extern4(&image, ["umount", "mnt"]));
    }
}

#[test]
fn journaled_quotas_are_the_quotas_that_the_volume_has() {
    if !can_mount_as_root() {
        return;
    }
    const WITH: ImageSpec = ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-O", "quota"]);
    for (spec, options, is_told) in [
        (EMPTY, "usrjquota=aquota.user,jqfmt=vfsv0", true),
        (EMPTY, "usrjquota=,grpjquota=,jqfmt=vfsv1", false),
        (
            WITH,
            "usrjquota=aquota.user,grpjquota=aquota.group,jqfmt=vfsv1",
            false,
        ),
    ] {
        let image = spec.build();
        fs::create_dir(image.scratch().join("mnt")).expect("a directory");
        let run = extern4(&image, ["mount", "-o", options, "disk.img", "mnt"]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(
            run.status.success() && said.contains("it has no quotas") == is_told,
            "{options}: {said}"
        );
        fs::write(image.scratch().join("mnt/file"), "text").expect("a file");
        ok(extern4(&image, ["umount", "mnt"]));
        sound(&image);
    }
}

/// Compares with the kernel's mounts, on volumes with and without checksums of metadata.
#[test]
fn the_journal_has_checksums_where_that_is_asked_for() {
    if !can_mount() || !can_run(&[Need::Mount]) {
        return;
    }
    const WITH: ImageSpec =
        ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-O", "metadata_csum"]);
    const WITHOUT: ImageSpec =
        ImageSpec::new("disk", 32 << 20, &["-t", "ext4", "-O", "^metadata_csum"]);
    let checksums = |image: &Image| {
        let state = state(image);
        let line = state
            .lines()
            .find(|line| line.starts_with("Journal features:"))
            .expect("a line");
        line.split_whitespace()
            .find(|word| word.contains("checksum"))
            .map(str::to_owned)
    };
    let change = |dir: &Path, name: &str| {
        fs::write(dir.join(name), "text").expect("a file");
        tool(dir, "sync", ["-f", "."]);
    };
    for spec in [WITH, WITHOUT] {
        let ours = spec.build();
        let theirs = spec.build();
        for words in ["journal_checksum", "nojournal_checksum", "journal_checksum"] {
            let served = Served::new(&ours, &["-o", words]);
            change(&served.dir, "file");
            served.umount();
            sound(&ours);
            let mount = theirs.mount(words);
            change(&mount.path, "file");
            mount.unmount();
            assert_eq!(checksums(&ours), checksums(&theirs), "{words}");
        }
    }
}

/// The mount table shows the text of `fsname`, escaped, and the directory keeps its path.
#[test]
fn a_name_for_the_mount_table_may_be_any_text() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &["-o", "fsname=a b\\c"]);
    let line = table_line(&served.dir);
    assert!(line.as_bytes().starts_with(b"a\\040b\\134c "), "{line}");
    assert_eq!(
        fs::canonicalize(&served.dir)
            .expect("a path")
            .as_os_str()
            .as_bytes(),
        served.dir.as_os_str().as_bytes()
    );
    served.umount();
}
