//! What each request does, by what it is about.

mod attr;
mod dir;
mod file;
mod ioctl;
mod name;
mod whole;
mod xattr;
