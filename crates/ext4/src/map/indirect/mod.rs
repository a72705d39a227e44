//! Indirect blocks: reading and changing them.

pub(crate) mod change;
pub(crate) mod read;
