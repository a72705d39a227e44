//! A tree as lines with branches, for people.
//!
//! `tree` writes each item with it. tree(1) has the same columns and marks.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use extern4::{FileType, Metadata};

use super::args::{Args, Charset, Sizes};
use super::entry::Item;
use crate::app::Opened;
use crate::color::{Colors, Look};
use crate::output::Out;
use crate::shown::Shown;
use crate::text::{ListTime, ModeText, format_time, is_printable};

/// The writer of lines.
pub(super) struct Lines<'a> {
    args: &'a Args,
    shown: Shown,
    colors: Option<Colors>,
    time: ListTime,
    /// Whether the item of each depth is the last one of its directory.
    ends: Vec<bool>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(args: &'a Args, shown: Shown) -> Self {
        Self {
            args,
            shown,
            colors: Colors::new(args.color()),
            time: ListTime::new(),
            ends: Vec::new(),
        }
    }

    pub(super) fn item(&mut self, volume: &Opened, item: &Item, out: &mut Out) -> io::Result<()> {
        self.ends.truncate(item.depth);
        self.ends.push(item.is_last);
        let branches = self.branches();
        let details = self.details(volume, item);
        let mut line = if self.args.metafirst {
            [details, branches].concat().into_bytes()
        } else {
            [branches, details].concat().into_bytes()
        };
        self.name(volume, item, &mut line);
        if let Some(note) = &item.note {
            line.extend_from_slice(format!("  [{note}]").as_bytes());
        }
        line.push(b'\n');
        out.write_all(&line)
    }

    /// Returns the lines that lead to the current item.
    fn branches(&self) -> String {
        let Some((is_last, above)) = self
            .ends
            .split_last()
            .filter(|(_, above)| !above.is_empty())
        else {
            return String::new();
        };
        if self.args.no_indent {
            return String::new();
        }
        // The spaces next to a line are no-break spaces, as in tree(1).
        let [more, none, branch, end] = match self.args.charset {
            Some(Charset::Ascii) => ["|   ", "    ", "|-- ", "`-- "],
            _ => ["│\u{a0}\u{a0} ", "    ", "├── ", "└── "],
        };
        let above = above[1..]
            .iter()
            .map(|is_last| if *is_last { none } else { more });
        above.chain([if *is_last { end } else { branch }]).collect()
    }

    /// Returns the attributes that are shown, in brackets.
    fn details(&self, volume: &Opened, item: &Item) -> String {
        let args = self.args;
        let metadata = item.entry.metadata.as_ref();
        let unknown = || "?".to_owned();
        let mut columns = Vec::new();
        if args.inodes {
            columns.push(format!("{:>7}", item.entry.ino));
        }
        if args.mode {
            columns.push(metadata.map_or_else(|| "??????????".to_owned(), mode));
        }
        if args.user {
            let name = |found: &Metadata| volume.names().user(found.uid()).into_owned();
            columns.push(format!("{:<8}", metadata.map_or_else(unknown, name)));
        }
        if args.group {
            let name = |found: &Metadata| volume.names().group(found.gid()).into_owned();
            columns.push(format!("{:<8}", metadata.map_or_else(unknown, name)));
        }
        match args.sizes() {
            Some(Sizes::Bytes) => columns.push(format!("{:>11}", item.size)),
            Some(Sizes::Units(base)) => columns.push(format!("{:>4}", human(item.size, base))),
            None => {}
        }
        if args.shows_time() {
            columns.push(metadata.map_or_else(unknown, |found| time(args, &self.time, found)));
        }
        if columns.is_empty() {
            String::new()
        } else {
            format!("[{}]  ", columns.join(" "))
        }
    }

    /// Appends the name, and where a link leads.
    fn name(&self, volume: &Opened, item: &Item, line: &mut Vec<u8>) {
        let entry = &item.entry;
        if self.shown.is_complete() {
            line.extend_from_slice(&self.shown.path(&volume.image, &entry.path));
            if let Some(link) = &entry.link {
                line.extend_from_slice(&[b" -> ", &self.shown.text(&link.target)[..]].concat());
            }
            return;
        }
        let name = if item.depth == 0 || self.args.full_path {
            [
                &self.shown.prefix(&volume.image)[..],
                entry.path.as_os_str().as_bytes(),
            ]
            .concat()
        } else {
            entry.name.as_bytes().to_vec()
        };
        self.painted(
            &name,
            entry.name.as_bytes(),
            entry.kind,
            entry.metadata.as_ref(),
            line,
        );
        let Some(link) = &entry.link else {
            return line.extend(self.mark(entry.kind, entry.metadata.as_ref()));
        };
        line.extend_from_slice(b" -> ");
        let found = link.metadata.as_ref();
        let kind = found.map_or(FileType::Symlink, Metadata::file_type);
        self.painted(&link.target, &link.target, kind, found, line);
        line.extend(self.mark(kind, found));
    }

    /// Appends a name in its form and its colour.
    fn painted(
        &self,
        shown: &[u8],
        name: &[u8],
        kind: FileType,
        metadata: Option<&Metadata>,
        line: &mut Vec<u8>,
    ) {
        let shown = self.form(shown);
        match (&self.colors, metadata) {
            (Some(colors), Some(metadata)) => {
                let look = Look {
                    kind,
                    mode: metadata.mode(),
                    orphan: false,
                };
                colors.paint(line, &String::from_utf8_lossy(&shown), name, look);
            }
            _ => line.extend_from_slice(&shown),
        }
    }

    fn mark(&self, kind: FileType, metadata: Option<&Metadata>) -> Option<u8> {
        let mark = match kind {
            FileType::Directory => b'/',
            FileType::Socket => b'=',
            FileType::Fifo => b'|',
            FileType::Regular if metadata.is_some_and(|found| found.mode() & 0o111 != 0) => b'*',
            _ => return None,
        };
        self.args.classify.then_some(mark)
    }

    /// Returns a name as it is shown: with octal numbers, or question marks, for what is not
    /// printable.
    fn form(&self, name: &[u8]) -> Vec<u8> {
        let args = self.args;
        let mut shown = Vec::with_capacity(name.len() + 2);
        let odd = |bytes: &[u8], shown: &mut Vec<u8>| {
            if args.question_marks {
                shown.push(b'?')
            } else {
                bytes
                    .iter()
                    .for_each(|byte| shown.extend_from_slice(format!("\\{byte:03o}").as_bytes()))
            }
        };
        match std::str::from_utf8(name) {
            _ if args.literal && !self.shown.terminal => shown.extend_from_slice(name),
            Ok(text) => text.chars().for_each(|c| {
                let mut utf8 = [0; 4];
                let bytes = c.encode_utf8(&mut utf8).as_bytes();
                if is_printable(c) {
                    shown.extend_from_slice(bytes)
                } else {
                    odd(bytes, &mut shown)
                }
            }),
            // As tree(1) shows a name that is no text.
            Err(_) => name.iter().for_each(|byte| match byte {
                b' ' | b'\\' if !args.quote => shown.extend_from_slice(&[b'\\', *byte]),
                byte if *byte == b' ' || byte.is_ascii_graphic() => shown.push(*byte),
                byte => odd(&[*byte], &mut shown),
            }),
        }
        if args.quote {
            [b"\"", &shown[..], b"\""].concat()
        } else {
            shown
        }
    }
}

/// Returns the type and the permissions of a file, as `ls -l` shows them.
pub(super) fn mode(found: &Metadata) -> String {
    ModeText {
        kind: found.file_type(),
        mode: found.mode(),
    }
    .to_string()
}

/// Returns the time of a file that is shown.
pub(super) fn time(args: &Args, list: &ListTime, found: &Metadata) -> String {
    let time = if args.by_change {
        found.ctime()
    } else {
        found.mtime()
    };
    match &args.timefmt {
        Some(pattern) => format_time(time, pattern),
        None => list.format(time),
    }
}

/// Returns a number of bytes with a unit, rounded as tree(1) rounds.
pub(super) fn human(bytes: u64, base: u32) -> String {
    let units = if base == 1000 { "kMGTPE" } else { "KMGTPE" };
    let mut size = bytes as f64;
    let mut unit = None;
    for next in units.chars() {
        if size < f64::from(base) {
            break;
        }
        size /= f64::from(base);
        unit = Some(next);
    }
    match unit {
        None => bytes.to_string(),
        Some(unit) if size < 10.0 => format!("{size:.1}{unit}"),
        Some(unit) => format!("{size:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_rounded_as_by_tree() {
        let check = |bytes, base, shown: &str| assert_eq!(human(bytes, base), shown, "{bytes}");
        check(0, 1024, "0");
        check(1025, 1024, "1.0K");
        check(1589, 1024, "1.6K");
        check(10_239, 1024, "10.0K");
        check(10_240, 1024, "10K");
        check(1_048_575, 1024, "1024K");
        check(1_048_576, 1024, "1.0M");
        check(10_239, 1000, "10k");
        check(1_048_575, 1000, "1.0M");
    }
}
