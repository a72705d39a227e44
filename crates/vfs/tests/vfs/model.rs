//! Random operations, against a tree of maps that does the same the naive way.

use std::collections::{BTreeMap, BTreeSet};

use extern4_vfs::*;
use proptest::prelude::*;

use crate::fixture::{errno, volume_with};

/// A node of the model. Files carry an identity, so that links can be told from copies.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Dir(BTreeMap<String, Node>),
    File(usize),
    Link(String),
}

#[derive(Default)]
struct Model {
    root: BTreeMap<String, Node>,
    contents: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Op {
    Mkdir(String),
    Write(String, u8),
    Symlink(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, u8),
    DropCaches,
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "d"]), 1..4)
        .prop_map(|names| names.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => path().prop_map(Op::Mkdir),
        4 => (path(), any::<u8>()).prop_map(|(path, byte)| Op::Write(path, byte)),
        1 => (path(), path()).prop_map(|(target, path)| Op::Symlink(target, path)),
        2 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => path().prop_map(Op::Unlink),
        2 => path().prop_map(Op::Rmdir),
        6 => (path(), path(), 0..3u8).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
        1 => Just(Op::DropCaches),
    ]
}

type Outcome<T = ()> = std::result::Result<T, Errno>;

impl Model {
    /// The directory of a path, and the last name. Symbolic links on the way are refused as `None`:
    /// the model leaves them to the tests of the walk.
    fn parent<'a>(
        &mut self,
        path: &'a str,
    ) -> Option<Outcome<(&mut BTreeMap<String, Node>, &'a str)>> {
        let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = &mut self.root;
        for part in dirs.split('/').filter(|part| !part.is_empty()) {
            at = match at.get_mut(part) {
                None => return Some(Err(Errno::ENOENT)),
                Some(Node::File(_)) => return Some(Err(Errno::ENOTDIR)),
                Some(Node::Link(_)) => return None,
                Some(Node::Dir(names)) => names,
            };
        }
        Some(Ok((at, name)))
    }

    fn get(&mut self, path: &str) -> Option<Outcome<Option<Node>>> {
        Some(
            self.parent(path)?
                .map(|(names, name)| names.get(name).cloned()),
        )
    }

    fn insert(&mut self, path: &str, node: Node) {
        if let Some(Ok((names, name))) = self.parent(path) {
            names.insert(name.to_owned(), node);
        }
    }

    fn remove(&mut self, path: &str) {
        if let Some(Ok((names, name))) = self.parent(path) {
            names.remove(name);
        }
    }

    /// Returns the effect and the result of the operation; `None` if the model has no opinion, and
    /// the operation is left out.
    fn apply(&mut self, op: &Op) -> Option<Outcome> {
        match op {
            Op::Mkdir(path) => self.make(path, |_| Node::Dir(BTreeMap::new())),
            Op::Symlink(target, path) => self.make(path, |_| Node::Link(target.clone())),
            Op::Write(path, byte) => match self.get(path)? {
                Err(errno) => Some(Err(errno)),
                Ok(Some(Node::Dir(_))) => Some(Err(Errno::EISDIR)),
                Ok(Some(Node::Link(_))) => None,
                Ok(Some(Node::File(id))) => {
                    self.contents[id] = vec![*byte];
                    Some(Ok(()))
                }
                Ok(None) => {
                    self.contents.push(vec![*byte]);
                    let id = self.contents.len() - 1;
                    self.insert(path, Node::File(id));
                    Some(Ok(()))
                }
            },
            Op::Link(from, to) => {
                let from = match self.get(from)? {
                    Err(errno) => return Some(Err(errno)),
                    Ok(None) => return Some(Err(Errno::ENOENT)),
                    Ok(Some(node)) => node,
                };
                match self.get(to)? {
                    Err(errno) => Some(Err(errno)),
                    Ok(Some(_)) => Some(Err(Errno::EEXIST)),
                    Ok(None) => match from {
                        Node::Dir(_) => Some(Err(Errno::EPERM)),
                        // Two names of one symbolic link look like two links here.
                        Node::Link(_) => None,
                        file => {
                            self.insert(to, file);
                            Some(Ok(()))
                        }
                    },
                }
            }
            Op::Unlink(path) => Some(match self.get(path)? {
                Err(errno) => Err(errno),
                Ok(None) => Err(Errno::ENOENT),
                Ok(Some(Node::Dir(_))) => Err(Errno::EISDIR),
                Ok(Some(_)) => {
                    self.remove(path);
                    Ok(())
                }
            }),
            Op::Rmdir(path) => Some(match self.get(path)? {
                Err(errno) => Err(errno),
                Ok(None) => Err(Errno::ENOENT),
                Ok(Some(Node::Dir(names))) if names.is_empty() => {
                    self.remove(path);
                    Ok(())
                }
                Ok(Some(Node::Dir(_))) => Err(Errno::ENOTEMPTY),
                Ok(Some(_)) => Err(Errno::ENOTDIR),
            }),
            Op::Rename(from, to, flags) => self.rename(from, to, *flags),
            Op::DropCaches => Some(Ok(())),
        }
    }

    fn make(&mut self, path: &str, node: impl FnOnce(&Self) -> Node) -> Option<Outcome> {
        Some(match self.get(path)? {
            Err(errno) => Err(errno),
            Ok(Some(_)) => Err(Errno::EEXIST),
            Ok(None) => {
                let node = node(self);
                self.insert(path, node);
                Ok(())
            }
        })
    }

    fn rename(&mut self, from: &str, to: &str, flags: u8) -> Option<Outcome> {
        let noreplace = flags == 1;
        let exchange = flags == 2;
        let source = self.get(from)?;
        let target = self.get(to)?;
        let (source, target) = match (source, target) {
            (Err(errno), _) | (Ok(_), Err(errno)) => return Some(Err(errno)),
            (Ok(source), Ok(target)) => (source, target),
        };
        let Some(source) = source else {
            return Some(Err(Errno::ENOENT));
        };
        if noreplace && target.is_some() {
            return Some(Err(Errno::EEXIST));
        }
        if exchange && target.is_none() {
            return Some(Err(Errno::ENOENT));
        }
        if to.starts_with(&format!("{from}/")) {
            return Some(Err(Errno::EINVAL));
        }
        if from.starts_with(&format!("{to}/")) {
            return Some(Err(if exchange {
                Errno::EINVAL
            } else {
                Errno::ENOTEMPTY
            }));
        }
        let same_file =
            matches!((&source, &target), (Node::File(a), Some(Node::File(b))) if a == b);
        if from == to || same_file {
            return Some(Ok(()));
        }
        if exchange {
            self.insert(from, target?);
            self.insert(to, source);
            return Some(Ok(()));
        }
        match (&source, &target) {
            (Node::Dir(_), Some(Node::File(_) | Node::Link(_))) => {
                return Some(Err(Errno::ENOTDIR));
            }
            (Node::File(_) | Node::Link(_), Some(Node::Dir(_))) => return Some(Err(Errno::EISDIR)),
            (Node::Dir(_), Some(Node::Dir(names))) if !names.is_empty() => {
                return Some(Err(Errno::ENOTEMPTY));
            }
            _ => {}
        }
        self.remove(from);
        self.insert(to, source);
        Some(Ok(()))
    }
}

fn perform(session: &Session, op: &Op) -> Outcome {
    match op {
        Op::Mkdir(path) => errno(session.mkdir(path, 0o755)),
        Op::Write(path, byte) => {
            let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
            errno(
                session
                    .open(path, flags)
                    .and_then(|file| file.write_at(&[*byte], 0)),
            )
        }
        Op::Symlink(target, path) => errno(session.symlink(target, path)),
        Op::Link(from, to) => errno(session.link(from, LookupFlags::NOFOLLOW, to)),
        Op::Unlink(path) => errno(session.unlink(path)),
        Op::Rmdir(path) => errno(session.rmdir(path)),
        Op::Rename(from, to, flags) => {
            errno(session.rename(from, to, RenameFlags::from_bits_retain(u32::from(*flags))))
        }
        Op::DropCaches => {
            session.root().superblock().drop_caches();
            Ok(())
        }
    }
}

/// Everything the volume shows is what the model has: names, types, contents, link counts, ways up.
fn compare(session: &Session, model: &Model, path: &str, names: &BTreeMap<String, Node>) {
    let shown: BTreeSet<String> = crate::fixture::names(session, path).into_iter().collect();
    assert_eq!(
        shown,
        names.keys().cloned().collect::<BTreeSet<_>>(),
        "names of {path}"
    );
    let own = session.stat(path, LookupFlags::FOLLOW).unwrap();
    let subdirs = names
        .values()
        .filter(|node| matches!(node, Node::Dir(_)))
        .count();
    assert_eq!(
        (own.nlink, own.size),
        (u32::try_from(subdirs).unwrap() + 2, names.len() as u64),
        "{path}"
    );
    for (name, node) in names {
        let child = format!("{path}{name}");
        let attr = session.stat(&child, LookupFlags::NOFOLLOW).unwrap();
        match node {
            Node::Dir(names) => {
                assert_eq!(
                    session
                        .stat(format!("{child}/.."), LookupFlags::FOLLOW)
                        .unwrap()
                        .ino,
                    own.ino
                );
                compare(session, model, &format!("{child}/"), names);
            }
            Node::File(id) => {
                assert_eq!(
                    crate::fixture::get(session, &child),
                    model.contents[*id],
                    "{child}"
                );
                assert_eq!(attr.nlink, links(&model.root, *id), "{child}");
            }
            Node::Link(target) => {
                assert_eq!(
                    &*session.read_link(&child, LookupFlags::NOFOLLOW).unwrap(),
                    target.as_bytes()
                );
            }
        }
    }
}

fn links(names: &BTreeMap<String, Node>, id: usize) -> u32 {
    names
        .values()
        .map(|node| match node {
            Node::Dir(names) => links(names, id),
            Node::File(other) => u32::from(*other == id),
            Node::Link(_) => 0,
        })
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_do_what_the_model_does(ops in prop::collection::vec(op(), 1..120)) {
        // Caches far too small, so that names and inodes come and go all the time.
        let options = SuperOptions { budget: CacheBudget::new(64 << 10), ..Default::default() };
        let session = volume_with(MemLimits::default(), options);
        session.rmdir("/tmp").unwrap();
        let mut model = Model::default();
        for op in &ops {
            let Some(want) = model.apply(op) else { continue };
            prop_assert_eq!(perform(&session, op), want, "{:?}", op);
        }
        compare(&session, &model, "/", &model.root);
        session.root().superblock().drop_caches();
        compare(&session, &model, "/", &model.root);
    }
}
