//! Images made at test time, and the output of the e2fsprogs tools for them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use extern4_disk::group::GroupDescriptor;
use extern4_disk::inode::Inode;
use extern4_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extern4_disk::{Corrupt, Place, Structure};

/// A temporary directory that is removed when it is dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("extern4-disk-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover in the directory for temporary files does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An image of a volume. Its contents are the same in every run: UUID, hash seed and times are
/// fixed.
pub(crate) struct Image {
    dir: TempDir,
    file: File,
}

impl Image {
    /// Makes a volume of `size` with these options of `mke2fs`, filled with the files of
    /// `sample_tree`.
    pub(crate) fn make(options: &str, size: &str) -> Self {
        let dir = TempDir::new();
        let tree = dir.path().join("tree");
        sample_tree(&tree);
        let path = dir.path().join("image");
        let mut mke2fs = tool("mke2fs");
        mke2fs
            .args([
                "-q",
                "-F",
                "-U",
                "6f1c5fd6-1e0b-4e9e-8d5a-2f9c3f3a7b10",
                "-d",
            ])
            .arg(&tree);
        if !options.contains("-E") {
            mke2fs.args(["-E", "hash_seed=11111111-2222-3333-4444-555555555555"]);
        }
        run(mke2fs.args(options.split_whitespace()).arg(&path).arg(size));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        Self { dir, file }
    }

    /// Makes an external journal.
    pub(crate) fn make_journal(block_size: &str, size: &str) -> Self {
        let dir = TempDir::new();
        let path = dir.path().join("image");
        run(tool("mke2fs")
            .args(["-q", "-F", "-O", "journal_dev", "-b", block_size])
            .arg(&path)
            .arg(size));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        Self { dir, file }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub(crate) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub(crate) fn read_block(&self, block: u64, sb: &Superblock) -> Vec<u8> {
        self.read(block * u64::from(sb.block_size()), sb.block_size() as usize)
    }

    pub(crate) fn superblock_bytes(&self) -> Vec<u8> {
        self.read(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)
    }

    pub(crate) fn superblock(&self) -> Superblock {
        Superblock::decode(&self.superblock_bytes(), Place::new(Structure::Superblock)).unwrap()
    }

    pub(crate) fn descriptor_bytes(&self, group: u32, sb: &Superblock) -> Vec<u8> {
        let position = sb.geometry().descriptor_position(group).unwrap();
        let offset = position.block * u64::from(sb.block_size()) + u64::from(position.offset);
        self.read(offset, sb.geometry().desc_size().into())
    }

    pub(crate) fn descriptor(&self, group: u32, sb: &Superblock) -> GroupDescriptor {
        let bytes = self.descriptor_bytes(group, sb);
        GroupDescriptor::decode(&bytes, group, sb, Place::new(Structure::GroupDescriptor)).unwrap()
    }

    /// Returns the byte offset of an inode's record.
    pub(crate) fn record_offset(&self, ino: u32, sb: &Superblock) -> u64 {
        let slot = sb.geometry().inode_slot(ino).unwrap();
        let table = self.descriptor(slot.group, sb).inode_table();
        let position = sb.geometry().inode_position(table, slot.index).unwrap();
        position.block * u64::from(sb.block_size()) + u64::from(position.offset)
    }

    pub(crate) fn record(&self, ino: u32, sb: &Superblock) -> Vec<u8> {
        self.read(self.record_offset(ino, sb), sb.inode_size().into())
    }

    pub(crate) fn inode(&self, ino: u32, sb: &Superblock) -> Result<Inode, Corrupt> {
        Inode::decode(&self.record(ino, sb), ino, sb, Place::new(Structure::Inode))
    }

    /// Changes the volume with commands of `debugfs`.
    pub(crate) fn debugfs_write(&self, commands: &str) {
        let script = self.script(commands);
        run(tool("debugfs")
            .arg("-w")
            .arg("-f")
            .arg(script)
            .arg(self.path()));
    }

    /// Returns the output of `debugfs` for each of these inodes.
    pub(crate) fn stat(&self, inodes: &[u32]) -> Vec<String> {
        let commands: Vec<String> = inodes.iter().map(|ino| format!("stat <{ino}>\n")).collect();
        let text = run(tool("debugfs")
            .arg("-f")
            .arg(self.script(&commands.concat()))
            .arg(self.path()));
        let answers: Vec<String> = text
            .split("debugfs: stat ")
            .skip(1)
            .map(str::to_owned)
            .collect();
        assert_eq!(answers.len(), inodes.len(), "{text}");
        answers
    }

    fn script(&self, commands: &str) -> PathBuf {
        let script = self.dir.path().join("commands");
        fs::write(&script, commands).unwrap();
        script
    }

    /// Grows the volume with `resize2fs`.
    pub(crate) fn resize(&self, size: &str) {
        run(tool("resize2fs").arg("-f").arg(self.path()).arg(size));
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, offset).unwrap();
    }

    /// Returns the output of `debugfs` for one command.
    pub(crate) fn debugfs(&self, command: &str) -> String {
        run(tool("debugfs").args(["-R", command]).arg(self.path()))
    }

    /// Returns the features as `dumpe2fs` names them.
    pub(crate) fn feature_names(&self) -> String {
        let text = run(tool("dumpe2fs").arg("-h").arg(self.path()));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Filesystem features:"));
        line.unwrap().trim().to_owned()
    }

    /// Returns the output of `dumpe2fs`: first the fields of the superblock, then the groups.
    pub(crate) fn dumpe2fs(&self) -> (HashMap<String, String>, Vec<String>) {
        let text = run(tool("dumpe2fs").arg(self.path()));
        let (header, groups) = text.split_once("\n\n\nGroup 0:").unwrap();
        let header = header.lines().filter_map(|line| line.split_once(':'));
        let header = header
            .map(|(key, value)| (key.trim().into(), value.trim().into()))
            .collect();
        let groups = format!("0:{groups}");
        (
            header,
            groups
                .split("\nGroup ")
                .map(|group| format!("Group {group}"))
                .collect(),
        )
    }
}

fn sample_tree(tree: &Path) {
    fs::create_dir_all(tree.join("directory/deeper")).unwrap();
    fs::write(tree.join("directory/small"), b"small\n").unwrap();
    fs::write(tree.join("large"), vec![b'x'; 200_000]).unwrap();
    std::os::unix::fs::symlink("directory/small", tree.join("short")).unwrap();
    std::os::unix::fs::symlink("y".repeat(100), tree.join("long")).unwrap();
    run(Command::new("mkfifo").arg(tree.join("pipe")));
}

/// Returns a command for a tool of e2fsprogs, in an environment that makes its output the same
/// everywhere.
fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.envs([
        ("TZ", "UTC"),
        ("LC_ALL", "C"),
        ("E2FSPROGS_FAKE_TIME", "1700000000"),
    ]);
    command.envs([
        ("E2FSPROGS_LIBMAGIC_SUPPRESS", "1"),
        ("DEBUGFS_PAGER", "cat"),
    ]);
    command
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
