//! Trees of files outside of volumes: directories, tar archives, container images and manifests,
//! read as entries; and archives written from entries.
//!
//! A [`Source`] is a tree that can be read: [`Source::scan`] passes each of its members to a
//! [`Sink`] as an [`Entry`], and [`Source::open`] opens the contents of a file afterwards. The
//! crate `build`, which is a sink, makes volumes from sources, and the commands `build`, `diff` and
//! `export` use them. Bytes of archives and images are hostile: damage is an error with its place,
//! and memory is bounded.

#![forbid(unsafe_code)]

mod acl;
mod compression;
mod directory;
mod entries;
mod entry;
mod error;
mod filter;
mod glob;
mod ids;
mod manifest;
mod oci;
mod path;
mod read_ahead;
mod source;
mod spool;
mod stores;
mod tar;
#[cfg(test)]
mod testing;

pub use compression::Compression;
pub use directory::{DirectorySource, FileSource};
pub use entries::Entries;
pub use entry::{Contents, Data, Entry, Identity, Kind, Piece, Time};
pub use error::{Error, Result};
pub use filter::{Filter, Pattern, Rule};
pub use glob::Glob;
pub use ids::{IdMap, IdRange};
pub use manifest::{AmendedKind, Amendment, Manifest};
pub use oci::{
    ImageConfig, Layer, LayerCompression, LayerWriter, OciSource, Platform, split_reference,
};
pub use source::{Opened, ReadAt, Sink, Source, Unwanted};
pub use tar::{ReadContents, TarSource, TarWriter};
