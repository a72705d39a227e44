//! Extended attributes and access control lists.
//!
//! The images of attributes use these plans. Which place an attribute gets (inode, block or a
//! separate inode) follows from the sizes that the plan gives it.

use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};

use super::{directory, file, pattern};
use crate::acl::{Ace, encode};

fn set(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    lsetxattr(path, name, value, XattrFlags::empty()).map_err(|e| {
        io::Error::new(
            io::Error::from(e).kind(),
            format!("{name} of {}: {e}", path.display()),
        )
    })
}

/// Sets attributes of every name space, on every kind of object, from empty values to values that
/// fill a block.
pub fn xattrs(root: &Path) -> io::Result<()> {
    let dir = directory(root, "xattrs")?;
    for len in [0, 1, 3, 4, 5, 20, 40, 41, 60, 80, 100, 200, 500, 850] {
        let path = dir.join(format!("value-of-{len}"));
        file(&path, 10)?;
        set(&path, "user.value", &pattern(len, 0, len as usize))?;
    }
    let all = dir.join("all-spaces");
    file(&all, 10)?;
    for name in [
        "user.a",
        "user.b.c",
        "trusted.t",
        "security.selinux",
        "security.x",
    ] {
        set(&all, name, name.as_bytes())?;
    }
    // Version 2 of a file capability: revision and the effective bit, then permitted and
    // inheritable.
    let capability = [0x0200_0001_u32, 1 << 13, 0, 0, 0]
        .map(u32::to_le_bytes)
        .concat();
    set(&all, "security.capability", &capability)?;
    let many = dir.join("many");
    std::fs::create_dir(&many)?;
    for at in 0..18 {
        set(
            &many,
            &format!("user.attribute-{at}"),
            format!("value {at}").as_bytes(),
        )?;
    }
    let link = dir.join("link");
    std::os::unix::fs::symlink("all-spaces", &link)?;
    set(&link, "trusted.of-a-link", b"yes")?;
    let long = dir.join("long-name");
    file(&long, 10)?;
    set(&long, &format!("user.{}", "n".repeat(250)), b"long")?;
    set(&long, "user.", b"").or_else(|e| {
        if e.kind() == io::ErrorKind::InvalidInput {
            Ok(())
        } else {
            Err(e)
        }
    })
}

/// Sets values beyond a block, which need separate inodes (the feature `ea_inode`).
pub fn big_xattrs(root: &Path) -> io::Result<()> {
    let dir = directory(root, "big-xattrs")?;
    for len in [1000, 4000, 5000, 10_000, 30_000, 65_535, 65_536] {
        let path = dir.join(format!("value-of-{len}"));
        file(&path, 10)?;
        set(&path, "user.big", &pattern(len, 0, len as usize))?;
    }
    for at in 0..3 {
        let path = dir.join(format!("same-{at}"));
        file(&path, 10)?;
        set(&path, "user.same", &pattern(77, 0, 20_000))?;
        set(&path, "user.small", b"beside")?;
    }
    Ok(())
}

/// Makes attribute blocks that many inodes share.
pub fn shared_xattrs(root: &Path) -> io::Result<()> {
    let dir = directory(root, "shared-xattrs")?;
    for at in 0..40 {
        let path = dir.join(format!("{at}"));
        file(&path, 10)?;
        set(&path, "user.shared", &pattern(at / 20, 0, 600))?;
    }
    Ok(())
}

/// Sets access control lists of many shapes.
pub fn access_lists(root: &Path) -> io::Result<()> {
    let dir = directory(root, "acls")?;
    let many: Vec<Ace> = [Ace::Owner(7)]
        .into_iter()
        .chain((0..20).map(|id| Ace::User(1000 + id * 70_000, (id % 8) as u16)))
        .chain([Ace::OwningGroup(5)])
        .chain((0..10).map(|id| Ace::Group(100 + id * 13, (id % 8) as u16)))
        .chain([Ace::Mask(7), Ace::Other(0)])
        .collect();
    let shapes: [&[Ace]; 6] = [
        &[
            Ace::Owner(6),
            Ace::User(1000, 4),
            Ace::OwningGroup(4),
            Ace::Mask(4),
            Ace::Other(4),
        ],
        &[
            Ace::Owner(7),
            Ace::OwningGroup(5),
            Ace::Group(2000, 7),
            Ace::Mask(5),
            Ace::Other(0),
        ],
        &[
            Ace::Owner(0),
            Ace::User(0, 0),
            Ace::OwningGroup(0),
            Ace::Group(0, 0),
            Ace::Mask(0),
            Ace::Other(0),
        ],
        &[
            Ace::Owner(7),
            Ace::User(0xffff_fffe, 7),
            Ace::OwningGroup(7),
            Ace::Mask(7),
            Ace::Other(7),
        ],
        &[
            Ace::Owner(6),
            Ace::OwningGroup(4),
            Ace::Mask(2),
            Ace::Other(4),
        ],
        &many,
    ];
    for (at, shape) in shapes.into_iter().enumerate() {
        let path = dir.join(format!("file-{at}"));
        file(&path, 10)?;
        set(&path, "system.posix_acl_access", &encode(shape))?;
        let path = dir.join(format!("dir-{at}"));
        std::fs::create_dir(&path)?;
        set(&path, "system.posix_acl_default", &encode(shape))?;
        set(
            &path,
            "system.posix_acl_access",
            &encode(shapes[(at + 1) % 5]),
        )?;
        file(&path.join("inherits"), 10)?;
        std::fs::create_dir(path.join("inherits-too"))?;
    }
    Ok(())
}
