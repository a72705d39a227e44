//! The guide's tables of options: complete by the namesakes' own help, and true of the command.

use std::collections::BTreeSet;
use std::fs;
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
    let files = fs::read_dir(guide).expect("the guide").map(|entry| entry.expect("a page").path());
    let is_table =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("options-"));
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
        let [options, here, note] = cells[..] else { continue };
        let options = options.split('`').filter(|name| name.starts_with('-') && name.len() > 1);
        let options: Vec<String> = options.map(ToOwned::to_owned).collect();
        if !options.is_empty() && !command.is_empty() {
            let note = note.trim_end_matches('|').trim().to_owned();
            rows.push(Row { command: command.clone(), options, here: here.trim().to_owned(), note });
        }
    }
    rows
}

/// Returns the options in a namesake's help: of each line that begins with one, the names before
/// the explanation; of e2fsprogs, the letters in the usage.
fn options_of_help(help: &str) -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    for line in help.lines() {
        if let Some((_, letters)) = line.split_once("[-").filter(|_| line.starts_with("Usage")) {
            let letters = letters.split(']').next().unwrap_or_default();
            options
                .extend(letters.chars().filter(char::is_ascii_alphabetic).map(|letter| format!("-{letter}")));
        }
        let text = line.trim_start();
        if !line.starts_with("  ") || !text.starts_with('-') {
            continue;
        }
        let names = text.split("  ").next().unwrap_or_default();
        for name in names.split([',', ' ']).filter(|name| name.starts_with('-')) {
            let end = name.find(['=', '[', ')']).unwrap_or(name.len());
            options.insert(name[..end].to_owned());
        }
    }
    options
}

/// Returns the messages of the command about an option with a file that is not there.
fn said(name: &str, option: &str) -> String {
    let mut command = command();
    match (name, option) {
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
        for command in commands.into_iter().filter(|command| find(command).is_some()) {
            let mut namesake = Command::new(command);
            namesake.env("LC_ALL", "C").arg("--help").stdin(Stdio::null());
            let output = namesake.output().expect("the namesake runs");
            let help = [output.stdout, output.stderr].concat();
            let known: BTreeSet<String> = rows
                .iter()
                .filter(|row| row.command == command)
                .flat_map(|row| row.options.iter().cloned())
                .collect();
            let missing: Vec<String> =
                options_of_help(&String::from_utf8_lossy(&help)).difference(&known).cloned().collect();
            assert!(missing.is_empty(), "{}: {command} has no row for {missing:?}", page.display());
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
                    "find" => ["known", "there", "expected"].map(|end| format!("{option} is not {end}")),
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
        assert!(wrong.is_empty(), "{}:\n{}", page.display(), wrong.join("\n"));
    }
}

#[test]
fn help_is_read() {
    let read = |help: &str| options_of_help(help).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(read("  -b                 like --backup\n      --backup[=CONTROL]  make -x"), "--backup -b");
    assert_eq!(
        read("  -r, -R, --recursive  remove\n -q\n  -S, --suffix=SUFFIX  x"),
        "--recursive --suffix -R -S -r"
    );
    assert_eq!(read("Usage: lsattr [-Ra] [files...]"), "-R -a");
}
