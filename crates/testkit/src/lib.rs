//! Oracles and image factories for the tests of extern4.
//!
//! The tests of all crates use it; nothing that is shipped does.
//!
//! The oracles are programs that do not share a line with extern4. `mke2fs` and the kernel make the
//! images; the kernel's mount and `debugfs` say what is in them. This crate makes those images on
//! demand, in temporary directories, and puts the answers of the oracles into one comparable shape.
//!
//! ```text
//! zoo::SPECS ──▶ ImageSpec::build ──▶ Image ──▶ Mount ──▶ tree::from_mount ──┐
//! crash::...                            │  └───────▶ tree::from_debugfs ─────┤
//!                                       ▼                                    ▼
//!                               the code under test ──▶ Tree ──▶ tree::diff(ours, theirs)
//! ```
//!
//! * [`tools`] runs other programs and says what a machine lacks.
//! * [`image`] makes, mounts and copies images.
//! * [`mounts`] is for tests that mount by FUSE; [`lines`] compares the output of programs.
//! * [`plan`] holds the plans that fill directories; [`zoo`] names the images made of them.
//! * [`crash`] makes images whose journal still has to be replayed.
//! * [`tree`] holds a volume as an oracle saw it, and compares two of those.
//! * [`perm`] asks the kernel for the permissions of callers.
//! * [`unreadable`] is a volume of encrypted and damaged files that cannot be read.
//! * [`sample`] is a small volume for examples in documentation.
//!
//! Everything here panics on failure: a test that cannot trust its oracle has nothing to say.
#![forbid(unsafe_code)]

pub mod acl;
pub mod crash;
pub mod image;
pub mod lines;
pub mod mounts;
pub mod perm;
pub mod plan;
pub mod sample;
pub mod tools;
pub mod tree;
pub mod unreadable;
pub mod zoo;
