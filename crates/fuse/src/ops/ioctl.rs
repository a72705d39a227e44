//! IOCTL: inode flags and other operations without a request.
//!
//! `Server` calls the handler. It serves inode flags, projects, generations, the volume's label,
//! trim and shutdown. Any other number is `ENOTTY`, as on Linux. The kernel checks no rights for
//! these, so the handler does, with the caller's capabilities from `/proc`.

use extern4_sync::primitive::Ordering;
use extern4_vfs::{Caps, Errno, FileFlags, Location, LookupFlags, Result, Shutdown, SuperBlock};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{IoctlIn, IoctlOut};
use crate::reply::Body;
use crate::request::Request;
use crate::server::Server;

/// `FS_IOC_GETFLAGS` and so on, and `EXT4_IOC_SHUTDOWN`, as on machines of 64 bits.
const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GETVERSION: u32 = 0x8008_7601;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const SHUTDOWN: u32 = 0x8004_587d;
const FITRIM: u32 = 0xc018_5879;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
/// Bytes of a label in these ioctls, with the zero byte at its end.
const LABEL_BYTES: usize = 256;

/// Inode flags that users see, and flags that users set (`chattr(1)`), among ext4's, which are
/// `FS_*_FL`.
const VISIBLE: u32 = 0x725b_dfff;
const MODIFIABLE: u32 = 0x624b_c0ff;
/// `EXT4_EXTENTS_FL`: extents map the contents.
const EXTENTS: u32 = 0x8_0000;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

/// `struct fstrim_range`, in bytes.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct TrimRange {
    start: u64,
    len: u64,
    minlen: u64,
}

/// Inode flags, and their bits in `fsx_xflags` of `struct fsxattr`.
const XFLAGS: [(FileFlags, u32); 7] = [
    (FileFlags::IMMUTABLE, 0x8),
    (FileFlags::APPEND, 0x10),
    (FileFlags::SYNC, 0x20),
    (FileFlags::NOATIME, 0x40),
    (FileFlags::NODUMP, 0x80),
    (FileFlags::PROJINHERIT, 0x200),
    (FileFlags::DAX, 0x8000),
];

impl Server {
    pub(crate) fn ioctl(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        let (ioctl, input) = request.split::<IoctlIn>()?;
        let size = usize::try_from(ioctl.in_size).map_err(|_| Errno::EINVAL)?;
        let input = input.get(..size).ok_or(Errno::EINVAL)?;
        let location = self.nodes.get(request.header.nodeid)?;
        let attr = location.attr();
        body.put(&IoctlOut::default())?;
        match ioctl.cmd {
            GETFLAGS => body.put(&(attr.flags.bits() & VISIBLE)),
            GETVERSION => body.put(&attr.generation),
            FSGETXATTR => {
                let xflags = XFLAGS.iter().filter(|(flag, _)| attr.flags.contains(*flag));
                let xflags = xflags.map(|(_, bit)| bit).sum();
                body.put(&FsXattr {
                    xflags,
                    projid: attr.project,
                    ..FsXattr::default()
                })
            }
            SETFLAGS => self.set_flags(request, &location, input),
            FSSETXATTR => self.set_fsxattr(request, &location, input),
            GETFSLABEL => {
                let mut label = self.superblock().fs().label()?;
                label.resize(LABEL_BYTES, 0);
                body.push(&label)
            }
            SETFSLABEL | FITRIM | SHUTDOWN
                if !self
                    .credentials
                    .identified(&request.caller)
                    .caps
                    .contains(Caps::SYS_ADMIN) =>
            {
                Err(Errno::EPERM.into())
            }
            SETFSLABEL => self.superblock().set_label(until_zero(input)),
            FITRIM => trim(self.superblock(), input, body),
            SHUTDOWN => self.superblock().shut_down(Shutdown::Flush),
            _ => Err(Errno::ENOTTY.into()),
        }
    }

    fn set_flags(&self, request: &Request<'_>, location: &Location, input: &[u8]) -> Result<()> {
        let (wanted, _) = u32::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
        if wanted & !VISIBLE != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let now = location.attr().flags.bits();
        // The server does not convert between extents and block maps, which Linux does for some
        // files.
        if (wanted ^ now) & EXTENTS != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let flags = FileFlags::from_bits_retain(now & !MODIFIABLE | wanted & MODIFIABLE);
        // Journaling of contents takes a capability.
        let caller = self.credentials.identified(&request.caller);
        self.credentials.session(&caller, location).set_flags(
            "",
            flags,
            LookupFlags::EMPTY_PATH,
        )?;
        self.flags_changed(request, location, now);
        Ok(())
    }

    fn set_fsxattr(&self, request: &Request<'_>, location: &Location, input: &[u8]) -> Result<()> {
        let (wanted, _) = FsXattr::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
        let known = XFLAGS.iter().fold(0, |all, (_, bit)| all | bit);
        if wanted.xflags & !known != 0 || wanted.extsize != 0 || wanted.cowextsize != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let now = location.attr().flags;
        let mut flags = now;
        for (flag, bit) in XFLAGS {
            flags.set(flag, wanted.xflags & bit != 0);
        }
        let session = self.credentials.session(&request.caller, location);
        session.set_flags_and_project("", flags, Some(wanted.projid), LookupFlags::EMPTY_PATH)?;
        self.flags_changed(request, location, now.bits());
        Ok(())
    }

    /// Reports changed flags, which were `before`. The kernel does not know of such a change, and
    /// does not look at the flags where it opens files without the server.
    fn flags_changed(&self, request: &Request<'_>, location: &Location, before: u32) {
        self.attributes_changed(request.header.nodeid);
        let protects = FileFlags::IMMUTABLE | FileFlags::APPEND;
        let new = location.attr().flags - FileFlags::from_bits_retain(before);
        // Relaxed: the flag orders nothing else.
        if new.intersects(protects)
            && !self.reports_opens()
            && !self.warned_of_opens.swap(true, Ordering::Relaxed)
        {
            self.log(
                "a file was made immutable or append-only (chattr +i, +a): it can still be opened for writing, and only the write \
                 fails; with the mount option 'opens' open(2) fails, as on Linux",
            );
        }
    }
}

fn trim(superblock: &SuperBlock, input: &[u8], body: &mut Body<'_>) -> Result<()> {
    let (mut range, _) = TrimRange::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
    let end = range.start.saturating_add(range.len);
    range.len = superblock.trim(range.start..end, range.minlen)?;
    body.put(&range)
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}
