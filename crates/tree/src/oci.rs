//! Container images: [`OciSource`] reads OCI layouts and archives of `docker save`, [`LayerWriter`]
//! writes layers.
//!
//! `build` and `diff` read images, and `export` writes them. `image` finds the layers of the wanted
//! image, and the scan passes them to the sink one over the other, with whiteouts. The digest of a
//! layer is verified before the sink gets any entry of it; a wrong one is an error. JSON files have
//! a size limit.
//!
//! Sources: the OCI Image Format Specification 1.1 (image layout, index, manifest, layer); the
//! Docker Image Specification 1.2; and images that umoci and Docker wrote.

mod digest;
mod files;
mod image;
mod layer;
mod write;

use std::path::{Path, PathBuf};

use crate::entry::Contents;
use crate::error::{Error, Result};
use crate::source::{Opened, Sink, Source};
use crate::stores::Stores;

use files::Files;

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
        let platform = Self { os: parts.next()?, architecture: parts.next()?, variant: parts.next() };
        let known = parts.next().is_none() && !platform.os.is_empty() && !platform.architecture.is_empty();
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
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }
}

/// An image of a container as a tree: an OCI layout in a directory or a tar archive, or an archive
/// of `docker save`. Its layers overlay each other.
///
/// The digest of each layer is verified before the sink gets its entries.
pub struct OciSource {
    name: String,
    spool: PathBuf,
    files: Files,
    layers: Vec<image::Layer>,
    stores: Stores,
}

impl OciSource {
    /// Opens an image. The reference is its tag, its name or its digest, and may be left out if
    /// there is only one image. The platform chooses from an index; the default is that of this
    /// machine. `spool` is the directory for temporary files.
    pub fn open(
        layout: impl AsRef<Path>,
        reference: Option<&str>,
        platform: Option<&Platform>,
        spool: impl Into<PathBuf>,
    ) -> Result<Self> {
        let (path, spool) = (layout.as_ref(), spool.into());
        let name = path.to_string_lossy().into_owned();
        let files = Files::open(path, &spool)?;
        let layers = image::layers(&files, reference, platform).map_err(|reason| reason.into_error(&name))?;
        Ok(Self { name, spool, files, layers, stores: Stores::default() })
    }
}

/// Splits `PATH[:REFERENCE]`. A path may contain a `:`, so the path ends at the first `:` before
/// which a file exists.
pub fn split_reference(text: &str) -> (&Path, Option<&str>) {
    if Path::new(text).exists() {
        return (Path::new(text), None);
    }
    let mut colons = text.match_indices(':').map(|(at, _)| at);
    let found = colons.clone().find(|at| Path::new(&text[..*at]).exists());
    match found.or_else(|| colons.next()) {
        Some(at) => (Path::new(&text[..at]), Some(&text[at + 1..])),
        None => (Path::new(text), None),
    }
}

impl Source for OciSource {
    fn scan(&self, sink: &mut dyn Sink) -> Result<()> {
        for layer in &self.layers {
            let name = format!("{}, layer {}", self.name, layer.name);
            let blob = self.files.file(&layer.path).map_err(|reason| reason.into_error(&self.name))?;
            if layer.size.is_some_and(|size| size != blob.len) {
                let reason = format!("it has {} bytes instead of those that the manifest says", blob.len);
                return Err(Error::Image { image: name, reason });
            }
            let read = layer::Read { name: &name, blob, spool: &self.spool, stores: &self.stores };
            read.verified(&layer.digest)?.pass_changes(&name, sink)?;
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
            Self::Image(reason) => Error::Image { image: image.to_owned(), reason },
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
