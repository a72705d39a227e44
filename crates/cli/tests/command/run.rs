//! Running the command and GNU's tools, and the images that they read.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use extern4_testkit::image::{Image, ImageSpec, Mount};
pub(crate) use extern4_testkit::lines::{assert_same, sorted, sorted_by};
use extern4_testkit::plan;
pub(crate) use extern4_testkit::tools::{plain, run_in as tool};

/// Returns the command, with an environment that makes output the same everywhere.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extern4"));
    plain(&mut command);
    command
}

/// Runs the command in `dir`.
pub(crate) fn extern4_in<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> Output {
    command()
        .current_dir(dir)
        .args(args)
        .output()
        .expect("the command runs")
}

/// Runs the command in the image's directory.
pub(crate) fn extern4<A: AsRef<OsStr>>(image: &Image, args: impl IntoIterator<Item = A>) -> Output {
    extern4_in(image.scratch(), args)
}

/// Returns the output of a run that has to succeed and print nothing on standard error.
#[track_caller]
pub(crate) fn ok(output: Output) -> Vec<u8> {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{:?}: {errors}",
        output.status
    );
    output.stdout
}

/// Returns the standard error of a run that has to end with `code`.
#[track_caller]
pub(crate) fn failed(output: &Output, code: i32) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{errors}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    errors
}

/// An image of everything, and the kernel's mount of it.
pub(crate) struct Everything {
    /// The image.
    pub(crate) image: Image,
    /// The mount, for reading.
    pub(crate) mount: Mount,
}

/// Returns the image of everything, if this machine can mount. Tests that run at the same time
/// share one.
pub(crate) fn everything() -> Option<Arc<Everything>> {
    static SHARED: Mutex<Weak<Everything>> = Mutex::new(Weak::new());
    // A test that fails while it makes the image leaves no unfinished one behind.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(everything) = shared.upgrade() {
        return Some(everything);
    }
    let everything = Arc::new(make_everything()?);
    *shared = Arc::downgrade(&everything);
    Some(everything)
}

fn make_everything() -> Option<Everything> {
    const SPEC: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"])
        .mounted(&[
            plan::small_files,
            plan::holes,
            plan::unwritten,
            plan::fragmented,
            plan::symlinks,
            plan::odd_names,
            plan::modes_and_owners,
            plan::times,
            plan::devices,
            plan::many_links,
            plan::xattrs,
            plan::access_lists,
            plan::small_directories,
            plan::deep,
        ]);
    if !SPEC.can_run() {
        return None;
    }
    let image = SPEC.build();
    let mount = image.mount("ro,noatime");
    Some(Everything { image, mount })
}

/// Makes a small machine's disk, without a mount, with its own users.
pub(crate) fn machine() -> Image {
    fn fill(root: &Path) -> std::io::Result<()> {
        for dir in ["etc", "home/ann", "root", "bin", "var/log"] {
            std::fs::create_dir_all(root.join(dir))?;
        }
        std::fs::write(
            root.join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n",
        )?;
        std::fs::write(
            root.join("etc/group"),
            "root:x:0:\nann:x:1000:\nstaff:x:50:ann\n",
        )?;
        std::fs::write(root.join("etc/hostname"), "tiny\n")?;
        std::fs::write(root.join("etc/os-release"), "NAME=tiny\n")?;
        std::fs::write(root.join("var/log/old.gz"), [b'x'; 4000])?;
        std::fs::write(root.join("home/ann/notes.txt"), "buy milk\n")?;
        std::fs::write(root.join("home/ann/.profile"), "umask 022\n")?;
        std::fs::write(root.join("bin/true"), "#!/bin/sh\n")?;
        std::os::unix::fs::symlink("notes.txt", root.join("home/ann/todo"))?;
        Ok(())
    }
    const SPEC: ImageSpec = ImageSpec::new(
        "disk",
        8 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-L",
            "tiny",
            "-U",
            "6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11",
        ],
    )
    .from_directory(&[fill]);
    let image = SPEC.build();
    // mke2fs gives the files to the user that runs the tests.
    let all = "/ /etc /etc/passwd /etc/group /etc/hostname /etc/os-release /home /home/ann/todo \
               /home/ann/.profile /root /bin /bin/true /var /var/log /var/log/old.gz";
    let to_root = |path| format!("set_inode_field {path} uid 0\nset_inode_field {path} gid 0\n");
    image.debugfs(&all.split_whitespace().map(to_root).collect::<String>());
    image.debugfs(
        "set_inode_field /home/ann uid 1000\nset_inode_field /home/ann gid 1000\n\
         set_inode_field /home/ann/notes.txt uid 1000\nset_inode_field /home/ann/notes.txt gid 1000\n\
         set_inode_field /home/ann/notes.txt mode 0100640\nset_inode_field /root mode 040700\n\
         set_inode_field /bin/true mode 0100755\nset_inode_field /etc/hostname mode 0100644\n\
         set_inode_field /home/ann/.profile uid 12345\n\
         set_inode_field /etc/hostname mtime 20240229120000\n",
    );
    image
}

/// Wipes the superblock, but not its copies.
pub(crate) fn wipe_superblock(image: &Image) {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .expect("an image");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 1024], 1024).expect("it is written");
}

/// Makes `sdcard.img` next to `image`: a disk with an MBR whose second partition starts at the
/// second MiB and holds `image`.
pub(crate) fn partitioned(image: &Image) -> std::path::PathBuf {
    let volume = std::fs::read(&image.path).expect("an image");
    let start = 1_u32 << 20;
    let mut disk = vec![0; start as usize];
    let sectors = u32::try_from(volume.len() / 512).expect("a small image");
    for (entry, kind, first, len) in [(446, 0x0c, 64, 1024), (462, 0x83, start / 512, sectors)] {
        disk[entry + 4] = kind;
        disk[entry + 8..entry + 12].copy_from_slice(&u32::to_le_bytes(first));
        disk[entry + 12..entry + 16].copy_from_slice(&u32::to_le_bytes(len));
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend_from_slice(&volume);
    let path = image.scratch().join("sdcard.img");
    std::fs::write(&path, disk).expect("a disk");
    path
}
