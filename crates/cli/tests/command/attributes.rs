//! `getfacl` and `getfattr`, compared with Linux's.

use extern4_testkit::tools::find;

use crate::run::{assert_same, everything, extern4, machine, ok, tool};

/// Returns the paragraphs about files, sorted.
fn paragraphs(output: &[u8]) -> Vec<String> {
    let text = output
        .escape_ascii()
        .to_string()
        .replace("\\n", "\n")
        .replace("# file: ./", "# file: ");
    let mut all: Vec<_> = text
        .split("\n\n")
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    all.sort();
    all
}

#[test]
fn getfacl_is_that_of_linux() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    if find("getfacl").is_none() {
        return;
    }
    for flags in [
        &["-n"][..],
        &["-n", "-c"],
        &["-n", "-a"],
        &["-n", "-d"],
        &["-n", "-s"],
    ] {
        let ours = ok(extern4(
            image,
            [&["getfacl", "-R"], flags, &["disk.img"]].concat(),
        ));
        let theirs = tool(
            &mount.path,
            "getfacl",
            [&["-R", "-P"], flags, &["."]].concat(),
        );
        assert_same(
            &format!("{flags:?}"),
            &paragraphs(&ours),
            &paragraphs(&theirs),
        );
    }
}

#[test]
fn getfattr_is_that_of_linux() {
    let Some(all) = everything() else { return };
    let image = &all.image;
    let mount = &all.mount;
    if find("getfattr").is_none() {
        return;
    }
    for flags in [
        &["-d"][..],
        &["-d", "-e", "hex"],
        &["-d", "-e", "base64"],
        &[],
        &["-m", "^security"],
        &["-d", "-m", "-"],
    ] {
        let ours = ok(extern4(
            image,
            [&["getfattr", "-R", "-h"], flags, &["disk.img"]].concat(),
        ));
        let theirs = tool(
            &mount.path,
            "getfattr",
            [&["-R", "-h"], flags, &["."]].concat(),
        );
        assert_same(
            &format!("{flags:?}"),
            &paragraphs(&ours),
            &paragraphs(&theirs),
        );
    }
}

#[test]
fn acls_have_the_names_of_the_image() {
    let image = machine();
    let text = ok(extern4(&image, ["getfacl", "disk.img:/home/ann/notes.txt"]));
    let expected = "# file: home/ann/notes.txt\n# owner: ann\n# group: ann\nuser::rw-\ngroup::r--\nother::---\n\n";
    assert_eq!(String::from_utf8_lossy(&text), expected);
    let json = ok(extern4(
        &image,
        ["getfacl", "--json", "disk.img:/home/ann/notes.txt"],
    ));
    let json: serde_json::Value = serde_json::from_slice(&json).expect("an object");
    assert_eq!(json["uid"], 1000);
    assert_eq!(json["access"][0]["tag"], "user_obj");
    assert_eq!(json["access"][0]["perm"], "rw-");
}
