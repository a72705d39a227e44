//! Calls in a mount whose results match the kernel's own mount, where it is easy to get something
//! else.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};

use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools::{Need, can_run};

use crate::mounting::{EMPTY, Served, as_user, can_mount, can_mount_as_root, sound, transports};
use crate::run::tool;

#[test]
fn a_former_append_only_file_is_written_at_the_given_offset() {
    if !can_mount() || !can_run(&[Need::Tool("chattr")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        tool(
            &served.dir,
            "sh",
            [
                "-c",
                "touch log; chattr +a log; echo 'log line one' >> log; chattr -a log",
            ],
        );
        let log = File::options()
            .write(true)
            .open(served.path("log"))
            .expect("it opens");
        log.write_all_at(b"XXXX", 0).expect("it is written");
        tool(
            &served.dir,
            "sh",
            ["-c", "chattr +a log; echo two >> log; chattr -a log"],
        );
        fs::write(served.path("from"), "YY").expect("a file");
        let from = File::open(served.path("from")).expect("it opens");
        rustix::fs::copy_file_range(&from, Some(&mut 0), &log, Some(&mut 4), 2)
            .expect("it is copied");
        drop((log, from));
        // This compares the volume, not the kernel's cache.
        served.umount();
        let served = Served::new(&image, &["-o", transport]);
        assert_eq!(
            fs::read_to_string(served.path("log")).expect("a file"),
            "XXXXYYne one\ntwo\n"
        );
        served.umount();
        sound(&image);
    }
}

/// Copies the first bytes of file `$ARGV[0]` to file `$ARGV[1]`, by copy_file_range(2).
const COPY: &str = r#"
    my $call = `uname -m` =~ /x86_64/ ? 326 : 285;
    open(my $from, "<", $ARGV[0]) or die; open(my $to, "+<", $ARGV[1]) or die;
    my ($here, $there) = (pack("q", 0), pack("q", 0));
    syscall($call, fileno($from), $here, fileno($to), $there, 2, 0) == 2 or die "copy_file_range: $!";
"#;

#[test]
fn each_change_of_contents_takes_set_id_bits_off() {
    if !can_mount_as_root() || !can_run(&["setpriv", "fallocate", "perl"].map(Need::Tool)) {
        return;
    }
    let ways = [
        "fallocate -l 8192 file",
        "fallocate -p -o 0 -l 4096 file",
        "fallocate -z -o 0 -l 4096 file",
        "perl -e \"$COPY\" from file",
        "printf more >> file",
        "printf more 1<> file",
        "truncate -s 99 file",
    ];
    for transport in transports() {
        let image = EMPTY.build();
        fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let served = Served::new(&image, &["-o", transport]);
        let file = served.path("file");
        let from = served.path("from");
        fs::write(&from, "from").expect("a file");
        let mode = || fs::metadata(&file).expect("attributes").mode() & 0o7777;
        for way in ways {
            // Without a group's right to execute, its set-id bit has another meaning.
            for (before, after) in [(0o6777, 0o777), (0o6766, 0o2766)] {
                fs::write(&file, [b'x'; 4096]).expect("a file");
                std::os::unix::fs::chown(&file, Some(1000), Some(1000)).expect("its owner");
                fs::set_permissions(&file, fs::Permissions::from_mode(before)).expect("its mode");
                let run = as_user(1000, &served.dir, way)
                    .env("COPY", COPY)
                    .output()
                    .expect("setpriv");
                assert!(
                    run.status.success(),
                    "{way}: {}",
                    String::from_utf8_lossy(&run.stderr)
                );
                assert_eq!(mode(), after, "{way}: {before:o}");
            }
            // The set-id bit then stays for a user that is in the group only by its other groups,
            // and for no other user.
            for (groups, before, after) in [
                ("1000", 0o2766, 0o2766),
                ("1000", 0o6777, 0o777),
                ("7", 0o2766, 0o766),
            ] {
                fs::set_permissions(&file, fs::Permissions::from_mode(before)).expect("its mode");
                let groups = [
                    "--reuid=2000",
                    "--regid=2000",
                    "--groups",
                    groups,
                    "sh",
                    "-ec",
                    way,
                ];
                let mut run = std::process::Command::new("setpriv");
                let run = run
                    .args(groups)
                    .env("COPY", COPY)
                    .current_dir(&served.dir)
                    .output()
                    .expect("setpriv");
                assert!(
                    run.status.success(),
                    "{way}: {}",
                    String::from_utf8_lossy(&run.stderr)
                );
                assert_eq!(mode(), after, "{way}: {before:o}, {groups:?}");
            }
            // A privileged process keeps the bits.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).expect("its mode");
            let mut run = std::process::Command::new("sh");
            let run = run
                .args(["-ec", way])
                .env("COPY", COPY)
                .current_dir(&served.dir)
                .output()
                .expect("sh");
            assert!(
                run.status.success(),
                "{way}: {}",
                String::from_utf8_lossy(&run.stderr)
            );
            assert_eq!(mode(), 0o6777, "{way}");
        }
        served.umount();
        sound(&image);
    }
}

#[test]
fn spellings_of_a_name_are_one_name() {
    const FOLDS: ImageSpec = ImageSpec::new(
        "disk",
        64 << 20,
        &["-t", "ext4", "-O", "casefold", "-E", "encoding=utf8"],
    );
    if !can_mount() || !can_run(&[Need::Tool("chattr")]) {
        return;
    }
    for transport in transports() {
        let image = FOLDS.build();
        let served = Served::new(&image, &["-o", transport]);
        let run = |script: &str| tool(&served.dir, "sh", ["-ec", script]);
        run(
            "mkdir cf; chattr +F cf; echo one > cf/foo; stat cf/FOO; ls -l cf; rm cf/foo; echo precious > cf/FOO",
        );
        assert_eq!(run("cat cf/foo"), b"precious\n");
        run("! stat cf/bar 2> /dev/null && echo x > cf/BAR");
        assert_eq!(run("cat cf/bar"), b"x\n");
        run(
            "mkdir cf/Dir; ln cf/foo cf/Link; ln -s foo cf/Sym; stat cf/dir cf/link; rmdir cf/dir; rm cf/LINK cf/sym",
        );
        run("! stat cf/Dir 2> /dev/null && ! stat cf/Link 2> /dev/null && ! readlink cf/Sym");
        // A file that is moved in from elsewhere.
        run("echo moved > plain; mv plain cf/Moved; rm cf/moved; echo anew > cf/MOVED");
        assert_eq!(run("cat cf/Moved"), b"anew\n");
        // A name that was looked up before the directory folded case.
        run("mkdir late; ! stat late/Name 2> /dev/null && chattr +F late && echo x > late/name");
        assert_eq!(run("cat late/Name"), b"x\n");
        served.umount();
        let served = Served::new(&image, &["-o", transport]);
        assert_eq!(tool(&served.dir, "cat", ["cf/Foo"]), b"precious\n");
        served.umount();
        sound(&image);
    }
}

#[test]
fn changed_flags_show_in_the_time_of_change() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("chattr")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        fs::write(served.path("file"), "text").expect("a file");
        for name in ["file", "."] {
            let time = || {
                let attr = fs::metadata(served.path(name)).expect("attributes");
                (attr.ctime(), attr.ctime_nsec())
            };
            let before = time();
            std::thread::sleep(std::time::Duration::from_millis(20));
            tool(&served.dir, "chattr", ["+d", name]);
            assert!(time() > before, "{name}");
        }
        served.umount();
        sound(&image);
    }
}

#[test]
fn room_is_set_aside_for_what_is_only_appended_to() {
    if !can_mount_as_root() || !can_run(&[Need::Tool("chattr")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        fs::write(served.path("log"), [b'x'; 5000]).expect("a file");
        let log = File::options()
            .append(true)
            .open(served.path("log"))
            .expect("it opens");
        let allocate = |bits| {
            let mode = rustix::fs::FallocateFlags::from_bits_retain(bits);
            rustix::fs::fallocate(&log, mode, 0, 8192).map_err(|error| error.raw_os_error())
        };
        tool(&served.dir, "chattr", ["+a", "log"]);
        // With the size and without it; to make a hole, and to make zeroes.
        assert_eq!(
            [0, 1, 3, 0x10].map(allocate),
            [Ok(()), Ok(()), Err(1), Err(1)]
        );
        assert_eq!(log.metadata().expect("attributes").len(), 8192);
        tool(&served.dir, "chattr", ["-a", "log"]);
        tool(&served.dir, "chattr", ["+i", "log"]);
        assert_eq!([0, 1, 3, 0x10].map(allocate), [Err(1); 4]);
        tool(&served.dir, "chattr", ["-i", "log"]);
        drop(log);
        served.umount();
        sound(&image);
    }
}

#[test]
fn a_read_that_is_not_to_be_noted_is_not() {
    if !can_mount() {
        return;
    }
    let ways = transports()
        .into_iter()
        .flat_map(|way| [way.to_owned(), format!("{way},opens")]);
    for options in ways {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", &options]);
        fs::write(served.path("file"), "text").expect("a file");
        tool(&served.dir, "touch", ["-a", "-d", "2001-01-01", "file"]);
        let atime = || {
            fs::metadata(served.path("file"))
                .expect("attributes")
                .atime()
        };
        let before = atime();
        // Past the kernel's cache, so that each read reaches the server.
        for (flags, noted) in [("direct,noatime", false), ("direct", true)] {
            tool(
                &served.dir,
                "dd",
                [
                    "if=file",
                    &format!("iflag={flags}"),
                    "bs=4k",
                    "of=/dev/null",
                ],
            );
            assert_eq!(atime() > before, noted, "{options}: {flags}");
        }
        served.umount();
        sound(&image);
    }
}
