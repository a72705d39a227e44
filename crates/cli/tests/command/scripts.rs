//! Many changes of a volume in one go: `script`.

use crate::run::{extern4, failed, machine, ok};
use crate::writing::{empty, fed, said, sound, stat, untouched};

#[test]
fn the_help_of_script_says_when_it_ends() {
    let help = said(&empty(), &["script", "--help"]).replace('\n', " ");
    assert!(help.contains("The first line that fails ends the script"), "{help}");
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
    assert_eq!(said(&image, &["cat", "disk.img:/srv/my files/b"]), "of the host\n");
    assert_eq!(stat(&image, "%a %U:%G", "disk.img:/srv/my files/a"), "600 ann:staff");
    assert_eq!(said(&image, &["ls", "disk.img:/srv/x"]), "zeroes\n");
    assert_eq!(said(&image, &["cat", "disk.img:/srv/ann/notes.txt"]), "buy milk\n");
    assert_eq!(std::fs::read_to_string(image.scratch().join("hostname")).expect("a copy"), "tiny\n");
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
        errors, "extern4: script: standard input:8: 'disk.img:/gone/f': No such file or directory\n",
        "only the first line had -p"
    );
    assert_eq!(stat(&image, "%a", "disk.img:/a"), "755");
    assert_eq!(stat(&image, "%a", "disk.img:/a/b"), "700", "-R is of the line before");
    assert_eq!(stat(&image, "%a", "disk.img:/c"), "750");
    sound(&image);
}

#[test]
fn a_script_stops_at_its_first_failure() {
    let image = machine();
    let script = "mkdir /one\nmkdir /two\nmkdir /gone/three\nmkdir /four\n";
    std::fs::write(image.scratch().join("lines"), script).expect("a script");
    let errors = failed(&extern4(&image, ["script", "disk.img", "lines"]), 1);
    assert_eq!(errors, "extern4: script: lines:3: 'disk.img:/gone/three': No such file or directory\n");
    let said = said(&image, &["ls", "disk.img"]);
    assert!(said.contains("one\n") && said.contains("two\n") && !said.contains("four"), "{said}");
    sound(&image);
    // A script with a wrong line changes nothing.
    let script = "mkdir /five\nmkdir --nonsense /six\nchmod 999 /\nmkdir '/seven\n";
    let errors = untouched(&image, || failed(&fed(&image, &["script", "disk.img"], script.as_bytes()), 2));
    for says in ["standard input:2: ", "--nonsense", "standard input:3: ", "standard input:4: a quote"] {
        assert!(errors.contains(says), "{says}: {errors}");
    }
    assert_eq!(errors.lines().count(), 3, "{errors}");
    untouched(&image, || {
        failed(&extern4(&image, ["script", "disk.img", "gone"]), 1);
        failed(&extern4(&image, ["script", "disk.img:/etc", "lines"]), 2);
        failed(&extern4(&image, ["script", "lines", "lines"]), 3);
    });
}
