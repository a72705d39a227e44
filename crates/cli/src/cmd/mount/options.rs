//! The words behind `-o`.

use std::sync::Arc;
use std::time::Duration;

use extern4::{Atime, DataMode, ErrorPolicy};
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
    ("barrier", |_| {}),
    ("barrier=1", |_| {}),
    ("nodiscard", |_| {}),
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
    ("lazytime", |o| o.lazytime = true),
    ("nolazytime", |o| o.lazytime = false),
    ("suid", |o| o.mount.nosuid = false),
    ("nosuid", |o| o.mount.nosuid = true),
    ("dev", |o| o.mount.nodev = false),
    ("nodev", |o| o.mount.nodev = true),
    ("exec", |o| o.mount.noexec = false),
    ("noexec", |o| o.mount.noexec = true),
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

/// Reads the value of a word; `None` for what cannot be one.
type Read = fn(&str) -> Option<Effect>;

/// Every word that has a value of its own, how that is written, and what it does.
const VALUES: &[(&str, &str, Read)] = &[
    ("commit", "SECONDS", |text| {
        let seconds = number(text)?;
        effect(move |o| o.commit = Some(seconds))
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
    ("memory", "BYTES", |text| {
        let memory = Memory::of(offset(text)?)?;
        effect(move |o| o.memory = memory)
    }),
];

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
    if let Some((_, form, read)) = VALUES.iter().find(|(known, ..)| *known == key) {
        return read(value).ok_or_else(|| format!("'{word}': it is written {key}={form}"));
    }
    let known = WORDS.iter().map(|(known, _)| (*known).to_owned());
    let known: Vec<_> = known.chain(VALUES.iter().map(|(key, form, _)| format!("{key}={form}"))).collect();
    Err(format!("'{word}' is not known; there are {}", known.join(", ")))
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
        assert!(why("nobarrier").contains("'nobarrier' is not known"));
        for bad in [
            "commit=soon",
            "commit",
            "uid=root",
            "uid=-1",
            "offset=1X",
            "memory=1",
            "errors=ignore",
            "data=none",
        ] {
            assert!(why(bad).contains(&format!("'{bad}'")), "{bad}: {}", why(bad));
        }
    }

    #[test]
    fn words_have_values() {
        let options = read(&["commit=30,uid=7,gid=0,offset=1M,errors=continue,data=ordered", "uid=8"]);
        assert_eq!(options.commit_interval().map(|time| time.as_secs()), Some(30));
        assert_eq!((options.owner, options.offset), ((Some(8), Some(0)), Some(1 << 20)));
        assert_eq!((options.errors, options.data), (Some(ErrorPolicy::Continue), Some(DataMode::Ordered)));
        assert_eq!(read(&["data=journal"]).data, Some(DataMode::Journal));
        assert_eq!(
            (read(&["data=journal,data=writeback"]).data, read(&[]).data),
            (Some(DataMode::Writeback), None)
        );
        let usual = read(&["commit=30,commit=0"]);
        assert_eq!((usual.commit, usual.commit_interval()), (Some(0), None));
        let table = "defaults,noauto,nofail,user,_netdev,x-systemd.automount,X-mount.mkdir,comment=mine";
        assert!(parse(table).is_ok());
    }
}
