//! A loop device for an image, so that the kernel treats the mount as one of a block device.
//!
//! No data is read or written through it. It ends with its last user, which is the mount. Source:
//! loop(4).
//!
//! `mount` attaches one for an image that is to appear as a block device. The caller must be root.
//! A device that no mount uses goes away when the caller closes it.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl};

/// `LOOP_CTL_GET_FREE` of `/dev/loop-control`.
const GET_FREE: Opcode = 0x4C82;
/// `LOOP_CONFIGURE` of a loop device.
const CONFIGURE: Opcode = 0x4C0A;
/// `BLKROSET` of a block device.
const SET_READ_ONLY: Opcode = 0x125D;
/// `LO_FLAGS_READ_ONLY`.
const READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: the device ends with its last user.
const AUTOCLEAR: u32 = 4;
/// Attempts to get a free number, where other programs take it first.
const MAX_TRIES: usize = 16;

/// `struct loop_config`, with `struct loop_info64` in its middle.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304, "as the kernel has it");

/// Makes a free loop device stand for these bytes of a file, for reading and, with `write`, for
/// changes. Returns the device and its path. The device exists as long as the returned file is
/// open, or the device is mounted. For root only.
///
/// # Errors
/// The system's error: `EPERM` without the rights, `ENOSPC` or `EAGAIN` if no device is free.
pub fn attach(image: &Path, bytes: &Range<u64>, write: bool) -> io::Result<(File, PathBuf)> {
    let open = |path: &Path| OpenOptions::new().read(true).write(write).open(path);
    let control = open(Path::new("/dev/loop-control"))?;
    let backing = open(image)?;
    let flags = if write {
        AUTOCLEAR
    } else {
        AUTOCLEAR | READ_ONLY
    };
    for _ in 0..MAX_TRIES {
        // SAFETY: see `GetFree`.
        let number = unsafe { ioctl(&control, GetFree)? };
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path)?;
        // SAFETY: the kernel reads a `struct loop_config` through the pointer of this ioctl, and
        // `Config` is laid out as that.
        match unsafe {
            ioctl(
                &device,
                Setter::<CONFIGURE, Config>::new(config(&backing, image, bytes, flags)),
            )
        } {
            Ok(()) => {
                if write {
                    // An earlier user of the number may have made the device read-only, and it is
                    // so still.
                    // SAFETY: the kernel reads an `int` through the pointer of this ioctl.
                    unsafe { ioctl(&device, Setter::<SET_READ_ONLY, c_int>::new(0))? };
                }
                return Ok((device, path));
            }
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::BUSY.into())
}

/// `LOOP_CTL_GET_FREE`, which has no argument and returns a number.
struct GetFree;

// SAFETY: the kernel reads and writes nothing through the argument of this ioctl.
unsafe impl Ioctl for GetFree {
    type Output = IoctlOutput;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        number: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<IoctlOutput> {
        Ok(number)
    }
}

fn config(backing: &File, image: &Path, bytes: &Range<u64>, flags: u32) -> Config {
    let mut file_name = [0; 64];
    // The name is for people, and cut where it is too long; the last byte is a zero.
    for (to, from) in file_name[..63].iter_mut().zip(image.as_os_str().as_bytes()) {
        *to = *from;
    }
    Config {
        fd: backing.as_raw_fd().cast_unsigned(),
        block_size: 0,
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: bytes.start,
        size_limit: bytes.end - bytes.start,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags,
        file_name,
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
        reserved: [0; 8],
    }
}
