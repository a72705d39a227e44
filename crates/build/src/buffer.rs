//! A buffer that is filled many times.
//!
//! Each thread of `write` collects neighbouring blocks in one and writes them by one call. The
//! bytes that [`Buffer::extend`] returns are old ones: the caller has to fill all of them.

/// Bytes that are appended before they are known.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// Those behind `len` are left from earlier, and need not become zeroes again.
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends `more` bytes of any value, and returns them for the caller to fill.
    pub(crate) fn extend(&mut self, more: usize) -> &mut [u8] {
        let start = self.len;
        let end = self.len + more;
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.len = end;
        &mut self.bytes[start..end]
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.extend(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends zeroes up to a multiple of `unit` bytes.
    pub(crate) fn pad(&mut self, unit: usize) {
        self.extend(self.len.next_multiple_of(unit) - self.len)
            .fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn old_bytes_do_not_come_back_as_padding() {
        let mut buffer = Buffer::default();
        buffer.extend(100).fill(7);
        buffer.clear();
        buffer.extend_from_slice(b"abc");
        buffer.pad(8);
        assert_eq!(buffer.bytes(), b"abc\0\0\0\0\0");
        buffer.pad(8);
        assert_eq!(buffer.len(), 8);
    }
}
