//! Copies under the whole path of the source.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, mkdirat};

use super::super::observer::CopyObserver;
use super::super::paths::own_name;
use super::attributes::Original;
use super::destination::HostDestination;
use super::fault::Fault;
use super::{CopyOut, Failure, Origin};
use crate::metadata::Metadata;

impl CopyOut<'_> {
    /// Copies one file or tree below `directory`, under its whole path.
    pub(super) fn with_parents(
        &mut self,
        origin: Origin<'_>,
        directory: &Path,
        observer: &mut dyn CopyObserver,
    ) {
        let above = origin.path.parent().unwrap_or(Path::new("/"));
        let mut made = Vec::new();
        for above in above.ancestors().collect::<Vec<_>>().into_iter().rev() {
            match self.make_parent(origin, above, directory, observer) {
                Ok(new) => made.extend(new),
                Err(fault) => {
                    return self.summary.note(
                        Err(fault.into()),
                        above,
                        &below(directory, above),
                        observer,
                    );
                }
            }
        }
        let destination = match own_name(origin.path) {
            Some(name) => HostDestination::inside(&below(directory, above), name),
            None => HostDestination::itself(directory),
        };
        let destination = destination.map_err(|error| Failure::To(error.into()));
        self.copy_to(origin, destination, directory, observer);
        // A file that is made in a directory changes its times.
        for (path, metadata) in made.iter().rev() {
            let kept = self.keep_parent(origin, path, metadata, directory);
            self.summary.note(
                kept.map_err(Fault::into),
                path,
                &below(directory, path),
                observer,
            );
        }
    }

    /// Makes the copy of a directory above a source, if there is none. Returns its original then.
    fn make_parent(
        &self,
        origin: Origin<'_>,
        above: &Path,
        directory: &Path,
        observer: &mut dyn CopyObserver,
    ) -> Result<Option<(PathBuf, Metadata)>, Fault> {
        let metadata = origin.session.metadata(above)?;
        let to = below(directory, above);
        if to.is_dir() {
            return Ok(None);
        }
        mkdirat(
            CWD,
            &to,
            self.first_mode(metadata.mode(), true) | Mode::RWXU,
        )?;
        observer.made_parent(above, &to);
        Ok(Some((above.to_owned(), metadata)))
    }

    fn keep_parent(
        &mut self,
        origin: Origin<'_>,
        path: &Path,
        metadata: &Metadata,
        directory: &Path,
    ) -> Result<(), Fault> {
        let to = HostDestination::itself(&below(directory, path))?;
        let Origin {
            volume, session, ..
        } = origin;
        let original = Original {
            volume,
            path,
            directory: session,
            name: path.as_os_str(),
            metadata,
        };
        let keep = self.keep(&to);
        original.keep(&*to.base, keep, &mut self.summary.losses)
    }
}

/// Returns the path of the copy of `path` in `directory` under its whole path.
fn below(directory: &Path, path: &Path) -> PathBuf {
    directory.join(path.strip_prefix("/").unwrap_or(path))
}
