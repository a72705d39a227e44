//! Tar archives of files in volumes, made and read as `tar` does.
//!
//! A [`TarBuilder`] writes files and trees of one or several volumes to an archive, each with a
//! name of the caller's choice. [`Members`] chooses members of an archive by their names and by
//! rules, and [`ChosenMembers`] is a source with these members. A
//! [`Builder`](crate::build::Builder) or an [`Update`](crate::build::Update) unpacks that.
//! [`TarSource`] is the archive as a whole.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use extern4::Volume;
//! use extern4::build::{BuildOptions, Builder, Update, UpdateOptions};
//! use extern4::tar::{ChosenMembers, Members, TarBuilder, TarSource};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
//!     let session = volume.superuser();
//!     session.create_dir_all("/srv/www")?;
//!     session.write("/srv/www/index.html", "hello\n")?;
//!     session.write("/srv/www/robots.txt", "")?;
//!
//!     let mut archive = TarBuilder::new(Vec::new(), None)?;
//!     archive.add(&volume, &session, Path::new("/srv/www"), b"site", &mut ())?;
//!     std::fs::write(dir.path().join("site.tar"), archive.finish()?)?;
//!
//!     // Unpack one member of it, without the first name of its path.
//!     let members = Arc::new(Members::new([b"site/index.html".to_vec()], Default::default()));
//!     let archive = TarSource::open(dir.path().join("site.tar"), dir.path())?;
//!     let mut builder = Builder::new(BuildOptions::default());
//!     let source = ChosenMembers::new(archive, Arc::clone(&members)).strip_components(1);
//!     builder.add(Box::new(source), b"copy")?;
//!     assert_eq!(members.missing().count(), 0);
//!     let options = UpdateOptions { keeps_others: true, ..UpdateOptions::default() };
//!     let update = Update::plan(builder.merge()?, &session, options, None)?;
//!     update.run(&session, None, &mut |_| std::ops::ControlFlow::Continue(()))?;
//!     assert_eq!(session.read("/copy/index.html")?, b"hello\n");
//!     assert!(!session.exists("/copy/robots.txt")?);
//!     Ok(())
//! }
//! ```

mod builder;
mod chosen;
mod name;

pub use builder::TarBuilder;
pub use chosen::{ChosenMembers, Members};
pub use extern4_tree::{Compression, TarSource};
pub use name::member_name;
