//! A device that another one can replace while it is in use.
//!
//! `ext4` opens a volume for reading on one, so that a remount can make the volume writable later.
//! The replacement happens once. A request goes to the first device or to the second as a whole.
//! The caller ensures that both have the same bytes.

use std::sync::{Arc, OnceLock};

use super::BlockDevice;
use super::wrapper::DeviceWrapper;

/// A device, and later a second one that replaces it and holds the same bytes. So a volume that is
/// open for reading can become writable without being opened again.
#[derive(Debug)]
pub struct SuccessiveDevice {
    first: Arc<dyn BlockDevice>,
    /// The first device stays, because a reader may still be using it.
    second: OnceLock<Arc<dyn BlockDevice>>,
}

impl SuccessiveDevice {
    /// Returns a device that passes requests to `first`.
    pub fn new(first: Arc<dyn BlockDevice>) -> Self {
        Self {
            first,
            second: OnceLock::new(),
        }
    }

    /// Passes requests to `second` from now on. The caller ensures that it has the bytes and the
    /// size of the first device. Returns false, and changes nothing, if there is a second device
    /// already.
    pub fn follow(&self, second: Arc<dyn BlockDevice>) -> bool {
        self.second.set(second).is_ok()
    }
}

impl DeviceWrapper for SuccessiveDevice {
    type Inner = dyn BlockDevice;

    fn inner(&self) -> &Self::Inner {
        &**self.second.get().unwrap_or(&self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn one_device_follows_another_once() {
        let memory = |byte| Arc::new(MemoryDevice::new(vec![byte; 512]));
        let device = SuccessiveDevice::new(Arc::new(MemoryDevice::read_only(vec![1; 512])));
        let first = || {
            let mut byte = [0];
            device.read_at(&mut byte, 0).expect("it is read");
            byte[0]
        };
        assert!(device.is_read_only() && device.write_at(&[5], 0).is_err());
        assert_eq!(first(), 1);
        let second = memory(2);
        assert!(device.follow(second.clone()) && !device.follow(memory(3)));
        assert!(!device.is_read_only());
        assert_eq!(first(), 2);
        device.write_at(&[4], 0).expect("it is written");
        assert_eq!(first(), 4);
        drop(device);
        assert_eq!(
            Arc::into_inner(second)
                .expect("no other has it")
                .into_bytes()[0],
            4
        );
    }
}
