//! The guide's tables of options: complete by the namesakes' own help, and true of the command.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use extern4_testkit::tools::find;

use crate::run::command;

/// A row of a table: the names of an option, and whether the command takes it.
struct Row {
    command: String,
    options: Vec<String>,
    here: String,
    note: String,
}

/// Returns the pages with tables of options.
fn pages() -> Vec<PathBuf> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let files = fs::read_dir(guide)
        .expect("the guide")
        .map(|entry| entry.expect("a page").path());
    let is_table = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("options-"))
    };
    files.filter(is_table).collect()
}

/// Returns the rows of a page: under a heading with the command, `| option | here | note |`.
fn rows(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut command = String::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.trim().clone_into(&mut command);
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let [options, here, note] = cells[..] else {
            continue;
        };
        let options = options
            .split('`')
            .filter(|name| name.starts_with('-') && name.len() > 1);
        let options: Vec<String> = options.map(ToOwned::to_owned).collect();
        if !options.is_empty() && !command.is_empty() {
            let note = note.trim_end_matches('|').trim().to_owned();
            rows.push(Row {
                command: command.clone(),
                options,
                here: here.trim().to_owned(),
                note,
            });
        }
    }
    rows
}

/// Returns the options in a namesake's help: of each line that begins with one, the names before
/// the explanation; of e2fsprogs, the letters in the usage, each group of them in brackets.
fn options_of_help(help: &str) -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    for line in help.lines() {
        let is_usage = line.starts_with("Usage") || line.trim_start_matches('\t').starts_with("[-");
        for group in line.split('[').skip(1).filter(|_| is_usage) {
            let group = group.split([']', ' ']).next().unwrap_or_default();
            let letters = group.split('|').filter_map(|names| names.strip_prefix('-'));
            // Behind other characters, as in `[-+=ai]`, are letters of attributes. `[-Olevel]` of
            // find is a letter with its value.
            let letters =
                letters.filter(|letters| letters.starts_with(|c: char| c.is_ascii_alphabetic()));
            let letters = letters.map(|letters| letters.strip_suffix("level").unwrap_or(letters));
            options.extend(
                letters
                    .flat_map(str::chars)
                    .map(|letter| format!("-{letter}")),
            );
        }
        let text = line.trim_start();
        if !line.starts_with("  ") || !text.starts_with('-') {
            continue;
        }
        let names = text.split("  ").next().unwrap_or_default();
        for name in names
            .split([',', ' '])
            .filter(|name| name.starts_with('-') && name.contains(|c| c != '-'))
        {
            let end = name.find(['=', '[', ')']).unwrap_or(name.len());
            options.insert(name[..end].to_owned());
        }
    }
    options
}

/// Returns the subcommand that has the options of a namesake.
fn subcommand(namesake: &str) -> &str {
    match namesake {
        "mke2fs" => "mkfs",
        "tune2fs" => "tune",
        name => name,
    }
}

/// Returns the messages of the command about an option with a file that is not there.
fn said(name: &str, option: &str) -> String {
    let mut command = command();
    let name = subcommand(name);
    let option = if (name, option) == ("grep", "-NUM") {
        "-2"
    } else {
        option
    };
    match (name, option) {
        ("e2fsck", _) => {
            command = Command::new(env!("CARGO_BIN_EXE_extern4"));
            command
                .env("LC_ALL", "C")
                .arg0("fsck.extern4")
                .args([option, "gone.img"])
        }
        // An option with a value that is right. A plan without a volume says what is not possible.
        ("mkfs", option) if option.contains(' ') => command
            .args([name, "-n"])
            .args(option.split(' '))
            .args(["gone.img", "64M"]),
        (_, option) if option.contains(' ') => {
            command.arg(name).args(option.split(' ')).arg("gone.img")
        }
        // Its options stand behind the places, but for some.
        ("find", "-H" | "-L" | "-P" | "--help") => command.args([name, option, "gone.img:/x"]),
        ("find", "-a" | "-and" | "-o" | "-or") => {
            command.args([name, "gone.img:/x", "-true", option, "-true"])
        }
        ("find", _) => command.args([name, "gone.img:/x", option, "/dev/null", "/dev/null"]),
        _ => command.args([name, option, "gone.img:/x"]),
    };
    command.stdin(Stdio::null());
    let output = command.output().expect("the command runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_tables_have_every_option_of_the_namesakes() {
    for page in pages() {
        let rows = rows(&fs::read_to_string(&page).expect("a page"));
        let commands: BTreeSet<&str> = rows.iter().map(|row| &*row.command).collect();
        assert!(!commands.is_empty(), "{}", page.display());
        for command in commands
            .into_iter()
            .filter(|command| find(command).is_some())
        {
            let mut namesake = Command::new(command);
            namesake
                .env("LC_ALL", "C")
                .arg("--help")
                .stdin(Stdio::null());
            let output = namesake.output().expect("the namesake runs");
            let help = [output.stdout, output.stderr].concat();
            let known: BTreeSet<String> = rows
                .iter()
                .filter(|row| row.command == command)
                .flat_map(|row| row.options.iter().cloned())
                .collect();
            let missing: Vec<String> = options_of_help(&String::from_utf8_lossy(&help))
                .difference(&known)
                .cloned()
                .collect();
            assert!(
                missing.is_empty(),
                "{}: {command} has no row for {missing:?}",
                page.display()
            );
        }
    }
}

#[test]
fn the_tables_are_true_of_the_command() {
    for page in pages() {
        let mut wrong = Vec::new();
        for row in rows(&fs::read_to_string(&page).expect("a page")) {
            for option in &row.options {
                let said = said(&row.command, option);
                let signs = match &*row.command {
                    "find" => {
                        ["known", "there", "expected"].map(|end| format!("{option} is not {end}"))
                    }
                    _ if option.contains(' ') => {
                        ["invalid value", "not supported", ": -"].map(str::to_owned)
                    }
                    _ => [
                        "unexpected argument".to_owned(),
                        format!(": {option}: "),
                        format!("value {option:?}"),
                    ],
                };
                let is_refused = signs.iter().any(|sign| said.contains(&**sign));
                let is_right = match &*row.here {
                    "yes" => !is_refused,
                    "no" => is_refused && !row.note.is_empty(),
                    _ => false,
                };
                if !is_right {
                    wrong.push(format!("{} {option}: {} {said}", row.command, row.here));
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{}:\n{}",
            page.display(),
            wrong.join("\n")
        );
    }
}

#[test]
fn help_is_read() {
    let read = |help: &str| {
        options_of_help(help)
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        read("  -b                 like --backup\n      --backup[=CONTROL]  make -x"),
        "--backup -b"
    );
    assert_eq!(
        read("  -r, -R, --recursive  remove\n -q\n  -S, --suffix=SUFFIX  x"),
        "--recursive --suffix -R -S -r"
    );
    assert_eq!(read("Usage: lsattr [-Ra] [files...]"), "-R -a");
    assert_eq!(
        read("Usage: find [-H] [-L] [-Olevel] [path...]"),
        "-H -L -O"
    );
    assert_eq!(
        read("Usage: chattr [-RV] [-+=ai] [-v version] files"),
        "-R -V -v"
    );
    assert_eq!(
        read("Usage: e2fsck [-pa] [-b superblock]\n\t\t[-l|-L file] [-E x] device"),
        "-E -L -a -b -l -p"
    );
    assert_eq!(
        read("Usage: x [-c|-l file]\n\t[-b size][-z undo]\n\t[-jV] device"),
        "-V -b -c -j -l -z"
    );
}

/// The rows of the table of debugfs: the names of a request, whether extern4 has it, and the note.
fn requests() -> Vec<(Vec<String>, String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/debugfs.md");
    let page = fs::read_to_string(page).expect("a page");
    let row = |line: &str| {
        let line = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let [names, here, note] = line.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            return None;
        };
        let names = names
            .split('`')
            .filter(|name| !name.is_empty() && *name != ", ");
        Some((
            names.map(ToOwned::to_owned).collect(),
            here.to_owned(),
            note.to_owned(),
        ))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_table_of_debugfs_has_every_request() {
    if find("debugfs").is_none() {
        return;
    }
    let output = Command::new("debugfs")
        .args(["-R", "list_requests"])
        .output()
        .expect("debugfs runs");
    let known: BTreeSet<String> = requests()
        .into_iter()
        .flat_map(|(names, ..)| names)
        .collect();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A request's names begin the line, and two spaces or its end follow them.
    let lines = text
        .lines()
        .filter(|line| !line.starts_with([' ', 'A']) && !line.is_empty());
    let names: Vec<&str> = lines
        .flat_map(|line| {
            line.split("  ")
                .next()
                .unwrap_or_default()
                .trim()
                .split(", ")
        })
        .collect();
    assert!(
        names.contains(&"icheck") && names.contains(&"q"),
        "{names:?}"
    );
    for name in names {
        // A name that fills its column is behind only one space.
        let name = name.split(' ').next().unwrap_or_default();
        assert!(known.contains(name), "{name} is not in the table");
    }
}

#[test]
fn the_table_of_debugfs_is_true_of_the_command() {
    let rows = requests();
    assert!(rows.len() > 60, "{}", rows.len());
    for (names, here, note) in rows {
        match &*here {
            "yes" => {
                let line = note.split('`').nth(1).unwrap_or_default();
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!(words[0], "extern4", "{names:?}: {note}");
                let letters = words
                    .iter()
                    .filter(|word| word.starts_with('-') && word.len() == 2);
                let help = command()
                    .args([words[1], "--help"])
                    .output()
                    .expect("the command runs");
                assert!(help.status.success(), "{names:?}: {line}");
                let help = String::from_utf8_lossy(&help.stdout).into_owned();
                for letter in letters.filter(|letter| **letter != "--") {
                    assert!(
                        help.contains(*letter) || *letter == "-m",
                        "{names:?}: {line}"
                    );
                }
            }
            "no" => assert!(!note.is_empty(), "{names:?}"),
            other => panic!("{names:?}: {other}"),
        }
    }
}
