//! The sides on which operations are measured: the library in this process, our mount, and the
//! kernel's own.
//!
//! `run` opens each side in each round and closes it again. A side that this machine does not have
//! is in the report with its reason.

use std::ops::Range;

use clap::ValueEnum;
use extern4::{Atime, Cred, Session, Volume};

use super::kernel::{self, KernelMount};
use super::measure::{Load, Measure};
use super::scratch::Scratch;
use super::served::{self, Served};
use super::stop::Stop;
use super::subjects::Subjects;
use super::tree::{Host, Library};
use super::{Result, SuiteError};
use crate::image_path::Image;

/// A side on which operations are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Side {
    /// By the library, in this process
    Library,
    /// In a mount of ours
    Mount,
    /// In the kernel's own mount
    Kernel,
}

/// The volume that is measured: the copy, or the image itself where nothing is written.
pub(super) struct Source {
    pub(super) image: Image,
    /// The range of the volume in it, in bytes.
    pub(super) bytes: Range<u64>,
    /// It is the copy.
    pub(super) writing: bool,
}

/// An open volume.
pub(super) enum Open {
    Library(Session, Volume),
    Mount(Box<Served>),
    Kernel(KernelMount),
}

impl Side {
    /// Returns the name for people.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Library => "in process",
            Self::Mount => "mount",
            Self::Kernel => "kernel",
        }
    }

    /// Returns the name for scripts.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Mount => "mount",
            Self::Kernel => "kernel",
        }
    }

    /// Returns the reason why nothing can be measured there, as far as that is known beforehand.
    pub(super) fn lacks(self) -> Option<String> {
        match self {
            Self::Library => None,
            Self::Mount => served::lacks(),
            Self::Kernel => kernel::lacks(),
        }
    }

    /// Opens the volume there, for `cred`, the user of this process.
    pub(super) fn open(
        self,
        source: &Source,
        scratch: &Scratch,
        cred: &Cred,
        stop: &Stop,
    ) -> Result<Open> {
        Ok(match self {
            Self::Library => {
                let mut options = Volume::options();
                options.write(source.writing).atime(Atime::Relative);
                options.part(source.image.part);
                let volume = options.open(&source.image.file)?;
                Open::Library(volume.session(cred.clone()), volume)
            }
            Self::Mount => Open::Mount(Box::new(Served::new(source, scratch, stop)?)),
            Self::Kernel => Open::Kernel(KernelMount::new(source)?),
        })
    }
}

impl Open {
    /// Measures there; returns units per second.
    pub(super) fn rate(
        &self,
        measure: Measure,
        subjects: &Subjects,
        load: Load,
        stop: &Stop,
    ) -> Result<f64> {
        match self {
            Self::Library(session, _) => measure.rate(&Library(session), subjects, load, stop),
            Self::Mount(served) => measure.rate(&Host::enter(served.root())?, subjects, load, stop),
            Self::Kernel(mount) => measure.rate(&Host::enter(mount.root())?, subjects, load, stop),
        }
    }

    /// Closes the volume; everything is written when this returns.
    pub(super) fn end(self) -> Result<()> {
        match self {
            Self::Library(session, volume) => {
                drop(session);
                if volume.is_read_only() {
                    Ok(())
                } else {
                    volume.close().map_err(SuiteError::from)
                }
            }
            Self::Mount(served) => served.end(),
            Self::Kernel(mount) => mount.end(),
        }
    }
}
