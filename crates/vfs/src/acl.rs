//! POSIX.1e access control lists.

/// Whom an [`AclEntry`] speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AclTag {
    /// The file's owner.
    UserObj,
    /// A user by id.
    User(u32),
    /// The file's group.
    GroupObj,
    /// A group by id.
    Group(u32),
    /// The most that named users, the file's group and named groups may get.
    Mask,
    /// Everybody else.
    Other,
}

/// One entry: whom, and read 4, write 2, execute 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom the entry speaks of.
    pub tag: AclTag,
    /// The rights: `0o7` at most.
    pub perm: u8,
}

/// A valid access control list: entries in the order of their tags, each of the three required ones once, a mask
/// where there is a named user or group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    pub(crate) entries: Box<[AclEntry]>,
}

/// Which of an inode's two ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclKind {
    /// The one that decides who may use the inode.
    Access,
    /// The one that new children of a directory start with.
    Default,
}
