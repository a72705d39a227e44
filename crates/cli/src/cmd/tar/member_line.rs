//! Lines about members, in the form of GNU tar.

use extern4::build::{Entry, Kind};
use extern4::diff::file_type;
use extern4::{FileType, Timespec};

use crate::text::{ModeText, escape, format_time};

/// The least width of owner, group and size together.
const LEAST_WIDTH: usize = 19;

/// Writes lines about members.
pub(super) struct MemberLines {
    is_long: bool,
    full_time: bool,
    /// The widths of owner, group and size, and of the time, which only grow.
    width: usize,
    time_width: usize,
}

impl MemberLines {
    pub(super) fn new(is_long: bool, full_time: bool) -> Self {
        Self {
            is_long,
            full_time,
            width: LEAST_WIDTH,
            time_width: 0,
        }
    }

    pub(super) fn line(&mut self, entry: &Entry) -> String {
        let name = shown(entry);
        if !self.is_long {
            return name;
        }
        let mode = ModeText {
            kind: file_type(&entry.kind).unwrap_or(FileType::Regular),
            mode: entry.mode.into(),
        }
        .to_string();
        let (letter, rest) = mode.split_at(1);
        let letter = if matches!(entry.kind, Kind::HardLink(_)) {
            "h"
        } else {
            letter
        };
        let owner = format!("{}/{}", entry.uid, entry.gid);
        let size = size(&entry.kind);
        self.width = self.width.max(owner.len() + 1 + size.len());
        let gap = self.width - owner.len();
        let time = self.time(Timespec {
            sec: entry.mtime.secs,
            nsec: entry.mtime.nanos,
        });
        self.time_width = self.time_width.max(time.len());
        let time_width = self.time_width;
        format!(
            "{letter}{rest} {owner}{size:>gap$} {time:time_width$} {name}{}",
            leads_to(&entry.kind)
        )
    }

    fn time(&self, time: Timespec) -> String {
        if !self.full_time {
            return format_time(time, "%Y-%m-%d %H:%M");
        }
        let full = format_time(time, "%Y-%m-%d %H:%M:%S.%9f");
        full.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

/// Returns the name with a slash behind that of a directory.
fn shown(entry: &Entry) -> String {
    let mut name = if entry.path.is_empty() {
        b".".to_vec()
    } else {
        entry.path.clone()
    };
    if entry.kind == Kind::Directory {
        name.push(b'/');
    }
    quoted(&name)
}

/// Returns a name with C escapes. A backslash is one, too, so that the form can be read back.
fn quoted(name: &[u8]) -> String {
    name.split(|byte| *byte == b'\\')
        .map(escape)
        .collect::<Vec<_>>()
        .join("\\\\")
}

fn size(kind: &Kind) -> String {
    match kind {
        Kind::File(contents) => contents.size.to_string(),
        Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
            format!("{major},{minor}")
        }
        _ => "0".to_owned(),
    }
}

fn leads_to(kind: &Kind) -> String {
    match kind {
        Kind::Symlink(target) => format!(" -> {}", quoted(target)),
        Kind::HardLink(target) => format!(" link to {}", quoted(target)),
        _ => String::new(),
    }
}
