//! Output to a terminal.

use extern4_testkit::tools::find;

use crate::run::{everything, machine, tool};

/// Returns the output of the command on a terminal of 80 columns; `None` if this machine cannot
/// make one.
pub(crate) fn on_terminal(dir: &std::path::Path, args: &str) -> Option<Vec<u8>> {
    line_on_terminal(dir, &format!("'{}' {args}", env!("CARGO_BIN_EXE_extern4")))
}

/// Returns the output of a line of the shell on such a terminal.
pub(crate) fn line_on_terminal(dir: &std::path::Path, line: &str) -> Option<Vec<u8>> {
    find("script")?;
    let line = format!("stty cols 80; {line}");
    let output = tool(dir, "script", ["-q", "-e", "-c", &line, "/dev/null"]);
    Some(output.into_iter().filter(|byte| *byte != b'\r').collect())
}

/// Asserts that all control characters belong to colours.
#[track_caller]
fn shows_no_control_characters(args: &str, text: &str) {
    let mut rest = text;
    let mut shown = String::new();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        shown.push_str(before);
        // A colour of ours is digits and semicolons up to an m, or K that clears the line.
        let end = after
            .find(|c: char| !c.is_ascii_digit() && c != ';')
            .expect("an end");
        let is_clear = end == 0 && after.starts_with('K');
        assert!(
            is_clear || after[end..].starts_with('m'),
            "{args}: {after:?}"
        );
        rest = &after[end + 1..];
    }
    shown.push_str(rest);
    // The names have these numbers in sequences of theirs.
    let evil = ["\x1b[31m", "\x1b[7m"];
    assert!(
        !evil.iter().any(|sequence| text.contains(sequence)),
        "{args}: {text:?}"
    );
    assert!(
        !shown
            .chars()
            .any(|c| c.is_control() && c != '\n' && c != '\t'),
        "{args}: {shown:?}"
    );
}

#[test]
fn no_control_character_of_a_name_gets_through() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    for args in [
        "ls -R",
        "ls -lR",
        "find",
        "tree -a",
        "du -a",
        "ls -R --color=never",
    ] {
        let (command, flags) = args.split_once(' ').unwrap_or((args, ""));
        let Some(output) = on_terminal(image.scratch(), &format!("{command} {flags} disk.img"))
        else {
            return;
        };
        let text = String::from_utf8(output).expect("valid UTF-8");
        shows_no_control_characters(args, &text);
    }
}

#[test]
fn names_stand_in_columns() {
    let image = machine();
    let Some(output) = on_terminal(image.scratch(), "ls --color=never disk.img") else {
        return;
    };
    assert_eq!(
        String::from_utf8_lossy(&output),
        "bin  etc  home\tlost+found  root  var\n"
    );
    let Some(output) = on_terminal(image.scratch(), "ls disk.img:/bin") else {
        return;
    };
    assert_eq!(
        String::from_utf8_lossy(&output),
        "\x1b[0m\x1b[01;32mtrue\x1b[0m\n"
    );
}

/// Each command that prints names, on a volume with hostile ones. No name controls the terminal.
#[test]
fn no_command_lets_a_hostile_name_control_the_terminal() {
    let image = crate::json::hostile();
    let scratch = image.scratch();
    std::fs::copy(&image.path, scratch.join("evil\u{1b}[7m\n.img")).expect("a copy");
    for dir in ["empty", "out"] {
        std::fs::create_dir(scratch.join(dir)).expect("a directory");
    }
    for line in [
        "info disk.img",
        "info evil*",
        "check --progress=never disk.img",
        "df disk.img evil*",
        "ls disk.img",
        "ls -lR disk.img",
        "ls -1 --color=always disk.img",
        "ls -m disk.img",
        "ls -x -b disk.img",
        "ls -N disk.img",
        "tree -a disk.img",
        "tree --color=always disk.img",
        "stat 'disk.img:/?*'",
        "stat -c %n,%N 'disk.img:/?*/?*'",
        "stat -t 'disk.img:/?*'",
        "stat -f 'disk.img:/?*'",
        "find disk.img",
        "find disk.img -ls",
        "find disk.img -printf '%u %g\\n'",
        "stat -c '%U %G' 'disk.img:/?*'",
        "find disk.img -printf '%p %f %h %l %P\\n'",
        "find disk.img -exec-in stat -c %n {} ';'",
        "du -a disk.img evil*",
        "head -v -n0 'disk.img:/?*/[!lpg]*'",
        "tail -v -n1 'disk.img:/?*/[!lpg]*'",
        "grep -r --exclude=passwd --exclude=group a disk.img:/",
        "grep -r --color=always --exclude=passwd --exclude=group -n a disk.img:/",
        "grep -rc a disk.img:/",
        "grep -rl a disk.img:/",
        "cmp 'disk.img:/escape*/esc*' disk.img:/gone",
        "sha256sum 'disk.img:/?*/[!lpg]*'",
        "sha256sum --tag 'disk.img:/?*/[!lpg]*'",
        "readlink 'disk.img:/?*/link'",
        "readlink -f 'disk.img:/?*/link'",
        "lsattr -R disk.img:/",
        "lsattr -Rl disk.img:/",
        "getfacl -R disk.img:/",
        "getfacl -tR disk.img:/",
        "getfattr -Rdm- disk.img:/",
        "getfattr -Rdm- -e text disk.img:/",
        "stats disk.img:/",
        "inode 'disk.img:/?*'",
        "block disk.img 0 1 2 20 40 60 80 100 120 140",
        "diff disk.img:/ empty",
        "diff empty disk.img:/",
        "diff -q 'disk.img:/escape*/esc*' disk.img:/etc/passwd",
        "recover disk.img evil*",
        "cp -rv disk.img:/ out 2> /dev/null",
        "cp -rv out disk.img:/copy 2> /dev/null",
        "mkdir -v 'disk.img:/escape*/made'",
        "chmod -Rv 700 disk.img:/",
        "chown -Rv 1:1 disk.img:/",
        "chgrp -Rv 2 disk.img:/",
        "chattr -RV +d disk.img:/",
        "ln -sv x 'disk.img:/escape*/new'",
        "mv -v 'disk.img:/escape*/new' 'disk.img:/escape*/newer'",
        "rm -rv --progress=never 'disk.img:/copy/?*'",
        "rmdir -v 'disk.img:/escape*/made'",
        "ls 'disk.img:/escape*/gone' 'disk.img:/line*/gone'",
        "cat 'disk.img:/?*'",
        "rm --progress=never 'disk.img:/?*'",
    ] {
        let Some(output) = on_terminal(scratch, &format!("{line} || true")) else {
            return;
        };
        let text = String::from_utf8(output).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(!text.is_empty(), "{line}");
        shows_no_control_characters(line, &text);
    }
}
