//! A volume that `mkfs` makes, with files in it or without.
//!
//! `mkfs` plans it, prints the plan, and writes it. The plan writes nothing.

use extern4::block::BlockDevice;
use extern4::build::Planned;
use extern4_mkfs::Plan;

use crate::new_volume::{NewVolumeError, threads};

/// A volume that is planned, and then written.
pub(super) enum Made {
    /// Without files.
    Empty(Box<Plan>),
    /// With the tree of a source.
    Filled {
        planned: Box<Planned>,
        /// Its UUID, when it is written. Until then, it may depend on contents that are not read.
        uuid: Option<[u8; 16]>,
    },
}

impl Made {
    pub(super) fn plan(&self) -> &Plan {
        match self {
            Self::Empty(plan) => plan,
            Self::Filled { planned, .. } => planned.plan(),
        }
    }

    /// Returns the UUID if it is known.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        match self {
            Self::Empty(plan) => Some(plan.superblock().uuid()),
            Self::Filled { uuid, .. } => *uuid,
        }
    }

    /// Writes the volume, to a device that reads as zeroes or may hold anything.
    pub(super) fn write(
        &mut self,
        device: &dyn BlockDevice,
        is_zero: bool,
    ) -> Result<(), NewVolumeError> {
        match self {
            Self::Empty(plan) if is_zero => plan.write_on_zeroes(device)?,
            Self::Empty(plan) => plan.write(device)?,
            Self::Filled { planned, uuid } => {
                let threads = threads(None);
                *uuid = Some(if is_zero {
                    planned.write_on_zeroes(device, threads)?
                } else {
                    planned.write(device, threads)?
                });
            }
        }
        Ok(())
    }
}
