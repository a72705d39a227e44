//! A device that counts the bytes written to it.
//!
//! `ext4` wraps each volume's device in one, for the lifetime counter of writes in the superblock.
//! The count includes requests that fail later, and may lag behind a request that is under way. It
//! costs a writer no access to memory that threads share.

use std::ops::Range;
use std::sync::Arc;

use extern4_sync::thread_counter::ThreadCounter;

use super::BlockDevice;
use super::wrapper::DeviceWrapper;
use crate::{Op, Result};

/// A device, and how many bytes have been written to it. To count, a thread writes no memory that
/// threads share.
#[derive(Debug)]
pub struct CountedDevice {
    base: Arc<dyn BlockDevice>,
    written: ThreadCounter<1>,
}

impl CountedDevice {
    /// Returns a device that counts the bytes written to `base` from now on.
    pub fn new(base: Arc<dyn BlockDevice>) -> Self {
        Self {
            base,
            written: ThreadCounter::new(),
        }
    }

    /// Returns the number of bytes that have been written, zeroes included.
    pub fn bytes_written(&self) -> u64 {
        let [bytes] = self.written.sum();
        bytes
    }
}

impl DeviceWrapper for CountedDevice {
    type Inner = dyn BlockDevice;

    fn inner(&self) -> &Self::Inner {
        &*self.base
    }

    fn before_request(&self, op: Op, range: Range<u64>) -> Result<()> {
        if matches!(op, Op::Write | Op::WriteZeroes) {
            self.written.add([range.end.saturating_sub(range.start)]);
        }
        Ok(())
    }
}
