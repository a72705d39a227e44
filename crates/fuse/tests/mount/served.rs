//! The test server: serves a volume by FUSE at `mnt` next to its image, in threads of the test.
//!
//! The options are words as the command has them, as far as these tests use them.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use extern4::ext4::OpenOptions;
use extern4::{DataMode, Volume};
use extern4_fuse::{
    Callbacks, Claim, Config, MountFlags, MountOptions, Mounted, Server, Transport, device_name,
};
use extern4_testkit::image::Image;
use extern4_testkit::mounts::patiently;
use extern4_testkit::tools;
use rustix::process::{getegid, geteuid};

/// A served mount.
pub(crate) struct Served {
    /// The directory of the mount.
    pub(crate) dir: PathBuf,
    server: Arc<Server>,
    /// The thread that serves; `None` once the mount has ended.
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// The options of a mount, for the layers that carry them out.
struct Options {
    mount: MountOptions,
    server: Config,
    ext4: OpenOptions,
    is_blk: bool,
}

impl Options {
    fn of(words: &[&str]) -> Self {
        let mut options = Self {
            mount: MountOptions::default(),
            server: Config::default(),
            ext4: OpenOptions::default(),
            is_blk: true,
        };
        // A user that is not root acts as root in the mount.
        if !geteuid().is_root() {
            options.server.fakeroot = Some((geteuid().as_raw(), getegid().as_raw()));
            options.server.lifetime = Duration::ZERO;
            options.mount.unchecked = true;
            options.mount.private = true;
        }
        let words = words.iter().filter(|word| **word != "-o");
        words
            .flat_map(|list| list.split(','))
            .for_each(|word| options.set(word));
        options
    }

    fn set(&mut self, word: &str) {
        match word {
            "rw" | "transport=auto" | "noopens" => {}
            "ro" => self.mount.flags |= MountFlags::RDONLY,
            "noatime" => self.mount.flags |= MountFlags::NOATIME,
            "nofuseblk" => self.is_blk = false,
            "transport=device" => self.server.transport = Transport::Device,
            "transport=ring" => self.server.transport = Transport::Ring,
            "writeback_cache" => self.server.writeback = true,
            "idmap" => self.server.idmap = true,
            "opens" => self.server.opens = true,
            "data=journal" => self.ext4.data = Some(DataMode::Journal),
            _ => panic!("the test server does not know {word}"),
        }
    }

    fn is_read_only(&self) -> bool {
        self.mount.flags.contains(MountFlags::RDONLY)
    }
}

impl Served {
    /// Mounts `image` on `mnt` next to it.
    #[track_caller]
    pub(crate) fn new(image: &Image, options: &[&str]) -> Self {
        Self::of_file(&image.path, image.scratch(), options)
    }

    /// Mounts an image file or a block device on `mnt` in `scratch`.
    #[track_caller]
    pub(crate) fn of_file(file: &Path, scratch: &Path, options: &[&str]) -> Self {
        let dir = scratch.join("mnt");
        fs::create_dir_all(&dir).expect("a directory");
        let options = Options::of(options);
        let is_device = fs::metadata(file).is_ok_and(|found| found.file_type().is_block_device());
        let claim = (is_device && geteuid().is_root())
            .then(|| Claim::take(file, &options.mount).expect("the device is free"));
        let volume = open(file, &options, claim.is_some());
        let closing = volume.clone();
        let callbacks = Callbacks {
            destroy: Box::new(move |server: &Server| close(server, &closing)),
            log: Box::new(|message: &str| eprintln!("{message}")),
        };
        let (device, mounted) = mount(file, &dir, &volume, &options, claim);
        let server = Arc::new(Server::new(volume.namespace(), options.server, callbacks));
        let (ready, is_ready) = channel();
        let serving = Arc::clone(&server);
        let serve = move || {
            let served = extern4_fuse::serve(&serving, device, || {
                // A test that has failed no longer waits.
                let _ = ready.send(());
            });
            close(&serving, &volume);
            mounted.clear();
            served
        };
        let thread = thread::Builder::new().name("serve".to_owned()).spawn(serve);
        let thread = Some(thread.expect("a thread"));
        is_ready.recv().expect("the mount is ready");
        Self {
            dir,
            server,
            thread,
        }
    }

    /// Returns the path of a name in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns how many requests of one kind the server has answered.
    pub(crate) fn requests(&self, name: &str) -> u64 {
        let operations = self.server.operations();
        operations
            .iter()
            .find(|operation| operation.name == name)
            .map_or(0, |operation| operation.times.count())
    }

    /// Unmounts it, and waits until the volume is closed.
    #[track_caller]
    pub(crate) fn umount(mut self) {
        if geteuid().is_root() {
            patiently(&["umount"], &self.dir);
        } else {
            patiently(&["fusermount3", "-u"], &self.dir);
        }
        let served = self.thread.take().map(JoinHandle::join);
        let served = served.expect("it is served").expect("no panic");
        served.expect("all requests are answered");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The test has failed already.
            let _ = tools::try_run("umount", ["-l".as_ref(), self.dir.as_os_str()]);
        }
    }
}

fn open(file: &Path, options: &Options, is_claimed: bool) -> Volume {
    let mut open = Volume::options();
    open.ext4(options.ext4.clone())
        .write(!options.is_read_only())
        .claimed(is_claimed);
    if options.mount.flags.contains(MountFlags::NOATIME) {
        open.atime(extern4::Atime::Never);
    }
    open.open(file).expect("the volume opens")
}

fn mount(
    file: &Path,
    dir: &Path,
    volume: &Volume,
    options: &Options,
    claim: Option<Claim>,
) -> (OwnedFd, Mounted) {
    let mounted = match claim {
        Some(claim) => claim.attach(dir, &options.mount),
        None => {
            let file = device_name(file);
            let is_blk = options.is_blk && !options.is_read_only();
            let source = file.clone().into();
            let blk = volume.bytes().filter(|_| is_blk).map(|bytes| (file, bytes));
            extern4_fuse::mount(
                dir,
                &MountOptions {
                    source,
                    blk,
                    ..options.mount.clone()
                },
            )
        }
    };
    mounted.expect("it is mounted")
}

/// Closes the volume, once or again.
fn close(server: &Server, volume: &Volume) {
    server.forget_all();
    volume.clone().close().expect("the volume closes");
}
