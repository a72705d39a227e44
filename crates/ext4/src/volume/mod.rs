//! What all structures of a volume are read and changed through.

pub(crate) mod buffer;
pub(crate) mod deferred_checksum;
pub(crate) mod group;
pub(crate) mod handle;
pub(crate) mod superblock;
pub(crate) mod system_zone;
