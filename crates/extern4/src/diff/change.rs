//! The attributes in which two files differ.
//!
//! `compare` finds them. An attribute that one of the sources cannot hold is not compared.

use std::collections::BTreeMap;

use extern4_tree::{Entry, Kind, Time};
use extern4_vfs::{FileFlags, FileType};

use super::{Both, Options};

/// An attribute in which two files differ, with both values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The type. Then nothing else is compared.
    Type(Both<FileType>),
    /// The permission bits.
    Mode(Both<u16>),
    /// The number of the owner.
    Owner(Both<u32>),
    /// The number of the group.
    Group(Both<u32>),
    /// The size of a regular file.
    Size(Both<u64>),
    /// The time of the last change of the contents.
    Time(Both<Time>),
    /// The target of a symbolic link.
    Target(Both<Vec<u8>>),
    /// The major and the minor number of a device.
    Device(Both<(u32, u32)>),
    /// An extended attribute or an ACL. `None` if a file does not have it.
    Xattr(Vec<u8>, Both<Option<Vec<u8>>>),
    /// The inode flags.
    Flags(Both<FileFlags>),
    /// The project to which the file is charged.
    Project(Both<u32>),
    /// The first path of the file's names.
    Links(Both<Vec<u8>>),
    /// The contents of a regular file.
    Contents,
}

/// Returns the type of a file; `None` for a further name of a file that could not be read.
pub fn file_type(kind: &Kind) -> Option<FileType> {
    Some(match kind {
        Kind::Directory => FileType::Directory,
        Kind::File(_) => FileType::Regular,
        Kind::Symlink(_) => FileType::Symlink,
        Kind::CharDevice { .. } => FileType::CharDevice,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::HardLink(_) => return None,
    })
}

/// Returns the changes of attributes of two files that have one type. `whole_seconds` says in which
/// of the sources times may lack their fraction of a second.
pub(super) fn of_attributes(
    options: &Options,
    files: Both<&Entry>,
    whole_seconds: Both<bool>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    push(&mut changes, files.map(|file| file.mode), Change::Mode);
    if options.owners {
        push(&mut changes, files.map(|file| file.uid), Change::Owner);
        push(&mut changes, files.map(|file| file.gid), Change::Group);
    }
    of_kinds(files.map(|file| &file.kind), &mut changes);
    if options.times && !is_same_time(files.map(|file| file.mtime), whole_seconds) {
        changes.push(Change::Time(files.map(|file| file.mtime)));
    }
    if options.flags {
        let flags = |file: &Entry| {
            let flags = file.flags?;
            Some(FileFlags::from_bits_retain(flags.bits()))
        };
        push_known(&mut changes, files.map(flags), Change::Flags);
        push_known(
            &mut changes,
            files.map(|file| file.project),
            Change::Project,
        );
    }
    if options.xattrs {
        of_xattrs(files.map(|file| &file.xattrs[..]), &mut changes);
    }
    changes
}

fn push<T: PartialEq>(changes: &mut Vec<Change>, values: Both<T>, change: fn(Both<T>) -> Change) {
    if values.old != values.new {
        changes.push(change(values));
    }
}

/// Adds a change of values, if both trees have them.
fn push_known<T: PartialEq>(
    changes: &mut Vec<Change>,
    values: Both<Option<T>>,
    change: fn(Both<T>) -> Change,
) {
    if let (Some(old), Some(new)) = (values.old, values.new) {
        push(changes, Both { old, new }, change);
    }
}

fn of_kinds(kinds: Both<&Kind>, changes: &mut Vec<Change>) {
    match (kinds.old, kinds.new) {
        (Kind::File(old), Kind::File(new)) => {
            push(
                changes,
                Both {
                    old: old.size,
                    new: new.size,
                },
                Change::Size,
            );
        }
        (Kind::Symlink(old), Kind::Symlink(new)) => {
            push(
                changes,
                Both {
                    old: old.clone(),
                    new: new.clone(),
                },
                Change::Target,
            );
        }
        _ => {
            let device = |kind: &Kind| match *kind {
                Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                    (major, minor)
                }
                _ => (0, 0),
            };
            push(changes, kinds.map(device), Change::Device);
        }
    }
}

/// Returns whether two times are the same. If a source may keep whole seconds only, its time
/// without a fraction equals any time in the same second.
fn is_same_time(times: Both<Time>, whole_seconds: Both<bool>) -> bool {
    let no_fraction =
        whole_seconds.old && times.old.nanos == 0 || whole_seconds.new && times.new.nanos == 0;
    times.old == times.new || no_fraction && times.old.secs == times.new.secs
}

fn of_xattrs(xattrs: Both<&[(Vec<u8>, Vec<u8>)]>, changes: &mut Vec<Change>) {
    let mut all: BTreeMap<&[u8], Both<Option<&[u8]>>> = BTreeMap::new();
    const NONE: Both<Option<&[u8]>> = Both {
        old: None,
        new: None,
    };
    for (name, value) in xattrs.old {
        all.entry(name).or_insert(NONE).old = Some(value);
    }
    for (name, value) in xattrs.new {
        all.entry(name).or_insert(NONE).new = Some(value);
    }
    for (name, values) in all
        .into_iter()
        .filter(|(_, values)| values.old != values.new)
    {
        changes.push(Change::Xattr(
            name.to_vec(),
            values.map(|value| value.map(<[u8]>::to_vec)),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::{Both, is_same_time};
    use extern4_tree::Time;

    #[test]
    fn a_missing_fraction_is_no_difference_where_it_can_be_lost() {
        let check = |old: (i64, u32), new: (i64, u32), whole_seconds: (bool, bool), same: bool| {
            let time = |(secs, nanos)| Time { secs, nanos };
            let times = Both {
                old: time(old),
                new: time(new),
            };
            let whole_seconds = Both {
                old: whole_seconds.0,
                new: whole_seconds.1,
            };
            assert_eq!(
                is_same_time(times, whole_seconds),
                same,
                "{times:?} {whole_seconds:?}"
            );
        };
        check((7, 5), (7, 5), (false, false), true);
        check((7, 5), (7, 0), (false, false), false);
        check((7, 5), (7, 0), (false, true), true);
        check((7, 0), (7, 5), (true, false), true);
        check((7, 0), (7, 5), (false, true), false);
        check((7, 4), (7, 5), (true, true), false);
        check((7, 0), (8, 0), (true, true), false);
    }
}
