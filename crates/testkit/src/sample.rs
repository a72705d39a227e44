//! A small volume for tests and examples of the library. Needs `mke2fs`, but no root.
//!
//! The examples in the documentation of `extern4` open it. Its contents do not change, since the
//! examples print them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::image::{Image, ImageSpec};
use crate::tools;

/// Returns a volume with `/etc/hostname` and a home directory of uid 0 that only its owner may
/// search. It also has a few headers with a symbolic link among them.
///
/// # Panics
/// When `mke2fs` fails.
pub fn image() -> Image {
    let source = tools::temporary("extern4-");
    let at = |path: &str| source.path().join(path);
    for dir in ["etc", "home/ann", "usr/include/linux"] {
        fs::create_dir_all(at(dir)).expect("a directory");
    }
    for (file, text) in [
        ("etc/hostname", "sample\n"),
        ("home/ann/.profile", "umask 027\n"),
        ("usr/include/linux/fs.h", "/* fs */\n"),
    ] {
        fs::write(at(file), text).expect("a file");
    }
    symlink("linux/fs.h", at("usr/include/fs.h")).expect("a symbolic link");
    fs::set_permissions(at("home/ann"), fs::Permissions::from_mode(0o700)).expect("a mode");
    let image = ImageSpec::new("sample", 4 << 20, &["-t", "ext4"]).build();
    fs::remove_file(&image.path).expect("the empty image goes away");
    let source = source
        .path()
        .to_str()
        .expect("a temporary directory's name");
    let path = image.path.to_str().expect("a temporary file's name");
    tools::run(
        "mke2fs",
        ["-q", "-F", "-t", "ext4", "-d", source, path, "4M"],
    );
    image
}
