//! The mount of a volume: from its options to its end.
//!
//! A process that mounts a volume goes through these steps, and any of them may end it:
//!
//! ```text
//! options::parse      the words after -o
//! Request::new        the volume and the options of all layers
//! Host::prepare       the directory, the log, the port for metrics
//! Request::open       the volume
//! Opened::mount       the mount in the kernel
//! Mount::serve        answers the kernel until the volume is unmounted, and closes it
//! ```
//!
//! [`daemon`] has a second process do that in the background. While it serves, the process answers
//! questions on a socket ([`control`]): other processes look into the mount, have its volume opened
//! for writing, and wait for its end. [`remount()`] and [`unmount()`] are for these processes.
//!
//! The crate prints nothing but its log. An [`Error`] or a [`Notice`] is text without the name of
//! the directory or image that it is about; the program that mounts adds the name.

#![forbid(unsafe_code)]

pub mod activity;
pub mod control;
pub mod counters;
pub mod daemon;
mod error;
mod host;
mod log;
mod mount;
mod mount_table;
mod open;
pub mod options;
mod remount;
mod request;
mod serve;
mod service;
pub mod signals;
mod source;
mod unmount;

pub use error::{Error, Notice, Observer};
pub use extern4_fuse::{Histogram, Operation, attach_loop_device, detach};
pub use host::{Host, HostOptions};
pub use mount::Mount;
pub use open::{OpenError, Opened};
pub use remount::remount;
pub use request::Request;
pub use source::Source;
pub use unmount::{Patience, Unmounted, directories, unmount};
