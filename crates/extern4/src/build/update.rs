//! Brings a volume that is there to the state of a merged tree, and writes only what differs.
//!
//! The comparison comes first and writes nothing: names, types, contents byte by byte, owners,
//! modes, times and extended attributes. Names that the tree lacks are removed first. A file whose
//! contents differ is written under another name, gets its attributes, and takes the name at the
//! end. So after a crash a volume with a journal has the old file or the new one at each name.
//! Other attributes are changed in place. A directory gets its attributes when all in it is done.

mod attributes;
mod contents;
mod error;
mod options;
mod planner;
mod step;
mod summary;
mod writer;

use std::ops::ControlFlow;

use extern4_build::{Merged, Watch};

use self::error::Failure;
pub use self::error::UpdateError;
pub use self::options::{Existing, UpdateOptions};
use self::planner::Plan;
pub use self::step::Change;
pub use self::summary::UpdateSummary;
use self::writer::Writer;
use crate::build::tree_walk::Unreadable;
use crate::session::Session;

/// The changes that bring a volume to the state of a merged tree.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use extern4::Volume;
/// use extern4::build::{BuildOptions, Builder, Update, UpdateOptions, source};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let dir = tempfile::tempdir()?;
///     let site = dir.path().join("site");
///     std::fs::create_dir(&site)?;
///     std::fs::write(site.join("index.html"), "hello\n")?;
///     let volume = Volume::create_new(dir.path().join("site.img"), 16 << 20)?;
///     let session = volume.superuser();
///     session.write("/old.html", "goodbye\n")?;
///
///     let mut builder = Builder::new(BuildOptions::default());
///     builder.add(source(&site, dir.path())?, b"")?;
///     let options = UpdateOptions { owners: true, ..UpdateOptions::default() };
///     let update = Update::plan(builder.merge()?, &session, options, None)?;
///     assert_eq!((update.summary().created, update.summary().removed), (1, 1));
///     update.run(&session, None, &mut |step| {
///         println!("{step:?}");
///         ControlFlow::Continue(())
///     })?;
///     assert_eq!(session.read("/index.html")?, b"hello\n");
///     assert!(!session.exists("/old.html")?);
///     Ok(())
/// }
/// ```
pub struct Update {
    merged: Merged,
    options: UpdateOptions,
    plan: Plan,
}

/// A step of an update, with the path below the root.
#[derive(Debug)]
pub enum UpdateStep<'a> {
    /// It is done.
    Done(Change, &'a [u8]),
    /// The volume refuses it.
    Failed(&'a Unreadable),
}

impl Update {
    /// Compares a volume with a tree. The session stands in the volume's root. To be sure that
    /// nothing is written, access times included, let it be that of a volume that is open for
    /// reading.
    ///
    /// # Errors
    /// A source or a file of the volume that cannot be read, and [`UpdateError::Interrupted`] if
    /// the watch breaks.
    pub fn plan(
        merged: Merged,
        session: &Session,
        options: UpdateOptions,
        watch: Option<&Watch>,
    ) -> Result<Self, UpdateError> {
        let plan = planner::plan(&merged, session, &options, watch)?;
        Ok(Self {
            merged,
            options,
            plan,
        })
    }

    /// Returns what changes, in numbers.
    pub fn summary(&self) -> UpdateSummary {
        self.plan.summary
    }

    /// Messages for the user about what the sources lack.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.merged
            .warnings()
            .iter()
            .chain(&self.plan.warnings)
            .map(String::as_str)
    }

    /// Returns names that cannot be updated, with the reasons.
    pub fn refused(&self) -> &[Unreadable] {
        &self.plan.refused
    }

    /// Returns what changes, in the order in which it is done.
    pub fn changes(&self) -> impl Iterator<Item = (Change, &[u8])> {
        let steps = self.plan.removals.iter().chain(&self.plan.steps);
        steps.filter_map(|step| Some((step.change?, &*step.path)))
    }

    /// Brings the volume to the state of the tree. The session stands in the volume's root, and the
    /// volume has not changed since the comparison. The update calls `tell` after each step, and a
    /// break ends it. Returns how many bytes of contents were written.
    ///
    /// A crash leaves each name with its old file or its new one, if the volume has a journal. It
    /// may also leave a file that has not got its name yet, such as `.name.new0`, which the next
    /// update removes.
    ///
    /// # Errors
    /// A source that cannot be read, and [`UpdateError::Interrupted`] if the watch or `tell`
    /// breaks. Changes that are done by then stay.
    pub fn run(
        &self,
        session: &Session,
        watch: Option<&Watch>,
        tell: &mut dyn FnMut(UpdateStep<'_>) -> ControlFlow<()>,
    ) -> Result<u64, UpdateError> {
        let Plan {
            removals,
            steps,
            summary,
            ..
        } = &self.plan;
        let mut writer = Writer::new(
            &self.merged,
            session,
            self.options.owners,
            watch,
            summary.bytes,
        );
        for step in removals.iter().chain(steps) {
            let told = match (writer.step(step), step.change) {
                (Ok(()), Some(change)) => tell(UpdateStep::Done(change, &step.path)),
                (Ok(()), None) => ControlFlow::Continue(()),
                (Err(Failure::Volume(error)), _) => tell(UpdateStep::Failed(&Unreadable {
                    path: step.path.clone(),
                    error,
                })),
                (Err(failure), _) => return Err(failure.at(&step.path)),
            };
            if told.is_break() {
                return Err(UpdateError::Interrupted);
            }
        }
        Ok(writer.bytes())
    }
}
