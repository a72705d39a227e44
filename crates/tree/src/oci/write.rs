//! [`LayerWriter`]: writes a layer of an image, and the other files of a layout with that one
//! layer.
//!
//! The library's module `export` uses it. Equal entries give equal bytes and digests. An entry that
//! a layer cannot have, such as a socket or a name like a whiteout, is left out, and the caller is
//! told the reason. The layout is complete once its last document is written.
//!
//! Source: the OCI Image Format Specification 1.1 (image layout, manifest, layer, configuration).

use std::io::{self, Write};

use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Platform;
use super::digest::hex;
use crate::entry::Entry;
use crate::error::Result;
use crate::tar::{ReadContents, TarWriter};

/// The prefix of whiteouts in a layer, which remove files of the layers below.
const WHITEOUT: &[u8] = b".wh.";

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Compressions of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayerCompression {
    /// The compression that every program reads.
    Gzip,
    /// The compression that programs for version 1.1 of the format read.
    Zstd,
}

/// Writes entries as the layer of an image: equal entries give equal bytes.
pub struct LayerWriter<W: Write> {
    tar: TarWriter<Hashed<Encoder<Hashed<W>>>>,
    compression: LayerCompression,
}

enum Encoder<W: Write> {
    Gzip(GzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

/// A layer that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    compression: LayerCompression,
    blob: Blob,
    /// The digest of the archive without its compression.
    archive: String,
}

/// The digest and the size of a file, by which an image names it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Blob {
    /// The SHA-256 in hexadecimal digits.
    hex: String,
    size: u64,
}

impl<W: Write> LayerWriter<W> {
    /// Writes a layer to `out`.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn new(out: W, compression: LayerCompression) -> io::Result<Self> {
        let out = Hashed::new(out);
        let encoder = match compression {
            LayerCompression::Gzip => {
                Encoder::Gzip(GzEncoder::new(out, flate2::Compression::default()))
            }
            LayerCompression::Zstd => Encoder::Zstd(zstd::stream::write::Encoder::new(out, 0)?),
        };
        Ok(Self {
            tar: TarWriter::new(Hashed::new(encoder)),
            compression,
        })
    }

    /// Writes an entry and the contents that `read` returns. Returns the reason if a layer cannot
    /// have the entry.
    ///
    /// # Errors
    /// The error of `out` or of reading the contents.
    pub fn append(
        &mut self,
        entry: &Entry,
        read: ReadContents<'_>,
    ) -> Result<Option<&'static str>> {
        let name = entry
            .path
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        if name.starts_with(WHITEOUT) {
            return Ok(Some("a layer cannot have names that begin with .wh."));
        }
        let written = self.tar.append(entry, read)?;
        Ok((!written).then_some("a layer cannot have sockets"))
    }

    /// Writes the end, and returns the output and the layer.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn finish(self) -> io::Result<(W, Layer)> {
        let (encoder, archive) = self.tar.finish()?.finish();
        let out = match encoder {
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        let (mut out, blob) = out.finish();
        out.flush()?;
        Ok((
            out,
            Layer {
                compression: self.compression,
                blob,
                archive: archive.hex,
            },
        ))
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(out) => out.write(bytes),
            Self::Zstd(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // The encoders are flushed when they end.
        Ok(())
    }
}

/// A stream whose digest is computed.
struct Hashed<W> {
    out: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Hashed<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            hash: Sha256::new(),
            size: 0,
        }
    }

    fn finish(self) -> (W, Blob) {
        (
            self.out,
            Blob {
                hex: hex(self.hash),
                size: self.size,
            },
        )
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Blob {
    fn of(bytes: &[u8]) -> Self {
        Self {
            hex: hex(Sha256::new_with_prefix(bytes)),
            size: bytes.len() as u64,
        }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.hex)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": format!("sha256:{}", self.hex), "size": self.size })
    }
}

impl Layer {
    /// Returns the path of the layer in a layout.
    pub fn path(&self) -> String {
        self.blob.path()
    }

    /// Returns the other files of a layout with this layer as its only image: their paths and their
    /// contents. The last one makes the layout complete.
    pub fn documents(&self, tag: &str, platform: &Platform) -> Vec<(String, Vec<u8>)> {
        let mut config = json!({
            "architecture": platform.architecture,
            "os": platform.os,
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", self.archive)] },
        });
        if let Some(variant) = &platform.variant {
            config["variant"] = json!(variant);
        }
        let config = config.to_string().into_bytes();
        let suffix = match self.compression {
            LayerCompression::Gzip => "gzip",
            LayerCompression::Zstd => "zstd",
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": Blob::of(&config).descriptor(CONFIG),
            "layers": [self.blob.descriptor(&format!("{LAYER}+{suffix}"))],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut descriptor = Blob::of(&manifest).descriptor(MANIFEST);
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] });
        vec![
            (Blob::of(&config).path(), config),
            (Blob::of(&manifest).path(), manifest),
            (
                "oci-layout".to_owned(),
                json!({ "imageLayoutVersion": "1.0.0" })
                    .to_string()
                    .into_bytes(),
            ),
            ("index.json".to_owned(), index.to_string().into_bytes()),
        ]
    }
}
