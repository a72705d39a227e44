//! The file system against real images: what it shows is compared with what the kernel's mount or `debugfs` shows, and
//! damage is refused by name. Every image of the zoo is compared whole in the tests of the library; here are a few.

mod check;
mod crash;
mod hostile;
mod names;
mod open;
mod walk;
mod zoo;
