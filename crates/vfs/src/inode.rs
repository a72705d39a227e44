//! Inodes: what the VFS keeps of a file while it is in use.

use std::any::Any;

use crate::attr::Attr;

/// What a file system hands over for an inode that it has read.
pub struct NewInode {
    /// The attributes.
    pub attr: Attr,
    /// The inode is known to have no access ACL and, where it is a directory, no default ACL, so that nobody need ask.
    pub no_acl: bool,
    /// Whatever the file system wants to find again with the inode.
    pub private: Box<dyn Any + Send + Sync>,
}

/// An inode in memory.
pub struct Inode {
    attr: Attr,
    private: Box<dyn Any + Send + Sync>,
}

impl Inode {
    /// An inode outside of any cache, for tests of a file system's own methods.
    pub fn detached(new: NewInode) -> Self {
        Self { attr: new.attr, private: new.private }
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.attr.ino
    }

    /// A consistent copy of the attributes.
    pub fn attr(&self) -> Attr {
        self.attr
    }

    /// What the file system stored with the inode.
    ///
    /// # Panics
    ///
    /// If the inode belongs to another type of file system: the VFS hands an inode only to its own.
    pub fn private<T: Any>(&self) -> &T {
        self.private.downcast_ref().expect("an inode goes only to the file system that made it")
    }
}
