//! [`Config`]: the contents of an `mke2fs.conf`, the defaults of new volumes by type and usage.
//!
//! ```text
//! [defaults]
//!     blocksize = 4096
//! [fs_types]
//!     small = {
//!         blocksize = 1024
//!     }
//! ```
//! A relation of a type overrides that of `[defaults]`, and a later type overrides an earlier one.
//!
//! The command parses the file that it finds, or takes [`Config::default`], the one of e2fsprogs
//! 1.47. `features`, `numbers` and `superblock` look values up. A line that is not understood is an
//! error that names the line; an unknown relation is ignored.
//!
//! Source: `mke2fs.conf(5)`.

use crate::error::{Error, Result};

/// The defaults of e2fsprogs 1.47 as its authors ship them; distributions change them.
const UPSTREAM: &str = include_str!("mke2fs.conf");

#[derive(Clone, Debug, PartialEq, Eq)]
struct Relation {
    section: String,
    /// The type that the relation belongs to; empty in `[defaults]`.
    subsection: String,
    name: String,
    value: String,
}

/// The contents of an `mke2fs.conf`. [`Config::default`] is that of e2fsprogs 1.47.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    relations: Vec<Relation>,
}

impl Default for Config {
    fn default() -> Self {
        Self::parse(UPSTREAM).expect("the file that is built in is a configuration")
    }
}

impl Config {
    /// Parses the text of an `mke2fs.conf`.
    ///
    /// # Errors
    /// [`Error::Config`] names the first line that is no section, relation or end of a group.
    pub fn parse(text: &str) -> Result<Self> {
        let mut relations = Vec::new();
        let mut section = String::new();
        let mut groups = Vec::<String>::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = |reason| Error::Config {
                line: index + 1,
                reason,
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                section = name
                    .strip_suffix(']')
                    .ok_or_else(|| wrong("a section ends in ']'"))?
                    .to_owned();
                groups.clear();
            } else if line == "}" {
                groups.pop().ok_or_else(|| wrong("'}' without '{'"))?;
            } else {
                let (name, value) = line
                    .split_once('=')
                    .ok_or_else(|| wrong("a relation is written 'name = value'"))?;
                let name = name.trim().to_owned();
                let value = value.trim();
                if value == "{" {
                    groups.push(name);
                } else {
                    let value = value.trim_matches('"').to_owned();
                    let subsection = groups.join("/");
                    relations.push(Relation {
                        section: section.clone(),
                        subsection,
                        name,
                        value,
                    });
                }
            }
        }
        Ok(Self { relations })
    }

    fn find(&self, section: &str, subsection: &str, name: &str) -> Option<&str> {
        let is = |relation: &&Relation| {
            relation.section == section
                && relation.subsection == subsection
                && relation.name == name
        };
        self.relations
            .iter()
            .find(is)
            .map(|relation| relation.value.as_str())
    }

    /// Returns the value of a relation for a volume of these types: that of the last type that has
    /// it, else the default.
    pub(crate) fn value(&self, types: &[String], name: &str) -> Option<&str> {
        let of_type = types
            .iter()
            .rev()
            .find_map(|kind| self.find("fs_types", kind, name));
        of_type.or_else(|| self.find("defaults", "", name))
    }

    /// Returns the values of a relation in each of the types that has it, in their order.
    pub(crate) fn of_types<'a>(
        &'a self,
        types: &'a [String],
        name: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        types
            .iter()
            .filter_map(move |kind| self.find("fs_types", kind, name))
    }

    /// Returns the value of a relation of `[defaults]`.
    pub(crate) fn default_of(&self, name: &str) -> Option<&str> {
        self.find("defaults", "", name)
    }

    /// Whether there is a type of this name.
    pub(crate) fn has_type(&self, name: &str) -> bool {
        self.relations.iter().any(|relation| {
            let top = relation.subsection.split('/').next().unwrap_or("");
            relation.section == "fs_types" && top == name
        })
    }

    /// Returns the usage type for a volume of this size if the options name none: a type of the
    /// configuration, or `default`.
    pub fn usage(&self, bytes: u64) -> &'static str {
        Some(by_size(bytes))
            .filter(|name| self.has_type(name))
            .unwrap_or("default")
    }

    /// Returns the value of a relation as a number, if it is one.
    pub(crate) fn number(&self, types: &[String], name: &str) -> Option<i64> {
        self.value(types, name)?.parse().ok()
    }

    /// Returns the value of a relation as a boolean; `otherwise` if it is not there.
    pub(crate) fn is_on(&self, types: &[String], name: &str, otherwise: bool) -> bool {
        match self.value(types, name) {
            Some(value) => matches!(value, "1" | "y" | "yes" | "true" | "t" | "on" | "Y" | "T"),
            None => otherwise,
        }
    }
}

/// Returns the usage type for a size.
pub(crate) fn by_size(bytes: u64) -> &'static str {
    match bytes >> 20 {
        0..3 => "floppy",
        3..512 => "small",
        512..0x40_0000 => "default",
        0x40_0000..0x100_0000 => "big",
        _ => "huge",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_counts_more_than_the_defaults() {
        let config = Config::default();
        let types = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            config.number(&types(&["ext4", "default"]), "blocksize"),
            Some(4096)
        );
        assert_eq!(
            config.number(&types(&["ext4", "small"]), "blocksize"),
            Some(1024)
        );
        assert_eq!(
            config.number(&types(&["ext4", "small", "largefile"]), "inode_ratio"),
            Some(1_048_576)
        );
        assert_eq!(
            config
                .of_types(&types(&["ext3"]), "features")
                .collect::<Vec<_>>(),
            ["has_journal"]
        );
        assert!(config.has_type("huge") && !config.has_type("default"));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, wrong) in [("[defaults", 1), ("[defaults]\nblocksize", 2), ("\n\n}", 3)] {
            match Config::parse(text) {
                Err(Error::Config { line, .. }) => assert_eq!(line, wrong),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
