//! Copies contents of files straight from the image, without a detour through this process.
//!
//! Where the image holds a file's data unchanged, the kernel can copy it by itself. It copies to a
//! pipe without copying pages, and to a file of the same file system perhaps by sharing blocks. The
//! kernel may refuse every such call, depending on the output; then this process reads and writes
//! the data.
//!
//! Copies out of volumes and the command `cat` try it for each span. The bytes are the same either
//! way.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use extern4_vfs::{Span, SpanKind};
use rustix::fs::{copy_file_range, sendfile};
use rustix::io::Errno;

use crate::volume::Volume;

/// The limit for the bytes of one call, so that progress shows.
const STEP_BYTES: u64 = 64 << 20;

/// The image file of a volume that holds contents unchanged.
pub struct KernelCopy {
    image: File,
    /// The byte of the file at which the volume starts.
    offset: u64,
    /// The call that the output accepts.
    call: CopyCall,
}

/// The calls that copy data, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyCall {
    /// copy_file_range(2): to a file, perhaps without copying.
    CopyFileRange,
    /// sendfile(2): to any output, pages as they are.
    Sendfile,
    /// The output accepts neither call.
    None,
}

impl KernelCopy {
    /// Opens the image for a new output. Returns `None` if the kernel cannot copy from it.
    pub fn new(volume: &Volume) -> Option<Self> {
        let offset = volume.image_offset()?;
        let image = File::open(volume.image_file()?).ok()?;
        Some(Self {
            image,
            offset,
            call: CopyCall::CopyFileRange,
        })
    }

    /// Copies the next bytes of a span, from byte `at` of the file on. They go to the output's
    /// current position, or to its byte `to_offset`. Returns the number of bytes; zero if the
    /// caller has to copy otherwise.
    ///
    /// # Errors
    /// The error of the output, such as `ENOSPC` or `EPIPE`.
    pub fn send(
        &mut self,
        span: &Span,
        at: u64,
        len: u64,
        to: impl AsFd,
        to_offset: Option<u64>,
    ) -> io::Result<u64> {
        let SpanKind::Mapped { device_offset } = span.kind else {
            return Ok(0);
        };
        let from = at
            .checked_sub(span.offset)
            .and_then(|skip| device_offset.checked_add(skip));
        let Some(from) = from.and_then(|from| from.checked_add(self.offset)) else {
            return Ok(0);
        };
        let Ok(step) = usize::try_from(len.min(STEP_BYTES)) else {
            return Ok(0);
        };
        loop {
            let mut from = from;
            let sent = match self.call {
                CopyCall::CopyFileRange => {
                    let mut to_offset = to_offset;
                    copy_file_range(
                        &self.image,
                        Some(&mut from),
                        to.as_fd(),
                        to_offset.as_mut(),
                        step,
                    )
                }
                CopyCall::Sendfile if to_offset.is_none() => {
                    sendfile(to.as_fd(), &self.image, Some(&mut from), step)
                }
                CopyCall::Sendfile | CopyCall::None => return Ok(0),
            };
            match sent {
                // The library reports a broken image, so an early end is no error here.
                Ok(sent) => return Ok(sent as u64),
                Err(Errno::INTR) => {}
                Err(
                    error
                    @ (Errno::PIPE | Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::AGAIN),
                ) => {
                    return Err(error.into());
                }
                Err(_) => self.call = self.call.next(),
            }
        }
    }
}

impl CopyCall {
    fn next(self) -> Self {
        match self {
            Self::CopyFileRange => Self::Sendfile,
            Self::Sendfile | Self::None => Self::None,
        }
    }
}
