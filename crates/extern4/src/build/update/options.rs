//! How a volume is updated.

/// How a volume is updated.
#[derive(Clone, Debug, Default)]
pub struct UpdateOptions {
    /// Names that the tree does not have stay, as when an archive is unpacked. Directories that the
    /// tree only implies keep their attributes, and a symbolic link to a directory stands for it.
    pub keeps_others: bool,
    /// Whether directories that are there keep their attributes. It needs `keeps_others`.
    pub keeps_directories: bool,
    /// Whether a symbolic link to a directory stays where the tree has a directory, whose files
    /// then go where the link leads. It needs `keeps_others`. Otherwise the directory replaces the
    /// link, with a warning.
    pub keeps_directory_links: bool,
    /// The rule for files that are there, directories excepted.
    pub existing: Existing,
    /// Whether files get the owners, groups, inode flags and projects of the tree; otherwise new
    /// ones belong to the caller.
    pub owners: bool,
}

/// The rule for files that are there and differ from the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// They become like the tree's.
    #[default]
    Replace,
    /// They stay, and each is an error.
    Refuse,
    /// They stay.
    Skip,
    /// They stay unless the tree's is newer.
    KeepNewer,
}
