//! The images that the rows run on, and mounts of them by the rivals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use extern4::block::{FileDevice, RecordDevice};

use super::{Result, paths};

/// Size of the image; it is sparse.
const IMAGE_BYTES: u64 = 20_000_000_000;
/// Size of the large file.
pub(crate) const BIG_BYTES: u64 = 1 << 30;
/// The tree in it.
const TREE: &str = "/usr/share";

/// Makes the image in `folder`, or takes the one an earlier run made: 20 GB, `/usr/share` as
/// `/share`, and `/big`.
pub(crate) fn prepare_share(folder: &Path) -> Result<PathBuf> {
    let image = folder.join("share.img");
    if !image.exists() {
        let part = folder.join("share.img.part");
        let file = fs::File::create(&part).map_err(|e| format!("{}: {e}", part.display()))?;
        file.set_len(IMAGE_BYTES)
            .map_err(|e| format!("{}: {e}", part.display()))?;
        println!("making {} from {TREE}", image.display());
        must(
            Command::new("mke2fs")
                .args(["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0"])
                .arg(&part),
        )?;
        let mountpoint = folder.join("mnt");
        fs::create_dir_all(&mountpoint).map_err(|e| e.to_string())?;
        must(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(&part)
                .arg(&mountpoint),
        )?;
        let filled = fill(&mountpoint);
        must(Command::new("umount").arg(&mountpoint))?;
        filled?;
        fs::rename(&part, &image).map_err(|e| e.to_string())?;
    }
    // Warms the page cache of the operating system for the blocks that are not holes.
    must(
        Command::new("cp")
            .arg("--sparse=always")
            .arg(&image)
            .arg("/dev/null"),
    )?;
    Ok(image)
}

/// Makes the image with `/usr/include` as `/usr/include`, owned by root, or takes the one an
/// earlier run made.
pub(crate) fn prepare_include(folder: &Path) -> Result<PathBuf> {
    let image = folder.join("include.img");
    if !image.exists() {
        let part = folder.join("include.img.part");
        let tree = folder.join("include");
        println!("making {} from /usr/include", image.display());
        must(Command::new("rm").arg("-rf").args([&tree, &part]))?;
        fs::create_dir_all(tree.join("usr")).map_err(|e| e.to_string())?;
        must(
            Command::new("cp")
                .args(["-a", "/usr/include"])
                .arg(tree.join("usr/include")),
        )?;
        must(
            Command::new("mke2fs")
                .args(["-q", "-F", "-t", "ext4", "-d"])
                .args([&tree, &part])
                .arg("1G"),
        )?;
        must(Command::new("rm").arg("-rf").arg(&tree))?;
        fs::rename(&part, &image).map_err(|e| e.to_string())?;
    }
    Ok(image)
}

/// The parts of `/usr` that make the real tree.
const PARTS: [&str; 2] = ["include", "share"];
/// The size of a volume that `mke2fs -d` fills with it.
const PARTS_SIZE: &str = "4G";

/// The tree of `/usr/include` and `/usr/share` in two volumes, and the list of its paths.
pub(crate) struct RealTree {
    /// Built by us: the directories have hash trees.
    pub(super) built: PathBuf,
    /// Filled by `mke2fs -d`: the directories are linear.
    pub(super) linear: PathBuf,
    /// Its paths, as [`paths::read`] reads them.
    pub(super) list: PathBuf,
}

impl RealTree {
    /// Makes the volumes in `folder`, or takes the volumes that an earlier run made.
    pub(crate) fn prepare(folder: &Path, extern4: &Path) -> Result<Self> {
        let [built, linear, list] =
            ["tree.img", "tree-linear.img", "tree.paths"].map(|name| folder.join(name));
        let made = Self {
            built,
            linear,
            list,
        };
        if made.list.exists() {
            return Ok(made);
        }
        let tree = folder.join("tree");
        println!(
            "making {} from /usr/include and /usr/share",
            made.built.display()
        );
        must(
            Command::new("rm")
                .arg("-rf")
                .args([&tree, &made.built, &made.linear]),
        )?;
        fs::create_dir_all(tree.join("usr")).map_err(|e| e.to_string())?;
        let parts = PARTS.map(|part| Path::new("/usr").join(part));
        must(
            Command::new("cp")
                .arg("-a")
                .args(parts)
                .arg(tree.join("usr")),
        )?;
        must(
            Command::new(extern4)
                .args(["build", "-q", "-F"])
                .args([&made.built, &tree]),
        )?;
        let mut mke2fs = Command::new("mke2fs");
        must(
            mke2fs
                .args(["-q", "-F", "-t", "ext4", "-d"])
                .args([&tree, &made.linear])
                .arg(PARTS_SIZE),
        )?;
        // The list comes last: if it is there, all is.
        paths::write(&tree, &made.list)?;
        must(Command::new("rm").arg("-rf").arg(&tree))?;
        Ok(made)
    }
}

fn fill(mountpoint: &Path) -> Result<()> {
    must(
        Command::new("cp")
            .arg("-a")
            .arg(TREE)
            .arg(mountpoint.join("share")),
    )?;
    let source = fs::File::open("/dev/urandom").map_err(|e| e.to_string())?;
    let mut big = fs::File::create(mountpoint.join("big")).map_err(|e| e.to_string())?;
    std::io::copy(&mut std::io::Read::take(source, BIG_BYTES), &mut big)
        .map_err(|e| e.to_string())?;
    Ok(())
}

/// A rival that can show the image as a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    /// A loop mount by the kernel.
    Kernel,
    /// fuse2fs of e2fsprogs.
    Fuse2fs,
}

/// The image mounted read-only, until dropped.
pub(crate) struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Mounts `image` at `path`.
    pub(crate) fn new(rival: Rival, image: &Path, path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
        match rival {
            Rival::Kernel => must(
                Command::new("mount")
                    .args(["-o", "loop,ro"])
                    .arg(image)
                    .arg(path),
            )?,
            Rival::Fuse2fs => must(
                Command::new("fuse2fs")
                    .args(["-o", "ro"])
                    .arg(image)
                    .arg(path),
            )?,
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Where the tree is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A FUSE daemon may still be busy with the last request; a moment later it is not.
        for _ in 0..50 {
            let unmounted = Command::new("umount")
                .arg(&self.path)
                .stderr(Stdio::null())
                .status();
            if unmounted.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("bench: cannot unmount {}", self.path.display());
    }
}

/// How often the device is read to open `image`.
pub(crate) fn device_reads_of_open(image: &Path) -> Result<f64> {
    let device = FileDevice::open(image).map_err(|e| e.to_string())?;
    let device = Arc::new(RecordDevice::new(Arc::new(device)));
    let volume = extern4::Volume::options()
        .open_device(Arc::clone(&device) as Arc<_>)
        .map_err(|e| e.to_string())?;
    let reads = device.counts().reads;
    drop(volume);
    u32::try_from(reads)
        .map(f64::from)
        .map_err(|e| e.to_string())
}

/// Runs a command, which has to succeed.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}
