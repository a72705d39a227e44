//! INIT: the features on which kernel and server agree.
//!
//! It is the kernel's first request, and `Server` calls the handler for it. The answer holds only
//! features that both sides have and that the server's options allow. A kernel older than Linux
//! 5.13 gets an error, and the mount ends. One with a later major version gets the server's
//! version, and sends INIT again in that one. `protocol` keeps the result.

use extern4_vfs::{Errno, Result};
use zerocopy::FromBytes as _;

use crate::abi::{Features, InitIn, InitInExt, InitOut, MAJOR, MINOR, MINOR_MIN};
use crate::reply::Body;
use crate::request::Request;
use crate::server::{Config, Server};

/// The unit in which the protocol counts pages.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages that one request carries at most.
const MAX_PAGES: usize = 256;
/// Bytes that one request reads or writes at most.
pub(crate) const MAX_DATA_BYTES: usize = MAX_PAGES * PAGE_BYTES;
/// Of these, the bytes that one request reads at most. The answer, with its header on a separate
/// page, then has room in the largest pipe that an unprivileged process may have
/// (`/proc/sys/fs/pipe-max-size`).
pub(crate) const MAX_READ_BYTES: usize = MAX_DATA_BYTES - PAGE_BYTES;
/// Asynchronous requests, such as read-ahead, under way at a time.
const MAX_BACKGROUND: u16 = 64;

/// Returns the features that the server wants of a kernel that offers them.
///
/// Not `ATOMIC_O_TRUNC`: a kernel that truncates a file as part of the open finds out too late that
/// it is being executed (`ETXTBSY`). Not `ASYNC_DIO`: with it, the kernel keeps pages that a reader
/// has cached during an asynchronous write. It also fails a write with `EIO` if there is room for
/// only a part of the data.
fn wanted(config: &Config, acl: bool, rings: bool) -> Features {
    let mut wanted = Features::all() - Features::ALLOW_IDMAP;
    wanted.set(Features::ALLOW_IDMAP, config.idmap);
    // With this feature, the kernel would check permissions itself. It would also ask for ACLs, and
    // refuse a walk if it learns that there are none to ask for.
    wanted.set(Features::POSIX_ACL, acl && config.fakeroot.is_none());
    wanted.set(Features::WRITEBACK_CACHE, config.writeback);
    wanted.set(Features::OVER_IO_URING, rings);
    wanted
}

impl Server {
    /// Negotiates a version and the features with the kernel.
    pub(crate) fn init(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (init, rest) = request.split::<InitIn>()?;
        if init.major != MAJOR {
            // A kernel with a later major version gets the version of the server, and sends INIT
            // once more in that one.
            let answer = InitOut {
                major: MAJOR,
                minor: MINOR,
                ..InitOut::default()
            };
            return if init.major > MAJOR {
                body.put(&answer)
            } else {
                Err(Errno::from_raw(EPROTO).into())
            };
        }
        if init.minor < MINOR_MIN {
            self.log(&format!(
                "the kernel's FUSE {}.{} is too old",
                init.major, init.minor
            ));
            return Err(Errno::from_raw(EPROTO).into());
        }
        let mut offered = Features::from_bits_truncate(u64::from(init.flags));
        if offered.contains(Features::INIT_EXT) {
            let (more, _) = InitInExt::read_from_prefix(rest).map_err(|_| Errno::EINVAL)?;
            offered |= Features::from_bits_truncate(u64::from(more.flags2) << 32);
        }
        let acl = self.credentials.superblock().traits().acl;
        let wanted = wanted(self.config(), acl, self.protocol.rings().is_some());
        let agreed = self.protocol.agree(offered & wanted);
        let by_ring = self
            .protocol
            .rings()
            .filter(|_| agreed.contains(Features::OVER_IO_URING));
        let data_bytes = by_ring.unwrap_or(MAX_DATA_BYTES);
        let [low, high] = [agreed.bits(), agreed.bits() >> 32].map(|half| half as u32);
        body.put(&InitOut {
            major: MAJOR,
            minor: MINOR,
            // No less than the read-ahead that the mount has by now, which the kernel does not
            // exceed.
            max_readahead: init.max_readahead.max(MAX_READ_BYTES as u32),
            flags: low,
            max_background: MAX_BACKGROUND,
            congestion_threshold: MAX_BACKGROUND / 4 * 3,
            max_write: data_bytes as u32,
            time_gran: 1,
            max_pages: (data_bytes / PAGE_BYTES) as u16,
            flags2: high,
            ..InitOut::default()
        })
    }
}

const EPROTO: u16 = 71;
