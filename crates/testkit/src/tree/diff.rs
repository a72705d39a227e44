//! The first differences between two trees, for people.
//!
//! Tests end with [`assert_same`]. Fields that one side does not know are not compared; all others
//! are.

use std::fmt::{Debug, Write};

use super::{Entry, Tree};

/// Asserts that two trees are the same, and shows the first differences if not.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn assert_same(what: &str, ours: &Tree, theirs: &Tree) {
    if let Some(text) = diff(ours, theirs, 25) {
        panic!("{what}: the tree differs from the oracle's\n{text}");
    }
}

/// Returns the first `limit` differences, one a line, or `None` if there are none.
pub fn diff(ours: &Tree, theirs: &Tree, limit: usize) -> Option<String> {
    let mut lines = Vec::new();
    for (path, their) in &theirs.entries {
        match ours.entries.get(path) {
            None => lines.push(format!(
                "{}: missing (oracle: {:?} inode {})",
                show(path),
                their.kind,
                their.ino
            )),
            Some(our) => entry_lines(path, our, their, &mut lines),
        }
    }
    for (path, our) in &ours.entries {
        if !theirs.entries.contains_key(path) {
            lines.push(format!(
                "{}: only ours ({:?} inode {})",
                show(path),
                our.kind,
                our.ino
            ));
        }
    }
    if lines.is_empty() {
        return None;
    }
    let mut text = String::new();
    for line in lines.iter().take(limit) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > limit {
        let _ = writeln!(text, "  ... and {} more", lines.len() - limit);
    }
    Some(text)
}

fn entry_lines(path: &[u8], our: &Entry, their: &Entry, lines: &mut Vec<String>) {
    let mut field = |name: &str, same: bool, our: &dyn Debug, their: &dyn Debug| {
        if !same {
            lines.push(format!(
                "{}: {name}: ours {our:?}, oracle {their:?}",
                show(path)
            ));
        }
    };
    field("kind", our.kind == their.kind, &our.kind, &their.kind);
    let octal = |mode: u32| format!("{mode:04o}");
    field(
        "mode",
        our.mode == their.mode,
        &octal(our.mode),
        &octal(their.mode),
    );
    field("uid", our.uid == their.uid, &our.uid, &their.uid);
    field("gid", our.gid == their.gid, &our.gid, &their.gid);
    field(
        "nlink",
        agree(&our.nlink, &their.nlink),
        &our.nlink,
        &their.nlink,
    );
    field("size", our.size == their.size, &our.size, &their.size);
    field("rdev", our.rdev == their.rdev, &our.rdev, &their.rdev);
    field("ino", our.ino == their.ino, &our.ino, &their.ino);
    field(
        "link",
        our.link == their.link,
        &our.link.as_deref().map(show),
        &their.link.as_deref().map(show),
    );
    field(
        "blocks",
        agree(&our.blocks, &their.blocks),
        &our.blocks,
        &their.blocks,
    );
    field(
        "flags",
        agree(&our.flags, &their.flags),
        &our.flags,
        &their.flags,
    );
    field(
        "atime",
        agree(&our.atime, &their.atime),
        &our.atime,
        &their.atime,
    );
    field(
        "mtime",
        agree(&our.mtime, &their.mtime),
        &our.mtime,
        &their.mtime,
    );
    field(
        "ctime",
        agree(&our.ctime, &their.ctime),
        &our.ctime,
        &their.ctime,
    );
    field(
        "btime",
        agree(&our.btime, &their.btime),
        &our.btime,
        &their.btime,
    );
    if let (Some(our), Some(their)) = (&our.content, &their.content) {
        field(
            "content",
            our.digest == their.digest,
            &our.digest,
            &their.digest,
        );
        field(
            "data ranges",
            agree(&our.data, &their.data),
            &our.data,
            &their.data,
        );
    }
    if let (Some(our), Some(their)) = (&our.xattrs, &their.xattrs) {
        let names: std::collections::BTreeSet<_> = our.keys().chain(their.keys()).collect();
        for name in names {
            let our = our.get(name);
            let their = their.get(name);
            let brief =
                |value: Option<&Vec<u8>>| value.map(|v| (v.len(), show(&v[..v.len().min(60)])));
            field(
                &format!("xattr {}", show(name)),
                our == their,
                &brief(our),
                &brief(their),
            );
        }
    }
}

/// Returns whether two values are equal, or one of them is not known.
fn agree<T: PartialEq>(our: &Option<T>, their: &Option<T>) -> bool {
    our.is_none() || their.is_none() || our == their
}

/// Returns bytes as text, escaped where they are none, and cut in the middle when long.
fn show(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    match text.len() {
        0..=160 => text,
        len => format!("{}[...]{}", &text[..80], &text[len - 70..]),
    }
}
