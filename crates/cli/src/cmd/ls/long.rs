//! The columns of `ls -l` before the name.
//!
//! `ls` collects the widths of all rows first, so that the columns align. An attribute that cannot
//! be read shows as `?`.

use extern4::{AclKind, FileType};

use crate::app::Opened;
use crate::text::{BlockSize, ListTime, ModeText};

use super::args::Args;
use super::entry::Entry;
use super::order::Stamp;

/// The form of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimeStyle {
    FullIso,
    LongIso,
    Iso,
    Locale,
    /// Patterns of strftime(3) for times that are not recent, and for recent times.
    Custom {
        old: String,
        recent: String,
    },
}

impl TimeStyle {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // It means the same without a locale.
        let text = text.strip_prefix("posix-").unwrap_or(text);
        match text {
            "full-iso" => Ok(Self::FullIso),
            "long-iso" => Ok(Self::LongIso),
            "iso" => Ok(Self::Iso),
            "locale" => Ok(Self::Locale),
            _ => {
                let pattern = text
                    .strip_prefix('+')
                    .ok_or("it is full-iso, long-iso, iso, locale or +FORMAT")?;
                let (old, recent) = pattern.split_once('\n').unwrap_or((pattern, pattern));
                Ok(Self::Custom {
                    old: old.to_owned(),
                    recent: recent.to_owned(),
                })
            }
        }
    }

    fn list_time(self) -> ListTime {
        let always = |pattern: &str| ListTime::with_patterns(pattern, pattern);
        match self {
            Self::FullIso => always("%Y-%m-%d %H:%M:%S.%9f %z"),
            Self::LongIso => always("%Y-%m-%d %H:%M"),
            Self::Iso => ListTime::with_patterns("%Y-%m-%d ", "%m-%d %H:%M"),
            Self::Locale => ListTime::new(),
            Self::Custom { old, recent } => ListTime::with_patterns(&old, &recent),
        }
    }
}

/// The style of the columns.
pub(super) struct Style {
    numeric: bool,
    unit: BlockSize,
    owner: bool,
    group: bool,
    author: bool,
    context: bool,
    stamp: Stamp,
    time: ListTime,
}

/// The columns of one line.
pub(super) struct Row {
    mode: String,
    links: String,
    user: Option<String>,
    group: Option<String>,
    author: Option<String>,
    context: Option<String>,
    size: Size,
    time: String,
}

/// The contents of the size column.
enum Size {
    /// A number of bytes.
    Bytes(String),
    /// The numbers of a device, each in its own column.
    Device { major: String, minor: String },
}

/// The largest width of each column.
#[derive(Default)]
pub(super) struct Widths {
    mode: usize,
    links: usize,
    user: usize,
    group: usize,
    author: usize,
    context: usize,
    size: usize,
    major: usize,
    minor: usize,
    time: usize,
}

impl Style {
    pub(super) fn new(args: &Args) -> Self {
        Self {
            numeric: args.is_numeric(),
            unit: args.size_unit(),
            owner: args.shows_owner(),
            group: args.shows_group(),
            author: args.shows_author(),
            context: args.context,
            stamp: args.stamp(),
            time: args.time_style().list_time(),
        }
    }

    /// Returns the columns of an entry, with question marks where its attributes could not be read.
    pub(super) fn row(&self, volume: &Opened, entry: &Entry) -> Row {
        let context = self.context.then(|| entry.context(volume));
        let Some(metadata) = &entry.metadata else {
            let unknown = || "?".to_owned();
            let letter = if entry.kind == FileType::Symlink {
                'l'
            } else {
                '?'
            };
            return Row {
                mode: format!("{letter}?????????"),
                links: unknown(),
                user: self.owner.then(unknown),
                group: self.group.then(unknown),
                author: self.author.then(unknown),
                context,
                size: Size::Bytes(unknown()),
                time: unknown(),
            };
        };
        let kind = metadata.file_type();
        let mut mode = ModeText {
            kind,
            mode: metadata.mode(),
        }
        .to_string();
        if has_acl(volume, entry) {
            mode.push('+');
        } else if has_context(volume, entry) {
            mode.push('.');
        }
        let (user, group) = if self.numeric {
            (metadata.uid().to_string(), metadata.gid().to_string())
        } else {
            let names = volume.names();
            (
                names.user(metadata.uid()).into_owned(),
                names.group(metadata.gid()).into_owned(),
            )
        };
        let size = match kind {
            FileType::CharDevice | FileType::BlockDevice => {
                let device = metadata.rdev();
                Size::Device {
                    major: device.major.to_string(),
                    minor: device.minor.to_string(),
                }
            }
            _ => Size::Bytes(self.unit.show(metadata.len())),
        };
        let time = self
            .stamp
            .of(metadata)
            .map_or_else(|| "-".to_owned(), |time| self.time.format(time));
        let author = self.author.then(|| user.clone());
        let user = self.owner.then_some(user);
        let group = self.group.then_some(group);
        Row {
            mode,
            links: metadata.nlink().to_string(),
            user,
            group,
            author,
            context,
            size,
            time,
        }
    }
}

/// Returns whether a file has an ACL beyond the mode bits. On a failure it returns false: the error
/// shows when a command reads the ACL itself.
fn has_acl(volume: &Opened, entry: &Entry) -> bool {
    let has = |kind| {
        volume
            .reach(&entry.path, |session, path| session.acl(path, kind))
            .is_ok_and(|acl| acl.is_some())
    };
    match entry.kind {
        FileType::Symlink => false,
        FileType::Directory => has(AclKind::Access) || has(AclKind::Default),
        _ => has(AclKind::Access),
    }
}

/// Returns whether a file has a security context (SELinux).
fn has_context(volume: &Opened, entry: &Entry) -> bool {
    volume
        .reach(&entry.path, |session, path| {
            session.lgetxattr(path, "security.selinux")
        })
        .is_ok_and(|context| context.is_some())
}

impl Widths {
    pub(super) fn of(rows: &[Row]) -> Self {
        let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let mut widths = rows.iter().fold(Self::default(), |widest, row| {
            let (size, major, minor) = match &row.size {
                Size::Bytes(size) => (size.len(), 0, 0),
                Size::Device { major, minor } => (0, major.len(), minor.len()),
            };
            Self {
                mode: widest.mode.max(row.mode.len()),
                links: widest.links.max(row.links.len()),
                user: widest.user.max(len(&row.user)),
                group: widest.group.max(len(&row.group)),
                author: widest.author.max(len(&row.author)),
                context: widest.context.max(len(&row.context)),
                size: widest.size.max(size),
                major: widest.major.max(major),
                minor: widest.minor.max(minor),
                time: widest.time.max(row.time.len()),
            }
        });
        if widths.major > 0 {
            widths.size = widths.size.max(widths.major + 2 + widths.minor);
        }
        widths
    }
}

impl Row {
    /// Appends the columns and the space before the name.
    pub(super) fn write(&self, widths: &Widths, out: &mut Vec<u8>) {
        let size = match &self.size {
            Size::Bytes(size) => size.clone(),
            Size::Device { major, minor } => {
                format!("{major}, {minor:>width$}", width = widths.minor)
            }
        };
        // Names are aligned to the left, numbers to the right.
        let column = |text: &Option<String>, width: usize| match text {
            None => String::new(),
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("{text:>width$} ")
            }
            Some(text) => format!("{text:width$} "),
        };
        let line = format!(
            "{:mode$} {:>links$} {}{}{}{}{size:>size_width$} {:>time$} ",
            self.mode,
            self.links,
            column(&self.user, widths.user),
            column(&self.group, widths.group),
            column(&self.author, widths.author),
            column(&self.context, widths.context),
            self.time,
            mode = widths.mode,
            links = widths.links,
            size_width = widths.size,
            time = widths.time,
        );
        out.extend_from_slice(line.as_bytes());
    }
}
