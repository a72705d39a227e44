//! The parts of manual pages that `--help` does not have: examples, exit codes, the environment,
//! files and related pages.
//!
//! `page` takes them.

use std::borrow::Cow;

use crate::fsck_helper;

/// A tag and its meaning.
pub(super) type Note = (Cow<'static, str>, &'static str);

/// Pages, a tag, and its meaning on them.
type Shared = (&'static [&'static str], &'static str, &'static str);

/// Pages, each with the meaning of an example, and the command line.
pub(super) const EXAMPLES: &[(&str, &str, &str)] = &[
    (
        "extern4",
        "Make a volume, fill it and look into it:",
        "extern4 mkfs disk.img 1G\nextern4 cp -a /etc disk.img:/\nextern4 ls -l disk.img:/etc",
    ),
    (
        "extern4-info",
        "Show the partitions of a disk, and the volume in one of them:",
        "extern4 info disk.img\nextern4 info disk.img#2",
    ),
    (
        "extern4-check",
        "Check a volume, and go on only if nothing is wrong:",
        "extern4 check --quiet disk.img && extern4 mount disk.img mnt",
    ),
    (
        "extern4-ls",
        "List a directory with details:",
        "extern4 ls -l disk.img:/etc",
    ),
    (
        "extern4-tree",
        "Show the directories of a volume, two levels deep:",
        "extern4 tree -d -L 2 disk.img:/",
    ),
    (
        "extern4-stat",
        "Show everything about a file:",
        "extern4 stat disk.img:/etc/passwd",
    ),
    (
        "extern4-cat",
        "Search the contents of a file:",
        "extern4 cat disk.img:/var/log/syslog | grep error",
    ),
    (
        "extern4-cp",
        "Copy a tree into a volume, with owners, times and attributes:",
        "extern4 cp -a rootfs/. disk.img:/",
    ),
    (
        "extern4-cp",
        "Copy a file out of it:",
        "extern4 cp disk.img:/etc/fstab .",
    ),
    (
        "extern4-get",
        "Take a file out of a volume:",
        "extern4 get disk.img:/boot/vmlinuz > vmlinuz",
    ),
    (
        "extern4-put",
        "Replace a file, all at once:",
        "echo box | extern4 put disk.img:/etc/hostname",
    ),
    (
        "extern4-mkdir",
        "Make a directory and those above it:",
        "extern4 mkdir -p disk.img:/srv/www/html",
    ),
    (
        "extern4-rm",
        "Remove a tree:",
        "extern4 rm -r disk.img:/var/cache",
    ),
    (
        "extern4-mv",
        "Rename a file:",
        "extern4 mv disk.img:/etc/motd disk.img:/etc/motd.old",
    ),
    (
        "extern4-ln",
        "Make a symbolic link:",
        "extern4 ln -s ../run disk.img:/var/run",
    ),
    (
        "extern4-touch",
        "Make an empty file:",
        "extern4 touch disk.img:/etc/machine-id",
    ),
    (
        "extern4-truncate",
        "Make a sparse file of 1 GiB:",
        "extern4 truncate -s 1G disk.img:/swapfile",
    ),
    (
        "extern4-chmod",
        "Take write permission from group and others, in a whole tree:",
        "extern4 chmod -R go-w disk.img:/etc",
    ),
    (
        "extern4-chown",
        "Give a tree to a user and a group:",
        "extern4 chown -R 1000:1000 disk.img:/home/ann",
    ),
    (
        "extern4-head",
        "Show the first lines of a file:",
        "extern4 head -n 5 disk.img:/etc/passwd",
    ),
    (
        "extern4-tail",
        "Show the last lines of a log:",
        "extern4 tail -n 20 disk.img:/var/log/syslog",
    ),
    (
        "extern4-grep",
        "Search a tree:",
        "extern4 grep -r nameserver disk.img:/etc",
    ),
    (
        "extern4-cmp",
        "Compare a file with one of the host:",
        "extern4 cmp disk.img:/etc/fstab fstab",
    ),
    (
        "extern4-sha256sum",
        "Compute checksums:",
        "extern4 sha256sum disk.img:/boot/vmlinuz",
    ),
    (
        "extern4-rmdir",
        "Remove a directory that is empty:",
        "extern4 rmdir disk.img:/srv/old",
    ),
    (
        "extern4-readlink",
        "Show where a symbolic link leads:",
        "extern4 readlink disk.img:/etc/localtime",
    ),
    (
        "extern4-mknod",
        "Make a device node:",
        "extern4 mknod disk.img:/dev/null c 1 3",
    ),
    (
        "extern4-mkfifo",
        "Make a named pipe:",
        "extern4 mkfifo disk.img:/run/queue",
    ),
    (
        "extern4-chgrp",
        "Give a tree to a group:",
        "extern4 chgrp -R 1000 disk.img:/srv",
    ),
    (
        "extern4-find",
        "Find set-user-id programs:",
        "extern4 find disk.img:/ -type f -perm -4000",
    ),
    (
        "extern4-du",
        "Sum up what a directory takes:",
        "extern4 du -h disk.img:/usr",
    ),
    (
        "extern4-df",
        "Show the free space of a volume:",
        "extern4 df -h disk.img",
    ),
    (
        "extern4-stats",
        "Ask the process that serves a mount what it has done:",
        "extern4 stats mnt",
    ),
    (
        "extern4-stats",
        "See how often a second, in the next ten seconds:",
        "extern4 stats --interval 10 mnt",
    ),
    (
        "extern4-stats",
        "Read what each counter counts:",
        "extern4 stats --explain",
    ),
    ("extern4-top", "Watch a mount:", "extern4 top mnt"),
    (
        "extern4-getfacl",
        "Show the access control list of a file:",
        "extern4 getfacl disk.img:/srv",
    ),
    (
        "extern4-getfattr",
        "Show all attributes of a file with their values:",
        "extern4 getfattr -d -m - disk.img:/usr/bin/ping",
    ),
    (
        "extern4-setfacl",
        "Let a user write into a directory:",
        "extern4 setfacl -m u:1000:rwx disk.img:/srv",
    ),
    (
        "extern4-setfattr",
        "Set an attribute:",
        "extern4 setfattr -n user.origin -v build disk.img:/etc/issue",
    ),
    (
        "extern4-script",
        "Run the changes in a file, one a line:",
        "extern4 script disk.img changes",
    ),
    (
        "extern4-shell",
        "Work in a volume:",
        "extern4 shell disk.img",
    ),
    (
        "extern4-lsattr",
        "List the attributes of the files in a directory:",
        "extern4 lsattr disk.img:/etc",
    ),
    (
        "extern4-chattr",
        "Make a file immutable:",
        "extern4 chattr +i disk.img:/etc/fstab",
    ),
    (
        "extern4-recover",
        "Replay the journal after a crash:",
        "extern4 recover disk.img",
    ),
    (
        "extern4-tune",
        "Change the label:",
        "extern4 tune --label root disk.img",
    ),
    (
        "extern4-quota",
        "Show what each user, group and project has, and may have:",
        "extern4 quota disk.img",
    ),
    (
        "extern4-quota-set",
        "Limit a user to 10 GiB:",
        "extern4 quota set disk.img -u ann --block-soft 9G --block-hard 10G",
    ),
    (
        "extern4-quota-grace",
        "Let users exceed their soft limits for three days:",
        "extern4 quota grace disk.img --users --block 3d --inode 3d",
    ),
    (
        "extern4-quota-check",
        "Count again, and correct what is wrong:",
        "extern4 quota check --repair disk.img",
    ),
    (
        "extern4-mkfs",
        "Make an ext4 volume of 1 GiB with a label:",
        "extern4 mkfs -L root disk.img 1G",
    ),
    (
        "extern4-build",
        "Build the smallest volume that holds a tree:",
        "extern4 build root.img rootfs",
    ),
    (
        "extern4-export",
        "Write a tree to a compressed archive:",
        "extern4 export -o etc.tar.zst disk.img:/etc",
    ),
    (
        "extern4-tar",
        "Pack a directory of a volume, and unpack the archive into another one:",
        "extern4 tar czf etc.tgz disk.img:/etc\nextern4 tar xf etc.tgz -C other.img:/",
    ),
    (
        "extern4-diff",
        "Compare a volume with an archive:",
        "extern4 diff root.tar disk.img:/",
    ),
    (
        "extern4-mount",
        "Mount a volume, work in it, and unmount it:",
        "extern4 mount disk.img mnt\ntouch mnt/file\nextern4 umount mnt",
    ),
    (
        "extern4-mount",
        "Act as root on it without being root:",
        "extern4 mount -o fakeroot disk.img mnt",
    ),
    (
        "extern4-umount",
        "Unmount a volume and wait until everything is written:",
        "extern4 umount mnt",
    ),
    (
        "extern4-inode",
        "Show the inode of a file:",
        "extern4 inode disk.img:/etc/passwd",
    ),
    (
        "extern4-block",
        "Show what the first block is for:",
        "extern4 block disk.img 0",
    ),
    (
        "extern4-bench",
        "Compare with the kernel's own mount:",
        "extern4 bench disk.img",
    ),
    (
        "extern4-bench-walk",
        "Measure how fast a path is walked:",
        "extern4 bench walk disk.img:/etc/passwd",
    ),
    (
        "extern4-bench-ops",
        "Measure renames:",
        "extern4 bench ops disk.img --op rename",
    ),
    (
        "extern4-completions",
        "Let bash complete the command lines of this shell:",
        "source <(extern4 completions bash)",
    ),
    (
        "extern4-man",
        "Read the page of a subcommand, and write all pages:",
        "extern4 man ls\nextern4 man --dir pages",
    ),
    (
        "extern4-help",
        "Show the options of a subcommand:",
        "extern4 help ls",
    ),
    (
        "mount.extern4",
        "A line of /etc/fstab:",
        "/images/disk.img  /mnt  extern4  noauto,nofail,noatime  0  2",
    ),
    (
        "fsck.extern4",
        "Check a volume even if it is clean, and change nothing:",
        "fsck.extern4 -f -n disk.img",
    ),
    (
        "mkfs.extern4",
        "Make a volume through mkfs(8):",
        "mkfs -t extern4 -L root disk.img 1G",
    ),
];

/// The pages of subcommands that print times of files.
const TIMES: &[&str] = &[
    "extern4-ls",
    "extern4-stat",
    "extern4-info",
    "extern4-inode",
    "extern4-find",
    "extern4-touch",
];

/// The pages of subcommands that print names in colours.
const COLOURS: &[&str] = &["extern4-ls", "extern4-tree", "extern4-grep", "extern4-diff"];

/// The pages of subcommands that colour names by the types of files.
const COLOURED_NAMES: &[&str] = &["extern4-ls", "extern4-tree"];

/// The pages of subcommands that make volumes.
const MAKES: &[&str] = &["extern4-mkfs", "extern4-build", "mkfs.extern4"];

/// The pages of subcommands that serve a mount or talk to the process that does.
const SERVES: &[&str] = &[
    "extern4-mount",
    "mount.extern4",
    "extern4-umount",
    "extern4-stats",
    "extern4-top",
];

/// The pages of the commands that mount.
const MOUNTS: &[&str] = &["extern4-mount", "mount.extern4"];

/// The pages of subcommands that know users and groups by name.
const OWNERS: &[&str] = &[
    "extern4-ls",
    "extern4-stat",
    "extern4-find",
    "extern4-chown",
    "extern4-getfacl",
    "extern4-setfacl",
    "extern4-cp",
];

pub(super) const ENVIRONMENT: &[Shared] = &[
    (
        TIMES,
        "TZ",
        "The time zone of the times that are read and shown.",
    ),
    (
        COLOURED_NAMES,
        "LS_COLORS",
        "The colours of names, as dircolors(1) writes them.",
    ),
    (
        &["extern4-grep"],
        "GREP_COLORS",
        "The colours of matches, names and numbers, as grep(1) takes them.",
    ),
    (
        COLOURS,
        "NO_COLOR",
        "If it is set and not empty, nothing is coloured unless --color asks for it.",
    ),
    (
        COLOURS,
        "TERM",
        "If it is dumb, nothing is coloured unless --color asks for it.",
    ),
    (&["extern4-ls"], "COLUMNS", "The width of the listing."),
    (
        MAKES,
        "SOURCE_DATE_EPOCH",
        "The time at which the volume is made, in seconds since 1970, for builds that can be repeated.",
    ),
    (
        MAKES,
        "MKE2FS_CONFIG",
        "The configuration, in the form of mke2fs.conf(5). Without it, the file of e2fsprogs 1.47 counts that is built in; /etc/mke2fs.conf does not count unless it is named here.",
    ),
    (
        MOUNTS,
        "EXTERN4_LOG",
        "Messages up to this level are logged: error, warn, info (the default) or debug.",
    ),
    (
        MOUNTS,
        "NOTIFY_SOCKET",
        "The socket on which the mount tells the service manager that it serves the volume.",
    ),
    (
        SERVES,
        "XDG_RUNTIME_DIR",
        "The directory with the sockets of mounts of this user.",
    ),
    (
        &["extern4-bench"],
        "TMPDIR",
        "The directory of the volumes that are made to be measured.",
    ),
];

pub(super) const FILES: &[Shared] = &[
    (
        &["extern4-quota", "extern4-quota-set"],
        "IMAGE:/etc/passwd, IMAGE:/etc/group, IMAGE:/etc/projid",
        "The names of users, groups and projects, as the volume has them.",
    ),
    (
        OWNERS,
        "IMAGE:/etc/passwd, IMAGE:/etc/group",
        "The names of users and groups, as the volume has them.",
    ),
    (MOUNTS, "/dev/fuse", "The kernel's side of the mount."),
    (
        MOUNTS,
        "/etc/fuse.conf",
        "Whether users other than root may use allow_other and allow_root.",
    ),
    (
        &["mount.extern4"],
        "/etc/fstab",
        "Lines with the type extern4 are mounted through this helper.",
    ),
    (
        SERVES,
        "/run/extern4, /run/user/UID/extern4, /tmp/extern4-UID, /tmp/extern4-UID.*",
        "The sockets of the processes that serve mounts.",
    ),
    (
        &["extern4-completions"],
        "/usr/share/bash-completion/completions, /usr/share/zsh/site-functions, /usr/share/zsh/vendor-completions, /usr/share/fish/vendor_completions.d",
        "The directories where the shells look for completions.",
    ),
];

/// Pages, each with a page of another tool that tells more.
pub(super) const SEE_ALSO: &[(&str, &str)] = &[
    (
        "extern4",
        "ext4(5), mount.extern4(8), fsck.extern4(8), e2fsck(8), debugfs(8)",
    ),
    ("extern4-info", "dumpe2fs(8)"),
    ("extern4-check", "fsck.extern4(8), e2fsck(8)"),
    ("extern4-ls", "ls(1)"),
    ("extern4-tree", "tree(1)"),
    ("extern4-stat", "stat(1)"),
    ("extern4-cat", "cat(1)"),
    ("extern4-cp", "cp(1)"),
    ("extern4-get", "extern4-put(1)"),
    ("extern4-put", "extern4-get(1)"),
    ("extern4-mkdir", "mkdir(1)"),
    ("extern4-rm", "rm(1)"),
    ("extern4-mv", "mv(1)"),
    ("extern4-ln", "ln(1)"),
    ("extern4-touch", "touch(1)"),
    ("extern4-truncate", "truncate(1)"),
    ("extern4-chmod", "chmod(1)"),
    ("extern4-chown", "chown(1)"),
    ("extern4-head", "head(1)"),
    ("extern4-tail", "tail(1)"),
    ("extern4-grep", "grep(1)"),
    ("extern4-cmp", "cmp(1)"),
    ("extern4-sha256sum", "sha256sum(1)"),
    ("extern4-rmdir", "rmdir(1)"),
    ("extern4-readlink", "readlink(1)"),
    ("extern4-mknod", "mknod(1)"),
    ("extern4-mkfifo", "mkfifo(1)"),
    ("extern4-chgrp", "chgrp(1)"),
    ("extern4-find", "find(1)"),
    ("extern4-du", "du(1)"),
    ("extern4-df", "df(1)"),
    ("extern4-stats", "extern4-top(1)"),
    ("extern4-top", "extern4-stats(1)"),
    ("extern4-getfacl", "getfacl(1)"),
    ("extern4-getfattr", "getfattr(1)"),
    ("extern4-setfacl", "setfacl(1)"),
    ("extern4-setfattr", "setfattr(1)"),
    ("extern4-shell", "extern4-script(1), debugfs(8)"),
    ("extern4-lsattr", "lsattr(1)"),
    ("extern4-chattr", "chattr(1)"),
    ("extern4-recover", "e2fsck(8)"),
    ("extern4-tune", "tune2fs(8)"),
    (
        "extern4-quota",
        "repquota(8), setquota(8), extern4-quota-set(1), extern4-quota-grace(1), extern4-quota-check(1)",
    ),
    ("extern4-quota-set", "setquota(8), extern4-quota(1)"),
    ("extern4-quota-grace", "setquota(8), extern4-quota(1)"),
    (
        "extern4-quota-check",
        "quotacheck(8), extern4-check(1), extern4-quota(1)",
    ),
    ("extern4-mkfs", "mke2fs(8), mke2fs.conf(5)"),
    ("extern4-build", "mke2fs(8), extern4-export(1)"),
    ("extern4-export", "tar(1), extern4-build(1)"),
    ("extern4-tar", "tar(1), extern4-export(1), extern4-build(1)"),
    ("extern4-diff", "diff(1)"),
    (
        "extern4-mount",
        "mount.extern4(8), extern4-umount(1), mount(8), ext4(5)",
    ),
    ("extern4-umount", "extern4-mount(1), umount(8)"),
    ("extern4-inode", "debugfs(8)"),
    ("extern4-block", "debugfs(8)"),
    ("extern4-man", "extern4-help(1), man(1)"),
    ("extern4-help", "extern4-man(1)"),
    (
        "mount.extern4",
        "extern4-mount(1), mount(8), ext4(5), fuse(4)",
    ),
    ("fsck.extern4", "extern4-check(1), fsck(8), e2fsck(8)"),
    (
        "mkfs.extern4",
        "extern4-mkfs(1), mkfs(8), mke2fs(8), mke2fs.conf(5)",
    ),
];

const EXIT_CODES: [(u8, &str); 6] = [
    (0, "Everything succeeded."),
    (1, "Something failed, such as a file that is missing."),
    (2, "The command line is wrong."),
    (
        3,
        "An image is no ext2, ext3 or ext4 volume, or has a feature that cannot be read, or not be written.",
    ),
    (4, "A volume is corrupt. The highest of these codes counts."),
    (141, "The reader of the output has closed it."),
];

const DIFF_EXIT_CODES: [(u8, &str); 3] = [
    (0, "There is no difference."),
    (1, "There are differences."),
    (2, "Something failed."),
];

const CMP_EXIT_CODES: [(u8, &str); 3] = [
    (0, "The files are the same."),
    (1, "They differ."),
    (2, "Something failed."),
];

const GREP_EXIT_CODES: [(u8, &str); 3] = [
    (0, "Some line was selected."),
    (1, "None was."),
    (2, "Something failed."),
];

/// Returns the exit codes of the command of a page.
pub(super) fn exit_status(page: &str) -> impl Iterator<Item = Note> {
    let codes: &[(u8, &str)] = match page {
        "extern4-diff" => &DIFF_EXIT_CODES,
        "extern4-cmp" => &CMP_EXIT_CODES,
        "extern4-grep" => &GREP_EXIT_CODES,
        "fsck.extern4" => &fsck_helper::EXIT_CODES,
        _ => &EXIT_CODES,
    };
    codes
        .iter()
        .map(|(code, text)| (code.to_string().into(), *text))
}

/// Returns the notes of a table that belong to a page.
pub(super) fn of(table: &'static [Shared], page: &str) -> impl Iterator<Item = Note> {
    table
        .iter()
        .filter(move |(pages, ..)| pages.contains(&page))
        .map(|(_, tag, text)| ((*tag).into(), *text))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{ENVIRONMENT, EXAMPLES, FILES, SEE_ALSO};
    use crate::args::{Args, command};

    #[test]
    fn tables_name_pages() {
        let mut command = command();
        command.build();
        let names = |command: &clap::Command| -> Vec<String> {
            command
                .get_subcommands()
                .filter_map(|sub| sub.get_display_name().map(str::to_owned))
                .collect()
        };
        let nested = command.get_subcommands().flat_map(names);
        let helpers =
            ["extern4", "mount.extern4", "fsck.extern4", "mkfs.extern4"].map(str::to_owned);
        let pages: Vec<_> = names(&command)
            .into_iter()
            .chain(nested)
            .chain(helpers)
            .collect();
        let shared = ENVIRONMENT
            .iter()
            .chain(FILES)
            .flat_map(|(pages, ..)| pages.iter().copied());
        let own = EXAMPLES
            .iter()
            .map(|(page, ..)| *page)
            .chain(SEE_ALSO.iter().map(|(page, _)| *page));
        for page in shared.chain(own) {
            assert!(pages.iter().any(|known| known == page), "{page}");
        }
    }

    #[test]
    fn examples_are_command_lines() {
        let lines = EXAMPLES.iter().flat_map(|(_, _, lines)| lines.lines());
        let ours: Vec<_> = lines.filter(|line| line.starts_with("extern4 ")).collect();
        assert!(ours.len() > 40, "{ours:?}");
        for line in ours {
            let words = line
                .split(' ')
                .take_while(|word| !["|", ">", "&&"].contains(word));
            let words: Vec<_> = words.map(OsString::from).collect();
            let read = Args::read(&words);
            assert!(
                read.is_ok(),
                "{line}: {}",
                read.err()
                    .map(|error| error.to_string())
                    .unwrap_or_default()
            );
        }
    }
}
