//! Behaviour of the VFS, by what callers see.

mod tree;
mod walk;
