//! ACLs: extended attributes in a form of their own.

pub(crate) mod get;
pub(crate) mod set;
