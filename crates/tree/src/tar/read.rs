//! [`Reader`]: reads the members of an archive one after the other.
//!
//! `TarSource::scan` and `oci::layer` call [`Reader::next`] until the end, and then
//! [`Reader::finish`]. It joins headers, extended headers and GNU's long names to an entry, and
//! keeps its contents for later. Each error has the member's name and its offset. Oddities that
//! other programs accept, such as leading slashes or unknown types, are warnings.

use super::header::{Form, Header};
use super::pax::{self, Extended, Record};
use super::{BLOCK, Input, sparse};
use crate::entry::{Contents, Data, Entry, Kind, Time};
use crate::error::{Error, Result, shown};
use crate::path;

/// The largest size of a file in Linux.
const LARGEST_FILE: u64 = i64::MAX as u64;

/// The mode of symbolic links, which Linux neither checks nor changes.
const SYMLINK_MODE: u16 = 0o777;

/// A member of an archive.
pub(crate) struct Member {
    pub(crate) entry: Entry,
    /// The offset of its first header.
    pub(crate) position: u64,
}

/// Reads an archive.
pub(crate) struct Reader<'a> {
    input: Input<'a>,
    globals: Vec<Record>,
    /// The offset of the current member's first header.
    start: u64,
    /// The current member's path, for messages.
    member: Vec<u8>,
    warned: Warned,
}

/// Warnings that are given once for an archive, and have been given.
#[derive(Default)]
struct Warned {
    absolute: bool,
    absolute_link: bool,
}

/// The contents of the blocks before a member's header.
#[derive(Default)]
struct Before {
    /// Names of GNU's form.
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    extended: Extended,
}

type Warn<'w> = &'w mut dyn FnMut(String);

/// Adds the archive and the position of a member to a sink's error about it.
pub(crate) fn placed(error: Error, archive: &str, position: u64) -> Error {
    let (member, reason) = match error {
        Error::Refused { path, reason } => (path, reason),
        Error::NoTarget { path, target } => (
            path,
            format!("the target '{target}' of the hard link does not exist"),
        ),
        other => return other,
    };
    Error::Member {
        archive: archive.to_owned(),
        member,
        position,
        reason,
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: Input<'a>) -> Self {
        Self {
            input,
            globals: Vec::new(),
            start: 0,
            member: Vec::new(),
            warned: Warned::default(),
        }
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        let archive = self.input.name.to_owned();
        let position = self.start;
        let reason = reason.into();
        match &self.member[..] {
            b"" => Error::Archive {
                archive,
                position,
                reason,
            },
            member => Error::Member {
                archive,
                member: shown(member),
                position,
                reason,
            },
        }
    }

    /// Adds the current member to an error of the input.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::Archive { reason, .. }) => Err(self.error(reason)),
            result => result,
        }
    }

    /// Reads what follows the last member.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.member.clear();
        self.input.drain()
    }

    /// Returns the next member; `None` at the archive's end.
    pub(crate) fn next(&mut self, warn: Warn<'_>) -> Result<Option<Member>> {
        while let Some(member) = self.any(warn)? {
            // GNU tar writes such a link for a file that it was given twice.
            let entry = &member.entry;
            if matches!(&entry.kind, Kind::HardLink(target) if *target == entry.path) {
                let archive = self.input.name;
                let path = shown(&entry.path);
                warn(format!(
                    "{archive}: member '{path}': a hard link to itself is left out"
                ));
                continue;
            }
            return Ok(Some(member));
        }
        Ok(None)
    }

    /// Returns the next member, even if it is a hard link to itself.
    fn any(&mut self, warn: Warn<'_>) -> Result<Option<Member>> {
        self.start = self.input.taken();
        self.member.clear();
        let mut before = Before::default();
        for (key, value) in &self.globals {
            // An error of a global record was reported when its header was read.
            let _ = before.extended.apply(key, value, true);
        }
        let mut waits = false;
        while let Some(header) = self.header(warn)? {
            waits = !matches!(header.kind(), b'g' | b'V');
            match header.kind() {
                b'x' | b'X' => {
                    for (key, value) in self.records(&header)? {
                        before
                            .extended
                            .apply(&key, &value, false)
                            .map_err(|reason| self.error(reason))?;
                    }
                }
                b'g' => self.global(&header, &mut before)?,
                b'L' => before.name = Some(self.long_name(&header)?),
                b'K' => before.link = Some(self.long_name(&header)?),
                // The name of the volume.
                b'V' => self.skip_data(&header)?,
                b'M' | b'N' => {
                    return Err(self.error("archives of several volumes are not supported"));
                }
                b'A' | b'E' => {
                    warn(format!(
                        "{}: attributes of Solaris are left out",
                        self.input.name
                    ));
                    self.skip_data(&header)?;
                }
                _ => {
                    let entry = self.member(&header, before, warn)?;
                    let position = self.start;
                    return Ok(Some(Member { entry, position }));
                }
            }
        }
        if waits {
            Err(self.error("the archive ends after an extended header"))
        } else {
            Ok(None)
        }
    }

    /// Reads the next header; `None` at the archive's end.
    fn header(&mut self, warn: Warn<'_>) -> Result<Option<Header>> {
        let first = self.input.taken() == 0;
        let Some(block) = self.input.block()? else {
            if first {
                return Err(self.error("it is empty, and no tar archive"));
            }
            warn(format!(
                "{}: the mark of the archive's end is missing",
                self.input.name
            ));
            return Ok(None);
        };
        if block == [0; BLOCK] {
            return Ok(None);
        }
        match Header::parse(block) {
            Some(header) => Ok(Some(header)),
            None if first => Err(self.error(
                "it is neither a tar archive nor one that gzip, zstd, xz or bzip2 compressed",
            )),
            None => {
                self.start = self.input.taken() - BLOCK as u64;
                Err(self.error("the checksum of the header is wrong"))
            }
        }
    }

    /// Returns the size of the bytes after a header.
    fn size(&self, header: &Header) -> Result<u64> {
        let size = header.size().and_then(|size| u64::try_from(size).ok());
        size.ok_or_else(|| self.error("its size is no number"))
    }

    /// Skips the bytes that fill the last block of a member's data.
    fn pad(&mut self, size: u64) -> Result<()> {
        let over = size % BLOCK as u64;
        let padding = if over == 0 { 0 } else { BLOCK as u64 - over };
        let result = self.input.skip(padding);
        self.named(result)
    }

    fn skip_data(&mut self, header: &Header) -> Result<()> {
        let size = self.size(header)?;
        let result = self.input.skip(size);
        self.named(result)?;
        self.pad(size)
    }

    /// Reads the bytes after a header into memory.
    fn data(&mut self, header: &Header) -> Result<Vec<u8>> {
        let size = self.size(header)?;
        if size > pax::LARGEST {
            return Err(self.error(format!(
                "its extended header has {size} bytes, more than 16 MiB"
            )));
        }
        let data = self.input.bytes(size);
        let data = self.named(data)?;
        self.pad(size)?;
        Ok(data)
    }

    fn records(&mut self, header: &Header) -> Result<Vec<Record>> {
        let data = self.data(header)?;
        pax::records(&data).map_err(|reason| self.error(reason))
    }

    fn long_name(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut name = self.data(header)?;
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        name.truncate(end);
        Ok(name)
    }

    /// Reads a global header, which applies to all later members.
    fn global(&mut self, header: &Header, before: &mut Before) -> Result<()> {
        for (key, value) in self.records(header)? {
            before
                .extended
                .apply(&key, &value, true)
                .map_err(|reason| self.error(reason))?;
            self.globals.retain(|(old, _)| *old != key);
            self.globals.push((key, value));
        }
        let total: usize = self
            .globals
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if total as u64 > pax::LARGEST {
            return Err(self.error("its global headers have more than 16 MiB"));
        }
        Ok(())
    }

    /// Makes the entry of a header.
    fn member(&mut self, header: &Header, mut before: Before, warn: Warn<'_>) -> Result<Entry> {
        let extended = &mut before.extended;
        let name = extended
            .sparse
            .name
            .take()
            .or(extended.path.take())
            .or(before.name.take());
        let name = name.unwrap_or_else(|| header.name());
        self.member.clone_from(&name);
        let cleaned = path::clean(&name).map_err(|reason| self.error(reason))?;
        if cleaned.absolute && !std::mem::replace(&mut self.warned.absolute, true) {
            warn(format!(
                "{}: the leading '/' of names is removed",
                self.input.name
            ));
        }
        let mut mode = header
            .mode()
            .ok_or_else(|| self.error("its mode is no number"))? as u16
            & 0o7777;
        let id = |given: Option<u32>, field: Option<i64>, what: &str| {
            given
                .or_else(|| field.and_then(|id| u32::try_from(id).ok()))
                .ok_or_else(|| {
                    self.error(format!("the number of its {what} is damaged or too large"))
                })
        };
        let uid = id(before.extended.uid, header.uid(), "owner")?;
        let gid = id(before.extended.gid, header.gid(), "group")?;
        let mtime = before
            .extended
            .mtime
            .or(header.mtime().map(|secs| Time { secs, nanos: 0 }));
        let mtime = mtime.ok_or_else(|| self.error("its time is no number"))?;
        let flags = before.extended.flags;
        let project = before.extended.project;
        let xattrs = before
            .extended
            .xattrs(&mut mode)
            .map_err(|reason| self.error(reason))?;
        let kind = self.kind(header, &mut before, cleaned.directory, warn)?;
        if (cleaned.path.is_empty() || cleaned.is_step) && kind != Kind::Directory {
            return Err(self.error("it has the name of a directory, and is none"));
        }
        if matches!(kind, Kind::Symlink(_)) {
            // Linux gives every symbolic link this mode, whatever the archive says.
            mode = SYMLINK_MODE;
        }
        Ok(Entry {
            path: cleaned.path,
            kind,
            mode,
            uid,
            gid,
            mtime,
            xattrs,
            flags,
            project,
        })
    }

    /// Reads the data after a header, and returns the kind of the member.
    fn kind(
        &mut self,
        header: &Header,
        before: &mut Before,
        directory: bool,
        warn: Warn<'_>,
    ) -> Result<Kind> {
        let device = || {
            header
                .device()
                .ok_or_else(|| self.error("the number of its device is damaged"))
        };
        Ok(match header.kind() {
            b'1' => Kind::HardLink(self.hard_link(header, before, warn)?),
            b'2' => {
                let target = self.target(header, before);
                if target.is_empty() {
                    return Err(self.error("it is a symbolic link without a target"));
                }
                if target.contains(&0) {
                    return Err(self.error("the target of its symbolic link has a NUL byte"));
                }
                Kind::Symlink(target)
            }
            b'3' => device().map(|(major, minor)| Kind::CharDevice { major, minor })?,
            b'4' => device().map(|(major, minor)| Kind::BlockDevice { major, minor })?,
            // The size of a directory is a quota, and no data follow.
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            // GNU's list of a directory's names.
            b'D' => {
                self.skip_data(header)?;
                Kind::Directory
            }
            // Old archives have no type for directories.
            b'0' | 0 if directory => {
                self.skip_data(header)?;
                Kind::Directory
            }
            other => {
                if !matches!(other, b'0' | 0 | b'7' | b'S') {
                    let archive = self.input.name;
                    let member = shown(&self.member);
                    let kind = char::from(other).escape_default();
                    warn(format!(
                        "{archive}: member '{member}': its type '{kind}' is unknown; it is taken as a file"
                    ));
                }
                Kind::File(self.contents(header, before)?)
            }
        })
    }

    fn target(&self, header: &Header, before: &mut Before) -> Vec<u8> {
        before
            .extended
            .link
            .take()
            .or(before.link.take())
            .unwrap_or_else(|| header.link())
    }

    fn hard_link(
        &mut self,
        header: &Header,
        before: &mut Before,
        warn: Warn<'_>,
    ) -> Result<Vec<u8>> {
        let given = self.target(header, before);
        let target = path::clean(&given).map_err(|reason| {
            self.error(format!(
                "the target '{}' of its hard link: {reason}",
                shown(&given)
            ))
        })?;
        if target.path.is_empty() {
            return Err(self.error("it is a hard link to the root"));
        }
        if target.absolute && !std::mem::replace(&mut self.warned.absolute_link, true) {
            warn(format!(
                "{}: the leading '/' of hard links' targets is removed",
                self.input.name
            ));
        }
        let size = self.data_size(header, before)?;
        if size > 0 && !self.header_follows()? {
            // POSIX allows a hard link to repeat the contents.
            let result = self.input.skip(size);
            self.named(result)?;
            self.pad(size)?;
        }
        Ok(target.path)
    }

    /// Whether a header or the end comes next: programs before POSIX gave hard links a size without
    /// data.
    fn header_follows(&mut self) -> Result<bool> {
        let block = self.input.peek();
        Ok(match self.named(block)? {
            Some(block) => {
                block == [0; BLOCK]
                    || Header::parse(block).is_some_and(|header| header.form != Form::Old)
            }
            None => true,
        })
    }

    fn data_size(&self, header: &Header, before: &Before) -> Result<u64> {
        let size = match before.extended.size {
            Some(size) => size,
            None => self.size(header)?,
        };
        if size > LARGEST_FILE {
            Err(self.error(format!("its size of {size} bytes is too large")))
        } else {
            Ok(size)
        }
    }

    /// Keeps the contents of a file.
    fn contents(&mut self, header: &Header, before: &mut Before) -> Result<Contents> {
        let size = self.data_size(header, before)?;
        let mut left = size;
        let map = self.map(header, before, &mut left)?;
        let position = self.input.keep(left);
        let position = self.named(position)?;
        self.pad(size)?;
        match map {
            None => Ok(Contents {
                size,
                data: Data::Stored { position },
            }),
            Some((size, map)) => sparse::contents(size, &map, position, left)
                .filter(|_| size <= LARGEST_FILE)
                .ok_or_else(|| self.error(sparse::DAMAGED)),
        }
    }

    /// Returns the size and the pieces of a file with holes. Subtracts the size of a map before the
    /// data from `left`.
    fn map(
        &mut self,
        header: &Header,
        before: &mut Before,
        left: &mut u64,
    ) -> Result<Option<(u64, sparse::Map)>> {
        let records = std::mem::take(&mut before.extended.sparse);
        let map = if header.kind() == b'S' {
            let map = sparse::old_gnu(&header.block, &mut self.input);
            self.named(map)?
        } else if records.major == Some(1) {
            let map = sparse::in_front(&mut self.input, left);
            self.named(map)?
                .and_then(|map| records.size.map(|size| (size, map)))
        } else if let Some(size) = records.size {
            sparse::pairs(&records.map).map(|map| (size, map))
        } else {
            return Ok(None);
        };
        map.map(Some).ok_or_else(|| self.error(sparse::DAMAGED))
    }
}
