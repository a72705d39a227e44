//! Memory for caches, and how it is divided.

/// What a file takes that the kernel knows, or that is remembered beside: its inode, its name, and where they are found. Measured after
/// a walk of a million files.
const FILE_BYTES: u64 = 1400;

/// The least that can be worked with.
const LEAST_BYTES: u64 = 4 << 20;

/// How much is kept in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Blocks of metadata, in bytes.
    pub(super) blocks_bytes: usize,
    /// Requests under way, in bytes, beside what is cached.
    pub(super) requests_bytes: usize,
    /// Files that the kernel may know.
    pub(super) known: usize,
    /// Files that are remembered although the kernel has forgotten them.
    pub(super) remembered: usize,
}

impl Memory {
    /// A third for blocks, half for what the kernel knows, a sixth for what it has forgotten; and beside these caches, a quarter as much for
    /// requests.
    ///
    /// # Errors
    /// The least, if `bytes` are too few.
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
