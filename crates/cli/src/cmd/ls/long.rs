//! The columns of `ls -l` before the name.

use extern4::{AclKind, FileType};

use crate::app::Opened;
use crate::text::{ListTime, ModeText, human};

use super::entry::Entry;

/// How the columns look.
pub(super) struct Style {
    numeric: bool,
    human: bool,
    time: ListTime,
}

/// One line's columns.
pub(super) struct Row {
    mode: String,
    links: String,
    user: String,
    group: String,
    size: String,
    time: String,
}

/// The widest of each column.
#[derive(Default)]
pub(super) struct Widths {
    mode: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
    time: usize,
}

impl Style {
    pub(super) fn new(numeric: bool, human: bool) -> Self {
        Self { numeric, human, time: ListTime::new() }
    }

    /// The columns for an entry; question marks where its attributes could not be read.
    pub(super) fn row(&self, volume: &Opened, entry: &Entry) -> Row {
        let Some(metadata) = &entry.metadata else {
            let unknown = || "?".to_owned();
            return Row {
                mode: "??????????".to_owned(),
                links: unknown(),
                user: unknown(),
                group: unknown(),
                size: unknown(),
                time: unknown(),
            };
        };
        let kind = metadata.file_type();
        let mut mode = ModeText { kind, mode: metadata.mode() }.to_string();
        if has_acl(volume, entry) {
            mode.push('+');
        }
        let (user, group) = if self.numeric {
            (metadata.uid().to_string(), metadata.gid().to_string())
        } else {
            let names = volume.names();
            (names.user(metadata.uid()).into_owned(), names.group(metadata.gid()).into_owned())
        };
        let size = match kind {
            FileType::CharDevice | FileType::BlockDevice => {
                format!("{}, {:>3}", metadata.rdev().major, metadata.rdev().minor)
            }
            _ if self.human => human(metadata.len()),
            _ => metadata.len().to_string(),
        };
        let time = self.time.format(metadata.mtime());
        Row { mode, links: metadata.nlink().to_string(), user, group, size, time }
    }
}

/// Whether there is an ACL beyond the mode bits. A failure shows when the ACL itself is asked for.
fn has_acl(volume: &Opened, entry: &Entry) -> bool {
    let has = |kind| volume.session.acl(&entry.path, kind).is_ok_and(|acl| acl.is_some());
    match entry.kind {
        FileType::Symlink => false,
        FileType::Directory => has(AclKind::Access) || has(AclKind::Default),
        _ => has(AclKind::Access),
    }
}

impl Widths {
    pub(super) fn of(rows: &[Row]) -> Self {
        rows.iter().fold(Self::default(), |widest, row| Self {
            mode: widest.mode.max(row.mode.len()),
            links: widest.links.max(row.links.len()),
            user: widest.user.max(row.user.len()),
            group: widest.group.max(row.group.len()),
            size: widest.size.max(row.size.len()),
            time: widest.time.max(row.time.len()),
        })
    }
}

impl Row {
    /// Appends the columns and the space before the name.
    pub(super) fn write(&self, widths: &Widths, out: &mut Vec<u8>) {
        let line = format!(
            "{:mode$} {:>links$} {:user$} {:group$} {:>size$} {:>time$} ",
            self.mode,
            self.links,
            self.user,
            self.group,
            self.size,
            self.time,
            mode = widths.mode,
            links = widths.links,
            user = widths.user,
            group = widths.group,
            size = widths.size,
            time = widths.time,
        );
        out.extend_from_slice(line.as_bytes());
    }
}
