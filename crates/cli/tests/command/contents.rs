//! The commands that read contents, compared with GNU's: `head`, `tail`, `grep`, `cmp`, `sha256sum`
//! and `cat`.
//!
//! A directory of the host and a volume hold the same files. In a command line `@name` is a file:
//! `name` for the tool, `disk.img:/name` for extern4.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use extern4_testkit::image::{Image, ImageSpec};

use crate::run::{command, extern4, failed, ok};

fn fill(root: &Path) -> std::io::Result<()> {
    let lines: String = (1..=40_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    std::fs::create_dir_all(root.join("d/sub"))?;
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("short", b"abc\n"),
        ("other", b"abd\nx"),
        ("unended", b"one\ntwo\nthree"),
        (
            "words",
            b"The cat\nconcatenate\ncat_fish\nCAT\na.b\na+b\n\nfoo(bar)\n  cat  cat\nend\n",
        ),
        ("lines", lines.as_bytes()),
        ("binary", b"text\nwith\0NUL\nlast\n"),
        ("odd", b"a\tb\x01\x7f\r\n\xff\x80\xc3\xa9\n\n\n\nx\n\n"),
        ("zeros", b"one\0two\0three\0"),
        ("d/one.txt", b"cat\n"),
        ("d/two.c", b"dog\ncat\n"),
        ("d/sub/three.txt", b"nothing\n"),
        ("d/sub/four.c", b"cat cat\n"),
    ] {
        std::fs::write(root.join(name), bytes)?;
    }
    Ok(())
}

/// The volume, and the directory `files` with the same files next to it.
fn volume() -> Image {
    const SPEC: ImageSpec =
        ImageSpec::new("disk", 8 << 20, &["-t", "ext4"]).from_directory(&[fill]);
    let image = SPEC.build();
    let files = files(&image);
    std::fs::create_dir(&files)
        .and_then(|()| fill(&files))
        .expect("files");
    image
}

fn files(image: &Image) -> PathBuf {
    image.scratch().join("files")
}

/// Runs a tool with this standard input.
fn run(mut tool: Command, input: &[u8]) -> Output {
    tool.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    let piped = tool
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it runs");
    // A tool that ends early reads no input.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("it ends")
}

/// Asserts that both print the same and end with the same code. Messages need only both be there.
fn same(image: &Image, line: &str) {
    let words: Vec<_> = line
        .split(' ')
        .map(|word| word.replace("\\s", " "))
        .collect();
    let input = b"from\nstandard input\ncat\n";
    let mut ours = command();
    ours.current_dir(image.scratch())
        .args(words.iter().map(|word| word.replace('@', "disk.img:/")));
    let ours = run(ours, input);
    let mut theirs = Command::new(&words[0]);
    theirs
        .current_dir(files(image))
        .args(words[1..].iter().map(|word| word.replace('@', "")));
    let theirs = run(theirs, input);
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\n", "\n");
    let shown = text(&ours.stdout).replace("disk.img:/", "");
    let expected = text(&theirs.stdout);
    let first = shown
        .lines()
        .zip(expected.lines())
        .find(|(ours, theirs)| ours != theirs);
    assert!(
        shown == expected,
        "{line}: {first:?}\n{}",
        text(&ours.stderr)
    );
    assert_eq!(
        ours.status.code(),
        theirs.status.code(),
        "{line}: {}",
        text(&ours.stderr)
    );
    assert_eq!(
        ours.stderr.is_empty(),
        theirs.stderr.is_empty(),
        "{line}: {}",
        text(&ours.stderr)
    );
}

#[test]
fn head_and_tail_are_those_of_gnu() {
    let image = volume();
    for tool in ["head", "tail"] {
        for options in [
            "",
            " -n 3",
            " -n 0",
            " -c 5",
            " -c 0",
            " -n 20000",
            " -c 300000",
            " -3",
            " -q",
            " -v",
            " -z",
            " -n 2 -z",
            " -c 1K",
            " -n 1k",
            " -v -n 1",
            " --lines=2",
            " --bytes=7",
            " -qn1",
            " --verbose",
            " --quiet",
            " --silent",
            " -c 2b",
            " -n 2 -c 3",
            " -c 3 -n 2",
            " -n 40000",
            " -n 50000",
        ] {
            same(&image, &format!("{tool}{options} @lines"));
            // GNU's tail takes the old form for one file only.
            if (tool, options) != ("tail", " -3") {
                same(&image, &format!("{tool}{options} @unended @empty - @zeros"));
            }
            same(&image, &format!("{tool}{options}"));
        }
    }
    for options in [
        "-n -1",
        "-n -0",
        "-c -3",
        "-n -39990",
        "-c -1M",
        "-n -100000",
    ] {
        same(&image, &format!("head {options} @lines @unended @empty"));
        same(&image, &format!("head {options} -"));
    }
    for options in [
        "-n +1",
        "-n +0",
        "-n +39990",
        "-c +1",
        "-c +10",
        "-c +1M",
        "-n +50000",
        "-n -2",
    ] {
        same(&image, &format!("tail {options} @lines @unended @empty"));
        same(&image, &format!("tail {options} -"));
    }
    for line in ["head @gone @short", "tail @gone @short"] {
        same(&image, line);
    }
}

#[test]
fn grep_is_that_of_gnu() {
    let image = volume();
    for line in [
        "cat @words",
        "-i cat @words",
        "-n cat @words",
        "-v cat @words",
        "-c cat @words @short",
        "-l cat @words @short",
        "-L cat @words @short",
        "-w cat @words",
        "-x CAT @words",
        "-F a.b @words",
        "-F a+b @words",
        "a.b @words",
        "-E a+b @words",
        "a\\+b @words",
        "-E (cat|end) @words",
        "cat\\|end @words",
        "-o cat @words",
        "-on cat @words",
        "-ob cat @words",
        "-b cat @words",
        "-q cat @words",
        "-q nothing @words",
        "nothing @words",
        "-H cat @words",
        "-h cat @words @unended",
        "cat @words @unended -",
        "-e cat -e end @words",
        "-e cat @words @short",
        "-m 1 cat @words",
        "-c -m 1 cat @words",
        "-A 1 cat @words",
        "-B 1 cat @words",
        "-C 1 end @words @short",
        "-n -C 1 CAT @words",
        "-A1 -m1 cat @words",
        "^$ @words",
        "-c ^$ @words",
        "-E ^(The|end) @words",
        "foo(bar) @words",
        "-E foo\\(bar\\) @words",
        "[[:upper:]] @words",
        "-E [[:upper:]]{3} @words",
        "[A-C]\\{2\\} @words",
        "cat$ @words",
        "\\bcat @words",
        "-E \\<cat\\> @words",
        "-vc x @words",
        "-s cat @gone @words",
        "cat @gone",
        "cat @gone @words",
        "-z two @zeros",
        "-a NUL @binary",
        "-c NUL @binary",
        "-c text @binary",
        "NUL @binary",
        "-l NUL @binary",
        "-I NUL @binary",
        "-Zl cat @words",
        "-ZH cat @words",
        "-iw CAT @words",
        "-E a|b| @short",
        "-F  @words",
        "-e  @empty",
        "-x -F end @words",
        "--label=x -H cat",
        "-n two @unended",
        "-v one @unended",
        "--count cat @words",
        "--line-number cat @words",
        "-y cat @words",
        "--no-filename cat @words @short",
        "-ho cat @words @short",
        "-E x*y? @short",
        "-o x* @short",
        "é @odd",
        "-c . @odd",
        "-f files_of_patterns @words",
        "-A1 -n cat @words @d/two.c @d/one.txt",
        "-C0 cat @words @d/one.txt",
        "-1 end @words @short",
        "-n2 foo @words",
        "-12 foo @words",
        "-2 -A1 foo @words",
        "-P -2 foo @words",
        "-P (\\w)\\1 @words @lines",
        "-P c(?=at_) @words",
        "-Po cat(?=enate) @words",
        "-P (?<!con)cat$ @words",
        "-Pi ^cat$ @words",
        "-Pw cat @words",
        "-Px \\w+ @words",
        "-P \\Qa.b\\E @words",
        "-Pc ^\\d+$ @lines",
        "-P (a @words",
        "-P -e a -e b @words",
        "-E (.)\\1 @words @short",
        "\\(o\\)\\1 @words",
        "-E -e (.)\\1 -e (a)b @words @short",
        "-Eo (.)\\1 @words",
        "-Ei (c)at.*\\1 @words",
        "(a)\\1 @words",
        "-E a\\1 @words",
        "-Eo (c|ca|cat)(enate)? @words",
        "-Eow c[at]* @words",
        "-A1 --group-separator=== cat @words",
        "-A1 --no-group-separator cat @words",
        "-T cat @words",
        "-nT cat @words",
        "-HnbT cat @words @short",
        "-nT cat -",
        "--binary-files=text NUL @binary",
        "--binary-files=without-match NUL @binary",
        "--binary-files=binary NUL @binary",
        "--line-buffered cat @words",
        "-U cat @words",
        "-d skip cat @words @d",
        "-D skip cat @words",
        "--exclude=w* cat @words @short",
        "--exclude-from=files_of_globs cat @words @unended",
    ] {
        for (name, text) in [
            ("files_of_patterns", "cat\nend\n"),
            ("files_of_globs", "w*\n\nq\n"),
        ] {
            std::fs::write(image.scratch().join(name), text).expect("a file");
            std::fs::write(files(&image).join(name), text).expect("a file");
        }

        same(&image, &format!("grep {line}"));
        same(&image, &format!("grep --color=always {line}"));
    }
}

#[test]
fn differences_have_the_colours_of_gnu() {
    let image = volume();
    let coloured = |mut tool: Command, files: [&str; 2]| {
        let output = tool
            .args(["--color=always"])
            .args(files)
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, hunks) = text.split_once("@@").expect("a hunk");
        (
            head.matches("\x1b[1m").count(),
            head.matches("\x1b[0m\n").count(),
            hunks.to_owned(),
        )
    };
    let mut ours = command();
    let mut theirs = Command::new("diff");
    ours.current_dir(image.scratch()).arg("diff");
    theirs.current_dir(files(&image)).arg("-u");
    let ours = coloured(ours, ["disk.img:/short", "disk.img:/other"]);
    assert_eq!(ours, coloured(theirs, ["short", "other"]));
    assert_eq!((ours.0, ours.1), (2, 2));
}

#[test]
fn grep_goes_down_as_gnus_does() {
    let image = volume();
    let away = files(&image).join("away");
    std::fs::create_dir(&away)
        .and_then(|()| std::fs::write(away.join("far.c"), "a far cat\n"))
        .expect("a file");
    ok(extern4(&image, ["cp", "-r", "files/away", "disk.img:/"]));
    for (target, link) in [
        ("../words", "d/words.link"),
        ("../away", "d/away"),
        ("..", "d/sub/back"),
    ] {
        std::os::unix::fs::symlink(target, files(&image).join(link)).expect("a link");
        ok(extern4(
            &image,
            ["ln", "-s", target, &format!("disk.img:/{link}")],
        ));
    }
    for options in [
        "-r",
        "-rn",
        "-rl",
        "-rL",
        "-rc",
        "-rh",
        "-r --include=*.c",
        "-r --exclude=*.c",
        "-r --exclude-dir=sub",
        "-r --include=*.c --exclude=t*",
        "-R",
        "-Rl --include=*.c",
        "-d recurse",
    ] {
        let mut theirs = Command::new("grep");
        let words: Vec<_> = options.split(' ').collect();
        theirs
            .current_dir(files(&image))
            .args(&words)
            .args(["cat", "d"]);
        let lines = |output: Vec<u8>| crate::run::sorted(&output);
        let theirs = lines(run(theirs, b"").stdout);
        let ours = extern4(
            &image,
            [&["grep"], &words[..], &["cat", "disk.img:/d"]].concat(),
        );
        assert_eq!(
            ours.stderr.is_empty(),
            options != "-R" && !options.starts_with("-Rl"),
            "{ours:?}"
        );
        let ours = ours.stdout;
        let ours = lines(
            String::from_utf8(ours)
                .expect("text")
                .replace("disk.img:/", "")
                .into_bytes(),
        );
        assert_eq!(ours, theirs, "{options}");
    }
}

#[test]
fn grep_refuses_with_a_reason() {
    let image = volume();
    std::fs::write(image.scratch().join("slow"), "x".repeat(100)).expect("a file");
    ok(extern4(&image, ["cp", "slow", "disk.img:/slow"]));
    for (args, says) in [
        (&["grep"][..], "a pattern is missing"),
        (&["grep", "-r", "x"], "-r takes the directories to search"),
        (
            &["grep", r"\(a\1\)", "disk.img:/short"],
            "no group ends before",
        ),
        (
            &["grep", "-P", "(?:(x+)x+)+\\1y", "disk.img:/slow"],
            "takes too many steps",
        ),
        (&["grep", "[", "disk.img:/short"], "lacks a ]"),
        (
            &["grep", "-f", "gone", "disk.img:/short"],
            "'gone': No such file or directory",
        ),
    ] {
        let errors = failed(&extern4(&image, args), 2);
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
}

#[test]
fn cmp_is_that_of_gnu() {
    let image = volume();
    for line in [
        "@short @short",
        "@short @other",
        "@short @empty",
        "@empty @short",
        "@empty @empty",
        "@unended @short",
        "-l @short @other",
        "-b @short @other",
        "-lb @short @other",
        "-s @short @other",
        "-s @short @short",
        "-s @short @empty",
        "--quiet @short @other",
        "-n 2 @short @other",
        "-n 3 @short @other",
        "-i 2 @short @other",
        "-i 1:2 @short @other",
        "@short @other 2 2",
        "@short @other 2",
        "@lines @lines",
        "-i 1 @lines @lines",
        "-l @odd @words",
        "-lb @odd @words",
        "@short -",
        "- @short",
        "@short",
        "-l @lines @words",
        "@gone @short",
        "-n 1K @lines @lines",
        "--bytes=3 @short @other",
        "--ignore-initial=2 @short @other",
        "-b @odd @short",
    ] {
        same(&image, &format!("cmp {line}"));
    }
    // A file of the host, next to one of the volume.
    ok(extern4(&image, ["cmp", "disk.img:/lines", "files/lines"]));
    let output = extern4(&image, ["cmp", "disk.img:/short", "files/other"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        output.stdout,
        b"disk.img:/short files/other differ: byte 3, line 1\n"
    );
    let output = extern4(&image, ["cmp", "disk.img:/short", "files/empty"]);
    assert_eq!(
        failed(&output, 1),
        "extern4: cmp: EOF on files/empty which is empty\n"
    );
}

#[test]
fn sha256sum_is_that_of_gnu() {
    let image = volume();
    for line in [
        "@lines",
        "@lines @empty -",
        "-b @lines",
        "-t @lines",
        "--tag @lines @empty",
        "-z @lines @short",
        "@gone @lines",
        "",
        "--binary @short",
        "-b -t @short",
        "--tag -z @short",
    ] {
        same(&image, format!("sha256sum {line}").trim_end());
    }
    // The output is input: of this command, and after a copy of GNU's.
    let sums = ok(extern4(
        &image,
        [
            "sha256sum",
            "disk.img:/lines",
            "disk.img:/empty",
            "disk.img:/odd",
        ],
    ));
    std::fs::write(image.scratch().join("SUMS"), &sums).expect("a file");
    let checked = ok(extern4(&image, ["sha256sum", "-c", "SUMS"]));
    assert_eq!(
        checked,
        b"disk.img:/lines: OK\ndisk.img:/empty: OK\ndisk.img:/odd: OK\n"
    );
    let theirs = String::from_utf8(sums)
        .expect("text")
        .replace("disk.img:/", "");
    std::fs::write(files(&image).join("SUMS"), theirs.clone() + "nonsense\n").expect("a file");
    std::fs::write(
        image.scratch().join("BAD"),
        theirs.replace("  ", "  disk.img:/").replacen('a', "b", 1)
            + "nonsense\n"
            + &"0".repeat(64)
            + "  disk.img:/gone\n",
    )
    .expect("a file");
    std::fs::write(
        files(&image).join("BAD"),
        theirs.replacen('a', "b", 1) + "nonsense\n" + &"0".repeat(64) + "  gone\n",
    )
    .expect("a file");
    for options in [
        "",
        "--quiet",
        "--status",
        "--warn",
        "--strict",
        "--ignore-missing",
        "--ignore-missing --status --strict",
    ] {
        let run_in = |dir: &Path, mut tool: Command| {
            tool.current_dir(dir)
                .args(options.split(' ').filter(|word| !word.is_empty()))
                .args(["-c", "BAD"]);
            run(tool, b"")
        };
        let mut ours = command();
        ours.arg("sha256sum");
        let ours = run_in(image.scratch(), ours);
        let theirs = run_in(&files(&image), Command::new("sha256sum"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("disk.img:/", "");
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{options}");
        assert_eq!(ours.status.code(), theirs.status.code(), "{options}");
        assert_eq!(
            text(&ours.stderr).lines().count(),
            text(&theirs.stderr).lines().count(),
            "{options}"
        );
    }
}

#[test]
fn cat_is_that_of_gnu() {
    let image = volume();
    for options in [
        "",
        "-n",
        "-b",
        "-s",
        "-E",
        "-T",
        "-v",
        "-A",
        "-e",
        "-t",
        "-u",
        "-ns",
        "-bs",
        "-bE",
        "-nE",
        "-vE",
        "-sE",
        "-AT",
        "-vT",
        "--number",
        "--number-nonblank",
        "--squeeze-blank",
        "--show-ends",
        "--show-tabs",
        "--show-nonprinting",
        "--show-all",
        "-nb",
        "-bn",
        "-sbA",
    ] {
        for files in [
            "@odd @words @unended @odd @short",
            "@binary",
            "-",
            "",
            "@short - @empty",
            "@gone @short",
        ] {
            let line = format!("cat {options} {files}");
            same(
                &image,
                line.split(' ')
                    .filter(|word| !word.is_empty())
                    .collect::<Vec<_>>()
                    .join(" ")
                    .as_str(),
            );
        }
    }
}

#[test]
fn patterns_stand_for_the_files_that_match() {
    let image = volume();
    let check = |args: &[&str], expected: &str| {
        let output = ok(extern4(&image, args));
        assert_eq!(String::from_utf8_lossy(&output), expected, "{args:?}");
    };
    check(&["ls", "-d", "disk.img:/[os]*"], "/odd\n/other\n/short\n");
    check(&["ls", "disk.img:/d/*.txt"], "/d/one.txt\n");
    check(&["ls", "disk.img:d/*/f?ur.c"], "/d/sub/four.c\n");
    check(&["cat", "disk.img:/*/*.txt"], "cat\n");
    check(
        &["grep", "-c", "cat", "disk.img:/d/*.[ct]*"],
        "disk.img:/d/one.txt:1\ndisk.img:/d/two.c:1\n",
    );
    check(&["ls", "-d", "disk.img:/*/"], "/d/\n/lost+found/\n");
    // Where nothing matches it is a name, and a backslash takes the meaning away.
    for name in [
        "disk.img:/g*",
        "disk.img:/gx",
        "disk.img:/.gone",
        "disk.img:/[ab]",
    ] {
        ok(extern4(&image, ["touch", name]));
    }
    check(&["ls", "disk.img:/[ab]"], "/[ab]\n");
    ok(extern4(
        &image,
        [
            "touch",
            "disk.img:/a",
            "disk.img:/x\\*",
            "disk.img:/x\\041",
            "disk.img:/x\\x21",
        ],
    ));
    check(&["ls", "disk.img:/[ab]"], "/a\n");
    check(&["ls", "disk.img:/\\[ab]"], "/[ab]\n");
    check(&["ls", "disk.img:/g*"], "/g*\n/gx\n");
    check(&["ls", "disk.img:/g?"], "/g*\n/gx\n");
    for name in ["g\\*", "[fg]\\*", "g\\052", "g[*]"] {
        check(&["ls", &format!("disk.img:/{name}")], "/g*\n");
    }
    check(&["ls", "disk.img:/x*"], "/x!\n/x*\n/x\\x21\n");
    check(&["ls", "disk.img:/x\\x21"], "/x\\x21\n");
    check(&["ls", "disk.img:/.g*"], "/.gone\n");
    let errors = failed(&extern4(&image, ["cat", "disk.img:/no*"]), 1);
    assert_eq!(
        errors,
        "extern4: cat: 'disk.img:/no*': No such file or directory\n"
    );
    // Commands that change take them as well, and users only reach what they may.
    ok(extern4(&image, ["chmod", "600", "disk.img:/d"]));
    let errors = failed(
        &extern4(&image, ["ls", "--as", "5:5", "disk.img:/d/*.c"]),
        1,
    );
    assert!(errors.contains("ermission denied"), "{errors}");
    ok(extern4(
        &image,
        ["rm", "disk.img:/d/*.c", "disk.img:/d/sub/*"],
    ));
    check(
        &["ls", "-R", "disk.img:/d"],
        "/d:\none.txt\nsub\n\n/d/sub:\n",
    );
}

#[test]
fn options_that_are_missing_have_a_reason() {
    let image = volume();
    let errors = failed(&extern4(&image, ["tail", "-f", "disk.img:/short"]), 2);
    assert!(
        errors.starts_with("extern4: tail: -f: an open volume has no other writer"),
        "{errors}"
    );
    let errors = failed(
        &extern4(&image, ["tail", "--follow=name", "disk.img:/short"]),
        2,
    );
    assert!(
        errors.starts_with("extern4: tail: --follow: an open volume"),
        "{errors}"
    );
}
