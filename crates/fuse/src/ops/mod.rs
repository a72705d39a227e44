//! The handlers of requests, by subject.

mod attr;
mod dir;
mod file;
mod ioctl;
mod name;
mod statfs;
mod xattr;
