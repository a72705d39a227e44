//! The table of mount options: the options of mount(8), ext4(5) and FUSE.
//!
//! A row says everything about an option: its spellings, the values that it takes, and their
//! effect. It also has the part of the system that carries the option out, its rule for a remount,
//! and its help. The parser ([`spelling`](super::spelling)), the remount, `--help`, the manual page
//! and the guide read it.
//!
//! A row is complete or does not compile, so an option cannot lack its help or its rule for a
//! remount.

use std::path::PathBuf;
use std::time::Duration;

use extern4::block::CacheBudget;
use extern4::part::parse_bytes;
use extern4::{Backup, DEFAULT_COMMIT_INTERVAL, DataMode, ErrorPolicy};
use extern4_fuse::{MountFlags, Transport};
use rustix::process::{getegid, geteuid};

use super::{MIN_MEMORY_BYTES, Options, errors_name};

/// A row of the table: the spellings of one option, or of options that override each other.
pub(super) struct MountOption {
    /// Each is a word (`ro`, `data=ordered`), a key with a value in capitals and perhaps its limits
    /// (`memory=BYTES, at least 4M`), or a prefix (`x-*`).
    pub(super) spellings: &'static [(&'static str, Meaning)],
    pub(super) layer: Layer,
    pub(super) remount: Remount,
    /// The effect; for an option without one, the reason for that.
    pub(super) help: &'static str,
}

/// The meaning of a spelling.
pub(super) enum Meaning {
    /// It sets or clears a flag of the mount, which the mount table shows.
    Flag(MountFlags, bool),
    /// It sets something else.
    Set(fn(&mut Options)),
    /// It takes a value. `None` means that the value does not fit.
    Value(fn(&mut Options, &str) -> Option<()>),
    /// It is accepted and has no effect.
    Ignored,
    /// It is an error.
    Refused,
}

/// The part of the system that carries an option out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// The kernel, as for any file system.
    Kernel,
    /// The command, before it mounts.
    Command,
    /// The process that serves the mount.
    Server,
    /// The ext4 file system in that process.
    Ext4,
    /// None: the option states a fact that holds anyway, or only tunes Linux.
    Ignored,
    /// None: the option is not supported.
    Refused,
}

/// The effect of an option on a remount.
pub(super) enum Remount {
    /// A remount changes it.
    Changes,
    /// It stays as at the first mount, and a remount that asks for another value is refused. The
    /// message has the name of the setting and its value.
    Fixed(&'static str, fn(&Options) -> String),
    /// It stays as at the first mount, too. `stats` shows its value, since the volume may have
    /// chosen it.
    Reported,
    /// A remount ignores it.
    Ignores,
}

use Meaning::{Flag, Ignored, Refused, Set, Value};
use Remount::{Changes, Fixed, Ignores, Reported};

/// The flags that the mount of a user has, as mount(8) sets them.
const BY_USER: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

const BY_VOLUME: &str = "as the volume says";
const OWN: &str = "its own";

/// Any value, and any number, without an effect.
const ANY: Meaning = Value(|_, _| Some(()));
const NUMBER: Meaning = Value(|_, text| number(text).map(drop));

/// All options, in the order of the guide.
pub(super) const TABLE: &[MountOption] = &[
    kernel(
        &[
            ("ro", Flag(MountFlags::RDONLY, true)),
            ("rw", Flag(MountFlags::RDONLY, false)),
        ],
        "Mount for reading only; or for writing, the default",
    ),
    kernel(
        &[
            ("nosuid", Flag(MountFlags::NOSUID, true)),
            ("suid", Flag(MountFlags::NOSUID, false)),
        ],
        "Set-id bits and file capabilities have no effect",
    ),
    kernel(
        &[
            ("nodev", Flag(MountFlags::NODEV, true)),
            ("dev", Flag(MountFlags::NODEV, false)),
        ],
        "Device nodes cannot be opened",
    ),
    kernel(
        &[
            ("noexec", Flag(MountFlags::NOEXEC, true)),
            ("exec", Flag(MountFlags::NOEXEC, false)),
        ],
        "No program can be run",
    ),
    kernel(
        &[
            ("nosymfollow", Flag(MountFlags::NOSYMFOLLOW, true)),
            ("symfollow", Flag(MountFlags::NOSYMFOLLOW, false)),
        ],
        "Symbolic links are not followed",
    ),
    kernel(
        &[
            ("sync", Flag(MountFlags::SYNCHRONOUS, true)),
            ("dirsync", Flag(MountFlags::DIRSYNC, true)),
            (
                "async",
                Set(|o| {
                    o.mount
                        .flags
                        .remove(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC)
                }),
            ),
        ],
        "A change is durable when its call returns: each change, or each change of names; or neither, the \
         default",
    ),
    kernel(
        &[
            (
                "user",
                Set(|o| o.mount.flags |= BY_USER | MountFlags::NOEXEC),
            ),
            (
                "users",
                Set(|o| o.mount.flags |= BY_USER | MountFlags::NOEXEC),
            ),
            ("owner", Set(|o| o.mount.flags |= BY_USER)),
            ("group", Set(|o| o.mount.flags |= BY_USER)),
        ],
        "As in mount(8), even without it: these imply nosuid and nodev, and the first two also noexec",
    ),
    command(
        &[("remount", Set(|o| o.remount = true))],
        "Change the mount on DIR, as root. With rw, this also opens a volume for writing that was mounted \
         with ro: its journal is replayed, and its orphans are freed. It is refused if the image is \
         write-protected or open elsewhere, or if the volume has features that can only be read",
    ),
    command(
        &[
            ("nofail", Set(|o| o.nofail = true)),
            ("fail", Set(|o| o.nofail = false)),
        ],
        "A missing image is no failure, as in mount(8), even without it",
    ),
    command(
        &[
            ("X-mount.mkdir", Set(|o| o.mkdir = Some(0o755))),
            (
                "X-mount.mkdir=MODE, in octal",
                Value(|o, text| {
                    let mode = u32::from_str_radix(text, 8)
                        .ok()
                        .filter(|mode| *mode <= 0o7777)?;
                    set(&mut o.mkdir, Some(mode))
                }),
            ),
        ],
        "Make DIR if it is missing, with mode 755 by default, as in mount(8), even without it",
    ),
    command(
        &[(
            "offset=BYTES",
            Value(|o, text| set(&mut o.offset, Some(parse_bytes(text)?))),
        )],
        "The volume starts at this byte of the image. The units are K, M, G and T",
    ),
    command(
        // As for losetup(8), 0 means no limit.
        &[(
            "sizelimit=BYTES",
            Value(|o, text| {
                set(
                    &mut o.size_limit,
                    Some(parse_bytes(text)?).filter(|bytes| *bytes > 0),
                )
            }),
        )],
        "Refuse a volume that is larger than this",
    ),
    command(
        &[
            ("fuseblk", Set(|o| o.fuseblk = Some(true))),
            ("nofuseblk", Set(|o| o.fuseblk = Some(false))),
        ],
        "Make it the mount of a block device, for an image that of a loop device, or not. sync(2) and \
         umount(8) wait for the volume only in such a mount. By default root makes one where it is possible",
    ),
    server(
        &[
            ("noatime", Flag(MountFlags::NOATIME, true)),
            ("atime", Flag(MountFlags::NOATIME, false)),
            ("relatime", Flag(MountFlags::NOATIME, false)),
            // Without noatime and strictatime, Linux's default is relatime.
            ("norelatime", Flag(MountFlags::NOATIME, false)),
            ("nostrictatime", Flag(MountFlags::NOATIME, false)),
        ],
        Fixed("atime", |o| {
            if o.has(MountFlags::NOATIME) {
                "noatime"
            } else {
                "relatime"
            }
            .to_owned()
        }),
        "Reading a file leaves its access time alone. The others mean the default: reading changes an access \
         time that is a day old, or not later than the last change of the file",
    ),
    server(
        &[
            ("nodiratime", Flag(MountFlags::NODIRATIME, true)),
            ("diratime", Flag(MountFlags::NODIRATIME, false)),
        ],
        Fixed("diratime", |o| (!o.has(MountFlags::NODIRATIME)).to_string()),
        "Reading a directory does not change its access time",
    ),
    server(
        &[("allow_other", Set(|o| o.mount.allow_other = true))],
        Ignores,
        "Serve all users, as root's mounts do anyway. For other users, /etc/fuse.conf must have \
         user_allow_other",
    ),
    server(
        &[("allow_root", Set(|o| o.allow_root = true))],
        Fixed("allow_root", |o| o.allow_root.to_string()),
        "Serve only the mounting user and root. For other users, /etc/fuse.conf must have user_allow_other",
    ),
    server(
        &[(
            "fakeroot",
            Set(|o| o.server.fakeroot = Some((geteuid().as_raw(), getegid().as_raw()))),
        )],
        Fixed("fakeroot", |o| o.server.fakeroot.is_some().to_string()),
        "The mounting user acts as root on the volume, and no other user is served, not even root",
    ),
    server(
        &[(
            "uid=NUMBER",
            Value(|o, text| set(&mut o.server.owner.0, Some(number(text)?))),
        )],
        Fixed("uid", |o| number_or_own(o.server.owner.0)),
        "Show all files as this user's",
    ),
    server(
        &[(
            "gid=NUMBER",
            Value(|o, text| set(&mut o.server.owner.1, Some(number(text)?))),
        )],
        Fixed("gid", |o| number_or_own(o.server.owner.1)),
        "Show all files as this group's",
    ),
    server(
        &[(
            "fsname=NAME",
            Value(|o, text| {
                set(
                    &mut o.mount.source,
                    (!text.is_empty()).then(|| text.into())?,
                )
            }),
        )],
        Fixed("fsname", |o| {
            o.fsname()
                .map_or_else(|| "the image".to_owned(), |name| name.display().to_string())
        }),
        "The mount table shows NAME instead of the image. Such a mount is never that of a block device",
    ),
    server(
        &[
            ("opens", Set(|o| o.server.opens = true)),
            ("noopens", Set(|o| o.server.opens = false)),
        ],
        Fixed("opens", |o| o.server.opens.to_string()),
        "The kernel reports each open of a file. A file with chattr +i or +a then cannot be opened for \
         writing; otherwise only the write fails",
    ),
    server(
        &[
            ("writeback_cache", Set(|o| o.server.writeback = true)),
            ("nowriteback_cache", Set(|o| o.server.writeback = false)),
        ],
        Fixed("writeback_cache", |o| o.server.writeback.to_string()),
        "The kernel keeps written data for a while, and sends it in larger pieces",
    ),
    server(
        &[
            ("idmap", Set(|o| o.server.idmap = true)),
            ("noidmap", Set(|o| o.server.idmap = false)),
        ],
        Fixed("idmap", |o| o.server.idmap.to_string()),
        "Mounts of the mount can have their users mapped",
    ),
    server(
        &[("lifetime=0", Set(|o| o.server.lifetime = Duration::ZERO))],
        Fixed("lifetime", |o| o.server.lifetime.as_secs().to_string()),
        "The kernel asks for attributes and names each time",
    ),
    server(
        &[
            (
                "transport=auto",
                Set(|o| o.server.transport = Transport::Auto),
            ),
            (
                "transport=device",
                Set(|o| o.server.transport = Transport::Device),
            ),
            (
                "transport=ring",
                Set(|o| o.server.transport = Transport::Ring),
            ),
        ],
        Fixed("transport", |o| {
            match o.server.transport {
                Transport::Auto => "auto",
                Transport::Device => "device",
                Transport::Ring => "ring",
            }
            .to_owned()
        }),
        "Requests come through /dev/fuse, or through io_uring. By default they come through io_uring where \
         the kernel offers it",
    ),
    server(
        &[(
            "memory=BYTES, at least 4M",
            Value(|o, text| {
                let bytes = parse_bytes(text).filter(|bytes| *bytes >= MIN_MEMORY_BYTES)?;
                o.set_memory(CacheBudget::new(bytes));
                Some(())
            }),
        )],
        Fixed("memory", |o| o.ext4.budget.limit().to_string()),
        "Memory for caches, an eighth of the machine's by default. Requests through io_uring take up to a \
         quarter as much in addition, and 48M at most",
    ),
    ext4(
        &[
            (
                "errors=continue",
                Set(|o| o.ext4.errors = Some(ErrorPolicy::Continue)),
            ),
            (
                "errors=remount-ro",
                Set(|o| o.ext4.errors = Some(ErrorPolicy::RemountReadOnly)),
            ),
            (
                "errors=panic",
                Set(|o| o.ext4.errors = Some(ErrorPolicy::Panic)),
            ),
        ],
        Fixed("errors", |o| {
            o.ext4
                .errors
                .and_then(errors_name)
                .unwrap_or(BY_VOLUME)
                .to_owned()
        }),
        "The reaction to damage that a change meets: pass over it and go on; or refuse later changes, \
         which panic means as well. The default is as the volume says",
    ),
    ext4(
        &[(
            "commit=SECONDS",
            Value(|o, text| {
                let seconds = Some(number(text)?).filter(|seconds| *seconds > 0);
                // As in Linux, 0 means the default.
                let interval = seconds.map(|seconds| Duration::from_secs(seconds.into()));
                set(
                    &mut o.ext4.commit_interval,
                    interval.or(Some(DEFAULT_COMMIT_INTERVAL)),
                )
            }),
        )],
        Reported,
        "The longest time that a change is in memory only, 5 seconds by default",
    ),
    ext4(
        &[
            (
                "data=ordered",
                Set(|o| o.ext4.data = Some(DataMode::Ordered)),
            ),
            (
                "data=writeback",
                Set(|o| o.ext4.data = Some(DataMode::Writeback)),
            ),
            (
                "data=journal",
                Set(|o| o.ext4.data = Some(DataMode::Journal)),
            ),
        ],
        Reported,
        "Contents of files are written before the commit of the files; or at any time; or through the \
         journal. The default is as the volume says",
    ),
    ext4(
        &[
            (
                "data_err=ignore",
                Set(|o| o.ext4.abort_on_data_error = false),
            ),
            ("data_err=abort", Set(|o| o.ext4.abort_on_data_error = true)),
        ],
        Fixed("data_err", |o| {
            if o.ext4.abort_on_data_error {
                "abort"
            } else {
                "ignore"
            }
            .to_owned()
        }),
        "If contents cannot be written, only the writer gets the error, the default; or all changes end, in \
         each data mode",
    ),
    ext4(
        &[
            (
                "journal_checksum",
                Set(|o| o.ext4.journal_checksum = Some(true)),
            ),
            (
                "nojournal_checksum",
                Set(|o| o.ext4.journal_checksum = Some(false)),
            ),
        ],
        Fixed("journal_checksum", |o| chosen(o.ext4.journal_checksum)),
        "The journal has checksums, or none. The default is as the volume says",
    ),
    ext4(
        &[
            ("noload", Set(|o| o.ext4.ignore_journal = true)),
            ("norecovery", Set(|o| o.ext4.ignore_journal = true)),
        ],
        Fixed("noload", |o| o.ext4.ignore_journal.to_string()),
        "The journal is ignored. A volume that must be recovered can then only be mounted with ro",
    ),
    ext4(
        &[
            (
                "journal_path=PATH",
                Value(|o, text| {
                    set(
                        &mut o.journal,
                        Some((!text.is_empty()).then(|| text.into())?),
                    )
                }),
            ),
            (
                "journal_dev=NUMBER",
                Value(|o, text| set(&mut o.journal, Some(device_path(text)?))),
            ),
        ],
        Fixed("journal", |o| {
            o.journal
                .as_ref()
                .map_or_else(|| "not given".to_owned(), |path| path.display().to_string())
        }),
        "The device with the journal, or an image of it, for a volume that does not hold its own",
    ),
    ext4(
        &[(
            "sb=KIB",
            Value(|o, text| {
                set(
                    &mut o.ext4.superblock,
                    Some(Backup::Kib(number(text)?.into())),
                )
            }),
        )],
        Fixed("sb", |o| match o.ext4.superblock {
            None => OWN.to_owned(),
            Some(Backup::Kib(kib)) => kib.to_string(),
            Some(Backup::Block(block)) => format!("block {block}"),
        }),
        "Read the volume by the copy of the superblock there, with ro",
    ),
    ext4(
        &[
            ("lazytime", Flag(MountFlags::LAZYTIME, true)),
            ("nolazytime", Flag(MountFlags::LAZYTIME, false)),
        ],
        Fixed("lazytime", |o| o.has(MountFlags::LAZYTIME).to_string()),
        "Changes of times alone stay in memory until the file changes otherwise or is synced, for a day at \
         most",
    ),
    ext4(
        &[
            ("acl", Set(|o| o.ext4.acls = true)),
            ("noacl", Set(|o| o.ext4.acls = false)),
        ],
        Fixed("acl", |o| o.ext4.acls.to_string()),
        "Access control lists count, the default; or they stay on the volume, unseen, and cannot be set",
    ),
    ext4(
        &[
            ("user_xattr", Set(|o| o.ext4.user_attributes = true)),
            ("nouser_xattr", Set(|o| o.ext4.user_attributes = false)),
        ],
        Fixed("user_xattr", |o| o.ext4.user_attributes.to_string()),
        "Files have user attributes, the default; or these stay on the volume, unseen, and cannot be set",
    ),
    ext4(
        &[("nouid32", Set(|o| o.ext4.short_ids = true))],
        Fixed("uid32", |o| (!o.ext4.short_ids).to_string()),
        "Ids have 16 bits. Upper halves are not read, and an id that needs one is stored as 65534",
    ),
    ext4(
        &[
            ("grpid", Set(|o| o.ext4.bsd_groups = Some(true))),
            ("bsdgroups", Set(|o| o.ext4.bsd_groups = Some(true))),
            ("nogrpid", Set(|o| o.ext4.bsd_groups = Some(false))),
            ("sysvgroups", Set(|o| o.ext4.bsd_groups = Some(false))),
        ],
        Fixed("grpid", |o| chosen(o.ext4.bsd_groups)),
        "New files take the group of their directory (the first two), or only where it has the set-group-id \
         bit. The default is as the volume says",
    ),
    ext4(
        &[
            ("minixdf", Set(|o| o.ext4.minix_df = true)),
            ("bsddf", Set(|o| o.ext4.minix_df = false)),
        ],
        Fixed("minixdf", |o| o.ext4.minix_df.to_string()),
        "df counts the volume's own structures among its blocks; or not, the default",
    ),
    ext4(
        &[(
            "resuid=NUMBER",
            Value(|o, text| set(&mut o.ext4.reserved_uid, Some(number(text)?))),
        )],
        Fixed("resuid", |o| number_or_own(o.ext4.reserved_uid)),
        "The user that may use reserved blocks, as root may",
    ),
    ext4(
        &[(
            "resgid=NUMBER",
            Value(|o, text| set(&mut o.ext4.reserved_gid, Some(number(text)?))),
        )],
        Fixed("resgid", |o| number_or_own(o.ext4.reserved_gid)),
        "The group that may use reserved blocks",
    ),
    ext4(
        &[(
            "max_dir_size_kb=KIB",
            Value(|o, text| set(&mut o.ext4.max_dir_kib, number(text)?)),
        )],
        Fixed("max_dir_size_kb", |o| o.ext4.max_dir_kib.to_string()),
        "No directory grows beyond this size. 0, the default, means no limit",
    ),
    ext4(
        &[
            ("quota", Set(Options::expect_quotas)),
            ("usrquota", Set(Options::expect_quotas)),
            ("grpquota", Set(Options::expect_quotas)),
            ("prjquota", Set(Options::expect_quotas)),
            ("usrjquota=FILE", Value(quota_file)),
            ("grpjquota=FILE", Value(quota_file)),
            (
                "noquota",
                Set(|o| (o.quota, o.ext4.ignore_limits) = (false, true)),
            ),
        ],
        Fixed("noquota", |o| o.ext4.ignore_limits.to_string()),
        "Quotas count if the volume has them as a feature; otherwise these print that it has none. Quota \
         files are not read. With noquota, quotas only count, and limit nothing",
    ),
    ext4(
        &[
            ("discard", Set(|o| o.ext4.discard = Some(true))),
            ("nodiscard", Set(|o| o.ext4.discard = Some(false))),
        ],
        Fixed("discard", |o| chosen(o.ext4.discard)),
        "The image or the device is told of blocks that are freed, or not. The default is as the volume says",
    ),
    ext4(
        &[
            ("block_validity", Set(|o| o.ext4.block_validity = true)),
            ("noblock_validity", Set(|o| o.ext4.block_validity = false)),
        ],
        Fixed("block_validity", |o| o.ext4.block_validity.to_string()),
        "A volume that keeps blocks for more group descriptors, but lacks the feature resize_inode, is \
         damaged, the default; or files may have these blocks. Files never get other blocks of the \
         volume's own",
    ),
    ignored(
        &[
            ("defaults", Ignored),
            ("auto", Ignored),
            ("noauto", Ignored),
            ("nouser", Ignored),
            ("nousers", Ignored),
            ("noowner", Ignored),
            ("nogroup", Ignored),
            ("_netdev", Ignored),
            ("silent", Ignored),
            ("loud", Ignored),
            ("loop", Ignored),
            ("loop=DEVICE", ANY),
            ("comment=TEXT", ANY),
            ("helper=NAME", ANY),
            ("uhelper=NAME", ANY),
            ("x-*", Ignored),
            ("X-*", Ignored),
        ],
        "For mount(8), fstab and the boot",
    ),
    ignored(
        &[("default_permissions", Ignored), ("nonempty", Ignored)],
        "Holds anyway",
    ),
    ignored(
        &[
            ("jqfmt=vfsold", Ignored),
            ("jqfmt=vfsv0", Ignored),
            ("jqfmt=vfsv1", Ignored),
        ],
        "Quota files are not read",
    ),
    ignored(
        &[("mand", Ignored), ("nomand", Ignored)],
        "Linux has no mandatory locks any more, and ignores these as well",
    ),
    ignored(
        &[
            ("delalloc", Ignored),
            ("nodelalloc", Ignored),
            ("auto_da_alloc", Ignored),
            ("auto_da_alloc=NUMBER", NUMBER),
            ("noauto_da_alloc", Ignored),
            ("mb_optimize_scan=NUMBER", NUMBER),
            ("mblk_io_submit", Ignored),
            ("nomblk_io_submit", Ignored),
            ("orlov", Ignored),
            ("oldalloc", Ignored),
            ("reservation", Ignored),
            ("noreservation", Ignored),
            ("stripe=NUMBER", NUMBER),
        ],
        "Tunes how Linux allocates blocks",
    ),
    ignored(
        &[
            ("barrier", Ignored),
            ("barrier=NUMBER", NUMBER),
            ("nobarrier", Ignored),
            ("bh", Ignored),
            ("nobh", Ignored),
            ("nocheck", Ignored),
            ("check=none", Ignored),
            ("dax=inode", Ignored),
            ("dax=never", Ignored),
            ("debug", Ignored),
            ("dioread_nolock", Ignored),
            ("dioread_lock", Ignored),
            ("nodioread_nolock", Ignored),
            ("i_version", Ignored),
            ("iversion", Ignored),
            ("noiversion", Ignored),
            ("init_itable", Ignored),
            ("init_itable=NUMBER", NUMBER),
            ("noinit_itable", Ignored),
            ("inlinecrypt", Ignored),
            (
                "inode_readahead_blks=NUMBER, 0 or a power of two",
                Value(|_, text| {
                    number(text)
                        .filter(|blocks| *blocks == 0 || blocks.is_power_of_two())
                        .map(drop)
                }),
            ),
            (
                "journal_ioprio=NUMBER, at most 7",
                Value(|_, text| number(text).filter(|class| *class <= 7).map(drop)),
            ),
            ("max_batch_time=NUMBER", NUMBER),
            ("min_batch_time=NUMBER", NUMBER),
            ("mbcache", Ignored),
            ("nombcache", Ignored),
            ("no_mbcache", Ignored),
            ("prefetch_block_bitmaps", Ignored),
            ("no_prefetch_block_bitmaps", Ignored),
        ],
        "Tells Linux how to work, and users of the volume see no difference. Nothing is lost where an option \
         lets Linux take less care",
    ),
    refused(
        &[("strictatime", Refused)],
        "the kernel answers reads from its page cache and does not tell; relatime sets access times when \
         contents are read from the volume",
    ),
    refused(
        &[("abort", Refused)],
        "it makes Linux behave as after damage, for tests of Linux",
    ),
    refused(
        &[("dax", Refused), ("dax=always", Refused)],
        "files are not mapped straight from memory that keeps them",
    ),
    refused(
        &[("journal_async_commit", Refused)],
        "a commit block is written only when all that it commits is durable",
    ),
    refused(
        &[
            ("context=LABEL", Refused),
            ("fscontext=LABEL", Refused),
            ("defcontext=LABEL", Refused),
            ("rootcontext=LABEL", Refused),
        ],
        "a mount has no SELinux label for all files; a file's own label is its attribute security.selinux",
    ),
    refused(
        &[
            ("test_dummy_encryption", Refused),
            ("test_dummy_encryption=VERSION", Refused),
        ],
        "nothing is encrypted here",
    ),
    refused(
        &[
            ("X-mount.group=GROUP", Refused),
            ("X-mount.idmap=MAP", Refused),
            ("X-mount.mode=MODE", Refused),
            ("X-mount.owner=USER", Refused),
            ("X-mount.subdir=DIR", Refused),
        ],
        "only mount(8) does that: mount -t extern4",
    ),
];

type Spellings = &'static [(&'static str, Meaning)];

const fn kernel(spellings: Spellings, help: &'static str) -> MountOption {
    MountOption {
        spellings,
        layer: Layer::Kernel,
        remount: Changes,
        help,
    }
}

const fn command(spellings: Spellings, help: &'static str) -> MountOption {
    MountOption {
        spellings,
        layer: Layer::Command,
        remount: Ignores,
        help,
    }
}

const fn server(spellings: Spellings, remount: Remount, help: &'static str) -> MountOption {
    MountOption {
        spellings,
        layer: Layer::Server,
        remount,
        help,
    }
}

const fn ext4(spellings: Spellings, remount: Remount, help: &'static str) -> MountOption {
    MountOption {
        spellings,
        layer: Layer::Ext4,
        remount,
        help,
    }
}

const fn ignored(spellings: Spellings, help: &'static str) -> MountOption {
    MountOption {
        spellings,
        layer: Layer::Ignored,
        remount: Ignores,
        help,
    }
}

const fn refused(spellings: Spellings, help: &'static str) -> MountOption {
    MountOption {
        spellings,
        layer: Layer::Refused,
        remount: Ignores,
        help,
    }
}

impl MountOption {
    /// Returns whether the first mount sets the option for good, so that a remount cannot change
    /// it.
    pub(super) fn is_fixed(&self) -> bool {
        matches!(self.remount, Fixed(..) | Reported)
    }
}

impl Meaning {
    /// Applies the spelling to the options. `None` means that the value does not fit.
    pub(super) fn apply(&self, options: &mut Options, value: &str) -> Option<()> {
        match self {
            Flag(flag, on) => options.mount.flags.set(*flag, *on),
            Set(set) => set(options),
            Value(set) => return set(options, value),
            Ignored | Refused => {}
        }
        Some(())
    }
}

/// Sets a field, as the last step of a [`Value`].
#[expect(clippy::unnecessary_wraps, reason = "the steps before it end with `?`")]
fn set<T>(field: &mut T, value: T) -> Option<()> {
    *field = value;
    Some(())
}

/// Reads the file name of a journaled quota. The name does not matter, because the quota of the
/// volume counts; an empty name means none.
fn quota_file(options: &mut Options, text: &str) -> Option<()> {
    if !text.is_empty() {
        options.expect_quotas();
    }
    Some(())
}

/// Returns the path of the block special file with a number in ext4's format. The number holds 8
/// bits of the minor number, 12 of the major one, and then the minor one's others.
fn device_path(text: &str) -> Option<PathBuf> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number(text)?,
    };
    let major = number >> 8 & 0xfff;
    let minor = number & 0xff | number >> 12 & 0xf_ff00;
    Some(format!("/dev/block/{major}:{minor}").into())
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

fn number_or_own(number: Option<u32>) -> String {
    number.map_or_else(|| OWN.to_owned(), |number| number.to_string())
}

fn chosen(chosen: Option<bool>) -> String {
    chosen.map_or_else(|| BY_VOLUME.to_owned(), |is| is.to_string())
}
