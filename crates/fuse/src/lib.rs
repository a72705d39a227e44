//! Serves a VFS to the kernel through FUSE, as a mount that any program can use.
//!
//! A [`Server`] answers requests of the protocol by calls of [`extern4_vfs`]; it knows no file system behind that. A transport takes
//! the requests from the kernel and hands the answers back: [`serve`] reads and writes `/dev/fuse` with one thread a core.
//! [`mount()`] makes the mount.
//!
//! ```text
//! program -> kernel's VFS, page cache -> /dev/fuse -> transport -> Server -> vfs::Session -> file system
//! ```
//!
//! The kernel checks permissions, as it does for its own file systems, with owners, modes and ACLs that it was told; what it has
//! granted is not asked a second time, for a request does not say in which groups the caller is. What the kernel cannot know,
//! such as flags that make files immutable, is checked here.
//!
//! Nobody but the kernel changes what is served, so it may remember names, attributes and contents for as long as it likes.

#![deny(unsafe_code)]

mod abi;
mod attributes;
mod caller;
mod claim;
mod fusermount;
mod handles;
mod histogram;
mod init;
mod lock;
mod loop_device;
mod meter;
mod mount;
mod nodes;
mod ops;
mod reply;
mod request;
mod server;
mod surplus;
#[cfg(test)]
mod tests;
mod transport;

pub use claim::{Claim, source as device_name};
pub use histogram::{BUCKETS, Histogram};
pub use loop_device::attach as attach_loop_device;
pub use meter::Operation;
pub use mount::{MountOptions, Mounted, detach, mount, remount, unmount};
pub use server::{Config, Server, Transport};
pub use transport::serve;
