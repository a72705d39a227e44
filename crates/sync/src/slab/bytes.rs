//! Byte buffers in cached memory: the contents of blocks.
//!
//! `block` takes one for each block that it reads or copies. Each byte is set when a buffer is
//! made, so no bytes of its last user show. Its memory returns to the slab cache when it is
//! dropped.

use std::alloc::Layout;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;

use super::{SlabBox, take};

/// A byte buffer whose memory returns to the slab cache.
pub type Bytes = SlabBox<[u8]>;

impl Bytes {
    /// Returns `len` zeroes.
    pub fn zeroed(len: usize) -> Self {
        let mut bytes = uninit(len);
        bytes.fill(MaybeUninit::new(0));
        // SAFETY: all bytes have been written.
        unsafe { bytes.assume_init() }.into()
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        let mut copy = uninit(bytes.len());
        copy.write_copy_of_slice(bytes);
        // SAFETY: as above.
        unsafe { copy.assume_init() }.into()
    }
}

/// Returns memory for `len` bytes, from the cache if it has an object of that size.
fn uninit(len: usize) -> Box<[MaybeUninit<u8>]> {
    let kept = Layout::array::<u8>(len).ok().and_then(take);
    kept.map_or_else(
        || Box::new_uninit_slice(len),
        |at| {
            let bytes = ptr::slice_from_raw_parts_mut(at.cast().as_ptr(), len);
            // SAFETY: the memory has no other user, and came from the global allocator for `len`
            // bytes.
            unsafe { Box::from_raw(bytes) }
        },
    )
}

impl Clone for Bytes {
    fn clone(&self) -> Self {
        (&**self).into()
    }
}

impl Default for Bytes {
    /// Returns no bytes.
    fn default() -> Self {
        Box::<[u8]>::default().into()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
