//! `diff` of a volume and its copy after random changes: by their blocks, and as any two volumes.

use std::fs;
use std::path::Path;

use extern4_testkit::tools::{Need, can_run, temporary};

use crate::making::Random;
use crate::run::{extern4_in, failed, ok, tool};

/// The options of the volumes.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-g", "1024", "-N", "4000"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^flex_bg,^filetype",
    ],
    &["-t", "ext2", "-b", "1024", "-I", "128"],
];

/// The value of an attribute that is too long for an inode.
const LONG_VALUE: &str = "long value ";

/// Paths of a volume that a script makes, and the script.
struct Tree {
    random: Random,
    directories: Vec<String>,
    files: Vec<String>,
    script: String,
    made: u32,
}

impl Tree {
    fn new(random: u64) -> Self {
        let directories = vec![String::new()];
        Self {
            random: Random(random),
            directories,
            files: Vec::new(),
            script: String::new(),
            made: 0,
        }
    }

    fn run(&mut self, line: &str) {
        self.script.push_str(line);
        self.script.push('\n');
    }

    /// Returns a path that nothing has had yet, in some directory.
    fn new_path(&mut self) -> String {
        self.made += 1;
        format!("{}/{}", self.any_directory(), self.made)
    }

    fn any_directory(&mut self) -> String {
        self.directories[self.random.below(self.directories.len() as u64) as usize].clone()
    }

    /// Returns a file, which is made if there is none.
    fn any_file(&mut self) -> String {
        if self.files.is_empty() {
            self.make_file();
        }
        self.files[self.random.below(self.files.len() as u64) as usize].clone()
    }

    /// Returns a file or a directory.
    fn any(&mut self) -> String {
        if self.random.happens(30) {
            Some(self.any_directory())
                .filter(|path| !path.is_empty())
                .unwrap_or("/".to_owned())
        } else {
            self.any_file()
        }
    }

    fn make_file(&mut self) {
        let path = self.new_path();
        let source = self.random.below(4);
        self.run(&format!("cp host:source{source} {path}"));
        self.files.push(path);
    }

    fn make_directory(&mut self) {
        let path = self.new_path();
        self.run(&format!("mkdir {path}"));
        self.directories.push(path);
    }

    fn remove_file(&mut self) -> String {
        let path = self.any_file();
        self.run(&format!("rm {path}"));
        self.files.retain(|file| *file != path);
        path
    }

    fn move_directory(&mut self) {
        let from = self.any_directory();
        let to = self.new_path();
        if from.is_empty() || to.starts_with(&format!("{from}/")) {
            return;
        }
        self.run(&format!("mv -T {from} {to}"));
        for path in self.directories.iter_mut().chain(&mut self.files) {
            if *path == from || path.starts_with(&format!("{from}/")) {
                path.replace_range(..from.len(), &to);
            }
        }
    }

    fn remove_directory(&mut self) {
        let top = self.any_directory();
        if !top.is_empty() {
            self.run(&format!("rm -r {top}"));
            let is_left = |path: &String| *path != top && !path.starts_with(&format!("{top}/"));
            self.directories.retain(is_left);
            self.files.retain(is_left);
        }
    }

    /// Changes something.
    fn change(&mut self) {
        match self.random.below(16) {
            0 | 1 => self.make_file(),
            2 => self.make_directory(),
            3 => drop(self.remove_file()),
            4 => {
                // Another file of the name, maybe with the inode of the old one.
                let path = self.remove_file();
                self.run(&format!("cp host:source1 {path}"));
                self.files.push(path);
            }
            5 => self.remove_directory(),
            6 => self.move_directory(),
            7 => {
                let from = self.any_file();
                let to = self.new_path();
                self.run(&format!("mv -T {from} {to}"));
                self.files.retain(|file| *file != from);
                self.files.push(to);
            }
            8 => {
                let from = self.any_file();
                let to = self.new_path();
                self.run(&format!("ln {from} {to}"));
                self.files.push(to);
            }
            9 => {
                let target = self.any_file();
                let path = self.new_path();
                self.run(&format!("ln -s {target} {path}"));
            }
            10 => {
                let path = self.any();
                let mode = self.random.below(0o1000);
                self.run(&format!("chmod {mode:o} {path}"));
            }
            11 => {
                let path = self.any();
                let owner = self.random.below(5);
                self.run(&format!("chown {owner}:{owner} {path}"));
            }
            12 => {
                let path = self.any_file();
                let size = self.random.below(70_000);
                self.run(&format!("truncate -s {size} {path}"));
            }
            13 => {
                let path = self.any();
                let repeated = 40 * self.random.below(2) as usize;
                self.run(&format!(
                    "setfattr -n user.a -v '{}' {path}",
                    LONG_VALUE.repeat(repeated)
                ));
            }
            14 => {
                let path = self.any();
                let user = self.random.below(9);
                self.run(&format!("setfacl -m u:{user}:r {path}"));
            }
            _ => {
                let path = self.any();
                let time = self.random.below(99);
                self.run(&format!("touch -d @{time} {path}"));
            }
        }
    }

    fn take_script(&mut self, at: &Path) {
        fs::write(at, std::mem::take(&mut self.script)).expect("a script");
    }
}

/// Makes the file `/unreadable` of a volume so. It stays the same in each copy.
fn damage(image: &Path, block_size: usize) {
    let mut bytes = fs::read(image).expect("an image");
    let value = "unreadable".repeat(30);
    let places: Vec<_> = bytes
        .windows(value.len())
        .enumerate()
        .filter(|(_, window)| *window == value.as_bytes())
        .collect();
    let places: Vec<_> = places
        .into_iter()
        .map(|(at, _)| at / block_size * block_size)
        .collect();
    assert!(!places.is_empty());
    for at in places {
        // The magic number of a block of attributes.
        bytes[at..at + 4].fill(0);
    }
    fs::write(image, bytes).expect("an image");
}

/// Attributes of an unchanged file that cannot be read show which way a comparison takes.
#[test]
fn a_randomly_changed_copy_differs_as_any_other_volume_does() {
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    for (source, len) in [0, 40, 9_000, 200_000].into_iter().enumerate() {
        fs::write(
            at.join(format!("source{source}")),
            vec![b'a' + source as u8; len],
        )
        .expect("a file");
    }
    fs::create_dir(at.join("many")).expect("a directory");
    // Two levels of a hash tree, with blocks of 1 KiB.
    let many: Vec<_> = (0..700)
        .map(|number| format!("/many/{number}{}", "x".repeat(230)))
        .collect();
    many.iter()
        .for_each(|path| fs::write(at.join(&path[1..]), "").expect("a file"));
    let diff = |old: &str, new: &str| {
        let output = extern4_in(at, ["diff", old, new]);
        (
            output.status.code(),
            String::from_utf8(output.stdout).expect("UTF-8"),
        )
    };
    let mut by_blocks = 0;
    let mut rounds = 0;
    for (kind, options) in KINDS.iter().enumerate() {
        let mut tree = Tree::new(kind as u64);
        ok(extern4_in(
            at,
            [&["mkfs", "-q", "--force"], *options, &["old.img", "32M"]].concat(),
        ));
        tree.run("cp -r host:many /many\ncp host:source1 /unreadable");
        tree.run(&format!(
            "setfattr -n user.a -v {} /unreadable",
            "unreadable".repeat(30)
        ));
        tree.files.extend(many.iter().step_by(100).cloned());
        (0..60).for_each(|_| tree.make_file());
        (0..120).for_each(|_| tree.change());
        (0..12).for_each(|_| tree.make_directory());
        tree.take_script(&at.join("base"));
        ok(extern4_in(at, ["script", "old.img", "base"]));
        damage(
            &at.join("old.img"),
            options[3].parse().expect("a size of blocks"),
        );
        let base = (tree.directories.clone(), tree.files.clone());
        for changes in [1, 2, 5, 13, 40] {
            (tree.directories, tree.files) = base.clone();
            (0..changes).for_each(|_| tree.change());
            tree.take_script(&at.join("changes"));
            fs::copy(at.join("old.img"), at.join("new.img")).expect("a copy");
            ok(extern4_in(at, ["script", "new.img", "changes"]));
            let short = [diff("old.img", "new.img"), diff("new.img", "old.img")];
            // With another UUID everything is listed.
            ok(extern4_in(at, ["tune", "--uuid", "random", "new.img"]));
            let long = [diff("old.img", "new.img"), diff("new.img", "old.img")];
            for (short, long) in short.into_iter().zip(long) {
                let script = fs::read_to_string(at.join("changes")).expect("a script");
                assert_eq!(short.1, long.1, "{options:?}\n{script}");
                assert_eq!(long.0, Some(2));
                by_blocks += u32::from(short.0 != Some(2));
                rounds += 1;
            }
        }
    }
    assert!(by_blocks > rounds / 2, "{by_blocks} of {rounds}");
}

/// Linux ignores them where no checksum guards them.
#[test]
fn inodes_that_a_descriptor_wrongly_calls_unused_are_compared() {
    if !can_run(&[Need::Tool("debugfs")]) {
        return;
    }
    let dir = temporary("extern4-diff-");
    let at = dir.path();
    ok(extern4_in(
        at,
        ["mkfs", "-q", "-t", "ext2", "-N", "1000", "old.img", "8M"],
    ));
    ok(extern4_in(at, ["mkdir", "old.img:/new"]));
    tool(
        at,
        "debugfs",
        [
            "-w",
            "-R",
            "set_block_group 0 itable_unused 1000",
            "old.img",
        ],
    );
    fs::copy(at.join("old.img"), at.join("new.img")).expect("a copy");
    ok(extern4_in(at, ["chmod", "700", "new.img:/new"]));
    let output = extern4_in(at, ["diff", "old.img", "new.img"]);
    failed(&output, 1);
    let expected = "Files old.img:/new and new.img:/new differ: mode 0755 -> 0700\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
