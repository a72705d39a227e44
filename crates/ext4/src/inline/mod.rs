//! Contents inside the inode (`inline_data`): `read` decodes them, `change` replaces them.
//!
//! The first 60 bytes are in `i_block`, the rest in the attribute `system.data` of the inode's
//! record. `file::inline` and `dir::inline` build files and directories on this.

pub(crate) mod change;
pub(crate) mod read;
