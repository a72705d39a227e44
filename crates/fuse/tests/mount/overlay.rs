//! Layers of containers: overlayfs on directories of a mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::lines::{assert_same, sorted};
use extern4_testkit::mounts::{can_mount, sound, transports};
use extern4_testkit::tools::run_in as tool;
use extern4_testkit::tools::{self, Need, can_run};

use crate::served::Served;

const DISK: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "4096"]);

/// The contents of the lower layer.
const LOWER: &str = "
    mkdir -p lower/dir/sub lower/gone lower/moved upper work merged
    for name in file mode acl link dir/a dir/sub/b gone/c moved/d; do echo $name > lower/$name; done
    ln lower/link lower/link2
    ln -s file lower/symlink
    setfattr -n user.layer -v low lower/file
";

/// Work in the merged directory: every way in which overlayfs copies a file up, hides it, or makes
/// a directory opaque.
const WORK: &str = "
    echo more >> file
    chmod 600 mode
    setfacl -m u:1000:rw acl
    setfattr -n user.layer -v up file
    rm -r gone
    rm -r dir
    mkdir dir
    echo new > dir/new
    mv moved there
    mv symlink symlink2
    echo more >> link
    ln link2 link3
    mkfifo pipe
    : > empty
    mv empty there/d
    truncate -s 1M sparse
    touch -d 2020-01-01 mode
    exec 3<> opened; rm opened; echo unseen >&3; exec 3>&-
";

/// Lists a directory, with all notes of overlayfs. Sizes of directories, and overlayfs's other
/// files in the upper layer, depend on the file system.
const LIST: &str = "
    find . -type d -printf '%P d %m\\n' -o -printf '%P %y %m %n %s %l\\n'
    find . -type f -size -2k -exec md5sum {} +
    find . ! -type l -exec getfattr --absolute-names -d -m '^(user|system|trusted.overlay.(opaque|redirect|metacopy))' {} + |
        awk '/^# file/ { file = $3 } /=/ { print file, $0 }'
";

/// An overlay, until it is dropped.
struct Merged(PathBuf);

impl Drop for Merged {
    fn drop(&mut self) {
        let _ = tools::try_run("umount", ["-l".as_ref(), self.0.as_os_str()]);
    }
}

fn shell(dir: &Path, script: &str) -> Vec<u8> {
    tool(dir, "sh", ["-ec", script])
}

/// Lists the merged directory and the upper layer after the work on layers in `root`; `None` where
/// there is no overlayfs.
fn layers(root: &Path, options: &str) -> Option<[Vec<String>; 2]> {
    shell(root, LOWER);
    let options = format!("lowerdir=lower,upperdir=upper,workdir=work{options}");
    let mut mount = Command::new("mount");
    let mount = mount
        .current_dir(root)
        .args(["-t", "overlay", "overlay", "-o", &options, "merged"]);
    let mount = mount.output().expect("mount runs");
    let said = String::from_utf8_lossy(&mount.stderr);
    if said.contains("unknown filesystem type") {
        return None;
    }
    assert!(mount.status.success(), "{options}: {said}");
    let merged = Merged(root.join("merged"));
    shell(&merged.0, WORK);
    let seen = sorted(&shell(&merged.0, LIST));
    drop(merged);
    Some([seen, sorted(&shell(&root.join("upper"), LIST))])
}

fn layers_of_the_kernel(options: &str) -> (Image, Option<[Vec<String>; 2]>) {
    let image = DISK.build();
    let mount = image.mount("rw");
    let layers = layers(&mount.path, options);
    mount.unmount();
    (image, layers)
}

#[test]
fn layers_of_containers_can_be_kept_in_a_mount() {
    let needs = [
        Need::Mount,
        Need::Tool("setfacl"),
        Need::Tool("getfattr"),
        Need::Tool("md5sum"),
    ];
    if !can_mount() || !can_run(&needs) {
        return;
    }
    for options in [
        "",
        ",index=on,redirect_dir=on",
        ",metacopy=on,redirect_dir=on",
    ] {
        let (_, Some(theirs)) = layers_of_the_kernel(options) else {
            return;
        };
        for transport in transports() {
            let image = DISK.build();
            let served = Served::new(&image, &["-o", transport]);
            let ours = layers(&served.dir, options).expect("there is overlayfs");
            let what = [format!("seen{options}"), format!("upper{options}")];
            for ((what, ours), theirs) in what.iter().zip(&ours).zip(&theirs) {
                assert_same(what, ours, theirs);
            }
            served.umount();
            sound(&image);
        }
    }
}
