//! `make install` and `make uninstall`, and the names under which other programs call the command.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{self, Need, can_run};

use crate::mounting::EMPTY;
use crate::run::{extern4, failed, ok};

const FOUR: ImageSpec = ImageSpec::new("disk", 4 << 20, &["-t", "ext4"]);

/// Returns the root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `make` with the command that is tested in place of the one that is released.
fn make(dest: &Path, target: &str) -> Output {
    let mut make = Command::new("make");
    make.arg("-sC")
        .arg(root())
        .arg(target)
        .arg(format!("DESTDIR={}", dest.display()));
    make.arg(concat!("BINARY=", env!("CARGO_BIN_EXE_extern4")))
        .env_remove("MAKEFLAGS");
    make.output().expect("make runs")
}

/// Returns all files below `dir`, by their paths from it.
fn files(dir: &Path) -> BTreeSet<String> {
    let found = Command::new("find")
        .arg(dir)
        .args(["!", "-type", "d", "-printf", "%P\n"])
        .output();
    let found = ok(found.expect("find runs"));
    String::from_utf8(found)
        .expect("text")
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_make_installs_works_and_is_removed() {
    if !can_run(&[Need::Tool("make")]) {
        return;
    }
    let image = FOUR.build();
    let dest = image.scratch().join("a root");
    ok(make(&dest, "install"));
    // It replaces what it has installed.
    ok(make(&dest, "install"));
    let installed = files(&dest);
    for file in [
        "usr/local/bin/extern4",
        "sbin/mount.extern4",
        "sbin/fsck.extern4",
        "sbin/mkfs.extern4",
        "usr/local/share/man/man1/extern4.1",
        "usr/local/share/man/man1/extern4-ls.1",
        "usr/local/share/man/man8/mount.extern4.8",
        "usr/local/share/man/man8/fsck.extern4.8",
        "usr/local/share/man/man8/mkfs.extern4.8",
        "usr/local/share/bash-completion/completions/extern4",
        "usr/local/share/zsh/site-functions/_extern4",
        "usr/local/share/fish/vendor_completions.d/extern4.fish",
    ] {
        assert!(installed.contains(file), "{file}: {installed:?}");
    }
    for link in [
        "sbin/mount.extern4",
        "sbin/fsck.extern4",
        "sbin/mkfs.extern4",
    ] {
        let target = fs::read_link(dest.join(link)).expect("a link");
        assert_eq!(target, Path::new("/usr/local/bin/extern4"), "{link}");
    }
    let mut command = Command::new(dest.join("usr/local/bin/extern4"));
    let said = ok(command
        .arg("info")
        .arg(&image.path)
        .output()
        .expect("it runs"));
    assert!(String::from_utf8_lossy(&said).contains("ext4"));
    ok(make(&dest, "uninstall"));
    assert_eq!(files(&dest), BTreeSet::new());
}

#[test]
fn links_of_others_stay() {
    if !can_run(&[Need::Tool("make")]) {
        return;
    }
    let image = FOUR.build();
    let dest = image.scratch().join("root");
    fs::create_dir_all(dest.join("sbin")).expect("a directory");
    symlink("/usr/bin/other", dest.join("sbin/fsck.extern4")).expect("a link");
    let said = failed(&make(&dest, "install"), 2);
    assert!(
        said.contains("sbin/fsck.extern4' is there already"),
        "{said}"
    );
    ok(make(&dest, "uninstall"));
    assert_eq!(
        files(&dest),
        BTreeSet::from(["sbin/fsck.extern4".to_owned()])
    );
}

#[test]
fn the_debian_package_installs_and_is_removed() {
    if !can_run(&[Need::Root, Need::Tool("dpkg-deb"), Need::Tool("dpkg")]) {
        return;
    }
    let image = FOUR.build();
    let dest = image.scratch().join("root");
    let records = dest.join("var/lib/dpkg");
    for dir in ["info", "updates", "triggers"] {
        fs::create_dir_all(records.join(dir)).expect("a directory");
    }
    for file in ["status", "available"] {
        fs::write(records.join(file), "").expect("a file");
    }
    let deb = Command::new(root().join("scripts/deb"))
        .args([Path::new(env!("CARGO_BIN_EXE_extern4")), image.scratch()])
        .envs([
            ("SOURCE_DATE_EPOCH", "1700000000"),
            ("DPKG_DEB_COMPRESSOR_TYPE", "none"),
        ])
        .output();
    ok(deb.expect("the script runs"));
    let package = fs::read_dir(image.scratch())
        .expect("a directory")
        .flatten();
    let package = package
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ext| ext == "deb"));
    let package = package.expect("a package");
    let dpkg = |args: &[&std::ffi::OsStr]| {
        let mut dpkg = Command::new("dpkg");
        // The libraries that it depends on are outside of this root.
        dpkg.arg("--root")
            .arg(&dest)
            .args(["--force-depends", "--log=/dev/null"])
            .args(args);
        let run = dpkg.output().expect("dpkg runs");
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
    };
    dpkg(&["--install".as_ref(), package.as_os_str()]);
    let field = Command::new("dpkg-deb")
        .arg("--field")
        .arg(&package)
        .arg("Maintainer")
        .output();
    let field = String::from_utf8(ok(field.expect("dpkg-deb runs"))).expect("text");
    let (name, address) = field
        .trim_end()
        .split_once(" <")
        .expect("a name and an address");
    assert!(
        !name.is_empty() && address.ends_with('>') && address.matches('@').count() == 1,
        "{field}"
    );
    let mut command = Command::new(dest.join("usr/bin/extern4"));
    ok(command
        .arg("info")
        .arg(&image.path)
        .output()
        .expect("it runs"));
    let installed = files(&dest.join("usr"));
    for file in [
        "share/man/man8/mount.extern4.8.gz",
        "share/doc/extern4/copyright",
        "share/zsh/vendor-completions/_extern4",
    ] {
        assert!(installed.contains(file), "{file}: {installed:?}");
    }
    for link in ["mount.extern4", "fsck.extern4", "mkfs.extern4"] {
        let target = fs::read_link(dest.join("usr/sbin").join(link)).expect("a link");
        assert_eq!(target, Path::new("/usr/bin/extern4"), "{link}");
    }
    dpkg(&["--purge".as_ref(), "extern4".as_ref()]);
    assert!(!dest.join("usr").exists(), "{:?}", files(&dest));
}

#[test]
fn setup_names_the_version_of_rust_that_is_there() {
    let image = FOUR.build();
    let rustc = image.scratch().join("rustc");
    for (version, fits) in [
        ("1.80.1", false),
        ("1.9.0", false),
        ("1.1000.0-nightly", true),
    ] {
        fs::write(
            &rustc,
            format!("#!/bin/sh\necho 'rustc {version} (0 2020-01-01)'\n"),
        )
        .expect("a script");
        for name in ["rustc", "cargo"] {
            let path = image.scratch().join(name);
            if path != rustc {
                fs::write(&path, "#!/bin/sh\n").expect("a script");
            }
            ok(Command::new("chmod")
                .arg("+x")
                .arg(path)
                .output()
                .expect("chmod runs"));
        }
        let path = format!(
            "{}:{}",
            image.scratch().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let run = Command::new(root().join("scripts/setup"))
            .arg("run")
            .env("PATH", path)
            .output();
        let run = run.expect("setup runs");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr)
        );
        assert_eq!(run.status.code(), Some(if fits { 0 } else { 1 }), "{said}");
        assert!(
            said.contains("needs Rust 1.") && said.contains(version),
            "{said}"
        );
    }
}

/// mkfs(8) finds the program of a type by its name.
#[test]
fn mkfs_makes_a_volume_of_the_type_extern4() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    symlink(env!("CARGO_BIN_EXE_extern4"), dir.join("mkfs.extern4")).expect("a link");
    let run = |program: &Path, args: &[&str]| {
        let path = format!(
            "{}:{}",
            dir.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        Command::new(program)
            .args(args)
            .current_dir(dir)
            .env("PATH", path)
            .output()
            .expect("it runs")
    };
    let link = dir.join("mkfs.extern4");
    let said = ok(run(&link, &["-t", "ext2", "-L", "made", "x.img", "64M"]));
    assert!(String::from_utf8_lossy(&said).starts_with("65536 blocks of 1024 bytes"));
    assert!(String::from_utf8_lossy(&ok(run(&link, &["--help"]))).contains("Usage: extern4 mkfs"));
    let said = failed(&run(&link, &["-Y", "x.img"]), 2);
    assert!(
        said.starts_with("extern4: mkfs: unexpected argument '-Y'"),
        "{said}"
    );
    let said = failed(&run(&link, &["-z", "undo", "x.img"]), 2);
    assert!(said.contains("-z: a copy of the image"), "{said}");
    if can_run(&[Need::Tool("mkfs")]) {
        ok(run(
            Path::new("mkfs"),
            &["-t", "extern4", "-q", "y.img", "64M"],
        ));
        assert!(dir.join("y.img").exists());
    }
}

/// Runs the command by the name under which fsck(8) calls it.
fn fsck(image: &Image, args: &[&str]) -> Output {
    let link = image.scratch().join("fsck.extern4");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_extern4"), &link).expect("a link");
    }
    Command::new(link)
        .current_dir(image.scratch())
        .args(args)
        .output()
        .expect("it runs")
}

fn text(output: Output) -> String {
    String::from_utf8(ok(output)).expect("text")
}

#[test]
fn fsck_believes_a_clean_superblock_unless_it_is_forced() {
    let image = EMPTY.build();
    assert_eq!(
        text(fsck(&image, &["-a", "-C0", "disk.img"])),
        "disk.img: clean\n"
    );
    let checked = text(fsck(&image, &["-pf", "disk.img"]));
    assert!(
        checked.starts_with("disk.img: nothing is wrong:"),
        "{checked}"
    );
    for how in ["-n", "-y", "-v"] {
        assert!(
            text(fsck(&image, &[how, "disk.img"])).starts_with("disk.img: clean"),
            "{how}"
        );
    }
    assert!(text(fsck(&image, &["--help"])).contains("Usage: fsck.extern4"));
}

#[test]
fn fsck_leaves_damage_and_says_that() {
    let image = EMPTY.build();
    // An inode bitmap that has lost its first bytes.
    let info = String::from_utf8(tools::run("dumpe2fs", [&image.path])).expect("text");
    let bitmap = info
        .lines()
        .find_map(|line| line.split_once("Inode bitmap at "))
        .expect("a bitmap")
        .1;
    let block: u64 = bitmap
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a block");
    let size = info
        .lines()
        .find_map(|line| line.strip_prefix("Block size:"))
        .expect("a size")
        .trim();
    let mut bytes = fs::read(&image.path).expect("the image is read");
    let at = usize::try_from(block).expect("small") * size.parse::<usize>().expect("a number");
    bytes[at] = 0;
    fs::write(&image.path, &bytes).expect("the image is written");
    let run = fsck(&image, &["-fy", "disk.img"]);
    let said = failed(&run, 4);
    assert!(
        said.contains("repairs nothing") && said.contains("e2fsck"),
        "{said}"
    );
    assert!(
        String::from_utf8_lossy(&run.stdout).contains("disk.img: 2 faults:"),
        "{run:?}"
    );
    assert!(
        fs::read(&image.path).expect("the image is read") == bytes,
        "nothing is changed"
    );
}

/// As e2fsck: a volume that notes errors is checked whole, and loses the note if nothing is wrong.
#[test]
fn fsck_checks_a_volume_that_notes_errors_and_clears_the_note() {
    let noted = EMPTY.build();
    noted.debugfs(
        "ssv state 3\nssv error_count 2\nssv last_error_time 20210102030405\nssv last_error_ino 12\n",
    );
    let state = |image: &Image| {
        let header = tools::run("dumpe2fs", ["-h".as_ref(), image.path.as_os_str()]);
        let header = String::from_utf8(header).expect("text");
        let state = header
            .lines()
            .find_map(|line| line.strip_prefix("Filesystem state:"))
            .expect("a state");
        (state.trim().to_owned(), header.contains("FS Error count"))
    };
    let note = "note: 2 errors noted since a check found nothing; the last: 2021-01-02 03:04:05 +0000, inode 12";
    let said = text(extern4(&noted, ["check", "disk.img"]));
    assert!(
        said.contains(note) && said.contains("disk.img: nothing is wrong"),
        "{said}"
    );
    let put = extern4(&noted, ["touch", "disk.img:/file"]);
    let warned = String::from_utf8_lossy(&put.stderr);
    assert!(
        put.status.success() && warned.matches("errors are noted").count() == 1,
        "{put:?}"
    );
    for how in ["-p", "-a", "-y"] {
        let image = noted.copy();
        let said = text(fsck(&image, &[how, "disk.img"]));
        assert!(
            said.contains(note) && said.ends_with("disk.img: the note of errors is cleared\n"),
            "{said}"
        );
        assert_eq!(state(&image), ("clean".to_owned(), false), "{how}");
        tools::run("e2fsck", ["-fn".as_ref(), image.path.as_os_str()]);
        assert_eq!(text(fsck(&image, &[how, "disk.img"])), "disk.img: clean\n");
    }
    // With -n, and on a volume with faults, the note stays.
    assert!(text(fsck(&noted, &["-n", "disk.img"])).contains(note));
    assert_eq!(state(&noted), ("clean with errors".to_owned(), true));
    noted.debugfs("sif / links_count 9\n");
    assert!(failed(&fsck(&noted, &["-a", "disk.img"]), 4).contains("repairs nothing"));
    assert_eq!(state(&noted), ("clean with errors".to_owned(), true));
}

/// Makes a volume as a crash leaves it: a file is in its journal, and nowhere else yet.
fn crashed() -> Image {
    let image = EMPTY.build();
    let mount = image.mount("noatime");
    let mut file = fs::File::create(mount.path.join("file")).expect("a file");
    file.write_all(b"text")
        .and_then(|()| file.sync_all())
        .expect("it is synced");
    drop(file);
    let bytes = fs::read(&image.path).expect("the image is read");
    mount.unmount();
    fs::write(&image.path, &bytes).expect("the image is written");
    image
}

/// As fsck(8) calls it: at the start of the system with `-a` or `-p`, by hand with `-y`.
#[test]
fn fsck_replays_the_journal() {
    if !can_run(&[Need::Mount, Need::Tool("e2fsck"), Need::Tool("dumpe2fs")]) {
        return;
    }
    let crashed = crashed();
    let needs_recovery = |image: &Image| {
        let header = tools::run("dumpe2fs", ["-h".as_ref(), image.path.as_os_str()]);
        String::from_utf8_lossy(&header).contains("needs_recovery")
    };
    assert!(needs_recovery(&crashed));
    for args in [&["-a", "-C0"][..], &["-p"], &["-y"], &["-a", "-f"], &[]] {
        let image = crashed.copy();
        let said = text(fsck(&image, &[args, &["disk.img"]].concat()));
        let mut lines = said.lines();
        assert!(
            lines.next().is_some_and(|line| line.contains("replayed, ")),
            "{args:?}: {said}"
        );
        let then = if args.contains(&"-f") {
            "disk.img: nothing is wrong: "
        } else {
            "disk.img: clean"
        };
        assert!(
            lines.next().is_some_and(|line| line.starts_with(then)),
            "{args:?}: {said}"
        );
        assert!(!needs_recovery(&image), "{args:?}");
        tools::run("e2fsck", ["-fn".as_ref(), image.path.as_os_str()]);
        assert_eq!(
            ok(extern4(&image, ["cat", "disk.img:/file"])),
            b"text",
            "{args:?}"
        );
        // Once more there is nothing to do.
        assert_eq!(text(fsck(&image, &["-a", "disk.img"])), "disk.img: clean\n");
    }
    // With -n it is seen through its journal, and stays as it is.
    let before = fs::read(&crashed.path).expect("the image is read");
    assert!(text(fsck(&crashed, &["-n", "disk.img"])).starts_with("disk.img: nothing is wrong: "));
    assert!(
        fs::read(&crashed.path).expect("the image is read") == before,
        "nothing is written"
    );
    // A volume that is in use is not touched, and one with a damaged journal stays as it is.
    let mount = crashed.copy();
    let held = mount.mount("noatime");
    let device = fs::read_to_string("/proc/mounts").expect("mounts");
    let device = device
        .lines()
        .find(|line| line.contains(held.path.to_str().expect("UTF-8")));
    let device = device
        .and_then(|line| line.split(' ').next())
        .expect("a device")
        .to_owned();
    let said = failed(&fsck(&mount, &["-a", &device]), 8);
    assert!(said.contains(&device), "{said}");
    held.unmount();
    let damaged = crashed.copy();
    damaged.debugfs("set_super_value journal_inum 2\n");
    let before = fs::read(&damaged.path).expect("the image is read");
    let said = failed(&fsck(&damaged, &["-a", "disk.img"]), 4);
    assert!(
        said.contains("the journal is not a file that is in use"),
        "{said}"
    );
    assert!(
        fs::read(&damaged.path).expect("the image is read") == before,
        "nothing is written"
    );
}

#[test]
fn fsck_has_the_exit_codes_of_its_kind() {
    let image = EMPTY.build();
    failed(&fsck(&image, &["missing.img"]), 8);
    fs::write(image.scratch().join("zeros"), [0; 4096]).expect("a file");
    failed(&fsck(&image, &["-n", "zeros"]), 8);
    let said = failed(&fsck(&image, &["-Z", "disk.img"]), 16);
    assert!(
        said.starts_with("extern4: fsck.extern4: unexpected argument '-Z'"),
        "{said}"
    );
    assert!(said.contains("Try 'fsck.extern4 --help'"), "{said}");
    failed(&fsck(&image, &["-n", "-y", "disk.img"]), 16);
    failed(&fsck(&image, &[]), 16);
}

#[test]
fn manual_pages_are_sound() {
    let image = FOUR.build();
    ok(extern4(&image, ["man", "--dir", "pages"]));
    let pages: Vec<_> = fs::read_dir(image.scratch().join("pages"))
        .expect("pages")
        .flatten()
        .collect();
    assert!(pages.len() > 45, "{pages:?}");
    for page in &pages {
        let name = page.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(page.path()).expect("a page");
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "\"EXIT STATUS\"",
            "\"SEE ALSO\"",
        ] {
            assert!(
                text.contains(&format!("\n.SH {section}\n")),
                "{name} has no {section}"
            );
        }
        let footer = concat!(
            " \"\" \"extern4 ",
            env!("CARGO_PKG_VERSION"),
            "\" \"extern4 manual\"\n"
        );
        assert!(text.contains(footer), "{name}: {text}");
        assert!(text.contains("\n.SH EXAMPLES\n"), "{name} has no examples");
        if can_run(&[Need::Tool("groff")]) {
            let groff = ["-man", "-t", "-ww", "-Tutf8", "-rLL=78n"];
            let run = Command::new("groff")
                .args(groff)
                .arg(page.path())
                .output()
                .expect("groff runs");
            assert!(!String::from_utf8_lossy(&ok(run)).is_empty(), "{name}");
        }
        if can_run(&[Need::Tool("mandoc")]) {
            let run = Command::new("mandoc")
                .args(["-T", "lint", "-W", "error"])
                .arg(page.path())
                .output();
            ok(run.expect("mandoc runs"));
        }
    }
}

#[test]
fn the_page_of_stats_explains_every_counter() {
    let image = FOUR.build();
    ok(extern4(&image, ["man", "--dir", "pages"]));
    let page = fs::read_to_string(image.scratch().join("pages/extern4-stats.1")).expect("a page");
    let text = String::from_utf8(ok(extern4(&image, ["stats", "--explain"]))).expect("text");
    let counters: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    assert!(
        counters.len() > 30 && counters.len() == text.lines().count(),
        "{text}"
    );
    for (name, meaning) in counters {
        let written = format!(
            "\\fB{name}\\fR\n{}\n",
            meaning.replace('-', "\\-").replace('\'', "\\(aq")
        );
        assert!(page.contains(&written), "{name}: {page}");
    }
}

#[test]
fn the_page_of_the_mount_helper_has_every_option() {
    let image = FOUR.build();
    ok(extern4(&image, ["man", "--dir", "pages"]));
    let page = fs::read_to_string(image.scratch().join("pages/mount.extern4.8")).expect("a page");
    let help = String::from_utf8(ok(extern4(&image, ["mount", "--help"]))).expect("text");
    let (_, options) = help
        .split_once("\nOptions:\n\n")
        .expect("the options of mount(8)");
    let words = options
        .lines()
        .filter_map(|line| line.trim_start().split_once(": "))
        .map(|(words, _)| words);
    let words: Vec<_> = words
        .flat_map(|words| words.split(", "))
        .filter(|word| !word.contains(' '))
        .collect();
    assert!(words.len() > 50, "{words:?}");
    for word in words {
        assert!(page.contains(&word.replace('-', "\\-")), "{word}");
    }
}
