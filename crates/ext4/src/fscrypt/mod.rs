//! The form in which names and link targets of encrypted inodes are shown without a key.
//!
//! It knows bytes only. `readable` decides which inodes may be read.

pub(crate) mod fscrypt_name;
