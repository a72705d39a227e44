//! Conversion of attributes between the protocol and the VFS.
//!
//! The handlers of `ops` call these functions for every answer with attributes and every request
//! that sets some. The conversion loses nothing that the protocol can carry. Times before 1970 keep
//! their sign, and device numbers keep all bits of Linux's `dev_t`.

use std::time::Duration;

use extern4_vfs::{Attr, FileFlags, FileType, Rdev, Timespec};

use crate::abi::{StatxTime, WireAttr, WireStatx};

/// Returns a device number as `struct stat` has had it since Linux 2.6: twelve bits of major,
/// twenty of minor.
pub(crate) fn wire_rdev(rdev: Rdev) -> u32 {
    rdev.minor & 0xff | (rdev.major & 0xfff) << 8 | (rdev.minor & 0xfff00) << 12
}

/// Returns the device of a number in the protocol, the inverse of `wire_rdev`.
pub(crate) fn rdev(wire: u32) -> Rdev {
    Rdev {
        major: wire >> 8 & 0xfff,
        minor: wire & 0xff | wire >> 12 & 0xfff00,
    }
}

/// Returns the mode with the bits of the type.
fn mode(attr: &Attr) -> u16 {
    attr.kind.mode_bits() | attr.mode & 0o7777
}

/// Returns a time. Seconds keep their sign in the protocol's unsigned field.
pub(crate) fn timespec(sec: u64, nsec: u32) -> Timespec {
    Timespec {
        sec: sec.cast_signed(),
        nsec,
    }
}

/// Returns the type for a listing, as `d_type` has it.
pub(crate) fn dirent_kind(kind: Option<FileType>) -> u32 {
    kind.map_or(0, |kind| u32::from(kind.mode_bits() >> 12))
}

pub(crate) fn wire_attr(attr: &Attr) -> WireAttr {
    WireAttr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.sec.cast_unsigned(),
        mtime: attr.mtime.sec.cast_unsigned(),
        ctime: attr.ctime.sec.cast_unsigned(),
        atimensec: attr.atime.nsec,
        mtimensec: attr.mtime.nsec,
        ctimensec: attr.ctime.nsec,
        mode: u32::from(mode(attr)),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: wire_rdev(attr.rdev),
        blksize: attr.blksize,
        flags: 0,
    }
}

/// `STATX_BASIC_STATS`.
const BASIC_STATS: u32 = 0x7ff;
/// `STATX_BTIME`.
const BTIME: u32 = 0x800;
/// `STATX_ATTR_IMMUTABLE` and so on, which are the inode flags of the same names.
const ATTRIBUTES: FileFlags = FileFlags::IMMUTABLE
    .union(FileFlags::APPEND)
    .union(FileFlags::ENCRYPT)
    .union(FileFlags::VERITY);

pub(crate) fn wire_statx(attr: &Attr) -> WireStatx {
    let time = |time: Timespec| StatxTime {
        sec: time.sec,
        nsec: time.nsec,
        reserved: 0,
    };
    WireStatx {
        mask: BASIC_STATS | if attr.btime.is_some() { BTIME } else { 0 },
        blksize: attr.blksize,
        attributes: u64::from((attr.flags & ATTRIBUTES).bits()),
        attributes_mask: u64::from(ATTRIBUTES.bits()),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: mode(attr),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime.unwrap_or_default()),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: attr.rdev.major,
        rdev_minor: attr.rdev.minor,
        ..WireStatx::default()
    }
}

/// Splits a lifetime into whole seconds and nanoseconds.
pub(crate) fn lifetime(lifetime: Duration) -> (u64, u32) {
    (lifetime.as_secs(), lifetime.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(0, 0), (8, 1), (0xfff, 0xfffff), (259, 256), (1, 0x12345)] {
            let device = Rdev { major, minor };
            assert_eq!(rdev(wire_rdev(device)), device);
        }
        assert_eq!(wire_rdev(Rdev { major: 8, minor: 1 }), 0x801);
    }

    #[test]
    fn times_before_1970_survive() {
        let time = Timespec {
            sec: -5,
            nsec: 250_000_000,
        };
        let wire = wire_attr(&Attr {
            mtime: time,
            ..Attr::default()
        });
        assert_eq!(timespec(wire.mtime, wire.mtimensec), time);
    }
}
