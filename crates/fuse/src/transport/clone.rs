//! One more channel to a mount (`FUSE_DEV_IOC_CLONE`), for a thread of `channel`.
//!
//! Requests of the mount come through any of its channels. The answer must go back through the
//! channel that brought the request. It fails only if the mount is gone or the process may open no
//! more files.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Opens one more channel to the mount of `device`. The answer to a request goes back through the
/// request's own channel.
pub(super) fn clone_channel(device: &OwnedFd) -> io::Result<OwnedFd> {
    let channel = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let number =
        u32::try_from(device.as_raw_fd()).expect("an open file has a number that is not negative");
    // SAFETY: the kernel reads a u32 through the pointer of this ioctl, as its number says, and
    // `Setter` passes one to a u32.
    unsafe { ioctl(&channel, Setter::<CLONE, u32>::new(number))? };
    Ok(channel)
}
