//! Rows of images that are built and exported: whole processes, and the tools that do the same.
//!
//! All of them end when the image is durable: `build` and `mke2fs` sync it, and the unmounting of a
//! loop device does.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::image::must;
use super::process::time;
use super::row::{Row, Unit};
use super::write::{LONG_RUNS, peak_memory};
use super::{Bench, RUNS, Result, floor};

/// The tree of the large rows.
const SHARE: &str = "/usr/share";
/// Files of the rows of small files, and the bytes of each.
const FILES: usize = 100_000;
const FILE_BYTES: usize = 4096;
/// Files in a directory.
const DIRECTORY_FILES: usize = 1000;
/// The size of the volumes that the rivals fill.
const RIVAL_SIZE: &str = "2G";
/// The most memory that a build may have: MiB, and bytes for each entry of the tree.
const MOST_MEMORY: f64 = 256.0;
const ENTRY_MEMORY: f64 = 200.0;

/// A tool that builds an image as well.
#[derive(Clone, Copy)]
pub(super) enum Builder {
    /// `mke2fs -d`.
    Mke2fs,
    /// An empty volume, the kernel's mount, and cp or tar.
    Kernel,
    /// `tar -c` into a file, which has no volume to make: the least that a copy of a tree takes.
    Tar,
}

/// The source of an image.
#[derive(Clone, Copy)]
pub(super) enum Tree {
    /// `/usr/share`.
    Share,
    /// A tar archive of it, with the end of its name.
    Tar(&'static str),
    /// Many small files.
    Small,
}

impl Bench {
    /// An image of a tree.
    pub(super) fn build(
        &self,
        name: &'static str,
        goal: f64,
        tree: Tree,
        rival: Builder,
    ) -> Result<Row> {
        let source = self.source(tree)?;
        let image = self.folder.join("built.img");
        let mut row = Row::faster(name, Unit::Milliseconds, goal);
        row.rounds(LONG_RUNS, || {
            let ours = time(
                Command::new(self.extern4()?)
                    .args(["build", "-q", "-F"])
                    .args([&image, &source]),
            )?;
            let theirs = time(&mut self.rival(&source, &image, tree, rival)?)?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        row.set_note("whole process, durable; the page cache has the source".to_owned());
        fs::remove_file(&image).map_err(|error| error.to_string())?;
        Ok(row)
    }

    /// An image of a tree, compared with the least that it takes to read the tree and to write as
    /// many bytes.
    pub(super) fn build_floor(&self) -> Result<Row> {
        let image = self.folder.join("built.img");
        let mut row = Row::faster(
            "build-share-vs-reading-and-writing",
            Unit::Milliseconds,
            0.5,
        );
        row.rounds(LONG_RUNS, || {
            let ours = time(
                Command::new(self.extern4()?)
                    .args(["build", "-q", "-F"])
                    .arg(&image)
                    .arg(SHARE),
            )?;
            fs::remove_file(&image).map_err(|error| error.to_string())?;
            let least = floor::time(Path::new(SHARE), &image).map_err(|error| error.to_string())?;
            Ok((ours.as_secs_f64() * 1e3, least.as_secs_f64() * 1e3))
        })?;
        row.set_note("the rival: two threads of this process read all files into one".to_owned());
        fs::remove_file(&image).map_err(|error| error.to_string())?;
        Ok(row)
    }

    /// An image with its dm-verity hash tree, compared with one that veritysetup hashes afterwards.
    pub(super) fn build_verity(&self) -> Result<Row> {
        let image = self.folder.join("built.img");
        let hashes = self.folder.join("built.hashes");
        let mut row = Row::faster("build-share-verity-vs-veritysetup", Unit::Milliseconds, 2.0);
        row.rounds(LONG_RUNS, || {
            let mut build = Command::new(self.extern4()?);
            let ours = time(
                build
                    .args(["build", "-q", "-F", "--verity"])
                    .arg(&image)
                    .arg(SHARE),
            )?;
            let mut shell = Command::new("sh");
            shell.args([
                "-ec",
                "\"$1\" build -q -F \"$3\" \"$2\"; veritysetup format \"$3\" \"$4\"; sync \"$4\"",
                "sh",
            ]);
            let theirs = time(
                shell
                    .arg(self.extern4()?)
                    .arg(SHARE)
                    .args([&image, &hashes]),
            )?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        for path in [image, hashes] {
            fs::remove_file(path).map_err(|error| error.to_string())?;
        }
        Ok(row)
    }

    /// The largest memory of a build.
    pub(super) fn build_memory(&self) -> Result<Row> {
        let image = self.folder.join("built.img");
        let entries = floor::entries(Path::new(SHARE)).map_err(|error| error.to_string())?;
        let most = MOST_MEMORY + ENTRY_MEMORY * entries as f64 / f64::from(1 << 20);
        let mut row = Row::below("build-share-memory", Unit::Mebibytes, most);
        for _ in 0..LONG_RUNS {
            let mut build = Command::new(self.extern4()?);
            let build = build.args(["build", "-q", "-F"]).arg(&image).arg(SHARE);
            let mut child = build.spawn().map_err(|error| error.to_string())?;
            let mut peak = 0.0;
            while child
                .try_wait()
                .map_err(|error| error.to_string())?
                .is_none()
            {
                // A process that has just ended has no memory.
                peak = peak_memory(&child).unwrap_or(peak);
                std::thread::sleep(Duration::from_millis(1));
            }
            row.add(peak, most);
        }
        row.set_note(format!("looked at once a millisecond; {entries} entries"));
        fs::remove_file(&image).map_err(|error| error.to_string())?;
        Ok(row)
    }

    fn rival(&self, source: &Path, image: &Path, tree: Tree, rival: Builder) -> Result<Command> {
        let mount = self.folder.join("mnt");
        fs::create_dir_all(&mount).map_err(|error| error.to_string())?;
        let fill = match (rival, tree) {
            (Builder::Tar, _) => "tar -cf \"$2\" -C \"$1\" .; sync \"$2\"",
            (Builder::Mke2fs, _) => "mke2fs -q -F -t ext4 -N 150000 -d \"$1\" \"$2\" \"$4\"",
            (Builder::Kernel, Tree::Tar(_)) => {
                "mke2fs -q -F -t ext4 -N 150000 \"$2\" \"$4\"; mount -o loop \"$2\" \"$3\"; \
                 tar -xpf \"$1\" -C \"$3\" --xattrs --xattrs-include='*'; umount \"$3\""
            }
            (Builder::Kernel, _) => {
                "mke2fs -q -F -t ext4 -N 150000 \"$2\" \"$4\"; mount -o loop \"$2\" \"$3\"; \
                 cp -a \"$1/.\" \"$3\"; umount \"$3\""
            }
        };
        let mut shell = Command::new("sh");
        shell
            .arg("-ec")
            .arg(format!("rm -f \"$2\"; {fill}"))
            .arg("sh");
        shell.args([source, image, &mount]).arg(RIVAL_SIZE);
        Ok(shell)
    }

    /// Makes a source, which the following rows use again.
    fn source(&self, tree: Tree) -> Result<PathBuf> {
        let path = match tree {
            Tree::Share => return Ok(SHARE.into()),
            Tree::Tar(end) => self.folder.join(format!("share.{end}")),
            Tree::Small => self.folder.join("small-files"),
        };
        if path.exists() {
            return Ok(path);
        }
        match tree {
            Tree::Tar(_) => {
                must(
                    Command::new("tar")
                        .args(["--format=pax", "-C", SHARE, "-caf"])
                        .arg(&path)
                        .arg("."),
                )?;
            }
            _ => make_small_files(&path).map_err(|error| format!("{}: {error}", path.display()))?,
        }
        Ok(path)
    }

    /// An empty volume of 20 GB.
    pub(super) fn mkfs(&self) -> Result<Row> {
        let image = self.folder.join("made.img");
        let mut row = Row::faster("build-empty-20gb-vs-mke2fs", Unit::Milliseconds, 1.0);
        row.rounds(RUNS, || {
            let _ = fs::remove_file(&image);
            let ours = time(
                Command::new(self.extern4()?)
                    .args(["mkfs", "-q"])
                    .arg(&image)
                    .arg("20G"),
            )?;
            let _ = fs::remove_file(&image);
            let theirs = time(
                Command::new("mke2fs")
                    .args(["-q", "-t", "ext4"])
                    .arg(&image)
                    .arg("20G"),
            )?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        fs::remove_file(&image).map_err(|error| error.to_string())?;
        Ok(row)
    }

    /// A tar archive of a volume.
    pub(super) fn export(&self) -> Result<Row> {
        let image = self.folder.join("exported.img");
        let archive = self.folder.join("exported.tar");
        must(
            Command::new(self.extern4()?)
                .args(["build", "-q", "-F"])
                .arg(&image)
                .arg(SHARE),
        )?;
        let mount = self.folder.join("mnt");
        fs::create_dir_all(&mount).map_err(|error| error.to_string())?;
        let mut row = Row::faster("build-export-tar-vs-kernel", Unit::Milliseconds, 1.0);
        row.rounds(LONG_RUNS, || {
            let ours = time(
                Command::new(self.extern4()?)
                    .args(["export", "-F", "-o"])
                    .args([&archive, &image]),
            )?;
            let mut shell = Command::new("sh");
            shell.args([
                "-ec",
                "mount -o loop,ro \"$1\" \"$2\"; tar --format=pax --xattrs -C \"$2\" -cf \"$3\" .; \
                 sync \"$3\"; umount \"$2\"",
                "sh",
            ]);
            let theirs = time(shell.args([&image, &mount, &archive]))?;
            Ok((ours.as_secs_f64() * 1e3, theirs.as_secs_f64() * 1e3))
        })?;
        for path in [image, archive] {
            fs::remove_file(path).map_err(|error| error.to_string())?;
        }
        Ok(row)
    }
}

fn make_small_files(path: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    for number in 0..FILES {
        let directory = path.join(format!("directory-{}", number / DIRECTORY_FILES));
        if number % DIRECTORY_FILES == 0 {
            fs::create_dir_all(&directory)?;
        }
        let byte = (number % 251) as u8;
        File::create(directory.join(format!("file-{number}")))?.write_all(&[byte; FILE_BYTES])?;
    }
    Ok(())
}
