//! The commands that the documents show, run as they are shown; completions and manual pages.
//!
//! A block of a document that is fenced as `console` is a session: a line that starts with `$ ` is run by a shell, in
//! a directory that has the images of [`run`](crate::run), and what follows is what it has to say. `[..]` in a line
//! stands for anything, and a line of three dots for any lines. A session in which nothing ever says anything shows
//! only how commands look: they have to be commands that exist.

use std::path::Path;
use std::process::Command;

use extern4_testkit::image::Image;

use crate::run::{extern4, machine, ok, partitioned};

/// A command of a document and what it says there.
struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
    /// The session shows what its commands say.
    shows_output: bool,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    let mut session = 0;
    for (index, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            let shows_output = examples[session..].iter().any(|example| !example.expected.is_empty());
            examples[session..].iter_mut().for_each(|example| example.shows_output = shows_output);
            session = examples.len();
            inside = line == "```console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_owned();
            examples.push(Example { line: index + 1, command, expected: Vec::new(), shows_output: false });
        } else if let Some(example) = examples.last_mut() {
            example.expected.push(line.to_owned());
        }
    }
    examples
}

/// Whether the lines are as expected.
fn matches(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, lines)| fits(first, line) && matches(rest, lines))
        }
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

fn check(document: &Path, image: &Image) {
    let Ok(text) = std::fs::read_to_string(document) else { return };
    let bin = Path::new(env!("CARGO_BIN_EXE_extern4")).parent().expect("a directory");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    for example in examples(&text) {
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {}", example.command)])
            .current_dir(image.scratch())
            .env("PATH", &path)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<_> = said.lines().collect();
        let place = format!("{}:{}", document.display(), example.line);
        let code = output.status.code();
        let fits = if example.shows_output {
            matches(&example.expected, &lines)
        } else {
            matches!(code, Some(0 | 1))
        };
        assert!(fits, "{place}: $ {}\n{said}", example.command);
    }
}

#[test]
fn examples_of_the_documents_are_true() {
    let image = machine();
    partitioned(&image);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    check(&here.join("README.md"), &image);
    check(&here.join("../../README.md"), &image);
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
        assert!(script.contains("getfattr") && script.contains("json"), "{shell}");
    }
    let page = String::from_utf8(ok(extern4(&image, ["man"]))).expect("text");
    assert!(page.contains(".TH extern4 1"), "{page}");
    ok(extern4(&image, ["man", "pages"]));
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
        assert!(image.scratch().join("pages").join(page).exists(), "{page}");
    }
}
