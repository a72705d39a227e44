//! Replies: the bytes that go back to the kernel.
//!
//! A handler appends to a [`Body`], in the buffer of the transport, and `Server` puts the header in
//! front. A reply never exceeds the space that the kernel offers: an append that would fails with
//! `EIO`. Large contents may go through an [`Outlet`] without a copy. A reply is sent whole, or the
//! kernel gets an error in its place.

use extern4_vfs::{Errno, Lent, Result, Take};
use zerocopy::{Immutable, IntoBytes};

/// The body of a reply, which follows its header. The server writes it to the buffer that the
/// transport supplies.
pub(crate) struct Body<'a> {
    space: &'a mut [u8],
    len: usize,
    outlet: Option<&'a mut dyn Outlet>,
    is_sent: bool,
}

/// The path of a transport on which a large body goes to the kernel without a copy by the server.
pub(crate) trait Outlet {
    /// Sends the whole reply to request `unique`, with a header. After the return, the lent memory
    /// is not used any more. Returns false if the reply was not sent; then the request has no
    /// answer yet, except perhaps an error.
    fn send(&mut self, unique: u64, body: &[Lent<'_>]) -> bool;
}

/// Bytes from which a body is lent. A shorter body is copied: to find its place and to pass that on
/// takes as long as to copy it.
const LENT_BYTES: usize = 32 << 10;

/// The answer to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No answer: the kernel does not wait for one, or the outlet has sent it.
    None,
    /// An error, without a body.
    Error(Errno),
    /// Success, with this many bytes of body.
    Body(usize),
}

impl<'a> Body<'a> {
    pub(crate) fn new(space: &'a mut [u8], outlet: Option<&'a mut dyn Outlet>) -> Self {
        Self {
            space,
            len: 0,
            outlet,
            is_sent: false,
        }
    }

    /// Returns whether the outlet has sent the whole reply.
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Sends the reply to request `unique` with a body of up to `max` bytes that `lend` lends.
    /// Returns false if it cannot: then the caller has to [`fill`](Self::fill) it.
    pub(crate) fn send_lent(
        &mut self,
        unique: u64,
        max: usize,
        lend: impl FnOnce(&mut Take<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let Some(outlet) = self.outlet.as_mut().filter(|_| max >= LENT_BYTES) else {
            return Ok(false);
        };
        self.is_sent = lend(&mut |pieces| {
            let len: usize = pieces.iter().map(Lent::len_bytes).sum();
            (LENT_BYTES..=max).contains(&len) && outlet.send(unique, pieces)
        })?;
        Ok(self.is_sent)
    }

    /// Returns the length so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes. `EIO` if there is no room. A kernel without faults asks for no more than the
    /// agreed size.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.len + bytes.len();
        self.space
            .get_mut(self.len..end)
            .ok_or(Errno::EIO)?
            .copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Appends a structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<()> {
        self.push(value.as_bytes())
    }

    /// Appends up to `max` bytes that `fill` writes and counts.
    pub(crate) fn fill(
        &mut self,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize>,
    ) -> Result<()> {
        let room = &mut self.space[self.len..];
        let max = max.min(room.len());
        self.len += fill(&mut room[..max])?.min(max);
        Ok(())
    }
}
