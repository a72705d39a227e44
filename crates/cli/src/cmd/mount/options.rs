//! The words behind `-o`.

use std::time::Duration;

use extern4::Atime;
use extern4_fuse::{Config, MountOptions, Transport};

/// The words of one `-o`.
#[derive(Clone)]
pub(super) struct Words(Vec<Effect>);

/// What a word does.
type Effect = fn(&mut Options);

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
    /// The kernel tells of every file that is opened.
    pub(super) opens: bool,
    /// How long the kernel keeps attributes and names.
    pub(super) lifetime: Duration,
    /// How the kernel asks.
    pub(super) transport: Transport,
    /// What the kernel has to know.
    pub(super) mount: MountOptions,
}

/// Every word and what it does. Those that do nothing say what is so anyway.
const WORDS: &[(&str, Effect)] = &[
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
    ("loop", |_| {}),
    ("_netdev", |_| {}),
    ("remount", |o| o.remount = true),
    ("allow_other", |o| o.mount.allow_other = true),
    ("ro", |o| o.read_only = true),
    ("rw", |o| o.read_only = false),
    ("noatime", |o| o.atime = Atime::Never),
    ("atime", |o| o.atime = Atime::Relative),
    ("relatime", |o| o.atime = Atime::Relative),
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
    ("opens", |o| o.opens = true),
    ("noopens", |o| o.opens = false),
    ("lifetime=0", |o| o.lifetime = Duration::ZERO),
    ("transport=auto", |o| o.transport = Transport::Auto),
    ("transport=device", |o| o.transport = Transport::Device),
    ("transport=ring", |o| o.transport = Transport::Ring),
];

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            remount: false,
            atime: Atime::Relative,
            lazytime: false,
            opens: false,
            lifetime: Config::default().lifetime,
            transport: Transport::Auto,
            mount: MountOptions::default(),
        }
    }
}

impl Options {
    /// What all the lists say together.
    pub(super) fn of(lists: &[Words]) -> Self {
        let mut options = Self::default();
        lists.iter().flat_map(|Words(effects)| effects).for_each(|effect| effect(&mut options));
        options.mount.read_only = options.read_only;
        options.mount.noatime = options.atime == Atime::Never;
        options
    }
}

/// Reads a list of words with commas between them.
pub(super) fn parse(text: &str) -> Result<Words, String> {
    let mut effects = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        // Words that mount(8) leaves to whoever writes the table.
        if word.starts_with("x-") || word.starts_with("comment=") {
            continue;
        }
        let Some((_, effect)) = WORDS.iter().find(|(known, _)| *known == word) else {
            let known: Vec<_> = WORDS.iter().map(|(known, _)| *known).collect();
            return Err(format!("'{word}' is not known; there are {}", known.join(", ")));
        };
        effects.push(*effect);
    }
    Ok(Words(effects))
}

#[cfg(test)]
mod tests {
    use super::{Options, parse};
    use extern4::Atime;

    fn read(lists: &[&str]) -> Options {
        Options::of(&lists.iter().map(|list| parse(list).expect("known words")).collect::<Vec<_>>())
    }

    #[test]
    fn later_words_override_earlier_ones() {
        assert!(read(&["ro"]).mount.read_only);
        assert!(!read(&["ro,rw"]).read_only);
        assert!(!read(&["ro", "rw"]).mount.read_only);
        assert_eq!(read(&["noatime", "strictatime"]).atime, Atime::Strict);
        let options = read(&["nosuid,nodev,lazytime,,defaults", "dev"]);
        assert!(options.mount.nosuid && !options.mount.nodev && options.lazytime);
        assert!(read(&["lifetime=0"]).lifetime.is_zero() && !read(&[]).lifetime.is_zero());
        assert!(read(&["noatime"]).mount.noatime && !read(&[]).mount.noatime);
    }

    #[test]
    fn unknown_words_are_named() {
        assert!(parse("ro,quickly").err().is_some_and(|why| why.contains("'quickly' is not known")));
    }
}
