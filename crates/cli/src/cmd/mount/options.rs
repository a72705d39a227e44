//! The words behind `-o`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extern4::{Atime, Backup, DataMode, ErrorPolicy};
use extern4_fuse::{Config, MountOptions, Transport};

use super::memory::Memory;
use crate::place::{Image, Part, offset};

/// The words of one `-o`.
#[derive(Clone)]
pub(super) struct Words {
    /// As they were written.
    text: String,
    effects: Vec<Effect>,
}

/// What a word does.
type Effect = Arc<dyn Fn(&mut Options) + Send + Sync>;

/// The same of a word without a value.
type Plain = fn(&mut Options);

/// What the words say. Later ones override earlier ones.
pub(super) struct Options {
    /// Nothing may be changed.
    pub(super) read_only: bool,
    /// What is mounted already is to be mounted in another way.
    pub(super) remount: bool,
    /// When reading changes access times.
    pub(super) atime: Atime,
    /// Times alone are written late.
    pub(super) lazytime: bool,
    /// The longest time that a change is in memory only, in seconds, if anything is said of it; 0 for the usual one.
    pub(super) commit: Option<u32>,
    /// What is done about damage, if not what the volume says.
    pub(super) errors: Option<ErrorPolicy>,
    /// How contents of files become durable, if not as the volume says.
    pub(super) data: Option<DataMode>,
    /// New files take their directory's group, if not as the volume says.
    pub(super) bsd_groups: Option<bool>,
    /// `df` counts the volume's own structures as blocks, too.
    pub(super) minix_df: bool,
    /// The user and the group who may use the blocks that are kept back, if not whom the volume says.
    pub(super) reserved_for: (Option<u32>, Option<u32>),
    /// The device is told of what is freed, if not as the volume says.
    pub(super) discard: Option<bool>,
    /// The copy of the superblock by which the volume is read, if not by the superblock itself.
    pub(super) superblock: Option<Backup>,
    /// Quotas are expected.
    pub(super) quota: bool,
    /// Quotas only count.
    pub(super) noquota: bool,
    /// What the journal knows better is left aside.
    pub(super) noload: bool,
    /// Where the journal is, if not in the volume.
    pub(super) journal: Option<PathBuf>,
    /// Where in the image the volume starts, in bytes.
    pub(super) offset: Option<u64>,
    /// Whose all files are shown as: user and group.
    pub(super) owner: (Option<u32>, Option<u32>),
    /// Memory for caches.
    pub(super) memory: Memory,
    /// Whether it has to be the mount of a block device; where it can be, if nothing is said.
    pub(super) fuseblk: Option<bool>,
    /// The kernel keeps what is written.
    pub(super) writeback: bool,
    /// The kernel tells of every file that is opened.
    pub(super) opens: bool,
    /// The kernel may map users for mounts of the mount.
    pub(super) idmap: bool,
    /// How long the kernel keeps attributes and names.
    pub(super) lifetime: Duration,
    /// How the kernel asks.
    pub(super) transport: Transport,
    /// What the kernel has to know.
    pub(super) mount: MountOptions,
}

/// Every word and what it does. Those that do nothing say what is so anyway.
const WORDS: &[(&str, Plain)] = &[
    ("defaults", |_| {}),
    ("default_permissions", |_| {}),
    // What only mount(8) and the boot have to know.
    ("auto", |_| {}),
    ("noauto", |_| {}),
    ("user", |_| {}),
    ("users", |_| {}),
    ("nouser", |_| {}),
    ("owner", |_| {}),
    ("group", |_| {}),
    ("nofail", |_| {}),
    ("nogroup", |_| {}),
    ("noowner", |_| {}),
    ("nousers", |_| {}),
    ("fail", |_| {}),
    ("loop", |_| {}),
    ("_netdev", |_| {}),
    ("silent", |_| {}),
    ("loud", |_| {}),
    // How a volume is always served.
    ("acl", |_| {}),
    ("user_xattr", |_| {}),
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
    ("errors=continue", |o| o.errors = Some(ErrorPolicy::Continue)),
    ("errors=remount-ro", |o| o.errors = Some(ErrorPolicy::RemountReadOnly)),
    ("errors=panic", |o| o.errors = Some(ErrorPolicy::Panic)),
    ("remount", |o| o.remount = true),
    ("allow_other", |o| o.mount.allow_other = true),
    ("ro", |o| o.read_only = true),
    ("rw", |o| o.read_only = false),
    ("noatime", |o| o.atime = Atime::Never),
    ("atime", |o| o.atime = Atime::Relative),
    ("relatime", |o| o.atime = Atime::Relative),
    ("diratime", |o| o.mount.nodiratime = false),
    ("nodiratime", |o| o.mount.nodiratime = true),
    ("norelatime", |o| o.atime = Atime::Strict),
    ("strictatime", |o| o.atime = Atime::Strict),
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

/// What tells Linux's ext4 how to go about what comes to the same for who uses the volume: when it allocates, what it computes ahead, how
/// it asks the disk. Who allows it to take less care loses nothing either.
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
    "data_err=ignore",
    "debug",
    "init_itable",
    "noinit_itable",
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
    "nomand",
];

/// The same with a number each.
const TUNING_VALUES: &[&str] = &[
    "barrier",
    "auto_da_alloc",
    "inode_readahead_blks",
    "stripe",
    "max_batch_time",
    "min_batch_time",
    "init_itable",
    "journal_ioprio",
    "mb_optimize_scan",
];

const OLD_QUOTAS: &str =
    "quotas are kept by a volume that has them as a feature, not in files among others: see tune2fs(8)";

/// What else ext4 knows and this does not do, and why.
const REFUSED: &[(&str, &str)] = &[
    ("data_err=abort", "an error in contents is told to who reads or writes them, and ends nothing else"),
    ("noacl", "ACLs are always heeded"),
    ("nouser_xattr", "attributes of users are always there"),
    ("nouid32", "users and groups have 32 bits"),
    ("mand", "there are no mandatory locks, in Linux either"),
    ("dax", "contents are not mapped from memory that keeps them"),
    ("dax=always", "contents are not mapped from memory that keeps them"),
    ("journal_checksum", "whether a journal has checksums is a feature of the volume: see tune2fs(8)"),
    ("nojournal_checksum", "whether a journal has checksums is a feature of the volume: see tune2fs(8)"),
    ("usrjquota", OLD_QUOTAS),
    ("grpjquota", OLD_QUOTAS),
    ("jqfmt", OLD_QUOTAS),
    ("max_dir_size_kb", "a directory is as large as its names make it"),
    ("journal_async_commit", "commits are written when what they commit is durable"),
];

/// Reads the value of a word; `None` for what cannot be one.
type Read = fn(&str) -> Option<Effect>;

/// Every word that has a value of its own, how that is written, and what it does.
const VALUES: &[(&str, &str, Read)] = &[
    ("commit", "SECONDS", |text| {
        let seconds = number(text)?;
        effect(move |o| o.commit = Some(seconds))
    }),
    ("journal_path", "PATH", |text| {
        let path = (!text.is_empty()).then(|| PathBuf::from(text))?;
        effect(move |o| o.journal = Some(path.clone()))
    }),
    ("journal_dev", "NUMBER", |text| {
        let path = device_path(text)?;
        effect(move |o| o.journal = Some(path.clone()))
    }),
    ("offset", "BYTES", |text| {
        let bytes = offset(text)?;
        effect(move |o| o.offset = Some(bytes))
    }),
    ("uid", "NUMBER", |text| {
        let uid = number(text)?;
        effect(move |o| o.owner.0 = Some(uid))
    }),
    ("gid", "NUMBER", |text| {
        let gid = number(text)?;
        effect(move |o| o.owner.1 = Some(gid))
    }),
    ("resuid", "NUMBER", |text| {
        let uid = number(text)?;
        effect(move |o| o.reserved_for.0 = Some(uid))
    }),
    ("resgid", "NUMBER", |text| {
        let gid = number(text)?;
        effect(move |o| o.reserved_for.1 = Some(gid))
    }),
    ("sb", "KIB", |text| {
        let kib = number(text)?;
        effect(move |o| o.superblock = Some(Backup::Kib(kib.into())))
    }),
    ("memory", "BYTES", |text| {
        let memory = Memory::of(offset(text)?)?;
        effect(move |o| o.memory = memory)
    }),
];

/// The block special file with a number as ext4 takes it: 8 bits of the minor number, 12 of the major one, and the minor one's others.
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
fn effect(effect: impl Fn(&mut Options) + Send + Sync + 'static) -> Option<Effect> {
    Some(Arc::new(effect))
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            remount: false,
            atime: Atime::Relative,
            lazytime: false,
            commit: None,
            errors: None,
            data: None,
            bsd_groups: None,
            minix_df: false,
            reserved_for: (None, None),
            discard: None,
            superblock: None,
            quota: false,
            noquota: false,
            noload: false,
            journal: None,
            offset: None,
            owner: (None, None),
            memory: Memory::default(),
            fuseblk: None,
            writeback: false,
            opens: false,
            idmap: false,
            lifetime: Config::default().lifetime,
            transport: Transport::Auto,
            mount: MountOptions::default(),
        }
    }
}

impl Options {
    /// Where the volume is in `image`; `None` if that and the options both say it.
    pub(super) fn image(&self, image: &Image) -> Option<Image> {
        let part = match (self.offset, image.part) {
            (None, part) => part,
            (Some(bytes), Part::Whole) => Part::Offset(bytes),
            (Some(_), _) => return None,
        };
        Some(Image { file: image.file.clone(), part })
    }

    /// The longest time that a change is in memory only, if the usual one is not meant.
    pub(super) fn commit_interval(&self) -> Option<Duration> {
        // As Linux has it, none means the usual time.
        self.commit.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// What is decided when a volume is mounted, and cannot be changed by mounting it in another way: by name, for people to read. How its
    /// journal is used comes beside it.
    pub(super) fn fixed(&self) -> Vec<(&'static str, String)> {
        let number = |number: Option<u32>| number.map_or("its own".to_owned(), |number| number.to_string());
        let chosen =
            |chosen: Option<bool>| chosen.map_or("as the volume says".to_owned(), |is| is.to_string());
        let errors = self.errors.and_then(errors_name).unwrap_or("as the volume says");
        let transport = match self.transport {
            Transport::Auto => "auto",
            Transport::Device => "device",
            Transport::Ring => "ring",
        };
        let atime = match self.atime {
            Atime::Never => "noatime",
            Atime::Relative => "relatime",
            Atime::Strict => "strictatime",
        };
        vec![
            ("atime", atime.to_owned()),
            ("diratime", (!self.mount.nodiratime).to_string()),
            ("errors", errors.to_owned()),
            ("grpid", chosen(self.bsd_groups)),
            ("minixdf", self.minix_df.to_string()),
            ("resuid", number(self.reserved_for.0)),
            ("resgid", number(self.reserved_for.1)),
            ("discard", chosen(self.discard)),
            ("sb", self.superblock.map_or("its own".to_owned(), |backup| format!("{backup:?}"))),
            ("noquota", self.noquota.to_string()),
            ("noload", self.noload.to_string()),
            (
                "journal",
                self.journal.as_ref().map_or("not given".to_owned(), |path| path.display().to_string()),
            ),
            ("lazytime", self.lazytime.to_string()),
            ("memory", self.memory.blocks_bytes.to_string()),
            ("uid", number(self.owner.0)),
            ("gid", number(self.owner.1)),
            ("writeback_cache", self.writeback.to_string()),
            ("opens", self.opens.to_string()),
            ("idmap", self.idmap.to_string()),
            ("lifetime", self.lifetime.as_secs().to_string()),
            ("transport", transport.to_owned()),
        ]
    }

    /// What all the lists say together.
    pub(super) fn of(lists: &[Words]) -> Self {
        let mut options = Self::default();
        lists.iter().flat_map(|words| &words.effects).for_each(|effect| effect(&mut options));
        options.mount.read_only = options.read_only;
        options.mount.noatime = options.atime == Atime::Never;
        options.mount.strictatime = options.atime == Atime::Strict;
        options
    }
}

/// Reads a list of words with commas between them.
pub(super) fn parse(text: &str) -> Result<Words, String> {
    // Words with a prefix mount(8) leaves to whoever writes the table.
    let free = |word: &str| ["x-", "X-", "comment="].iter().any(|prefix| word.starts_with(prefix));
    let words = text.split(',').filter(|word| !word.is_empty() && !free(word));
    Ok(Words { text: text.to_owned(), effects: words.map(word_effect).collect::<Result<_, _>>()? })
}

/// The word for a mount in which nothing can be changed.
pub(super) fn read_only() -> Words {
    parse("ro").expect("it is one")
}

/// The words as they were written.
pub(super) fn text(lists: &[Words]) -> String {
    lists.iter().map(|words| &*words.text).collect::<Vec<_>>().join(",")
}

/// An error policy as `errors=` has it; `None` for one that has no meaning.
pub(super) fn errors_name(errors: ErrorPolicy) -> Option<&'static str> {
    match errors {
        ErrorPolicy::Continue => Some("continue"),
        ErrorPolicy::RemountReadOnly => Some("remount-ro"),
        ErrorPolicy::Panic => Some("panic"),
        ErrorPolicy::Unknown(_) => None,
    }
}

fn word_effect(word: &str) -> Result<Effect, String> {
    if let Some((_, effect)) = WORDS.iter().find(|(known, _)| *known == word) {
        return Ok(Arc::new(effect));
    }
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    if is_tuning(word, key, value) {
        return Ok(Arc::new(|_| {}));
    }
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| [word, key].contains(refused)) {
        return Err(format!("'{word}' cannot be had: {why}"));
    }
    if let Some((_, form, read)) = VALUES.iter().find(|(known, ..)| *known == key) {
        return read(value).ok_or_else(|| format!("'{word}': it is written {key}={form}"));
    }
    let known = WORDS.iter().map(|(known, _)| (*known).to_owned());
    let known: Vec<_> = known.chain(VALUES.iter().map(|(key, form, _)| format!("{key}={form}"))).collect();
    Err(format!("'{word}' is not known; there are {}", known.join(", ")))
}

/// Whether a word only says how Linux goes about it.
fn is_tuning(word: &str, key: &str, value: &str) -> bool {
    TUNING.contains(&word) || TUNING_VALUES.contains(&key) && number(value).is_some()
}

#[cfg(test)]
mod tests {
    use super::{Options, parse};
    use extern4::{Atime, DataMode, ErrorPolicy};

    fn read(lists: &[&str]) -> Options {
        Options::of(&lists.iter().map(|list| parse(list).expect("known words")).collect::<Vec<_>>())
    }

    #[test]
    fn later_words_override_earlier_ones() {
        assert!(read(&["ro"]).mount.read_only);
        assert!(!read(&["ro,rw"]).read_only);
        assert!(!read(&["ro", "rw"]).mount.read_only);
        assert_eq!(read(&["noatime", "strictatime"]).atime, Atime::Strict);
        assert!(read(&["nodiratime"]).mount.nodiratime && !read(&["nodiratime,diratime"]).mount.nodiratime);
        let options = read(&["nosuid,nodev,lazytime,,defaults", "dev"]);
        assert!(options.mount.nosuid && !options.mount.nodev && options.lazytime);
        assert!(read(&["lifetime=0"]).lifetime.is_zero() && !read(&[]).lifetime.is_zero());
        assert!(read(&["noatime"]).mount.noatime && !read(&[]).mount.noatime);
    }

    #[test]
    fn unknown_words_are_named() {
        let why = |text| parse(text).err().unwrap_or_default();
        assert!(why("ro,quickly").contains("'quickly' is not known"));
        assert!(
            why("usrquota,usrjquota=aquota.user")
                .contains("'usrjquota=aquota.user' cannot be had: quotas are")
        );
        assert!(why("noacl").contains("'noacl' cannot be had: ACLs are always heeded"));
        for bad in [
            "commit=soon",
            "journal_path=",
            "journal_dev=sda",
            "commit",
            "uid=root",
            "resuid=root",
            "uid=-1",
            "offset=1X",
            "memory=1",
            "errors=ignore",
            "data=none",
            "barrier=off",
            "stripe=",
            "stripe",
        ] {
            assert!(why(bad).contains(&format!("'{bad}'")), "{bad}: {}", why(bad));
        }
    }

    #[test]
    fn words_that_only_tune_linux_are_taken() {
        let table = "delalloc,nobarrier,barrier=0,barrier,noauto_da_alloc,auto_da_alloc=1,inode_readahead_blks=64,stripe=16,i_version,\
            max_batch_time=0,init_itable=10,noinit_itable,init_itable,block_validity,dioread_nolock,journal_ioprio=3,acl,user_xattr,noiversion,data_err=ignore,debug,\
            nostrictatime,usrquota,grpquota,prjquota,quota";
        let options = read(&[table]);
        assert_eq!((options.fixed(), options.bsd_groups), (read(&[]).fixed(), None));
        assert_eq!(
            (read(&["grpid"]).bsd_groups, read(&["grpid,sysvgroups"]).bsd_groups),
            (Some(true), Some(false))
        );
        let quotas = |words: &str| (read(&[words]).quota, read(&[words]).noquota);
        assert_eq!((quotas("noquota,prjquota"), quotas("quota,noquota")), ((true, false), (false, true)));
        assert_eq!(
            (read(&["discard"]).discard, read(&["discard,nodiscard"]).discard, read(&[]).discard),
            (Some(true), Some(false), None)
        );
        assert!(read(&["minixdf"]).minix_df && !read(&["minixdf,bsddf"]).minix_df);
        assert!(
            read(&["nosymfollow"]).mount.nosymfollow && !read(&["nosymfollow,symfollow"]).mount.nosymfollow
        );
    }

    #[test]
    fn words_have_values() {
        let options = read(&["commit=30,uid=7,gid=0,offset=1M,errors=continue,data=ordered", "uid=8"]);
        assert_eq!(options.commit_interval().map(|time| time.as_secs()), Some(30));
        assert_eq!((options.owner, options.offset), ((Some(8), Some(0)), Some(1 << 20)));
        let reserve = read(&["resuid=7,resgid=50,norecovery"]);
        assert_eq!((reserve.reserved_for, reserve.noload), ((Some(7), Some(50)), true));
        assert_eq!((options.errors, options.data), (Some(ErrorPolicy::Continue), Some(DataMode::Ordered)));
        assert_eq!(read(&["data=journal"]).data, Some(DataMode::Journal));
        assert_eq!(
            (read(&["data=journal,data=writeback"]).data, read(&[]).data),
            (Some(DataMode::Writeback), None)
        );
        let journal = |word: &str| read(&[word]).journal.expect("a path").display().to_string();
        assert_eq!(journal("journal_path=/dev/sdb1"), "/dev/sdb1");
        assert_eq!(
            (journal("journal_dev=0x801"), journal("journal_dev=1051649")),
            ("/dev/block/8:1".into(), "/dev/block/12:257".into())
        );
        let usual = read(&["commit=30,commit=0"]);
        assert_eq!((usual.commit, usual.commit_interval()), (Some(0), None));
        let table = "defaults,noauto,nofail,user,_netdev,x-systemd.automount,X-mount.mkdir,comment=mine";
        assert!(parse(table).is_ok());
    }
}
