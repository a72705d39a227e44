//! Other programs by the names that users type as subcommands, and the lines of extern4 for them.
//!
//! `main`, `help` and `man` ask it about a name that is no subcommand. It is the one list of such
//! names.

/// Names of programs with spaces between them, and the lines that do the same; `{}` in a line
/// stands for the name. Behind a `#` a line tells what it does.
type Tool = (&'static str, &'static [&'static str]);

const SERVE: &str = "extern4 mount IMG DIR   # any program can then use the files";

const TOOLS: &[Tool] = &[
    // e2fsprogs.
    (
        "debugfs virt-rescue guestfish",
        &[
            "extern4 shell IMG   # knows most words of debugfs",
            "extern4 inode IMG:/f   # an inode as it stands on the volume",
            "extern4 block IMG 1234   # what a block is for",
        ],
    ),
    (
        "dumpe2fs fsstat e2freefrag",
        &["extern4 info -g IMG   # with each group and its free blocks"],
    ),
    (
        "tune2fs",
        &[
            "extern4 info IMG   # the settings, as -l shows them",
            "extern4 tune IMG -L NAME   # sets the label; extern4 tune --help has the other settings",
        ],
    ),
    (
        "e2label",
        &[
            "extern4 info IMG   # shows the label",
            "extern4 tune IMG -L NAME   # sets it",
        ],
    ),
    (
        "e2fsck fsck fsck.ext2 fsck.ext3 fsck.ext4 fsck.extern4 e2scrub repair",
        &[
            "extern4 check IMG   # finds all faults and changes nothing",
            "extern4 recover IMG   # replays the journal",
            "e2fsck -f IMG   # repairs it",
        ],
    ),
    (
        "blkid lsblk findfs fdisk sfdisk gdisk sgdisk parted mmls img_stat virt-filesystems",
        &["extern4 info IMG   # type, label and UUID of a volume, or the partitions of a disk"],
    ),
    ("filefrag fiemap", &["extern4 inode IMG:/f   # its extents"]),
    (
        "resize2fs virt-resize resize",
        &["extern4 build --size 2G NEW.img IMG   # a volume keeps its size: this makes another"],
    ),
    (
        "e4defrag",
        &["extern4 build NEW.img IMG   # a copy in which no file is in pieces"],
    ),
    (
        "e2image e2undo partclone.extfs",
        &["cp --sparse=always IMG COPY   # a copy of the image undoes everything"],
    ),
    (
        "badblocks",
        &["badblocks DEVICE   # it reads the device, and needs no volume"],
    ),
    (
        "mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4 mkfs.extern4 format",
        &["extern4 mkfs IMG 1G"],
    ),
    (
        "genext2fs make_ext4fs mkuserimg virt-make-fs mksquashfs genimage",
        &["extern4 build OUT.img DIR"],
    ),
    // Mounts and devices.
    (
        "fuse2fs fuseext2 ext4fuse guestmount mount.ext4 mount.extern4 mc ranger systemd-nspawn",
        &[SERVE, "extern4 umount DIR"],
    ),
    (
        "guestunmount fusermount fusermount3 unmount",
        &["extern4 umount DIR"],
    ),
    (
        "losetup kpartx partx qemu-nbd dmsetup",
        &[
            "extern4 ls DISK#1:/   # no device is needed: #1 is partition 1",
            "extern4 ls DISK@1M:/   # the volume that starts at this byte",
        ],
    ),
    (
        "chroot",
        &[SERVE, "chroot DIR   # as root, or in unshare -Ur"],
    ),
    (
        "sync fsync",
        &["sync -f DIR   # in a mount; all other commands have written everything when they end"],
    ),
    ("fstrim", &[SERVE, "fstrim DIR"]),
    (
        "lsof fuser",
        &[
            "extern4 top DIR   # what happens in a mount",
            "lsof IMG   # the process that has an image open",
        ],
    ),
    (
        "qemu-img simg2img",
        &["qemu-img convert -O raw IMG RAW.img   # extern4 takes plain images"],
    ),
    // Quotas.
    ("repquota warnquota xfs_quota", &["extern4 quota IMG"]),
    (
        "setquota edquota",
        &["extern4 quota set IMG -u USER --block-hard 1G"],
    ),
    ("quotacheck", &["extern4 quota check IMG"]),
    (
        "quotaon quotaoff",
        &[
            "extern4 tune IMG -Q usrquota   # keeps them",
            "extern4 tune IMG -Q ^usrquota   # keeps them no more",
        ],
    ),
    // Forensics.
    ("fls e2ls virt-ls", &["extern4 ls -laR IMG:/"]),
    ("ils", &["extern4 find IMG:/ -ls"]),
    (
        "icat virt-cat",
        &[
            "extern4 cat IMG:/f",
            "extern4 find IMG:/ -inum 12   # the name of an inode",
        ],
    ),
    ("istat", &["extern4 inode -n 12 IMG"]),
    ("blkcat", &["extern4 block -x IMG 1234"]),
    ("blkstat icheck", &["extern4 block IMG 1234"]),
    ("ifind ffind ncheck", &["extern4 find IMG:/ -inum 12"]),
    (
        "tsk_recover extundelete ext4magic photorec testdisk undelete lsdel",
        &[
            "extern4 export IMG -o DIR/   # takes out what is there; removed files are not brought back",
        ],
    ),
    // e2tools and virt-tools.
    (
        "e2cp virt-copy-in virt-copy-out copy",
        &["extern4 cp -a DIR/. IMG:/", "extern4 cp -a IMG:/f ."],
    ),
    ("e2rm unlink", &["extern4 rm IMG:/f"]),
    ("e2mkdir", &["extern4 mkdir -p IMG:/dir"]),
    ("e2mv rename mmv", &["extern4 mv IMG:/f IMG:/g"]),
    ("e2ln link", &["extern4 ln IMG:/f IMG:/g"]),
    ("e2tail virt-tail", &["extern4 tail IMG:/f"]),
    ("virt-df duf", &["extern4 df -h IMG"]),
    ("virt-diff", &["extern4 diff OLD.img NEW.img"]),
    (
        "virt-customize virt-sysprep",
        &["extern4 script IMG LINES   # many commands, one a line"],
    ),
    // Archives and copies.
    (
        "dump extract unpack virt-tar-out bsdtar gtar pax",
        &[
            "extern4 export IMG -o OUT.tar",
            "extern4 export IMG -o DIR/",
        ],
    ),
    ("restore virt-tar-in", &["extern4 tar -xf IN.tar -C IMG:/"]),
    (
        "cpio",
        &[
            "extern4 export IMG -o - | bsdtar -cf OUT.cpio --format newc @-",
            "bsdtar -cf - @IN.cpio | extern4 build OUT.img -",
        ],
    ),
    (
        "rsync",
        &[
            "extern4 build --update IMG DIR   # makes the volume the same as a directory",
            "extern4 cp -au DIR/. IMG:/   # copies what is newer, and removes nothing",
            "extern4 cp -au IMG:/dir DIR",
        ],
    ),
    (
        "scp sftp ftp",
        &[
            "extern4 cat IMG:/f | ssh HOST 'cat > f'",
            "extern4 cp IMG:/f FILE",
        ],
    ),
    (
        "dd",
        &[
            "extern4 cat IMG:/f | dd of=FILE",
            "extern4 block -x IMG 1234   # the bytes of a block",
            "extern4 truncate -s 1G IMG:/f   # a file of holes",
        ],
    ),
    (
        "install",
        &["extern4 cp FILE IMG:/f", "extern4 chmod 755 IMG:/f"],
    ),
    (
        "gzip bzip2 xz zstd lz4",
        &["extern4 cat IMG:/f | {} > FILE"],
    ),
    (
        "unzip zip 7z unrar file-roller readelf objdump nm ldd strip gdb sqlite3 python python3",
        &["extern4 get IMG:/f > FILE && {} FILE"],
    ),
    // Text and contents.
    (
        "wc md5sum sha1sum sha224sum sha384sum sha512sum b2sum b3sum cksum sum crc32 md5 xxd hexdump hd od hexyl strings less more most zcat bzcat xzcat zstdcat lz4cat gunzip bunzip2 unxz unzstd zless sort uniq cut tr awk gawk mawk nl tac rev fold fmt pr paste expand unexpand column jq yq xmllint base64 base32 split csplit shuf tsort iconv bat tee numfmt ptx",
        &["extern4 cat IMG:/f | {}"],
    ),
    ("file", &["extern4 cat IMG:/f | file -"]),
    (
        "sha256 sha256deep hashdeep",
        &["extern4 find IMG:/ -type f -exec extern4 sha256sum {} +"],
    ),
    ("egrep", &["extern4 grep -E PATTERN IMG:/f"]),
    ("fgrep", &["extern4 grep -F TEXT IMG:/f"]),
    ("rgrep rg ag ack", &["extern4 grep -rn PATTERN IMG:/"]),
    (
        "zgrep pcregrep pcre2grep",
        &["extern4 cat IMG:/f | {} PATTERN"],
    ),
    (
        "sed perl",
        &[
            "extern4 cat IMG:/f | {} ...",
            "extern4 cat IMG:/f | {} ... > FILE && extern4 put IMG:/f < FILE   # changes it",
        ],
    ),
    (
        "vi vim nvim nano emacs ed ex edit editor mcedit joe hexedit patch virt-edit sudoedit",
        &[
            "extern4 get IMG:/f > FILE && {} FILE && extern4 put IMG:/f < FILE",
            SERVE,
        ],
    ),
    (
        "sdiff vimdiff meld colordiff diff3 comm join",
        &["extern4 diff IMG:/f FILE", "extern4 cat IMG:/f | {} - FILE"],
    ),
    ("echo printf", &["{} TEXT | extern4 put IMG:/f"]),
    // Files and their attributes.
    ("dir vdir ll exa eza lsd", &["extern4 ls -l IMG:/"]),
    (
        "fd fdfind locate plocate",
        &["extern4 find IMG:/ -name '*.conf'"],
    ),
    (
        "xargs",
        &["extern4 find IMG:/ -name '*.tmp' -exec extern4 rm {} +"],
    ),
    ("ncdu gdu dua dust", &["extern4 du -h -d 1 IMG:/"]),
    ("realpath", &["extern4 readlink -f IMG:/f"]),
    (
        "test [",
        &["extern4 stat IMG:/f   # the exit code says whether there is one"],
    ),
    ("cd pwd chdir", &["extern4 shell IMG   # has cd and pwd"]),
    (
        "shred wipe srm",
        &["extern4 rm IMG:/f   # its blocks keep their contents until they are used again"],
    ),
    (
        "fallocate",
        &["extern4 truncate -s 1G IMG:/f   # without blocks; in a mount, fallocate gives it some"],
    ),
    (
        "getcap",
        &["extern4 getfattr -n security.capability -e hex IMG:/f"],
    ),
    (
        "setcap",
        &[
            "extern4 setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 IMG:/f   # cap_net_raw+ep",
        ],
    ),
    (
        "chcon restorecon setfiles",
        &[
            "extern4 setfattr -n security.selinux -v LABEL IMG:/f",
            "extern4 build --selinux FILE_CONTEXTS OUT.img DIR   # labels a whole tree",
        ],
    ),
    ("chacl", &["extern4 setfacl -m u:1000:rwx IMG:/f"]),
    (
        "attr xattr",
        &[
            "extern4 getfattr -d IMG:/f",
            "extern4 setfattr -n user.NAME -v VALUE IMG:/f",
        ],
    ),
];

/// Returns the lines of extern4 for another program, each indented, with a line above them; `None`
/// for a name that is not known.
pub(crate) fn advice(name: &str) -> Option<String> {
    let (_, lines) = TOOLS
        .iter()
        .find(|(names, _)| names.split(' ').any(|known| known == name))?;
    let lines: String = lines
        .iter()
        .map(|line| format!("\n  {}", filled(line, name)))
        .collect();
    Some(format!("With extern4:{lines}"))
}

/// Returns a line for the program `name`. `{}` of find's -exec stays.
fn filled(line: &str, name: &str) -> String {
    if line.contains("-exec") {
        line.to_owned()
    } else {
        line.replace("{}", name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{TOOLS, advice, filled};
    use crate::args::{Args, find};

    #[test]
    fn names_are_those_of_other_programs() {
        let mut seen = BTreeSet::new();
        for name in TOOLS.iter().flat_map(|(names, _)| names.split(' ')) {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(find([name]).is_none(), "{name} is a subcommand");
        }
        assert_eq!(advice("gone"), None);
        assert_eq!(
            advice("wc").as_deref(),
            Some("With extern4:\n  extern4 cat IMG:/f | wc")
        );
    }

    /// Each part of a line that calls extern4 is read as it is typed.
    #[test]
    fn lines_are_command_lines() {
        let lines: Vec<_> = TOOLS
            .iter()
            .flat_map(|(names, lines)| {
                lines
                    .iter()
                    .map(|line| filled(line, names.split(' ').next().unwrap_or(names)))
            })
            .collect();
        let mut calls = 0;
        for line in &lines {
            let line = line
                .split('#')
                .next()
                .filter(|start| !start.ends_with("DISK"))
                .unwrap_or(line);
            for part in line
                .split(['|', '>', '<'])
                .flat_map(|part| part.split("&&"))
            {
                let Some(("", _)) = part.trim().split_once("extern4 ") else {
                    continue;
                };
                let words = part
                    .split_whitespace()
                    .map(|word| word.trim_matches('\'').into());
                let read = Args::read(&words.collect::<Vec<_>>());
                assert!(
                    read.is_ok(),
                    "{line}: {}",
                    read.err()
                        .map(|error| error.to_string())
                        .unwrap_or_default()
                );
                calls += 1;
            }
        }
        assert!(calls > 70, "{calls}");
    }
}
