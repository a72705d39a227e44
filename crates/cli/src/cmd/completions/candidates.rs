//! The words that a word of a command line may become: paths in volumes, partitions, names of users
//! and groups, tests of find, options of mounts and features.
//!
//! The scripts that clap makes know subcommands and options. They ask here first, and complete by
//! themselves if there is no candidate.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use clap::{Arg, Command};
use extern4::{FileType, Session, Volume};

use crate::app::{Opening, open};
use crate::cmd::find;
use crate::cmd::tune::feature_names;
use crate::id_names::IdNames;
use crate::image_path::{Image, ImagePath, Part, may_hold_volumes};
use crate::text::{operand, unescaped};

/// The kinds of words that are completed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A volume as a whole.
    Image,
    /// A file in a volume, or of the host.
    Path,
    User,
    Group,
    /// A word of find's expressions.
    Expression,
    /// The types of files, as find names them.
    FileType,
    /// A list of options of a mount.
    MountOptions,
    /// A list of features for `mkfs` and `build`.
    NewFeatures,
    /// A list of features for `tune`.
    Features,
    /// All others.
    Other,
}

impl Kind {
    /// Returns the kind of the value of a command's argument, which follows from its name in the
    /// help.
    fn of(command: &Command, arg: &Arg) -> Self {
        let name = arg
            .get_value_names()
            .and_then(|names| names.first())
            .map_or("", |name| name.as_str());
        match name {
            "OPTIONS" => Self::MountOptions,
            "[^]FEATURE[,...]" if command.get_name() == "tune" => Self::Features,
            "[^]FEATURE[,...]" => Self::NewFeatures,
            "IMAGE" | "DIR|IMAGE" => Self::Image,
            "USER" | "OWNER[:GROUP]" => Self::User,
            "GROUP" => Self::Group,
            "PATH" | "FILE1" | "FILE2" | "OLD" | "NEW" | "SOURCE" => Self::Path,
            name if name.contains("IMAGE") => Self::Path,
            _ => Self::Other,
        }
    }
}

/// Returns what the word at `index` of a command line may become.
pub(super) fn candidates(words: &[OsString], index: usize) -> Vec<OsString> {
    let Some(word) = words.get(index) else {
        return Vec::new();
    };
    match kind(words, index) {
        Kind::Image => images(word, ""),
        Kind::Path => paths(word),
        Kind::User => names(words, word, |names| {
            names.user_names().map(str::to_owned).collect()
        }),
        Kind::Group => names(words, word, |names| {
            names.group_names().map(str::to_owned).collect()
        }),
        Kind::Expression => listed(word, 0, find::expression_words().map(|(word, _)| word)),
        Kind::FileType => listed(
            word,
            after_comma(word),
            "bcdpfls".split("").filter(|kind| !kind.is_empty()),
        ),
        Kind::MountOptions => listed(word, after_comma(word), extern4_mountd::options::starts()),
        Kind::NewFeatures => {
            let features = extern4_mkfs::known_features();
            listed(word, after_caret(word), features.names())
        }
        Kind::Features => {
            let start = after_caret(word);
            listed(
                word,
                start,
                feature_names(word.as_bytes()[..start].ends_with(b"^")).into_iter(),
            )
        }
        Kind::Other => Vec::new(),
    }
}

/// Returns the words of a list that a word may become from byte `start` on.
fn listed(word: &OsStr, start: usize, names: impl Iterator<Item = &'static str>) -> Vec<OsString> {
    let (before, start) = word.as_bytes().split_at(start);
    let found = names.filter(|name| name.as_bytes().starts_with(start));
    let mut found: Vec<_> = found
        .map(|name| OsString::from_vec([before, name.as_bytes()].concat()))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns where the last item of a list begins.
fn after_comma(word: &OsStr) -> usize {
    word.as_bytes()
        .iter()
        .rposition(|byte| *byte == b',')
        .map_or(0, |comma| comma + 1)
}

/// Returns where the name of the last item of a list begins, behind a `^`.
fn after_caret(word: &OsStr) -> usize {
    let start = after_comma(word);
    start + usize::from(word.as_bytes()[start..].starts_with(b"^"))
}

/// Returns the kind of the word at `index`: the value of the option before it, or an operand.
fn kind(words: &[OsString], index: usize) -> Kind {
    let root = crate::args::command();
    let mut command = &root;
    let mut operands = 0;
    let mut option = None;
    for word in words.iter().take(index).skip(1) {
        if option.take().is_some() {
            continue;
        }
        if word.as_bytes().starts_with(b"-") && word != "-" {
            option = option_with_value(command, &root, word);
        } else if let Some(found) = word.to_str().and_then(|name| command.find_subcommand(name)) {
            (command, operands) = (found, 0);
        } else {
            operands += 1;
        }
    }
    let is_option = words[index].as_bytes().starts_with(b"-");
    match option {
        Some(option) => Kind::of(command, option),
        None if command.get_name() == "find" && operands > 0 => in_find(words, index),
        None if is_option => Kind::Other,
        None => {
            let positionals: Vec<&Arg> = command.get_positionals().collect();
            let operand = positionals.get(operands).or(positionals.last());
            operand.map_or(Kind::Other, |arg| Kind::of(command, arg))
        }
    }
}

/// Returns the kind of the word at `index` behind a path of find's.
fn in_find(words: &[OsString], index: usize) -> Kind {
    let before = find::expression_words().find(|(word, _)| words[index - 1] == *word);
    match before {
        Some((word, Some(argument))) => match (word, argument) {
            ("-user", _) => Kind::User,
            ("-group", _) => Kind::Group,
            ("-type" | "-xtype", _) => Kind::FileType,
            (_, "FILE" | "FILE|TIME") => Kind::Path,
            _ => Kind::Other,
        },
        _ if words[index].as_bytes().starts_with(b"-") => Kind::Expression,
        _ if words[..index]
            .iter()
            .any(|word| find::starts_expression(word)) =>
        {
            Kind::Other
        }
        _ => Kind::Path,
    }
}

/// Returns the option that a word names, if its value is the next word.
fn option_with_value<'c>(command: &'c Command, root: &'c Command, word: &OsStr) -> Option<&'c Arg> {
    let word = word.to_str()?;
    let names = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word.ends_with(short)),
    };
    let all = command
        .get_arguments()
        .chain(root.get_arguments().filter(|arg| arg.is_global_set()));
    all.filter(|arg| !arg.is_positional() && arg.get_action().takes_values())
        .find(names)
}

/// Returns the names of users or groups that begin with a word, of the first volume on the command
/// line.
fn names(
    words: &[OsString],
    word: &OsStr,
    list: impl Fn(&IdNames) -> Vec<String>,
) -> Vec<OsString> {
    let Some(volume) = words.iter().skip(1).find_map(|text| opened(text)) else {
        return Vec::new();
    };
    let names = list(&IdNames::read(&volume.superuser()));
    let found = names
        .into_iter()
        .map(OsString::from)
        .filter(|name| name.as_bytes().starts_with(word.as_bytes()));
    let mut found: Vec<OsString> = found.collect();
    found.sort_unstable();
    found
}

/// Returns the volume of an image path.
fn opened(text: &OsStr) -> Option<Volume> {
    let image = ImagePath::parse(text).image;
    may_hold_volumes(&image.file)
        .then(|| open(&image, false, &Opening::default()).ok())
        .flatten()
}

/// Returns the files of the host and the files in volumes that begin with a word.
fn paths(word: &OsStr) -> Vec<OsString> {
    let bytes = word.as_bytes();
    let path = ImagePath::parse(word).path;
    // The parser puts a slash before a path that has none.
    let path = path.as_os_str().as_bytes();
    let path = if bytes.ends_with(path) {
        path
    } else {
        &path[1..]
    };
    let start = bytes.len() - path.len();
    if !(bytes[..start].ends_with(b":") && ImagePath::is_one(word)) {
        return images(word, ":/");
    }
    opened(word).map_or_else(Vec::new, |volume| inside(&volume.superuser(), word, start))
}

/// Returns the files in a volume that begin with a word whose path starts at byte `start`.
fn inside(session: &Session, word: &OsStr, start: usize) -> Vec<OsString> {
    let path = &word.as_bytes()[start..];
    let end = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let directory = Path::new("/").join(OsString::from_vec(unescaped(&path[..end])));
    let Ok(entries) = session.read_dir(&directory) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| {
        let is_directory = entry
            .file_type()
            .is_ok_and(|kind| kind == FileType::Directory);
        // The command reads the word as this name, and not as a pattern.
        (
            OsString::from_vec(operand(entry.file_name().as_bytes()).into_owned()),
            is_directory,
        )
    });
    completed(names, word, start + end)
}

/// Returns the files of the host that begin with a word. A single one that holds a volume gets
/// `end` behind it, and one that holds partitions stands for these.
fn images(word: &OsStr, end: &str) -> Vec<OsString> {
    let bytes = word.as_bytes();
    if let Some(mark) = bytes.iter().rposition(|byte| *byte == b'#') {
        let disk = Path::new(OsStr::from_bytes(&bytes[..mark]));
        let mut found = partitions(disk, end);
        found.retain(|candidate| candidate.as_bytes().starts_with(bytes));
        return found;
    }
    let start = bytes
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let directory = if start == 0 {
        Path::new(".")
    } else {
        Path::new(OsStr::from_bytes(&bytes[..start]))
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .map(|entry| (entry.file_name(), entry.path().is_dir()));
    let found = completed(names, word, start);
    match &found[..] {
        [only] if !only.as_bytes().ends_with(b"/") => {
            let partitions = partitions(Path::new(only), end);
            let is_volume = !end.is_empty() && opened(only).is_some();
            match (partitions.is_empty(), is_volume) {
                (false, _) => partitions,
                (true, true) => vec![joined(only, end)],
                (true, false) => found,
            }
        }
        _ => found,
    }
}

/// Returns the names of a disk's partitions on a command line.
fn partitions(disk: &Path, end: &str) -> Vec<OsString> {
    let table = may_hold_volumes(disk)
        .then(|| Volume::partitions(disk).ok())
        .flatten()
        .flatten();
    let Some(table) = table else {
        return Vec::new();
    };
    let name = |number| {
        let image = Image::of(disk.to_owned(), Part::Partition(number));
        open(&image, false, &Opening::default()).ok()?;
        Some(joined(disk.as_os_str(), &format!("#{number}{end}")))
    };
    table
        .partitions
        .iter()
        .filter_map(|partition| name(partition.number))
        .collect()
}

fn joined(start: &OsStr, end: &str) -> OsString {
    let mut joined = start.to_owned();
    joined.push(end);
    joined
}

/// Returns the names that begin as a word does from byte `start` on, with the bytes before.
/// Directories end in a slash.
fn completed(
    names: impl Iterator<Item = (OsString, bool)>,
    word: &OsStr,
    start: usize,
) -> Vec<OsString> {
    let (before, name_start) = word.as_bytes().split_at(start);
    let mut found: Vec<OsString> = names
        .filter(|(name, _)| name.as_bytes().starts_with(name_start))
        .filter(|(name, _)| !name_start.is_empty() || !name.as_bytes().starts_with(b"."))
        // A line that a script reads ends at a control character.
        .filter(|(name, _)| {
            name.to_str()
                .is_some_and(|name| !name.chars().any(char::is_control))
        })
        .map(|(name, is_directory)| {
            let end: &[u8] = if is_directory { b"/" } else { b"" };
            OsString::from_vec([before, name.as_bytes(), end].concat())
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Kind, kind};

    #[test]
    fn words_have_kinds() {
        for (line, expected) in [
            ("extern4 ", Kind::Other),
            ("extern4 ls ", Kind::Path),
            ("extern4 ls -l a b", Kind::Path),
            ("extern4 ls -", Kind::Other),
            ("extern4 --as ", Kind::User),
            ("extern4 ls --as ", Kind::User),
            ("extern4 --as ann check ", Kind::Image),
            ("extern4 chown ", Kind::User),
            ("extern4 chown -R ann ", Kind::Path),
            ("extern4 chgrp ", Kind::Group),
            ("extern4 chmod ", Kind::Other),
            ("extern4 chmod 755 ", Kind::Path),
            ("extern4 cp -a x ", Kind::Path),
            ("extern4 quota ", Kind::Image),
            ("extern4 quota set disk.img -u ", Kind::User),
            ("extern4 quota set ", Kind::Image),
            ("extern4 tune --label ", Kind::Other),
            ("extern4 tune -O ", Kind::Features),
            ("extern4 mkfs -O ", Kind::NewFeatures),
            ("extern4 build --features ", Kind::NewFeatures),
            ("extern4 mount -o ", Kind::MountOptions),
            ("extern4 find -", Kind::Other),
            ("extern4 find a ", Kind::Path),
            ("extern4 find a -", Kind::Expression),
            ("extern4 find a -name ", Kind::Other),
            ("extern4 find a -name x -", Kind::Expression),
            ("extern4 find a -type ", Kind::FileType),
            ("extern4 find a -user ", Kind::User),
            ("extern4 find a -newer ", Kind::Path),
            ("extern4 find a -true ", Kind::Other),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(kind(&words, words.len() - 1), expected, "{line}");
        }
    }
}
