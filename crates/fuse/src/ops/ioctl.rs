//! IOCTL: inode flags and what else has no call of its own.

use extern4_vfs::{Errno, FileFlags, How, Location, Result, Shutdown};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{IoctlIn, IoctlOut};
use crate::reply::Body;
use crate::request::Request;
use crate::server::Server;

/// `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_GETVERSION`, `FS_IOC_FSGETXATTR` and `EXT4_IOC_SHUTDOWN`, as on machines of 64 bits.
const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GETVERSION: u32 = 0x8008_7601;
const FSGETXATTR: u32 = 0x801c_581f;
const SHUTDOWN: u32 = 0x8004_587d;
const ENOTTY: u16 = 25;

/// Inode flags that users see, and those that they set (`chattr(1)`): of ext4's, which are `FS_*_FL`.
const VISIBLE: u32 = 0x705b_dfff;
const MODIFIABLE: u32 = 0x604b_c0ff;

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

/// Inode flags, and what `fsxattr` calls them.
const XFLAGS: [(FileFlags, u32); 5] = [
    (FileFlags::IMMUTABLE, 0x8),
    (FileFlags::APPEND, 0x10),
    (FileFlags::SYNC, 0x20),
    (FileFlags::NOATIME, 0x40),
    (FileFlags::PROJINHERIT, 0x200),
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
                body.put(&FsXattr { xflags, projid: attr.project, ..FsXattr::default() })
            }
            SETFLAGS => self.set_flags(request, &location, input),
            SHUTDOWN if request.header.uid == 0 => self.superblock().shut_down(Shutdown::Flush),
            SHUTDOWN => Err(Errno::EPERM.into()),
            _ => Err(Errno::from_raw(ENOTTY).into()),
        }
    }

    fn set_flags(&self, request: &Request<'_>, location: &Location, input: &[u8]) -> Result<()> {
        let (wanted, _) = u32::read_from_prefix(input).map_err(|_| Errno::EINVAL)?;
        if wanted & !VISIBLE != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let kept = location.attr().flags.bits() & !MODIFIABLE;
        let flags = FileFlags::from_bits_retain(kept | wanted & MODIFIABLE);
        self.session(&request.header, location).set_flags("", flags, How::EMPTY)
    }
}
