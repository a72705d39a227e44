//! Mounts of the server, used by ordinary programs, on images of `mke2fs`.
//!
//! The command's tests cover its options and messages; these cover the answers to the kernel.

mod bmap;
mod direct;
mod handles;
mod idmap;
mod ioctls;
mod mounting;
mod overlay;
mod served;
mod writeback;
