//! Output to a terminal.

use extern4_testkit::tools::find;

use crate::run::{everything, machine, tool};

/// Returns the output of the command on a terminal of 80 columns; `None` if this machine cannot
/// make one.
pub(crate) fn on_terminal(dir: &std::path::Path, args: &str) -> Option<Vec<u8>> {
    find("script")?;
    let line = format!("stty cols 80; '{}' {args}", env!("CARGO_BIN_EXE_extern4"));
    let output = tool(dir, "script", ["-q", "-e", "-c", &line, "/dev/null"]);
    Some(output.into_iter().filter(|byte| *byte != b'\r').collect())
}

#[test]
fn no_control_character_of_a_name_gets_through() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    for args in ["ls -R", "ls -lR", "find", "tree -a", "du -a", "ls -R --color=never"] {
        let (command, flags) = args.split_once(' ').unwrap_or((args, ""));
        let Some(output) = on_terminal(image.scratch(), &format!("{command} {flags} disk.img")) else {
            return;
        };
        let text = String::from_utf8(output).expect("valid UTF-8");
        let plain = text.replace("\x1b[0m", "");
        let mut rest = plain.as_str();
        let mut shown = String::new();
        while let Some((before, after)) = rest.split_once("\x1b[") {
            shown.push_str(before);
            // A colour of ours is digits and semicolons up to an m.
            let end = after.find(|c: char| !c.is_ascii_digit() && c != ';').expect("an end");
            assert!(after[end..].starts_with('m'), "{args}: {after:?}");
            rest = &after[end + 1..];
        }
        shown.push_str(rest);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{args}: {shown:?}");
    }
}

#[test]
fn names_stand_in_columns() {
    let image = machine();
    let Some(output) = on_terminal(image.scratch(), "ls --color=never disk.img") else { return };
    assert_eq!(String::from_utf8_lossy(&output), "bin  etc  home  lost+found  root  var\n");
    let Some(output) = on_terminal(image.scratch(), "ls disk.img:/bin") else { return };
    assert_eq!(String::from_utf8_lossy(&output), "\x1b[01;32mtrue\x1b[0m\n");
}
