//! `--json`: every line of every command is as `docs/json.schema.json` says, also with hostile
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;
use std::sync::LazyLock;

use extern4_testkit::image::{Image, ImageSpec};
use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::measuring::SHORT;
use crate::mounting::{Served, can_mount};
use crate::run::{extern4, machine, ok, partitioned};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.schema.json");
    serde_json::from_slice(&fs::read(path).expect("the schema")).expect("JSON")
});

/// The prefix of the definitions that are parts of others.
const PART: &str = "type-";

fn definitions() -> &'static Map<String, Value> {
    SCHEMA["$defs"].as_object().expect("definitions")
}

/// Returns a validator for the part of the schema at this pointer.
fn validator(pointer: &str) -> Validator {
    let mut schema = SCHEMA.clone();
    schema["$ref"] = format!("#/$defs/{pointer}").into();
    jsonschema::draft202012::new(&schema).expect("a valid schema")
}

/// The validators of the definition of a command, one for each kind of object that it prints.
fn kinds(name: &str) -> Vec<(String, Validator)> {
    let pointers = match definitions()[name]["oneOf"].as_array() {
        Some(all) => (0..all.len())
            .map(|at| format!("{name}/oneOf/{at}"))
            .collect(),
        None => vec![name.to_owned()],
    };
    pointers
        .into_iter()
        .map(|pointer| (pointer.clone(), validator(&pointer)))
        .collect()
}

/// Returns the objects in the output of a command.
fn objects(args: &[&OsStr], output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{args:?}: {text:?}"
    );
    let parse = |line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line}"))
    };
    text.lines().map(parse).collect()
}

/// The kinds of objects that commands printed.
#[derive(Default)]
struct Seen {
    kinds: BTreeMap<String, Vec<(String, Validator)>>,
    met: BTreeSet<String>,
}

impl Seen {
    /// Runs a command, whose lines have to be as its definition says.
    #[track_caller]
    fn run<A: AsRef<OsStr>>(&mut self, image: &Image, args: &[A]) {
        let args: Vec<_> = args.iter().map(AsRef::as_ref).collect();
        let name = match args[..] {
            [first, second, ..] if first == "bench" && (second == "walk" || second == "ops") => {
                format!("bench-{}", second.display())
            }
            [first, second, ..] if first == "quota" && second == "check" => {
                "quota-check".to_owned()
            }
            _ => args[0].to_string_lossy().into_owned(),
        };
        let output = extern4(image, [&args[..], &[OsStr::new("--json")]].concat());
        let kinds = self
            .kinds
            .entry(name)
            .or_insert_with_key(|name| kinds(name));
        let found = objects(&args, &output);
        assert!(!found.is_empty(), "{args:?}: {output:?}");
        for object in found {
            let fitting: Vec<_> = kinds
                .iter()
                .filter(|(_, kind)| kind.is_valid(&object))
                .collect();
            let why = |(pointer, kind): &(String, Validator)| {
                kind.iter_errors(&object)
                    .map(|error| format!("{pointer}: {error}\n"))
                    .collect::<String>()
            };
            let errors: String = kinds.iter().map(why).collect();
            assert_eq!(fitting.len(), 1, "{args:?}: {object}\n{errors}");
            self.met
                .extend(fitting.into_iter().map(|(pointer, _)| pointer.clone()));
        }
    }
}

/// Names that a terminal or a reader of JSON would take for something else.
pub(crate) const NAMES: [&[u8]; 6] = [
    b"escape\x1b[31m\x1b]0;title\x07",
    b"line\nfeed",
    b"invalid\xff\xfeutf8",
    "c1\u{9b}31m".as_bytes(),
    "right\u{202e}left".as_bytes(),
    b"tab\tback\\slash\"'quotes",
];

/// Makes a volume with such names of files, targets and attributes, and with such a label.
pub(crate) fn hostile() -> Image {
    fn fill(root: &Path) -> std::io::Result<()> {
        for name in NAMES {
            let name = OsStr::from_bytes(name);
            let dir = root.join(name);
            fs::create_dir(&dir)?;
            fs::write(dir.join(name), "a\nb\n")?;
            symlink(name, dir.join("link"))?;
        }
        fs::create_dir(root.join("etc"))?;
        fs::write(
            root.join("etc/passwd"),
            "a\x1b[31mb:x:0:0::/:\nc\u{9b}d:x:1:1::/:\n",
        )?;
        fs::write(root.join("etc/group"), "a\x1b[31mb:x:0:\n")
    }
    let image = ImageSpec::new("disk", 8 << 20, &["-t", "ext4", "-b", "4096"])
        .from_directory(&[fill])
        .build();
    ok(extern4(
        &image,
        [
            "tune",
            "disk.img",
            "-L",
            "a\x1b[31m\nb\u{9b}",
            "-M",
            "/a\x1b[31m\nb",
        ],
    ));
    for name in NAMES {
        let attribute = [b"user.", name].concat();
        let value: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let path = [b"disk.img:/", name].concat();
        let args = [
            "setfattr".as_ref(),
            "-n".as_ref(),
            OsStr::from_bytes(&attribute),
            "-v".as_ref(),
        ];
        ok(extern4(
            &image,
            args.into_iter()
                .chain([format!("0x{value}").as_ref(), OsStr::from_bytes(&path)]),
        ));
    }
    image
}

/// Command lines for the disk of a small machine and for that of [`hostile`].
const RUNS: &[&str] = &[
    "info -g disk.img",
    "check disk.img",
    "ls -AR disk.img:/",
    "find disk.img",
    "stat -L disk.img:/",
    "stat -f disk.img:/",
    "tree -a disk.img",
    "du -a disk.img",
    "du -s --inodes disk.img",
    "df disk.img",
    "grep -r -n -C1 b disk.img:/",
    "grep -r -c b disk.img:/",
    "grep -r -l b disk.img:/",
    "lsattr -R disk.img:/",
    "getfacl -R disk.img:/",
    "getfattr -R -d disk.img:/",
    "stats disk.img:/",
    "stats --rates disk.img:/",
    "recover disk.img",
    "inode disk.img:/",
    "block disk.img 0 1 20",
    "diff disk.img:/ empty",
    "mkfs -n new.img 8M",
    "mkfs -n -d disk.img new.img 16M",
    "build -n new.img disk.img",
    "bench walk disk.img --seconds 0.01",
];

fn run_all(image: &Image, seen: &mut Seen) {
    fs::create_dir(image.scratch().join("empty")).expect("a directory");
    for line in RUNS {
        seen.run(image, &line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn all_output_is_as_the_schema_says() {
    let mut seen = Seen::default();
    let image = machine();
    run_all(&image, &mut seen);
    fs::write(image.scratch().join("one"), "a\nb\n").expect("a file");
    fs::write(image.scratch().join("other"), "a\nB\n").expect("a file");
    let sums = "f0e4c2f76c58916ec258f246851bea091d14d4247a2fc3e18694461b1816e13b  one\n\
        0000000000000000000000000000000000000000000000000000000000000000  disk.img:/etc/hostname\n";
    fs::write(image.scratch().join("sums"), sums).expect("a file");
    partitioned(&image);
    for line in [
        "info sdcard.img",
        "readlink disk.img:/home/ann/todo",
        "readlink -f disk.img:/home/ann/todo",
        "sha256sum disk.img:/etc/hostname one",
        "sha256sum -c sums",
        "grep -o tin disk.img:/etc/hostname",
        "cmp one one",
        "cmp -l disk.img:/etc/hostname one",
        "cmp one other",
        "cmp -n 2 one other",
        "cmp disk.img:/etc/hostname empty/../sdcard.img",
        "diff disk.img:/etc/hostname disk.img:/etc/os-release",
        "mkfs made.img 8M",
        "build --verity --label made built.img disk.img",
        "build --stable-layout built.img built2.img disk.img",
        "inode -n 8 disk.img",
        "inode -n 11 disk.img",
        "bench ops disk.img --op rename --seconds 0.01",
    ] {
        seen.run(&image, &line.split(' ').collect::<Vec<_>>());
    }
    let quotas = ImageSpec::new("disk", 8 << 20, &["-t", "ext4", "-O", "quota"]).build();
    quotas.debugfs("set_inode_field / uid 7\n");
    seen.run(&quotas, &["quota", "disk.img"]);
    seen.run(&quotas, &["quota", "check", "disk.img"]);
    fs::copy(&image.path, image.scratch().join("changed.img")).expect("a copy");
    for line in [
        "chmod 600 changed.img:/etc/hostname",
        "touch -d @5 changed.img:/etc/passwd",
        "setfattr -n user.a -v 1 changed.img:/etc/group",
        "chown 5:6 changed.img:/etc/os-release",
        "ln -sf elsewhere changed.img:/home/ann/todo",
        "rm -r changed.img:/var",
    ] {
        ok(extern4(&image, line.split(' ')));
    }
    fs::write(image.scratch().join("short"), "a").expect("a file");
    seen.run(&image, &["cmp", "short", "one"]);
    seen.run(&image, &["diff", "disk.img", "changed.img"]);
    let etc = extern4(&image, ["inode", "--json", "changed.img:/etc"]);
    let etc: Value = serde_json::from_slice(&ok(etc)).expect("an object");
    let block = etc["blocks"][0]["physical"].as_u64().expect("a block");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(image.scratch().join("changed.img"))
        .expect("it opens");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 64], block * 4096 + 100)
        .expect("a directory");
    seen.run(&image, &["check", "changed.img"]);
    if !can_mount() {
        return;
    }
    let served = Served::new(&image, &[]);
    fs::write(served.path("new"), "x").expect("a file");
    seen.run(&image, &["stats", "mnt"]);
    seen.run(&image, &["stats", "-i0.01", "mnt"]);
    seen.run(&image, &["top", "-n1", "-i0.01", "mnt"]);
    served.umount();
    seen.run(&image, &[&["bench", "disk.img"], &SHORT[..]].concat());
    let all = definitions().keys().filter(|name| !name.starts_with(PART));
    let all: BTreeSet<_> = all
        .flat_map(|name| kinds(name))
        .map(|(pointer, _)| pointer)
        .collect();
    assert_eq!(
        seen.met, all,
        "each kind of object of each command is printed"
    );
}

#[test]
fn hostile_names_are_valid_json_without_control_characters() {
    let mut seen = Seen::default();
    let image = hostile();
    run_all(&image, &mut seen);
    for name in NAMES {
        let file = [b"disk.img:/", name, b"/", name].concat();
        let link = [b"disk.img:/", name, b"/link"].concat();
        for (command, path) in [
            ("stat", &file),
            ("sha256sum", &file),
            ("inode", &file),
            ("readlink", &link),
            ("getfattr", &link),
        ] {
            seen.run(&image, &[OsStr::new(command), OsStr::from_bytes(path)]);
        }
        seen.run(
            &image,
            &[
                OsStr::new("cmp"),
                OsStr::from_bytes(&file),
                OsStr::from_bytes(&file),
            ],
        );
    }
}

#[test]
fn the_schema_has_every_command_with_json_and_no_other() {
    jsonschema::meta::validate(&SCHEMA).expect("a valid schema");
    let image = machine();
    let help = |args: &[&str]| String::from_utf8(ok(extern4(&image, args))).expect("text");
    let mut with_json = BTreeSet::new();
    let mut without = BTreeSet::new();
    let main = help(&["--help"]);
    let lines = main
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    for words in names.map(|name| vec![name]).chain([
        vec!["bench", "walk"],
        vec!["bench", "ops"],
        vec!["quota", "check"],
    ]) {
        let knows = help(&[&words[..], &["--help"]].concat()).contains("--json");
        if knows { &mut with_json } else { &mut without }.insert(words.join("-"));
    }
    let defined = definitions()
        .keys()
        .filter(|name| !name.starts_with(PART))
        .cloned();
    assert_eq!(with_json, defined.collect());
    // The guide says why the others have no JSON.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/scripts.md");
    let page = fs::read_to_string(page).expect("a page");
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| without `--json`"))
        .skip(2);
    let cells = rows.map_while(|row| row.strip_prefix("| ")?.split(" |").next());
    let listed = cells
        .flat_map(|cell| cell.split(", "))
        .map(|name| name.trim_matches('`').to_owned());
    assert_eq!(without, listed.collect());
}

#[test]
fn the_schema_describes_counters_as_the_command_does() {
    let image = machine();
    let text = String::from_utf8(ok(extern4(&image, ["stats", "--explain"]))).expect("text");
    let explained: BTreeMap<_, _> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .collect();
    assert!(explained.len() > 30, "{text}");
    for kind in definitions()["stats"]["oneOf"].as_array().expect("kinds") {
        for (name, meaning) in &explained {
            assert_eq!(kind["properties"][name]["description"], *meaning, "{name}");
        }
    }
}

#[test]
fn every_key_of_the_schema_is_described_and_no_other_is_allowed() {
    fn look(at: &str, value: &Value) {
        if let Some(properties) = value["properties"].as_object() {
            for (key, property) in properties {
                let text = property["description"]
                    .as_str()
                    .or(property["$ref"].as_str());
                assert!(text.is_some_and(|text| text.len() > 5), "{at}: {key}");
            }
            let is_part = at.ends_with("/type-file");
            let is_closed =
                value["additionalProperties"] == false || value["unevaluatedProperties"] == false;
            assert!(is_closed != is_part, "{at} is closed");
        }
        let members = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value));
        let items = value.as_array().into_iter().flatten().enumerate();
        for (key, value) in members.chain(items.map(|(at, value)| (at.to_string(), value))) {
            look(&format!("{at}/{key}"), value);
        }
    }
    look("", &SCHEMA["$defs"]);
}
