//! Redirections of scripts and of the shell: files of the volume and of the host, and programs.

use extern4_testkit::image::Image;

use crate::run::{extern4, failed, machine, ok};
use crate::writing::{empty, fed, said, sound, untouched};

/// Returns a file next to the image.
fn host(image: &Image, name: &str) -> String {
    std::fs::read_to_string(image.scratch().join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Runs a script that has to succeed, and returns its output.
#[track_caller]
fn script(image: &Image, text: &str) -> String {
    String::from_utf8(ok(fed(image, &["script", "disk.img"], text.as_bytes()))).expect("text")
}

#[test]
fn output_goes_into_files() {
    let image = machine();
    let output = script(
        &image,
        "ls /etc > /list; ls -d /home>>/list
         cat /list >> /twice; cat /list >> /twice
         cd /home; ls > list; pwd > /pwd; lpwd > host:lpwd
         cat /etc/hostname > host:name; ls /home/ann >> 'host:name'
         rm -v /etc/os-release > '/the log'
         cat /pwd > /pwd",
    );
    assert_eq!(output, "");
    let list = "group\nhostname\nos-release\npasswd\n/home\n";
    assert_eq!(said(&image, &["cat", "disk.img:/list"]), list);
    assert_eq!(said(&image, &["cat", "disk.img:/twice"]), list.repeat(2));
    assert_eq!(said(&image, &["cat", "disk.img:/home/list"]), "ann\n");
    assert_eq!(said(&image, &["cat", "disk.img:/pwd"]), "/home\n");
    assert_eq!(host(&image, "name"), "tiny\nnotes.txt\ntodo\n");
    assert!(host(&image, "lpwd").ends_with('\n'));
    assert_eq!(
        said(&image, &["cat", "disk.img:/the log"]),
        "removed 'disk.img:/etc/os-release'\n"
    );
    assert_eq!(said(&image, &["stat", "-c%a", "disk.img:/list"]), "644\n");
    sound(&image);
}

#[test]
fn input_comes_from_files() {
    let image = machine();
    std::fs::write(image.scratch().join("in"), "of the host\n").expect("a file");
    let output = script(
        &image,
        "cat - < /etc/hostname; cat -n < host:in
         put /new < host:in; put /copy < /etc/hostname; cat - < /new >> /copy; cat /copy",
    );
    assert_eq!(output, "tiny\n     1\tof the host\ntiny\nof the host\n");
    for (line, says) in [
        (
            "cat - < /gone",
            "'disk.img:/gone': No such file or directory",
        ),
        ("cat - < host:gone", "'gone': No such file or directory"),
        ("cat - < /etc", "'disk.img:/etc': Is a directory"),
    ] {
        let output = fed(
            &image,
            &["shell", "disk.img"],
            format!("{line}\n").as_bytes(),
        );
        let errors = failed(&output, 1);
        assert_eq!(
            errors,
            format!("extern4: shell: standard input:1: {says}\n")
        );
    }
    sound(&image);
}

#[test]
fn output_is_piped_to_programs_of_the_host() {
    let image = machine();
    let output = script(
        &image,
        "ls /etc | wc -l; echo 'of the host' > out; echo $((1 + 1))
         cat - < /etc/hostname | tr a-z A-Z
         cat /etc/passwd | while read line; do echo \"<$line>\"; done | head -n 1
         cat /var/log/old.gz | gzip > a.gz && gzip -t a.gz",
    );
    assert_eq!(output, "4\n2\nTINY\n<root:x:0:0::/root:/bin/sh>\n");
    assert_eq!(host(&image, "out"), "of the host\n");
    // A program may read less than all, and fail.
    std::fs::write(image.scratch().join("big"), vec![b'x'; 1 << 20]).expect("a file");
    let lines = "cp host:big /big\ncat /big | head -c 1; echo\nls -d /etc | false\nls -d /home\n";
    let output = fed(&image, &["shell", "disk.img"], lines.as_bytes());
    let errors = failed(&output, 1);
    let says = "the host's command behind '|': exit status: 1";
    assert_eq!(
        errors,
        format!("extern4: shell: standard input:3: {says}\n")
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n/home\n");
    let output = fed(
        &image,
        &["script", "disk.img"],
        b"ls | exit 3\nmkdir /late\n",
    );
    assert!(failed(&output, 1).contains("exit status: 3"));
    sound(&image);
}

/// No name of the image is a part of a command of the host.
#[test]
fn names_of_the_image_do_not_reach_a_shell_of_the_host() {
    let image = machine();
    let script =
        b"touch '/$(touch pwned)' '/;touch pwned;' '/`touch pwned`'\nls /* | cat\nls /* > host:out\n";
    ok(fed(&image, &["script", "disk.img"], script));
    assert!(host(&image, "out").contains("touch pwned"));
    assert!(!image.scratch().join("pwned").exists());
}

#[test]
fn a_file_gets_the_whole_output_or_none() {
    let image = machine();
    let lines = "cat /etc/hostname /gone > /etc/hostname\ncat /gone >> /etc/hostname\nls > /gone/x\nls > /etc\n\
                 cat /gone > /never\n";
    let errors = untouched(&image, || {
        failed(
            &fed(&image, &["shell", "-r", "disk.img"], lines.as_bytes()),
            1,
        )
    });
    assert_eq!(errors.lines().count(), 5, "{errors}");
    let errors = failed(&fed(&image, &["shell", "disk.img"], lines.as_bytes()), 1);
    for says in [
        "standard input:1: 'disk.img:/gone': No such file",
        "standard input:3: 'disk.img:/gone/x': No such file",
        "standard input:4: 'disk.img:/etc': Is a directory",
    ] {
        assert!(errors.contains(says), "{says}: {errors}");
    }
    assert_eq!(said(&image, &["cat", "disk.img:/etc/hostname"]), "tiny\n");
    failed(&extern4(&image, ["ls", "disk.img:/never"]), 1);
    // A volume without room for it.
    let full = empty();
    let big = std::fs::File::create(full.scratch().join("big")).expect("a file");
    big.set_len(64 << 20).expect("a size");
    let lines = b"ls / > /a\ncat - < host:big > /a\ncat - < host:big >> /a\n";
    let errors = failed(&fed(&full, &["shell", "disk.img"], lines), 1);
    assert_eq!(
        errors.matches("No space left on device").count(),
        2,
        "{errors}"
    );
    assert_eq!(said(&full, &["cat", "disk.img:/a"]), "lost+found\n");
    sound(&image);
    sound(&full);
}

#[test]
fn a_shell_that_only_reads_writes_to_the_host() {
    let image = machine();
    untouched(&image, || {
        let output = fed(
            &image,
            &["shell", "-r", "disk.img"],
            b"ls /etc > /x\nls /etc > host:x\nls | cat\n",
        );
        let errors = failed(&output, 1);
        assert_eq!(
            errors,
            "extern4: shell: standard input:1: 'disk.img:/x': Read-only file system\n"
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 6);
        ok(fed(
            &image,
            &["script", "disk.img"],
            b"ls /etc > host:x\nls /etc | cat > /dev/null\n",
        ));
    });
    assert_eq!(host(&image, "x"), "group\nhostname\nos-release\npasswd\n");
}

#[test]
fn redirections_belong_to_transactions() {
    let image = machine();
    // Help is shown at once, but not into a file of the volume.
    assert_eq!(
        ok(fed(
            &image,
            &["shell", "disk.img"],
            b"begin\nhelp > /help\nabort\n"
        )),
        b""
    );
    failed(&extern4(&image, ["ls", "disk.img:/help"]), 1);
    let good =
        "begin; ls /etc > /a; cat /a >> /etc/hostname; put /b < /a; ls / | wc -l >> out\ncommit\n";
    assert_eq!(script(&image, good), "");
    let list = "group\nhostname\nos-release\npasswd\n";
    assert_eq!(
        said(&image, &["cat", "disk.img:/etc/hostname"]),
        format!("tiny\n{list}")
    );
    assert_eq!(said(&image, &["cat", "disk.img:/b"]), list);
    assert_eq!(host(&image, "out"), "8\n");
    for last in ["cat /gone", "ls | false"] {
        let bad = format!("begin; ls > /c; ls >> /a; ls > /etc/passwd; {last}\ncommit\n");
        let errors = failed(&fed(&image, &["script", "disk.img"], bad.as_bytes()), 1);
        assert!(
            errors.contains("nothing between begin and commit was done"),
            "{errors}"
        );
        failed(&extern4(&image, ["ls", "disk.img:/c"]), 1);
        assert_eq!(said(&image, &["cat", "disk.img:/a"]), list);
        assert!(said(&image, &["cat", "disk.img:/etc/passwd"]).starts_with("root:"));
    }
    sound(&image);
}

#[test]
fn operators_of_other_shells_are_refused_before_anything_runs() {
    let image = machine();
    for line in [
        "mkdir /a && rm /etc/passwd",
        "mkdir /a; rm /gone || rm /etc/passwd",
        "mkdir /a; ls &",
        "mkdir /a; ls 2> /etc/passwd",
        "mkdir /a; ls <<END",
        "mkdir /a; ls > /a > /b",
        "mkdir /a; begin > /b",
        "mkdir /a; put /etc/passwd",
    ] {
        untouched(&image, || {
            let errors = failed(
                &fed(
                    &image,
                    &["script", "disk.img"],
                    format!("{line}\n").as_bytes(),
                ),
                2,
            );
            assert!(
                errors.starts_with("extern4: script: standard input:1: "),
                "{line}: {errors}"
            );
        });
    }
    let lines = b"ls -d /etc && rm /etc/passwd\nls -d /home; ls -d /etc & rm /etc/passwd\n";
    let output = untouched(&image, || fed(&image, &["shell", "disk.img"], lines));
    let errors = failed(&output, 2);
    assert!(
        errors.contains("1: '&&' has no meaning here: a ';' or a new line ends a command"),
        "{errors}"
    );
    assert!(errors.contains("standard input:2: '&' "), "{errors}");
    assert_eq!(output.stdout, b"");
    // Quoted, they are text.
    assert_eq!(
        script(
            &image,
            "touch '/a&b' /c\\|d '/e>f'; ls '/a&b' /c\\|d /e\\>f"
        ),
        "/a&b\n/c|d\n/e>f\n"
    );
}

#[test]
fn a_number_in_angle_brackets_names_a_file() {
    let image = machine();
    let inode = |path: &str| {
        said(&image, &["stat", "-c%i", &format!("disk.img:{path}")])
            .trim_end()
            .to_owned()
    };
    let name = inode("/etc/hostname");
    let passwd = inode("/etc/passwd");
    let ann = inode("/home/ann");
    let text = format!(
        "cat <{name}>; stat -c %n <{name}>; ls -d <{name}> <2>; cp <{name}> host:copy; chmod 600 <{passwd}>
         cd <{ann}>; pwd; ls; cat notes.txt; cd -; find -maxdepth 0; cd -; find -name 't*'
         begin; cd <2>; mkdir here; rm <{name}>; commit; pwd
         dump <{passwd}> out; stat <{passwd}> | head -n 1"
    );
    let said_all = script(&image, &text);
    let expected = "tiny\n/etc/hostname\n/\n/etc/hostname\n/home/ann\nnotes.txt\ntodo\nbuy milk\n/\n/\n\
                    /home/ann\n/home/ann/todo\n/\n";
    assert!(said_all.starts_with(expected), "{said_all}");
    assert!(
        said_all[expected.len()..].starts_with("Inode:"),
        "{said_all}"
    );
    assert_eq!(host(&image, "copy"), "tiny\n");
    assert!(host(&image, "out").starts_with("root:"));
    assert_eq!(
        said(&image, &["stat", "-c%a", "disk.img:/etc/passwd"]),
        "600\n"
    );
    assert_eq!(said(&image, &["ls", "-d", "disk.img:/here"]), "/here\n");
    failed(&extern4(&image, ["ls", "disk.img:/etc/hostname"]), 1);
    for (line, code, says) in [
        (
            "cat <99>",
            1,
            "'<99>': no file has this inode number; 'inode -n 99' shows the inode",
        ),
        ("cp -t <2> /etc", 2, "<2>: an inode cannot stand here"),
        ("cat x<2>", 2, "<2>: an inode is a word by itself"),
        ("cat '<2>'", 1, "'disk.img:/<2>': No such file or directory"),
    ] {
        let errors = failed(
            &fed(
                &image,
                &["shell", "disk.img"],
                format!("{line}\n").as_bytes(),
            ),
            code,
        );
        assert_eq!(
            errors,
            format!("extern4: shell: standard input:1: {says}\n")
        );
    }
    sound(&image);
}
