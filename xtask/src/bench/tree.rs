//! A deep tree in memory: one file below a chain of directories, all of them root's and open to
//! all users.

use extern4_vfs::lab::{Check, Sides};
use extern4_vfs::{
    Acl, AclKind, Cred, LookupFlags, MemFs, MemLimits, Namespace, NewKind, RenameFlags, Result,
    Session, SuperBlock, SuperOptions,
};

/// Components of the path, the file's name included.
pub(super) const COMPONENTS: usize = 12;

/// An ACL that lets the user search a directory by name, and all others too.
pub(super) const NAMED: &str = "u::rwx,u:1000:r-x,g::r-x,m::r-x,o::r-x";
/// One that lets the user search a directory, and no strangers, so that it has to be asked.
pub(super) const REFUSING: &str = "u::rwx,u:1000:r-x,g::r-x,m::r-x,o::---";

/// The first `depth` directories of the chain.
fn dir(depth: usize) -> String {
    (0..depth).map(|n| format!("/d{n}")).collect()
}

/// The path of the file.
pub(super) fn path() -> String {
    format!("{}/f", dir(COMPONENTS - 1))
}

/// The superuser on a new volume with the tree, each directory with this ACL.
pub(super) fn volume(acl: Option<&str>) -> Result<Session> {
    volume_with(Check::default(), acl)
}

/// Makes the same volume with this search check.
pub(super) fn volume_with(check: Check, acl: Option<&str>) -> Result<Session> {
    let lab = Sides {
        check,
        ..Sides::default()
    };
    let options = SuperOptions {
        lab,
        ..SuperOptions::default()
    };
    let sb = SuperBlock::new(MemFs::new(MemLimits::default()), options)?;
    let root = Session::new(&Namespace::new(sb), Cred::root());
    for depth in 0..COMPONENTS {
        let dir = if depth == 0 {
            "/".to_owned()
        } else {
            dir(depth)
        };
        if depth > 0 {
            root.mkdir(&dir, 0o755)?;
        }
        root.mknod(format!("{dir}/file"), NewKind::Regular, 0o644)?;
        root.mkdir(format!("{dir}/folder"), 0o755)?;
        if let Some(acl) = acl {
            let acl: Acl = acl.parse().expect("an ACL");
            root.set_acl(&dir, AclKind::Access, Some(acl), LookupFlags::FOLLOW)?;
        }
    }
    root.mknod(path(), NewKind::Regular, 0o644)?;
    Ok(root)
}

/// The ordinary user who walks.
pub(super) fn user(root: &Session) -> Session {
    root.with_cred(Cred::new(1000, 1000, &[]))
}

/// Renames a file and a directory next to the path in the directory at `depth`, there and back.
pub(super) fn rename_beside(root: &Session, depth: usize) {
    for kind in ["file", "folder"] {
        let name = format!("{}/{kind}", dir(depth));
        let other = format!("{}/{kind}-elsewhere", dir(depth));
        for (from, to) in [(&name, &other), (&other, &name)] {
            root.rename(from, to, RenameFlags::empty())
                .expect("nobody else renames");
        }
    }
}
