//! `stat -c`: GNU `stat`'s %-directives.

use extern4::{Metadata, Timespec};

use crate::id_names::IdNames;
use crate::text::{ModeText, full_time, shell_quote, type_name};

/// The file that the format describes.
pub(super) struct File<'a> {
    /// The name as it is shown.
    pub(super) name: Vec<u8>,
    /// The target, if it is a symbolic link.
    pub(super) link: Option<Vec<u8>>,
    /// The image's user and group names.
    pub(super) names: &'a IdNames,
    /// The file's attributes.
    pub(super) metadata: &'a Metadata,
}

impl File<'_> {
    /// Returns the format with every directive replaced, and a line feed.
    pub(super) fn format(&self, format: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = format;
        while let Some((text, after)) = rest.split_once('%') {
            out.extend_from_slice(text.as_bytes());
            let mut directive = after.chars();
            match directive.next() {
                Some(letter) => self.directive(letter, &mut out),
                None => out.push(b'%'),
            }
            rest = directive.as_str();
        }
        out.extend_from_slice(rest.as_bytes());
        out.push(b'\n');
        out
    }

    fn directive(&self, letter: char, out: &mut Vec<u8>) {
        let metadata = self.metadata;
        let kind = metadata.file_type();
        let text = match letter {
            'n' => return out.extend_from_slice(&self.name),
            'a' => format!("{:o}", metadata.mode() & 0o7777),
            'A' => ModeText { kind, mode: metadata.mode() }.to_string(),
            'b' => metadata.blocks().to_string(),
            'B' => "512".to_owned(),
            'f' => format!("{:x}", metadata.mode()),
            'F' => type_name(kind, metadata.len()).to_owned(),
            'g' => metadata.gid().to_string(),
            'G' => name_or_unknown(metadata.gid(), self.names.has_group(metadata.gid()), |gid| {
                self.names.group(gid).into_owned()
            }),
            'h' => metadata.nlink().to_string(),
            'i' => metadata.ino().to_string(),
            'N' => self.quoted(),
            'o' => metadata.blksize().to_string(),
            's' => metadata.len().to_string(),
            't' => format!("{:x}", metadata.rdev().major),
            'T' => format!("{:x}", metadata.rdev().minor),
            'u' => metadata.uid().to_string(),
            'U' => name_or_unknown(metadata.uid(), self.names.has_user(metadata.uid()), |uid| {
                self.names.user(uid).into_owned()
            }),
            'w' => metadata.btime().map_or_else(|| "-".to_owned(), full_time),
            'x' => full_time(metadata.atime()),
            'y' => full_time(metadata.mtime()),
            'z' => full_time(metadata.ctime()),
            'W' => metadata.btime().map_or(0, |time| time.sec).to_string(),
            'X' => whole_seconds(metadata.atime()),
            'Y' => whole_seconds(metadata.mtime()),
            'Z' => whole_seconds(metadata.ctime()),
            '%' => "%".to_owned(),
            other => format!("%{other}"),
        };
        out.extend_from_slice(text.as_bytes());
    }

    fn quoted(&self) -> String {
        let quote = |name: &[u8]| {
            let quoted = shell_quote(name);
            if quoted.starts_with(['\'', '"']) { quoted.into_owned() } else { format!("'{quoted}'") }
        };
        match &self.link {
            Some(link) => format!("{} -> {}", quote(&self.name), quote(link)),
            None => quote(&self.name),
        }
    }
}

fn name_or_unknown(id: u32, known: bool, name: impl FnOnce(u32) -> String) -> String {
    if known { name(id) } else { "UNKNOWN".to_owned() }
}

fn whole_seconds(time: Timespec) -> String {
    time.sec.to_string()
}
