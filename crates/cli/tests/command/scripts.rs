//! Many changes of a volume in one go: `script`.

use extern4_testkit::image::ImageSpec;

use crate::run::{command, extern4, failed, machine, ok};
use crate::writing::{empty, fed, output_of, said, sound, stat, untouched};

#[test]
fn the_help_of_script_says_when_it_ends() {
    let help = said(&empty(), &["script", "--help"]).replace('\n', " ");
    assert!(
        help.contains("The first line that fails ends the script"),
        "{help}"
    );
}

/// A copy to the host clears the umask only while it works.
#[test]
fn a_copy_leaves_the_umask_to_later_commands() {
    let image = machine();
    let script = b"!umask >before\ncp /etc/hostname host:copy\n!umask >after\n";
    assert!(ok(fed(&image, &["script", "disk.img"], script)).is_empty());
    let read = |name| std::fs::read_to_string(image.scratch().join(name)).expect("a umask");
    assert_eq!(read("after"), read("before"));
}

#[test]
fn a_script_does_it_all() {
    let image = machine();
    std::fs::write(image.scratch().join("from host"), "of the host\n").expect("a file");
    let script = r"
        # A comment, and an empty line

        mkdir -p '/srv/my files' /srv/x   # behind a command
        cp 'host:from host' '/srv/my files/a'
        cp -a /home/ann /srv
        cp /etc/hostname host:hostname
        ln -s a /srv/my\ files/b
        chmod 600 '/srv/my files/a'
        chown ann:staff '/srv/my files/a'
        setfacl -m u:ann:rwx /srv/x
        setfattr -n user.x -v '0x0102' /srv/x
        touch -d @1000 /srv/x
        truncate -s 1K /srv/zeroes
        mv /srv/zeroes /srv/x
        rm -r /var
    ";
    assert!(ok(fed(&image, &["script", "disk.img"], script.as_bytes())).is_empty());
    assert_eq!(
        said(&image, &["cat", "disk.img:/srv/my files/b"]),
        "of the host\n"
    );
    assert_eq!(
        stat(&image, "%a %U:%G", "disk.img:/srv/my files/a"),
        "600 ann:staff"
    );
    assert_eq!(said(&image, &["ls", "disk.img:/srv/x"]), "zeroes\n");
    assert_eq!(
        said(&image, &["cat", "disk.img:/srv/ann/notes.txt"]),
        "buy milk\n"
    );
    assert_eq!(
        std::fs::read_to_string(image.scratch().join("hostname")).expect("a copy"),
        "tiny\n"
    );
    assert!(said(&image, &["getfattr", "-d", "disk.img:/srv/x"]).contains("user.x"));
    failed(&extern4(&image, ["ls", "disk.img:/var"]), 1);
    sound(&image);
}

#[test]
fn a_line_of_a_script_leaves_nothing_for_the_next() {
    let image = empty();
    let script = "mkdir -p /a/b\nmkdir /c /c/d\nchmod -R 700 /a\nchmod 755 /a\nchmod 750 /c\nchmod 711 /c/d\n\
                  cp -a /a /e\nmkdir /gone/f\n";
    let output = fed(&image, &["script", "disk.img"], script.as_bytes());
    let errors = failed(&output, 1);
    assert_eq!(
        errors,
        "extern4: script: standard input:8: 'disk.img:/gone/f': No such file or directory\n",
        "only the first line had -p"
    );
    assert_eq!(stat(&image, "%a", "disk.img:/a"), "755");
    assert_eq!(
        stat(&image, "%a", "disk.img:/a/b"),
        "700",
        "-R is of the line before"
    );
    assert_eq!(stat(&image, "%a", "disk.img:/c"), "750");
    sound(&image);
}

#[test]
fn a_script_stops_at_its_first_failure() {
    let image = machine();
    let script = "mkdir /one\nmkdir /two\nmkdir /gone/three\nmkdir /four\n";
    std::fs::write(image.scratch().join("lines"), script).expect("a script");
    let errors = failed(&extern4(&image, ["script", "disk.img", "lines"]), 1);
    assert_eq!(
        errors,
        "extern4: script: lines:3: 'disk.img:/gone/three': No such file or directory\n"
    );
    let said = said(&image, &["ls", "disk.img"]);
    assert!(
        said.contains("one\n") && said.contains("two\n") && !said.contains("four"),
        "{said}"
    );
    sound(&image);
    // A script with a wrong line changes nothing.
    let script = "mkdir /five\nmkdir --nonsense /six\nchmod 999 /\nmkdir '/seven\n";
    let errors = untouched(&image, || {
        failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 2)
    });
    for says in [
        "standard input:2: ",
        "--nonsense",
        "standard input:3: ",
        "standard input:4: a quote",
    ] {
        assert!(errors.contains(says), "{says}: {errors}");
    }
    assert_eq!(errors.lines().count(), 3, "{errors}");
    untouched(&image, || {
        failed(&extern4(&image, ["script", "disk.img", "gone"]), 1);
        failed(&extern4(&image, ["script", "disk.img:/etc", "lines"]), 2);
        failed(&extern4(&image, ["script", "lines", "lines"]), 3);
    });
}

#[test]
fn a_script_reads_and_stands_in_directories() {
    let image = machine();
    let script = r#"
        pwd; cd etc ; pwd
        cat hostname; ls
        cd ../home/ann; cat "$NOTES" \
            .profile   # two files
        stat -c '%n %s' todo ; find -name '*.txt'
        mkdir sub; cd sub; touch "${NOTES}x"; ls
        ! echo "of the host; $NOTES"
        get /etc/hostname
        df; info; inode -n 2; ncheck 2; icheck 1
        check
        stats
    "#;
    let mut command = command();
    command
        .current_dir(image.scratch())
        .env("NOTES", "notes.txt")
        .args(["script", "disk.img"]);
    let said = String::from_utf8(ok(output_of(command, script.as_bytes()))).expect("plain text");
    let start = "/\n/etc\ntiny\ngroup\nhostname\nos-release\npasswd\nbuy milk\numask 022\n\
                 /home/ann/todo 9\n/home/ann/notes.txt\nnotes.txtx\nof the host; notes.txt\ntiny\n";
    assert!(said.starts_with(start), "{said}");
    for says in ["tiny", "Inode:", "\n/\n", "nothing is wrong"] {
        assert!(said[start.len()..].contains(says), "{says}: {said}");
    }
    sound(&image);
}

#[test]
fn patterns_in_a_script_stand_for_the_files_that_match() {
    let image = machine();
    let script = r#"
        cd etc; ls *name; cat /home/*/notes.t?t
        find /home -name *.txt
        mkdir /x; cp [go]* /x; rm /x/'g'r*; ls /x
        touch "/x/*" '/x/[q]' /x/q
        rm '/x/*' /x/\[q]; ls /x
        begin; touch /x/new1 /x/new2; rm /x/new?; commit
        cp host:/dev/null '/x/a*b'; cd /x; ls a*b; mkdir '[d]'; cd '[d]'; touch e; ls ?; ls $PATTERN
    "#;
    let mut command = command();
    command
        .current_dir(image.scratch())
        .env("PATTERN", "?")
        .args(["script", "disk.img"]);
    let output = output_of(command, script.as_bytes());
    let errors = failed(&output, 1);
    let text = "/etc/hostname\nbuy milk\n/home/ann/notes.txt\nos-release\nos-release\nq\n/x/a*b\n/x/[d]/e\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{errors}");
    // Text of a variable is no pattern.
    assert_eq!(
        errors,
        "extern4: script: standard input:8: 'disk.img:/x/[d]/?': No such file or directory\n"
    );
    let output = fed(&image, &["script", "disk.img"], b"rm /x/no*\n");
    let errors = failed(&output, 1);
    assert_eq!(
        errors,
        "extern4: script: standard input:1: 'disk.img:/x/no*': No such file or directory\n"
    );
    sound(&image);
}

#[test]
fn a_script_that_only_reads_does_not_write() {
    let image = machine();
    let said = untouched(&image, || {
        ok(fed(
            &image,
            &["script", "disk.img"],
            b"cd /etc; cat hostname\nls -l",
        ))
    });
    assert!(said.starts_with(b"tiny\n"), "{}", said.escape_ascii());
}

#[test]
fn a_script_is_read_whole_before_it_runs() {
    let image = machine();
    let script =
        "mkdir /a; mkdir $UNSET/b\nmount x y\nbegin\ncd /; lcd /\nfind / -nonsense\nlogdump\n";
    let errors = untouched(&image, || {
        failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 2)
    });
    for says in [
        "standard input:1: the variable $UNSET is not set",
        "standard input:2: mount: ",
        "standard input:4: lcd: not between begin and commit",
        "standard input:5: ",
        "standard input:6: logdump: ",
        "standard input:6: a transaction has begun",
    ] {
        assert!(errors.contains(says), "{says}: {errors}");
    }
    assert_eq!(errors.lines().count(), 6, "{errors}");
}

#[test]
fn a_script_goes_to_a_directory_of_the_host() {
    let image = machine();
    std::fs::create_dir(image.scratch().join("inner")).expect("a directory");
    let script = "mkdir /new\nlcd inner\ncp /etc/hostname host:copy\nlpwd\nmkdir /other\ncd /gone\nmkdir /never\n";
    let output = fed(&image, &["script", "disk.img"], script.as_bytes());
    let errors = failed(&output, 1);
    assert!(
        errors.contains("standard input:6: ") && errors.contains(":/gone'"),
        "{errors}"
    );
    assert_eq!(
        std::fs::read_to_string(image.scratch().join("inner/copy")).expect("a copy"),
        "tiny\n"
    );
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("/inner\n"));
    let said = said(&image, &["ls", "disk.img"]);
    assert!(
        said.contains("new\n") && said.contains("other\n") && !said.contains("never"),
        "{said}"
    );
    sound(&image);
}

#[test]
fn a_transaction_is_done_whole_or_not_at_all() {
    let image = machine();
    std::fs::write(image.scratch().join("data"), [b'd'; 100_000]).expect("a file");
    let script = "mkdir /before\nbegin\nmkdir /a\ncp host:data /a/data\ncp host:data /etc/hostname\n\
                  truncate -s 3 /home/ann/notes.txt\nrm -r /var\ncd /a\nmv data moved\nls\ncommit\nmkdir b\n";
    let output = ok(fed(&image, &["script", "disk.img"], script.as_bytes()));
    assert_eq!(output, b"moved\n");
    assert_eq!(said(&image, &["ls", "disk.img:/a"]), "b\nmoved\n");
    assert_eq!(
        said(&image, &["cat", "disk.img:/home/ann/notes.txt"]),
        "buy"
    );
    assert_eq!(stat(&image, "%s", "disk.img:/etc/hostname"), "100000");
    sound(&image);
    // The last command fails, so nothing is done of those before it.
    let script = "mkdir /first\nbegin\nmkdir /second\nrm -r /a /etc\nmkdir /gone/third\ncommit\nmkdir /fourth\n";
    let errors = failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 1);
    assert_eq!(
        errors,
        "extern4: script: standard input:5: 'disk.img:/gone/third': No such file or directory\n\
         extern4: script: standard input:5: 'disk.img': nothing between begin and commit was done\n"
    );
    let listed = said(&image, &["ls", "disk.img"]);
    assert!(
        listed.contains("first") && listed.contains("etc") && listed.starts_with("a\n"),
        "{listed}"
    );
    assert!(
        !listed.contains("second") && !listed.contains("fourth"),
        "{listed}"
    );
    sound(&image);
    let script = "begin\nmkdir /second\nabort\nmkdir /third\n";
    ok(fed(&image, &["script", "disk.img"], script.as_bytes()));
    let listed = said(&image, &["ls", "disk.img"]);
    assert!(
        !listed.contains("second") && listed.contains("third"),
        "{listed}"
    );
}

#[test]
fn a_transaction_that_does_not_fit_is_refused_with_its_size() {
    let image = ImageSpec::new(
        "disk",
        64 << 20,
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "30000"],
    )
    .build();
    let makes = |count: usize| {
        let files: String = (0..count).map(|at| format!("mkdir /d{at}\n")).collect();
        format!("mkdir /kept\nbegin\n{files}commit\nmkdir /later\n")
    };
    let errors = failed(
        &fed(&image, &["script", "disk.img"], makes(2000).as_bytes()),
        1,
    );
    let sizes = errors
        .lines()
        .next()
        .and_then(|line| line.split_once("a transaction of "))
        .expect("the sizes")
        .1;
    let (needs, has) = sizes
        .split_once(" blocks does not fit into a log of ")
        .expect("the sizes");
    let (needs, has): (u32, u32) = (
        needs.parse().expect("a number"),
        has.parse().expect("a number"),
    );
    assert!(needs > 2000 && (900..1024).contains(&has), "{errors}");
    assert!(
        errors.contains("nothing between begin and commit was done"),
        "{errors}"
    );
    assert_eq!(said(&image, &["ls", "disk.img"]), "kept\nlost+found\n");
    sound(&image);
    // More than the journal takes at once as a rule, which is half of it.
    let script = makes(500).replace("mkdir /kept\n", "");
    assert!(ok(fed(&image, &["script", "disk.img"], script.as_bytes())).is_empty());
    assert_eq!(said(&image, &["ls", "disk.img"]).lines().count(), 503);
    sound(&image);
    let plain = ImageSpec::new("disk", 16 << 20, &["-t", "ext2"]).build();
    let errors = failed(
        &fed(&plain, &["script", "disk.img"], b"begin; mkdir /a; commit"),
        3,
    );
    assert!(errors.contains("it has no journal"), "{errors}");
    sound(&plain);
}
