//! Detects the compression of a stream by its first bytes, and decompresses it: gzip, zstd, xz and
//! bzip2.
//!
//! `tar` and `oci::layer` use it. A decoder uses bounded memory: a stream that demands a dictionary
//! or window beyond [`LARGEST_WINDOW`] is an error, and so is a damaged one. Streams that are
//! concatenated are decompressed one after the other.

use std::io::{BufRead, Read, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The largest dictionary of an xz stream and window of a zstd stream, in bytes.
const LARGEST_WINDOW: u64 = 128 << 20;

/// The format of a compressed stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// That of `gzip`.
    Gzip,
    /// That of `zstd`.
    Zstd,
    /// That of `xz`.
    Xz,
    /// That of `bzip2`.
    Bzip2,
}

impl Compression {
    /// Returns the compression of a stream by its first bytes; `None` if it is not compressed.
    pub(crate) fn detect(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A skippable frame, with which a zstd stream of several frames can start.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Returns the compression that the suffix of an archive's name stands for, as in GNU tar.
    pub fn of_name(name: &Path) -> Option<Self> {
        match name.extension()?.as_bytes() {
            b"gz" | b"tgz" | b"taz" => Some(Self::Gzip),
            b"zst" | b"tzst" => Some(Self::Zstd),
            b"xz" | b"txz" => Some(Self::Xz),
            b"bz2" | b"tbz" | b"tbz2" | b"tz2" => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Returns a reader of the decompressed stream, which may consist of several compressed ones.
    pub(crate) fn decoder<'a>(self, stream: impl BufRead + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(stream)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(stream)?;
                decoder.window_log_max(LARGEST_WINDOW.ilog2())?;
                Box::new(decoder)
            }
            Self::Xz => {
                // The decoder needs some memory apart from the dictionary.
                let limit = LARGEST_WINDOW + (1 << 20);
                let flags = liblzma::stream::CONCATENATED;
                let decoder = liblzma::stream::Stream::new_stream_decoder(limit, flags)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(stream, decoder))
            }
            Self::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(stream)),
        })
    }
}
