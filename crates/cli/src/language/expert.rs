//! The words of debugfs that the language has other commands for.
//!
//! Each becomes a command that does the same. A word that changes single structures has none:
//! extern4 changes a volume by whole operations only.
//!
//! `statement` translates with it before it parses. A word without a translation is refused with
//! the reason.

use std::ffi::{OsStr, OsString};

use super::words::{Meaning, Word};

/// The words that have no equivalent, and why.
const NONE: &[(&[&str], &str)] = &[
    (
        &["logdump"],
        "no command lists the blocks of a journal; 'info' shows its size and state",
    ),
    (
        &["htree_dump", "htree", "dx_dump"],
        "no command shows the inner blocks of a directory; 'inode' shows where they are",
    ),
    (
        &["lsdel", "list_deleted_inodes", "undel", "undelete"],
        "deleted files are not brought back",
    ),
    (
        &[
            "clri",
            "mi",
            "modify_inode",
            "seti",
            "freei",
            "setb",
            "freeb",
            "ffb",
            "ffi",
            "sif",
            "set_inode_field",
            "ssv",
            "set_super_value",
            "set_bg",
            "set_block_group",
            "kill_file",
            "clear_inode",
            "find_free_block",
            "find_free_inode",
            "unlink",
            "expand_dir",
            "punch",
            "fallocate",
        ],
        "single structures are not changed; extern4 changes a volume by whole operations",
    ),
    (
        &[
            "open",
            "close",
            "initialize",
            "init_filesys",
            "feature",
            "features",
        ],
        "the shell has its volume open; 'tune' and 'mkfs' are commands of the host",
    ),
];

/// The usage of each translated word.
const USAGES: &[(&[&str], &str)] = &[
    (
        &["imap", "ex", "extents", "dump_extents", "blocks"],
        "FILE or <INODE>",
    ),
    (&["icheck", "testb", "block_dump", "bd"], "BLOCK..."),
    (&["ncheck"], "INODE..."),
    (&["dump"], "[-p] FILE HOST-FILE"),
    (&["rdump"], "FILE... HOST-DIRECTORY"),
    (&["write"], "HOST-FILE FILE"),
    (&["symlink"], "NAME TARGET"),
    (&["ea_list"], "FILE"),
    (&["ea_get"], "FILE NAME"),
    (&["ea_set"], "FILE NAME VALUE"),
    (&["ea_rm"], "FILE NAME"),
];

/// Returns the words of debugfs that the language knows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    USAGES
        .iter()
        .flat_map(|(names, _)| names.iter().copied())
        .chain(["show_super_stats"])
}

/// Returns the help of a translated word, or the reason why there is no translation.
pub(super) fn help(name: &str) -> Option<Result<String, String>> {
    if let Some((_, reason)) = NONE.iter().find(|(names, _)| names.contains(&name)) {
        return Some(Err(format!("{name}: {reason}")));
    }
    let (_, usage) = USAGES.iter().find(|(names, _)| names.contains(&name))?;
    Some(Ok(format!(
        "{name}, as debugfs has it\n\nUsage: {name} {usage}\n"
    )))
}

/// Returns a command of debugfs as a command of the language; other commands as they are.
pub(super) fn translated(words: Vec<Word>) -> Result<Vec<Word>, String> {
    let Some(name) = words[0].text.to_str().map(ToOwned::to_owned) else {
        return Ok(words);
    };
    if let Some((_, reason)) = NONE.iter().find(|(names, _)| names.contains(&&*name)) {
        return Err(format!("{name}: {reason}"));
    }
    if let Some((_, usage)) = USAGES.iter().find(|(names, _)| names.contains(&&*name)) {
        let line = line(&name, &words[1..]);
        return line.ok_or_else(|| format!("{name}: write it as: {name} {usage}"));
    }
    Ok(match (&*name, &words[1..]) {
        ("show_super_stats", _) => vec!["info".into()],
        (
            "stat" | "inode",
            [
                Word {
                    meaning: Meaning::Inode(number),
                    ..
                },
            ],
        ) => inode(*number),
        _ => words,
    })
}

/// Returns the translation of a word of [`USAGES`]; `None` for other arguments than it takes.
fn line(name: &str, args: &[Word]) -> Option<Vec<Word>> {
    let words = |front: &[&str], rest: &[&Word]| {
        front
            .iter()
            .copied()
            .map(Word::from)
            .chain(rest.iter().map(|word| (*word).clone()))
            .collect()
    };
    let all: Vec<&Word> = args.iter().collect();
    let is_numbers = !args.is_empty() && args.iter().all(|word| is_number(&word.text));
    Some(match (name, args) {
        ("imap" | "ex" | "extents" | "dump_extents" | "blocks", [file]) => match file.meaning {
            Meaning::Inode(number) => inode(number),
            _ => words(&["inode"], &all),
        },
        ("icheck" | "testb", _) if is_numbers => words(&["block"], &all),
        ("block_dump" | "bd", _) if is_numbers => words(&["block", "-x"], &all),
        ("ncheck", _) if is_numbers => {
            let mut find = words(&["find", "/"], &[]);
            for (at, number) in args.iter().enumerate() {
                find.extend(words(
                    if at == 0 {
                        &["-inum"]
                    } else {
                        &["-o", "-inum"]
                    },
                    &[number],
                ));
            }
            find
        }
        ("dump", [flag, file, to]) if flag.text == "-p" => words(&["cp", "-p"], &[file, &host(to)]),
        ("dump", [file, to]) => words(&["cp"], &[file, &host(to)]),
        ("rdump", [files @ .., to]) if !files.is_empty() => {
            let files = files.iter();
            let to = host(to);
            // As in debugfs, no device is made.
            words(
                &["cp", "-rp", "--no-specials"],
                &files.chain([&to]).collect::<Vec<_>>(),
            )
        }
        ("write", [file, to]) => words(&["cp"], &[&host(file), to]),
        ("symlink", [name, target]) => words(&["ln", "-s"], &[target, name]),
        ("ea_list", [file]) => words(&["getfattr", "-d"], &[file]),
        ("ea_get", [file, name]) => words(&["getfattr", "-n"], &[name, file]),
        ("ea_set", [file, name, value]) => {
            words(&["setfattr", "-n"], &[name, &"-v".into(), value, file])
        }
        ("ea_rm", [file, name]) => words(&["setfattr", "-x"], &[name, file]),
        _ => return None,
    })
}

fn inode(number: u64) -> Vec<Word> {
    vec!["inode".into(), "-n".into(), number.to_string().into()]
}

/// Returns the operand that names a file of the host.
fn host(path: &Word) -> Word {
    let mut word = OsString::from("host:");
    word.push(&path.text);
    word.into()
}

fn is_number(word: &OsStr) -> bool {
    word.to_str()
        .is_some_and(|word| word.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use crate::language::words::{Words, statements};

    fn translated(line: &str) -> Result<String, String> {
        let (_, words) = statements(line.as_bytes(), &|_| None).remove(0);
        let Ok(Words::Command(words, _)) = words else {
            panic!("{line}: {words:?}")
        };
        super::translated(words).map(|words| {
            words
                .iter()
                .map(|word| word.text.to_str().expect("plain text"))
                .collect::<Vec<_>>()
                .join(" ")
        })
    }

    #[test]
    fn words_of_debugfs_become_commands() {
        for (line, expected) in [
            ("stat <12>", "inode -n 12"),
            ("stat /a", "stat /a"),
            ("stat '<12>'", "stat <12>"),
            ("imap <12>", "inode -n 12"),
            ("cat <12>", "cat <12>"),
            ("dump <12> b", "cp <12> host:b"),
            ("imap /a", "inode /a"),
            ("icheck 5 6", "block 5 6"),
            ("bd 5", "block -x 5"),
            ("ncheck 12 13", "find / -inum 12 -o -inum 13"),
            ("dump -p /a b", "cp -p /a host:b"),
            ("dump /a b", "cp /a host:b"),
            ("rdump /a /b c", "cp -rp --no-specials /a /b host:c"),
            ("write a /b", "cp host:a /b"),
            ("symlink a b", "ln -s b a"),
            ("ea_set /a user.x 1", "setfattr -n user.x -v 1 /a"),
            ("rm -r /a", "rm -r /a"),
        ] {
            assert_eq!(translated(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_has_no_equivalent_is_refused_with_the_reason() {
        for (line, says) in [
            ("logdump", "journal"),
            ("clri <12>", "whole operations"),
            ("icheck", "icheck BLOCK..."),
            ("icheck a", "icheck BLOCK..."),
        ] {
            let Err(reason) = translated(line) else {
                panic!("{line} is refused")
            };
            assert!(reason.contains(says), "{line}: {reason}");
        }
    }
}
