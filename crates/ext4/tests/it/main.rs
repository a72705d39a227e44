//! The file system against real images: what it shows is compared with what the kernel's mount or `debugfs` shows.

mod crash;
mod walk;
mod zoo;
