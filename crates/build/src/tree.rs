//! The tree that is to be built, in memory: names, inodes, and the overlay of one source over
//! another.
//!
//! `builder` adds the entries of all sources; `layout`, `identity` and `write` read the result. A
//! later entry replaces an earlier one of the same path, and whiteouts remove it. A member whose
//! path leaves the tree, or leads through a file that is no directory, is an error that names it.

use std::hash::{BuildHasher as _, RandomState};
use std::mem;

use extern4_disk::inode::{FileKind, InodeFlags};
use extern4_mkfs::{LOST_FOUND_MODE, Owner};
use extern4_tree::{Contents, Entry, Error, Filter, Kind, Pattern, Result, Time};
use hashbrown::HashTable;

use crate::error::shown;
use crate::xattr::{Set, Sets};

/// No name and no inode.
const NONE: u32 = u32::MAX;
/// Symbolic links that the path to one member may follow, as in Linux.
const MOST_LINKS: usize = 40;
/// The longest name in bytes.
const NAME_MAX: usize = 255;
/// The directory that every volume has, for what e2fsck finds.
const LOST_FOUND: &[u8] = b"lost+found";
/// The mode of directories that a source implies.
const IMPLIED_MODE: u16 = 0o755;

/// A name in a directory.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) text: Box<[u8]>,
    /// The name of the directory that it is in, or was.
    parent: u32,
    pub(crate) inode: u32,
    /// The next name in the directory.
    next: u32,
    is_removed: bool,
}

/// A file of any type.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Time,
    pub(crate) links: u32,
    /// Its place in the order of all inodes, once there is one: 0 for the root directory.
    pub(crate) place: u32,
    pub(crate) xattrs: Set,
    /// A directory that no source gave: one is needed for what is in it.
    pub(crate) is_implied: bool,
    pub(crate) body: Body,
    /// Whether fs-verity is to protect it, which is a regular file then.
    pub(crate) is_sealed: bool,
    /// Inode flags and project, if a source has them.
    pub(crate) flags: Option<InodeFlags>,
    pub(crate) project: Option<u32>,
}

impl Node {
    /// Whom it is charged to.
    pub(crate) fn owner(&self) -> Owner {
        Owner {
            uid: self.uid,
            gid: self.gid,
            project: self.project.unwrap_or(0),
        }
    }
}

/// The type of a file, and what belongs to it.
#[derive(Debug)]
pub(crate) enum Body {
    Directory {
        /// The first name in it.
        first: u32,
    },
    File {
        contents: Contents,
        /// The source that has the contents, and the name under which it gave them.
        source: u16,
        name: u32,
    },
    Symlink(Box<[u8]>),
    CharDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
    Fifo,
    Socket,
    /// The value of extended attributes, which no name leads to.
    Value(Box<[u8]>),
}

impl Body {
    pub(crate) fn kind(&self) -> FileKind {
        match self {
            Self::Directory { .. } => FileKind::Directory,
            Self::File { .. } | Self::Value(_) => FileKind::Regular,
            Self::Symlink(_) => FileKind::Symlink,
            Self::CharDevice { .. } => FileKind::CharDevice,
            Self::BlockDevice { .. } => FileKind::BlockDevice,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}

/// A tree of files.
pub(crate) struct Tree {
    names: Vec<Name>,
    nodes: Vec<Node>,
    /// Names by directory and text.
    index: HashTable<u32>,
    hasher: RandomState,
    pub(crate) xattrs: Sets,
    /// Paths under which a source gave a file, where the path through the tree is another one.
    detours: Vec<(u32, Box<[u8]>)>,
    /// Whether a symbolic link to a directory stays where a source has a directory.
    keeps_links: bool,
    /// The symbolic links to directories that directories have replaced: paths and targets.
    pub(crate) replaced_links: Vec<(Vec<u8>, Box<[u8]>)>,
}

impl Tree {
    /// A tree of an empty root directory, in which symbolic links to directories stay or are
    /// replaced by directories.
    pub(crate) fn new(keeps_links: bool) -> Self {
        let root = Node {
            mode: IMPLIED_MODE,
            uid: 0,
            gid: 0,
            mtime: Time::default(),
            links: 1,
            place: NONE,
            xattrs: Set::default(),
            is_implied: true,
            body: Body::Directory { first: NONE },
            is_sealed: false,
            flags: None,
            project: None,
        };
        let name = Name {
            text: Box::default(),
            parent: 0,
            inode: 0,
            next: NONE,
            is_removed: false,
        };
        Self {
            names: vec![name],
            nodes: vec![root],
            index: HashTable::new(),
            hasher: RandomState::new(),
            xattrs: Sets::default(),
            detours: Vec::new(),
            keeps_links,
            replaced_links: Vec::new(),
        }
    }

    pub(crate) fn node(&self, inode: u32) -> &Node {
        &self.nodes[inode as usize]
    }

    pub(crate) fn set_root_owner(&mut self, (uid, gid): (u32, u32)) {
        (self.nodes[0].uid, self.nodes[0].gid) = (uid, gid);
    }

    /// Sets the owner and the group of all files that a source has given.
    pub(crate) fn set_owners(&mut self, (uid, gid): (u32, u32)) {
        for node in self.nodes.iter_mut().filter(|node| !node.is_implied) {
            (node.uid, node.gid) = (uid, gid);
        }
    }

    /// The contents of a regular file, the source that has them, and the path under which it gave
    /// them.
    pub(crate) fn file(&mut self, path: &[u8]) -> Result<Option<(Contents, u16, Vec<u8>)>> {
        let Some((parent, text)) = split(path) else {
            return Ok(None);
        };
        let Some(parent) = self.directory(parent, false, path)? else {
            return Ok(None);
        };
        let Some(found) = self.find(parent, text) else {
            return Ok(None);
        };
        let node = self.node(self.names[found as usize].inode);
        let Body::File {
            contents,
            source,
            name,
        } = &node.body
        else {
            return Ok(None);
        };
        let contents = contents.clone();
        let source = *source;
        let name = *name;
        let detour = self.detours.iter().find(|(detour, _)| *detour == name);
        let given = detour.map_or_else(|| self.path(name), |(_, path)| path.to_vec());
        Ok(Some((contents, source, given)))
    }

    /// The path of a name from the root, without a slash in front.
    pub(crate) fn path(&self, mut name: u32) -> Vec<u8> {
        let mut parts = Vec::new();
        while name != 0 {
            let Name { text, parent, .. } = &self.names[name as usize];
            parts.push(&**text);
            name = *parent;
        }
        parts.reverse();
        parts.join(&b'/')
    }

    /// The path under which the source of a file gave it.
    pub(crate) fn source_path(&self, name: u32) -> Vec<u8> {
        match self.detours.binary_search_by_key(&name, |(name, _)| *name) {
            Ok(at) => self.detours[at].1.to_vec(),
            Err(_) => self.path(name),
        }
    }

    /// The names in a directory, given by its own name, in order.
    pub(crate) fn children(&self, directory: u32) -> impl Iterator<Item = (u32, &Name)> {
        let first = match self.nodes[self.names[directory as usize].inode as usize].body {
            Body::Directory { first } => first,
            _ => NONE,
        };
        let named = |at: u32| (at != NONE).then(|| (at, &self.names[at as usize]));
        std::iter::successors(named(first), move |(_, name)| named(name.next))
            .filter(|(_, name)| !name.is_removed)
    }

    fn find(&self, parent: u32, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one((parent, text));
        let matches = |at: &u32| {
            let name = &self.names[*at as usize];
            name.parent == parent && *name.text == *text
        };
        self.index.find(hash, matches).copied()
    }

    fn link(&mut self, parent: u32, text: &[u8], inode: u32) -> u32 {
        let at = self.names.len() as u32;
        let directory = self.names[parent as usize].inode;
        let Body::Directory { first } = &mut self.nodes[directory as usize].body else {
            return NONE;
        };
        let next = mem::replace(first, at);
        self.names.push(Name {
            text: text.into(),
            parent,
            inode,
            next,
            is_removed: false,
        });
        let names = &self.names;
        let hasher = &self.hasher;
        let hash = |at: &u32| {
            let name = &names[*at as usize];
            hasher.hash_one((name.parent, &*name.text))
        };
        self.index.insert_unique(hash(&at), at, hash);
        at
    }

    /// Takes a name away, with all that is below it.
    fn unlink(&mut self, name: u32) {
        let mut left = vec![name];
        while let Some(at) = left.pop() {
            left.extend(self.children(at).map(|(child, _)| child));
            let Name {
                text,
                parent,
                inode,
                ..
            } = &self.names[at as usize];
            let hash = self.hasher.hash_one((*parent, &**text));
            let inode = *inode;
            if let Ok(found) = self.index.find_entry(hash, |other| *other == at) {
                found.remove();
            }
            self.names[at as usize].is_removed = true;
            self.nodes[inode as usize].links -= 1;
        }
    }

    /// The directory that a path names, which may lead through symbolic links of the tree.
    /// Directories that are not there are made if `make` says so; without it, they are `None`.
    fn directory(&mut self, path: &[u8], make: bool, member: &[u8]) -> Result<Option<u32>> {
        let refuse = |reason: &str| Error::Refused {
            path: shown(member),
            reason: reason.to_owned(),
        };
        let mut left: Vec<Vec<u8>> = components(path).rev().map(<[u8]>::to_vec).collect();
        let mut at = 0;
        let mut links = 0;
        while let Some(part) = left.pop() {
            match &*part {
                b"." => continue,
                b".." => {
                    at = self.names[at as usize].parent;
                    continue;
                }
                _ => {}
            }
            let Some(found) = self.find(at, &part) else {
                if !make {
                    return Ok(None);
                }
                at = self.make_directory(at, &part, member)?;
                continue;
            };
            match &self.nodes[self.names[found as usize].inode as usize].body {
                Body::Directory { .. } => at = found,
                Body::Symlink(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(refuse("too many symbolic links are on the way to it"));
                    }
                    if target.starts_with(b"/") {
                        at = 0;
                    }
                    left.extend(components(target).rev().map(<[u8]>::to_vec));
                }
                _ if !make => return Ok(None),
                _ => return Err(refuse("what it is to be in is not a directory")),
            }
        }
        Ok(Some(at))
    }

    fn make_directory(&mut self, parent: u32, text: &[u8], member: &[u8]) -> Result<u32> {
        check_name(text, member)?;
        let mtime = self.nodes[self.names[parent as usize].inode as usize].mtime;
        let inode = self.add_node(Node {
            mode: IMPLIED_MODE,
            uid: 0,
            gid: 0,
            mtime,
            links: 1,
            place: NONE,
            xattrs: Set::default(),
            is_implied: true,
            body: Body::Directory { first: NONE },
            is_sealed: false,
            flags: None,
            project: None,
        });
        Ok(self.link(parent, text, inode))
    }

    /// Adds an inode for the value of an extended attribute of `owner`. Gives the inode in the
    /// tree.
    pub(crate) fn add_value(&mut self, value: &[u8], owner: u32) -> u32 {
        let Node {
            uid, gid, mtime, ..
        } = self.nodes[owner as usize];
        self.add_node(Node {
            mode: 0o600,
            uid,
            gid,
            mtime,
            links: 1,
            place: NONE,
            xattrs: Set::default(),
            is_implied: false,
            body: Body::Value(value.into()),
            is_sealed: false,
            flags: None,
            project: None,
        })
    }

    /// Takes the inodes of values away.
    pub(crate) fn remove_values(&mut self, order: &mut Order) {
        let is_value = |node: &Node| matches!(node.body, Body::Value(_));
        order
            .inodes
            .retain(|inode| !is_value(&self.nodes[*inode as usize]));
        self.nodes.retain(|node| !is_value(node));
    }

    fn add_node(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Takes an entry of a source, and puts it over what the tree has.
    pub(crate) fn insert(&mut self, entry: Entry, source: u16) -> Result<()> {
        let given = entry.path.clone();
        let Some((parent, text)) = split(&given) else {
            return self.set_root(entry);
        };
        check_name(text, &given)?;
        let Some(parent) = self.directory(parent, true, &given)? else {
            return Ok(());
        };
        let old = self.find(parent, text);
        if let Kind::HardLink(target) = &entry.kind {
            return self.insert_link(parent, text, old, target, &given);
        }
        if let (Some(old), Kind::Directory) = (old, &entry.kind) {
            let inode = self.names[old as usize].inode;
            if self.nodes[inode as usize].body.is_directory() {
                self.set_facts(inode, &entry)?;
                return Ok(());
            }
            if let Some(target) = self.link_to_directory(inode, &given) {
                if self.keeps_links {
                    return Ok(());
                }
                self.replaced_links.push((given.clone(), target));
            }
        }
        if let Some(old) = old {
            self.unlink(old);
        }
        if let Kind::Symlink(target) = &entry.kind
            && (target.is_empty() || target.contains(&0))
        {
            let reason = "the target of the symbolic link is empty or has a NUL in it".to_owned();
            return Err(Error::Refused {
                path: shown(&given),
                reason,
            });
        }
        let body = match entry.kind.clone() {
            Kind::Directory => Body::Directory { first: NONE },
            Kind::File(contents) => Body::File {
                contents,
                source,
                name: self.names.len() as u32,
            },
            Kind::Symlink(target) => Body::Symlink(target.into()),
            Kind::CharDevice { major, minor } => Body::CharDevice { major, minor },
            Kind::BlockDevice { major, minor } => Body::BlockDevice { major, minor },
            Kind::Fifo => Body::Fifo,
            Kind::Socket | Kind::HardLink(_) => Body::Socket,
        };
        let inode = self.add_node(Node {
            mode: 0,
            uid: 0,
            gid: 0,
            mtime: Time::default(),
            links: 1,
            place: NONE,
            xattrs: Set::default(),
            is_implied: false,
            body,
            is_sealed: false,
            flags: None,
            project: None,
        });
        self.set_facts(inode, &entry)?;
        let name = self.link(parent, text, inode);
        if self.nodes.len() >= NONE as usize {
            return Err(Error::Refused {
                path: shown(&given),
                reason: "the tree has too many files".to_owned(),
            });
        }
        if matches!(entry.kind, Kind::File(_)) && self.path(name) != given {
            self.detours.push((name, given.into()));
        }
        Ok(())
    }

    /// The target of a symbolic link that leads to a directory of the tree.
    fn link_to_directory(&mut self, inode: u32, path: &[u8]) -> Option<Box<[u8]>> {
        let Body::Symlink(target) = &self.nodes[inode as usize].body else {
            return None;
        };
        let target = target.clone();
        self.directory(path, false, path)
            .ok()
            .flatten()
            .map(|_| target)
    }

    fn insert_link(
        &mut self,
        parent: u32,
        text: &[u8],
        old: Option<u32>,
        target: &[u8],
        given: &[u8],
    ) -> Result<()> {
        let missing = || Error::NoTarget {
            path: shown(given),
            target: shown(target),
        };
        let (directory, last) = split(target).ok_or_else(missing)?;
        let directory = self
            .directory(directory, false, given)?
            .ok_or_else(missing)?;
        let found = self.find(directory, last).ok_or_else(missing)?;
        if old == Some(found) {
            return Ok(());
        }
        let inode = self.names[found as usize].inode;
        if self.nodes[inode as usize].body.is_directory() {
            let reason = format!("a hard link to the directory '{}'", shown(target));
            return Err(Error::Refused {
                path: shown(given),
                reason,
            });
        }
        self.nodes[inode as usize].links += 1;
        if let Some(old) = old {
            self.unlink(old);
        }
        self.link(parent, text, inode);
        Ok(())
    }

    fn set_root(&mut self, entry: Entry) -> Result<()> {
        if entry.kind != Kind::Directory {
            return Err(Error::Refused {
                path: shown(b""),
                reason: "the root is not a directory".to_owned(),
            });
        }
        self.set_facts(0, &entry)
    }

    fn set_facts(&mut self, inode: u32, entry: &Entry) -> Result<()> {
        let refused = |reason| Error::Refused {
            path: shown(&entry.path),
            reason,
        };
        let (xattrs, mode) = self
            .xattrs
            .intern(&entry.xattrs, entry.mode)
            .map_err(refused)?;
        let node = &mut self.nodes[inode as usize];
        (node.mode, node.uid, node.gid) = (mode, entry.uid, entry.gid);
        (node.mtime, node.xattrs, node.is_implied) = (entry.mtime, xattrs, false);
        // A source without flags and projects leaves what an earlier source set.
        (node.flags, node.project) = (entry.flags.or(node.flags), entry.project.or(node.project));
        Ok(())
    }

    /// Changes an entry as `change` says, which gets the one that the tree has and gives the one
    /// that it is to have. An entry that only changes its facts keeps its contents and its other
    /// names.
    pub(crate) fn amend(
        &mut self,
        path: &[u8],
        source: u16,
        change: impl FnOnce(Option<Entry>) -> Result<Option<Entry>>,
    ) -> Result<()> {
        let inode = match split(path) {
            None => Some(0),
            Some((parent, text)) => {
                let parent = self.directory(parent, false, path)?;
                let name = parent.and_then(|parent| self.find(parent, text));
                name.map(|name| self.names[name as usize].inode)
            }
        };
        let old = inode.map(|inode| self.entry(inode, path));
        let kind = old.as_ref().map(|entry| entry.kind.clone());
        match (change(old)?, inode) {
            (None, _) => Ok(()),
            (Some(entry), Some(inode)) if Some(&entry.kind) == kind.as_ref() => {
                self.set_facts(inode, &entry)
            }
            (Some(entry), _) => self.insert(entry, source),
        }
    }

    /// The entry of an inode at a path.
    pub(crate) fn entry(&self, inode: u32, path: &[u8]) -> Entry {
        let node = &self.nodes[inode as usize];
        let kind = match &node.body {
            Body::Directory { .. } => Kind::Directory,
            Body::File { contents, .. } => Kind::File(contents.clone()),
            Body::Symlink(target) => Kind::Symlink(target.to_vec()),
            &Body::CharDevice { major, minor } => Kind::CharDevice { major, minor },
            &Body::BlockDevice { major, minor } => Kind::BlockDevice { major, minor },
            Body::Fifo => Kind::Fifo,
            Body::Socket | Body::Value(_) => Kind::Socket,
        };
        Entry {
            path: path.to_vec(),
            kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            mtime: node.mtime,
            xattrs: self.xattrs.with_full_names(node.xattrs),
            flags: node.flags,
            project: node.project,
        }
    }

    /// Takes a path away: a whiteout.
    pub(crate) fn remove(&mut self, path: &[u8]) -> Result<()> {
        let Some((parent, text)) = split(path) else {
            return self.clear(path);
        };
        if let Some(parent) = self.directory(parent, false, path)?
            && let Some(found) = self.find(parent, text)
        {
            self.unlink(found);
        }
        Ok(())
    }

    /// Takes all names of a directory away.
    pub(crate) fn clear(&mut self, path: &[u8]) -> Result<()> {
        if let Some(directory) = self.directory(path, false, path)? {
            let names: Vec<u32> = self.children(directory).map(|(name, _)| name).collect();
            for name in names {
                self.unlink(name);
            }
        }
        Ok(())
    }

    /// Takes away all paths that a filter leaves out, with what is below them.
    pub(crate) fn filter(&mut self, filter: &Filter) {
        if filter.is_empty() {
            return;
        }
        let mut left = vec![(0, Vec::new())];
        while let Some((directory, path)) = left.pop() {
            let names: Vec<u32> = self.children(directory).map(|(name, _)| name).collect();
            for name in names {
                let Name { text, inode, .. } = &self.names[name as usize];
                let is_directory = self.node(*inode).body.is_directory();
                let below = if path.is_empty() {
                    text.to_vec()
                } else {
                    [&path, &b"/"[..], text].concat()
                };
                if filter.leaves_out(&below, is_directory) {
                    self.unlink(name);
                } else if is_directory {
                    left.push((name, below));
                }
            }
        }
    }

    /// Has fs-verity protect the regular files that one of these patterns matches by any of their
    /// names. Returns whether there are any.
    pub(crate) fn seal(&mut self, patterns: &[Pattern]) -> bool {
        let mut any = false;
        if patterns.is_empty() {
            return any;
        }
        for at in 0..self.names.len() {
            let Name {
                inode, is_removed, ..
            } = self.names[at];
            if is_removed || !matches!(self.node(inode).body, Body::File { .. }) {
                continue;
            }
            let path = self.path(at as u32);
            if patterns.iter().any(|pattern| pattern.matches(&path, false)) {
                self.nodes[inode as usize].is_sealed = true;
                any = true;
            }
        }
        any
    }

    /// Adds the directory lost+found if no source gives it, as `mke2fs` makes it.
    pub(crate) fn add_lost_found(&mut self) -> Result<()> {
        match self.find(0, LOST_FOUND) {
            None => {
                let made = self.make_directory(0, LOST_FOUND, LOST_FOUND)?;
                let inode = self.names[made as usize].inode;
                self.nodes[inode as usize].mode = LOST_FOUND_MODE;
            }
            Some(found)
                if self
                    .node(self.names[found as usize].inode)
                    .body
                    .is_directory() => {}
            Some(_) => {
                let reason =
                    "a volume needs it as a directory, for the files that e2fsck finds".to_owned();
                return Err(Error::Refused {
                    path: shown(LOST_FOUND),
                    reason,
                });
            }
        }
        Ok(())
    }

    /// Sets the time of an inode if no source gives it.
    pub(crate) fn set_implied_time(&mut self, inode: u32, mtime: Time) {
        let node = &mut self.nodes[inode as usize];
        if node.is_implied {
            node.mtime = mtime;
        }
    }

    /// Has `label` change the extended attributes of each file of a sorted tree.
    pub(crate) fn label(&mut self, order: &Order, label: &mut dyn FnMut(&mut Entry)) -> Result<()> {
        let mut is_labelled = vec![false; self.nodes.len()];
        let mut left = vec![(0, Vec::new())];
        for &directory in &order.directories {
            let path = self.path(directory);
            let below = |name: &Name| match &path[..] {
                b"" => name.text.to_vec(),
                path => [path, b"/", &name.text].concat(),
            };
            left.extend(
                self.children(directory)
                    .map(|(_, name)| (name.inode, below(name))),
            );
            for (inode, path) in left.drain(..) {
                if std::mem::replace(&mut is_labelled[inode as usize], true) {
                    continue;
                }
                let mut entry = self.entry(inode, &path);
                label(&mut entry);
                let refused = |reason| Error::Refused {
                    path: shown(&path),
                    reason,
                };
                let node = &mut self.nodes[inode as usize];
                node.xattrs = self
                    .xattrs
                    .intern(&entry.xattrs, node.mode)
                    .map_err(refused)?
                    .0;
            }
        }
        Ok(())
    }

    /// Sorts the names of each directory, and puts all inodes in the order of their paths: each
    /// directory's files together. Counts the links of directories.
    pub(crate) fn sort(&mut self) -> Order {
        self.detours.sort_unstable_by_key(|(name, _)| *name);
        let lost_found = self
            .find(0, LOST_FOUND)
            .map_or(0, |name| self.names[name as usize].inode);
        self.index = HashTable::new();
        let mut order = Order {
            inodes: vec![0],
            directories: vec![0],
            lost_found,
        };
        self.nodes[0].place = 0;
        let mut left = vec![0_u32];
        while let Some(directory) = left.pop() {
            let children = self.sort_names(directory);
            let deeper = left.len();
            for &child in &children {
                let inode = self.names[child as usize].inode;
                let node = &mut self.nodes[inode as usize];
                if node.place == NONE {
                    node.place = order.inodes.len() as u32;
                    order.inodes.push(inode);
                }
                if node.body.is_directory() {
                    order.directories.push(child);
                    left.push(child);
                }
            }
            let inode = self.names[directory as usize].inode;
            self.nodes[inode as usize].links = 2 + (left.len() - deeper) as u32;
            left[deeper..].reverse();
        }
        order
    }

    /// Sorts the names of a directory; gives them.
    fn sort_names(&mut self, directory: u32) -> Vec<u32> {
        let mut children: Vec<u32> = self.children(directory).map(|(name, _)| name).collect();
        children.sort_unstable_by(|a, b| {
            self.names[*a as usize]
                .text
                .cmp(&self.names[*b as usize].text)
        });
        let mut next = NONE;
        for &child in children.iter().rev() {
            self.names[child as usize].next = next;
            next = child;
        }
        if let Body::Directory { first } =
            &mut self.nodes[self.names[directory as usize].inode as usize].body
        {
            *first = next;
        }
        children
    }

    /// A name by its number.
    pub(crate) fn name(&self, name: u32) -> &Name {
        &self.names[name as usize]
    }

    /// The inode of the directory that a directory is in.
    pub(crate) fn parent_inode(&self, directory: u32) -> u32 {
        self.names[self.names[directory as usize].parent as usize].inode
    }

    /// A name of an inode, for messages.
    pub(crate) fn some_name_of(&self, inode: u32) -> u32 {
        let is_it = |name: &Name| name.inode == inode && !name.is_removed;
        self.names.iter().position(is_it).map_or(0, |at| at as u32)
    }

    /// How many inodes there are, those without a name included.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }
}

/// The files of a tree in the order in which they are stored.
#[derive(Debug)]
pub(crate) struct Order {
    /// All inodes, the root directory's first.
    pub(crate) inodes: Vec<u32>,
    /// The names of all directories.
    pub(crate) directories: Vec<u32>,
    /// The inode of lost+found; 0 without one.
    pub(crate) lost_found: u32,
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
}

/// The directory's path and the last component; `None` for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    Some(match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    })
}

fn check_name(text: &[u8], member: &[u8]) -> Result<()> {
    let reason = match text {
        b"" | b"." | b".." => "the last part of its path is not a name".to_owned(),
        _ if text.len() > NAME_MAX => {
            format!("the name has {} bytes, more than {NAME_MAX}", text.len())
        }
        _ if text.contains(&0) || text.contains(&b'/') => {
            "the name has a NUL or a slash in it".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::Refused {
        path: shown(member),
        reason,
    })
}
