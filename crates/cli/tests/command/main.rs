//! The command, run as its users run it, on real images.
//!
//! Where GNU has the same tool, that tool on the kernel's mount of the same image gives the
//! expected output.

mod attributes;
mod block_mount;
mod bmap;
mod building;
mod changing;
mod comparing;
mod contents;
mod copying;
mod copying_into;
mod demo;
mod device_mount;
mod direct;
mod documents;
mod encrypted;
mod experts;
mod exporting;
mod failing;
mod fakeroot;
mod filling;
mod fstab;
mod global_options;
mod handles;
mod hostile;
mod idmap;
mod ioctls;
mod journals;
mod killing;
mod limits;
mod listing;
mod logging;
mod losing;
mod making;
mod measuring;
mod messages;
mod mount_options;
mod mounting;
mod overlay;
mod partitions;
mod reading;
mod remounting;
mod run;
mod sameness;
mod scripts;
mod service;
mod signals;
mod stable_layout;
mod standard_input;
mod terminal;
mod tuning;
mod untrusted;
mod watching;
mod writeback;
mod writing;
