//! The contents of a block.

use std::alloc::Layout;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;

use super::{SlabBox, take};

/// Bytes in memory that is kept when they end.
pub type Bytes = SlabBox<[u8]>;

impl Bytes {
    /// So many zeroes.
    pub fn zeroed(len: usize) -> Self {
        let mut room = room(len);
        room.fill(MaybeUninit::new(0));
        // SAFETY: all of them have been written.
        unsafe { room.assume_init() }.into()
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        let mut room = room(bytes.len());
        room.write_copy_of_slice(bytes);
        // SAFETY: as above.
        unsafe { room.assume_init() }.into()
    }
}

/// Memory for so many bytes, some that was kept if there is any.
fn room(len: usize) -> Box<[MaybeUninit<u8>]> {
    let kept = Layout::array::<u8>(len).ok().and_then(take);
    kept.map_or_else(
        || Box::new_uninit_slice(len),
        |at| {
            let bytes = ptr::slice_from_raw_parts_mut(at.cast().as_ptr(), len);
            // SAFETY: the memory is nobody else's, and the global allocator has given it out for so many bytes.
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
    /// None.
    fn default() -> Self {
        Box::<[u8]>::default().into()
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
