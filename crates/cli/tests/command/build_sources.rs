//! Sources of `build` and `diff`: images of containers, single files, and what is left out of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Output, Stdio};

use extern4_testkit::tools::{Need, can_run, e2fsck, temporary};

use crate::run::{command, extern4_in, failed, ok, tool};

/// Makes an archive as `docker save` does, with images of these names and this platform. The files
/// in them have the names of the images, with `_` for `/`.
fn saved(at: &Path, archive: &str, names: &[&str], architecture: &str) {
    let mut manifest = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let file = name.replace('/', "_");
        fs::write(at.join(&file), *name).expect("a file");
        let layer = format!("layer{number}.tar");
        tool(at, "tar", ["-cf", &layer, &file]);
        let sum = String::from_utf8(tool(at, "sha256sum", [&layer])).expect("UTF-8");
        let config = format!(
            r#"{{"os":"linux","architecture":"{architecture}","config":{{"User":"web","Env":["A=1"],"Cmd":["/{file}"],
            "WorkingDir":"/srv","ExposedPorts":{{"80/tcp":{{}}}},"Labels":{{"a":"b"}}}},
            "rootfs":{{"type":"layers","diff_ids":["sha256:{}"]}}}}"#,
            &sum[..64]
        );
        fs::write(at.join(format!("config{number}.json")), config).expect("a file");
        manifest.push(format!(
            r#"{{"Config":"config{number}.json","RepoTags":["{name}"],"Layers":["{layer}"]}}"#
        ));
    }
    fs::write(
        at.join("manifest.json"),
        format!("[{}]", manifest.join(",")),
    )
    .expect("a file");
    let script = format!(
        "tar -cf {archive} manifest.json config*.json layer*.tar; rm config*.json layer*.tar"
    );
    tool(at, "sh", ["-c", &script]);
}

/// Runs the command with a file as its standard input.
fn with_input(at: &Path, input: &str, args: &[&str]) -> Output {
    let input = fs::File::open(at.join(input)).expect("a file");
    command()
        .current_dir(at)
        .args(args)
        .stdin(Stdio::from(input))
        .output()
        .expect("the command")
}

#[test]
fn images_are_chosen_by_the_names_that_tools_write() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    let names = [
        "docker.io/library/one:latest",
        "docker.io/library/two:latest",
    ];
    saved(at, "save.tar", &names, "amd64");
    let has = |image: &str| String::from_utf8(ok(extern4_in(at, ["ls", image]))).expect("UTF-8");
    for name in [names[1], "two:latest", "two"] {
        let source = format!("oci:save.tar:{name}");
        ok(extern4_in(
            at,
            [
                "build",
                "-qF",
                "--platform",
                "linux/amd64",
                "out.img",
                &source,
            ],
        ));
        assert!(has("out.img").contains("two:latest"), "{name}");
        ok(extern4_in(
            at,
            ["diff", "--platform", "linux/amd64", "out.img", &source],
        ));
    }
    let said = failed(&extern4_in(at, ["build", "none.img", "oci:save.tar"]), 1);
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    let said = failed(
        &extern4_in(at, ["build", "none.img", "oci:save.tar:three"]),
        1,
    );
    assert!(
        said.contains("'three'") && said.contains(names[0]),
        "{said}"
    );
    // The directory of the volume comes last, and `-` is standard input.
    let place = format!("oci:save.tar:{}:/srv", names[0]);
    ok(extern4_in(at, ["build", "-qF", "out.img", &place]));
    assert!(has("out.img:/srv").contains("one:latest"));
    ok(with_input(
        at,
        "save.tar",
        &["build", "-qF", "out.img", "oci:-:two"],
    ));
    assert!(has("out.img").contains("two:latest"));
    ok(with_input(
        at,
        "save.tar",
        &["diff", "out.img", "oci:-:two"],
    ));
}

#[test]
fn an_image_for_another_platform_is_taken_only_on_demand() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    ok(extern4_in(at, ["build", "-q", "tree.img", "tree"]));
    ok(extern4_in(
        at,
        [
            "export",
            "--platform",
            "linux/mips",
            "-o",
            "oci:lay:v1",
            "tree.img",
        ],
    ));
    let index = fs::read_to_string(at.join("lay/index.json")).expect("an index");
    let platform = r#""platform":{"os":"linux","architecture":"mips"},"annotations""#;
    fs::write(
        at.join("lay/index.json"),
        index.replace(r#""annotations""#, platform),
    )
    .expect("a file");
    for args in [
        &["build", "none.img", "oci:lay:v1"][..],
        &["diff", "tree.img", "oci:lay"],
    ] {
        let said = failed(&extern4_in(at, args), if args[0] == "diff" { 2 } else { 1 });
        assert!(said.contains("but for linux/mips"), "{said}");
    }
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "--platform",
            "linux/mips",
            "out.img",
            "oci:lay:v1",
        ],
    ));
    let said = failed(
        &extern4_in(
            at,
            ["build", "--platform", "linux/mips", "none.img", "tree"],
        ),
        2,
    );
    assert!(said.contains("--platform"), "{said}");
    // A directory called oci changes nothing.
    fs::create_dir(at.join("oci")).expect("a directory");
    ok(extern4_in(
        at,
        ["diff", "--platform", "linux/mips", "tree.img", "oci:lay:v1"],
    ));
}

#[test]
fn the_configuration_of_an_image_is_in_the_json() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    saved(at, "save.tar", &["app:1"], "amd64");
    fs::create_dir(at.join("more")).expect("a directory");
    let built = ok(extern4_in(
        at,
        ["build", "--json", "out.img", "oci:save.tar", "more"],
    ));
    let built: serde_json::Value = serde_json::from_slice(&built).expect("JSON");
    let expected = serde_json::json!({
        "platform": "linux/amd64", "user": "web", "working_dir": "/srv", "stop_signal": null, "env": ["A=1"],
        "entrypoint": [], "cmd": ["/app:1"], "exposed_ports": ["80/tcp"], "volumes": [],
        "labels": [{ "name": "a", "value": "b" }],
    });
    assert_eq!(built["container"], expected);
    let built = ok(extern4_in(at, ["build", "-F", "--json", "out.img", "more"]));
    let built: serde_json::Value = serde_json::from_slice(&built).expect("JSON");
    assert!(built.get("container").is_none());
}

#[test]
fn a_directory_over_a_link_to_one() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir_all(at.join("lower/usr/bin")).expect("directories");
    fs::write(at.join("lower/usr/bin/sh"), "").expect("a file");
    symlink("usr/bin", at.join("lower/bin")).expect("a link");
    symlink("nowhere", at.join("lower/dangling")).expect("a link");
    fs::create_dir_all(at.join("upper/bin")).expect("directories");
    fs::create_dir(at.join("upper/dangling")).expect("a directory");
    fs::write(at.join("upper/bin/tool"), "tool").expect("a file");
    let ls = |image: &str| String::from_utf8(ok(extern4_in(at, ["ls", image]))).expect("UTF-8");
    let built = extern4_in(at, ["build", "-q", "replaced.img", "lower", "upper"]);
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    assert!(built.status.success(), "{said}");
    assert!(
        said.contains("/bin: a directory replaces the symbolic link to 'usr/bin'"),
        "{said}"
    );
    assert!(!said.contains("dangling"), "{said}");
    assert_eq!(
        (ls("replaced.img:/bin"), ls("replaced.img:/usr/bin")),
        ("tool\n".into(), "sh\n".into())
    );
    let kept = extern4_in(
        at,
        [
            "build",
            "-q",
            "--keep-directory-symlink",
            "kept.img",
            "lower",
            "upper",
        ],
    );
    assert!(
        kept.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&kept.stderr)
    );
    ok(kept);
    assert_eq!(ls("kept.img:/usr/bin"), "sh\ntool\n");
    assert_eq!(
        ok(extern4_in(at, ["readlink", "kept.img:/bin"])),
        b"usr/bin\n"
    );
    // The same when an archive is unpacked.
    tool(at, "tar", ["-cf", "upper.tar", "-C", "upper", "bin"]);
    ok(extern4_in(
        at,
        ["build", "-q", "--size", "4M", "base.img", "lower"],
    ));
    fs::copy(at.join("base.img"), at.join("other.img")).expect("a copy");
    let unpacked = extern4_in(at, ["tar", "-xf", "upper.tar", "-C", "base.img:/"]);
    let said = String::from_utf8_lossy(&unpacked.stderr).into_owned();
    assert!(unpacked.status.success(), "{said}");
    assert!(
        said.contains("/bin: a directory replaces the symbolic link"),
        "{said}"
    );
    assert_eq!(ls("base.img:/bin"), "tool\n");
    let before = ok(extern4_in(
        at,
        ["stat", "-c", "%a", "other.img:/usr/bin", "other.img:/bin"],
    ));
    let unpacked = extern4_in(
        at,
        [
            "tar",
            "-xf",
            "upper.tar",
            "--keep-directory-symlink",
            "-C",
            "other.img:/",
        ],
    );
    assert!(
        unpacked.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&unpacked.stderr)
    );
    ok(unpacked);
    assert_eq!(ls("other.img:/usr/bin"), "sh\ntool\n");
    let after = ok(extern4_in(
        at,
        ["stat", "-c", "%a", "other.img:/usr/bin", "other.img:/bin"],
    ));
    assert_eq!(before, after);
    if can_run(&[Need::Tool("e2fsck")]) {
        for image in ["replaced.img", "kept.img", "base.img", "other.img"] {
            e2fsck(&at.join(image)).expect("a sound volume");
        }
    }
}

#[test]
fn a_file_with_a_place_is_put_there() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("agent"), "agent").expect("a file");
    fs::write(at.join("empty"), "").expect("a file");
    tool(at, "chmod", ["4755", "agent"]);
    tool(at, "sh", ["-c", "gzip -c < agent > agent.gz"]);
    tool(at, "tar", ["-cf", "unpacked", "agent"]);
    let sources = [
        "tree",
        "agent:/sbin/init",
        "agent.gz:/opt/",
        "empty:/e",
        "unpacked:/u",
    ];
    ok(extern4_in(
        at,
        [&["build", "-q", "out.img"][..], &sources].concat(),
    ));
    let read = |path: &str| ok(extern4_in(at, ["cat", &format!("out.img:{path}")]));
    assert_eq!(
        (read("/sbin/init"), read("/u/agent"), read("/e")),
        (b"agent".into(), b"agent".into(), vec![])
    );
    assert_eq!(
        read("/opt/agent.gz"),
        fs::read(at.join("agent.gz")).expect("a file")
    );
    assert_eq!(
        ok(extern4_in(at, ["stat", "-c", "%a", "out.img:/sbin/init"])),
        b"4755\n"
    );
    // Without a place it has to be an archive, and so has a file that is called one.
    assert!(
        failed(&extern4_in(at, ["build", "none.img", "agent"]), 1).contains("'agent'")
            || !at.join("none.img").exists()
    );
    fs::write(at.join("root.tar.gz"), "damaged").expect("a file");
    let said = failed(
        &extern4_in(at, ["build", "none.img", "root.tar.gz:/opt"]),
        1,
    );
    assert!(said.contains("root.tar.gz"), "{said}");
    // A file whose whole name is the source's is meant as a whole.
    fs::create_dir(at.join("agent:")).expect("a directory");
    fs::rename(at.join("unpacked"), at.join("agent:/x")).expect("a file");
    ok(extern4_in(at, ["build", "-qF", "out.img", "agent:/x"]));
    assert_eq!(read("/agent"), b"agent");
}

#[test]
fn the_output_is_left_out_of_its_source() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::write(at.join("file"), "text").expect("a file");
    let build = |args: &[&str]| extern4_in(at, [&["build", "-q"][..], args].concat());
    ok(build(&["root.img", "."]));
    let first = fs::read(at.join("root.img")).expect("an image");
    let again = build(&["-F", "root.img", "."]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.success(), "{said}");
    assert!(
        said.contains("root.img' is the output itself and is left out"),
        "{said}"
    );
    assert!(!String::from_utf8_lossy(&ok(extern4_in(at, ["ls", "root.img"]))).contains("root.img"));
    assert_eq!(
        fs::read(at.join("root.img")).expect("an image").len(),
        first.len()
    );
    // Colons belong to the name.
    ok(build(&["2024-01-01T10:00.img", "root.img"]));
    assert!(at.join("2024-01-01T10:00.img").exists());
}

#[test]
fn attributes_are_left_out_on_demand() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), "text").expect("a file");
    if !can_run(&[
        Need::Tool("setfattr"),
        Need::Tool("setfacl"),
        Need::Tool("tar"),
    ]) {
        return;
    }
    tool(at, "chmod", ["640", "tree/file"]);
    tool(at, "setfattr", ["-n", "user.a", "-v", "b", "tree/file"]);
    tool(at, "setfacl", ["-m", "u:1234:rwx", "tree/file"]);
    tool(
        at,
        "tar",
        ["--xattrs", "--acls", "-cf", "tree.tar", "-C", "tree", "."],
    );
    ok(extern4_in(at, ["build", "-q", "tree.img", "tree"]));
    for source in ["tree", "tree.tar", "tree.img"] {
        ok(extern4_in(
            at,
            ["build", "-qF", "--no-xattrs", "out.img", source],
        ));
        assert_eq!(
            ok(extern4_in(at, ["getfattr", "-m", "-", "out.img:/file"])),
            b"",
            "{source}"
        );
        // The group keeps its own rights, and not the rights of the mask.
        assert_eq!(
            ok(extern4_in(at, ["stat", "-c", "%a", "out.img:/file"])),
            b"640\n",
            "{source}"
        );
    }
}

#[test]
fn blocks_of_zeroes_become_holes_on_demand() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    let mut bytes = vec![0; 3 << 20];
    bytes[(1 << 20) + 5] = 1;
    bytes.extend([7; 100]);
    fs::write(at.join("tree/file"), &bytes).expect("a file");
    fs::write(at.join("tree/zero"), vec![0; 100_000]).expect("a file");
    tool(at, "tar", ["-cf", "tree.tar", "-C", "tree", "."]);
    for source in ["tree", "tree.tar"] {
        ok(extern4_in(
            at,
            ["build", "-qF", "--sparse", "-b", "4096", "out.img", source],
        ));
        assert_eq!(ok(extern4_in(at, ["cat", "out.img:/file"])), bytes);
        assert_eq!(
            ok(extern4_in(at, ["cat", "out.img:/zero"])),
            vec![0; 100_000]
        );
        let blocks = ok(extern4_in(
            at,
            ["stat", "-c", "%b", "out.img:/file", "out.img:/zero"],
        ));
        assert_eq!(blocks, b"16\n0\n", "{source}");
        if can_run(&[Need::Tool("e2fsck")]) {
            e2fsck(&at.join("out.img")).expect("a sound volume");
        }
    }
}

#[test]
fn sizes_are_fractions_and_shares() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir(at.join("tree")).expect("a directory");
    fs::write(at.join("tree/file"), vec![7; 2_000_000]).expect("a file");
    let size = |wanted: &str| {
        ok(extern4_in(
            at,
            ["build", "-qF", "--size", wanted, "out.img", "tree"],
        ));
        fs::metadata(at.join("out.img")).expect("an image").len()
    };
    assert_eq!(size("4.5M"), 9 << 19);
    let least = size("auto");
    let more = size("+50%");
    assert!(more >= least * 3 / 2 && more < least * 2, "{least} {more}");
    for wrong in ["+%", "+1x%", "1.5", "+-1%"] {
        failed(
            &extern4_in(at, ["build", "--size", wrong, "none.img", "tree"]),
            2,
        );
    }
}

#[test]
fn owners_are_named_as_in_the_tree() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/etc")).expect("directories");
    fs::write(
        at.join("tree/etc/passwd"),
        "root:x:0:0::/:\nweb:x:107:33::/:\n",
    )
    .expect("a file");
    fs::write(at.join("upper"), "root:x:0:\nwww:x:133:\n").expect("a file");
    ok(extern4_in(
        at,
        [
            "build",
            "-q",
            "--owner",
            "web:www",
            "out.img",
            "tree",
            "upper:/etc/group",
        ],
    ));
    let owner = |path: &str| {
        ok(extern4_in(
            at,
            ["stat", "-c", "%u:%g", &format!("out.img:{path}")],
        ))
    };
    assert_eq!(
        (owner("/etc/passwd"), owner("/")),
        (b"107:133\n".into(), b"107:133\n".into())
    );
    ok(extern4_in(
        at,
        ["build", "-qF", "--owner", "web:5", "out.img", "tree"],
    ));
    assert_eq!(owner("/etc"), b"107:5\n");
    let said = failed(
        &extern4_in(at, ["build", "--owner", "web:www", "none.img", "tree"]),
        1,
    );
    assert!(
        said.contains("www") && said.contains("/etc/group"),
        "{said}"
    );
    assert!(!at.join("none.img").exists());
}

#[test]
fn an_image_goes_to_standard_output_as_to_a_file() {
    let dir = temporary("extern4-sources-");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/many")).expect("directories");
    for number in 0..300_u64 {
        let bytes = extern4_testkit::plan::pattern(number, 0, (number * 37) as usize);
        fs::write(at.join(format!("tree/many/file{number}")), bytes).expect("a file");
    }
    let large = extern4_testkit::plan::pattern(1, 0, 3_000_001);
    fs::write(at.join("tree/large"), &large).expect("a file");
    let sparse = fs::File::create(at.join("tree/sparse")).expect("a file");
    std::os::unix::fs::FileExt::write_at(&sparse, b"x", 5 << 20).expect("a hole");
    symlink("x".repeat(100), at.join("tree/link")).expect("a link");
    tool(at, "tar", ["-cf", "tree.tar", "-C", "tree", "."]);
    for options in [
        &["-b", "4096"][..],
        &["-b", "1024", "--size", "40M"],
        &["--partition", "--verity", "--label", "l"],
        &[
            "--fs-verity",
            "large",
            "-b",
            "4096",
            "--uuid",
            "11111111-2222-3333-4444-555555555555",
        ],
        &["-O", "^metadata_csum", "-t", "ext2"],
    ] {
        for source in ["tree", "tree.tar"] {
            let to_file = ok(extern4_in(
                at,
                [&["build", "-F"], options, &["file.img", source]].concat(),
            ));
            let streamed = extern4_in(at, [&["build"], options, &["-", source]].concat());
            assert!(streamed.status.success(), "{options:?}");
            assert_eq!(
                String::from_utf8_lossy(&streamed.stderr),
                String::from_utf8_lossy(&to_file)
            );
            assert!(
                streamed.stdout == fs::read(at.join("file.img")).expect("an image"),
                "{options:?} {source}"
            );
        }
    }
    let input = with_input(at, "tree.tar", &["build", "-q", "-", "-"]);
    ok(extern4_in(at, ["build", "-qF", "file.img", "tree.tar"]));
    assert!(ok(input) == fs::read(at.join("file.img")).expect("an image"));
    // A shell sends it into the directory that it is made of.
    let shell = format!(
        "{} build -q - . > tree/own.img",
        env!("CARGO_BIN_EXE_extern4")
    );
    let mut run = std::process::Command::new("sh");
    let run = run
        .args(["-c", &shell.replace(" - . >", " - tree >")])
        .current_dir(at)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        run.status.success() && said.contains("own.img' is the output itself"),
        "{said}"
    );
    let full = fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("a full device");
    let mut full_run = command();
    let full_run = full_run
        .current_dir(at)
        .args(["build", "-q", "-", "tree"])
        .stdout(full);
    let said = failed(&full_run.output().expect("the command"), 1);
    assert!(
        said.contains("standard output") && said.contains("No space left"),
        "{said}"
    );
    failed(&extern4_in(at, ["build", "--update", "-", "tree"]), 2);
}
