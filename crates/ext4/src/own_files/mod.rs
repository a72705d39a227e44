//! Makes and removes the volume's own files: its journal and its quota files.
//!
//! The command `tune` calls [`Ext4::add_journal`](crate::Ext4::add_journal), [`journal`] and
//! [`Ext4::set_quotas`](crate::Ext4::set_quotas). `internal_files` makes and clears the files.
//! `tune` changes the superblock's fields about them.

mod internal_files;
pub mod journal;
mod quota_files;
