//! Contents, names and link targets that cannot be read without a key: no command and no mount
//! reveals them.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Output;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::unreadable::{CLEAR_DIRECTORY, DIRECTORIES, FILES, LINKS, MARK, UNREADABLE};

use crate::mounting::{Served, can_mount, transports};
use crate::run::{extern4, extern4_in, failed, ok, tool};

/// Command lines that read a file of `disk.img`; `FILE` stands for it, `out` is the file that they
/// may make.
const WAYS: &[&[&str]] = &[
    &["cat", "disk.img:/FILE"],
    &["get", "disk.img:/FILE"],
    &["cp", "-q", "disk.img:/FILE", "out"],
    &["cp", "-q", "-a", "disk.img:/FILE", "out"],
    &["cp", "-q", "disk.img:/FILE", "other.img:/out"],
    &["cp", "-q", "-a", "disk.img:/FILE", "other.img:/out"],
    &["script", "disk.img", "script"],
    &["truncate", "-s", "5", "disk.img:/FILE"],
];

/// Returns whether `bytes` hold the text that stands for ciphertext.
fn is_marked(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|window| window == MARK)
}

/// Asserts that nothing was revealed: neither on standard output nor in a file of the host or the
/// other volume.
#[track_caller]
fn kept(image: &Image, way: &[&str], file: &str, output: &Output) {
    failed(output, if file.ends_with("-map") { 4 } else { 1 });
    assert!(output.stdout.is_empty(), "{way:?} of {file}");
    let out = fs::read(image.scratch().join("out")).unwrap_or_default();
    assert!(
        out.iter().all(|byte| *byte == 0),
        "{way:?} of {file}: it is in a file"
    );
    let found = extern4(
        image,
        ["find", "other.img:/", "-name", "out", "-size", "+0"],
    );
    assert!(
        found.stdout.is_empty(),
        "{way:?} of {file}: it is in another volume"
    );
}

/// Returns the name that an encrypted directory shows for its one file that is not encrypted.
fn clear_file(image: &Image) -> String {
    let place = format!("disk.img:/{CLEAR_DIRECTORY}");
    let found = ok(extern4(
        image,
        ["find", &place, "-type", "f", "-size", "+0"],
    ));
    String::from_utf8(found)
        .expect("text")
        .trim()
        .trim_start_matches("disk.img:/")
        .to_owned()
}

#[test]
fn no_command_hands_out_what_is_encrypted() {
    if !UNREADABLE.can_run() {
        return;
    }
    let image = UNREADABLE.build();
    let other = image.scratch().join("other.img");
    fs::File::create(&other)
        .and_then(|file| file.set_len(8 << 20))
        .expect("another image");
    tool(image.scratch(), "mke2fs", ["-q", "-t", "ext4", "other.img"]);
    let clear = clear_file(&image);
    for file in FILES.iter().copied().chain([clear.as_str()]) {
        fs::write(
            image.scratch().join("script"),
            format!("cp /{file} host:out\n"),
        )
        .expect("a script");
        // Truncating a file with a damaged map reports the damage as a failed change.
        for way in WAYS
            .iter()
            .filter(|way| way[0] != "truncate" || !file.ends_with("-map"))
        {
            let args: Vec<_> = way.iter().map(|word| word.replace("FILE", file)).collect();
            let output = extern4(&image, &args);
            kept(&image, way, file, &output);
            let _ = fs::remove_file(image.scratch().join("out"));
            extern4(&image, ["rm", "-f", "other.img:/out"]);
        }
    }
}

#[test]
fn no_command_hands_out_names_and_targets_that_are_encrypted() {
    if !UNREADABLE.can_run() {
        return;
    }
    let image = UNREADABLE.build();
    for dir in DIRECTORIES {
        for way in [
            &["ls"][..],
            &["tree"],
            &["find"],
            &["du", "-a"],
            &["cp", "-q", "-r"],
            &["cp", "-q", "-a"],
        ] {
            let place = format!("disk.img:/{dir}");
            let mut args = [way, &[&place]].concat();
            if way[0] == "cp" {
                args.push("out");
            }
            let output = extern4(&image, args);
            failed(&output, 1);
            assert!(!is_marked(&output.stdout), "{way:?} of {dir}");
            if let Ok(mut made) = fs::read_dir(image.scratch().join("out")) {
                assert!(made.next().is_none(), "{way:?} of {dir}");
                fs::remove_dir(image.scratch().join("out")).expect("it is empty");
            }
        }
    }
    for link in LINKS {
        let place = format!("disk.img:/{link}");
        for way in [&["cat", &place][..], &["cp", "-q", "-a", &place, "out"]] {
            failed(&extern4(&image, way), 1);
            assert!(
                fs::symlink_metadata(image.scratch().join("out")).is_err(),
                "{way:?}"
            );
        }
        assert!(
            !is_marked(&extern4(&image, ["ls", "-l", &place]).stdout),
            "{link}"
        );
    }
    // With a policy, names and targets show in their encoded form, as on Linux, and contents are
    // refused.
    let target =
        fs::read_link(image.mount("ro").path.join("key-link")).expect("the kernel shows it");
    let listed =
        String::from_utf8(ok(extern4(&image, ["ls", "-l", "disk.img:/key-link"]))).expect("text");
    let (_, shown) = listed.trim_end().split_once(" -> ").expect("a target");
    assert_eq!(Path::new(shown), target);
    failed(
        &extern4(&image, ["cp", "-q", "-a", "disk.img:/key-dir", "out"]),
        1,
    );
    let sizes = fs::read_dir(image.scratch().join("out"))
        .expect("the directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .metadata()
                .expect("attributes")
                .len()
        });
    assert_eq!(sizes.sum::<u64>(), 0);
}

/// Programs that read a file of a mount.
const PROGRAMS: &[&str] = &[
    "cat FILE",
    "cp FILE out",
    "cp --reflink=never --sparse=always FILE out",
    "dd if=FILE iflag=direct bs=64k status=none",
    "exec perl -e 'open F, \"<:mmap\", shift or exit 1; local $/; my $bytes = <F>; $! and exit 1; print $bytes' FILE",
];

#[test]
fn no_mount_hands_out_what_is_encrypted() {
    if !can_mount() || !UNREADABLE.can_run() {
        return;
    }
    let image = UNREADABLE.build();
    let clear = clear_file(&image);
    for transport in transports() {
        for options in ["ro", "ro,opens"] {
            let served = Served::new(&image, &["-o", &format!("{options},{transport}")]);
            for file in FILES.iter().copied().chain([clear.as_str()]) {
                // Without `opens` the kernel does not ask, and reads nothing of a file without
                // size.
                if file.ends_with("-empty") && options == "ro" {
                    continue;
                }
                let what = format!("{file}, {transport}, {options}");
                run_programs(&image, &served.path(file), &what);
                splice(&served.path(file), &what);
            }
            for dir in DIRECTORIES {
                let listed = fs::read_dir(served.path(dir))
                    .map(|names| names.filter_map(Result::ok).count());
                assert!(!matches!(listed, Ok(1..)), "{dir}: {listed:?}");
            }
            for link in LINKS {
                assert!(fs::read_link(served.path(link)).is_err(), "{link}");
            }
            served.umount();
        }
    }
}

fn run_programs(image: &Image, path: &Path, what: &str) {
    for program in PROGRAMS {
        let program = program.replace("FILE", path.to_str().expect("text"));
        let output = std::process::Command::new("sh")
            .current_dir(image.scratch())
            .args(["-c", &program])
            .output()
            .expect("a shell");
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{what}: {program}"
        );
        let out = image.scratch().join("out");
        assert!(
            fs::read(&out)
                .unwrap_or_default()
                .iter()
                .all(|byte| *byte == 0),
            "{what}: {program}"
        );
        let _ = fs::remove_file(out);
    }
}

/// Moves contents to a pipe within the kernel.
fn splice(path: &Path, what: &str) {
    let Ok(file) = fs::File::open(path) else {
        return;
    };
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let moved = rustix::pipe::splice(
        &file,
        None,
        &writer,
        None,
        4096,
        rustix::pipe::SpliceFlags::empty(),
    );
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).expect("the pipe is read");
    assert!(
        moved.is_err() && bytes.is_empty(),
        "{what}: {} bytes are spliced",
        bytes.len()
    );
}

/// A volume without the encryption feature: the flag alone protects contents.
#[test]
fn the_flag_alone_keeps_contents_in() {
    const SPEC: ImageSpec = ImageSpec::new("disk", 16 << 20, &["-t", "ext4"])
        .from_directory(&[|root| fs::write(root.join("file"), MARK)]);
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    image.debugfs("set_inode_field /file flags 0x80800\n");
    for way in WAYS
        .iter()
        .filter(|way| !way.contains(&"other.img:/out") && way[0] != "script")
    {
        let args: Vec<_> = way
            .iter()
            .map(|word| word.replace("FILE", "file"))
            .collect();
        let output = extern4_in(image.scratch(), &args);
        failed(&output, 1);
        assert!(output.stdout.is_empty(), "{way:?}");
        assert!(
            fs::read(image.scratch().join("out"))
                .unwrap_or_default()
                .is_empty(),
            "{way:?}"
        );
    }
}
