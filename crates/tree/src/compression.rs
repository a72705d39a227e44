//! Compressed streams.

use std::io::{BufRead, Read, Result};

/// The largest dictionary of an xz stream and window of a zstd stream, in bytes.
const LARGEST_WINDOW: u64 = 128 << 20;

/// How a stream is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl Compression {
    /// Finds the compression by the first bytes of a stream.
    pub(crate) fn detect(start: &[u8]) -> Option<Self> {
        match start {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            // A frame to skip, which stands at the head of a zstd stream of several frames.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bzip2),
            _ => None,
        }
    }

    /// Decompresses a stream, whose parts may have been compressed one by one.
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
