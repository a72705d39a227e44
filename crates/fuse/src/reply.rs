//! Replies: what is sent back, put together.

use extern4_vfs::{Errno, Result};
use zerocopy::{Immutable, IntoBytes};

/// The body of a reply, which follows its header. It is written to where the transport wants it.
pub(crate) struct Body<'a> {
    space: &'a mut [u8],
    len: usize,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing: nobody waits.
    None,
    /// An error, without a body.
    Error(Errno),
    /// Success, with so many bytes of body.
    Body(usize),
}

impl<'a> Body<'a> {
    pub(crate) fn new(space: &'a mut [u8]) -> Self {
        Self { space, len: 0 }
    }

    /// How long it is so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes. `EIO` if there is no room: the kernel asks for no more than it has said it takes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.len + bytes.len();
        self.space.get_mut(self.len..end).ok_or(Errno::EIO)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Appends a structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<()> {
        self.push(value.as_bytes())
    }

    /// Appends up to `max` bytes that `fill` writes and counts.
    pub(crate) fn fill(&mut self, max: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let room = &mut self.space[self.len..];
        let max = max.min(room.len());
        self.len += fill(&mut room[..max])?.min(max);
        Ok(())
    }
}
