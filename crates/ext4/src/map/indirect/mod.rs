//! Indirect blocks, the maps of ext2 and ext3: `read` maps a block, `change` maps and unmaps.
//!
//! Only `map` and its modules `change` and `walk` use them. Every block number is checked to be
//! inside the volume before use. These maps have no checksums.

pub(crate) mod change;
pub(crate) mod read;
