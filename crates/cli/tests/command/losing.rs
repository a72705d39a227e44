//! Data that cannot be made durable is an error: of `umount`, and of every command that writes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Output;

use extern4_testkit::image::Image;
use extern4_testkit::tools;

use crate::mounting::{EMPTY, can_mount_as_root, transports};
use crate::run::{command, extern4, failed, ok, tool};

/// A small disk of the host with a sparse image in it, called `host/sparse.img`.
struct Host {
    image: Image,
}

impl Host {
    fn new(mke2fs: &[&str]) -> Self {
        let host = Self {
            image: EMPTY.build(),
        };
        fs::create_dir(host.path("host")).expect("a directory");
        tool(
            host.image.scratch(),
            "mount",
            ["-t", "tmpfs", "-o", "size=24M", "tmpfs", "host"],
        );
        File::create(host.path("host/sparse.img"))
            .and_then(|file| file.set_len(64 << 20))
            .expect("an image");
        tool(
            host.image.scratch(),
            "mke2fs",
            [&["-q"], mke2fs, &["host/sparse.img"]].concat(),
        );
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.image.scratch().join(name)
    }

    /// Fills the disk.
    fn fill(&self) {
        let mut file = File::create(self.path("host/filler")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = tools::try_run("umount", ["-l".as_ref(), self.path("host").as_os_str()]);
    }
}

/// Unmounts `mnt`, which fails, and finds `said` in the message.
#[track_caller]
fn umount_fails(image: &Image, said: &str) {
    let output: Output = extern4(image, ["umount", "mnt"]);
    let errors = failed(&output, 1);
    assert!(
        errors.contains("not all is on the volume") && errors.contains(said),
        "{errors}"
    );
    let table = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(
        !table.contains(image.scratch().join("mnt").to_str().expect("text")),
        "it is mounted still"
    );
}

const KINDS: [&[&str]; 2] = [&["-t", "ext4"], &["-t", "ext2"]];

#[test]
fn umount_fails_when_the_disk_of_the_image_is_full() {
    if !can_mount_as_root() {
        return;
    }
    for mke2fs in KINDS {
        for transport in transports() {
            let host = Host::new(mke2fs);
            fs::create_dir(host.path("mnt")).expect("a directory");
            // No commit finds the disk full before the directories are made.
            let options = format!("commit=300,{transport}");
            ok(extern4(
                &host.image,
                ["mount", "-o", &options, "host/sparse.img", "mnt"],
            ));
            fs::write(host.path("mnt/file"), [7; 100_000]).expect("there is room");
            host.fill();
            // This changes blocks in memory, until a sync(2) of any process finds the disk full.
            let _ =
                (0..2000).try_for_each(|at| fs::create_dir(host.path(&format!("mnt/dir-{at}"))));
            umount_fails(&host.image, "No space left");
        }
    }
}

#[test]
fn commands_fail_when_the_disk_of_the_image_is_full() {
    if !can_mount_as_root() {
        return;
    }
    let sources = tools::temporary("extern4-");
    let large = sources.path().join("large");
    let tree = sources.path().join("tree");
    fs::write(&large, vec![7; 3_000_000]).expect("a file");
    (0..2000)
        .try_for_each(|at| fs::create_dir_all(tree.join(at.to_string())))
        .expect("directories");
    let large_name = large.to_str().expect("text");
    let tree_name = tree.to_str().expect("text");
    for mke2fs in KINDS {
        // None, and perhaps enough for contents, but not for all of it.
        for room in [0, 65_536] {
            for args in [
                &["cp", "-q", large_name, "host/sparse.img:/large"][..],
                &["cp", "-q", "-r", tree_name, "host/sparse.img:/"],
                &["put", "host/sparse.img:/put"],
            ] {
                let host = Host::new(mke2fs);
                host.fill();
                let filler = File::options()
                    .write(true)
                    .open(host.path("host/filler"))
                    .expect("a file");
                let len = filler.metadata().expect("attributes").len();
                filler.set_len(len - room).expect("a little room");
                let input = File::open(&large).expect("a file");
                let mut command = command();
                let output = command
                    .current_dir(host.image.scratch())
                    .args(args)
                    .stdin(input)
                    .output();
                let errors = failed(&output.expect("it runs"), 1);
                assert!(errors.contains("No space left"), "{args:?}: {errors}");
            }
        }
    }
}

/// The kernel caches the writes of programs, and finds out later that there is no room.
#[test]
fn umount_fails_when_what_the_kernel_kept_is_lost() {
    if !can_mount_as_root() {
        return;
    }
    for transport in transports() {
        let host = Host::new(&["-t", "ext4"]);
        fs::create_dir(host.path("mnt")).expect("a directory");
        let options = format!("writeback_cache,{transport}");
        ok(extern4(
            &host.image,
            ["mount", "-o", &options, "host/sparse.img", "mnt"],
        ));
        host.fill();
        // The write succeeds; `close` reports the error, and `fs::write` ignores that.
        fs::write(host.path("mnt/file"), vec![7; 1 << 20]).expect("the kernel takes it");
        umount_fails(&host.image, "programs had written is lost");
    }
}
