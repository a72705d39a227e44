//! [`TarWriter`]: writes entries as a PAX archive, plain or compressed.
//!
//! `oci::write` and the library's modules `export` and `tar` use it. The caller passes entries in
//! order, and a function that reads contents. Equal entries give equal bytes. Numbers and names
//! that a header has no room for go to extended headers. A socket cannot be in an archive and is
//! reported to the caller.

use std::io::{self, Write};

use super::{BLOCK, PROJECT, file_flags};
use crate::acl::Acl;
use crate::compression::Compression;
use crate::entry::{Contents, Data, Entry, Kind, Time};
use crate::error::{Error, Result, shown};

/// The level of `xz`.
const XZ_LEVEL: u32 = 6;

/// How many bytes of a file are read at a time.
const BUFFER: usize = 256 << 10;

/// The largest numbers of eleven and of seven octal digits.
const LARGEST_11: u64 = (1 << 33) - 1;
const LARGEST_7: u64 = (1 << 21) - 1;

/// Writes entries as a PAX archive: equal entries give equal bytes.
///
/// Extended attributes become records `SCHILY.xattr`, ACLs and SELinux labels also their own
/// records, inode flags `SCHILY.fflags`, and files with holes have GNU tar's form 1.0. A project
/// has a record of this program, which others pass over.
pub struct TarWriter<W: Write> {
    out: Output<W>,
    buf: Vec<u8>,
}

enum Output<W: Write> {
    Plain(W),
    Gzip(flate2::write::GzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
    Xz(liblzma::write::XzEncoder<W>),
    Bzip2(bzip2::write::BzEncoder<W>),
}

impl<W: Write> Output<W> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(bytes),
            Self::Gzip(out) => out.write_all(bytes),
            Self::Zstd(out) => out.write_all(bytes),
            Self::Xz(out) => out.write_all(bytes),
            Self::Bzip2(out) => out.write_all(bytes),
        }
    }
}

/// Fills the buffer with bytes of a file from an offset on. It is not called for holes.
pub type ReadContents<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>;

impl<W: Write> TarWriter<W> {
    /// Writes a plain archive.
    pub fn new(out: W) -> Self {
        Self {
            out: Output::Plain(out),
            buf: Vec::new(),
        }
    }

    /// Writes an archive that is compressed with zstd. Level 0 is zstd's default.
    ///
    /// # Errors
    /// A level that zstd does not have.
    pub fn zstd(out: W, level: i32) -> io::Result<Self> {
        let encoder = zstd::stream::write::Encoder::new(out, level)?;
        Ok(Self {
            out: Output::Zstd(encoder),
            buf: Vec::new(),
        })
    }

    /// Writes an archive that is compressed as the compression's own program does by default.
    ///
    /// # Errors
    /// The error of the compressor.
    pub fn compressed(out: W, compression: Compression) -> io::Result<Self> {
        let out = match compression {
            Compression::Gzip => Output::Gzip(flate2::write::GzEncoder::new(
                out,
                flate2::Compression::default(),
            )),
            Compression::Zstd => return Self::zstd(out, 0),
            Compression::Xz => Output::Xz(liblzma::write::XzEncoder::new(out, XZ_LEVEL)),
            Compression::Bzip2 => Output::Bzip2(bzip2::write::BzEncoder::new(
                out,
                bzip2::Compression::best(),
            )),
        };
        Ok(Self {
            out,
            buf: Vec::new(),
        })
    }

    /// Writes an entry and the contents that `read` returns. Returns false for a socket, which an
    /// archive cannot have.
    ///
    /// # Errors
    /// The error of `out` or of reading the contents; `InvalidInput` for what no archive can hold.
    pub fn append(&mut self, entry: &Entry, read: ReadContents<'_>) -> Result<bool> {
        let error = |error| Error::io(shown(&entry.path), error);
        let Some(member) = Member::new(entry) else {
            return Ok(false);
        };
        if !member.records.is_empty() {
            let records = &member.records;
            self.out
                .write_all(&extended(entry, records.len() as u64))
                .map_err(error)?;
            self.out.write_all(records).map_err(error)?;
            self.pad(records.len() as u64).map_err(error)?;
        }
        self.out.write_all(&member.header).map_err(error)?;
        self.out.write_all(&member.map).map_err(error)?;
        let mut written = 0;
        for (offset, len) in &member.pieces {
            self.copy(*offset, *len, read).map_err(error)?;
            written += len;
        }
        self.pad(written).map_err(error)?;
        Ok(true)
    }

    /// Writes the end of the archive and returns the output.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        match self.out {
            Output::Plain(mut out) => out.flush().map(|()| out),
            Output::Gzip(encoder) => encoder.finish(),
            Output::Zstd(encoder) => encoder.finish(),
            Output::Xz(encoder) => encoder.finish(),
            Output::Bzip2(encoder) => encoder.finish(),
        }
    }

    fn copy(&mut self, mut offset: u64, len: u64, read: ReadContents<'_>) -> io::Result<()> {
        let end = offset + len;
        while offset < end {
            let part = usize::try_from(end - offset).unwrap_or(BUFFER).min(BUFFER);
            if self.buf.len() < part {
                self.buf.resize(part, 0);
            }
            read(offset, &mut self.buf[..part])?;
            self.out.write_all(&self.buf[..part])?;
            offset += part as u64;
        }
        Ok(())
    }

    fn pad(&mut self, len: u64) -> io::Result<()> {
        let over = (len % BLOCK as u64) as usize;
        if over == 0 {
            Ok(())
        } else {
            self.out.write_all(&[0; BLOCK][over..])
        }
    }
}

/// The bytes that are written for an entry.
struct Member {
    records: Vec<u8>,
    header: [u8; BLOCK],
    /// The map of a file with holes.
    map: Vec<u8>,
    /// The parts of the contents: offset and length.
    pieces: Vec<(u64, u64)>,
}

impl Member {
    /// Returns the bytes for an entry, without its contents; `None` for a socket.
    fn new(entry: &Entry) -> Option<Self> {
        let mut member = Self {
            records: Vec::new(),
            header: [0; BLOCK],
            map: Vec::new(),
            pieces: Vec::new(),
        };
        let mut name = if entry.path.is_empty() {
            b".".to_vec()
        } else {
            entry.path.clone()
        };
        let mut link = &b""[..];
        let mut size = 0;
        let mut device = (0, 0);
        let mut sparse = None;
        let kind = match &entry.kind {
            Kind::Directory => {
                name.push(b'/');
                b'5'
            }
            Kind::File(contents) => {
                (size, sparse) = member.contents(contents);
                b'0'
            }
            Kind::Symlink(target) => {
                link = target;
                b'2'
            }
            Kind::HardLink(target) => {
                link = target;
                b'1'
            }
            Kind::CharDevice { major, minor } => {
                device = (*major, *minor);
                b'3'
            }
            Kind::BlockDevice { major, minor } => {
                device = (*major, *minor);
                b'4'
            }
            Kind::Fifo => b'6',
            Kind::Socket => return None,
        };
        member.names(&name, link, sparse);
        if sparse.is_some() {
            let base = entry
                .path
                .rsplit(|byte| *byte == b'/')
                .next()
                .unwrap_or_default();
            name = [b"GNUSparseFile.0/", base].concat();
        }
        member.numbers(entry, size);
        if kind != b'1' {
            member.flags(entry);
            member.xattrs(entry);
        }
        let mut header = Header::new(kind, &name);
        header.text(157..257, link);
        header.number(100..107, u64::from(entry.mode));
        header.number(108..115, within(entry.uid.into(), LARGEST_7));
        header.number(116..123, within(entry.gid.into(), LARGEST_7));
        header.number(124..135, within(size, LARGEST_11));
        header.number(
            136..147,
            u64::try_from(entry.mtime.secs).unwrap_or(0).min(LARGEST_11),
        );
        header.number(329..336, within(device.0.into(), LARGEST_7));
        header.number(337..344, within(device.1.into(), LARGEST_7));
        member.header = header.finish();
        Some(member)
    }

    /// Sets the pieces and the map of a file. Returns how many bytes are written for it, and its
    /// size if it has holes.
    fn contents(&mut self, contents: &Contents) -> (u64, Option<u64>) {
        let size = contents.size;
        let Data::Pieces(pieces) = &contents.data else {
            self.pieces = vec![(0, size)];
            return (size, None);
        };
        let mut end = 0;
        for piece in pieces {
            match self.pieces.last_mut() {
                Some(last) if end == piece.offset => last.1 += piece.len,
                _ => self.pieces.push((piece.offset, piece.len)),
            }
            end = piece.offset + piece.len;
        }
        if self.pieces == [(0, size)] {
            return (size, None);
        }
        let mut map = self.pieces.clone();
        // An empty piece at the end gives the size of a file that ends in a hole.
        if end < size || map.is_empty() {
            map.push((size, 0));
        }
        let numbers = map.iter().flat_map(|(offset, len)| [*offset, *len]);
        for number in [map.len() as u64].into_iter().chain(numbers) {
            self.map.extend(format!("{number}\n").bytes());
        }
        self.map.resize(self.map.len().next_multiple_of(BLOCK), 0);
        let stored: u64 = self.pieces.iter().map(|(_, len)| len).sum();
        (self.map.len() as u64 + stored, Some(size))
    }

    fn names(&mut self, name: &[u8], link: &[u8], sparse: Option<u64>) {
        if let Some(size) = sparse {
            self.record(b"GNU.sparse.major", b"1");
            self.record(b"GNU.sparse.minor", b"0");
            self.record(b"GNU.sparse.name", name);
            self.record(b"GNU.sparse.realsize", size.to_string().as_bytes());
        } else if name.len() > 100 {
            self.record(b"path", name);
        }
        if link.len() > 100 {
            self.record(b"linkpath", link);
        }
    }

    /// Adds records for the numbers that the header's fields cannot hold.
    fn numbers(&mut self, entry: &Entry, size: u64) {
        if size > LARGEST_11 {
            self.record(b"size", size.to_string().as_bytes());
        }
        for (key, id) in [(&b"uid"[..], entry.uid), (b"gid", entry.gid)] {
            if u64::from(id) > LARGEST_7 {
                self.record(key, id.to_string().as_bytes());
            }
        }
        let Time { secs, nanos } = entry.mtime;
        if nanos != 0 || !(0..=LARGEST_11.cast_signed()).contains(&secs) {
            self.record(b"mtime", time(entry.mtime).as_bytes());
        }
    }

    fn xattrs(&mut self, entry: &Entry) {
        for (name, value) in &entry.xattrs {
            let acl = || Acl::from_xattr(value).map(|acl| acl.to_text());
            let own = match &name[..] {
                b"system.posix_acl_access" => {
                    acl().map(|text| (&b"SCHILY.acl.access"[..], text.into_bytes()))
                }
                b"system.posix_acl_default" => {
                    acl().map(|text| (&b"SCHILY.acl.default"[..], text.into_bytes()))
                }
                b"security.selinux" => {
                    let label = value.strip_suffix(b"\0").unwrap_or(value);
                    Some((&b"RHT.security.selinux"[..], label.to_vec()))
                }
                _ => None,
            };
            if let Some((key, value)) = own {
                self.record(key, &value);
            }
            self.record(&[&b"SCHILY.xattr."[..], &escape(name)].concat(), value);
        }
    }

    fn flags(&mut self, entry: &Entry) {
        let flags = file_flags::names(entry.flags.unwrap_or_default());
        if !flags.is_empty() {
            self.record(b"SCHILY.fflags", &flags);
        }
        if let Some(project) = entry.project.filter(|project| *project != 0) {
            self.record(PROJECT, project.to_string().as_bytes());
        }
    }

    /// Adds a record: its length, which counts its own digits, the key and the value.
    fn record(&mut self, key: &[u8], value: &[u8]) {
        let bare = key.len() + value.len() + 3;
        let mut length = bare + 1;
        while length != bare + length.to_string().len() {
            length = bare + length.to_string().len();
        }
        self.records.extend(format!("{length} ").bytes());
        self.records.extend_from_slice(key);
        self.records.push(b'=');
        self.records.extend_from_slice(value);
        self.records.push(b'\n');
    }
}

/// Returns `number`, or 0 if it is too large for its field, because a record has it then.
fn within(number: u64, largest: u64) -> u64 {
    if number > largest { 0 } else { number }
}

/// Returns the header of a member's records.
fn extended(entry: &Entry, size: u64) -> [u8; BLOCK] {
    let base = entry
        .path
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    let mut header = Header::new(b'x', &[b"PaxHeaders/", base].concat());
    header.number(100..107, 0o644);
    for field in [108..115, 116..123, 136..147] {
        header.number(field, 0);
    }
    header.number(124..135, size);
    header.finish()
}

/// Returns seconds with a fraction, in decimal digits.
fn time(Time { secs, nanos }: Time) -> String {
    let whole = i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    let (sign, whole) = if whole < 0 {
        ("-", -whole)
    } else {
        ("", whole)
    };
    let secs = whole / 1_000_000_000;
    let nanos = whole % 1_000_000_000;
    if nanos == 0 {
        return format!("{sign}{secs}");
    }
    format!("{sign}{secs}.{nanos:09}")
        .trim_end_matches('0')
        .to_owned()
}

/// Escapes the characters that a key cannot have, as GNU tar does.
fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'=' => escaped.extend_from_slice(b"%3D"),
            b'%' => escaped.extend_from_slice(b"%25"),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// A header under construction.
struct Header([u8; BLOCK]);

impl Header {
    fn new(kind: u8, name: &[u8]) -> Self {
        let mut header = Self([0; BLOCK]);
        header.text(0..100, name);
        header.0[156] = kind;
        header.text(257..265, b"ustar\x0000");
        header
    }

    /// Sets a text, cut off at the field's end.
    fn text(&mut self, field: std::ops::Range<usize>, text: &[u8]) {
        let field = &mut self.0[field];
        let len = text.len().min(field.len());
        field[..len].copy_from_slice(&text[..len]);
    }

    /// Sets a number in octal digits, which fill the field.
    fn number(&mut self, field: std::ops::Range<usize>, number: u64) {
        let width = field.len();
        self.text(field, format!("{number:0width$o}").as_bytes());
    }

    fn finish(mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        self.number(148..154, sum);
        self.0[154] = 0;
        self.0
    }
}

#[cfg(test)]
mod tests;
