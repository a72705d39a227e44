//! Behaviour of the VFS, by what callers see.

mod fixture;
mod handles;
mod linear;
mod model;
mod names;
mod open;
mod perms;
mod remembered;
mod restless;
mod stress;
mod torture;
mod tree;
mod walk;
mod xattrs;
