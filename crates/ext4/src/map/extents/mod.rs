//! Extent trees: reading and changing them.

pub(crate) mod change;
pub(crate) mod read;
pub(crate) mod tree;
