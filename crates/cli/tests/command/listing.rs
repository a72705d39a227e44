//! `ls`, `tree`, `stat`, `find`, `du` and `df`, compared with GNU's.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools::{Need, can_run};

use crate::run::{assert_same, everything, extern4, machine, ok, sorted, sorted_by, tool};

/// Returns a listing of GNU `ls -R .` with headings like ours.
pub(crate) fn rooted(listing: &[u8]) -> Vec<u8> {
    let lines = listing.split(|byte| *byte == b'\n').map(|line| match line {
        b".:" => b"/:".to_vec(),
        [b'.', b'/', .., b':'] => line[1..].to_vec(),
        line => line.to_vec(),
    });
    lines.collect::<Vec<_>>().join(&b'\n')
}

#[test]
fn ls_is_that_of_gnu() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    for flags in [
        "-An", "-AnR", "-lAnR", "-lAniR", "-lAnRt", "-lAnRS", "-lAnRSr", "-lAnRh", "-1AR",
        "-lAnRtr",
    ] {
        let ours = ok(extern4(image, ["ls", flags, "disk.img"]));
        let theirs = rooted(&tool(&mount.path, "ls", [flags, "."]));
        assert!(
            ours == theirs,
            "{flags}\n{}",
            first_difference(&ours, &theirs)
        );
    }
}

pub(crate) fn first_difference(ours: &[u8], theirs: &[u8]) -> String {
    let lines = |text: &[u8]| {
        text.split(|byte| *byte == b'\n')
            .map(|line| line.escape_ascii().to_string())
            .collect()
    };
    let (ours, theirs): (Vec<String>, Vec<String>) = (lines(ours), lines(theirs));
    let at = ours
        .iter()
        .zip(&theirs)
        .position(|(a, b)| a != b)
        .unwrap_or(ours.len().min(theirs.len()));
    format!(
        "line {at}\nours:   {:?}\ntheirs: {:?}",
        ours.get(at),
        theirs.get(at)
    )
}

#[test]
fn ls_shows_dots_and_names_of_the_image() {
    let image = machine();
    let listing =
        String::from_utf8(ok(extern4(&image, ["ls", "-la", "disk.img:/home/ann"]))).expect("text");
    let lines: Vec<_> = listing.lines().collect();
    assert_eq!(lines.len(), 6, "{listing}");
    assert!(
        lines[1].starts_with("drwxr-xr-x 2 ann   ann") && lines[1].ends_with(" ."),
        "{listing}"
    );
    assert!(
        lines[2].contains(" root  root") && lines[2].ends_with(" .."),
        "{listing}"
    );
    assert!(
        lines[3].contains(" 12345 ") && lines[3].ends_with(" .profile"),
        "{listing}"
    );
    assert!(
        lines[4].starts_with("-rw-r----- 1 ann   ann ") && lines[4].ends_with(" notes.txt"),
        "{listing}"
    );
    assert!(
        lines[5].starts_with("lrwxrwxrwx") && lines[5].ends_with(" todo -> notes.txt"),
        "{listing}"
    );
    let check = |args: &[&str], expected: &str| {
        let output = ok(extern4(&image, args));
        assert_eq!(String::from_utf8_lossy(&output), expected, "{args:?}");
    };
    check(
        &["ls", "disk.img"],
        "bin\netc\nhome\nlost+found\nroot\nvar\n",
    );
    check(&["ls", "-d", "disk.img:/etc"], "/etc\n");
    check(
        &["ls", "disk.img:/etc/hostname", "disk.img:/etc/passwd"],
        "/etc/hostname\n/etc/passwd\n",
    );
    check(&["ls", "disk.img:/home/ann/todo"], "/home/ann/todo\n");
    check(
        &["ls", "disk.img:/home", "disk.img:/bin"],
        "/bin:\ntrue\n\n/home:\nann\n",
    );
    check(
        &["ls", "--color=always", "disk.img:/bin"],
        "\x1b[0m\x1b[01;32mtrue\x1b[0m\n",
    );
}

#[test]
fn several_volumes_are_told_apart() {
    let image = machine();
    std::fs::copy(&image.path, image.scratch().join("copy.img")).expect("a copy");
    let output = ok(extern4(
        &image,
        ["ls", "-d", "disk.img:/etc", "copy.img:/bin"],
    ));
    assert_eq!(
        String::from_utf8_lossy(&output),
        "copy.img:/bin\ndisk.img:/etc\n"
    );
    let output = ok(extern4(
        &image,
        ["find", "disk.img:/bin", "copy.img:/bin", "-type", "f"],
    ));
    assert_eq!(
        String::from_utf8_lossy(&output),
        "disk.img:/bin/true\ncopy.img:/bin/true\n"
    );
}

#[test]
fn find_is_that_of_gnu() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    let reference = std::fs::read_dir(&mount.path)
        .expect("a mount")
        .filter_map(Result::ok);
    let reference = reference
        .map(|entry| entry.file_name())
        .filter(|name| name.as_bytes() != b"lost+found");
    let reference = reference
        .min()
        .expect("a file")
        .into_string()
        .expect("a plain name");
    let newer = format!("-newer {reference}");
    let expressions = [
        "",
        "-type f",
        "-type d,l",
        "-type b -o -type c -o -type p -o -type s",
        "-name *a*",
        "-name [!a-m]*",
        "-iname *A*",
        "-path */*/*",
        "-size +0",
        "-size -3k",
        "-size 1",
        "-size +100k -size -1M",
        "-size 0c",
        "-empty",
        "-empty -type d",
        "-links +1",
        "-links 1 -type f",
        "-uid 0",
        "! -uid 0",
        "-gid +0",
        "-perm 644",
        "-perm -600",
        "-perm /111",
        "-perm -u+w,g+w",
        "-perm /4000",
        "-mtime +365",
        "-mtime -1",
        "! -newermt_is_not_there -true",
        &newer,
        "-maxdepth 1",
        "-mindepth 2 -maxdepth 3",
        "-maxdepth 0",
        "-type d -name *s -prune -o -print",
        "( -type f -o -type l ) -a ! -name *1*",
        "-type l -lname *a*",
        "-false",
        "-not -true",
        "-type f , -type d",
        "-links +1 -ls",
        "-type l -ls",
        "-type c -ls",
        "-type d -ls",
    ];
    for expression in expressions
        .iter()
        .filter(|expression| !expression.contains("is_not_there"))
    {
        let words: Vec<_> = expression.split_whitespace().collect();
        let separate = !expression.contains("-ls") && !expression.contains("-print");
        let null: &[&str] = if separate { &["-print0"] } else { &[] };
        let group = |words: &[&str]| -> Vec<String> {
            // An action must apply to the whole expression, and an option must come before it.
            let (options, tests): (Vec<_>, Vec<_>) =
                if words.iter().any(|word| word.ends_with("depth")) {
                    (words.to_vec(), Vec::new())
                } else {
                    (Vec::new(), words.to_vec())
                };
            let mut all: Vec<String> = options.iter().map(ToString::to_string).collect();
            if separate && !tests.is_empty() {
                all.push("(".to_owned());
                all.extend(tests.iter().map(ToString::to_string));
                all.push(")".to_owned());
            } else {
                all.extend(tests.iter().map(ToString::to_string));
            }
            all.extend(null.iter().map(ToString::to_string));
            all
        };
        let words = group(&words);
        let ours = ok(extern4(
            image,
            ["find".to_owned(), "disk.img".to_owned()]
                .into_iter()
                .chain(words.clone()),
        ));
        let theirs = tool(
            &mount.path,
            "find",
            [".".to_owned()].into_iter().chain(words),
        );
        let separator = if separate { 0 } else { b'\n' };
        let ours = in_volume(&ours);
        let theirs = unrooted(&theirs, separator, separate);
        assert_same(
            expression,
            &canonical(&ours, separator),
            &canonical(&theirs, separator),
        );
    }
}

/// Files with names and ages at the limits of the tests, on the host and in a volume.
#[test]
fn find_takes_ages_and_regular_expressions_as_gnu_does() {
    let image = machine();
    let dir = image.scratch().join("files");
    std::fs::create_dir(&dir).expect("a directory");
    let now = std::time::SystemTime::now();
    for (at, age) in [-30_i64, 20, 40, 80, 100, 140, 86_300, 86_500, 200_000]
        .into_iter()
        .enumerate()
    {
        let time = now
            .checked_sub(std::time::Duration::from_secs(300_000))
            .expect("a time")
            + std::time::Duration::from_secs(300_000_u64.saturating_add_signed(-age));
        let file = std::fs::File::create(dir.join(format!("age{at}"))).expect("a file");
        file.set_times(std::fs::FileTimes::new().set_modified(time))
            .expect("times");
    }
    let names = [
        "a", "aa", "ab", "a+", "a?", "*a", "(a|b)", "a{2}", "a^b", "a$b", "]", "[", "-", "a\\",
        "a.b", "[a:]", "x y", "n\nl", "A1",
    ];
    for name in names {
        std::fs::write(dir.join(name), "").expect("a file");
    }
    ok(extern4(&image, ["cp", "-aq", "files", "disk.img:/"]));
    let mut expressions: Vec<Vec<String>> = Vec::new();
    // The copy changes the access times on the host.
    for test in ["-mmin", "-mtime"] {
        for number in ["0", "1", "2", "3", "1439", "1442"] {
            // In days, a time in the future is a whole day old or less.
            for sign in ["", "+", "-"]
                .into_iter()
                .filter(|_| !test.ends_with("time") || number != "0")
            {
                expressions.push(vec![test.to_owned(), format!("{sign}{number}")]);
            }
        }
    }
    for regex in [
        ".*",
        "files",
        ".*/a+",
        ".*/a?",
        ".*/\\(a\\|aa\\)",
        ".*/(a|b)",
        ".*/a\\+",
        ".*/a\\?",
        "*a",
        ".*/*a",
        ".*/\\(*a\\|]\\)",
        ".*/a{2}",
        ".*/a\\{2\\}",
        ".*/a^b",
        ".*/a$b",
        "^.*/a$",
        ".*\\(/a$\\|/ab$\\)",
        ".*/[]a]",
        ".*/[^]a]",
        ".*/[a-]",
        ".*/a[\\]",
        ".*/[[:alpha:]]",
        ".*/[[:alpha:]",
        ".*/a.b",
        ".*/a\\.b",
        "files/\\w+",
        ".*/\\W",
        ".*/x\\sy",
        ".*/n.l",
        ".*\\bage1",
        ".*/\\<age.\\>",
        ".*/a*+",
        ".*/a+?",
        ".*/a**",
        ".*/\\(a\\)*",
        ".*/\\(\\(a\\|b\\)+\\|A1\\)",
        "a",
        ".*/[^^a]",
        ".*/a[^^]b",
        "\\(^files\\|^x\\)/a",
        ".*/\\(^a\\)",
        ".*/a\\\\",
        ".*/[*-?]a",
    ] {
        expressions.push(vec!["-regex".to_owned(), regex.replace("files", "/files")]);
        expressions.push(vec!["-iregex".to_owned(), regex.replace("files", "/files")]);
    }
    for expression in expressions {
        // -print0 escapes names that are patterns.
        let words = expression
            .iter()
            .map(String::as_str)
            .chain(["-printf", "%p\\0"]);
        let ours = ok(extern4(
            &image,
            ["find", "disk.img:/files"].into_iter().chain(words),
        ));
        let words = expression
            .iter()
            .map(|word| word.replace("/files", "files"));
        let theirs = tool(
            image.scratch(),
            "find",
            ["files".to_owned()]
                .into_iter()
                .chain(words)
                .chain(["-print0".to_owned()]),
        );
        let theirs: Vec<String> = sorted_by(&theirs, 0)
            .iter()
            .map(|path| format!("/{path}"))
            .collect();
        assert_same(
            &expression.join(" "),
            &sorted_by(&in_volume(&ours), 0),
            &theirs,
        );
    }
}

/// Returns the output with paths as they are in the volume.
fn in_volume(output: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = output;
    while let Some(at) = find(rest, b"disk.img:") {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at + b"disk.img:".len()..];
    }
    text.extend_from_slice(rest);
    text
}

/// Returns the output of GNU `find .` as paths from the root: the path is all of the line, or its
/// end.
fn unrooted(output: &[u8], separator: u8, whole: bool) -> Vec<u8> {
    let parts = output.split(|byte| *byte == separator).map(|part| {
        if whole || part.starts_with(b".") {
            return match part {
                b"." => b"/".to_vec(),
                part => part.strip_prefix(b".").unwrap_or(part).to_vec(),
            };
        }
        let text = part.to_vec();
        let end = [&b" . "[..], b" ./"]
            .iter()
            .find_map(|mark| find(&text, mark));
        match end {
            Some(at) => [&text[..=at], &text[at + 2..]].concat(),
            None if text.ends_with(b" .") => [&text[..text.len() - 1], b"/"].concat(),
            None => text,
        }
    });
    parts.collect::<Vec<_>>().join(&separator)
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}

/// Returns lines, sorted, with names of users as numbers: the image has none, this machine has.
fn canonical(output: &[u8], separator: u8) -> Vec<String> {
    let lines = sorted_by(output, separator).into_iter();
    let mut lines: Vec<_> = lines.map(|line| numbers_for_names(&line)).collect();
    lines.sort();
    lines
}

fn numbers_for_names(line: &str) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let long = words.get(2).is_some_and(|mode| {
        mode.len() == 10 && mode.as_bytes()[1..].iter().all(|c| b"rwxsStT-".contains(c))
    });
    if long && words.len() > 5 {
        words[4] = id(&words[4], "/etc/passwd");
        words[5] = id(&words[5], "/etc/group");
        return words.join(" ");
    }
    line.to_owned()
}

fn id(name: &str, table: &str) -> String {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let line = table
        .lines()
        .find(|line| line.split(':').next() == Some(name));
    line.and_then(|line| line.split(':').nth(2))
        .unwrap_or(name)
        .to_owned()
}

#[test]
fn find_starts_at_the_given_path() {
    let image = machine();
    let check = |args: &[&str], expected: &str| {
        let output = ok(extern4(&image, [&["find"], args].concat()));
        assert_eq!(String::from_utf8_lossy(&output), expected, "{args:?}");
    };
    check(&["disk.img:/bin"], "disk.img:/bin\ndisk.img:/bin/true\n");
    check(&["disk.img:/bin/"], "disk.img:/bin/\ndisk.img:/bin/true\n");
    check(&["disk.img:/bin", "-name", "bin"], "disk.img:/bin\n");
    check(
        &["disk.img", "-maxdepth", "0", "-name", "/"],
        "disk.img:/\n",
    );
    check(
        &["disk.img:/home", "-user", "ann", "-type", "f"],
        "disk.img:/home/ann/notes.txt\n",
    );
    check(
        &["disk.img:/home", "-nouser"],
        "disk.img:/home/ann/.profile\n",
    );
    check(
        &["disk.img:/home", "-group", "1000", "-type", "d"],
        "disk.img:/home/ann\n",
    );
    check(
        &["disk.img:/etc", "-samefile", "/etc/passwd"],
        "disk.img:/etc/passwd\n",
    );
    check(&["disk.img:/etc", "-name", "p*", "-quit"], "");
    check(
        &["disk.img:/etc", "-name", "p*", "-print", "-quit"],
        "disk.img:/etc/passwd\n",
    );
    check(
        &["disk.img:/etc", "!", "-newer", "/etc/hostname"],
        "disk.img:/etc/hostname\n",
    );
    check(
        &["disk.img:/etc", "-regex", ".*/h[a-z]+"],
        "disk.img:/etc/hostname\n",
    );
    let json = ok(extern4(
        &image,
        ["find", "--json", "disk.img:/bin", "-type", "f"],
    ));
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
    assert_eq!(json["path"], "/bin/true");
    assert_eq!(json["mode"], "0755");
    assert_eq!(json["type"], "file");
}

#[test]
fn stat_is_that_of_gnu() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    const FORMAT: &str = "%a|%A|%b|%B|%f|%F|%g|%h|%i|%s|%t|%T|%u|%w|%x|%y|%z|%W|%X|%Y|%Z";
    let files = tool(&mount.path, "find", [".", "-mindepth", "1", "-print0"]);
    let files: Vec<_> = files
        .split(|byte| *byte == 0)
        .filter(|file| !file.is_empty())
        .collect();
    for some in files.chunks(500) {
        let ours = some.iter().map(|file| [b"disk.img:", &file[1..]].concat());
        let ours: Vec<_> = ours
            .map(|place| std::ffi::OsString::from(std::ffi::OsStr::from_bytes(&place)))
            .collect();
        let theirs = some
            .iter()
            .map(|file| std::ffi::OsStr::from_bytes(file).to_owned());
        let arguments = ["-c".into(), FORMAT.into()];
        let ours = ok(extern4(
            image,
            [std::ffi::OsString::from("stat")]
                .into_iter()
                .chain(arguments.clone())
                .chain(ours),
        ));
        let theirs = tool(&mount.path, "stat", arguments.into_iter().chain(theirs));
        assert_same(FORMAT, &sorted(&ours), &sorted(&theirs));
    }
}

#[test]
fn stat_for_people_is_laid_out_as_gnus() {
    let image = machine();
    let text = ok(extern4(&image, ["stat", "disk.img:/etc/hostname"]));
    let text = String::from_utf8(text).expect("text");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "  File: /etc/hostname");
    assert_eq!(
        lines[1],
        "  Size: 5         \tBlocks: 8          IO Block: 4096   regular file"
    );
    assert_eq!(
        lines[3],
        "Access: (0644/-rw-r--r--)  Uid: (    0/    root)   Gid: (    0/    root)"
    );
    assert_eq!(lines[5], "Modify: 2024-02-29 12:00:00.000000000 +0000");
    assert!(lines[7].starts_with(" Birth: 2"), "{text}");
    let name = ok(extern4(
        &image,
        ["stat", "-c", "%N", "disk.img:/home/ann/todo"],
    ));
    assert_eq!(
        String::from_utf8_lossy(&name),
        "'/home/ann/todo' -> 'notes.txt'\n"
    );
    let size = ok(extern4(
        &image,
        ["stat", "-L", "-c", "%s", "disk.img:/home/ann/todo"],
    ));
    assert_eq!(size, b"9\n");
}

#[test]
fn du_and_df_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    for flags in [
        &["-a"][..],
        &["-s"],
        &["-d", "1"],
        &["-a", "--apparent-size"],
        &["-h"],
        &["-b", "-a"],
        &["-ac"],
    ] {
        let ours = ok(extern4(image, [&["du"], flags, &["disk.img"]].concat()));
        let theirs = tool(&mount.path, "du", [flags, &["."]].concat());
        let theirs = theirs
            .split(|byte| *byte == b'\n')
            .map(|line| match find(line, b"\t.") {
                Some(at) if line.len() == at + 2 => [&line[..=at], b"/"].concat(),
                Some(at) => [&line[..=at], &line[at + 2..]].concat(),
                None => line.to_vec(),
            });
        let theirs = theirs.collect::<Vec<_>>().join(&b'\n');
        assert_same(
            &format!("{flags:?}"),
            &sorted(&without_links(&ours)),
            &sorted(&without_links(&theirs)),
        );
    }
    for flags in [&["-k"][..], &["-i"], &["-h"]] {
        let flag = if flags == ["-k"] { &[][..] } else { flags };
        let ours = ok(extern4(image, [&["df"], flag, &["disk.img"]].concat()));
        let theirs = tool(
            Path::new("/"),
            "df",
            flags
                .iter()
                .map(|flag| flag.as_ref())
                .chain([mount.path.as_os_str()]),
        );
        let numbers = |text: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(text).into_owned();
            let line = text.lines().nth(1).expect("a line").to_owned();
            line.split_whitespace()
                .skip(1)
                .take(4)
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(numbers(&ours), numbers(&theirs), "{flags:?}");
    }
}

/// Drops the lines that contain `link`: `du -a` shows a file with several names once, and which of
/// them depends on the order of the walk.
fn without_links(output: &[u8]) -> Vec<u8> {
    let lines = output
        .split(|byte| *byte == b'\n')
        .filter(|line| find(line, b"link").is_none());
    lines.collect::<Vec<_>>().join(&b'\n')
}

#[test]
fn tree_draws_branches() {
    let image = machine();
    let output = ok(extern4(&image, ["tree", "-a", "disk.img"]));
    let expected = "\
/
├── bin
│   └── true
├── etc
│   ├── group
│   ├── hostname
│   ├── os-release
│   └── passwd
├── home
│   └── ann
│       ├── .profile
│       ├── notes.txt
│       └── todo -> notes.txt
├── lost+found
├── root
└── var
    └── log
        └── old.gz

9 directories, 9 files
";
    assert_eq!(String::from_utf8_lossy(&output), expected);
    let output = ok(extern4(&image, ["tree", "-d", "-L", "1", "disk.img:/home"]));
    assert_eq!(
        String::from_utf8_lossy(&output),
        "/home\n└── ann\n\n2 directories\n"
    );
}

#[test]
fn json_keeps_every_name() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    let output = ok(extern4(image, ["ls", "-AR", "--json", "disk.img"]));
    let mut ours: Vec<Vec<u8>> = Vec::new();
    for line in output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let object: serde_json::Value = serde_json::from_slice(line).expect("one object a line");
        ours.push(match object.get("path_hex").and_then(|hex| hex.as_str()) {
            Some(hex) => unhex(hex),
            None => object["path"].as_str().expect("a path").as_bytes().to_vec(),
        });
    }
    ours.sort();
    let theirs = tool(&mount.path, "find", [".", "-mindepth", "1", "-print0"]);
    let mut theirs: Vec<_> = theirs
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| path[1..].to_vec())
        .collect();
    theirs.sort();
    assert!(ours == theirs, "{} and {} names", ours.len(), theirs.len());
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// Commands reach directories that are deeper than the longest path.
#[test]
fn paths_have_any_length() {
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4"]).build();
    let name = "d".repeat(200);
    let script = format!(
        "for i in $(seq 50); do mkdir {name}; cd -P {name}; done; ln -s target link; echo text > file; setfattr -n user.a -v 1 file"
    );
    if !can_run(&[Need::Tool("setfattr")]) {
        return;
    }
    std::fs::create_dir(image.scratch().join("tree")).expect("a directory");
    tool(&image.scratch().join("tree"), "sh", ["-ec", &script]);
    ok(extern4(&image, ["cp", "-a", "tree", "disk.img:/"]));
    let said = |args: &[&str]| String::from_utf8(ok(extern4(&image, args))).expect("text");
    let long = said(&["ls", "-lanR", "disk.img:/tree"]);
    assert!(
        long.lines().any(|line| line.ends_with(" link -> target")) && long.lines().count() > 300,
        "{}",
        long.len()
    );
    assert_eq!(
        said(&["ls", "-AR", "disk.img:/tree"])
            .lines()
            .filter(|line| *line == name)
            .count(),
        50
    );
    let tree = said(&["tree", "disk.img:/tree"]);
    assert!(
        tree.contains("link -> target") && tree.ends_with("51 directories, 2 files\n"),
        "{}",
        tree.len()
    );
    let attributes = said(&["getfattr", "-Rd", "disk.img:/tree"]);
    assert!(
        attributes.contains("/file\nuser.a=\"1\"\n"),
        "{}",
        attributes.len()
    );
}
