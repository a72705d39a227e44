//! The differences of two trees, as they are written.
//!
//! `diff` calls it, for text or JSON. Names are escaped on a terminal. It sets exit code 1 if there
//! is a difference.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use extern4::FileFlags;
use extern4::build::Entry;
use extern4::diff::{Both, Change, Difference, Finding, file_type};

use super::operand::NamedTree;
use super::{Args, timespec};
use crate::app::App;
use crate::cmd::stat::{seconds, type_word};
use crate::file_flags;
use crate::json;
use crate::output::{flush, out};
use crate::text::{escape, escape_bytes, full_time, octal_mode};

/// Writes differences, and sets the exit code.
pub(super) fn differences(
    args: &Args,
    trees: &Both<NamedTree>,
    differences: &[Difference],
    app: &mut App,
) -> io::Result<()> {
    let mut out = out();
    let terminal = io::stdout().is_terminal();
    for difference in differences {
        app.differs();
        let Difference { path, finding } = difference;
        if args.json {
            out.write_all(json_line(path, finding).as_bytes())?;
            continue;
        }
        let line = match finding {
            Finding::OnlyInOld(_) => trees.old.only(path),
            Finding::OnlyInNew(_) => trees.new.only(path),
            Finding::Changed(changes) => changed(trees, path, changes),
        };
        out.write_all(&escape_bytes(&line, terminal))?;
        out.write_all(b"\n")?;
    }
    flush(&mut out)
}

fn changed(trees: &Both<NamedTree>, path: &[u8], changes: &[Change]) -> Vec<u8> {
    let changes: Vec<_> = changes.iter().map(text).collect();
    let old = trees.old.shown(path);
    let new = trees.new.shown(path);
    [
        b"Files ",
        &old[..],
        b" and ",
        &new,
        b" differ: ",
        changes.join(", ").as_bytes(),
    ]
    .concat()
}

fn text(change: &Change) -> String {
    match change {
        Change::Type(types) => arrow("type", types.map(type_word)),
        Change::Mode(modes) => arrow("mode", modes.map(|mode| octal_mode(mode.into()))),
        Change::Owner(ids) => arrow("owner", *ids),
        Change::Group(ids) => arrow("group", *ids),
        Change::Size(sizes) => arrow("size", *sizes),
        Change::Time(times) => arrow("modified", times.map(|time| full_time(timespec(time)))),
        Change::Target(targets) => arrow("target", targets.as_ref().map(|target| escape(target))),
        Change::Device(numbers) => arrow(
            "device",
            numbers.map(|(major, minor)| format!("{major},{minor}")),
        ),
        Change::Xattr(name, Both { old, new }) => {
            let what = match (old, new) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            };
            format!("{} {what}", escape(name))
        }
        Change::Flags(flags) => arrow("flags", flags.map(letters)),
        Change::Project(projects) => arrow("project", *projects),
        Change::Links(first) => arrow(
            "first of its names",
            first.as_ref().map(|path| escape(path)),
        ),
        Change::Contents => "contents".to_owned(),
    }
}

fn arrow(what: &str, values: Both<impl std::fmt::Display>) -> String {
    format!("{what} {} -> {}", values.old, values.new)
}

/// Returns the letters of the flags that are set, as `chattr` takes them, or a hyphen.
fn letters(flags: FileFlags) -> String {
    let mut letters = file_flags::letters(flags);
    letters.retain(|letter| letter != '-');
    if letters.is_empty() {
        "-".to_owned()
    } else {
        letters
    }
}

fn json_line(path: &[u8], finding: &Finding) -> String {
    json::line(|object| {
        object.bytes("path", if path.is_empty() { b"." } else { path });
        match finding {
            Finding::OnlyInOld(entry) => only_json(object, "old", entry),
            Finding::OnlyInNew(entry) => only_json(object, "new", entry),
            Finding::Changed(changes) => {
                object.texts("differs", changes.iter().map(key));
                object.object("old", |side| values(side, changes, true));
                object.object("new", |side| values(side, changes, false));
            }
        }
    })
}

fn only_json(object: &mut json::Object<'_>, side: &str, entry: &Entry) {
    object.text("only_in", side);
    let kind = file_type(&entry.kind).map_or("hard link", type_word);
    object.text("type", kind);
}

/// Returns the name of the attribute that differs, which is also the key of the JSON member with
/// its values.
fn key(change: &Change) -> Cow<'static, str> {
    Cow::Borrowed(match change {
        Change::Type(_) => "type",
        Change::Mode(_) => "mode",
        Change::Owner(_) => "uid",
        Change::Group(_) => "gid",
        Change::Size(_) => "size",
        Change::Time(_) => "mtime",
        Change::Target(_) => "target",
        Change::Device(_) => "rdev",
        Change::Xattr(name, _) => return Cow::Owned(String::from_utf8_lossy(name).into_owned()),
        Change::Flags(_) => "flags",
        Change::Project(_) => "project",
        Change::Links(_) => "first_name",
        Change::Contents => "contents",
    })
}

/// Adds the values of one of the files.
fn values(object: &mut json::Object<'_>, changes: &[Change], is_old: bool) {
    fn of<T>(both: &Both<T>, is_old: bool) -> &T {
        if is_old { &both.old } else { &both.new }
    }
    for change in changes {
        let key = key(change);
        match change {
            Change::Type(types) => object.text(&key, type_word(*of(types, is_old))),
            Change::Mode(modes) => object.text(&key, &octal_mode((*of(modes, is_old)).into())),
            Change::Flags(flags) => object.raw(&key, of(flags, is_old).bits()),
            Change::Owner(ids) | Change::Group(ids) | Change::Project(ids) => {
                object.raw(&key, of(ids, is_old))
            }
            Change::Size(sizes) => object.raw(&key, of(sizes, is_old)),
            Change::Time(times) => {
                let time = timespec(*of(times, is_old));
                object.text(&key, &seconds(time));
                json::time(object, &key, Some(time));
            }
            Change::Target(targets) => object.bytes(&key, of::<Vec<u8>>(targets, is_old)),
            Change::Device(numbers) => {
                let (major, minor) = of(numbers, is_old);
                object.numbers(&key, [major, minor]);
            }
            Change::Xattr(_, values) => match of(values, is_old) {
                Some(value) => object.hex(&key, value),
                None => object.text_or_null(&key, None),
            },
            Change::Links(first) => object.bytes(&key, of::<Vec<u8>>(first, is_old)),
            Change::Contents => {}
        }
    }
}
