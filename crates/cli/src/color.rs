//! Colours of names, by the rules of `ls`: `LS_COLORS` where it is set, else the usual ones.
//!
//! `ls` and `tree` colour with it. Where colours are off, it adds no byte.

use std::collections::HashMap;
use std::io::IsTerminal as _;

use clap::ValueEnum;
use extern4::FileType;

/// The conditions on which output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The colours of file types and of names with a suffix.
pub(crate) struct Colors {
    by_kind: HashMap<Box<str>, Box<str>>,
    by_suffix: Vec<(Box<[u8]>, Box<str>)>,
}

/// The properties of a file that its name's colour depends on.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// Type of the file.
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    /// A symbolic link that leads nowhere.
    pub(crate) orphan: bool,
}

const DEFAULTS: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:tw=30;42:ow=34;42:st=37;44";

/// Returns whether a text is a code of colours. Any other would be a control sequence from the
/// environment.
pub(crate) fn is_code(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b';')
}

impl When {
    /// Returns whether standard output is to have colours.
    pub(crate) fn is_wanted(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
                    && std::io::stdout().is_terminal()
            }
        }
    }
}

impl Colors {
    /// Returns the colours to use for standard output, if any.
    pub(crate) fn new(when: When) -> Option<Self> {
        when.is_wanted().then(|| {
            let mut colors = Self {
                by_kind: HashMap::new(),
                by_suffix: Vec::new(),
            };
            colors.add(DEFAULTS);
            colors.add(&std::env::var("LS_COLORS").unwrap_or_default());
            colors
        })
    }

    fn add(&mut self, rules: &str) {
        for (key, code) in rules.split(':').filter_map(|rule| rule.split_once('=')) {
            if !is_code(code) && code != "target" {
                continue;
            }
            match key.strip_prefix('*') {
                Some(suffix) => self.by_suffix.push((suffix.as_bytes().into(), code.into())),
                None => {
                    self.by_kind.insert(key.into(), code.into());
                }
            }
        }
    }

    /// Returns whether links have to be followed to find their colour.
    pub(crate) fn follows_links(&self) -> bool {
        self.by_kind.contains_key("or") || self.link_is_target()
    }

    /// Returns whether a link has the colour of its target.
    pub(crate) fn link_is_target(&self) -> bool {
        self.by_kind
            .get("ln")
            .is_some_and(|code| &**code == "target")
    }

    /// Returns the code for a name, if it has one.
    fn code(&self, name: &[u8], look: Look) -> Option<&str> {
        let kind = |key: &str| {
            self.by_kind
                .get(key)
                .map(|code| &**code)
                .filter(|code| !matches!(*code, "" | "0" | "00" | "target"))
        };
        let mode = look.mode;
        let special = match look.kind {
            FileType::Regular if mode & 0o4000 != 0 => kind("su"),
            FileType::Regular if mode & 0o2000 != 0 => kind("sg"),
            FileType::Regular if mode & 0o111 != 0 => kind("ex"),
            FileType::Regular => None,
            FileType::Directory => match (mode & 0o1000 != 0, mode & 0o002 != 0) {
                (true, true) => kind("tw"),
                (false, true) => kind("ow"),
                (true, false) => kind("st"),
                (false, false) => None,
            }
            .or_else(|| kind("di")),
            FileType::Symlink if look.orphan => kind("or").or_else(|| kind("ln")),
            FileType::Symlink => kind("ln"),
            FileType::CharDevice => kind("cd"),
            FileType::BlockDevice => kind("bd"),
            FileType::Fifo => kind("pi"),
            FileType::Socket => kind("so"),
        };
        special.or_else(|| {
            let suffixes = self
                .by_suffix
                .iter()
                .rev()
                .filter(|_| look.kind == FileType::Regular);
            let mut matching = suffixes.filter(|(suffix, _)| name.ends_with(suffix));
            matching.next().map(|(_, code)| &**code).or_else(|| {
                if look.kind == FileType::Regular {
                    kind("fi")
                } else {
                    None
                }
            })
        })
    }

    /// Appends `text`, which shows `name`, in its colour.
    pub(crate) fn paint(&self, out: &mut Vec<u8>, text: &str, name: &[u8], look: Look) {
        match self.code(name, look) {
            Some(code) => out.extend_from_slice(format!("\x1b[{code}m{text}\x1b[0m").as_bytes()),
            None => out.extend_from_slice(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Colors, DEFAULTS, Look};
    use extern4::FileType;
    use std::collections::HashMap;

    #[test]
    fn codes_follow_type_mode_and_suffix() {
        let mut colors = Colors {
            by_kind: HashMap::new(),
            by_suffix: Vec::new(),
        };
        colors.add(DEFAULTS);
        colors.add("*.gz=31:*.tar.gz=32:or=05;31:ex=00:bad=\x1b[2J");
        let check = |name: &str, kind, mode, orphan, code| {
            assert_eq!(
                colors.code(name.as_bytes(), Look { kind, mode, orphan }),
                code,
                "{name}"
            );
        };
        check("d", FileType::Directory, 0o755, false, Some("01;34"));
        check("d", FileType::Directory, 0o1777, false, Some("30;42"));
        check("l", FileType::Symlink, 0o777, false, Some("01;36"));
        check("l", FileType::Symlink, 0o777, true, Some("05;31"));
        check("a.gz", FileType::Regular, 0o644, false, Some("31"));
        check("a.tar.gz", FileType::Regular, 0o644, false, Some("32"));
        check("x", FileType::Regular, 0o755, false, None);
        check("s", FileType::Regular, 0o4755, false, Some("37;41"));
        check("plain", FileType::Regular, 0o644, false, None);
        check("d.gz", FileType::Directory, 0o755, false, Some("01;34"));
    }
}
