//! Copies trees of files into volumes, out of them, and between them.
//!
//! [`copy_tree`] copies a file, or a directory with everything below it: contents with their holes,
//! owners, modes, times, hard links, extended attributes and ACLs. [`CopyOptions`] say otherwise.
//! [`CopyInto`] and [`CopyOut`] copy several sources, whose hard links stay together.
//!
//! A file that cannot be copied does not end a copy. The copy calls a [`CopyObserver`] for each
//! failure, for its progress and for files that it replaces. The observer may end the copy.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use extern4::Volume;
//! use extern4::copy::{CopyFailure, CopyObserver, CopyOptions, CopyPath, copy_tree};
//!
//! /// Prints the progress, and ends the copy after a limit.
//! struct Limit {
//!     bytes: u64,
//! }
//!
//! impl CopyObserver for Limit {
//!     fn advance(&mut self, files: u64, bytes: u64) -> ControlFlow<()> {
//!         println!("{files} more files, {bytes} more bytes");
//!         self.bytes = self.bytes.saturating_sub(bytes);
//!         if self.bytes == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
//!     }
//!
//!     fn failed(&mut self, failure: &CopyFailure) {
//!         eprintln!("{failure}");
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let dir = tempfile::tempdir()?;
//!     let (site, back) = (dir.path().join("site"), dir.path().join("back"));
//!     std::fs::create_dir(&site)?;
//!     std::fs::write(site.join("index.html"), "hello\n")?;
//!
//!     let volume = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?;
//!     let session = volume.superuser();
//!     session.create_dir("/srv")?;
//!     let srv = CopyPath::volume(&volume, &session, "/srv");
//!     // Into the directory, as `cp -a` does it.
//!     let mut limit = Limit { bytes: 1 << 30 };
//!     let summary = copy_tree(CopyPath::host(&site), srv, &CopyOptions::default(), &mut limit)?;
//!     assert_eq!((summary.files, summary.bytes, summary.is_stopped), (1, 6, false));
//!     assert_eq!(session.read("/srv/site/index.html")?, b"hello\n");
//!
//!     // And out again, with new owners and times. `()` observes nothing.
//!     let options = CopyOptions { preserve: Default::default(), ..CopyOptions::default() };
//!     copy_tree(srv, CopyPath::host(&back), &options, &mut ())?;
//!     assert_eq!(std::fs::read(back.join("site/index.html"))?, b"hello\n");
//!     Ok(())
//! }
//! ```

mod ahead;
mod failure;
mod into;
mod kernel_copy;
mod links;
mod losses;
mod observer;
mod open_directories;
mod options;
mod out_of;
mod paths;
mod source;
mod sparse;
mod summary;
mod total;
mod walk;

pub use failure::{CopyError, CopyFailure, CopySide, Refusal};
pub use into::CopyInto;
pub use kernel_copy::KernelCopy;
pub use losses::{CopyLosses, LostXattr};
pub use observer::{CopyNames, CopyObserver};
pub use options::{CopyMethod, CopyOptions, Follow, Preserve, Sparse};
pub use out_of::CopyOut;
pub use paths::{CopyPath, own_name};
pub use summary::CopySummary;

/// Copies one file, or a directory with everything below it, into a volume, out of one, or from one
/// to another. Like `cp`, it copies into `to` if that is a directory that is there, unless
/// [`no_target_directory`](CopyOptions::no_target_directory) is set.
///
/// A copy replaces files that are there, and adds to directories. Below `to`, no symbolic link is
/// followed. If the observer ends the copy, that is no error; the summary says so. Each file that
/// is there then has its whole contents.
///
/// # Errors
/// The first failure, after everything else was copied. Attributes that could not be kept are no
/// failure: the summary has them.
pub fn copy_tree(
    from: CopyPath<'_>,
    to: CopyPath<'_>,
    options: &CopyOptions,
    observer: &mut dyn CopyObserver,
) -> Result<CopySummary, CopyFailure> {
    let summary = match (from, to) {
        (_, CopyPath::Volume(volume, session, path)) => {
            let mut copy = CopyInto::new(volume, session, options);
            copy.copy(from, path, observer);
            copy.finish()
        }
        (CopyPath::Volume(volume, session, path), CopyPath::Host(to)) => {
            let mut copy = CopyOut::new(options);
            copy.copy(volume, session, path, to, observer);
            copy.finish()
        }
        (CopyPath::Host(_), CopyPath::Host(_)) => {
            let mut summary = CopySummary::default();
            let refused = failure::Failure::from(Refusal::NoVolume);
            let failure = refused.report(from.path(), to.path());
            failure
                .into_iter()
                .for_each(|failure| summary.fail(failure, observer));
            summary
        }
    };
    match summary.first_failure {
        Some(failure) => Err(failure),
        None => Ok(summary),
    }
}
