//! The steps of an update.

use extern4_build::MemberId;

/// One step of an update, at a path below the root without a slash in front.
pub(super) struct Step {
    pub(super) path: Vec<u8>,
    pub(super) action: Action,
    /// The change that is reported; `None` for a step that only ends an earlier one.
    pub(super) change: Option<Change>,
}

/// The work of a step.
pub(super) enum Action {
    /// Removes a name, and all below it.
    Remove,
    /// Makes a directory, which compares names as it is to. It gets its other attributes when all
    /// in it is done.
    MakeDirectory(MemberId),
    /// Makes any other file.
    Make(MemberId),
    /// Makes a further name of the file that has this path by now.
    Link(Vec<u8>),
    /// Gives a file the flags that forbid changes.
    Protect(MemberId),
    /// Gives a file its other attributes.
    SetAttributes(MemberId, Extra),
}

/// The rule for extended attributes that the tree's member does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Keep,
    Remove,
}

/// A change of a file by an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A name that was not there is made.
    Create,
    /// A new file takes the name of one with other contents or of another type.
    Replace,
    /// A file keeps its contents and gets other attributes.
    SetAttributes,
    /// A name goes, with all below it.
    Remove,
}
