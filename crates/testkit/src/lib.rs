//! Oracles and image factories for the tests of extern4.
//!
//! The product is judged by programs that do not share a line with it: `mke2fs` and the kernel make the
//! images, the kernel's mount and `debugfs` say what is in them. This crate makes those images on demand,
//! in temporary directories, and puts what the oracles see into one comparable shape.
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
//! * [`plan`] holds what a directory can be filled with; [`zoo`] names the images made of it.
//! * [`crash`] makes images whose journal still has to be replayed.
//! * [`tree`] is what an oracle saw, and the difference between two of those.
//! * [`perm`] asks the kernel who may do what.
//! * [`unreadable`] is a volume of encrypted and damaged files that cannot be read.
//! * [`sample`] is a small volume for examples in documentation.
//!
//! Everything here panics on failure: a test that cannot trust its oracle has nothing to say.
#![forbid(unsafe_code)]

pub mod acl;
pub mod crash;
pub mod image;
pub mod perm;
pub mod plan;
pub mod sample;
pub mod tools;
pub mod tree;
pub mod unreadable;
pub mod zoo;
