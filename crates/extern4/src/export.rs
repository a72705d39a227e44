//! Writes a directory of a volume, and everything below it, to a tar archive or to an image of a
//! container.
//!
//! [`export_archive`] writes an archive to a stream, [`export_archive_file`] to a file of the host,
//! and [`export_layout`] writes an OCI layout. Equal trees give equal bytes: members come in the
//! order of the names' bytes. An export ends at the first file that it cannot read.
//! [`copy`](crate::copy) copies a tree to a directory of the host, and [`tar`](crate::tar) puts
//! several trees into one archive.
//!
//! ```
//! use extern4::Volume;
//! use extern4::export::{ExportObserver, export_archive};
//! use extern4::tar::Compression;
//!
//! /// Remembers the files that an archive cannot have.
//! #[derive(Default)]
//! struct LeftOut(Vec<Vec<u8>>);
//!
//! impl ExportObserver for LeftOut {
//!     fn left_out(&mut self, path: &[u8], reason: &'static str) {
//!         eprintln!("{}: {reason}", String::from_utf8_lossy(path));
//!         self.0.push(path.to_vec());
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
//!     let session = volume.superuser();
//!     session.create_dir_all("/srv/www")?;
//!     session.write("/srv/www/index.html", "hello\n")?;
//!
//!     let mut left_out = LeftOut::default();
//!     let top = session.at("/srv")?;
//!     let archive = export_archive(&top, Vec::new(), Some(Compression::Zstd), &mut left_out)?;
//!     assert_eq!(archive[..4], [0x28, 0xb5, 0x2f, 0xfd]);
//!     assert!(left_out.0.is_empty());
//!     Ok(())
//! }
//! ```

mod archive;
mod error;
mod layout;
pub(crate) mod member;
mod observer;

pub use archive::{export_archive, export_archive_file};
pub use error::ExportError;
pub use extern4_tree::LayerCompression;
pub use layout::{LayoutOptions, export_layout};
pub use observer::ExportObserver;
