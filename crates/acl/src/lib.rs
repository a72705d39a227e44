//! POSIX.1e access control lists as Linux has them, and the namespaces of extended attributes.
//!
//! An [`Acl`] is a valid list of entries. It checks access, follows `chmod`, is inherited by new
//! files, and has a text form and the byte form of the `system.posix_acl_*` attributes. `acl(5)`
//! defines the entries. The mask of an ACL is the group part of the file's mode. For this reason
//! `chmod` changes ACLs, and setting an ACL changes the mode.
//!
//! [`namespace`] has the one table of attribute names: their prefixes, and the numbers of the
//! prefixes on ext4 volumes.
//!
//! The crate does no I/O and knows no volume. The VFS checks access with it; the on-disk and
//! archive forms and the command's `getfacl` and `setfacl` convert to and from its lists.
#![forbid(unsafe_code)]

mod list;
pub mod namespace;
mod text;
mod xattr;

pub use list::{Acl, AclEntry, AclError, AclTag};
pub use namespace::XattrNamespace;
pub use xattr::AclKind;

/// The crate's page, so that its example is run with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
