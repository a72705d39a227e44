//! The progress of commands: lines on demand, a bar on a terminal, and a line on SIGUSR1.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};

use extern4_testkit::image::{Image, ImageSpec};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::interrupting::{signal, start};
use crate::run::{extern4, failed, machine, ok};
use crate::terminal::on_terminal;
use crate::writing::said;

/// Returns the lines of a run that has to succeed, on standard error.
#[track_caller]
fn lines(image: &Image, args: &[&str]) -> Vec<String> {
    let output = extern4(image, [&["--progress=always"], args].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr)
        .expect("text")
        .lines()
        .map(str::to_owned)
        .collect()
}

fn volume() -> Image {
    let image = ImageSpec::new("disk", 64 << 20, &["-t", "ext4"]).build();
    let tree = image.scratch().join("tree");
    fs::create_dir(&tree).expect("a directory");
    for at in 0..9 {
        fs::write(tree.join(format!("{at}")), "x").expect("a file");
    }
    fs::write(tree.join("long"), vec![7; 20 << 20]).expect("a file");
    image
}

#[test]
fn lines_tell_of_each_tenth() {
    let image = volume();
    let check = |args: &[&str], part: &str| {
        let lines = lines(&image, args);
        let start = format!("extern4: {}: ", args[0]);
        let are_good = lines
            .iter()
            .all(|line| line.starts_with(&start) && line.contains(part));
        assert!(
            (3..=10).contains(&lines.len()) && are_good,
            "{args:?}: {lines:#?}"
        );
    };
    check(
        &["cp", "-r", "tree", "disk.img:/"],
        " % of 20.00 MiB copied",
    );
    check(
        &["cp", "-r", "disk.img:/tree", "out"],
        " % of 20.00 MiB copied",
    );
    check(
        &["export", "disk.img:/tree", "-o", "out.tar"],
        " % of 20.00 MiB exported",
    );
    let said = lines(&image, &["check", "disk.img"]);
    assert!(
        said.iter()
            .any(|line| line.starts_with("extern4: check: 1 of 8 groups checked")),
        "{said:#?}"
    );
    // Ten files and their directory.
    check(&["rm", "-r", "disk.img:/tree"], " of 11 files removed");
    let script: String = (0..20).map(|at| format!("mkdir /{at}\n")).collect();
    fs::write(image.scratch().join("changes"), script).expect("a script");
    check(&["script", "disk.img", "changes"], " of 20 commands done");
}

#[test]
fn progress_is_shown_where_it_is_wanted() {
    let image = volume();
    ok(extern4(&image, ["cp", "-r", "tree", "disk.img:/"]));
    ok(extern4(
        &image,
        ["--progress=never", "rm", "-r", "disk.img:/tree"],
    ));
    ok(extern4(
        &image,
        ["cp", "-rq", "--progress=always", "tree", "disk.img:/"],
    ));
    let errors = failed(&extern4(&image, ["ls", "--progress=always", "disk.img"]), 2);
    assert_eq!(errors, "extern4: ls: --progress has no effect on ls\n");
    // The reader of the archive waits until the bar is there: it appears after half a second.
    let waits = "export disk.img:/tree -o - | (sleep 2; cat > out.tar)";
    if let Some(output) = on_terminal(image.scratch(), waits) {
        let shown = String::from_utf8_lossy(&output).into_owned();
        let percent = shown
            .split(" % ")
            .next()
            .and_then(|before| before.split_whitespace().last());
        assert!(
            percent.is_some_and(|percent| percent.parse::<u8>().is_ok()),
            "{shown:?}"
        );
        assert!(shown.contains("B/20.00 MiB"), "{shown:?}");
    }
    if let Some(output) = on_terminal(image.scratch(), &format!("--progress=never {waits}")) {
        assert!(output.is_empty(), "{output:?}");
    }
}

#[test]
fn sigusr1_tells_how_far_a_command_is() {
    let image = machine();
    let pipe = image.scratch().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    fs::write(
        image.scratch().join("changes"),
        "mkdir /first\ncp host:pipe /copy\n",
    )
    .expect("a script");
    for (args, start_of_line) in [
        (&["cp", "pipe", "disk.img:/copy"][..], "extern4: cp: "),
        (
            &["script", "disk.img", "changes"],
            "extern4: script: 1 of 2 commands done",
        ),
    ] {
        let (mut child, _output) = start(&image, args);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .open(&pipe)
            .expect("the command reads it");
        file.write_all(&vec![b'x'; 2 << 20]).expect("it is read");
        signal(&child, Signal::USR1);
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        assert!(
            line.starts_with(start_of_line) && line.contains(" MiB copied"),
            "{line}"
        );
        drop(file);
        assert!(child.wait().expect("it ends").success());
        line.clear();
        errors.read_line(&mut line).expect("the end");
        assert_eq!(line, "");
        assert!(said(&image, &["stat", "-c", "%s", "disk.img:/copy"]).contains("2097152"));
        ok(extern4(&image, ["rm", "disk.img:/copy"]));
    }
}
