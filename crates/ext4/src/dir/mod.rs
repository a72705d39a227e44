//! Directories: listing, lookup, and changes of names.
//!
//! The operations in `ops` call `list` to list a directory, `namei` to look a name up, and `insert`
//! to add, remove or replace one. The entries of a directory are in its inode (`inline`), in a
//! plain sequence of blocks (`blocks`) or in a hash tree (`htree`). `block_edit` changes the
//! records of a block in a handle, by `dir_entries`. `names` maps the names in memory
//! (`inode::name_map`) where lookups often search in vain.
//!
//! Damage is an error that names its place, unless a lookup finds the name in another block. No
//! change moves a name between the blocks of a linear directory, so an interrupted listing can go
//! on.

mod block_edit;
mod blocks;
pub(crate) mod htree;
pub(crate) mod inline;
pub(crate) mod insert;
pub(crate) mod list;
pub(crate) mod namei;
pub(crate) mod names;
