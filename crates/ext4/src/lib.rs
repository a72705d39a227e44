//! extern4 ext4: see ARCHITECTURE.md.

/// An open ext4 file system.
pub struct Ext4 {}
