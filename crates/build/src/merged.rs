//! The tree that all sources make together, for callers that write it by themselves.

use extern4_tree::{Contents, Entry, Opened};

use crate::contents::{data, read};
use crate::error::{Error, Result};
use crate::layer::Layer;
use crate::tree::{Body, Tree};

/// The tree that all sources of a [`Builder`](crate::Builder) make together. Nothing of it is left
/// to be left out.
pub struct Merged {
    tree: Tree,
    layers: Vec<Layer>,
    warnings: Vec<String>,
}

/// A name in a [`Merged`] tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId(u32);

/// The open contents of a regular file in a [`Merged`] tree.
pub struct MemberContents<'a> {
    contents: &'a Contents,
    opened: Opened,
    /// The path under which the source gave the file, and its path in the source.
    path: Vec<u8>,
    path_in_source: Vec<u8>,
}

impl Merged {
    pub(crate) fn new(tree: Tree, layers: Vec<Layer>, warnings: Vec<String>) -> Self {
        Self {
            tree,
            layers,
            warnings,
        }
    }

    /// Messages for the user about things that are left out or altered.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the root directory.
    pub fn root(&self) -> MemberId {
        MemberId(0)
    }

    /// Returns the names in a directory, in the order of their bytes; none for any other member.
    pub fn children(&self, directory: MemberId) -> impl Iterator<Item = (&[u8], MemberId)> {
        self.tree
            .children(directory.0)
            .map(|(id, name)| (&*name.text, MemberId(id)))
    }

    /// Returns the number of the file that the name is for. All names of one file have the same.
    pub fn file_number(&self, member: MemberId) -> u32 {
        self.tree.name(member.0).inode
    }

    /// Returns whether the member is a directory that no source gave. One is needed for what is in
    /// it.
    pub fn is_implied(&self, member: MemberId) -> bool {
        self.tree.node(self.file_number(member)).is_implied
    }

    /// Returns the member as an entry, which is never a hard link.
    pub fn entry(&self, member: MemberId) -> Entry {
        self.tree
            .entry(self.file_number(member), &self.tree.path(member.0))
    }

    /// Opens the contents of a regular file; `None` for any other member.
    ///
    /// # Errors
    /// [`Error::Source`], also if the file has changed since it was scanned.
    pub fn open(&self, member: MemberId) -> Result<Option<MemberContents<'_>>> {
        let Body::File {
            contents,
            source,
            name,
        } = &self.tree.node(self.file_number(member)).body
        else {
            return Ok(None);
        };
        let path = self.tree.source_path(*name);
        let layer = &self.layers[usize::from(*source)];
        let opened = layer.open(&path, contents)?;
        let path_in_source = layer.path_in_source(&path).to_vec();
        opened.check_unchanged(&path_in_source)?;
        Ok(Some(MemberContents {
            contents,
            opened,
            path,
            path_in_source,
        }))
    }
}

impl MemberContents<'_> {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.contents.size
    }

    /// Returns the parts that are no holes, in order: offsets and lengths.
    ///
    /// # Errors
    /// [`Error::Member`] if the source cannot be read.
    pub fn data(&self) -> Result<Vec<(u64, u64)>> {
        data(self.contents, &self.opened).map_err(|error| Error::reading(&self.path, &error))
    }

    /// Fills the buffer with the bytes from an offset on. Holes are zeroes.
    ///
    /// # Errors
    /// [`Error::Member`] if the source cannot be read, or has changed since it was scanned.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        read(&self.opened, self.contents, buf, offset)
            .map_err(|error| Error::reading(&self.path, &error))?;
        Ok(self.opened.check_unchanged(&self.path_in_source)?)
    }
}
