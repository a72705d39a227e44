//! The subcommands.

pub(crate) mod bench;
pub(crate) mod block;
pub(crate) mod cat;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod du;
pub(crate) mod find;
pub(crate) mod getfacl;
pub(crate) mod getfattr;
pub(crate) mod info;
pub(crate) mod inode;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod stat;
pub(crate) mod tree;
