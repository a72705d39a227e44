//! Trees of files outside of volumes, read as entries and written from entries.
//!
//! A [`Source`] is a tree that can be read: [`Source::scan`] gives each of its members to a
//! [`Sink`] as an [`Entry`], and [`Source::open`] opens the contents of a file afterwards.

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

pub use directory::DirectorySource;
pub use entries::Entries;
pub use entry::{Contents, Data, Entry, Identity, Kind, Piece, Time};
pub use error::{Error, Result};
pub use filter::{Filter, Rule};
pub use glob::Glob;
pub use ids::{IdMap, IdRange};
pub use manifest::{AmendedKind, Amendment, Manifest};
pub use oci::{Layer, LayerCompression, LayerWriter, OciSource, Platform, split_reference};
pub use source::{Opened, ReadAt, Sink, Source, Unwanted};
pub use tar::{ReadContents, TarSource, TarWriter};
