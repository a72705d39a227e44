//! Block devices, partition tables and the buffer cache.
//!
//! `jbd2`, `ext4`, the builders and `extern4` use it.
//!
//! A [`BlockDevice`] is an array of bytes that any thread may read and write at any offset. It may
//! be an image file, a block special file, memory, or another device behind a window, an overlay or
//! a fault injector. [`BufferCache`] keeps blocks of one volume in memory. It has at most one
//! buffer for a block, reads it from the device once however many threads ask for it, and bounds
//! its memory. [`partition`] finds the volumes of a partitioned disk.
//!
//! Nothing here knows a file system's format. Only this crate calls [`BlockDevice::write_at`].
#![forbid(unsafe_code)]

pub mod cache;
pub mod device;
mod error;
pub mod partition;
mod surface;
mod writer;

pub use cache::{
    Buffer, BufferCache, CacheAccount, CacheBudget, CacheOptions, CacheStats, Found, Pin, Reclaim,
    Registration, Snapshot, Unsealed,
};
pub use device::counted::CountedDevice;
pub use device::crash::CrashDevice;
pub use device::fault::FaultDevice;
pub use device::file::{FileDevice, FileOptions};
pub use device::holder::lock_holders;
pub use device::memory::MemoryDevice;
pub use device::overlay::OverlayDevice;
pub use device::record::RecordDevice;
pub use device::slice::SliceDevice;
pub use device::successive::SuccessiveDevice;
pub use device::wrapper::DeviceWrapper;
pub use device::{BlockDevice, check_range, read_each_at};
pub use error::{Error, Op, Result, os_reason};
pub use surface::bad_blocks;
pub use writer::BlockWriter;

/// The crate's page, so that its example is run with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
