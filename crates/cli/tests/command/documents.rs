//! The commands that the documents show, run as they are shown; completions and manual pages.
//!
//! A block of a document that is fenced as `console` is a session. A shell runs each line that
//! starts with `$ `, in a directory with the images that the guide's first page makes. It must
//! print the lines that follow. [`MASKS`] hide the parts that differ from run to run. `[..]` in a
//! line stands for any text, and a line of three dots for any lines. A page that mounts is skipped
//! where root or FUSE is missing. In blocks of other kinds, each subcommand must exist.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run, temporary};
use regex_lite::Regex;

use crate::mounting::can_mount_as_root;
use crate::run::{extern4, failed, machine, ok, tool};

/// Patterns of the parts that differ from run to run, and the text that stands for each.
const MASKS: &[(&str, &str)] = &[
    (
        r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( [+-]\d{4})?",
        "DATE",
    ),
    (
        r"\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d +(\d\d:\d\d|\d{4})\b",
        "DATE",
    ),
    (r"\b\d{10}\.\d{9}\b", "DATE"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\bprocess \d+\b", "process NUMBER"),
];

/// A command of a document and its documented output.
struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for (index, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            examples.push(Example {
                line: index + 1,
                command: command.to_owned(),
                expected: Vec::new(),
            });
        } else if let Some(example) = examples.last_mut() {
            example.expected.push(line.to_owned());
        }
    }
    examples
}

/// Returns the subcommands that blocks of other kinds name, as in a unit of systemd.
fn named_commands(document: &str) -> Vec<String> {
    let call = Regex::new(r"(?:^|[\s/(])extern4 ([a-z]+)").expect("a pattern");
    let mut fence = "";
    let mut found = Vec::new();
    for line in document.lines() {
        match line.strip_prefix("```") {
            Some(kind) => fence = kind,
            None if matches!(fence, "sh" | "ini") => {
                found.extend(call.captures_iter(line).map(|call| call[1].to_owned()));
            }
            None => {}
        }
    }
    found
}

/// Returns the line with its variable parts masked.
fn masked(line: &str) -> String {
    MASKS.iter().fold(line.to_owned(), |line, (pattern, name)| {
        Regex::new(pattern)
            .expect("a pattern")
            .replace_all(&line, *name)
            .into_owned()
    })
}

/// Returns whether the lines are as expected.
fn matches(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| fits(first, line) && matches(rest, lines)),
    }
}

fn fits(expected: &str, line: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            (0..=line.len()).any(|at| line.is_char_boundary(at) && fits(rest, &line[at..]))
        }),
    }
}

/// Runs a command of a document and returns its output. It retries an unmount while the mount is
/// busy: a process that another test starts has its files for a moment.
fn run(command: &str, image: &Image) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_extern4"))
        .parent()
        .expect("a directory");
    let path = format!(
        "{}:{}:/usr/sbin:/sbin",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let start = Instant::now();
    loop {
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .current_dir(image.scratch())
            .env("PATH", &path)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !command.contains("umount")
            || !said.contains("busy")
            || start.elapsed() > Duration::from_secs(60)
        {
            return said;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Removes the mount that a failed session leaves.
struct Unmounted<'a>(&'a Image);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-lq")
            .arg(self.0.scratch().join("mnt"))
            .output();
    }
}

/// The end of a warning that an ordinary user gets where the document shows the output of root.
const NOT_ROOT: &str = "are not kept: only root can do that";

/// The page that makes the images of all pages.
const FIRST_PAGE: &str = "docs/guide/index.md";

/// Returns the images that the guide's first page makes; `None` on a machine that cannot run it.
fn images() -> Option<Image> {
    if !can_run(&[Need::Tool("sfdisk")]) {
        return None;
    }
    let image = Image::in_directory(temporary("extern4-guide-"), "disk.img");
    follow(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(FIRST_PAGE),
        &image,
    );
    Some(image)
}

fn check(document: &Path, images: &Image) {
    let text = std::fs::read_to_string(document).expect("a document");
    let mounts = examples(&text)
        .iter()
        .any(|example| example.command.contains("extern4 mount"));
    if document.ends_with(FIRST_PAGE) || mounts && !can_mount_as_root() {
        return;
    }
    let image = images.copy();
    tool(
        images.scratch(),
        "cp",
        [
            "--sparse=always".as_ref(),
            "sdcard.img".as_ref(),
            image.scratch().as_os_str(),
        ],
    );
    let _unmounted = Unmounted(&image);
    follow(document, &image);
    for command in named_commands(&text) {
        ok(extern4(&image, [command.as_str(), "--help"]));
    }
}

/// Runs the sessions of a document next to an image.
fn follow(document: &Path, image: &Image) {
    let text = std::fs::read_to_string(document).expect("a document");
    for example in &examples(&text) {
        let said = run(&example.command, image);
        let is_root = rustix::process::geteuid().is_root();
        let lines: Vec<_> = said
            .lines()
            .filter(|line| is_root || !line.ends_with(NOT_ROOT))
            .map(masked)
            .collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let expected: Vec<_> = example.expected.iter().map(|line| masked(line)).collect();
        let place = format!("{}:{}", document.display(), example.line);
        assert!(
            matches(&expected, &lines),
            "{place}: $ {}\n{said}",
            example.command
        );
    }
}

/// Returns the Markdown files of a directory of the workspace.
fn pages(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(dir);
    let entries = std::fs::read_dir(dir)
        .expect("a directory")
        .flatten()
        .map(|entry| entry.path());
    entries
        .filter(|path| path.extension().is_some_and(|ext| ext == "md"))
        .collect()
}

#[test]
fn examples_of_the_documents_are_true() {
    let Some(images) = images() else { return };
    pages("")
        .iter()
        .chain(&pages("crates/cli"))
        .for_each(|page| check(page, &images));
}

#[test]
fn examples_of_the_guide_are_true() {
    let Some(images) = images() else { return };
    pages("docs/guide")
        .iter()
        .for_each(|page| check(page, &images));
}

#[test]
fn the_summary_of_the_guide_has_every_page() {
    let pages = pages("docs/guide");
    let summary = pages
        .iter()
        .find(|page| page.ends_with("SUMMARY.md"))
        .expect("a summary");
    let summary = std::fs::read_to_string(summary).expect("a page");
    for page in &pages {
        let name = page.file_name().expect("a name").to_string_lossy();
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("]({name})")),
            "{name}"
        );
    }
}

#[test]
fn parts_that_differ_from_run_to_run_are_masked() {
    for (line, expected) in [
        (
            "-rw-r--r-- 1 a b 10 Nov 28 07:17 x",
            "-rw-r--r-- 1 a b 10 DATE x",
        ),
        ("5 2024-02-29 12:00:00.000000000 +0000", "5 DATE"),
        (
            "UUID: 6c1f4b52-3a0e-4d0c-9c55-0d2a4f6b7e11, 8.0M",
            "UUID: UUID, 8.0M",
        ),
    ] {
        assert_eq!(masked(line), expected);
    }
}

#[test]
fn commands_in_other_blocks_are_found() {
    let text = "```ini\nExecStart=/usr/bin/extern4 mount -f a b\n```\nextern4 no\n```console\n$ extern4 ls\n```";
    assert_eq!(named_commands(text), ["mount"]);
}

#[test]
fn lines_may_be_left_open() {
    let check = |expected: &[&str], lines: &[&str], fit: bool| {
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(matches(&expected, lines), fit, "{expected:?} {lines:?}");
    };
    check(&["a", "...", "d"], &["a", "b", "c", "d"], true);
    check(&["a", "...", "e"], &["a", "b", "c", "d"], false);
    check(&["a [..] c"], &["a b c"], true);
    check(&["a"], &["a", "b"], false);
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let image = machine();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = String::from_utf8(ok(extern4(&image, ["completions", shell]))).expect("text");
        assert!(
            script.contains("getfattr") && script.contains("json"),
            "{shell}"
        );
    }
    let page = String::from_utf8(ok(extern4(&image, ["man"]))).expect("text");
    assert!(page.contains(".TH extern4 1"), "{page}");
    ok(extern4(&image, ["man", "--dir", "pages"]));
    for page in [
        "extern4.1",
        "extern4-ls.1",
        "extern4-find.1",
        "extern4-cp.1",
        "extern4-bench.1",
        "extern4-bench-walk.1",
        "extern4-setfacl.1",
        "extern4-bench-ops.1",
    ] {
        let text = std::fs::read_to_string(image.scratch().join("pages").join(page)).expect(page);
        assert!(
            text.contains("SEE ALSO") && text.contains("docs/guide"),
            "{page}: {text}"
        );
    }
}

/// The help of a subcommand is one text, however it is asked for.
#[test]
fn help_is_that_of_the_option() {
    let image = machine();
    for words in [
        &[][..],
        &["ls"],
        &["find"],
        &["mount"],
        &["bench", "walk"],
        &["quota", "set"],
        &["help"],
    ] {
        let help = ok(extern4(&image, [&["help"], words].concat()));
        assert!(
            !help.is_empty() && help == ok(extern4(&image, [words, &["--help"]].concat())),
            "{words:?}"
        );
    }
    for words in [&["gone"][..], &["ls", "gone"], &["bench", "gone"]] {
        let said = failed(&extern4(&image, [&["help"], words].concat()), 2);
        assert_eq!(
            said,
            format!("extern4: help: '{}' is not a subcommand\n", words.join(" "))
        );
    }
}

#[test]
fn man_shows_the_page_of_a_command() {
    let image = machine();
    ok(extern4(&image, ["man", "--dir", "pages"]));
    for (words, file) in [
        (&[][..], "extern4.1"),
        (&["ls"], "extern4-ls.1"),
        (&["extern4-ls"], "extern4-ls.1"),
        (&["bench", "walk"], "extern4-bench-walk.1"),
        (&["quota-set"], "extern4-quota-set.1"),
        (&["mount.extern4"], "mount.extern4.8"),
    ] {
        let page = ok(extern4(&image, [&["man"], words].concat()));
        assert!(
            page == std::fs::read(image.scratch().join("pages").join(file)).expect(file),
            "{words:?}"
        );
    }
    let said = failed(&extern4(&image, ["man", "gone"]), 2);
    assert_eq!(
        said,
        "extern4: man: there is no page 'gone'; extern4 man --dir DIR writes all pages\n"
    );
    failed(&extern4(&image, ["man", "--dir", "pages", "ls"]), 2);
    assert!(!image.scratch().join("gone").exists());
}

/// On a terminal, man(1) gets the page. Another program stands for it here.
#[test]
fn man_shows_a_page_on_a_terminal() {
    let image = machine();
    let scratch = image.scratch();
    std::fs::create_dir(scratch.join("bin")).expect("a directory");
    let script = "#!/bin/sh\necho \"man $*\"; cat; exit $(cat code)\n";
    std::fs::write(scratch.join("bin/man"), script).expect("a script");
    crate::run::tool(scratch, "chmod", ["+x", "bin/man"]);
    std::fs::write(scratch.join("code"), "0").expect("a file");
    let page = String::from_utf8(ok(extern4(&image, ["man", "ls"]))).expect("text");
    let shows = |line: &str| {
        crate::terminal::line_on_terminal(scratch, line)
            .map(|shown| String::from_utf8_lossy(&shown).into_owned())
    };
    let bin = env!("CARGO_BIN_EXE_extern4");
    let Some(shown) = shows(&format!("PATH=$PWD/bin:$PATH; '{bin}' man ls")) else {
        return;
    };
    assert_eq!(shown, format!("man -l -\n{page}"));
    std::fs::write(scratch.join("code"), "3").expect("a file");
    let shown =
        shows(&format!("PATH=$PWD/bin:$PATH; '{bin}' man ls; echo $?")).expect("a terminal");
    assert!(
        shown.contains("extern4: man: man -l -: exit status: 3") && shown.ends_with("\n1\n"),
        "{shown}"
    );
    // Without man(1), the source is what there is.
    let shown = shows(&format!("PATH=/nowhere; '{bin}' man ls")).expect("a terminal");
    assert_eq!(shown, page);
}
