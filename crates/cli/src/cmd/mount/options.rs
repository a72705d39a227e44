//! The words after `-o`.

mod words;

use std::path::PathBuf;
use std::time::Duration;

use extern4::{Atime, Backup, DataMode, ErrorPolicy};
use extern4_fuse::{Config, MountOptions, Transport};
use rustix::process::geteuid;

use self::words::Effect;
use super::memory::Memory;
use crate::image_path::{Image, Part};

/// The words of one `-o`.
#[derive(Clone)]
pub(super) struct Words {
    /// The words as they were written.
    text: String,
    effects: Vec<Effect>,
}

/// The options of a mount. Later words override earlier ones.
#[derive(Debug)]
pub(super) struct Options {
    /// Nothing may be changed.
    pub(super) read_only: bool,
    /// A missing image is no failure.
    pub(super) nofail: bool,
    /// The mode of the mount directory, which is made if it does not exist.
    pub(super) mkdir: Option<u32>,
    /// ACLs are checked.
    pub(super) acls: bool,
    /// Users may have attributes.
    pub(super) user_xattr: bool,
    /// User and group ids have 32 bits.
    pub(super) uid32: bool,
    /// The size, in KiB, beyond which no directory grows; 0 for none.
    pub(super) max_dir_kib: u32,
    /// Whether the journal has checksums; `None` leaves it to the volume.
    pub(super) journal_checksum: Option<bool>,
    /// A failed write of contents ends all changes.
    pub(super) data_err_abort: bool,
    /// The word changes an existing mount.
    pub(super) remount: bool,
    /// When reading changes access times.
    pub(super) atime: Atime,
    /// Changes of times alone are written late.
    pub(super) lazytime: bool,
    /// The longest time that a change is in memory only, in seconds, if a word sets it; 0 for the
    /// default.
    pub(super) commit: Option<u32>,
    /// The reaction to damage; `None` leaves it to the volume.
    pub(super) errors: Option<ErrorPolicy>,
    /// How contents of files become durable; `None` leaves it to the volume.
    pub(super) data: Option<DataMode>,
    /// Whether new files take their directory's group; `None` leaves it to the volume.
    pub(super) bsd_groups: Option<bool>,
    /// `df` counts the volume's own structures as blocks, too.
    pub(super) minix_df: bool,
    /// The user and the group that may use the reserved blocks; `None` leaves them to the volume.
    pub(super) reserved_for: (Option<u32>, Option<u32>),
    /// Whether the device learns of freed blocks; `None` leaves it to the volume.
    pub(super) discard: Option<bool>,
    /// The copy of the superblock to read the volume by; `None` for the superblock itself.
    pub(super) superblock: Option<Backup>,
    /// Quotas are expected.
    pub(super) quota: bool,
    /// Quotas only count.
    pub(super) noquota: bool,
    /// The journal is not replayed.
    pub(super) noload: bool,
    /// Where the journal is, if not in the volume.
    pub(super) journal: Option<PathBuf>,
    /// The start of the volume in the image, in bytes.
    pub(super) offset: Option<u64>,
    /// The most bytes that the volume may have.
    pub(super) size_limit: Option<u64>,
    /// The name that the mount table shows in place of the image.
    pub(super) fsname: Option<String>,
    /// Only the mounting user is served, and acts as root on the volume.
    pub(super) fakeroot: bool,
    /// Only the mounting user and root are served.
    pub(super) allow_root: bool,
    /// The user and the group that all files are shown to belong to.
    pub(super) owner: (Option<u32>, Option<u32>),
    /// Memory for caches.
    pub(super) memory: Memory,
    /// Whether this has to be the mount of a block device; `None` makes it one where possible.
    pub(super) fuseblk: Option<bool>,
    /// The kernel caches writes.
    pub(super) writeback: bool,
    /// The kernel reports every file that is opened.
    pub(super) opens: bool,
    /// The kernel may map users for mounts of the mount.
    pub(super) idmap: bool,
    /// How long the kernel keeps attributes and names.
    pub(super) lifetime: Duration,
    /// How requests come from the kernel.
    pub(super) transport: Transport,
    /// The options that the kernel has to know.
    pub(super) mount: MountOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            nofail: false,
            mkdir: None,
            acls: true,
            user_xattr: true,
            uid32: true,
            max_dir_kib: 0,
            journal_checksum: None,
            data_err_abort: false,
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
            size_limit: None,
            fsname: None,
            fakeroot: false,
            allow_root: false,
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
    /// Returns the volume in `image`; `None` if both that and the options give its location.
    pub(super) fn image(&self, image: &Image) -> Option<Image> {
        let part = match (self.offset, image.part) {
            (None, part) => part,
            (Some(bytes), Part::Whole) => Part::Offset(bytes),
            (Some(_), _) => return None,
        };
        Some(Image { file: image.file.clone(), part })
    }

    /// Returns the only user to serve, apart from root, where the server has to enforce that. The
    /// kernel knows only mounts for one user and mounts for all.
    pub(super) fn only(&self) -> Option<u32> {
        (self.allow_root && !geteuid().is_root()).then(|| geteuid().as_raw())
    }

    /// Returns the longest time that a change is in memory only; `None` for the default.
    pub(super) fn commit_interval(&self) -> Option<Duration> {
        // As in Linux, 0 means the default.
        self.commit.filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Returns the settings that a mount decides once and a remount cannot change: by name, for
    /// people to read. The use of the journal is reported next to them.
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
            ("acl", self.acls.to_string()),
            ("user_xattr", self.user_xattr.to_string()),
            ("uid32", self.uid32.to_string()),
            ("max_dir_size_kb", self.max_dir_kib.to_string()),
            ("journal_checksum", chosen(self.journal_checksum)),
            ("data_err", if self.data_err_abort { "abort" } else { "ignore" }.to_owned()),
            ("fsname", self.fsname.clone().unwrap_or_else(|| "the image".to_owned())),
            ("fakeroot", self.fakeroot.to_string()),
            ("allow_root", self.allow_root.to_string()),
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

    /// Combines all the lists.
    pub(super) fn of(lists: &[Words]) -> Self {
        let mut options = Self::default();
        lists.iter().flat_map(|words| &words.effects).for_each(|effect| effect(&mut options));
        options.mount.read_only = options.read_only;
        options.mount.noatime = options.atime == Atime::Never;
        options.mount.lazytime = options.lazytime;
        if options.fakeroot {
            (options.mount.unchecked, options.mount.private, options.allow_root) = (true, true, false);
            // The kernel does not see the caller as a privileged user, and would run set-id
            // programs by the modes that the server reports.
            (options.mount.nosuid, options.lifetime) = (true, Duration::ZERO);
        }
        if options.allow_root {
            // The kernel then asks for each name, so that the server knows the caller.
            options.mount.private = geteuid().is_root();
            options.mount.allow_other = true;
        }
        if options.only().is_some() {
            (options.opens, options.lifetime) = (true, Duration::ZERO);
        }
        options
    }
}

/// Reads a list of words with commas between them.
pub(super) fn parse(text: &str) -> Result<Words, String> {
    let words = text.split(',').filter(|word| !word.is_empty());
    Ok(Words { text: text.to_owned(), effects: words.map(words::effect_of).collect::<Result<_, _>>()? })
}

/// Returns the word for a mount in which nothing can be changed.
pub(super) fn read_only() -> Words {
    parse("ro").expect("it is one")
}

/// Returns the words as they were written.
pub(super) fn text(lists: &[Words]) -> String {
    lists.iter().map(|words| &*words.text).collect::<Vec<_>>().join(",")
}

/// Returns an error policy as `errors=` spells it; `None` for one that has no meaning.
pub(super) fn errors_name(errors: ErrorPolicy) -> Option<&'static str> {
    match errors {
        ErrorPolicy::Continue => Some("continue"),
        ErrorPolicy::RemountReadOnly => Some("remount-ro"),
        ErrorPolicy::Panic => Some("panic"),
        ErrorPolicy::Unknown(_) => None,
    }
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
        assert_eq!(read(&["noatime", "atime"]).atime, Atime::Relative);
        assert!(read(&["nodiratime"]).mount.nodiratime && !read(&["nodiratime,diratime"]).mount.nodiratime);
        let options = read(&["nosuid,nodev,lazytime,,defaults", "dev"]);
        assert!(options.mount.nosuid && !options.mount.nodev && options.lazytime);
        assert!(read(&["lifetime=0"]).lifetime.is_zero() && !read(&[]).lifetime.is_zero());
        assert!(read(&["noatime"]).mount.noatime && !read(&[]).mount.noatime);
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
            assert!(why(bad).contains(&format!("'{bad}'")), "{bad}: {}", why(bad));
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
                "noblock_validity",
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
        (Refused("security.selinux"), &["context=a:b", "fscontext=a", "defcontext=a", "rootcontext=a"]),
        (Refused("memory that keeps them"), &["dax", "dax=always"]),
        (Refused("tests of Linux"), &["abort"]),
        (Refused("nothing is encrypted"), &["test_dummy_encryption", "test_dummy_encryption=v2"]),
        (Refused("mount(8)"), &["X-mount.subdir=a", "X-mount.owner=a", "X-mount.idmap=b:0:1:1"]),
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
    fn every_word_is_taken_with_its_meaning_or_is_idle_or_refused_with_a_reason() {
        let usual = format!("{:?}", read(&[]));
        for (fate, words) in ALL {
            for word in *words {
                let found = match (parse(word), fate) {
                    (Ok(words), _) if format!("{:?}", Options::of(std::slice::from_ref(&words))) == usual => {
                        Idle
                    }
                    (Ok(_), _) => Means,
                    (Err(why), Refused(reason)) => {
                        assert!(why.contains(word) && why.contains(reason), "{why}");
                        assert!(!why.contains("nodiratime"), "a reason, and no list of words: {why}");
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
        assert!(parse("memory=4M").is_ok());
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
