//! Operations of a history, their outcomes, and how they are carried out.

use std::sync::Arc;

use extern4_vfs::*;

use crate::fixture::{sb, user};
use crate::restless::{Restless, RestlessHook};

/// Directories, and names in each: few, so that operations meet.
pub(super) const DIRS: usize = 2;
pub(super) const NAMES: usize = 3;
const DIR_NAMES: [&str; DIRS] = ["x", "y"];
const FILE_NAMES: [&str; NAMES] = ["a", "b", "c"];
/// The user who is not the owner of anything.
const UID: u32 = 9;

/// The target of a path: a name in a directory, or the directory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dir: usize,
    pub(super) name: Option<usize>,
}

/// How the path is spelled. The directories stay where they are, so that every spelling means the
/// same at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// One component below the open directory.
    Below,
    /// From the root.
    Absolute,
    /// From the other directory, through `..`.
    DotDot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Root,
    /// A user that owns nothing and that the ACLs name.
    User,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    File,
    Dir,
    /// A symbolic link, with its own target.
    Link(u32),
}

/// An ACL, by what it does to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// Refuses everything.
    Shut,
    /// Grants everything, to no other.
    Open,
}

impl Shape {
    fn acl(self) -> Acl {
        let text = match self {
            Self::Shut => "u::rwx,u:9:---,g::r-x,m::r-x,o::r-x",
            Self::Open => "u::rwx,u:9:rwx,g::---,m::rwx,o::---",
        };
        text.parse().expect("an ACL")
    }

    /// The mode that goes with it.
    pub(super) fn mode(self) -> u16 {
        match self {
            Self::Shut => 0o755,
            Self::Open => 0o770,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Find(Who, Place),
    Stat(Who, Place),
    /// By the user.
    Access(Place, Access),
    ReadLink(Place),
    Make(Made, Place),
    Link(Place, Place),
    Unlink(Place),
    Rmdir(Place),
    Rename(Place, Place, RenameFlags),
    Chmod(Place, u16),
    SetAcl(Place, Option<Shape>),
    DropCaches,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    Done,
    Ino(u64),
    Attr {
        ino: u64,
        kind: FileType,
        mode: u16,
        nlink: u32,
    },
    /// The number in the target of a symbolic link.
    Target(u32),
    Fail(Errno),
}

/// An operation that has been carried out. The moments are drawn from one counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) op: Op,
    pub(super) out: Out,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Call {
    /// The call has changed nothing.
    pub(super) fn changes_nothing(&self) -> bool {
        let looks = matches!(
            self.op,
            Op::Find(..) | Op::Stat(..) | Op::Access(..) | Op::ReadLink(_) | Op::DropCaches
        );
        looks || matches!(self.out, Out::Fail(_))
    }
}

/// The file system that histories run on.
pub(super) struct Volume {
    root: Session,
    /// By who asks and the directory that is the working directory.
    below: [[Session; DIRS]; 2],
    /// Inode numbers of the directories.
    pub(super) dirs: [u64; DIRS],
}

impl Volume {
    /// The volume of number `index`: some keep few dentries, some pause in the file system, some in
    /// a hook.
    pub(super) fn new(index: u64) -> Self {
        let fs: Arc<dyn FileSystem> = if index.is_multiple_of(4) {
            MemFs::new(MemLimits::default())
        } else {
            Restless::new()
        };
        let hook: Option<Arc<dyn SecurityHook>> = if index % 4 == 3 {
            Some(Arc::<RestlessHook>::default())
        } else {
            None
        };
        let budget = CacheBudget::new(if index.is_multiple_of(3) {
            16 << 10
        } else {
            4 << 20
        });
        let sb = SuperBlock::new(
            fs,
            SuperOptions {
                budget,
                security: hook,
                ..Default::default()
            },
        );
        let root = Session::new(&Namespace::new(sb.expect("a new volume")), Cred::root());
        let dirs = DIR_NAMES.map(|name| root.mkdir(name, 0o755).expect("a new name"));
        let below =
            [root.clone(), user(&root, UID)].map(|who| [0, 1].map(|dir| who.at(&dirs[dir])));
        Self {
            root,
            below,
            dirs: dirs.map(|dir| dir.ino()),
        }
    }

    /// Makes both directories empty and open to all, as every history finds them.
    pub(super) fn clear(&self) {
        for dir in &self.below[0] {
            for name in FILE_NAMES {
                if dir.unlink(name).is_err_and(|error| error == Errno::EISDIR) {
                    dir.rmdir(name).expect("an empty directory");
                }
            }
            dir.set_acl(".", AclKind::Access, None, LookupFlags::FOLLOW)
                .expect("the owner may");
            dir.chmod(".", 0o755, LookupFlags::FOLLOW)
                .expect("the owner may");
        }
    }

    /// The session to ask, and the path to give it.
    fn path(&self, who: Who, spelling: Spelling, place: Place) -> (&Session, String) {
        let sessions = &self.below[who as usize];
        let name = place.name.map_or(".", |name| FILE_NAMES[name]);
        let dir = DIR_NAMES[place.dir];
        match spelling {
            Spelling::Below => (&sessions[place.dir], name.into()),
            Spelling::Absolute => (&sessions[0], format!("/{dir}/{name}")),
            Spelling::DotDot => (&sessions[1 - place.dir], format!("../{dir}/{name}")),
        }
    }

    pub(super) fn act(&self, op: Op, spelling: Spelling) -> Out {
        self.try_act(op, spelling)
            .unwrap_or_else(|error| Out::Fail(error.errno()))
    }

    fn try_act(&self, op: Op, spelling: Spelling) -> Result<Out> {
        let at = |place| self.path(Who::Root, spelling, place);
        let how = LookupFlags::NOFOLLOW;
        match op {
            Op::Find(who, place) => {
                let (session, path) = self.path(who, spelling, place);
                session.locate(path, how).map(|found| Out::Ino(found.ino()))
            }
            Op::Stat(who, place) => {
                let (session, path) = self.path(who, spelling, place);
                let Attr {
                    ino,
                    kind,
                    mode,
                    nlink,
                    ..
                } = session.stat(path, how)?;
                Ok(Out::Attr {
                    ino,
                    kind,
                    mode,
                    nlink,
                })
            }
            Op::Access(place, want) => {
                let (session, path) = self.path(Who::User, spelling, place);
                session.access(path, want, how).map(|()| Out::Done)
            }
            Op::ReadLink(place) => {
                let (session, path) = at(place);
                let target = session.read_link(path, how)?;
                let number = std::str::from_utf8(&target)
                    .ok()
                    .and_then(|text| text.parse().ok());
                Ok(Out::Target(number.expect("all targets are numbers")))
            }
            Op::Make(made, place) => {
                let (session, path) = at(place);
                let location = match made {
                    Made::File => session.mknod(path, NewKind::Regular, 0o644),
                    Made::Dir => session.mkdir(path, 0o755),
                    Made::Link(id) => session.symlink(id.to_string(), path),
                }?;
                Ok(Out::Ino(location.ino()))
            }
            change => self.try_change(change, spelling).map(|()| Out::Done),
        }
    }

    fn try_change(&self, op: Op, spelling: Spelling) -> Result<()> {
        let at = |place| self.path(Who::Root, spelling, place);
        let how = LookupFlags::NOFOLLOW;
        match op {
            Op::Link(from, to) => {
                // Both paths start from one directory: the other one's is absolute.
                let (session, from) = at(from);
                session.link(from, how, self.path(Who::Root, Spelling::Absolute, to).1)
            }
            Op::Unlink(place) => {
                let (session, path) = at(place);
                session.unlink(path)
            }
            Op::Rmdir(place) => {
                let (session, path) = at(place);
                session.rmdir(path)
            }
            Op::Rename(from, to, flags) => {
                let ((from_base, from), (to_base, to)) = (at(from), at(to));
                from_base.rename_to(from, to_base, to, flags)
            }
            Op::Chmod(place, mode) => {
                let (session, path) = at(place);
                session.chmod(path, mode, how)
            }
            Op::SetAcl(place, shape) => {
                let (session, path) = at(place);
                session.set_acl(path, AclKind::Access, shape.map(Shape::acl), how)
            }
            Op::DropCaches => {
                sb(&self.root).drop_caches();
                Ok(())
            }
            other => unreachable!("{other:?} changes nothing"),
        }
    }
}
