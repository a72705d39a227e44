//! Calls on files of a mount that have no system call: flags, projects, the label,
//! free space.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::mounts::{as_user, can_mount, sound, transports};
use extern4_testkit::tools::run_in as tool;
use extern4_testkit::tools::{self, LoopDevice, Need, can_run};

use crate::served::Served;

/// A volume with projects, and a label.
const PROJECTS: ImageSpec = ImageSpec::new(
    "disk",
    64 << 20,
    &[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-L",
        "first",
        "-O",
        "quota,project",
        "-E",
        "quotatype=prjquota",
    ],
);

/// `perl ioctl.pl DIR`, which prints the label, and `perl ioctl.pl DIR LABEL`, which sets it.
const LABEL: &str = r#"
sysopen(my $dir, $ARGV[0], 0) or die;
my $label = pack("a256", $ARGV[1]);
ioctl($dir, @ARGV > 1 ? 0x41009432 : 0x81009431, $label) or die $! + 0, "\n";
print unpack("Z*", $label), "\n";
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// Mounts the volume, and lets all users make files in its root.
fn served(image: &Image, transport: &str) -> Served {
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let served = Served::new(image, &["-o", transport]);
    fs::set_permissions(&served.dir, fs::Permissions::from_mode(0o777)).expect("its mode");
    served
}

fn can_use(tools: &[&'static str]) -> bool {
    let needs: Vec<_> = tools.iter().map(|tool| Need::Tool(tool)).collect();
    can_mount() && can_run(&needs) && PROJECTS.can_run()
}

#[test]
fn projects_and_flags_are_set_by_owners() {
    if !can_use(&["chattr", "lsattr", "setpriv"]) {
        return;
    }
    for transport in transports() {
        let image = PROJECTS.build();
        let served = served(&image, transport);
        let user = |uid, script: &str| {
            as_user(uid, &served.dir, script)
                .status()
                .expect("setpriv")
                .success()
        };
        assert!(user(
            1000,
            "mkdir dir; echo text > file; chattr -p 42 file; chattr -p 43 dir; chattr +P dir"
        ));
        assert!(user(
            1000,
            "echo text > dir/below; chattr +d file; lsattr -p file | grep -q '^ *42 .*d'"
        ));
        assert!(user(1000, "lsattr -p dir/below | grep -q '^ *43 '"));
        // As with the kernel: flags without effect here are kept, and inherited.
        assert!(user(
            1000,
            "chattr +x dir; lsattr -d dir | grep -q '^[^ ]*x'; mkdir dir/x; lsattr -d dir/x | grep -q '^[^ ]*x'"
        ));
        for script in ["chattr -p 1 file", "chattr +d dir", "chattr -P dir"] {
            assert!(!user(2000, script), "{script}");
        }
        // A change that has no effect does not report success.
        assert!(user(1000, "chattr +e file dir") && !user(1000, "chattr -e file 2> refused"));
        assert!(user(
            1000,
            "grep -q 'not supported' refused; lsattr file | grep -q e; chattr -d file; chattr +d file"
        ));
        assert!(!user(1000, "chattr +i file") && !user(1000, "chattr +a file"));
        tool(&served.dir, "chattr", ["+i", "file"]);
        assert!(!user(1000, "chattr -p 1 file"));
        tool(&served.dir, "chattr", ["-i", "file"]);
        served.umount();
        sound(&image);
        let said = tools::debugfs(
            &image.path,
            false,
            "get_quota project 42\nget_quota project 43\n",
        );
        for project in ["42 ", "43 "] {
            assert!(
                said.lines()
                    .any(|line| line.trim_start().starts_with(project)),
                "{said}"
            );
        }
    }
}

#[test]
fn the_label_is_the_superuser_s_to_change() {
    if !can_use(&["perl", "e2label", "setpriv"]) {
        return;
    }
    let image = PROJECTS.build();
    fs::write(image.scratch().join("label.pl"), LABEL).expect("a script");
    let served = served(&image, "transport=auto");
    let label = |words: &[&str]| {
        text(&tool(
            image.scratch(),
            "perl",
            [&["label.pl", "mnt"], words].concat(),
        ))
    };
    assert_eq!(label(&[]), "first");
    let user = |script: &str| {
        as_user(1000, image.scratch(), script)
            .output()
            .expect("setpriv")
    };
    assert_eq!(text(&user("perl label.pl mnt").stdout), "first");
    assert_eq!(text(&user("perl label.pl mnt mine").stderr), "1");
    assert_eq!(text(&user("perl label.pl mnt").stdout), "first");
    label(&["sixteen bytes ok"]);
    assert_eq!(label(&[]), "sixteen bytes ok");
    served.umount();
    assert_eq!(
        text(&tool(image.scratch(), "e2label", ["disk.img"])),
        "sixteen bytes ok"
    );
    sound(&image);
}

/// Programs that know nothing of the journal, such as udev's, read the device.
#[test]
fn a_new_label_is_found_on_the_device() {
    if !can_use(&["perl", "blkid"]) || !can_run(&[Need::Mount]) {
        return;
    }
    let image = PROJECTS.build();
    fs::write(image.scratch().join("label.pl"), LABEL).expect("a script");
    for label in ["of an image", "of a device"] {
        let device = (label == "of a device").then(|| LoopDevice::attach(&image.path));
        let source = device.as_ref().map_or(&image.path, |device| &device.path);
        let served = Served::of_file(source, image.scratch(), &[]);
        let source = source.to_str().expect("a plain name");
        fs::write(served.path("file"), label).expect("a file");
        tool(image.scratch(), "perl", ["label.pl", "mnt", label]);
        tool(image.scratch(), "sync", ["-f", "mnt"]);
        for look in [source, "disk.img"] {
            let found = tool(
                image.scratch(),
                "blkid",
                ["-p", "-s", "LABEL", "-o", "value", look],
            );
            assert_eq!(text(&found), label, "{source}, {look}");
        }
        served.umount();
    }
    sound(&image);
}

/// Returns the bytes that a file takes on its host.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).expect("attributes").blocks() * 512
}

#[test]
fn fstrim_gives_the_host_its_room_back() {
    if !can_use(&["fstrim", "setpriv"]) {
        return;
    }
    for transport in transports() {
        let image = PROJECTS.build();
        let served = served(&image, transport);
        fs::write(served.path("kept"), vec![b'k'; 4 << 20]).expect("a file");
        fs::write(served.path("gone"), vec![b'g'; 24 << 20]).expect("a file");
        tool(&served.dir, "sync", ["kept", "gone"]);
        let before = taken(&image.path);
        fs::remove_file(served.path("gone")).expect("it is removed");
        let user = as_user(1000, image.scratch(), "fstrim mnt")
            .output()
            .expect("setpriv");
        assert!(
            text(&user.stderr).contains("not permitted"),
            "{}",
            text(&user.stderr)
        );
        // The kernel forgets the file a moment later.
        let start = std::time::Instant::now();
        while taken(&image.path) + (23 << 20) > before && start.elapsed().as_secs() < 60 {
            tool(image.scratch(), "fstrim", ["-v", "mnt"]);
        }
        assert!(
            taken(&image.path) + (23 << 20) < before,
            "{} of {before}",
            taken(&image.path)
        );
        assert_eq!(
            fs::read(served.path("kept")).expect("a file"),
            vec![b'k'; 4 << 20]
        );
        let beyond = ["-o", "1T", "-l", "1M"]
            .map(OsStr::new)
            .into_iter()
            .chain([served.dir.as_os_str()]);
        let beyond = tools::try_run("fstrim", beyond);
        assert!(beyond.is_err(), "there is nothing there");
        served.umount();
        sound(&image);
    }
}
