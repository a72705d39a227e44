//! A tree as `debugfs` shows it, for images no kernel here can mount.
//!
//! This runs debugfs a few times with long scripts: `ls -l` level by level, `stat` for all inodes,
//! then `dump` and `ea_get` into files. Holes and visible flags, which debugfs cannot show, stay
//! unknown.
//!
//! `image` calls it where `debugfs` is the oracle. Output that the parser does not know is a panic,
//! so a new version of debugfs cannot make a test pass wrongly.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;

use super::{Content, ContentDigest, Entry, Kind, Time, Tree, join};
use crate::acl;
use crate::tools::{debugfs, debugfs_bytes, temporary};

const ROOT: u64 = 2;

/// Reads the whole image.
///
/// # Panics
/// When debugfs fails on it or says something this parser does not know.
pub fn from_debugfs(image: &Path) -> Tree {
    let names = names(image);
    let mut inodes: Vec<u64> = names.iter().map(|(_, ino)| *ino).collect();
    inodes.sort_unstable();
    inodes.dedup();
    let mut entries: HashMap<u64, Entry> = stats(image, &inodes);
    let dir = temporary("extern4-dump-");
    read_contents(image, dir.path(), &mut entries);
    read_xattrs(image, dir.path(), &mut entries);
    Tree {
        entries: names
            .into_iter()
            .map(|(path, ino)| (path, entries[&ino].clone()))
            .collect(),
    }
}

/// Returns every path with its inode number.
fn names(image: &Path) -> Vec<(Vec<u8>, u64)> {
    let mut all = vec![(b"/".to_vec(), ROOT)];
    let mut level = all.clone();
    while !level.is_empty() {
        let script = script(level.iter().map(|(_, ino)| format!("ls -l <{ino}>")));
        let output = debugfs_bytes(image, false, &script);
        let mut next = Vec::new();
        for ((dir, _), listing) in level.iter().zip(sections(&output)) {
            for line in listing
                .split(|&b| b == b'\n')
                .filter(|line| !line.is_empty())
            {
                let (ino, mode, name) = listed(line);
                if ino == 0 || name == b"." || name == b".." {
                    continue;
                }
                let path = join(dir, &name);
                if Kind::of_mode(mode) == Some(Kind::Directory) {
                    next.push((path.clone(), ino));
                }
                all.push((path, ino));
            }
        }
        level = next;
    }
    all
}

fn script(commands: impl Iterator<Item = String>) -> String {
    commands.fold(String::new(), |mut script, command| {
        let _ = writeln!(script, "{command}");
        script
    })
}

/// Returns the output of each command of a script: debugfs echoes every command after its prompt.
fn sections(output: &[u8]) -> Vec<&[u8]> {
    const PROMPT: &[u8] = b"debugfs: ";
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    while at < output.len() {
        let end = output[at..]
            .iter()
            .position(|&b| b == b'\n')
            .map_or(output.len(), |len| at + len + 1);
        if output[at..].starts_with(PROMPT) {
            starts.push(at);
        }
        at = end;
    }
    let ends = starts.iter().skip(1).copied().chain([output.len()]);
    let bodies = starts.iter().zip(ends).map(|(&start, end)| {
        let section = &output[start..end];
        let body = section
            .iter()
            .position(|&b| b == b'\n')
            .map_or(section.len(), |len| len + 1);
        &section[body..]
    });
    bodies.collect()
}

/// Returns inode number, mode and name of a line of `ls -l`:
/// `     12  100644 (1)      0      0       3 21-Nov-2026 21:03 a`.
fn listed(line: &[u8]) -> (u64, u32, Vec<u8>) {
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (field, after) = rest.split_at(end);
        rest = after;
        std::str::from_utf8(field)
            .expect("debugfs writes text")
            .to_owned()
    };
    let ino = field().parse().expect("an inode number");
    let mode = u32::from_str_radix(&field(), 8).expect("a mode");
    // File type of the entry, owner, group, size, date, time.
    (0..6).for_each(|_| drop(field()));
    (ino, mode, unescape(rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// Decodes a name in which debugfs wrote unprintable bytes as `\xNN`.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        let hex = (first == b'\\')
            .then(|| after.strip_prefix(b"x"))
            .flatten()
            .and_then(|hex| hex.get(..2));
        let byte = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match byte {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

fn stats(image: &Path, inodes: &[u64]) -> HashMap<u64, Entry> {
    let output = debugfs_bytes(
        image,
        false,
        &script(inodes.iter().map(|ino| format!("stat <{ino}>"))),
    );
    inodes
        .iter()
        .zip(sections(&output))
        .map(|(ino, text)| (*ino, stat(*ino, text)))
        .collect()
}

fn stat(ino: u64, raw: &[u8]) -> Entry {
    let text = String::from_utf8_lossy(raw);
    // The word after the last "label" that is followed by a value.
    let word = |label: &str| -> Option<&str> {
        let at = text.find(label)? + label.len();
        text[at..].split_whitespace().next()
    };
    let number = |label: &str| -> u64 {
        let word = word(label).unwrap_or_else(|| panic!("inode {ino}: no {label} in {text}"));
        word.parse()
            .unwrap_or_else(|_| panic!("inode {ino}: {label}{word}"))
    };
    // Owners are printed as signed numbers.
    let id = |label: &str| -> u32 {
        let word = word(label).unwrap_or_else(|| panic!("inode {ino}: no {label} in {text}"));
        let id: i64 = word
            .parse()
            .unwrap_or_else(|_| panic!("inode {ino}: {label}{word}"));
        (id & 0xffff_ffff) as u32
    };
    let kind = match word("Type:") {
        Some("regular") => Kind::File,
        Some("directory") => Kind::Directory,
        Some("symlink") => Kind::Symlink,
        Some("character") => Kind::CharDevice,
        Some("block") => Kind::BlockDevice,
        Some("FIFO") => Kind::Fifo,
        Some("socket") => Kind::Socket,
        other => panic!("inode {ino}: type {other:?}"),
    };
    let rdev = word("Device major/minor number:").map_or((0, 0), |pair| {
        let (major, minor) = pair.split_once(':').expect("major:minor");
        (
            major.parse().expect("a major number"),
            minor.parse().expect("a minor number"),
        )
    });
    let link = fast_link(raw);
    let xattrs = text
        .split_once("Extended attributes:\n")
        .map_or("", |(_, list)| list);
    let lines = xattrs.lines().take_while(|line| line.starts_with("  "));
    let names = lines.map(|line| line.trim_start().split(" (").next().unwrap_or(""));
    // Contents inside an inode, which no mount shows as an attribute.
    let names = names.filter(|name| *name != "system.data");
    let named = names.map(|name| (name.into(), Vec::new()));
    Entry {
        kind,
        mode: u32::from_str_radix(word("Mode:").expect("a mode"), 8).expect("octal") & 0o7777,
        uid: id("User:"),
        gid: id("Group:"),
        nlink: Some(number("Links:")),
        size: if kind == Kind::File || kind == Kind::Directory || kind == Kind::Symlink {
            number("Size:")
        } else {
            0
        },
        blocks: Some(number("Blockcount:")),
        rdev,
        atime: word(" atime:").map(time),
        mtime: word(" mtime:").map(time),
        ctime: word(" ctime:").map(time),
        btime: Some(word("crtime:").map(time)),
        ino,
        flags: None,
        xattrs: Some(named.collect()),
        link,
        content: None,
    }
}

/// Returns the target of a link that is stored in its inode. Unlike names, debugfs prints it as it
/// is.
fn fast_link(text: &[u8]) -> Option<Vec<u8>> {
    const LABEL: &[u8] = b"\nFast link dest: \"";
    let start = text
        .windows(LABEL.len())
        .position(|window| window == LABEL)?
        + LABEL.len();
    let end = text
        .iter()
        .rposition(|&b| b == b'"')
        .expect("a closing quote");
    Some(text[start..end].to_vec())
}

/// Parses a time like `0x6b020715:00000001`. The first word is the 32 bits of the old field. If the
/// inode has room, the second has two bits of epoch below thirty of nanoseconds.
fn time(text: &str) -> Time {
    let hex =
        |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal");
    let (low, extra) = text.split_once(':').unwrap_or((text, "0"));
    let low = hex(low);
    let extra = hex(extra);
    Time {
        sec: i64::from(low.cast_signed()) + (i64::from(extra & 3) << 32),
        nsec: extra >> 2,
    }
}

/// Bytes of contents in `i_block`.
const INLINE_BYTES: u64 = 60;

fn read_contents(image: &Path, dir: &Path, entries: &mut HashMap<u64, Entry>) {
    let wanted: Vec<u64> = entries
        .iter()
        .filter(|(_, e)| e.kind == Kind::File || (e.kind == Kind::Symlink && e.link.is_none()))
        .map(|(ino, _)| *ino)
        .collect();
    debugfs(
        image,
        false,
        &script(
            wanted
                .iter()
                .map(|ino| format!("dump <{ino}> {}/{ino}", dir.display())),
        ),
    );
    for ino in wanted {
        let mut bytes = std::fs::read(dir.join(ino.to_string())).expect("what debugfs dumped");
        let entry = entries.get_mut(&ino).expect("listed above");
        // debugfs fills short contents that are inside an inode with zeroes.
        if entry.size < INLINE_BYTES && bytes.len() as u64 == INLINE_BYTES {
            let zeroes = bytes.split_off(entry.size as usize);
            assert!(
                zeroes.iter().all(|byte| *byte == 0),
                "debugfs dumps more than inode {ino} has"
            );
        }
        if entry.kind == Kind::Symlink {
            entry.link = Some(bytes);
            continue;
        }
        let mut digest = ContentDigest::default();
        digest.add(0, &bytes);
        assert_eq!(
            bytes.len() as u64,
            entry.size,
            "debugfs dumps all of inode {ino}"
        );
        entry.content = Some(Content {
            digest: Ok(digest.finish()),
            data: None,
        });
    }
}

fn read_xattrs(image: &Path, dir: &Path, entries: &mut HashMap<u64, Entry>) {
    let mut commands = Vec::new();
    for (ino, entry) in entries.iter() {
        for (at, name) in entry
            .xattrs
            .iter()
            .flatten()
            .map(|(name, _)| name)
            .enumerate()
        {
            let name = String::from_utf8_lossy(name);
            commands.push(format!(
                "ea_get -f {}/{ino}-{at} <{ino}> {name}",
                dir.display()
            ));
        }
    }
    debugfs(image, false, &script(commands.into_iter()));
    for (ino, entry) in entries.iter_mut() {
        let values: BTreeMap<Vec<u8>, Vec<u8>> = entry.xattrs.take().unwrap_or_default();
        let read = |(at, (name, _)): (usize, (Vec<u8>, Vec<u8>))| {
            let value = std::fs::read(dir.join(format!("{ino}-{at}"))).expect("what debugfs wrote");
            let is_list = name.starts_with(b"system.posix_acl_");
            (
                name,
                if is_list {
                    acl::canonical(value)
                } else {
                    value
                },
            )
        };
        entry.xattrs = Some(values.into_iter().enumerate().map(read).collect());
    }
}
