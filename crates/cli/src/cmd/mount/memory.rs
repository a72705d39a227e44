//! Memory for caches, and how it is divided.

/// Bytes for a file that the kernel knows, or that the server remembers as well: its inode, its
/// name, and their index entries. Measured after a walk of a million files.
const FILE_BYTES: u64 = 1400;

/// The least memory that a mount can work with.
const LEAST_BYTES: u64 = 4 << 20;

/// The limits on memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Blocks of metadata, in bytes.
    pub(super) blocks_bytes: usize,
    /// Requests in progress, in bytes, in addition to the caches.
    pub(super) requests_bytes: usize,
    /// Files that the kernel may know.
    pub(super) known: usize,
    /// Files that are remembered although the kernel has forgotten them.
    pub(super) remembered: usize,
}

impl Memory {
    /// Divides `bytes`: a third for blocks, half for files that the kernel knows, a sixth for files
    /// that it has forgotten. Requests get a quarter as much in addition.
    ///
    /// # Errors
    /// The least number of bytes, if `bytes` are too few.
    pub(super) fn of(bytes: u64) -> Result<Self, String> {
        let part = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes < LEAST_BYTES {
            return Err(format!("BYTES, at least {}M", LEAST_BYTES >> 20));
        }
        Ok(Self {
            blocks_bytes: part(bytes / 3),
            requests_bytes: part(bytes / 4),
            known: part(bytes / 2 / FILE_BYTES),
            remembered: part(bytes / 6 / FILE_BYTES),
        })
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::of(192 << 20).expect("enough")
    }
}
