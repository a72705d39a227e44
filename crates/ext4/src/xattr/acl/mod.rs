//! ACLs: extended attributes in a form of their own. Reading and setting them.

pub(crate) mod get;
pub(crate) mod set;
