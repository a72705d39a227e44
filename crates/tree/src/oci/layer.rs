//! Reads one layer of an image: a tar archive, perhaps compressed, with whiteouts.
//!
//! `OciSource::scan` calls [`Read::verified`] and then [`Changes::pass_changes`] for each layer. A
//! second thread verifies the digest of the blob while this one reads the archive; that of the
//! archive is computed as the archive is decompressed. Whiteouts apply to lower layers only, so the
//! sink gets them before the layer's own members.

use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use super::digest::{Computed, Digest};
use super::files::Blob;
use super::image::Layer;
use crate::compression::{Behind, Compression, MAGIC_LEN};
use crate::error::{Error, Result};
use crate::read_ahead::ReadAhead;
use crate::source::Sink;
use crate::stores::Stores;
use crate::tar::{Input, Keep, Member, Reader, placed, spooled};

/// The prefix of a whiteout, which removes a name of lower layers.
const WHITEOUT: &[u8] = b".wh.";

/// The name that marks an opaque directory, which removes all names of lower layers in it.
const OPAQUE: &[u8] = b".wh..wh..opq";

const BUFFER: usize = 128 << 10;

/// A layer that is to be read.
pub(super) struct Read<'a> {
    /// The layer's name for messages.
    pub(super) name: &'a str,
    pub(super) blob: Blob,
    pub(super) spool: &'a Path,
    pub(super) stores: &'a Stores,
}

/// A layer's changes to those below it. Members and whiteouts come in any order, and whiteouts
/// apply to lower layers only, so the sink gets the whiteouts first.
#[derive(Default)]
pub(super) struct Changes {
    removed: Vec<Vec<u8>>,
    cleared: Vec<Vec<u8>>,
    members: Vec<Member>,
    warnings: Vec<String>,
}

impl Read<'_> {
    /// Reads the layer, and verifies its digests at the same time.
    pub(super) fn verified(&self, layer: &Layer) -> Result<Changes> {
        let is_compressed = self
            .compression()
            .map_err(|error| Error::io(self.name, error))?
            .is_some();
        // The blob of a plain archive is the archive.
        let archive = layer
            .archive
            .as_ref()
            .filter(|digest| is_compressed || layer.blob.as_ref() != Some(digest));
        let of_blob = [layer.blob.as_ref(), archive.filter(|_| !is_compressed)];
        let is = |digest: &Digest| digest.is_of(self.blob.reader()?);
        let hashed = archive.filter(|_| is_compressed).map(Digest::compute);
        std::thread::scope(|scope| {
            let verified = scope.spawn(move || {
                of_blob
                    .into_iter()
                    .flatten()
                    .try_fold(true, |all, digest| Ok(all && is(digest)?))
            });
            let changes = self.changes(hashed.as_ref());
            let verified = verified.join().unwrap_or(Ok(false));
            let verified = verified.map_err(|error: io::Error| Error::io(self.name, error))?;
            // A wrong digest takes precedence over errors of the archive, which follow from it.
            if !verified || !self.has_archive(hashed.as_ref(), changes.is_ok()) {
                let reason = "it does not have the digest that the image says".to_owned();
                return Err(Error::Image {
                    image: self.name.to_owned(),
                    reason,
                });
            }
            changes
        })
    }

    /// Returns whether the archive in a compressed blob has its digest. If it was not read whole,
    /// it is decompressed again; then a blob that cannot be is left to that error.
    fn has_archive(&self, hashed: Option<&Computed>, is_whole: bool) -> bool {
        match hashed {
            None => true,
            Some(hashed) if is_whole => hashed.is_right(),
            Some(hashed) => {
                let decoded = self
                    .decoded(None)
                    .and_then(|stream| hashed.digest().is_of(stream));
                decoded.unwrap_or(true)
            }
        }
    }

    fn compression(&self) -> io::Result<Option<Compression>> {
        let mut start = Vec::new();
        io::Read::read_to_end(
            &mut io::Read::take(self.blob.reader()?, MAGIC_LEN as u64),
            &mut start,
        )?;
        Ok(Compression::detect(&start))
    }

    /// Returns the bytes of the archive, decompressed, whose digest is computed.
    fn decoded(&self, hashed: Option<&Computed>) -> io::Result<Box<dyn io::Read + Send>> {
        let bytes = self.blob.reader()?;
        let Some(compression) = self.compression()? else {
            return Ok(Box::new(bytes));
        };
        let stream =
            compression.decoder(BufReader::with_capacity(BUFFER, bytes), &Behind::default())?;
        Ok(match hashed {
            Some(hashed) => Box::new(hashed.reader(stream)),
            None => stream,
        })
    }

    fn input(&self, hashed: Option<&Computed>) -> Result<Input<'_>> {
        let error = |error| Error::io(self.name, error);
        if self.compression().map_err(error)?.is_some() {
            let stream = ReadAhead::new(self.decoded(hashed).map_err(error)?).map_err(error)?;
            return spooled(self.name, Box::new(stream), self.spool, self.stores);
        }
        let bytes = self.blob.reader().map_err(error)?;
        let start = self
            .stores
            .add(Arc::clone(&self.blob.file), self.blob.start, None)?;
        Ok(Input::new(
            self.name,
            Box::new(bytes),
            Keep::InPlace { start },
        ))
    }

    fn changes(&self, hashed: Option<&Computed>) -> Result<Changes> {
        let mut changes = Changes::default();
        let mut reader = Reader::new(self.input(hashed)?);
        let mut warnings = Vec::new();
        while let Some(member) = reader.next(&mut |message| warnings.push(message))? {
            changes.take(member, self.name)?;
        }
        changes.warnings = warnings;
        reader.finish().map(|()| changes)
    }
}

impl Changes {
    fn take(&mut self, member: Member, layer: &str) -> Result<()> {
        let path = &member.entry.path;
        let at = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at(at);
        match name.strip_prefix(WHITEOUT) {
            None => self.members.push(member),
            Some(_) if name == OPAQUE => {
                self.cleared
                    .push(parent.strip_suffix(b"/").unwrap_or(parent).to_vec());
            }
            // Names that only AUFS uses.
            Some(hidden) if hidden.starts_with(WHITEOUT) => {}
            Some(b"" | b"." | b"..") => {
                let reason = "it removes no name".to_owned();
                let error = Error::Refused {
                    path: crate::error::shown(path),
                    reason,
                };
                return Err(placed(error, layer, member.position));
            }
            Some(hidden) => self.removed.push([parent, hidden].concat()),
        }
        Ok(())
    }

    /// Passes the changes to the sink.
    pub(super) fn pass_changes(self, layer: &str, sink: &mut dyn Sink) -> Result<()> {
        self.warnings
            .into_iter()
            .for_each(|warning| sink.warn(warning));
        self.removed.iter().try_for_each(|path| sink.remove(path))?;
        self.cleared.iter().try_for_each(|path| sink.clear(path))?;
        for member in self.members {
            sink.entry(member.entry)
                .map_err(|error| placed(error, layer, member.position))?;
        }
        Ok(())
    }
}
