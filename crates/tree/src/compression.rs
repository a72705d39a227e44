//! Detects the compression of a stream by its first bytes, and decompresses it: gzip, zstd, xz and
//! bzip2.
//!
//! `tar` and `oci::layer` use it. Streams that are concatenated are decompressed one after the
//! other. Bytes behind the last one end the stream, as for gzip and bzip2; [`Behind`] says whether
//! there were any but zeroes. A damaged stream is an error, and so is one that demands a window
//! beyond [`LARGEST_WINDOW`]. The decoders allocate a window as the stream says, and touch only the
//! part that the contents fill.

use std::io::{BufRead, Cursor, Read, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The logarithm of the largest window of a zstd stream, that of `zstd --long=31`, and the largest
/// window of any stream, in bytes.
const LARGEST_WINDOW_LOG: u32 = if usize::BITS < 64 { 30 } else { 31 };
const LARGEST_WINDOW: u64 = 1 << LARGEST_WINDOW_LOG;

/// The bytes that [`Compression::detect`] looks at.
pub(crate) const MAGIC_LEN: usize = 6;

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
    /// `behind` gets to know what follows the last one.
    pub(crate) fn decoder<'a>(
        self,
        stream: impl BufRead + Send + 'a,
        behind: &Behind,
    ) -> Result<Box<dyn Read + Send + 'a>> {
        let rest = Rest {
            head: Cursor::default(),
            stream,
        };
        let decoder = Some(One::new(self, rest)?);
        Ok(Box::new(Decoder {
            compression: self,
            decoder,
            behind: behind.clone(),
        }))
    }
}

/// Whether bytes other than zeroes follow a compressed stream that has been read to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind(Arc<AtomicBool>);

impl Behind {
    pub(crate) fn has_bytes(&self) -> bool {
        // Relaxed: the end of the stream, which the caller has seen, comes after it.
        self.0.load(Ordering::Relaxed)
    }
}

/// Streams of one compression, one after the other.
struct Decoder<R: BufRead> {
    compression: Compression,
    /// `None` after the last one.
    decoder: Option<One<R>>,
    behind: Behind,
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            let Some(mut rest) = self.decoder.take().map(One::into_rest) else {
                break;
            };
            let start = rest.next_start()?;
            if Compression::detect(start) == Some(self.compression) {
                self.decoder = Some(One::new(self.compression, rest)?);
            } else {
                self.behind.0.store(!start.is_empty(), Ordering::Relaxed);
            }
        }
        Ok(0)
    }
}

/// One compressed stream.
enum One<R: BufRead> {
    Gzip(flate2::bufread::GzDecoder<Rest<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Rest<R>>),
    Xz(liblzma::bufread::XzDecoder<Rest<R>>),
    Bzip2(bzip2::bufread::BzDecoder<Rest<R>>),
}

impl<R: BufRead> One<R> {
    fn new(compression: Compression, rest: Rest<R>) -> Result<Self> {
        Ok(match compression {
            Compression::Gzip => Self::Gzip(flate2::bufread::GzDecoder::new(rest)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(rest)?.single_frame();
                decoder.window_log_max(LARGEST_WINDOW_LOG)?;
                Self::Zstd(decoder)
            }
            Compression::Xz => {
                // The decoder needs some memory apart from the dictionary.
                let limit = LARGEST_WINDOW + (1 << 20);
                let decoder = liblzma::stream::Stream::new_stream_decoder(limit, 0)?;
                Self::Xz(liblzma::bufread::XzDecoder::new_stream(rest, decoder))
            }
            Compression::Bzip2 => Self::Bzip2(bzip2::bufread::BzDecoder::new(rest)),
        })
    }

    fn into_rest(self) -> Rest<R> {
        match self {
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
            Self::Xz(decoder) => decoder.into_inner(),
            Self::Bzip2(decoder) => decoder.into_inner(),
        }
    }
}

impl<R: BufRead> Read for One<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
            Self::Xz(decoder) => decoder.read(buf),
            Self::Bzip2(decoder) => decoder.read(buf),
        }
    }
}

/// The bytes that a decoder has not taken, of which the first may have been looked at.
struct Rest<R> {
    head: Cursor<Vec<u8>>,
    stream: R,
}

impl<R: BufRead> Rest<R> {
    /// Passes zeroes, and returns the bytes that follow, without taking them: [`MAGIC_LEN`] of
    /// them, or all if there are fewer.
    fn next_start(&mut self) -> Result<&[u8]> {
        loop {
            let buf = self.fill_buf()?;
            let zeroes = buf.iter().take_while(|byte| **byte == 0).count();
            let is_start = zeroes < buf.len() || buf.is_empty();
            self.consume(zeroes);
            if is_start {
                break;
            }
        }
        let mut head = Vec::new();
        while head.len() < MAGIC_LEN {
            let buf = self.fill_buf()?;
            let some = &buf[..buf.len().min(MAGIC_LEN - head.len())];
            let taken = some.len();
            if taken == 0 {
                break;
            }
            head.extend_from_slice(some);
            self.consume(taken);
        }
        // The rest of the old head is behind the bytes that were taken.
        head.extend_from_slice(&self.head.get_ref()[self.head.position() as usize..]);
        self.head = Cursor::new(head);
        let len = self.head.get_ref().len().min(MAGIC_LEN);
        Ok(&self.head.get_ref()[..len])
    }
}

impl<R: BufRead> Read for Rest<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let read = self.head.read(buf)?;
        if read > 0 || buf.is_empty() {
            Ok(read)
        } else {
            self.stream.read(buf)
        }
    }
}

impl<R: BufRead> BufRead for Rest<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        let is_used = self.head.position() >= self.head.get_ref().len() as u64;
        if is_used {
            self.stream.fill_buf()
        } else {
            self.head.fill_buf()
        }
    }

    fn consume(&mut self, amount: usize) {
        let is_used = self.head.position() >= self.head.get_ref().len() as u64;
        if is_used {
            self.stream.consume(amount)
        } else {
            self.head.consume(amount)
        }
    }
}
