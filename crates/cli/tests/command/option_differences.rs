//! Each option of `ls`, `stat`, `du`, `df` and `find`, next to the tool of that name: on the
//! kernel's mount of an image, or on a directory of the host with the same files.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools::{Need, can_run};

use crate::listing::{first_difference, rooted};
use crate::mounting::sound;
use crate::run::{
    Everything, assert_same, command, everything, extern4, failed, ok, sorted, sorted_by,
};

/// Runs a command of either side with the same environment.
fn run(mut command: Command, dir: &Path, args: &[&str]) -> Output {
    command
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("TABSIZE", "0")
        .env_remove("LS_COLORS")
        .env_remove("COLUMNS")
        .env_remove("TIME_STYLE")
        .current_dir(dir)
        .args(args)
        .output()
        .expect("it runs")
}

fn ours(image: &Image, args: &[&str]) -> Output {
    run(command(), image.scratch(), args)
}

fn theirs(dir: &Path, name: &str, args: &[&str]) -> Vec<u8> {
    let output = run(Command::new(name), dir, args);
    assert!(
        output.status.success(),
        "{name} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn ls_options_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    for line in [
        "-F",
        "-p",
        "-s",
        "-sh",
        "-1s",
        "-is",
        "-C",
        "-x",
        "-m",
        "-Cs",
        "-xi",
        "-ms",
        "-Q",
        "-b",
        "-N",
        "-q",
        "-X",
        "-c",
        "-u",
        "-ct",
        "-ut",
        "-nc",
        "-nu",
        "-nct",
        "-n --full-time",
        "-n --time-style=long-iso",
        "-n --time-style=iso",
        "-n --time-style=full-iso",
        "-n --time-style=+%Y_%m",
        "-nt --time=birth",
        "-n --time=ctime",
        "--time=atime -t",
        "--group-directories-first",
        "-r --group-directories-first",
        "-n --group-directories-first",
        "-S --group-directories-first",
        "-B",
        "-I *a*",
        "--hide=*a*",
        "-nG",
        "-gn",
        "-on",
        "-nF",
        "-np",
        "--file-type",
        "-n --file-type",
        "--indicator-style=classify",
        "--indicator-style=slash",
        "--sort=size",
        "--sort=time",
        "--sort=extension",
        "--format=commas",
        "--format=across",
        "--format=single-column",
        "--format=vertical",
        "--zero",
        "-nZ",
        "-Z",
        "-1Z",
        "-w 40 -C",
        "-w 40 -m",
        "-w 0 -m",
        "-nd",
        "-d",
        "-ks",
        "-k",
        "-ni",
        "-nis",
        "--quoting-style=c",
        "--quoting-style=escape",
        "--quoting-style=shell-escape",
        "--quoting-style=literal",
        "--inode",
        "--size",
        "--reverse",
        "--numeric-uid-gid",
        "--classify",
        "--classify=never",
        "--escape",
        "--almost-all",
        "--directory",
        "--no-group -n",
        "--kibibytes -s",
        "--width=60 -C",
        "-lnh",
        "-C -1",
        "-1 -C",
        "-n -1",
        "-1 -n",
        "-m -x",
        "-t -S",
        "-S -t",
        "-lnrS",
        "--color=never",
        "--ignore=*b*",
        "--ignore-backups",
        "--literal",
        "--quote-name",
        "--hide-control-chars",
        "--human-readable -s",
        "-nHd",
        "-nhs",
        "-v",
        "-rv",
        "-nv --group-directories-first",
        "--sort=version",
        "--sort=width",
        "-C -T 8",
        "-x -T 4",
        "-C --tabsize=3 -w 50",
        "-n --author",
        "-gon --author",
        "-n --si",
        "-ns --si",
        "-nsh --block-size=1",
        "-ns --block-size=M",
        "-s --block-size=kB",
        "-n --block-size=2K",
        "-ns --block-size=si",
        "-n --block-size=512 -h",
        "-nsk",
        "--quoting-style=shell",
        "--quoting-style=shell-always",
        "--quoting-style=shell-escape-always",
        "--quoting-style=locale",
        "--quoting-style=clocale",
        "-q --quoting-style=shell-always",
        "-C -q --quoting-style=shell",
    ] {
        let flags: Vec<_> = line.split(' ').collect();
        for more in [&["-A", "-R"][..], &[]] {
            let args = [&flags[..], more].concat();
            let quotes = flags.iter().any(|flag| {
                matches!(
                    *flag,
                    "-Q" | "-b" | "--escape" | "--quoting-style=escape" | "--quote-name"
                ) || flag.starts_with("--quoting-style")
            });
            if quotes && args.contains(&"-R") {
                // The headings have other names.
                continue;
            }
            if args.contains(&"-R")
                && flags
                    .iter()
                    .any(|flag| flag.contains('d') && !flag.starts_with("--"))
            {
                continue;
            }
            let shown = ok(ours(
                &all.image,
                &[&["ls"], &args[..], &["disk.img"]].concat(),
            ));
            let expected = rooted(&theirs(
                &all.mount.path,
                "ls",
                &[&args[..], &["."]].concat(),
            ));
            // The name of the argument itself is another one.
            let expected = if flags
                .iter()
                .any(|flag| flag.contains('d') && !flag.starts_with("--"))
                || flags.contains(&"--directory")
            {
                let text = String::from_utf8(expected).expect("text");
                text.trim_end()
                    .strip_suffix('.')
                    .map(|text| format!("{text}/\n"))
                    .expect("a dot")
                    .into_bytes()
            } else {
                expected
            };
            assert!(
                shown == expected,
                "{args:?}\n{}",
                first_difference(&shown, &expected)
            );
        }
    }
}

#[test]
fn operands_of_ls_are_in_the_order_of_gnu() {
    let image = small();
    let operands = [
        "start",
        "d/sub",
        "d/b.txt",
        "d/broken",
        "d/a.c",
        "d",
        "d/sub/deep/e.c",
        "d/link",
    ];
    let place = |name: &str| format!("disk.img:/{name}");
    let places: Vec<_> = operands.iter().map(|name| place(name)).collect();
    for line in [
        "-1",
        "-r",
        "-dU",
        "-d",
        "-X",
        "-dr",
        "-v",
        "-F",
        "-m",
        "-dU -r",
        "-dF",
        "--group-directories-first -d",
        "--color=always",
        "-F --color=always",
    ] {
        let flags: Vec<_> = line.split(' ').collect();
        let args = [
            &["ls"],
            &flags[..],
            &places.iter().map(String::as_str).collect::<Vec<_>>(),
        ]
        .concat();
        let shown = ok(ours(&image, &args));
        // Paths in the volume begin with a slash.
        let roots: Vec<_> = operands.iter().map(|name| format!("./{name}")).collect();
        let args = [
            &flags[..],
            &roots.iter().map(String::as_str).collect::<Vec<_>>(),
        ]
        .concat();
        let expected = theirs(&image.scratch().join("files"), "ls", &args);
        let expected = String::from_utf8(expected)
            .expect("text")
            .replace("./", "/");
        assert_eq!(String::from_utf8_lossy(&shown), expected, "{line}");
    }
}

#[test]
fn ls_sets_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    for flags in [
        &["-U"][..],
        &["-f"],
        &["--sort=none"],
        &["-A", "-U"],
        &["-a", "-U"],
    ] {
        let shown = ok(ours(&all.image, &[&["ls"], flags, &["disk.img"]].concat()));
        let expected = theirs(&all.mount.path, "ls", &[flags, &["."]].concat());
        assert_same(&format!("{flags:?}"), &sorted(&shown), &sorted(&expected));
    }
}

#[test]
fn stat_options_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    let names = top(&all);
    for format in [
        "%a|%10a|%-10a|%010a|%A|%b|%B|%f|%F|%g|%h|%i|%s|%t|%T|%u|%o|%r|%R|%Hr|%Lr",
        "%w|%x|%y|%z|%W|%X|%Y|%Z|%.3X|%.Y|%.12Z|%20.6Y",
        "%%|%5s|%-5s|%05s|%.3F",
    ] {
        for option in ["-c", "--printf", "--format"] {
            let args = if option == "-c" {
                vec![option, format]
            } else {
                vec![]
            };
            let joined = format!("{option}={format}\\t\\x41\\n\\101");
            let args = if args.is_empty() {
                vec![joined.as_str()]
            } else {
                args
            };
            for name in &names {
                let place = format!("disk.img:/{name}");
                let shown = ok(ours(
                    &all.image,
                    &[&["stat"], &args[..], &[&place]].concat(),
                ));
                let expected = theirs(&all.mount.path, "stat", &[&args[..], &[name]].concat());
                assert!(
                    shown == expected,
                    "{args:?} {name}: {}",
                    first_difference(&shown, &expected)
                );
            }
        }
    }
    for args in [
        &["-f"][..],
        &["-t", "-f"],
        &["-ft"],
        &[
            "-f",
            "-c",
            "%a|%b|%c|%d|%f|%i|%20i|%-20i|%l|%s|%S|%t|%T|%n|%q",
        ],
        &["-f", "--printf=%a\\n"],
        &["--cached=never", "-f"],
    ] {
        let shown = ok(ours(
            &all.image,
            &[&["stat"], args, &["disk.img:/"]].concat(),
        ));
        let expected = theirs(&all.mount.path, "stat", &[args, &["."]].concat());
        let expected = String::from_utf8(expected).expect("text");
        let expected = expected.replace("\".\"", "\"/\"").replace("|.|", "|/|");
        let expected = expected
            .strip_prefix(". ")
            .map_or(expected.clone(), |rest| format!("/ {rest}"));
        assert_eq!(String::from_utf8_lossy(&shown), expected, "{args:?}");
    }
}

/// Returns the names at the top of the image that are text.
fn top(all: &Everything) -> Vec<String> {
    let entries = std::fs::read_dir(&all.mount.path)
        .expect("a mount")
        .flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.retain(|name| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    });
    names.sort();
    names
}

/// Returns the output with the mount's path as the image's name.
fn in_image(output: &[u8], mount: &Path) -> Vec<u8> {
    let mount = mount.as_os_str().as_bytes();
    let mut text = Vec::new();
    let mut rest = output;
    while let Some(at) = rest.windows(mount.len()).position(|window| window == mount) {
        text.extend_from_slice(&rest[..at]);
        text.extend_from_slice(b"disk.img:");
        rest = &rest[at + mount.len()..];
    }
    text.extend_from_slice(rest);
    text
}

#[test]
fn du_options_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    let names = top(&all);
    for line in [
        "--exclude=*a*",
        "-a --exclude=*1*",
        "--exclude=small*",
        "-a --exclude=*/*/x*",
        "-S",
        "-Sa",
        "-l",
        "-la",
        "-k",
        "-m",
        "-B 512",
        "-BM",
        "-B 1K",
        "--block-size=kB",
        "--inodes",
        "--inodes -a",
        "-t 10K",
        "-t -10K",
        "-a -t 1M",
        "-0",
        "-P",
        "-x",
        "-sh",
        "-ab",
        "--apparent-size",
        "-c",
        "-d 1",
        "--max-depth=0",
        "-hc",
        "-Sc",
        "-sS",
        "--count-links",
        "--separate-dirs",
        "--null -a",
    ] {
        let flags: Vec<_> = line.split(' ').collect();
        let places: Vec<_> = names
            .iter()
            .map(|name| format!("disk.img:/{name}"))
            .collect();
        let places: Vec<_> = places.iter().map(String::as_str).collect();
        let here: Vec<_> = names.iter().map(String::as_str).collect();
        let shown = ok(ours(&all.image, &[&["du"], &flags[..], &places].concat()));
        let expected = theirs(&all.mount.path, "du", &[&flags[..], &here].concat());
        let end = if line.contains("-0") || line.contains("--null") {
            0
        } else {
            b'\n'
        };
        // Directories are listed in another order.
        let shown: Vec<_> = sorted_by(&shown, end)
            .iter()
            .map(|line| line.replacen("\\t/", "\\t", 1))
            .collect();
        let mut shown: Vec<_> = shown;
        shown.sort();
        assert_same(line, &shown, &sorted_by(&expected, end));
    }
    std::fs::write(all.image.scratch().join("patterns"), "*a*\n").expect("a file");
    let shown = ok(ours(
        &all.image,
        &["du", "-X", "patterns", "-s", "disk.img:/"],
    ));
    let expected = ok(ours(
        &all.image,
        &["du", "--exclude=*a*", "-s", "disk.img:/"],
    ));
    assert_eq!(shown, expected);
}

/// The lines of tree(1) about a directory of the mount.
#[test]
fn tree_options_are_those_of_tree() {
    if !can_run(&[Need::Tool("tree")]) {
        return;
    }
    let Some(all) = everything() else { return };
    // Odd names, links and all kinds of files; and files with holes and old times.
    let names: Vec<_> = top(&all)
        .into_iter()
        .filter(|name| name != "deep")
        .collect();
    let mut differing = String::new();
    for line in [
        "",
        "-a",
        "-d",
        "-f",
        "-i",
        "-fi",
        "-l",
        "-L 1",
        "-ld",
        "-x",
        "-F",
        "-Fl",
        "-q",
        "-Q",
        "-N",
        "-QFp",
        "-p",
        "-s",
        "-h",
        "--si",
        "-D",
        "-Dc",
        "--inodes",
        "-pshD --inodes",
        "-psD --metafirst",
        "-ip --metafirst",
        "--timefmt %F_%T",
        "--timefmt=%s -c",
        "-r",
        "-t",
        "-c",
        "-tr",
        "--sort=size",
        "--sort=size -r",
        "--sort=mtime",
        "--sort=name",
        "--dirsfirst",
        "--filesfirst",
        "--dirsfirst -r",
        "--filesfirst -rt",
        "-P *a*",
        "-P [a-c]*|*.d/",
        "-P *A* --ignore-case",
        "-P *1* --matchdirs",
        "-P *1* --prune",
        "-P *1* --matchdirs --prune",
        "-I *a*",
        "-I *1|*2/",
        "-I *A* --ignore-case -a",
        "--prune",
        "--prune -d",
        "--prune -L 1",
        "--filelimit 3",
        "--filelimit 3 -d",
        "--noreport",
        "--charset=ASCII",
        "--charset=utf8",
        "-n",
        "-J",
        "-J -L 1",
        "-Ja",
        "-Jd",
        "-Jf",
        "-Ji",
        "-Jps",
        "-JphD",
        "-J --si --timefmt=%s",
        "-J --noreport",
        "-J --prune -P *1*",
        "-X",
        "-Xd",
        "-XpshD",
        "-X --noreport",
        "-X -L 1",
        "-X -P *1*",
    ] {
        let flags: Vec<_> = line.split(' ').filter(|flag| !flag.is_empty()).collect();
        // There tree(1) writes bytes that are no text as they are.
        let is_raw = ["-q", "-J", "-X"].iter().any(|form| line.starts_with(form));
        let is_text = |name: &&String| !is_raw || !["names", "links"].contains(&name.as_str());
        for name in names.iter().filter(is_text) {
            let shown = ok(ours(
                &all.image,
                &[&["tree"], &flags[..], &[&format!("disk.img:/{name}")]].concat(),
            ));
            let expected = theirs(&all.mount.path, "tree", &[&flags[..], &[name]].concat());
            // A path in the volume begins with a slash.
            let shown = shown.escape_ascii().to_string().replace("</", "<:");
            let shown = shown.replace(&format!("/{name}"), name).replace("<:", "</");
            let expected = expected.escape_ascii().to_string();
            let lines = |text: &str| {
                text.replace("\\n", "\n")
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let shown = lines(&shown);
            let expected = lines(&expected);
            let first = shown
                .iter()
                .zip(&expected)
                .find(|(ours, theirs)| ours != theirs);
            if shown != expected {
                differing += &format!(
                    "{line} {name}: {first:?} {} {}\n",
                    shown.len(),
                    expected.len()
                );
            }
        }
    }
    assert!(differing.is_empty(), "{differing}");
    // The sums of directories; the last line of tree(1) counts some files twice.
    for line in [
        "--du",
        "-h --du",
        "--si --du -d",
        "--du -P *1*",
        "--du --prune",
        "-J --du",
    ] {
        let flags: Vec<_> = line.split(' ').chain(["--noreport"]).collect();
        for name in names
            .iter()
            .filter(|name| !["names", "links"].contains(&name.as_str()))
        {
            let shown = ok(ours(
                &all.image,
                &[&["tree"], &flags[..], &[&format!("disk.img:/{name}")]].concat(),
            ));
            let expected = theirs(&all.mount.path, "tree", &[&flags[..], &[name]].concat());
            let shown = shown
                .escape_ascii()
                .to_string()
                .replace(&format!("/{name}"), name);
            assert_eq!(shown, expected.escape_ascii().to_string(), "{line} {name}");
        }
    }
    let shown = ok(ours(&all.image, &["tree", "-Jas", "-L", "2", "disk.img:/"]));
    let document: serde_json::Value = serde_json::from_slice(&shown).expect("JSON");
    assert_eq!(
        document[0]["contents"].as_array().map(Vec::len),
        Some(names.len() + 2)
    );
    // Several directories are one document, also where one of them is empty or not there.
    let places = [
        &format!("disk.img:/{}", names[0]),
        "disk.img:/gone",
        "disk.img:/lost+found",
        &format!("disk.img:/{}", names[1]),
    ];
    let output = ours(&all.image, &[&["tree", "-J", "-s"][..], &places].concat());
    assert!(failed(&output, 1).contains("'disk.img:/gone': No such file or directory"));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document.as_array().map(Vec::len), Some(4));
    let shown = ok(ours(
        &all.image,
        &["tree", "--du", "-s", "-L", "1", places[0]],
    ));
    assert!(String::from_utf8_lossy(&shown).contains(" bytes used in "));
}

#[test]
fn df_options_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    for line in [
        "-T",
        "-k",
        "-P",
        "-PT",
        "-BM",
        "-B 512",
        "-iT",
        "-hT",
        "--total",
        "-t ext4",
        "-x ext2",
        "-a",
        "-l",
        "--no-sync",
        "--sync",
        "-H",
        "-hH",
        "-h -B1M",
        "-B1M -h",
        "-h -k",
        "-BMB",
        "-B kB",
        "-P -B 512",
        "-Ph",
        "-PH",
        "-Pk",
        "-Pi",
        "-ih",
        "-iH",
        "-i -B1M",
        "-v",
        "--output",
        "--output=source,fstype,itotal,iused,iavail,ipcent,size,used,avail,pcent,target",
        "--output=size,avail -h",
        "--output=source,pcent --total",
        "--output=target,size --total",
        "--output=pcent --total",
        "-T --total -h",
        "-i --total",
        "-t ext4 -x xfs -T",
    ] {
        let flags: Vec<_> = line.split(' ').collect();
        let shown = ok(ours(
            &all.image,
            &[&["df"], &flags[..], &["disk.img"]].concat(),
        ));
        let expected = theirs(&all.mount.path, "df", &[&flags[..], &["."]].concat());
        let expected = String::from_utf8(expected).expect("text");
        // The device has a column of fourteen letters, and the place where it is mounted is the
        // last one.
        let device = theirs(&all.mount.path, "df", &["--output=source", "."]);
        let device = String::from_utf8(device)
            .expect("text")
            .lines()
            .nth(1)
            .expect("a line")
            .to_owned();
        let expected = expected.replace(&format!("{device:14}"), &format!("{:14}", "disk.img"));
        let expected = expected.replace(all.mount.path.to_str().expect("a path"), "-");
        let shown = String::from_utf8(shown).expect("text");
        if line == "--output" {
            let headings = |text: &str| {
                text.lines()
                    .next()
                    .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            };
            assert_eq!(headings(&shown), headings(&expected));
            continue;
        }
        let ends = |text: &str| {
            text.lines()
                .map(str::trim_end)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let is_last_wide = line.contains("target,");
        if is_last_wide {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&shown), words(&expected), "{line}");
            continue;
        }
        assert_eq!(ends(&shown), ends(&expected), "{line}");
    }
    for (args, says) in [
        (&["--output=x"][..], "\"x\" is no column"),
        (&["--output=size,size"], "is there twice"),
        (&["--output", "-i"], "cannot be used with"),
        (&["--output", "-T"], "cannot be used with"),
    ] {
        let errors = failed(
            &ours(&all.image, &[&["df"], args, &["disk.img"]].concat()),
            2,
        );
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    let errors = failed(&ours(&all.image, &["df", "-t", "xfs", "disk.img"]), 1);
    assert!(errors.contains("no volume is of such a type"), "{errors}");
}

#[test]
fn find_options_are_those_of_gnu() {
    let Some(all) = everything() else { return };
    let names = top(&all);
    let newer = format!("{}/{}", all.mount.path.display(), names[0]);
    for line in [
        "-printf %p|%f|%h|%P|%H|%d|%s|%k|%b|%m|%M|%U|%G|%n|%i|%l|%y|%Y\\0",
        "-printf %T@|%A@|%C@|%t|%a|%c|%T+|%TY-%Tm-%Td|%TH:%TM:%TS|%Ta|%TA|%Tj|%TT|%TX|%Tx|%TD|%TF|%Tb|%Te\\0",
        "-printf %-10s|%010s|%5d|%.3f|%-12.4M|%%|\\101\\\\\\0",
        "-xtype f -print0",
        "-xtype l -print0",
        "-xtype d -print0",
        "-xtype f,d -print0",
        "-readable -print0",
        "-executable -print0",
        "-newermt 2020-01-01 -print0",
        "! -newermt 2020-01-01 -print0",
        "-newerat @0 -print0",
        "-newerct 2001-02-03T04:05:06Z -print0",
        "-newermm NEWER -print0",
        "-newerac NEWER -print0",
        "-newer NEWER -print0",
        "-fstype ext4 -print0",
        "-fstype xfs -print0",
        "-depth -print0",
        "-regextype posix-extended -regex .*/(a|b)[^/]{2,5} -print0",
        "-regextype posix-basic -regex .*/.\\{3\\} -print0",
        "-regextype egrep -iregex .*[[:digit:]]+ -print0",
        "-regextype sed -regex .*/\\(a\\|f\\).* -print0",
        "-noleaf -print0",
        "-xdev -print0",
        "-ignore_readdir_race -print0",
        "-mount -type f -print0",
        "-nowarn -print0",
        "-maxdepth 1 -depth -print0",
        "-P -type l -print0",
        "-H -type l -print0",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let (links, words) = match words[0] {
            "-L" | "-P" | "-H" => words.split_at(1),
            _ => words.split_at(0),
        };
        let places = |root: &str| {
            names
                .iter()
                .map(|name| format!("{root}/{name}"))
                .collect::<Vec<_>>()
        };
        let mount = all.mount.path.to_str().expect("a path");
        let shown = places("disk.img:");
        let ours_words: Vec<_> = words
            .iter()
            .map(|word| word.replace("NEWER", &format!("/{}", names[0])))
            .collect();
        let their_words: Vec<_> = words
            .iter()
            .map(|word| word.replace("NEWER", &newer))
            .collect();
        let theirs_places = places(mount);
        let args = |places: &[String], words: &[String]| -> Vec<String> {
            links
                .iter()
                .map(ToString::to_string)
                .chain(places.to_vec())
                .chain(words.to_vec())
                .collect()
        };
        let mut args_ours = vec!["find".to_owned()];
        args_ours.extend(args(&shown, &ours_words));
        let args_ours: Vec<_> = args_ours.iter().map(String::as_str).collect();
        let args_theirs = args(&theirs_places, &their_words);
        let args_theirs: Vec<_> = args_theirs.iter().map(String::as_str).collect();
        let shown = run(command(), all.image.scratch(), &args_ours);
        let expected = run(Command::new("find"), &all.mount.path, &args_theirs);
        let expected = in_image(&expected.stdout, &all.mount.path);
        assert_same(line, &sorted_by(&shown.stdout, 0), &sorted_by(&expected, 0));
    }
}

fn fill(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(root.join("d/sub/deep"))?;
    for name in ["a.c", "b.txt", "sub/c.c", "sub/deep/e.c"] {
        std::fs::write(root.join("d").join(name), format!("this is {name}\n"))?;
    }
    for (target, link) in [
        ("sub", "d/link"),
        ("..", "d/sub/up"),
        ("gone", "d/broken"),
        ("a.c", "d/file"),
        ("d", "start"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link))?;
    }
    Ok(())
}

fn small() -> Image {
    const SPEC: ImageSpec =
        ImageSpec::new("disk", 8 << 20, &["-t", "ext4"]).from_directory(&[fill]);
    let image = SPEC.build();
    let files = image.scratch().join("files");
    std::fs::create_dir(&files)
        .and_then(|()| fill(&files))
        .expect("files");
    image
}

#[test]
fn find_follows_links_as_gnus_does() {
    let image = small();
    for line in [
        "-L d",
        "-L d -type f",
        "-L d -type l",
        "-L d -xtype l",
        "-L d -depth",
        "-L d -maxdepth 2",
        "-L start",
        "-H start",
        "-P start",
        "-H start -maxdepth 1",
        "-L d -type d -printf %p|%d|%y|%Y|%l\\n",
        "d -follow -type f",
        "-L d -name link -prune -o -print",
        "-H start -name start",
        "start/",
        "-L d -lname g*",
        "-L d -mindepth 3",
        "-L d -samefile d/a.c",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let place = |word: &str, before: &str| match word {
            word if matches!(before, "-type" | "-name") => word.to_owned(),
            "d" | "start" | "start/" => format!("disk.img:/{word}"),
            "d/a.c" => "/d/a.c".to_owned(),
            word => word.to_owned(),
        };
        let ours_words = std::iter::once("")
            .chain(words.iter().copied())
            .zip(&words)
            .map(|(before, word)| place(word, before));
        let ours_words: Vec<_> = std::iter::once("find".to_owned())
            .chain(ours_words)
            .collect();
        let ours_words: Vec<_> = ours_words.iter().map(String::as_str).collect();
        let shown = run(command(), image.scratch(), &ours_words);
        let expected = run(Command::new("find"), &image.scratch().join("files"), &words);
        let text = String::from_utf8(shown.stdout)
            .expect("text")
            .replace("disk.img:/", "");
        assert_same(line, &sorted(text.as_bytes()), &sorted(&expected.stdout));
        assert_eq!(
            shown.status.code(),
            expected.status.code(),
            "{line}: {}",
            String::from_utf8_lossy(&shown.stderr)
        );
    }
}

#[test]
fn find_runs_commands() {
    let image = small();
    let check = |args: &[&str], expected: &str| {
        let output = ok(extern4(&image, [&["find", "disk.img:/d"], args].concat()));
        let mut lines = sorted(&output);
        lines.sort();
        assert_eq!(lines.join("\n"), expected, "{args:?}");
    };
    check(
        &["-name", "*.c", "-exec", "extern4", "cat", "{}", ";"],
        "this is a.c\nthis is sub/c.c\nthis is sub/deep/e.c",
    );
    check(
        &["-name", "?.c", "-exec", "extern4", "cat", "{}", "+"],
        "this is a.c\nthis is sub/c.c\nthis is sub/deep/e.c",
    );
    // The names of extern4's commands are enough, where they get paths.
    check(
        &["-name", "*.c", "-exec", "cat", "{}", ";"],
        "this is a.c\nthis is sub/c.c\nthis is sub/deep/e.c",
    );
    check(
        &["-name", "a.c", "-exec", "stat", "-c", "%s", "{}", "+"],
        "12",
    );
    std::fs::write(image.scratch().join("of-the-host"), "of the host\n").expect("a file");
    check(
        &["-name", "a.c", "-exec", "cat", "of-the-host", ";"],
        "of the host",
    );
    check(
        &["-name", "a.c", "-exec", "echo", "x{}y", ";"],
        "xdisk.img:/d/a.cy",
    );
    check(&["-name", "[ab].*", "-exec", "echo", "{}", "+"], &{
        let output = ok(extern4(&image, ["find", "disk.img:/d", "-name", "[ab].*"]));
        String::from_utf8(output)
            .expect("text")
            .trim_end()
            .replace('\n', " ")
    });
    check(
        &["-name", "*.txt", "-exec-in", "tr", "a-z", "A-Z", ";"],
        "THIS IS B.TXT",
    );
    check(
        &[
            "-name",
            "b.txt",
            "-extract",
            "-exec",
            "sh",
            "-c",
            "cat {}; basename {}",
            ";",
        ],
        "b.txt\nthis is b.txt",
    );
    check(
        &[
            "-name", "b.txt", "-exec", "false", ";", "-o", "-name", "*.txt", "-print",
        ],
        "disk.img:/d/b.txt",
    );
    check(
        &[
            "-name", "[ab].*", "-exec", "extern4", "grep", "-q", "a.c", "{}", ";", "-print",
        ],
        "disk.img:/d/a.c",
    );
    check(
        &[
            "-name", "a.c", "-fprint", "list", "-fprintf", "other", "%f\\n",
        ],
        "",
    );
    let read = |name: &str| std::fs::read_to_string(image.scratch().join(name)).expect("a file");
    assert_eq!(
        (read("list").as_str(), read("other").as_str()),
        ("disk.img:/d/a.c\n", "a.c\n")
    );
    // Paths that it prints can be given back.
    let line = "\"$0\" find disk.img:/d -name '*.txt' -print0 | xargs -0 \"$0\" cat";
    let mut shell = Command::new("sh");
    let shell =
        shell
            .current_dir(image.scratch())
            .args(["-c", line, env!("CARGO_BIN_EXE_extern4")]);
    assert_eq!(ok(shell.output().expect("a shell")), b"this is b.txt\n");
    // A command that fails.
    let output = extern4(
        &image,
        [
            "find",
            "disk.img:/d",
            "-name",
            "a.c",
            "-exec",
            "false",
            "{}",
            "+",
        ],
    );
    assert_eq!(output.status.code(), Some(1));
    let output = extern4(
        &image,
        [
            "find",
            "disk.img:/d",
            "-name",
            "a.c",
            "-exec",
            "/no/such/program",
            ";",
        ],
    );
    assert!(
        failed(&output, 1).contains("/no/such/program"),
        "{output:?}"
    );
}

#[test]
fn find_changes_volumes() {
    let image = small();
    ok(extern4(
        &image,
        [
            "find",
            "disk.img:/d",
            "-name",
            "*.c",
            "-exec",
            "extern4",
            "chmod",
            "600",
            "{}",
            ";",
        ],
    ));
    let modes = ok(extern4(
        &image,
        ["find", "disk.img:/d", "-name", "?.*", "-printf", "%f %m\n"],
    ));
    assert_eq!(
        sorted(&modes),
        ["a.c 600", "b.txt 644", "c.c 600", "e.c 600"]
    );
    ok(extern4(
        &image,
        [
            "find",
            "disk.img:/d",
            "-name",
            "e.c",
            "-exec",
            "rm",
            "-f",
            "{}",
            ";",
        ],
    ));
    let modes = ok(extern4(
        &image,
        ["find", "disk.img:/d", "-name", "?.*", "-printf", "%f %m\n"],
    ));
    assert_eq!(sorted(&modes), ["a.c 600", "b.txt 644", "c.c 600"]);
    ok(extern4(
        &image,
        ["find", "disk.img:/d", "-name", "*.c", "-delete"],
    ));
    let left = ok(extern4(&image, ["find", "disk.img:/d", "-type", "f"]));
    assert_eq!(left, b"disk.img:/d/b.txt\n");
    let errors = failed(
        &extern4(&image, ["find", "disk.img:/", "-name", "d", "-delete"]),
        1,
    );
    assert!(
        errors.contains("'disk.img:/d': Directory not empty"),
        "{errors}"
    );
    ok(extern4(&image, ["find", "disk.img:/d", "-delete"]));
    assert_eq!(
        ok(extern4(&image, ["ls", "disk.img:/"])),
        b"lost+found\nstart\n"
    );
    sound(&image);
    let errors = failed(
        &extern4(&image, ["find", "disk.img:/", "-ok", "rm", "{}", ";"]),
        2,
    );
    assert!(
        errors.contains("-ok is not there: a search asks no questions"),
        "{errors}"
    );
}

/// Runs the same `setfacl` on both sides, and compares what `getfacl` says then.
#[test]
fn acl_options_are_those_of_the_tools() {
    if !can_run(&[Need::Tool("setfacl"), Need::Tool("getfacl")]) {
        return;
    }
    let image = small();
    let files = image.scratch().join("files");
    let can_have_acls = Command::new("setfacl")
        .args(["-m", "u:4242:r", "d/a.c"])
        .current_dir(&files)
        .output();
    if !can_have_acls.is_ok_and(|output| output.status.success()) {
        return;
    }
    std::fs::write(
        image.scratch().join("entries"),
        "# comment\nu:4243:rw\n\ng:4244:r # and this\n",
    )
    .expect("a file");
    std::fs::write(image.scratch().join("names"), "u:4243\n").expect("a file");
    std::fs::write(
        image.scratch().join("whole"),
        "u::rw\ng::r\no::-\nu:7777:rw\n",
    )
    .expect("a file");
    for line in [
        "-b d/a.c",
        "-m u:4242:rwx,m::r d/a.c",
        "-n -m u:4245:rwx d/a.c",
        "--mask -m u:4242:rwx,m::r d/a.c",
        "-n -m u:4242:rwx d/b.txt",
        "-M ../entries d/a.c",
        "-X ../names d/a.c",
        "--set u::rw,g::r,o::-,u:4246:r d/a.c",
        "--set-file=../whole d/b.txt",
        "--set d:u:4242:r d/sub",
        "--set u::rwx,g::rx,o::rx,d:u:4243:r d/sub",
        "--test -m u:4247:r d/a.c",
        "--test -b d/b.txt",
        "--test -k d/sub",
        "--test -m d:u:4248:rw d/sub",
        "--test --set u::rw,g::r,o::r d/a.c",
        "--test -x u:9999 d/a.c",
        "--no-mask -m g:4242:rwx d/a.c",
        "-R -m u:4249:rX d",
        "--modify-file=../entries d/sub/c.c",
        "--remove-file=../names d/sub/c.c",
        "-P -m u:4250:r d/a.c",
        "--set u:4242:r d/a.c",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let place = |word: &str| match word {
            "d" => "disk.img:/d".to_owned(),
            word if word.starts_with("d/") => format!("disk.img:/{word}"),
            word => word.replace("../", ""),
        };
        let ours_words: Vec<_> = std::iter::once("setfacl".to_owned())
            .chain(words.iter().map(|word| place(word)))
            .collect();
        let ours_words: Vec<_> = ours_words.iter().map(String::as_str).collect();
        let shown = run(command(), image.scratch(), &ours_words);
        let expected = run(Command::new("setfacl"), &files, &words);
        assert_eq!(
            shown.status.code(),
            expected.status.code(),
            "{line}: {}",
            String::from_utf8_lossy(&shown.stderr)
        );
        let text = String::from_utf8_lossy(&shown.stdout).replace("disk.img:/", "");
        assert_eq!(text, String::from_utf8_lossy(&expected.stdout), "{line}");
        for options in [
            "-n", "-nt", "-ne", "-nE", "-nce", "-nta", "-ntd", "-nct", "-nP",
        ] {
            for file in ["d/a.c", "d/b.txt", "d/sub", "d/sub/c.c"] {
                let shown = ok(ours(
                    &image,
                    &["getfacl", options, &format!("disk.img:/{file}")],
                ));
                let expected = theirs(&files, "getfacl", &[options, file]);
                let shown = String::from_utf8_lossy(&shown);
                let expected = String::from_utf8_lossy(&expected);
                assert_eq!(shown, expected, "{line}, then getfacl {options} {file}");
            }
        }
    }
    sound(&image);
}

/// Returns the lines of dumpe2fs about the settings of a volume.
fn header(path: &Path) -> Vec<String> {
    let output = theirs(
        Path::new("."),
        "dumpe2fs",
        &["-h", path.to_str().expect("a path")],
    );
    let lines = String::from_utf8(output).expect("text");
    // To write to a volume is a mount, which leaves its traces.
    const TRACES: [&str; 5] = [
        "Last write time",
        "Last mount time",
        "Lifetime writes",
        "Journal",
        "Mount count",
    ];
    let is_trace = |line: &&str| {
        TRACES.iter().any(|trace| line.starts_with(trace)) || line.contains("hecksum")
    };
    lines
        .lines()
        .filter(|line| !is_trace(line))
        .map(str::to_owned)
        .collect()
}

#[test]
fn tune_options_are_those_of_tune2fs() {
    if !can_run(&[Need::Tool("tune2fs"), Need::Tool("dumpe2fs")]) {
        return;
    }
    let image = small();
    for line in [
        "-L label",
        "-e continue",
        "-e panic",
        "-e remount-ro",
        "-m 3",
        "-m 0",
        "-r 100",
        "-c 20",
        "-c -1",
        "-c 0",
        "-C 5",
        "-i 30",
        "-i 2w",
        "-i 6m",
        "-i 5d",
        "-i 0",
        "-T 20240229",
        "-T 20240229123456",
        "-u 1000",
        "-g 100000",
        "-M /mnt/there",
        "-o acl,user_xattr",
        "-o ^acl",
        "-o journal_data",
        "-o ^journal_data",
        "-o journal_data_writeback,discard",
        "-o debug,nodelalloc,block_validity,nobarrier,uid16,bsdgroups",
        "-O large_dir",
        "-O verity",
        "-O ea_inode,encrypt",
        "-O stable_inodes",
        "-O huge_file,dir_nlink,large_file",
        "-L x -m 2 -c 7",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let one = image.copy();
        let other = image.copy();
        let said = failed(
            &ours(&one, &[&["tune"], &words[..], &["disk.img"]].concat()),
            0,
        );
        let expected = if line == "-O verity" {
            "only reads this volume"
        } else {
            ""
        };
        assert!(
            said.contains(expected) && said.is_empty() == expected.is_empty(),
            "{line}: {said}"
        );
        theirs(
            other.scratch(),
            "tune2fs",
            &[&words[..], &["disk.img"]].concat(),
        );
        assert_same(line, &header(&one.path), &header(&other.path));
        sound(&one);
    }
    for (args, says) in [
        (&["-O", "^large_dir"][..], "large_dir cannot be taken away"),
        (&["-O", "flex_bg"], "flex_bg cannot be added"),
        (&["-O", "nonsense"], "nonsense is no feature"),
        (&["-o", "nonsense"], "nonsense is no default mount option"),
        (&["-l"], "-l: extern4 info shows the superblock"),
        (&["-I", "512"], "-I: every inode would have to be rewritten"),
    ] {
        let errors = failed(&ours(&image, &[&["tune"], args, &["disk.img"]].concat()), 2);
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    let errors = failed(&ours(&image, &["tune", "-u", "ann", "disk.img"]), 1);
    assert!(
        errors.contains("ann is not a user of 'disk.img'"),
        "{errors}"
    );
}
