//! Extent trees: `read` maps a block, `tree` loads and stores the path to a leaf, `change` edits
//! leaves.
//!
//! Only `map` and its modules `change` and `walk` use them. Every node is checked against its
//! parent's range and its checksum before use.

pub(crate) mod change;
pub(crate) mod read;
pub(crate) mod tree;
