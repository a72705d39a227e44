//! Reserved blocks, and what a change demands of the free ones.
//!
//! [`BlockReserve`] is what the superblock and the open options keep from changes. A change names a
//! [`Demand`], which [`BlockAllocator::reserve`] meets before the change begins.
//!
//! [`BlockAllocator::reserve`]: crate::alloc::block_allocator::BlockAllocator::reserve

use extern4_disk::feature::Incompat;
use extern4_disk::superblock::Superblock;
use extern4_vfs::SpaceRights;

/// Free blocks that not every change may allocate.
#[derive(Clone, Copy)]
pub(crate) struct BlockReserve {
    /// For changes that must not fail on a full volume, such as splitting an unwritten extent that
    /// is written to.
    pub(crate) for_metadata: u64,
    /// The sum of those and the blocks that only privileged users may allocate.
    pub(crate) in_all: u64,
}

impl BlockReserve {
    /// Returns the reserved blocks of the volume, with `reserved_clusters` for metadata; `None` for
    /// as many as Linux reserves.
    pub(crate) fn of(sb: &Superblock, reserved_clusters: Option<u64>) -> Self {
        let shift = sb.geometry().cluster_shift();
        let clusters = reserved_clusters.unwrap_or_else(|| {
            if sb.features().incompat.contains(Incompat::EXTENTS) {
                (sb.blocks_count() >> shift).div_euclid(50).min(4096)
            } else {
                0
            }
        });
        let for_metadata = clusters.saturating_mul(1 << shift);
        Self {
            for_metadata,
            in_all: sb.reserved_blocks().saturating_add(for_metadata),
        }
    }

    /// Returns how many blocks a change must leave free.
    pub(crate) fn to_leave(self, reserve: ReserveUse) -> u64 {
        match reserve {
            ReserveUse::None => self.in_all,
            ReserveUse::Root => self.for_metadata,
            ReserveUse::All => 0,
        }
    }
}

/// Which reserved blocks a change may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveUse {
    /// None of them.
    None,
    /// Blocks that are reserved for root.
    Root,
    /// All, for changes that must not fail on a full volume. They use or free space that is
    /// allocated already, and may need a block or two to record it.
    All,
}

impl From<SpaceRights> for ReserveUse {
    fn from(rights: SpaceRights) -> Self {
        if rights.root_reserve {
            Self::Root
        } else {
            Self::None
        }
    }
}

/// The blocks that a change reserves before it starts.
#[derive(Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) blocks: u32,
    pub(crate) reserve: ReserveUse,
}

impl Demand {
    pub(crate) fn new(blocks: u32, reserve: impl Into<ReserveUse>) -> Self {
        Self {
            blocks,
            reserve: reserve.into(),
        }
    }
}

/// The demand of a change by the file system itself, which may use root's reserve.
impl From<u32> for Demand {
    fn from(blocks: u32) -> Self {
        Self::new(blocks, ReserveUse::Root)
    }
}
