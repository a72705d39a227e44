//! The tables of option words, and the effect of each word.
//!
//! They cover mount(8), ext4(5) and the options of FUSE that users know. Each word is accepted with
//! its meaning, accepted because it only tunes Linux, or refused with a reason.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extern4::{Atime, Backup, DataMode, ErrorPolicy};
use extern4_fuse::Transport;

use super::super::memory::Memory;
use super::Options;
use crate::image_path::offset;

/// The effect of a word.
pub(super) type Effect = Arc<dyn Fn(&mut Options) + Send + Sync>;

/// The effect of a word without a value.
type Plain = fn(&mut Options);

/// Reads the value of a word. An error is the form that the value must have, or the reason why it
/// is not supported.
type Read = fn(&str) -> Result<Effect, String>;

/// Returns whether Linux accepts a number.
type Takes = fn(u32) -> bool;

/// The prefixes of words that mount(8) and other programs keep for themselves.
const FREE: [&str; 6] = ["x-", "X-", "comment=", "helper=", "uhelper=", "loop="];

/// Every word and its effect. A word without an effect states a fact that holds anyway.
const WORDS: &[(&str, Plain)] = &[
    ("defaults", |_| {}),
    ("default_permissions", |_| {}),
    // For mount(8) and the boot.
    ("auto", |_| {}),
    ("noauto", |_| {}),
    // As in mount(8), these imply some of the flags below.
    ("user", |o| (o.mount.nosuid, o.mount.nodev, o.mount.noexec) = (true, true, true)),
    ("users", |o| (o.mount.nosuid, o.mount.nodev, o.mount.noexec) = (true, true, true)),
    ("owner", |o| (o.mount.nosuid, o.mount.nodev) = (true, true)),
    ("group", |o| (o.mount.nosuid, o.mount.nodev) = (true, true)),
    ("nouser", |_| {}),
    ("nousers", |_| {}),
    ("noowner", |_| {}),
    ("nogroup", |_| {}),
    ("nofail", |o| o.nofail = true),
    ("fail", |o| o.nofail = false),
    ("X-mount.mkdir", |o| o.mkdir = Some(0o755)),
    ("loop", |_| {}),
    ("_netdev", |_| {}),
    ("silent", |_| {}),
    ("loud", |_| {}),
    ("nonempty", |_| {}),
    ("acl", |o| o.acls = true),
    ("noacl", |o| o.acls = false),
    ("user_xattr", |o| o.user_xattr = true),
    ("nouser_xattr", |o| o.user_xattr = false),
    ("nouid32", |o| o.uid32 = false),
    ("bsdgroups", |o| o.bsd_groups = Some(true)),
    ("grpid", |o| o.bsd_groups = Some(true)),
    ("sysvgroups", |o| o.bsd_groups = Some(false)),
    ("nogrpid", |o| o.bsd_groups = Some(false)),
    ("bsddf", |o| o.minix_df = false),
    ("minixdf", |o| o.minix_df = true),
    ("quota", |o| (o.quota, o.noquota) = (true, false)),
    ("usrquota", |o| (o.quota, o.noquota) = (true, false)),
    ("grpquota", |o| (o.quota, o.noquota) = (true, false)),
    ("prjquota", |o| (o.quota, o.noquota) = (true, false)),
    ("noquota", |o| (o.quota, o.noquota) = (false, true)),
    ("discard", |o| o.discard = Some(true)),
    ("nodiscard", |o| o.discard = Some(false)),
    ("noload", |o| o.noload = true),
    ("norecovery", |o| o.noload = true),
    ("data=ordered", |o| o.data = Some(DataMode::Ordered)),
    ("data=writeback", |o| o.data = Some(DataMode::Writeback)),
    ("data=journal", |o| o.data = Some(DataMode::Journal)),
    ("journal_checksum", |o| o.journal_checksum = Some(true)),
    ("nojournal_checksum", |o| o.journal_checksum = Some(false)),
    ("data_err=ignore", |o| o.data_err_abort = false),
    ("data_err=abort", |o| o.data_err_abort = true),
    ("errors=continue", |o| o.errors = Some(ErrorPolicy::Continue)),
    ("errors=remount-ro", |o| o.errors = Some(ErrorPolicy::RemountReadOnly)),
    ("errors=panic", |o| o.errors = Some(ErrorPolicy::Panic)),
    ("remount", |o| o.remount = true),
    ("allow_other", |o| o.mount.allow_other = true),
    ("allow_root", |o| o.allow_root = true),
    ("fakeroot", |o| o.fakeroot = true),
    ("ro", |o| o.read_only = true),
    ("rw", |o| o.read_only = false),
    ("noatime", |o| o.atime = Atime::Never),
    ("atime", |o| o.atime = Atime::Relative),
    ("relatime", |o| o.atime = Atime::Relative),
    ("diratime", |o| o.mount.nodiratime = false),
    ("nodiratime", |o| o.mount.nodiratime = true),
    // Without noatime and strictatime, Linux's default is relatime.
    ("norelatime", |o| o.atime = Atime::Relative),
    ("nostrictatime", |o| o.atime = Atime::Relative),
    ("lazytime", |o| o.lazytime = true),
    ("nolazytime", |o| o.lazytime = false),
    ("suid", |o| o.mount.nosuid = false),
    ("nosuid", |o| o.mount.nosuid = true),
    ("dev", |o| o.mount.nodev = false),
    ("nodev", |o| o.mount.nodev = true),
    ("exec", |o| o.mount.noexec = false),
    ("noexec", |o| o.mount.noexec = true),
    ("symfollow", |o| o.mount.nosymfollow = false),
    ("nosymfollow", |o| o.mount.nosymfollow = true),
    ("sync", |o| o.mount.sync = true),
    ("async", |o| (o.mount.sync, o.mount.dirsync) = (false, false)),
    ("dirsync", |o| o.mount.dirsync = true),
    ("fuseblk", |o| o.fuseblk = Some(true)),
    ("nofuseblk", |o| o.fuseblk = Some(false)),
    ("writeback_cache", |o| o.writeback = true),
    ("nowriteback_cache", |o| o.writeback = false),
    ("opens", |o| o.opens = true),
    ("noopens", |o| o.opens = false),
    ("idmap", |o| o.idmap = true),
    ("noidmap", |o| o.idmap = false),
    ("lifetime=0", |o| o.lifetime = Duration::ZERO),
    ("transport=auto", |o| o.transport = Transport::Auto),
    ("transport=device", |o| o.transport = Transport::Device),
    ("transport=ring", |o| o.transport = Transport::Ring),
];

/// Words that tell Linux's ext4 how to work where users of the volume see no difference. They tune
/// its allocation, its computations ahead, and its requests to the disk. A word that allows Linux
/// to take less care loses nothing here.
const TUNING: &[&str] = &[
    "delalloc",
    "nodelalloc",
    "barrier",
    "nobarrier",
    "auto_da_alloc",
    "noauto_da_alloc",
    "block_validity",
    "noblock_validity",
    "dioread_nolock",
    "dioread_lock",
    "nodioread_nolock",
    "i_version",
    "iversion",
    "noiversion",
    "debug",
    "init_itable",
    "noinit_itable",
    "inlinecrypt",
    "mbcache",
    "nombcache",
    "no_mbcache",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
    "mblk_io_submit",
    "nomblk_io_submit",
    "orlov",
    "oldalloc",
    "reservation",
    "noreservation",
    "bh",
    "nobh",
    "nocheck",
    "check=none",
    "dax=inode",
    "dax=never",
    // Linux has no mandatory locks any more, and accepts these words all the same.
    "mand",
    "nomand",
];

/// Words of this kind that take a number, and the numbers that Linux accepts.
const TUNING_VALUES: &[(&str, Takes)] = &[
    ("barrier", |_| true),
    ("auto_da_alloc", |_| true),
    ("inode_readahead_blks", |blocks| blocks == 0 || blocks.is_power_of_two()),
    ("stripe", |_| true),
    ("max_batch_time", |_| true),
    ("min_batch_time", |_| true),
    ("init_itable", |_| true),
    ("journal_ioprio", |class| class <= 7),
    ("mb_optimize_scan", |_| true),
];

const NO_DAX: &str = "files are not mapped straight from memory that keeps them";
const NO_LABELS: &str =
    "a mount has no SELinux label for all files; a file's own label is its attribute security.selinux";
const BY_MOUNT: &str = "only mount(8) does that: mount -t extern4";

/// Words, with any value or none, that are not supported, and the reasons.
const REFUSED: &[(&str, &str)] = &[
    (
        "strictatime",
        "the kernel answers reads from its page cache and does not tell; relatime sets access times when contents are read \
         from the volume",
    ),
    ("abort", "it makes Linux behave as after damage, for tests of Linux"),
    ("dax", NO_DAX),
    ("dax=always", NO_DAX),
    ("journal_async_commit", "a commit block is written only when all that it commits is durable"),
    ("context", NO_LABELS),
    ("fscontext", NO_LABELS),
    ("defcontext", NO_LABELS),
    ("rootcontext", NO_LABELS),
    ("test_dummy_encryption", "nothing is encrypted here"),
    ("X-mount.group", BY_MOUNT),
    ("X-mount.idmap", BY_MOUNT),
    ("X-mount.mode", BY_MOUNT),
    ("X-mount.owner", BY_MOUNT),
    ("X-mount.subdir", BY_MOUNT),
];

/// Every word that takes a value of its own, and its reader.
const VALUES: &[(&str, Read)] = &[
    ("commit", |text| {
        let seconds = number(text).ok_or("SECONDS")?;
        effect(move |o| o.commit = Some(seconds))
    }),
    ("journal_path", |text| {
        let path = (!text.is_empty()).then(|| PathBuf::from(text)).ok_or("PATH")?;
        effect(move |o| o.journal = Some(path.clone()))
    }),
    ("journal_dev", |text| {
        let path = device_path(text).ok_or("NUMBER")?;
        effect(move |o| o.journal = Some(path.clone()))
    }),
    ("offset", |text| {
        let bytes = offset(text).ok_or("BYTES")?;
        effect(move |o| o.offset = Some(bytes))
    }),
    ("sizelimit", |text| {
        let bytes = offset(text).ok_or("BYTES")?;
        // As for losetup(8), 0 means no limit.
        effect(move |o| o.size_limit = Some(bytes).filter(|bytes| *bytes > 0))
    }),
    ("uid", |text| {
        let uid = number(text).ok_or("NUMBER")?;
        effect(move |o| o.owner.0 = Some(uid))
    }),
    ("gid", |text| {
        let gid = number(text).ok_or("NUMBER")?;
        effect(move |o| o.owner.1 = Some(gid))
    }),
    ("resuid", |text| {
        let uid = number(text).ok_or("NUMBER")?;
        effect(move |o| o.reserved_for.0 = Some(uid))
    }),
    ("resgid", |text| {
        let gid = number(text).ok_or("NUMBER")?;
        effect(move |o| o.reserved_for.1 = Some(gid))
    }),
    ("max_dir_size_kb", |text| {
        let kib = number(text).ok_or("KIB")?;
        effect(move |o| o.max_dir_kib = kib)
    }),
    ("usrjquota", quota_file),
    ("grpjquota", quota_file),
    ("jqfmt", |text| match text {
        "vfsold" | "vfsv0" | "vfsv1" => effect(|_| {}),
        _ => Err("vfsold, vfsv0 or vfsv1".to_owned()),
    }),
    ("sb", |text| {
        let kib = number(text).ok_or("KIB")?;
        effect(move |o| o.superblock = Some(Backup::Kib(kib.into())))
    }),
    ("fsname", |text| {
        let name = (!text.is_empty()).then(|| text.to_owned()).ok_or("NAME")?;
        effect(move |o| o.fsname = Some(name.clone()))
    }),
    ("X-mount.mkdir", |text| {
        let mode =
            u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or("MODE, in octal")?;
        effect(move |o| o.mkdir = Some(mode))
    }),
    ("memory", |text| {
        let memory = Memory::of(offset(text).ok_or("BYTES")?)?;
        effect(move |o| o.memory = memory)
    }),
];

/// Reads the file name of a journaled quota. The name does not matter, because the quota of the
/// volume counts; an empty name means none.
fn quota_file(text: &str) -> Result<Effect, String> {
    let is_given = !text.is_empty();
    effect(move |o| (o.quota, o.noquota) = (o.quota || is_given, o.noquota && !is_given))
}

/// Returns the path of the block special file with a number in ext4's format. The number holds 8
/// bits of the minor number, 12 of the major one, and then the minor one's others.
fn device_path(text: &str) -> Option<PathBuf> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number(text)?,
    };
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00);
    Some(format!("/dev/block/{major}:{minor}").into())
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok()
}

#[expect(clippy::unnecessary_wraps, reason = "so that a table of readers has no more than what they read")]
fn effect(effect: impl Fn(&mut Options) + Send + Sync + 'static) -> Result<Effect, String> {
    Ok(Arc::new(effect))
}

/// Returns the effect of a word.
///
/// # Errors
/// The reason why the word is refused.
pub(super) fn effect_of(word: &str) -> Result<Effect, String> {
    if let Some((_, effect)) = WORDS.iter().find(|(known, _)| *known == word) {
        return Ok(Arc::new(effect));
    }
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    if TUNING.contains(&word) {
        return Ok(Arc::new(|_| {}));
    }
    if let Some((_, takes)) = TUNING_VALUES.iter().find(|(known, _)| *known == key) {
        let is_taken = number(value).is_some_and(takes);
        return is_taken
            .then(|| -> Effect { Arc::new(|_| {}) })
            .ok_or_else(|| format!("'{word}': it is written {key}=NUMBER, with a number that Linux takes"));
    }
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| [word, key].contains(refused)) {
        return Err(format!("'{word}' cannot be had: {why}"));
    }
    if let Some((_, read)) = VALUES.iter().find(|(known, _)| *known == key) {
        return read(value).map_err(|form| format!("'{word}': it is written {key}={form}"));
    }
    if FREE.iter().any(|prefix| word.starts_with(prefix)) {
        return Ok(Arc::new(|_| {}));
    }
    Err(match nearest(key) {
        Some(near) => format!("'{word}' is not known; did you mean '{near}'?"),
        None => format!("'{word}' is not known; extern4 mount --help lists the options"),
    })
}

/// Returns the known word that is spelled most like `wrong`, if one is close.
fn nearest(wrong: &str) -> Option<&'static str> {
    let known = WORDS.iter().map(|(word, _)| word.split('=').next().unwrap_or(word));
    let known = known.chain(VALUES.iter().map(|(key, _)| *key)).chain(TUNING.iter().copied());
    let (likeness, near) = known
        .map(|word| (strsim::jaro_winkler(wrong, word), word))
        .max_by(|one, other| one.0.total_cmp(&other.0))?;
    (likeness > 0.8).then_some(near)
}
