//! Makes the mount of an open volume: checks it against the options, has signals end the mount, and
//! mounts.
//!
//! The command calls [`Opened::mount`]. A mount that could not be made leaves the volume closed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use extern4::Volume;
use extern4::block::os_reason;
use extern4::terminal::escape;
use extern4_disk::feature::RoCompat;
use extern4_fuse::{Claim, MountOptions, Mounted, device_name};
use rustix::process::geteuid;
use tracing::{debug, info};

use crate::error::{Error, Notice, Observer};
use crate::host::Host;
use crate::open::Opened;
use crate::options::Options;
use crate::request::Request;
use crate::signals;
use crate::source::Source;

/// A mount that is not served yet.
pub struct Mount {
    pub(crate) request: Request,
    pub(crate) volume: Volume,
    /// The directory, resolved and escaped, for messages.
    pub(crate) dir: String,
    pub(crate) device: OwnedFd,
    pub(crate) mount: Mounted,
    /// Set when serving begins; the thread for signals waits for it.
    pub(crate) mounted: Arc<OnceLock<Mounted>>,
    /// Held while a signal unmounts.
    pub(crate) ending: Arc<Mutex<()>>,
}

impl Opened {
    /// Mounts the volume on the directory. [`Mount::serve`] has to follow: until then, programs
    /// that use the directory wait.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the volume is larger than the options allow, or [`Error::Mount`] if
    /// the kernel does not mount it.
    pub fn mount(
        self,
        request: Request,
        host: &Host,
        observer: &dyn Observer,
    ) -> Result<Mount, Error> {
        let Self { volume, claim } = self;
        let options = &request.options;
        if let Some(most) = options
            .size_limit
            .filter(|most| size_bytes(&volume) > *most)
        {
            return Err(Error::TooLarge(most));
        }
        if options.quota
            && !volume
                .ext4()
                .superblock()
                .features()
                .ro_compat
                .contains(RoCompat::QUOTA)
        {
            observer.notice(&Notice::NoQuotas);
        }
        // The path is resolved before the mount: a mount that is not served yet does not answer.
        let dir = host.dir.canonicalize().unwrap_or_else(|_| host.dir.clone());
        let dir = escape(dir.as_os_str().as_bytes()).to_string();
        let mounted = Arc::new(OnceLock::new());
        let made = signals::end_on_signals(&mounted).and_then(|ending| {
            Ok((
                ending,
                mount(&request.source, &volume, claim, &host.dir, options)?,
            ))
        });
        match made {
            Ok((ending, (device, mount))) => Ok(Mount {
                request,
                volume,
                dir,
                device,
                mount,
                mounted,
                ending,
            }),
            Err(error) => Err(Error::Mount {
                error,
                close: volume.close().err(),
            }),
        }
    }
}

fn mount(
    source: &Source,
    volume: &Volume,
    claim: Option<Claim>,
    dir: &Path,
    options: &Options,
) -> io::Result<(OwnedFd, Mounted)> {
    if let Some(claim) = claim {
        return claim.attach(dir, &options.mount);
    }
    let file = device_name(&source.file);
    let wants_blk = options
        .fuseblk
        .unwrap_or(!options.is_read_only() && options.fsname().is_none());
    let blk = volume
        .bytes()
        .filter(|_| wants_blk)
        .map(|bytes| (file.clone(), bytes));
    // The image is named so that readers of the mount table find it.
    let name = || {
        Source {
            file,
            part: source.part,
        }
        .to_string()
        .into()
    };
    let source = options.fsname().map_or_else(name, OsStr::to_owned);
    let (device, mounted) = extern4_fuse::mount(
        dir,
        &MountOptions {
            source,
            blk,
            ..options.mount.clone()
        },
    )?;
    let Some(reason) = mounted.not_blk() else {
        return Ok((device, mounted));
    };
    let reason = os_reason(reason);
    if options.fuseblk == Some(true) {
        mounted.end()?;
        return Err(io::Error::other(format!(
            "there is no loop device for it: {reason}"
        )));
    }
    let lacks = format!(
        "there is no loop device for it ({reason}): sync(2) and umount(8) do not wait for the volume"
    );
    // Users other than root expect no loop device.
    if geteuid().is_root() {
        info!("{lacks}")
    } else {
        debug!("{lacks}")
    }
    Ok((device, mounted))
}

/// Returns how many bytes the volume has by its superblock.
fn size_bytes(volume: &Volume) -> u64 {
    let superblock = volume.ext4().superblock();
    superblock
        .blocks_count()
        .saturating_mul(superblock.block_size().into())
}
