//! Making, copying and mounting images.
//!
//! An [`ImageSpec`] describes how to make an image: the arguments of mke2fs, the files, the program
//! that fills it, and the steps after that. [`ImageSpec::build`] does all that in a new temporary
//! directory and returns an [`Image`], which deletes it when dropped. A [`Mount`] unmounts when
//! dropped, also while a failing test unwinds. Its loop device detaches itself with the last
//! unmount.
//!
//! Every test with an image uses it. Where a step fails, it panics with the output of the program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::tools::{self, Need, run};
use crate::tree::{self, Tree};

/// Fills a directory: of a mounted image, or one that `mke2fs -d` copies from.
pub type Plan = fn(&Path) -> io::Result<()>;

/// The program that puts the files into an image.
#[derive(Clone, Copy)]
pub enum Fill {
    /// No program: only `lost+found` is there.
    Nothing,
    /// The kernel, through a loop mount with these options.
    Kernel(&'static str, &'static [Plan]),
    /// `mke2fs -d`, from a directory of this machine: for images no kernel here can mount.
    Directory(&'static [Plan]),
}

/// Something done to the unmounted image after it was filled.
#[derive(Clone, Copy)]
pub enum Step {
    /// A script for `debugfs -w`.
    Debugfs(&'static str),
    /// A script for `debugfs -w` that is computed.
    DebugfsScript(fn() -> String),
    /// `tune2fs` with these arguments.
    Tune2fs(&'static [&'static str]),
    /// `e2fsck -fy` with these arguments; repairs are no failure.
    E2fsck(&'static [&'static str]),
    /// A loop mount with these options, for plans that need the steps before.
    Mounted(&'static str, &'static [Plan]),
    /// Anything else.
    Run(fn(&Image)),
}

/// The program that says what is in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// The kernel, by mounting it.
    Kernel,
    /// `debugfs`, for images that no kernel here can mount.
    Debugfs,
    /// The kernel where it has this feature, `debugfs` elsewhere.
    KernelWith(&'static str),
}

/// How an image comes to be.
#[derive(Clone, Copy)]
pub struct ImageSpec {
    /// A name for messages, also the file name.
    pub name: &'static str,
    size: u64,
    mke2fs: &'static [&'static str],
    fill: Fill,
    steps: &'static [Step],
    oracle: Oracle,
    needs: &'static [Need],
}

impl ImageSpec {
    /// Returns the spec of an image of `size` bytes, made by `mke2fs` with these arguments and not
    /// filled.
    pub const fn new(name: &'static str, size: u64, mke2fs: &'static [&'static str]) -> ImageSpec {
        ImageSpec {
            name,
            size,
            mke2fs,
            fill: Fill::Nothing,
            steps: &[],
            oracle: Oracle::Kernel,
            needs: &[],
        }
    }

    /// Returns this spec, filled by the kernel.
    pub const fn mounted(self, plans: &'static [Plan]) -> ImageSpec {
        self.mounted_with("noatime", plans)
    }

    /// Returns this spec, filled by the kernel, mounted with these options.
    pub const fn mounted_with(
        mut self,
        options: &'static str,
        plans: &'static [Plan],
    ) -> ImageSpec {
        self.fill = Fill::Kernel(options, plans);
        self
    }

    /// Returns this spec, filled by `mke2fs -d` and judged by `debugfs`.
    pub const fn from_directory(mut self, plans: &'static [Plan]) -> ImageSpec {
        self.fill = Fill::Directory(plans);
        self.oracle = Oracle::Debugfs;
        self
    }

    /// Returns this spec with these steps after filling, in order.
    pub const fn then(mut self, steps: &'static [Step]) -> ImageSpec {
        self.steps = steps;
        self
    }

    /// Returns this spec, judged by this oracle.
    pub const fn judged_by(mut self, oracle: Oracle) -> ImageSpec {
        self.oracle = oracle;
        self
    }

    /// Returns this spec, built only on machines that meet these needs, too.
    pub const fn needing(mut self, needs: &'static [Need]) -> ImageSpec {
        self.needs = needs;
        self
    }

    /// Returns whether this machine can build and judge the image; says so loudly if not.
    pub fn can_run(&self) -> bool {
        self.can_build() && tools::can_run(&[Need::Mount])
    }

    /// Returns whether this machine can build the image; says so loudly if not.
    pub fn can_build(&self) -> bool {
        let always = [
            Need::Tool("mke2fs"),
            Need::Tool("debugfs"),
            Need::Tool("perl"),
        ];
        tools::can_run(&always) && tools::can_run(self.needs)
    }

    /// Makes the image.
    ///
    /// # Panics
    /// When any step fails.
    pub fn build(&self) -> Image {
        let dir = tools::temporary("extern4-");
        let image = Image {
            path: dir.path().join(format!("{}.img", self.name)),
            name: self.name,
            dir,
        };
        let mut args: Vec<OsString> = ["-q", "-F"]
            .iter()
            .chain(self.mke2fs)
            .map(OsString::from)
            .collect();
        let source = image.dir.path().join("source");
        if let Fill::Directory(plans) = self.fill {
            std::fs::create_dir(&source).expect("a source directory");
            image.apply(&source, plans);
            args.extend(["-d".into(), source.clone().into()]);
        }
        let file = std::fs::File::create_new(&image.path).expect("an image file");
        file.set_len(self.size).expect("a sparse image file");
        args.push(image.path.clone().into());
        run("mke2fs", args);
        if let Fill::Kernel(options, plans) = self.fill {
            image.apply(&image.mount(options).path, plans);
        }
        if source.exists() {
            std::fs::remove_dir_all(&source).expect("the source directory goes away");
        }
        self.steps.iter().for_each(|step| image.take(step));
        image
    }

    /// Returns the tree that the oracle sees in `image`, which this spec made.
    pub fn oracle_tree(&self, image: &Image) -> Tree {
        let mountable = match self.oracle {
            Oracle::Kernel => true,
            Oracle::Debugfs => false,
            Oracle::KernelWith(feature) => {
                Path::new("/sys/fs/ext4/features").join(feature).exists()
            }
        };
        if mountable {
            tree::from_mount(&image.mount("ro,noatime").path)
        } else {
            tree::from_debugfs(&image.path)
        }
    }
}

/// An image in its own temporary directory.
#[derive(Debug)]
pub struct Image {
    /// The image file.
    pub path: PathBuf,
    name: &'static str,
    dir: TempDir,
}

impl Image {
    /// Returns the image `name` in `dir`, which a test has made or is about to make.
    pub fn in_directory(dir: TempDir, name: &'static str) -> Image {
        Image {
            path: dir.path().join(name),
            name,
            dir,
        }
    }

    /// Returns a directory that lives as long as the image, for other files of a test.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a second image with the same bytes and holes.
    pub fn copy(&self) -> Image {
        let dir = tools::temporary("extern4-");
        let path = dir
            .path()
            .join(self.path.file_name().expect("an image file has a name"));
        run(
            "cp",
            [
                OsStr::new("--sparse=always"),
                self.path.as_os_str(),
                path.as_os_str(),
            ],
        );
        Image {
            path,
            name: self.name,
            dir,
        }
    }

    /// Mounts the image through a loop device.
    ///
    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub fn mount(&self, options: &str) -> Mount {
        self.try_mount(options)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Mounts the image like [`Image::mount`], but returns the kernel's refusal as a sentence.
    pub fn try_mount(&self, options: &str) -> Result<Mount, String> {
        self.try_mount_as("ext4", options)
    }

    /// Mounts the image like [`Image::try_mount`], as a file system of another type.
    pub fn try_mount_as(&self, fs_type: &str, options: &str) -> Result<Mount, String> {
        let point = tools::temporary("extern4-mnt-");
        let options = format!("loop,{options}");
        let words = ["-t", fs_type, "-o", &options].map(OsStr::new);
        tools::try_run(
            "mount",
            words
                .iter()
                .copied()
                .chain([self.path.as_os_str(), point.path().as_os_str()]),
        )?;
        Ok(Mount {
            path: point.path().to_owned(),
            mounted: true,
            _point: point,
        })
    }

    /// Runs a script of `debugfs -w` on the image.
    ///
    /// # Panics
    /// When a command of the script fails: debugfs itself exits successfully then, but prints its
    /// name first.
    #[track_caller]
    pub fn debugfs(&self, script: &str) -> String {
        tools::debugfs(&self.path, true, script)
    }

    fn apply(&self, root: &Path, plans: &[Plan]) {
        for (at, plan) in plans.iter().enumerate() {
            plan(root).unwrap_or_else(|e| panic!("{}: plan {at} failed: {e}", self.name));
        }
    }

    fn take(&self, step: &Step) {
        let path = self.path.as_os_str();
        let with = |args: &[&str]| -> Vec<OsString> {
            args.iter()
                .map(OsString::from)
                .chain([path.to_owned()])
                .collect()
        };
        match step {
            Step::Debugfs(script) => drop(self.debugfs(script)),
            Step::DebugfsScript(script) => drop(self.debugfs(&script())),
            Step::Tune2fs(args) => drop(run("tune2fs", with(args))),
            Step::E2fsck(args) => {
                // Status 1 says that e2fsck repaired something. It comes as an error with only the
                // version on stderr. The second pass reports what remains broken.
                let fix: Vec<&str> = ["-fy"].iter().chain(*args).copied().collect();
                let _ = tools::try_run("e2fsck", with(&fix));
                run("e2fsck", with(&["-fn"]));
            }
            Step::Mounted(options, plans) => self.apply(&self.mount(options).path, plans),
            Step::Run(action) => action(self),
        }
    }
}

/// A mounted image; dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    /// The top directory of the volume.
    pub path: PathBuf,
    mounted: bool,
    _point: TempDir,
}

impl Mount {
    /// Unmounts, and fails the test if that is not possible.
    ///
    /// # Panics
    /// When something still has a file of the volume open.
    pub fn unmount(mut self) {
        // A mount that stays busy is still taken out of sight when this panics.
        tools::unmount(&self.path);
        self.mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that stays busy is taken out of sight at least, and goes with its last user.
        if !self.mounted || tools::try_unmount(&self.path).is_ok() {
            return;
        }
        if let Err(e) = tools::try_run("umount", [OsStr::new("-l"), self.path.as_os_str()]) {
            eprintln!("a mount is left behind: {e}");
        }
    }
}
