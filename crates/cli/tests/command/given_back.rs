//! Paths that a command prints are read back by another one: with `--full-paths` from any output,
//! and lists that end in NUL without it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};

use crate::run::{extern4, failed, ok, tool};

/// Names that a shell, a terminal, a program or extern4 itself may take for something else.
const NAMES: &[&[u8]] = &[
    b"a",
    b"052",
    b"*",
    b"?",
    b"[a]",
    b"a*",
    b"new\nline",
    b"back\\slash",
    b"back\\\\slash",
    b"\\*",
    b"\\052",
    b" lead",
    b"trail ",
    b"two  spaces\ttab",
    b"\xff\xfe",
    b"cut\xc3",
    b"esc\x1b[31m\r",
    b"it's \"$HOME\" `x`;&|<>(){}!#~=",
    b"-n",
    "\u{fc}\u{202e}\u{3000}".as_bytes(),
];

fn fill(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir(root.join("d"))?;
    for name in NAMES {
        let path = root.join("d").join(OsStr::from_bytes(name));
        std::fs::write(&path, "x\n")?;
    }
    Ok(())
}

fn volume() -> Image {
    const SPEC: ImageSpec =
        ImageSpec::new("disk", 8 << 20, &["-t", "ext4"]).from_directory(&[fill]);
    SPEC.build()
}

/// Returns the inode numbers of the files, by their names.
fn inodes(image: &Image) -> BTreeMap<Vec<u8>, String> {
    let output = ok(extern4(
        image,
        [
            "find",
            "disk.img:/d",
            "-mindepth",
            "1",
            "-printf",
            "%i %f\\0",
        ],
    ));
    let files: BTreeMap<_, _> = parts(&output, 0)
        .into_iter()
        .map(|file| {
            let space = file.iter().position(|byte| *byte == b' ').expect("a space");
            (
                file[space + 1..].to_vec(),
                String::from_utf8_lossy(&file[..space]).into_owned(),
            )
        })
        .collect();
    assert_eq!(files.len(), NAMES.len());
    files
}

/// Returns the parts of an output that end in `end`.
fn parts(output: &[u8], end: u8) -> Vec<Vec<u8>> {
    output
        .split(|byte| *byte == end)
        .filter(|part| !part.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// Returns the text between the first `from` and the last `to`.
fn between(line: &[u8], from: &str, to: &str) -> Vec<u8> {
    let line = str::from_utf8(line).expect("text");
    let start = line.find(from).expect(from) + from.len();
    line.as_bytes()[start..line.len() - to.len()].to_vec()
}

/// Checks that paths are read back as all the files, each once.
#[track_caller]
fn check(image: &Image, what: &str, paths: Vec<Vec<u8>>) {
    let mut expected: Vec<String> = inodes(image).into_values().collect();
    expected.sort();
    let words = ["stat", "-c", "%i"].map(OsString::from).into_iter();
    let output = ok(extern4(
        image,
        words.chain(paths.into_iter().map(OsString::from_vec)),
    ));
    let mut found: Vec<String> = parts(&output, b'\n')
        .iter()
        .map(|ino| String::from_utf8_lossy(ino).into_owned())
        .collect();
    found.sort();
    assert_eq!(found, expected, "{what}");
}

/// The words of a command, whether the files are its operands, and the path in a line of output.
type Case<'a> = (&'a str, bool, &'a dyn Fn(&[u8]) -> Vec<u8>);

#[test]
fn full_paths_are_read_back() {
    let image = volume();
    let full = ok(extern4(
        &image,
        ["find", "--full-paths", "disk.img:/d", "-type", "f"],
    ));
    let operands: Vec<OsString> = parts(&full, b'\n')
        .into_iter()
        .map(OsString::from_vec)
        .collect();
    check(&image, "find", parts(&full, b'\n'));
    let cases: &[Case<'_>] = &[
        (
            "find disk.img:/d -type f --full-paths",
            false,
            &<[u8]>::to_vec,
        ),
        (
            "find --full-paths disk.img:/d -type f -printf %p\\n",
            false,
            &<[u8]>::to_vec,
        ),
        (
            "find --full-paths disk.img:/d -type f -ls",
            false,
            &|line| between(line, " disk.img", "").to_vec(),
        ),
        ("--full-paths ls disk.img:/d", false, &<[u8]>::to_vec),
        (
            "ls --full-paths -Q --color=never disk.img:/d",
            false,
            &<[u8]>::to_vec,
        ),
        ("ls --full-paths -d", true, &<[u8]>::to_vec),
        ("ls --full-paths -og", true, &|line| {
            between(line, " disk.img", "")
        }),
        ("tree --full-paths disk.img:/d", false, &|line| {
            between(line, "\u{2500}\u{2500} ", "")
        }),
        ("stat --full-paths -c %n", true, &<[u8]>::to_vec),
        ("stat --full-paths -c %N", true, &|line| {
            between(line, "'", "'")
        }),
        ("du --full-paths -a", true, &|line| between(line, "\t", "")),
        ("readlink --full-paths -f", true, &<[u8]>::to_vec),
        ("lsattr --full-paths", true, &|line| between(line, " ", "")),
        ("lsattr --full-paths disk.img:/d", false, &|line| {
            between(line, " ", "")
        }),
        ("grep --full-paths -l x", true, &<[u8]>::to_vec),
        ("grep --full-paths -r x disk.img:/d", false, &|line| {
            between(line, "", ":x")
        }),
        ("head --full-paths", true, &|line| {
            between(line, "==> ", " <==")
        }),
        ("tail --full-paths -v", true, &|line| {
            between(line, "==> ", " <==")
        }),
        ("sha256sum --full-paths", true, &|line| {
            between(line, "  ", "")
        }),
        ("sha256sum --full-paths --tag", true, &|line| {
            between(line, "SHA256 (", &format!(") = {}", "0".repeat(64)))
        }),
        ("getfacl --full-paths", true, &|line| {
            between(line, "# file: ", "")
        }),
        ("getfattr --full-paths -m - -d", true, &|line| {
            between(line, "# file: ", "")
        }),
        ("script --full-paths disk.img lines", false, &<[u8]>::to_vec),
    ];
    std::fs::write(image.scratch().join("lines"), "ls /d\n").expect("a file");
    let name = [
        OsStr::new("setfattr"),
        OsStr::new("-n"),
        OsStr::new("user.a"),
    ];
    ok(extern4(
        &image,
        name.into_iter()
            .chain(operands.iter().map(OsString::as_os_str)),
    ));
    for (line, takes_operands, path) in cases {
        let words = line.split(' ').map(OsString::from);
        let rest = if *takes_operands { &operands[..] } else { &[] };
        let output = ok(extern4(&image, words.chain(rest.iter().cloned())));
        let is_clean = |byte: &u8| *byte >= b' ' && *byte != 0x7f || matches!(byte, b'\n' | b'\t');
        assert!(
            output.iter().all(is_clean),
            "{line}: {}",
            output.escape_ascii()
        );
        let lines = parts(&output, b'\n').into_iter().filter(|line| {
            let line = String::from_utf8_lossy(line);
            line.contains("disk.img:/d/")
        });
        let paths = lines.map(|line| path(&line)).map(|path| {
            if path.starts_with(b":") {
                [b"disk.img", &path[..]].concat()
            } else {
                path
            }
        });
        check(&image, line, paths.collect());
    }
    for operand in &operands {
        let words = [
            OsStr::new("cmp"),
            OsStr::new("--full-paths"),
            operand,
            OsStr::new("disk.img:/big"),
        ];
        ok(extern4(&image, ["put", "disk.img:/big"]));
        let said = failed(&extern4(&image, words), 1);
        assert!(said.contains("EOF on disk.img:/big"), "{said}");
    }
}

#[test]
fn full_paths_are_one_word_each_for_a_shell() {
    let image = volume();
    let line = |text: &str| {
        let text = text.replace("$X", env!("CARGO_BIN_EXE_extern4"));
        ok(std::process::Command::new("sh")
            .current_dir(image.scratch())
            .args(["-c", &text])
            .output()
            .expect("sh"))
    };
    let mut expected: Vec<String> = inodes(&image).into_values().collect();
    expected.sort();
    std::fs::write(image.scratch().join("a"), "").expect("a file");
    for text in [
        "$X stat -c %i $($X find --full-paths disk.img:/d -type f)",
        "$X find --full-paths disk.img:/d -type f | xargs -d '\\n' $X stat -c %i",
        "$X find --full-paths disk.img:/d -type f | while read -r f; do $X stat -c %i $f; done",
        "$X find --full-paths disk.img:/d -type f -print0 | xargs -0 $X stat -c %i",
        "$X find disk.img:/d -type f -print0 | xargs -0 $X stat -c %i",
        "$X grep -rlZ x disk.img:/d | xargs -0 $X stat -c %i",
        "$X find disk.img:/d -type f -exec sh -c '$X stat -c %i \"$1\"' _ {} \\;",
        "$X find disk.img:/d -type f -exec $X stat -c %i {} +",
    ] {
        let output = line(text);
        let mut found: Vec<_> = parts(&output, b'\n')
            .iter()
            .map(|ino| String::from_utf8_lossy(ino).into_owned())
            .collect();
        found.sort();
        assert_eq!(found, expected, "{text}");
    }
    line(
        "$X sha256sum --full-paths $($X ls --full-paths disk.img:/d) > sums; $X sha256sum -c --quiet sums",
    );
    // A name that is a pattern stands for no other file.
    line("$X find disk.img:/d -name '\\*' -print0 | xargs -0 $X rm");
    let left = ok(extern4(
        &image,
        ["find", "disk.img:/d", "-type", "f", "-printf", "%i\\n"],
    ));
    assert_eq!(parts(&left, b'\n').len(), NAMES.len() - 1);
}

#[test]
fn files_that_differ_are_read_back() {
    let image = volume();
    for (other, mark) in [
        ("empty.img", "Only in disk.img:/d: "),
        ("other.img", "Files "),
    ] {
        std::fs::copy(&image.path, image.scratch().join(other)).expect("a copy");
        let line = match other {
            "empty.img" => "echo 'rm -r /d; mkdir /d' | $X shell empty.img",
            _ => "$X chmod -R 600 other.img:/d",
        };
        let line = line.replace("$X", env!("CARGO_BIN_EXE_extern4"));
        tool(image.scratch(), "sh", ["-c", &line]);
        let output = extern4(
            &image,
            [
                "diff",
                "--full-paths",
                "disk.img:/d",
                &format!("{other}:/d"),
            ],
        );
        assert_eq!(output.status.code(), Some(1));
        assert!(
            output
                .stdout
                .iter()
                .all(|byte| *byte >= b' ' || *byte == b'\n')
        );
        let lines = parts(&output.stdout, b'\n').into_iter().filter(|line| {
            let line = String::from_utf8_lossy(line);
            line.starts_with(mark) && line.contains("disk.img:/d/")
        });
        let paths = lines.map(|line| {
            let path = between(&line, mark, "");
            path.split(|byte| *byte == b' ')
                .next()
                .expect("a word")
                .to_vec()
        });
        check(&image, other, paths.collect());
    }
}

#[test]
fn odd_images_are_read_back() {
    let image = volume();
    for name in ["my disk*.img", "-x.img", "\\052.img"] {
        std::fs::copy(&image.path, image.scratch().join(name)).expect("a copy");
        let place = format!("./{name}:/d/a");
        let full = ok(extern4(&image, ["ls", "--full-paths", "-d", &place]));
        let full = String::from_utf8(full).expect("text");
        assert!(!full.contains([' ', '*']), "{full}");
        assert_eq!(
            ok(extern4(&image, ["cat", full.trim_end()])),
            b"x\n",
            "{full}"
        );
    }
}

#[test]
fn a_command_that_prints_no_paths_refuses_the_option() {
    let image = volume();
    for line in [
        &["cat", "disk.img:/d/a"][..],
        &["rm", "disk.img:/d/a"],
        &["info", "disk.img"],
    ] {
        let said = failed(&extern4(&image, ["--full-paths"].iter().chain(line)), 2);
        assert_eq!(
            said,
            format!(
                "extern4: {}: --full-paths has no effect on {}\n",
                line[0], line[0]
            )
        );
    }
}

#[test]
fn the_owner_of_a_block_is_read_back() {
    let image = volume();
    let files = inodes(&image);
    let blocks = |ino: &str| {
        let output = tool(
            image.scratch(),
            "debugfs",
            ["-R", &format!("blocks <{ino}>"), "disk.img"],
        );
        String::from_utf8_lossy(&output).trim().to_owned()
    };
    let owner = |ino: &String| {
        let line = ok(extern4(
            &image,
            ["block", "--full-paths", "disk.img", &blocks(ino)],
        ));
        between(line.trim_ascii_end(), &format!("of inode {ino}, "), "")
    };
    check(&image, "block", files.values().map(owner).collect());
}

#[test]
fn paths_match_as_printed_and_in_the_volume() {
    let image = volume();
    let count = |expression: &str| {
        let words = ["find", "--full-paths", "disk.img:/"]
            .into_iter()
            .chain(expression.split(' '));
        parts(&ok(extern4(&image, words)), b'\n').len()
    };
    let all = count("-print");
    let below = count("-path /d -o -path /d/*");
    assert!(below > NAMES.len() && all > below);
    for expression in [
        "-path disk.img:/d -o -path disk.img:/d/*",
        "-wholename /d -o -ipath DISK.img:/D/*",
    ] {
        assert_eq!(count(expression), below, "{expression}");
    }
    for expression in [
        "-path disk.img:/d -prune -o -print",
        "-path /d -prune -o -print",
        "! -path /d ! -path /d/*",
        "! -path disk.img:/d ! -path disk.img:/d/*",
    ] {
        assert_eq!(count(expression), all - below, "{expression}");
    }
    // Wildcards alone do not match the name of the image.
    for expression in ["-path *disk*", "-path d*", "-regex .*img.*"] {
        assert_eq!(count(expression), 0, "{expression}");
    }
    // A dot matches characters, and two names have other bytes.
    for expression in [
        "-regex disk.img:/d(/.*)?",
        "-regex /d(/.*)?",
        "-iregex DISK.img:/D(/.*)?",
    ] {
        assert_eq!(
            count(&format!("-regextype posix-extended {expression}")),
            below - 2,
            "{expression}"
        );
    }
}
