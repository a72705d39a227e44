//! The sequential model: what each operation does, as the smallest steps that others may see one by
//! one.
//!
//! A call is not one step but a few, as in the kernel: `stat` first finds the inode and then reads
//! it, and `unlink` takes a link from the inode and a name from the directory, one after the other.
//! Every step is atomic, happens between the call's start and its end, and other calls' steps may
//! come between. Some changes must be one step, and are: a rename's change of names, a lookup, a
//! reading of attributes. Calls that change the same inode or directory exclude each other, which
//! `busy` stands for.

use std::collections::BTreeMap;

use extern4_vfs::{Access, Errno, FileType, RenameFlags};

use super::op::{DIRS, Made, NAMES, Op, Out, Place, Shape, Who};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    made: Made,
    mode: u16,
    nlink: u32,
    /// An ACL, and the mask in it.
    acl: Option<(Shape, u16)>,
    /// In the middle of a change.
    busy: bool,
}

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    names: [[Option<u64>; NAMES]; DIRS],
    nodes: BTreeMap<u64, Node>,
    dirs: [u64; DIRS],
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Start,
    /// The mode of the directory has been read, its ACL not yet.
    Search {
        mode: u16,
    },
    /// The directory may be searched.
    Lookup,
    /// The file has been found.
    Found {
        node: u64,
    },
    /// Its mode has been read, its ACL not yet.
    Check {
        node: u64,
        mode: u16,
    },
    /// Some effects are yet to come. `other` is what a rename replaces.
    Change {
        node: u64,
        other: Option<u64>,
        left: u8,
    },
    Done,
}

/// The effects of a change, in bits.
const ATTRS: u8 = 1;
const NAME: u8 = 2;
const ACL: u8 = 4;

/// Where a step leads: stage and state.
pub(super) type Next = (Stage, State);

impl State {
    /// Two empty directories.
    pub(super) fn new(dirs: [u64; DIRS]) -> Self {
        let node = Node {
            made: Made::Dir,
            mode: 0o755,
            nlink: 2,
            acl: None,
            busy: false,
        };
        let nodes = dirs.iter().map(|&ino| (ino, node.clone())).collect();
        Self {
            names: Default::default(),
            nodes,
            dirs,
        }
    }

    /// Every step that a call can take now and that fits what it said in the end.
    pub(super) fn steps(&self, op: Op, out: Out, stage: Stage) -> Vec<Next> {
        let go = |stage| vec![(stage, self.clone())];
        let end = |said: Out| {
            if said == out {
                go(Stage::Done)
            } else {
                Vec::new()
            }
        };
        match stage {
            Stage::Start => match op {
                Op::DropCaches => end(Out::Done),
                _ => match asks_as_user(op) {
                    Some(place) => go(Stage::Search {
                        mode: self.nodes[&self.dirs[place.dir]].mode,
                    }),
                    None => self.steps(op, out, Stage::Lookup),
                },
            },
            Stage::Search { mode } => {
                let place = asks_as_user(op).expect("only users are checked");
                if self.grants(self.dirs[place.dir], mode, Access::EXEC) {
                    go(Stage::Lookup)
                } else {
                    end(Out::Fail(Errno::EACCES))
                }
            }
            Stage::Lookup => match looks_up(op) {
                None => self.begin(op, out, None),
                Some(place) => match (self.get(place), op) {
                    (None, _) => end(Out::Fail(Errno::ENOENT)),
                    (Some(node), Op::Find(..)) => end(Out::Ino(node)),
                    (Some(node), Op::ReadLink(_)) => end(match self.nodes[&node].made {
                        Made::Link(id) => Out::Target(id),
                        _ => Out::Fail(Errno::EINVAL),
                    }),
                    (Some(node), _) => go(Stage::Found { node }),
                },
            },
            Stage::Found { node } => match op {
                Op::Stat(..) => end(self.attr(node)),
                Op::Access(..) => go(Stage::Check {
                    node,
                    mode: self.nodes[&node].mode,
                }),
                _ => self.begin(op, out, Some(node)),
            },
            Stage::Check { node, mode } => {
                let Op::Access(_, want) = op else {
                    unreachable!("only access checks")
                };
                let granted = self.grants(node, mode, want);
                end(if granted {
                    Out::Done
                } else {
                    Out::Fail(Errno::EACCES)
                })
            }
            Stage::Change { node, other, left } => self.effects(op, node, other, left),
            Stage::Done => Vec::new(),
        }
    }

    fn get(&self, place: Place) -> Option<u64> {
        place.name.map_or(Some(self.dirs[place.dir]), |name| {
            self.names[place.dir][name]
        })
    }

    fn set(&mut self, place: Place, node: Option<u64>) {
        self.names[place.dir][place.name.expect("directories keep their names")] = node;
    }

    fn attr(&self, ino: u64) -> Out {
        let node = &self.nodes[&ino];
        let kind = match node.made {
            Made::File => FileType::Regular,
            Made::Dir => FileType::Directory,
            Made::Link(_) => FileType::Symlink,
        };
        // Links of the two directories count what is in them, which changes with the names.
        let nlink = if self.dirs.contains(&ino) {
            self.subdirs(ino)
        } else {
            node.nlink
        };
        Out::Attr {
            ino,
            kind,
            mode: node.mode,
            nlink,
        }
    }

    /// Links that a directory has by what is in it.
    fn subdirs(&self, ino: u64) -> u32 {
        let dir = usize::from(ino != self.dirs[0]);
        let is_dir = |node: &&u64| self.nodes[node].made == Made::Dir;
        2 + u32::try_from(self.names[dir].iter().flatten().filter(is_dir).count()).expect("few")
    }

    /// Whether the user has these rights on a file of this mode, with its present ACL.
    fn grants(&self, ino: u64, mode: u16, want: Access) -> bool {
        let bits = match self.nodes[&ino].acl {
            Some((shape, mask)) if mode & 0o070 != 0 => match shape {
                Shape::Shut => 0,
                Shape::Open => 7 & mask,
            },
            _ => mode & 7,
        };
        bits & u16::from(want.bits()) == u16::from(want.bits())
    }

    /// Checks a change and takes its first step. `found` is what a path led to that is not looked
    /// up under a lock.
    fn begin(&self, op: Op, out: Out, found: Option<u64>) -> Vec<Next> {
        if changed_dirs(op)
            .iter()
            .any(|&dir| self.nodes[&self.dirs[dir]].busy)
        {
            return Vec::new();
        }
        let planned = match self.plan(op, out, found) {
            Ok(planned) if out == Out::Done || matches!(op, Op::Make(..)) => planned,
            Err(said) if said == out => return vec![(Stage::Done, self.clone())],
            _ => return Vec::new(),
        };
        let (node, other, left) = planned;
        if self
            .locks(op, node, other)
            .any(|ino| self.nodes.get(&ino).is_some_and(|node| node.busy))
        {
            return Vec::new();
        }
        let mut locked = self.clone();
        locked.set_busy(op, node, other, true);
        locked.effects(op, node, other, left)
    }

    /// Returns the effect of a change, or its result if it has no effect.
    fn plan(&self, op: Op, out: Out, found: Option<u64>) -> Result<(u64, Option<u64>, u8), Out> {
        let fail = |errno| Err(Out::Fail(errno));
        let made = |ino: u64| self.nodes[&ino].made;
        match op {
            Op::Make(_, place) => match (self.get(place), out) {
                (Some(_), _) => fail(Errno::EEXIST),
                (None, Out::Ino(ino)) if !self.nodes.contains_key(&ino) => Ok((ino, None, NAME)),
                (None, _) => Err(Out::Done),
            },
            Op::Link(_, to) => {
                let node = found.expect("looked up before");
                match made(node) {
                    _ if self.get(to).is_some() => fail(Errno::EEXIST),
                    Made::Dir => fail(Errno::EPERM),
                    _ if !self.nodes[&node].busy && self.nodes[&node].nlink == 0 => {
                        fail(Errno::ENOENT)
                    }
                    _ => Ok((node, None, ATTRS | NAME)),
                }
            }
            Op::Unlink(place) | Op::Rmdir(place) => {
                let wants_dir = matches!(op, Op::Rmdir(_));
                match self.get(place) {
                    None => fail(Errno::ENOENT),
                    Some(node) => match (wants_dir, made(node) == Made::Dir) {
                        (true, false) => fail(Errno::ENOTDIR),
                        (false, true) => fail(Errno::EISDIR),
                        _ => Ok((node, None, ATTRS | NAME)),
                    },
                }
            }
            Op::Rename(from, to, flags) => self.plan_rename(from, to, flags),
            Op::Chmod(..) | Op::SetAcl(..) => {
                let node = found.expect("looked up before");
                match (made(node), op) {
                    (Made::Link(_), _) => fail(Errno::EOPNOTSUPP),
                    (_, Op::SetAcl(_, None)) => Ok((node, None, ACL)),
                    (_, Op::SetAcl(..)) => Ok((node, None, ATTRS | ACL)),
                    _ if self.nodes[&node].acl.is_some() => Ok((node, None, ATTRS | ACL)),
                    _ => Ok((node, None, ATTRS)),
                }
            }
            other => unreachable!("{other:?} changes nothing"),
        }
    }

    fn plan_rename(
        &self,
        from: Place,
        to: Place,
        flags: RenameFlags,
    ) -> Result<(u64, Option<u64>, u8), Out> {
        let fail = |errno| Err(Out::Fail(errno));
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let Some(node) = self.get(from) else {
            return fail(Errno::ENOENT);
        };
        let target = self.get(to);
        let is_dir = |ino: u64| self.nodes[&ino].made == Made::Dir;
        match target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return fail(Errno::EEXIST),
            None if exchange => return fail(Errno::ENOENT),
            Some(target) if target == node => return Err(Out::Done),
            Some(target) if !exchange => match (is_dir(node), is_dir(target)) {
                (true, false) => return fail(Errno::ENOTDIR),
                (false, true) => return fail(Errno::EISDIR),
                _ => {}
            },
            _ => {}
        }
        let replaces = if target.is_some() && !exchange {
            ATTRS
        } else {
            0
        };
        Ok((node, target, NAME | replaces))
    }

    /// One of the effects that are left, each as a way to go on.
    fn effects(&self, op: Op, node: u64, other: Option<u64>, left: u8) -> Vec<Next> {
        let mut ways = Vec::new();
        for effect in [ATTRS, NAME, ACL]
            .into_iter()
            .filter(|effect| left & effect != 0)
        {
            let mut next = self.clone();
            next.apply(op, node, other, effect);
            let left = left & !effect;
            if left == 0 {
                next.set_busy(op, node, other, false);
                ways.push((Stage::Done, next));
            } else {
                ways.push((Stage::Change { node, other, left }, next));
            }
        }
        ways
    }

    fn apply(&mut self, op: Op, node: u64, other: Option<u64>, effect: u8) {
        match op {
            Op::Make(made, place) => {
                let (mode, nlink) = match made {
                    Made::File => (0o644, 1),
                    Made::Dir => (0o755, 2),
                    Made::Link(_) => (0o777, 1),
                };
                self.nodes.insert(
                    node,
                    Node {
                        made,
                        mode,
                        nlink,
                        acl: None,
                        busy: true,
                    },
                );
                self.set(place, Some(node));
            }
            Op::Link(..) if effect == ATTRS => self.node(node).nlink += 1,
            Op::Link(_, to) => self.set(to, Some(node)),
            Op::Unlink(_) | Op::Rmdir(_) if effect == ATTRS => self.lose_link(node),
            Op::Unlink(place) | Op::Rmdir(place) => self.set(place, None),
            Op::Rename(..) if effect == ATTRS => {
                self.lose_link(other.expect("something is replaced"))
            }
            Op::Rename(from, to, flags) => {
                self.set(
                    from,
                    other.filter(|_| flags.contains(RenameFlags::EXCHANGE)),
                );
                self.set(to, Some(node));
            }
            Op::Chmod(_, mode) if effect == ATTRS => self.node(node).mode = mode,
            Op::Chmod(_, mode) => {
                if let Some((_, mask)) = &mut self.node(node).acl {
                    *mask = mode >> 3 & 7;
                }
            }
            Op::SetAcl(_, Some(shape)) if effect == ATTRS => self.node(node).mode = shape.mode(),
            Op::SetAcl(_, shape) => {
                self.node(node).acl = shape.map(|shape| (shape, shape.mode() >> 3 & 7));
            }
            other => unreachable!("{other:?} changes nothing"),
        }
    }

    fn node(&mut self, ino: u64) -> &mut Node {
        self.nodes.get_mut(&ino).expect("nodes are never taken out")
    }

    fn lose_link(&mut self, ino: u64) {
        let node = self.node(ino);
        node.nlink = if node.made == Made::Dir {
            0
        } else {
            node.nlink - 1
        };
    }

    /// The inodes that a change excludes others from.
    fn locks(&self, op: Op, node: u64, other: Option<u64>) -> impl Iterator<Item = u64> {
        let dirs = self.dirs;
        changed_dirs(op)
            .into_iter()
            .map(move |dir| dirs[dir])
            .chain([node])
            .chain(other)
    }

    fn set_busy(&mut self, op: Op, node: u64, other: Option<u64>, busy: bool) {
        let locks: Vec<u64> = self.locks(op, node, other).collect();
        for ino in locks {
            // A node that is about to be made does not exist yet.
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.busy = busy;
            }
        }
    }
}

/// The place that a call asks for as the user.
fn asks_as_user(op: Op) -> Option<Place> {
    match op {
        Op::Find(Who::User, place) | Op::Stat(Who::User, place) | Op::Access(place, _) => {
            Some(place)
        }
        _ => None,
    }
}

/// The place that a call finds before it does anything, without a lock.
fn looks_up(op: Op) -> Option<Place> {
    match op {
        Op::Find(_, place)
        | Op::Stat(_, place)
        | Op::Access(place, _)
        | Op::ReadLink(place)
        | Op::Link(place, _)
        | Op::Chmod(place, _)
        | Op::SetAcl(place, _) => Some(place),
        _ => None,
    }
}

/// The directories whose names a call changes.
fn changed_dirs(op: Op) -> Vec<usize> {
    match op {
        Op::Make(_, place) | Op::Unlink(place) | Op::Rmdir(place) | Op::Link(_, place) => {
            vec![place.dir]
        }
        Op::Rename(from, to, _) if from.dir != to.dir => vec![from.dir, to.dir],
        Op::Rename(from, ..) => vec![from.dir],
        _ => Vec::new(),
    }
}
