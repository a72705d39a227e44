//! Serves a VFS to the kernel through FUSE, as a mount that any program can use.
//!
//! A [`Server`] answers requests of the protocol by calls of [`extern4_vfs`]; it knows no file
//! system behind that. A transport takes the requests from the kernel and hands the answers back:
//! [`serve`] reads and writes `/dev/fuse` with one thread a core. [`mount()`] makes the mount.
//!
//! ```text
//! program -> kernel's VFS, page cache -> /dev/fuse
//!         -> transport -> Server -> vfs::Session -> file system
//! ```
//!
//! The kernel checks permissions, as it does for its own file systems, with the owners, modes and
//! ACLs that the server reports. The server does not repeat these checks, for a request does not
//! name the caller's groups. The server checks the properties that the kernel cannot know, such as
//! flags that make files immutable.
//!
//! Only the kernel changes a served volume, so it may remember names, attributes and contents for
//! as long as it likes.
//!
//! The command's `mount` calls this crate. If a request meets a fault in the program, it fails with
//! `EIO`, and the server changes nothing from then on.

#![deny(unsafe_code)]

mod abi;
mod attributes;
mod caller;
mod claim;
mod credentials;
mod forgets;
mod fusermount;
mod handles;
mod histogram;
mod init;
mod lock;
mod loop_device;
mod meter;
mod mount;
mod node_files;
mod nodes;
mod ops;
mod protocol;
mod reply;
mod request;
mod server;
#[cfg(test)]
mod tests;
mod transport;

pub use claim::{Claim, source as device_name};
pub use histogram::{BUCKETS, Histogram};
pub use loop_device::attach as attach_loop_device;
pub use meter::Operation;
pub use mount::{MountOptions, Mounted, Patience, Unmounted, detach, mount, remount, unmount};
pub use rustix::mount::MountFlags;
pub use server::{Callbacks, Config, Server, Transport};
pub use transport::serve;
