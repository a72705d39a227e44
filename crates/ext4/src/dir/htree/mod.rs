//! The hash tree of a directory: walking it, and changing it.

pub(crate) mod insert;
pub(crate) mod read;
