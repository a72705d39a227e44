//! Builds ext2, ext3 and ext4 volumes from trees of files: directories, archives, images and other
//! volumes.
//!
//! A [`Builder`] reads the sources one after the other and puts each over what it has.
//! [`Builder::plan`] then knows every size, chooses that of the volume, and gives each file its
//! blocks: directories first, then the contents of files in the order of their paths,
//! without gaps. [`Planned::write`] reads the sources on several threads and writes the volume from
//! start to end.
//!
//! The same tree and options make the same bytes, on any machine and with any number of threads.
//! UUID and hash seed are derived from the tree, the UUID from the contents of files as well.
//!
//! ```no_run
//! use extern4_block::{FileDevice, FileOptions};
//! use extern4_build::{BuildOptions, Builder};
//! # fn source() -> Box<dyn extern4_tree::Source> { unimplemented!() }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut builder = Builder::new(BuildOptions::default());
//! builder.add(source(), b"")?;
//! let volume = builder.plan()?;
//! std::fs::File::create_new("root.img")?.set_len(volume.size_bytes())?;
//! let options = FileOptions { write: true, ..FileOptions::default() };
//! let device = FileDevice::open_with("root.img", &options)?;
//! volume.write_on_zeroes(&device, 2)?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod buffer;
mod builder;
mod contents;
mod directory;
mod error;
mod fs_verity;
mod holes;
mod identity;
mod inode_numbers;
mod layer;
mod layout;
mod merged;
mod old_layout;
mod output;
mod planned;
mod progress;
mod record;
mod sharing;
mod storage;
mod stream;
mod tree;
mod verity;
mod write;
mod xattr;

pub use builder::{BuildOptions, Builder, Edit, Label, Size};
pub use error::{Error, Result};
pub use merged::{MemberContents, MemberId, Merged};
pub use old_layout::{OldInode, OldLayout};
pub use output::{NewFile, Written};
pub use planned::{Planned, Summary};
pub use progress::{Progress, Watch};
pub use verity::Verity;
