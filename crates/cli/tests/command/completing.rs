//! Completion of command lines, in the shells that do it.

use std::path::Path;
use std::process::Command;

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run};

use crate::run::{machine, ok, partitioned};
use crate::shell::Terminal;
use crate::writing::{quietly, said};

/// Makes a volume, a disk that holds it, and a directory with a name that has to be quoted.
fn volumes() -> Image {
    let image = machine();
    partitioned(&image);
    quietly(
        &image,
        &["mkdir", "disk.img:/my dir", "disk.img:/my dir/inner"],
    );
    quietly(
        &image,
        &[
            "mkdir",
            "disk.img:/a*",
            "disk.img:/a*/x2",
            "disk.img:/a\\*b",
        ],
    );
    image
}

/// Sets the environment in which a shell finds the command.
fn prepared(mut command: Command, image: &Image) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_extern4"))
        .parent()
        .expect("a directory");
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    command
        .current_dir(image.scratch())
        .env("PATH", path)
        .env("HOME", image.scratch())
        .env("LC_ALL", "C");
    command.env("INPUTRC", "/dev/null").env("PS1", "ready> ");
    command
}

#[test]
fn words_are_completed() {
    let image = volumes();
    let check = |line: &str, expected: &[&str]| {
        let words: Vec<&str> = line.split(' ').collect();
        let index = (words.len() - 1).to_string();
        let args = [
            &["completions", "--candidates", &index, "bash", "--"],
            &words[..],
        ]
        .concat();
        assert_eq!(
            said(&image, &args).lines().collect::<Vec<_>>(),
            expected,
            "{line}"
        );
    };
    check("extern4 ls disk.img:/e", &["disk.img:/etc/"]);
    check("extern4 ls -l disk.img:e", &["disk.img:etc/"]);
    check("extern4 ls disk.img:/r", &["disk.img:/root/"]);
    check("extern4 cat disk.img:/etc/h", &["disk.img:/etc/hostname"]);
    check(
        "extern4 mv disk.img:/home/ann/",
        &["disk.img:/home/ann/notes.txt", "disk.img:/home/ann/todo"],
    );
    check(
        "extern4 cat disk.img:/home/ann/.",
        &["disk.img:/home/ann/.profile"],
    );
    check("extern4 cat disk.img:/gone/", &[]);
    check(
        "extern4 ls disk.img:/a",
        &["disk.img:/a\\052/", "disk.img:/a\\052b/"],
    );
    check("extern4 ls disk.img:/a\\052/", &["disk.img:/a\\052/x2/"]);
    check("extern4 ls dis", &["disk.img:/"]);
    check("extern4 check dis", &["disk.img"]);
    check("extern4 ls sdcard.img", &["sdcard.img#2:/"]);
    check("extern4 info sdcard.img#", &["sdcard.img#2"]);
    check("extern4 ls sdcard.img#2:/va", &["sdcard.img#2:/var/"]);
    check("extern4 ls disk.img --as a", &["ann"]);
    check("extern4 chgrp s", &[]);
    check("extern4 tune --label ", &[]);
    check("extern4 ls --js", &[]);
    check("extern4 sha", &[]);
    check("extern4 find disk.img:/ -na", &["-name"]);
    check(
        "extern4 find disk.img:/ -name x -print0 -exec",
        &["-exec", "-exec-in", "-executable"],
    );
    check(
        "extern4 find disk.img:/ -type ",
        &["b", "c", "d", "f", "l", "p", "s"],
    );
    check("extern4 find disk.img:/ -user a", &["ann"]);
    check(
        "extern4 find disk.img:/ -newer disk.img:/etc/h",
        &["disk.img:/etc/hostname"],
    );
    check("extern4 mount -o ro,noat", &["ro,noatime"]);
    check("extern4 mount -o commi", &["commit="]);
    check("extern4 mount -o data=o", &["data=ordered"]);
    check("extern4 tune disk.img -O ^has", &["^has_journal"]);
    check("extern4 tune disk.img -O dir_index,^verity", &[]);
    check("extern4 mkfs -O ^64bit,inl", &["^64bit,inline_data"]);
    check("extern4 mkfs -O biga", &[]);
    // The volume may stand behind the cursor.
    let args = [
        "completions",
        "--candidates",
        "2",
        "bash",
        "--",
        "extern4",
        "chgrp",
        "s",
        "disk.img:/etc",
    ];
    assert_eq!(said(&image, &args), "staff\n");
}

/// Types lines into a shell, with tabs in them, and waits for what the completed commands print.
fn types(mut shell: Terminal) {
    let mut shows = |keys: &str, text: &str| {
        shell.send(&format!("{keys}\r"));
        shell.wait_for(text);
        shell.wait_for("ready> ");
    };
    shows("extern4 cat disk.img:/etc/hostn\t", "tiny");
    shows("extern4 cat dis\tetc/hostn\t", "tiny");
    shows("extern4 cat sdcard.i\tetc/hostn\t", "tiny");
    shows("extern4 ls disk.img:/my\t", "inner");
    shows("extern4 cat disk.img:/home/ann/n\t--as an\t", "buy milk");
    // An option, which clap's script completes.
    shows("extern4 cat --show-n\tdisk.img:/etc/hostname", "tiny");
    shows(
        "extern4 find disk.img:/ -type f -na\thostname",
        "disk.img:/etc/hostname",
    );
    shows(
        "extern4 tune -O large_d\tdisk.img && extern4 info disk.img | grep -o large_dir",
        "large_dir",
    );
    assert!(shell.end().success());
}

#[test]
fn bash_completes_paths_in_volumes() {
    if !can_run(&[Need::Tool("bash")]) {
        return;
    }
    let image = volumes();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    let mut shell = Terminal::with(prepared(bash, &image));
    shell.wait_for("ready> ");
    shell.send("source <(extern4 completions bash)\r");
    shell.wait_for("\r\n");
    shell.wait_for("ready> ");
    types(shell);
}

#[test]
fn zsh_completes_paths_in_volumes() {
    if !can_run(&[Need::Tool("zsh")]) {
        return;
    }
    let image = volumes();
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-i"]);
    let mut shell = Terminal::with(prepared(zsh, &image));
    shell.wait_for("ready> ");
    shell.send("autoload -Uz compinit; compinit -D -u; source <(extern4 completions zsh)\r");
    shell.wait_for("ready> ");
    types(shell);
}

/// The script as a file that zsh finds and loads with the first completion, and calls from then on.
#[test]
fn zsh_completes_from_a_file_more_than_once() {
    if !can_run(&[Need::Tool("zsh")]) {
        return;
    }
    let image = volumes();
    std::fs::create_dir(image.scratch().join("functions")).expect("a directory");
    let script = said(&image, &["completions", "zsh"]);
    std::fs::write(image.scratch().join("functions/_extern4"), script).expect("a file");
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-i"]);
    let mut shell = Terminal::with(prepared(zsh, &image));
    shell.wait_for("ready> ");
    shell.send("fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -D -u\r");
    shell.wait_for("\r\n");
    shell.wait_for("ready> ");
    types(shell);
}

#[test]
fn fish_completes_paths_in_volumes() {
    if !can_run(&[Need::Tool("fish")]) {
        return;
    }
    let image = volumes();
    std::fs::write(
        image.scratch().join("extern4.fish"),
        said(&image, &["completions", "fish"]),
    )
    .expect("a file");
    for (line, expected) in [
        ("extern4 cat disk.img:/etc/hostn", "disk.img:/etc/hostname"),
        ("extern4 cat sdcard.i", "sdcard.img#2:/"),
        ("extern4 cat disk.img:/etc/passwd --as an", "ann"),
        ("extern4 sha2", "sha256sum"),
        ("extern4 find disk.img:/ -na", "-name"),
        ("extern4 mount -o ro,noat", "ro,noatime"),
        ("extern4 mkfs x.img -O inl", "inline_data"),
    ] {
        let mut fish = Command::new("fish");
        fish.args([
            "--no-config",
            "-c",
            "source extern4.fish; complete -C $argv[1]",
            line,
        ]);
        let shown = ok(prepared(fish, &image).output().expect("fish runs"));
        let shown = String::from_utf8_lossy(&shown).into_owned();
        let words: Vec<_> = shown
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert!(words.contains(&expected), "{line}: {shown}");
    }
}
