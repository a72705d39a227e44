//! The contents of a block.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use super::{keep, take};

/// Bytes in memory that is kept when they end.
pub struct Bytes {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are the value's own, as those of a `Box<[u8]>` are.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// So many zeroes.
    pub fn zeroed(len: usize) -> Self {
        Self::filled(len, |at| {
            // SAFETY: there is room for `len` bytes.
            unsafe { at.write_bytes(0, len) };
        })
    }

    /// So many bytes, all of which `fill` writes.
    fn filled(len: usize, fill: impl FnOnce(NonNull<u8>)) -> Self {
        if len == 0 {
            return Self::default();
        }
        let layout = Self::layout(len);
        let at = take(layout).unwrap_or_else(|| {
            // SAFETY: the layout is of some bytes.
            NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
        });
        fill(at);
        Self { at, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, align_of::<usize>()).expect("no longer than memory is")
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let layout = Self::layout(self.len);
        if self.len > 0 && !keep(self.at, layout) {
            // SAFETY: the global allocator has given it out for this layout, and nobody else has it.
            unsafe { dealloc(self.at.as_ptr(), layout) };
        }
    }
}

impl Default for Bytes {
    /// None.
    fn default() -> Self {
        Self { at: NonNull::dangling(), len: 0 }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self::filled(bytes.len(), |at| {
            // SAFETY: there is room for as many, in memory that is nobody else's.
            unsafe { at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        })
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Self {
        (&**self).into()
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes were written there when the value was made.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for Bytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has the value.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
