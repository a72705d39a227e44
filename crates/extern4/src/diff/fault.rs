//! Files that cannot be compared, with the reasons.
//!
//! Every other module returns them.

/// A file that cannot be compared.
#[derive(Debug)]
pub struct Fault {
    /// The path below the top of the tree; empty for the top and the tree as a whole.
    pub path: Vec<u8>,
    /// Why it could not be compared.
    pub error: Error,
}

/// Why a file of a tree cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A volume's file cannot be read.
    #[error(transparent)]
    Volume(#[from] crate::Error),
    /// The source cannot be listed, or a file of it cannot be read.
    #[error(transparent)]
    Source(#[from] extern4_tree::Error),
}
