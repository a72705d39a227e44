//! Handles of files on a mount (`name_to_handle_at(2)`, `open_by_handle_at(2)`), which outlive the
//! kernel's caches.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use extern4_testkit::mounts::{EMPTY, can_mount, sound, transports};
use extern4_testkit::tools::{Need, can_run, skip};

use crate::served::Served;

/// `perl handles.pl save FILE HANDLE` and `perl handles.pl open DIR HANDLE`. The second prints
/// where the handle leads and, for a file, its contents.
const SCRIPT: &str = r#"
use strict;
my ($to, $by) = `uname -m` =~ /x86_64/ ? (303, 304) : (264, 265);
my ($what, $path, $kept) = @ARGV;
if ($what eq "save") {
    my ($handle, $mount) = (pack("Ii", 128, 0) . "\0" x 128, pack("i", 0));
    syscall($to, -100, $path, $handle, $mount, 0) == 0 or die "$path: $!\n";
    open(my $out, ">", $kept) or die; print $out $handle; exit;
}
open(my $in, "<", $kept) or die; local $/; my $handle = <$in>;
opendir(my $dir, $path) or die;
my $fd = syscall($by, fileno($dir), $handle, 0);
$fd >= 0 or die $! + 0, "\n";
my $link = readlink("/proc/self/fd/$fd");
if (-d "/proc/self/fd/$fd/.") { print "$link\n"; exit }
open(my $file, "<&=", $fd) or die; print <$file>;
"#;

/// Runs the script; returns its output, or the number of the error that it ends with.
fn handles(scratch: &Path, words: [&Path; 3]) -> Result<String, String> {
    let script = scratch.join("handles.pl");
    fs::write(&script, SCRIPT).expect("a script");
    let run = Command::new("perl")
        .arg(&script)
        .args(words)
        .output()
        .expect("perl");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if run.status.success() {
        Ok(text(&run.stdout))
    } else {
        Err(text(&run.stderr))
    }
}

/// Has the kernel forget every unused file; prints a note where this machine does not allow that.
fn forget_files() -> bool {
    match fs::write("/proc/sys/vm/drop_caches", "2") {
        Ok(()) => true,
        Err(error) => {
            skip(
                "handles of forgotten files",
                &format!("/proc/sys/vm/drop_caches: {error}"),
            );
            false
        }
    }
}

#[test]
fn handles_outlive_what_the_kernel_remembers() {
    if !can_mount() || !can_run(&[Need::Tool("perl")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        let scratch = image.scratch();
        let root = served.dir.clone();
        let deep = served.path("a/b/c");
        fs::create_dir_all(&deep).expect("directories");
        fs::write(deep.join("file"), "text").expect("a file");
        fs::write(deep.join("gone"), "gone").expect("a file");
        let save = |what: &Path, name: &str| {
            handles(scratch, [Path::new("save"), what, &scratch.join(name)]).expect("a handle");
        };
        let open = |name: &str| handles(scratch, [Path::new("open"), &root, &scratch.join(name)]);
        save(&deep.join("file"), "file");
        save(&deep.join("gone"), "gone");
        save(&deep, "dir");
        if !forget_files() {
            return;
        }
        assert_eq!(open("file").as_deref(), Ok("text"));
        assert!(
            open("dir").is_ok_and(|path| path.ends_with("/mnt/a/b/c")),
            "{:?}",
            open("dir")
        );
        // A new file that takes its inode number is another file.
        fs::remove_file(deep.join("gone")).expect("it is removed");
        fs::write(deep.join("next"), "next").expect("a file");
        for _ in 0..2 {
            assert_eq!(open("gone").as_deref(), Err(&"116".to_owned()));
            forget_files();
        }
        // An open file without a name still exists.
        let kept = File::open(deep.join("file")).expect("it opens");
        fs::remove_file(deep.join("file")).expect("it is removed");
        assert_eq!(open("file").as_deref(), Ok("text"), "{}", kept.as_raw_fd());
        drop(kept);
        fs::rename(served.path("a/b"), served.path("b")).expect("it moves");
        forget_files();
        assert!(
            open("dir").is_ok_and(|path| path.ends_with("/mnt/b/c")),
            "{:?}",
            open("dir")
        );
        served.umount();
        sound(&image);
    }
}
