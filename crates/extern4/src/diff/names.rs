//! The comparison of two trees by their names, as `diff` of GNU compares directories.
//!
//! It compares names, types and the targets of symbolic links, and leaves the contents of regular
//! files to the caller. It looks at neither owners nor modes.

use std::collections::BTreeSet;
use std::vec::IntoIter;

use extern4_tree::Glob;
use extern4_vfs::FileType;

use super::Both;
use super::contents::{OneError, OpenFile};
use super::fault::Error;
use super::view::{Node, View};

/// Which names are compared. The default is all names in the two directories themselves, and
/// symbolic links lead on to other files.
#[derive(Clone, Debug, Default)]
pub struct NameOptions {
    /// Compares subdirectories, too.
    pub recursive: bool,
    /// Compares symbolic links, and not the files that they lead to.
    pub no_dereference: bool,
    /// Takes a file that is not there as empty.
    pub new_file: bool,
    /// Takes a file that is not in the old tree as empty.
    pub unidirectional_new_file: bool,
    /// Leaves out files whose names match one of these.
    pub exclude: Vec<Glob>,
    /// Begins with this name in the directory at the top.
    pub starting_file: Option<Vec<u8>>,
}

/// A finding of [`compare_names`] at a path.
pub enum NameFinding<'f> {
    /// Only the old tree has the name.
    OnlyInOld,
    /// Only the new tree has the name.
    OnlyInNew,
    /// The files have different types, or they are devices of different numbers, pipes or sockets.
    Types(Both<Node>),
    /// Symbolic links with the same target, or names of the same device.
    Same,
    /// Symbolic links with different targets.
    Links,
    /// Directories that are not entered, since the comparison is not recursive.
    Directories,
    /// Regular files, whose contents the caller compares. One without a node is not there, and is
    /// taken as empty.
    Files {
        /// Their types and attributes.
        nodes: Both<Option<Node>>,
        /// Their contents.
        files: Both<&'f OpenFile<'f>>,
    },
    /// A file of one tree cannot be read.
    Unreadable(OneError),
    /// A symbolic link of one tree leads nowhere.
    Dangling {
        /// Whether it is in the new tree.
        is_new: bool,
    },
    /// A symbolic link of one tree leads to a directory that it is in.
    Loop {
        /// Whether it is in the new tree.
        is_new: bool,
    },
}

/// Compares two trees by their names, and calls `found` with the path of each name below the top
/// and the finding: a directory's names in the order of their bytes, and each subdirectory where
/// its name is. The `lost+found` that only a volume has is no difference.
///
/// ```
/// use std::convert::Infallible;
///
/// use extern4::diff::{Both, NameFinding, NameOptions, Tree, compare_names};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let dir = tempfile::tempdir()?;
///     for path in ["old/etc", "new/etc", "new/srv"] {
///         std::fs::create_dir_all(dir.path().join(path))?;
///     }
///     std::fs::write(dir.path().join("old/etc/motd"), "hello\n")?;
///     let old = Tree::directory(dir.path().join("old"))?;
///     let new = Tree::directory(dir.path().join("new"))?;
///     let views = Both { old: &old.view()?, new: &new.view()? };
///     let options = NameOptions { recursive: true, ..NameOptions::default() };
///     let mut lines = Vec::new();
///     let done: Result<(), Infallible> = compare_names(views, &options, |path, finding| {
///         let path = String::from_utf8_lossy(path);
///         match finding {
///             NameFinding::OnlyInOld => lines.push(format!("- {path}")),
///             NameFinding::OnlyInNew => lines.push(format!("+ {path}")),
///             _ => {}
///         }
///         Ok(())
///     });
///     done?;
///     assert_eq!(lines, ["- etc/motd", "+ srv"]);
///     Ok(())
/// }
/// ```
///
/// # Errors
/// The first error of `found`, which ends the comparison. A file that cannot be read is a finding.
pub fn compare_names<E>(
    views: Both<&View<'_>>,
    options: &NameOptions,
    found: impl FnMut(&[u8], NameFinding<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut walk = Walk {
        views,
        options,
        found,
        levels: Vec::new(),
    };
    let both = Both {
        old: true,
        new: true,
    };
    let Some(nodes) = walk.nodes(b"", both)? else {
        return Ok(());
    };
    walk.enter(b"", nodes)?;
    while let Some(level) = walk.levels.last_mut() {
        let Some((path, present)) = level.next() else {
            walk.levels.pop();
            continue;
        };
        walk.name(&path, present)?;
    }
    Ok(())
}

/// A walk over both trees.
struct Walk<'w, F> {
    views: Both<&'w View<'w>>,
    options: &'w NameOptions,
    found: F,
    /// The directories from the top to the current one.
    levels: Vec<Level>,
}

/// A directory whose names are compared. One of the trees may not have it.
struct Level {
    path: Vec<u8>,
    /// The numbers of the directories, by [`Node::id`].
    ids: Both<Option<(u64, u64)>>,
    names: Both<BTreeSet<Vec<u8>>>,
    /// The names of both that are left.
    left: IntoIter<Vec<u8>>,
}

impl Level {
    /// Returns the path of the next name, and which of the directories have it.
    fn next(&mut self) -> Option<(Vec<u8>, Both<bool>)> {
        let name = self.left.next()?;
        let present = self.names.as_ref().map(|names| names.contains(&name));
        let path = if self.path.is_empty() {
            name
        } else {
            [&self.path, &b"/"[..], &name].concat()
        };
        Some((path, present))
    }
}

impl<E, F: FnMut(&[u8], NameFinding<'_>) -> Result<(), E>> Walk<'_, F> {
    /// Returns the results about both trees, or tells the caller of the errors.
    fn readable<T>(
        &mut self,
        path: &[u8],
        results: Both<Result<T, Error>>,
    ) -> Result<Option<Both<T>>, E> {
        let mut found = |error| (self.found)(path, NameFinding::Unreadable(error));
        match (results.old, results.new) {
            (Ok(old), Ok(new)) => return Ok(Some(Both { old, new })),
            (old, new) => {
                if let Err(error) = old {
                    found(OneError::of_old(error))?;
                }
                if let Err(error) = new {
                    found(OneError::of_new(error))?;
                }
            }
        }
        Ok(None)
    }

    /// Returns the files at a path. Tells the caller of files that cannot be looked at.
    fn nodes(&mut self, path: &[u8], present: Both<bool>) -> Result<Option<Both<Option<Node>>>, E> {
        let follow = !self.options.no_dereference || path.is_empty();
        let views = self.views;
        let node = |view: &View<'_>, is_present: bool| {
            if is_present {
                view.node(path, follow)
            } else {
                Ok(None)
            }
        };
        let nodes = Both {
            old: node(views.old, present.old),
            new: node(views.new, present.new),
        };
        let Some(nodes) = self.readable(path, nodes)? else {
            return Ok(None);
        };
        // A name that leads nowhere is a symbolic link.
        let dangles = Both {
            old: present.old && nodes.old.is_none(),
            new: present.new && nodes.new.is_none(),
        };
        for (is_new, dangles) in [(false, dangles.old), (true, dangles.new)] {
            if dangles {
                (self.found)(path, NameFinding::Dangling { is_new })?;
            }
        }
        Ok(Some(nodes).filter(|_| !dangles.old && !dangles.new))
    }

    /// Begins to compare the names in the directories at a path, of which one may be missing.
    fn enter(&mut self, path: &[u8], nodes: Both<Option<Node>>) -> Result<(), E> {
        let views = self.views;
        let names = |view: &View<'_>, node: Option<Node>| match node {
            Some(_) => view.names(path),
            None => Ok(BTreeSet::new()),
        };
        let names = Both {
            old: names(views.old, nodes.old),
            new: names(views.new, nodes.new),
        };
        let Some(names) = self.readable(path, names)? else {
            return Ok(());
        };
        let first = self.options.starting_file.as_deref();
        let first = first.filter(|_| path.is_empty()).unwrap_or_default();
        let is_wanted = |name: &&Vec<u8>| {
            let mut patterns = self.options.exclude.iter();
            name.as_slice() >= first && !patterns.any(|pattern| pattern.matches(name))
        };
        let left: Vec<_> = names
            .old
            .union(&names.new)
            .filter(is_wanted)
            .cloned()
            .collect();
        self.levels.push(Level {
            path: path.to_vec(),
            ids: nodes.map(|node| Some(node?.id)),
            names,
            left: left.into_iter(),
        });
        Ok(())
    }

    /// Compares a name that one of two directories has, or both.
    fn name(&mut self, path: &[u8], present: Both<bool>) -> Result<(), E> {
        let is_in_both = present.old && present.new;
        let only = if present.old {
            NameFinding::OnlyInOld
        } else {
            NameFinding::OnlyInNew
        };
        if !is_in_both {
            if self.is_lost_found(path, present) {
                return Ok(());
            }
            let options = self.options;
            let is_empty_else = options.new_file || options.unidirectional_new_file && present.new;
            if !is_empty_else {
                return (self.found)(path, only);
            }
        }
        let Some(nodes) = self.nodes(path, present)? else {
            return Ok(());
        };
        let are = |file_type| {
            let mut nodes = [nodes.old, nodes.new].into_iter().flatten();
            nodes.all(|node| node.file_type == file_type)
        };
        if are(FileType::Directory) {
            return self.directories(path, nodes);
        }
        if are(FileType::Regular) {
            return self.files(path, nodes);
        }
        let (Some(old), Some(new)) = (nodes.old, nodes.new) else {
            return (self.found)(path, only);
        };
        let is_device = are(FileType::CharDevice) || are(FileType::BlockDevice);
        if are(FileType::Symlink) {
            self.links(path)
        } else if is_device && old.device == new.device {
            (self.found)(path, NameFinding::Same)
        } else {
            (self.found)(path, NameFinding::Types(Both { old, new }))
        }
    }

    /// Returns whether a name is that of the directory which every volume has, and the other tree
    /// is no volume.
    fn is_lost_found(&self, path: &[u8], present: Both<bool>) -> bool {
        let Both { old, new } = self.views;
        let (view, other) = if present.old { (old, new) } else { (new, old) };
        view.is_lost_found(path) && !other.is_volume()
    }

    fn links(&mut self, path: &[u8]) -> Result<(), E> {
        let targets = self.views.map(|view| view.link_target(path));
        let Some(Both { old, new }) = self.readable(path, targets)? else {
            return Ok(());
        };
        let finding = if old == new {
            NameFinding::Same
        } else {
            NameFinding::Links
        };
        (self.found)(path, finding)
    }

    fn directories(&mut self, path: &[u8], nodes: Both<Option<Node>>) -> Result<(), E> {
        if !self.options.recursive {
            return (self.found)(path, NameFinding::Directories);
        }
        let ids = nodes.map(|node| Some(node?.id));
        let leads_up = Both {
            old: ids.old.is_some() && self.levels.iter().any(|level| level.ids.old == ids.old),
            new: ids.new.is_some() && self.levels.iter().any(|level| level.ids.new == ids.new),
        };
        if leads_up.old || leads_up.new {
            let is_new = !leads_up.old;
            return (self.found)(path, NameFinding::Loop { is_new });
        }
        self.enter(path, nodes)
    }

    /// Compares two regular files, of which one may be missing.
    fn files(&mut self, path: &[u8], nodes: Both<Option<Node>>) -> Result<(), E> {
        let views = self.views;
        let files = Both {
            old: open_or_empty(views.old, path, nodes.old),
            new: open_or_empty(views.new, path, nodes.new),
        };
        let Some(files) = self.readable(path, files)? else {
            return Ok(());
        };
        let files = files.as_ref();
        (self.found)(path, NameFinding::Files { nodes, files })
    }
}

/// Opens a regular file; one that is missing is empty.
fn open_or_empty<'v>(
    view: &'v View<'_>,
    path: &[u8],
    node: Option<Node>,
) -> Result<OpenFile<'v>, Error> {
    match node {
        Some(_) => view.open(path),
        None => Ok(OpenFile::of_bytes(Vec::new())),
    }
}
