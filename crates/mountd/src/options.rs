//! The words after `-o`: parsed, and sorted by the layer that carries each out.
//!
//! `mount` and `remount` read them. An unknown word, or a value that does not fit, is refused
//! before the volume is opened. Later words override earlier ones, as in mount(8).

mod help;
mod spelling;
mod table;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use extern4::ErrorPolicy;
use extern4::block::CacheBudget;
use extern4::part::Part;
use extern4_fuse::{Config, MountFlags, MountOptions};
use rustix::process::geteuid;

pub use self::help::{Row, help, rows};
pub use self::spelling::starts;
use self::table::{Meaning, MountOption, Remount, TABLE};
use crate::source::Source;

/// The most memory for requests through rings.
const MAX_RING_BYTES: u64 = 48 << 20;
/// The least memory for caches that a mount can work with.
const MIN_MEMORY_BYTES: u64 = 4 << 20;

/// The words of one `-o`.
#[derive(Clone)]
pub struct Words {
    /// The words as they were written.
    text: String,
    words: Vec<Word>,
}

/// A word, with its value if it has one.
#[derive(Clone)]
struct Word {
    option: &'static MountOption,
    meaning: &'static Meaning,
    value: String,
}

/// The options of a mount, for the layers that carry them out. Later words override earlier ones.
#[derive(Debug)]
pub(crate) struct Options {
    /// For the kernel.
    pub(crate) mount: MountOptions,
    /// For the server.
    pub(crate) server: Config,
    /// For the ext4 file system.
    pub(crate) ext4: extern4::ext4::OpenOptions,
    /// Where the journal is, if not in the volume.
    pub(crate) journal: Option<PathBuf>,
    /// Whether the options change an existing mount.
    pub(crate) remount: bool,
    /// Whether a missing image is no failure.
    pub(crate) nofail: bool,
    /// The mode of the mount directory, which is made if it does not exist.
    pub(crate) mkdir: Option<u32>,
    /// The start of the volume in the image, in bytes.
    pub(crate) offset: Option<u64>,
    /// The most bytes that the volume may have.
    pub(crate) size_limit: Option<u64>,
    /// Whether this has to be the mount of a block device; `None` makes it one where possible.
    pub(crate) fuseblk: Option<bool>,
    /// Whether the user expects quotas.
    pub(crate) quota: bool,
    /// Whether only the mounting user and root are served.
    allow_root: bool,
}

impl Default for Options {
    fn default() -> Self {
        let mut options = Self {
            mount: MountOptions::default(),
            server: Config::default(),
            ext4: extern4::ext4::OpenOptions::default(),
            journal: None,
            remount: false,
            nofail: false,
            mkdir: None,
            offset: None,
            size_limit: None,
            fuseblk: None,
            quota: false,
            allow_root: false,
        };
        options.set_memory(CacheBudget::of_process());
        options
    }
}

impl Options {
    /// Returns whether the mount has this flag.
    pub(crate) fn has(&self, flag: MountFlags) -> bool {
        self.mount.flags.contains(flag)
    }

    /// Returns whether nothing may be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.has(MountFlags::RDONLY)
    }

    /// Returns the name that the mount table shows in place of the image, if one is given.
    pub(crate) fn fsname(&self) -> Option<&OsStr> {
        Some(&*self.mount.source).filter(|name| !name.is_empty())
    }

    /// Returns the volume in `source`; `None` if both that and the options give its location.
    pub(crate) fn source(&self, source: &Source) -> Option<Source> {
        let part = match (self.offset, source.part) {
            (None, part) => part,
            (Some(bytes), Part::Whole) => Part::Offset(bytes),
            (Some(_), _) => return None,
        };
        let file = source.file.clone();
        Some(Source { file, part })
    }

    /// Returns the settings that a mount decides once and a remount cannot change: by name, for
    /// people to read. The use of the journal is reported next to them.
    pub(crate) fn fixed(&self) -> Vec<(&'static str, String)> {
        let setting = |option: &MountOption| match option.remount {
            Remount::Fixed(name, show) => Some((name, show(self))),
            _ => None,
        };
        TABLE.iter().filter_map(setting).collect()
    }

    /// Sets the memory of the volume's caches. Requests through rings get up to a quarter as much
    /// in addition.
    fn set_memory(&mut self, budget: Arc<CacheBudget>) {
        let part = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let bytes = budget.limit();
        self.ext4.budget = budget;
        self.server.max_ring_bytes = part((bytes / 4).min(MAX_RING_BYTES));
    }

    fn expect_quotas(&mut self) {
        (self.quota, self.ext4.ignore_limits) = (true, false);
    }

    /// Combines all the lists.
    pub(crate) fn of(lists: &[Words]) -> Self {
        let mut options = Self::default();
        for word in lists.iter().flat_map(|words| &words.words) {
            word.meaning
                .apply(&mut options, &word.value)
                .expect("`parse` has tried it");
        }
        if options.server.fakeroot.is_some() {
            (
                options.mount.unchecked,
                options.mount.private,
                options.allow_root,
            ) = (true, true, false);
            // The kernel does not see the caller as a privileged user, and would run set-id
            // programs by the modes that the server reports.
            options.mount.flags |= MountFlags::NOSUID;
            options.server.lifetime = Duration::ZERO;
        }
        if options.allow_root {
            // The kernel knows only mounts for one user and mounts for all. Root's mount for one
            // user serves just root. For any other user the server checks each caller itself, so
            // the kernel must ask it for each name.
            options.mount.private = geteuid().is_root();
            options.mount.allow_other = true;
            options.server.only = (!geteuid().is_root()).then(|| geteuid().as_raw());
        }
        if options.server.only.is_some() {
            (options.server.opens, options.server.lifetime) = (true, Duration::ZERO);
        }
        options
    }
}

/// Reads a list of words with commas between them.
///
/// # Errors
/// The reason why a word is refused.
pub fn parse(text: &str) -> Result<Words, String> {
    let word = |word: &str| {
        let (option, meaning) = spelling::find(word)?;
        let value = word
            .split_once('=')
            .map_or("", |(_, value)| value)
            .to_owned();
        Ok::<_, String>(Word {
            option,
            meaning,
            value,
        })
    };
    let words = text.split(',').filter(|word| !word.is_empty());
    Ok(Words {
        text: text.to_owned(),
        words: words.map(word).collect::<Result<_, _>>()?,
    })
}

/// Returns the word for a mount in which nothing can be changed.
pub(crate) fn read_only() -> Words {
    parse("ro").expect("it is one")
}

/// Returns the words as they were written.
pub(crate) fn text(lists: &[Words]) -> String {
    lists
        .iter()
        .map(|words| &*words.text)
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns whether a word sets something that a remount cannot change, even to its current value.
pub(crate) fn says_fixed(lists: &[Words]) -> bool {
    lists
        .iter()
        .flat_map(|words| &words.words)
        .any(|word| word.option.is_fixed())
}

/// Returns an error policy as `errors=` spells it; `None` for one that has no meaning.
pub(crate) fn errors_name(errors: ErrorPolicy) -> Option<&'static str> {
    match errors {
        ErrorPolicy::Continue => Some("continue"),
        ErrorPolicy::RemountReadOnly => Some("remount-ro"),
        ErrorPolicy::Panic => Some("panic"),
        ErrorPolicy::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{MIN_MEMORY_BYTES, Options, parse};
    use extern4::{DEFAULT_COMMIT_INTERVAL, DataMode, ErrorPolicy};
    use extern4_fuse::MountFlags;

    fn read(lists: &[&str]) -> Options {
        Options::of(
            &lists
                .iter()
                .map(|list| parse(list).expect("known words"))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn later_words_override_earlier_ones() {
        let flags = |lists: &[&str]| read(lists).mount.flags;
        assert_eq!(flags(&["ro"]), MountFlags::RDONLY);
        assert_eq!(
            (flags(&["ro,rw"]), flags(&["ro", "rw"])),
            (MountFlags::empty(), MountFlags::empty())
        );
        assert_eq!(
            (flags(&["noatime"]), flags(&["noatime", "atime"])),
            (MountFlags::NOATIME, MountFlags::empty())
        );
        assert_eq!(flags(&["nodiratime"]), MountFlags::NODIRATIME);
        assert_eq!(flags(&["nodiratime,diratime"]), MountFlags::empty());
        let expected = MountFlags::NOSUID | MountFlags::LAZYTIME;
        assert_eq!(flags(&["nosuid,nodev,lazytime,,defaults", "dev"]), expected);
        let lifetime = |lists: &[&str]| read(lists).server.lifetime;
        assert!(lifetime(&["lifetime=0"]).is_zero() && !lifetime(&[]).is_zero());
    }

    #[test]
    fn unknown_words_are_named() {
        let why = |text| parse(text).err().unwrap_or_default();
        assert!(why("ro,quickly").contains("'quickly' is not known; extern4 mount --help"));
        for (wrong, near) in [
            ("nodirtime", "nodiratime"),
            ("noatim", "noatime"),
            ("comit=5", "commit"),
            ("fakerot", "fakeroot"),
            ("dta=ordered", "data"),
            ("allow-other", "allow_other"),
        ] {
            let expected = format!("'{wrong}' is not known; did you mean '{near}'?");
            assert_eq!(why(wrong), expected);
        }
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
            assert!(
                why(bad).contains(&format!("'{bad}'")),
                "{bad}: {}",
                why(bad)
            );
        }
    }

    /// The fate of a word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fate {
        /// It changes how the volume is mounted.
        Means,
        /// It states a fact that holds anyway, or tells Linux how to work.
        Idle,
        /// It is refused, with this in the reason.
        Refused(&'static str),
    }
    use Fate::{Idle, Means, Refused};

    /// The words of mount(8), ext4(5) and FUSE.
    const ALL: &[(Fate, &[&str])] = &[
        (
            Means,
            &[
                "noblock_validity",
                "user",
                "users",
                "owner",
                "group",
                "nofail",
                "nosuid",
                "nodev",
                "noexec",
                "nosymfollow",
                "noatime",
                "nodiratime",
                "lazytime",
                "sync",
                "dirsync",
                "ro",
                "remount",
                "X-mount.mkdir",
                "X-mount.mkdir=0700",
                "offset=4096",
                "sizelimit=1M",
                "acl,noacl",
                "nouser_xattr",
                "nouid32",
                "bsdgroups",
                "grpid",
                "nogrpid",
                "sysvgroups",
                "minixdf",
                "quota",
                "usrquota",
                "grpquota",
                "prjquota",
                "noquota",
                "usrjquota=aquota.user,jqfmt=vfsv1",
                "grpjquota=aquota.group,jqfmt=vfsold",
                "discard",
                "nodiscard",
                "noload",
                "norecovery",
                "data=journal",
                "data=ordered",
                "data=writeback",
                "data_err=abort",
                "journal_checksum",
                "nojournal_checksum",
                "errors=continue",
                "errors=remount-ro",
                "errors=panic",
                "commit=7",
                "sb=131072",
                "resuid=7",
                "resgid=7",
                "max_dir_size_kb=4",
                "journal_path=/dev/x",
                "journal_dev=0x801",
                "fsname=name",
                "allow_other",
                "allow_root",
                "fakeroot",
            ],
        ),
        (
            Idle,
            &[
                "defaults",
                "auto",
                "noauto",
                "nouser",
                "_netdev",
                "rw",
                "suid",
                "dev",
                "exec",
                "async",
                "atime",
                "relatime",
                "diratime",
                "norelatime",
                "nostrictatime",
                "nolazytime",
                "symfollow",
                "silent",
                "loud",
                "iversion",
                "noiversion",
                "i_version",
                "mand",
                "nomand",
                "loop",
                "loop=/dev/loop3",
                "comment=mine",
                "x-systemd.automount",
                "x-gvfs-hide",
                "X-mine",
                "helper=extern4",
                "uhelper=udisks2",
                "nonempty",
                "default_permissions",
                "user_xattr",
                "acl",
                "usrjquota=",
                "grpjquota=",
                "jqfmt=vfsv0",
                "bsddf",
                "delalloc",
                "nodelalloc",
                "barrier",
                "barrier=0",
                "nobarrier",
                "auto_da_alloc",
                "auto_da_alloc=0",
                "noauto_da_alloc",
                "block_validity",
                "dioread_nolock",
                "dioread_lock",
                "nodioread_nolock",
                "data_err=ignore",
                "debug",
                "init_itable",
                "init_itable=10",
                "noinit_itable",
                "inlinecrypt",
                "inode_readahead_blks=32",
                "stripe=16",
                "max_batch_time=0",
                "min_batch_time=0",
                "journal_ioprio=3",
                "mb_optimize_scan=1",
                "nombcache",
                "no_mbcache",
                "prefetch_block_bitmaps",
                "no_prefetch_block_bitmaps",
                "mblk_io_submit",
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
                "max_dir_size_kb=0",
            ],
        ),
        (Refused("durable"), &["journal_async_commit"]),
        (Refused("page cache"), &["strictatime"]),
        (
            Refused("security.selinux"),
            &[
                "context=a:b",
                "fscontext=a",
                "defcontext=a",
                "rootcontext=a",
            ],
        ),
        (Refused("memory that keeps them"), &["dax", "dax=always"]),
        (Refused("tests of Linux"), &["abort"]),
        (
            Refused("nothing is encrypted"),
            &["test_dummy_encryption", "test_dummy_encryption=v2"],
        ),
        (
            Refused("mount(8)"),
            &[
                "X-mount.subdir=a",
                "X-mount.owner=a",
                "X-mount.idmap=b:0:1:1",
            ],
        ),
        (
            Refused("it is written"),
            &[
                "jqfmt=vfsv9",
                "inode_readahead_blks=33",
                "journal_ioprio=8",
                "max_dir_size_kb=x",
                "commit=x",
                "sb=x",
                "resuid=x",
                "fsname=",
                "X-mount.mkdir=9",
                "sizelimit=x",
            ],
        ),
    ];

    #[test]
    fn each_word_has_its_meaning_or_is_idle_or_refused_with_a_reason() {
        let usual = format!("{:?}", read(&[]));
        for (fate, words) in ALL {
            for word in *words {
                let found = match (parse(word), fate) {
                    (Ok(words), _)
                        if format!("{:?}", Options::of(std::slice::from_ref(&words))) == usual =>
                    {
                        Idle
                    }
                    (Ok(_), _) => Means,
                    (Err(why), Refused(reason)) => {
                        assert!(why.contains(word) && why.contains(reason), "{why}");
                        assert!(
                            !why.contains("nodiratime"),
                            "a reason, and no list of words: {why}"
                        );
                        *fate
                    }
                    (Err(why), _) => panic!("{why}"),
                };
                assert_eq!(found, *fate, "{word}");
            }
        }
    }

    #[test]
    fn memory_below_the_least_names_the_least() {
        for few in ["memory=1", "memory=1M", "memory=4194303"] {
            let why = parse(few).err().unwrap_or_default();
            assert!(why.contains(few) && why.contains("at least 4M"), "{why}");
        }
        let least = read(&["memory=4M"]);
        assert_eq!(least.ext4.budget.limit(), MIN_MEMORY_BYTES);
    }

    #[test]
    fn words_that_only_tune_linux_are_taken() {
        let table = "delalloc,nobarrier,barrier=0,barrier,noauto_da_alloc,auto_da_alloc=1,inode_readahead_blks=64,stripe=16,i_version,\
            max_batch_time=0,init_itable=10,noinit_itable,init_itable,block_validity,dioread_nolock,journal_ioprio=3,acl,user_xattr,noiversion,data_err=ignore,debug,\
            nostrictatime,usrquota,grpquota,prjquota,quota";
        let options = read(&[table]);
        assert_eq!(
            (options.fixed(), options.ext4.bsd_groups),
            (read(&[]).fixed(), None)
        );
        let ext4 = |words: &str| read(&[words]).ext4;
        assert_eq!(
            (
                ext4("grpid").bsd_groups,
                ext4("grpid,sysvgroups").bsd_groups
            ),
            (Some(true), Some(false))
        );
        let quotas = |words: &str| (read(&[words]).quota, ext4(words).ignore_limits);
        assert_eq!(
            (quotas("noquota,prjquota"), quotas("quota,noquota")),
            ((true, false), (false, true))
        );
        assert_eq!(
            (
                ext4("discard").discard,
                ext4("discard,nodiscard").discard,
                ext4("").discard
            ),
            (Some(true), Some(false), None)
        );
        assert!(ext4("minixdf").minix_df && !ext4("minixdf,bsddf").minix_df);
        assert!(read(&["nosymfollow"]).has(MountFlags::NOSYMFOLLOW));
        assert!(!read(&["nosymfollow,symfollow"]).has(MountFlags::NOSYMFOLLOW));
    }

    #[test]
    fn words_have_values() {
        let options = read(&[
            "commit=30,uid=7,gid=0,offset=1M,errors=continue,data=ordered",
            "uid=8",
        ]);
        assert_eq!(
            options.ext4.commit_interval.map(|time| time.as_secs()),
            Some(30)
        );
        assert_eq!(
            (options.server.owner, options.offset),
            ((Some(8), Some(0)), Some(1 << 20))
        );
        assert_eq!(options.ext4.errors, Some(ErrorPolicy::Continue));
        assert_eq!(options.ext4.data, Some(DataMode::Ordered));
        let reserve = read(&["resuid=7,resgid=50,norecovery"]).ext4;
        assert_eq!(
            (reserve.reserved_uid, reserve.reserved_gid),
            (Some(7), Some(50))
        );
        assert!(reserve.ignore_journal);
        let data = |words: &str| read(&[words]).ext4.data;
        assert_eq!(data("data=journal"), Some(DataMode::Journal));
        assert_eq!(
            (data("data=journal,data=writeback"), data("")),
            (Some(DataMode::Writeback), None)
        );
        let journal = |word: &str| read(&[word]).journal.expect("a path").display().to_string();
        assert_eq!(journal("journal_path=/dev/sdb1"), "/dev/sdb1");
        assert_eq!(
            (journal("journal_dev=0x801"), journal("journal_dev=1051649")),
            ("/dev/block/8:1".into(), "/dev/block/12:257".into())
        );
        let usual = read(&["commit=30,commit=0"]);
        assert_eq!(usual.ext4.commit_interval, Some(DEFAULT_COMMIT_INTERVAL));
        let table =
            "defaults,noauto,nofail,user,_netdev,x-systemd.automount,X-mount.mkdir,comment=mine";
        assert!(parse(table).is_ok());
    }
}
