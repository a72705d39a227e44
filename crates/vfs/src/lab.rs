//! Search checks and registries of open files that the lab measures in the place of production's, in production's walk, open and
//! close. `no_lab.rs` stands here in production.

mod registry;
mod search;

use std::sync::Arc;

use crate::open_files::OpenFiles;
use crate::permission::Checker;

pub(crate) use registry::InUse;
pub use registry::{LabRegistry, Ticket};
pub(crate) use search::Asked;
pub use search::{Check, check, search};

pub use crate::open_files::opened::Opened;
pub use crate::open_files::registry::Registry;
pub use crate::open_files::slabs::Slabs;

/// What the lab puts in the place of production's parts.
#[derive(Clone, Default)]
pub struct Sides {
    /// The search check.
    pub check: Check,
    /// The registry of open files; `None` for production's.
    pub registry: Option<Arc<dyn LabRegistry>>,
}

impl Sides {
    /// Puts these sides in the place of production's.
    pub(crate) fn replace(self, (mut files, mut checker): (OpenFiles, Checker)) -> (OpenFiles, Checker) {
        if let Some(registry) = self.registry {
            files.registry = InUse::Lab(registry);
        }
        checker.set_check(self.check);
        (files, checker)
    }
}
