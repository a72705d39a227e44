//! Container images: [`OciSource`] reads OCI layouts and archives of `docker save`, [`LayerWriter`]
//! writes layers.
//!
//! `build` and `diff` read images, and `export` writes them. `image` finds the wanted image, and
//! the scan passes its layers to the sink one over the other, with whiteouts. The digests of a
//! layer are verified before the sink gets any entry of it; a wrong one is an error. JSON files
//! have a size limit.
//!
//! Sources: the OCI Image Format Specification 1.1 (image layout, index, manifest, layer); the
//! Docker Image Specification 1.2; and images that umoci and Docker wrote.

mod config;
mod digest;
mod files;
mod image;
mod layer;
mod reference;
mod write;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::entry::Contents;
use crate::error::{Error, Result};
use crate::source::{Opened, Sink, Source};
use crate::stores::Stores;
use crate::tar::TarSource;

use files::Files;

pub use config::ImageConfig;
pub use write::{Layer, LayerCompression, LayerWriter};

/// The operating system and the architecture of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Platform {
    /// The operating system, such as `linux`.
    pub os: String,
    /// The architecture by Go's names, such as `amd64`.
    pub architecture: String,
    /// The variant of the architecture, such as `v8`.
    pub variant: Option<String>,
}

impl Platform {
    /// Parses `OS/ARCHITECTURE[/VARIANT]`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/').map(str::to_owned);
        let platform = Self {
            os: parts.next()?,
            architecture: parts.next()?,
            variant: parts.next(),
        };
        let known =
            parts.next().is_none() && !platform.os.is_empty() && !platform.architecture.is_empty();
        known.then_some(platform)
    }

    /// Returns Linux on the architecture of this machine.
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    /// Reads the members of a descriptor or of a configuration. `None` if it does not say its
    /// platform.
    fn read(json: &Value) -> Option<Self> {
        let text = |key| {
            json.get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let os = text("os")?.to_owned();
        let architecture = text("architecture")?.to_owned();
        Some(Self {
            os,
            architecture,
            variant: text("variant").map(str::to_owned),
        })
    }

    /// Returns whether an image for this platform is what `wanted` asks for. A platform that is
    /// wanted without a variant is any variant.
    fn suits(&self, wanted: &Self) -> bool {
        self.os == wanted.os
            && self.architecture == wanted.architecture
            && (wanted.variant.is_none() || self.variant() == wanted.variant())
    }

    /// Returns the variant. An image for arm or arm64 that says none is for the usual one.
    ///
    /// Source: the OCI Image Format Specification 1.1, "Platform Variants"; the documentation of
    /// containerd's package `platforms`, "Normalization".
    fn variant(&self) -> Option<&str> {
        self.variant.as_deref().or(match &*self.architecture {
            "arm" => Some("v7"),
            "arm64" => Some("v8"),
            _ => None,
        })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant
            .iter()
            .try_for_each(|variant| write!(f, "/{variant}"))
    }
}

/// An image of a container as a tree: an OCI layout in a directory or a tar archive, or an archive
/// of `docker save`. Its layers overlay each other.
///
/// The digests of each layer are verified before the sink gets its entries.
pub struct OciSource {
    name: String,
    spool: PathBuf,
    files: Files,
    image: image::Image,
    stores: Stores,
}

impl OciSource {
    /// Opens an image. The reference is its tag, its name or its digest, and may be left out if
    /// there is only one image. The platform chooses from an index; the default is that of this
    /// machine. `spool` is the directory for temporary files.
    ///
    /// # Errors
    /// [`Error::Image`] if there is no such image, if there are several, or if it is damaged;
    /// the host's.
    pub fn open(
        layout: impl AsRef<Path>,
        reference: Option<&str>,
        platform: Option<&Platform>,
        spool: impl Into<PathBuf>,
    ) -> Result<Self> {
        let path = layout.as_ref();
        let spool = spool.into();
        let files = Files::open(path, &spool)?;
        Self::new(
            path.to_string_lossy().into_owned(),
            files,
            reference,
            platform,
            spool,
        )
    }

    /// Opens an image in an archive. `name` is for messages; all else is as in
    /// [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_archive(
        archive: TarSource,
        name: impl Into<String>,
        reference: Option<&str>,
        platform: Option<&Platform>,
        spool: impl Into<PathBuf>,
    ) -> Result<Self> {
        Self::new(
            name.into(),
            Files::in_archive(archive)?,
            reference,
            platform,
            spool.into(),
        )
    }

    fn new(
        name: String,
        files: Files,
        reference: Option<&str>,
        platform: Option<&Platform>,
        spool: PathBuf,
    ) -> Result<Self> {
        let image =
            image::find(&files, reference, platform).map_err(|reason| reason.into_error(&name))?;
        Ok(Self {
            name,
            spool,
            files,
            image,
            stores: Stores::default(),
        })
    }

    /// Returns the configuration of the image, if it has one.
    pub fn config(&self) -> Option<&ImageConfig> {
        self.image.config.as_ref()
    }
}

/// Splits `PATH[:REFERENCE]`. A path may contain a `:`, so the path ends at the first `:` before
/// which a file exists. `-` is standard input, and counts as a file that exists.
pub fn split_reference<T: AsRef<OsStr> + ?Sized>(text: &T) -> (&Path, Option<&str>) {
    let text = text.as_ref();
    let bytes = text.as_bytes();
    let path = |end: usize| Path::new(OsStr::from_bytes(&bytes[..end]));
    let exists = |end: usize| &bytes[..end] == b"-" || path(end).exists();
    let colons = || (0..bytes.len()).filter(|at| bytes[*at] == b':');
    if exists(bytes.len()) {
        return (Path::new(text), None);
    }
    let split = |at: usize| Some((path(at), Some(std::str::from_utf8(&bytes[at + 1..]).ok()?)));
    let found = colons().find(|at| exists(*at)).or_else(|| colons().next());
    found.and_then(split).unwrap_or((Path::new(text), None))
}

impl Source for OciSource {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        for layer in &self.image.layers {
            let name = format!("{}, layer {}", self.name, layer.name);
            let blob = self
                .files
                .file(&layer.path)
                .map_err(|reason| reason.into_error(&self.name))?;
            if layer.size.is_some_and(|size| size != blob.len) {
                let reason = format!(
                    "it has {} bytes instead of those that the manifest says",
                    blob.len
                );
                return Err(Error::Image {
                    image: name,
                    reason,
                });
            }
            let read = layer::Read {
                name: &name,
                blob,
                spool: &self.spool,
                stores: &self.stores,
            };
            read.verified(layer)?.pass_changes(&name, sink)?;
        }
        Ok(())
    }

    fn open(&self, path: &[u8], contents: &Contents) -> Result<Opened> {
        self.stores.open(path, contents)
    }
}

/// The reason why an image cannot be read, before the image's name is added.
#[derive(Debug)]
enum Reason {
    Image(String),
    Other(Error),
}

impl Reason {
    fn into_error(self, image: &str) -> Error {
        match self {
            Self::Image(reason) => Error::Image {
                image: image.to_owned(),
                reason,
            },
            Self::Other(error) => error,
        }
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<String> for Reason {
    fn from(reason: String) -> Self {
        Self::Image(reason)
    }
}

#[cfg(test)]
mod tests;
