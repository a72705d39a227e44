//! A tree as a document of JSON or XML, as tree(1) writes it.
//!
//! `tree` writes each item with it. A document is well-formed whatever the names are, also where
//! something could not be read.

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use extern4::FileType;

use super::args::{Args, Form, Sizes};
use super::entry::Item;
use super::lines::{human, mode, time};
use super::report::Report;
use crate::app::Opened;
use crate::cmd::stat::type_word;
use crate::json;
use crate::output::Out;
use crate::shown::Shown;
use crate::text::{ListTime, is_printable};

/// The writer of a document.
pub(super) struct Document<'a> {
    args: &'a Args,
    shown: Shown,
    is_json: bool,
    time: ListTime,
    /// The depths of the directories that are open, and their elements.
    open: Vec<(usize, &'static str)>,
    /// Whether the next item is the first one in its directory.
    is_first: bool,
    /// Whether there was an item.
    has_items: bool,
}

/// An attribute of a file.
enum Value {
    Number(u64),
    Text(String),
    Bytes(Vec<u8>),
}

impl<'a> Document<'a> {
    pub(super) fn new(args: &'a Args, shown: Shown) -> Self {
        let is_json = args.form() == Form::Json;
        let time = ListTime::new();
        Self {
            args,
            shown,
            is_json,
            time,
            open: Vec::new(),
            is_first: true,
            has_items: false,
        }
    }

    /// Returns what ends a line.
    fn line_end(&self) -> &'static str {
        if self.args.no_indent { "" } else { "\n" }
    }

    fn indent(&self, depth: usize) -> String {
        if self.args.no_indent {
            String::new()
        } else {
            "  ".repeat(depth + 1)
        }
    }

    pub(super) fn begin(&mut self, out: &mut Out) -> io::Result<()> {
        let end = self.line_end();
        if self.is_json {
            write!(out, "[{end}")
        } else {
            write!(
                out,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>{end}<tree>{end}"
            )
        }
    }

    pub(super) fn item(&mut self, volume: &Opened, item: &Item, out: &mut Out) -> io::Result<()> {
        self.close(item.depth, out)?;
        let end = self.line_end();
        let indent = self.indent(item.depth);
        if self.is_json && !std::mem::take(&mut self.is_first) {
            write!(out, ",{end}")?;
        }
        let kind = element(item.entry.kind);
        let values = self.values(volume, item);
        if self.is_json {
            let object = json::line(|object| {
                object.text("type", kind);
                for (key, value) in &values {
                    match value {
                        Value::Number(number) => object.raw(key, number),
                        Value::Text(text) => object.text(key, text),
                        Value::Bytes(bytes) => object.bytes(key, bytes),
                    }
                }
            });
            let object = object.trim_end();
            if item.has_children {
                write!(
                    out,
                    "{indent}{},\"contents\":[{end}",
                    &object[..object.len() - 1]
                )?
            } else {
                write!(out, "{indent}{object}")?
            }
        } else {
            let note = item
                .note
                .as_ref()
                .map_or(String::new(), |note| format!("<error>{note}</error>"));
            let attributes = values.iter().filter(|(key, _)| *key != "error");
            let attributes: String = attributes
                .map(|(key, value)| format!(" {key}=\"{}\"", value.xml()))
                .collect();
            // As in tree(1), a directory that is shown has a line for its end.
            match (item.has_children, item.depth) {
                (true, _) => write!(out, "{indent}<{kind}{attributes}>{note}{end}")?,
                (false, 0) => write!(
                    out,
                    "{indent}<{kind}{attributes}>{note}{end}{indent}</{kind}>{end}"
                )?,
                (false, _) => write!(out, "{indent}<{kind}{attributes}>{note}</{kind}>{end}")?,
            }
        }
        if item.has_children {
            self.open.push((item.depth, kind));
            self.is_first = true;
        }
        self.has_items = true;
        Ok(())
    }

    /// Closes the directories that an item of this depth is not in.
    fn close(&mut self, depth: usize, out: &mut Out) -> io::Result<()> {
        while let Some((open, kind)) = self.open.pop_if(|(open, _)| *open >= depth) {
            let end = self.line_end();
            let indent = self.indent(open);
            if self.is_json {
                write!(out, "{end}{indent}]}}")?
            } else {
                write!(out, "{indent}</{kind}>{end}")?
            }
            self.is_first = false;
        }
        Ok(())
    }

    pub(super) fn end(&mut self, report: Option<&Report>, out: &mut Out) -> io::Result<()> {
        self.close(0, out)?;
        let end = self.line_end();
        let indent = self.indent(0);
        if !self.is_json {
            if let Some(report) = report {
                write!(out, "{indent}<report>{end}")?;
                for (key, number) in self.numbers(report) {
                    write!(out, "{}<{key}>{number}</{key}>{end}", self.indent(1))?;
                }
                write!(out, "{indent}</report>{end}")?;
            }
            return writeln!(out, "</tree>");
        }
        if self.has_items {
            out.write_all(end.as_bytes())?;
        }
        match report {
            Some(report) => {
                let object = json::line(|object| {
                    object.text("type", "report");
                    self.numbers(report)
                        .into_iter()
                        .for_each(|(key, number)| object.raw(key, number));
                });
                let comma = if self.has_items {
                    format!(",{end}")
                } else {
                    String::new()
                };
                write!(out, "{comma}{indent}{}{end}", object.trim_end())?;
            }
            None => out.write_all(end.as_bytes())?,
        }
        writeln!(out, "]")
    }

    fn numbers(&self, report: &Report) -> Vec<(&'static str, u64)> {
        let size = self.args.du.then_some(("size", report.bytes));
        let files = (!self.args.directories).then_some(("files", report.files));
        size.into_iter()
            .chain([("directories", report.directories)])
            .chain(files)
            .collect()
    }

    /// Returns what the document says about a file.
    fn values(&self, volume: &Opened, item: &Item) -> Vec<(&'static str, Value)> {
        let args = self.args;
        let entry = &item.entry;
        let name = match item.depth == 0 || args.full_path {
            _ if self.shown.is_complete() => self.shown.path(&volume.image, &entry.path),
            true => [
                &self.shown.prefix(&volume.image)[..],
                entry.path.as_os_str().as_bytes(),
            ]
            .concat(),
            false => entry.name.as_bytes().to_vec(),
        };
        let mut values = vec![("name", Value::Bytes(name))];
        if let Some(link) = &entry.link {
            values.push(("target", Value::Bytes(link.target.clone())));
        }
        if args.inodes {
            values.push(("inode", Value::Number(entry.ino)));
        }
        if let Some(found) = &entry.metadata {
            if args.mode {
                values.push((
                    "mode",
                    Value::Text(format!("{:04o}", found.mode() & 0o7777)),
                ));
                values.push(("prot", Value::Text(mode(found))));
            }
            if args.user {
                values.push((
                    "user",
                    Value::Text(volume.names().user(found.uid()).into_owned()),
                ));
            }
            if args.group {
                values.push((
                    "group",
                    Value::Text(volume.names().group(found.gid()).into_owned()),
                ));
            }
            match args.sizes() {
                Some(Sizes::Units(base)) if self.is_json => {
                    values.push(("size", Value::Text(human(item.size, base))));
                }
                Some(_) => values.push(("size", Value::Number(item.size))),
                None => {}
            }
            if args.shows_time() {
                values.push(("time", Value::Text(time(args, &self.time, found))));
            }
        }
        values.extend(
            item.note
                .iter()
                .map(|note| ("error", Value::Text(note.clone()))),
        );
        values
    }
}

impl Value {
    /// Returns the value between the quotes of an attribute of XML. U+FFFD stands for characters
    /// that XML cannot have.
    fn xml(&self) -> String {
        let text = match self {
            Self::Number(number) => return number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        };
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '<' => shown.push_str("&lt;"),
                '>' => shown.push_str("&gt;"),
                '&' => shown.push_str("&amp;"),
                '"' => shown.push_str("&quot;"),
                c if is_printable(c) => shown.push(c),
                '\t' | '\n' | '\r' | '\u{80}'.. => shown.push_str(&format!("&#{};", u32::from(c))),
                _ => shown.push(char::REPLACEMENT_CHARACTER),
            }
        }
        shown
    }
}

/// Returns the name that tree(1) has for a type of file.
fn element(kind: FileType) -> &'static str {
    if kind == FileType::Symlink {
        "link"
    } else {
        type_word(kind)
    }
}
