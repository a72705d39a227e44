//! Behaviour of the VFS, by what callers see.

mod fixture;
mod model;
mod names;
mod open;
mod perms;
mod stress;
mod tree;
mod walk;
mod xattrs;
