//! Contents of files straight from the image, without a detour through this process.
//!
//! Where a file's data stands in the image as it is, the kernel can hand it on by itself: to a pipe without copying, to
//! a file of the same file system perhaps by sharing blocks. Every shortcut may be refused, depending on what the
//! output is; then the data goes the long way.

use std::fs::File;
use std::os::fd::AsFd;

use extern4::{Span, SpanKind};
use rustix::fs::{copy_file_range, sendfile};
use rustix::io::Errno;

use crate::app::Opened;

/// Most bytes to hand on in one call, so that progress shows.
const STEP_BYTES: u64 = 64 << 20;

/// The image file of a volume whose contents stand in it as they are.
pub(crate) struct Raw {
    image: File,
    /// Where the volume starts.
    offset: u64,
    /// How the output takes data.
    way: Way,
}

/// Ways to hand data on, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To a file, perhaps without copying.
    CopyFileRange,
    /// To anything, pages as they are.
    Sendfile,
    /// The output takes neither.
    None,
}

impl Raw {
    /// For a new output.
    pub(crate) fn new(volume: &Opened) -> Option<Self> {
        let offset = volume.volume.image_offset()?;
        let image = File::open(&volume.image.file).ok()?;
        Some(Self { image, offset, way: Way::CopyFileRange })
    }

    /// Hands the next bytes of a span on, from byte `at` of the file on: to where the output stands, or to `to_offset`
    /// of it. Tells how many, none if it has to be done otherwise.
    pub(crate) fn send(
        &mut self,
        span: &Span,
        at: u64,
        len: u64,
        to: impl AsFd,
        to_offset: Option<u64>,
    ) -> rustix::io::Result<u64> {
        let SpanKind::Mapped { device_offset } = span.kind else { return Ok(0) };
        let from = at.checked_sub(span.offset).and_then(|skip| device_offset.checked_add(skip));
        let Some(from) = from.and_then(|from| from.checked_add(self.offset)) else { return Ok(0) };
        let Ok(step) = usize::try_from(len.min(STEP_BYTES)) else { return Ok(0) };
        loop {
            let mut from = from;
            let sent = match self.way {
                Way::CopyFileRange => {
                    let mut to_offset = to_offset;
                    copy_file_range(&self.image, Some(&mut from), to.as_fd(), to_offset.as_mut(), step)
                }
                Way::Sendfile if to_offset.is_none() => {
                    sendfile(to.as_fd(), &self.image, Some(&mut from), step)
                }
                Way::Sendfile | Way::None => return Ok(0),
            };
            match sent {
                // A broken image is for the library to describe.
                Ok(sent) => return Ok(sent as u64),
                Err(Errno::INTR) => {}
                Err(error @ (Errno::PIPE | Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::AGAIN)) => {
                    return Err(error);
                }
                Err(_) => self.way = self.way.next(),
            }
        }
    }
}

impl Way {
    fn next(self) -> Self {
        match self {
            Self::CopyFileRange => Self::Sendfile,
            Self::Sendfile | Self::None => Self::None,
        }
    }
}
