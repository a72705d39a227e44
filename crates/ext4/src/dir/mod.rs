//! Directories: listing, lookup, and changes of names.

pub(crate) mod casefold;
pub(crate) mod entries;
pub(crate) mod hint;
pub(crate) mod htree;
pub(crate) mod inline;
pub(crate) mod insert;
pub(crate) mod list;
pub(crate) mod namei;
