//! Names of users, groups and projects of an image, from its own `/etc/passwd`, `/etc/group` and
//! `/etc/projid`.
//!
//! The host's names do not apply: a volume is another machine's disk, and its user 1000 is not the
//! host's user 1000.
//!
//! `app` reads the names once for each volume, and subcommands print and look up by them. The files
//! are untrusted: a wrong line is skipped.

use std::borrow::Cow;
use std::collections::HashMap;

use extern4::Session;

/// The limit for the length of a file. The rest of a longer file is ignored.
pub(crate) const MAX_BYTES: usize = 4 << 20;

/// Names by number and numbers by name.
#[derive(Default)]
pub(crate) struct IdNames {
    users: Table,
    groups: Table,
    projects: Table,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u32, Box<str>>,
    by_name: HashMap<Box<str>, u32>,
    /// The fourth field by name: a user's login group, or a group's members.
    rest: HashMap<Box<str>, Box<str>>,
}

impl IdNames {
    /// Reads the contents of `/etc/passwd` and `/etc/group`.
    pub(crate) fn parse(passwd: &[u8], group: &[u8]) -> Self {
        let users = Table::parse(passwd, 2);
        let groups = Table::parse(group, 2);
        Self {
            users,
            groups,
            ..Self::default()
        }
    }

    /// Reads the files; one that is missing or unreadable leaves its numbers without names.
    pub(crate) fn read(session: &Session) -> Self {
        Self {
            users: Table::parse(&head(session, "/etc/passwd"), 2),
            groups: Table::parse(&head(session, "/etc/group"), 2),
            projects: Table::parse(&head(session, "/etc/projid"), 1),
        }
    }

    /// Returns the name of user `uid`, or its number.
    pub(crate) fn user(&self, uid: u32) -> Cow<'_, str> {
        self.users.name(uid)
    }

    /// Returns the name of group `gid`, or its number.
    pub(crate) fn group(&self, gid: u32) -> Cow<'_, str> {
        self.groups.name(gid)
    }

    /// Returns the name of project `id`, or its number.
    pub(crate) fn project(&self, id: u32) -> Cow<'_, str> {
        self.projects.name(id)
    }

    /// Returns whether user `uid` has a name.
    pub(crate) fn has_user(&self, uid: u32) -> bool {
        self.users.by_id.contains_key(&uid)
    }

    /// Returns whether any user has a name.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.by_id.is_empty()
    }

    /// Returns the names of all users, in no order.
    pub(crate) fn user_names(&self) -> impl Iterator<Item = &str> {
        self.users.by_name.keys().map(|name| &**name)
    }

    /// Returns the names of all groups, in no order.
    pub(crate) fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.by_name.keys().map(|name| &**name)
    }

    /// Returns whether group `gid` has a name.
    pub(crate) fn has_group(&self, gid: u32) -> bool {
        self.groups.by_id.contains_key(&gid)
    }

    /// Returns the number of the user with this name.
    pub(crate) fn uid(&self, name: &str) -> Option<u32> {
        self.users.by_name.get(name).copied()
    }

    /// Returns the number of the group with this name.
    pub(crate) fn gid(&self, name: &str) -> Option<u32> {
        self.groups.by_name.get(name).copied()
    }
}

impl IdNames {
    /// Returns the group with which the user of this name logs in.
    pub(crate) fn login_group(&self, user: &str) -> Option<u32> {
        self.users.rest.get(user)?.parse().ok()
    }

    /// Returns the further groups of the user of this name, in order.
    pub(crate) fn groups_of(&self, user: &str) -> Vec<u32> {
        let is_member = |members: &str| members.split(',').any(|member| member == user);
        let groups = self
            .groups
            .rest
            .iter()
            .filter(|(_, members)| is_member(members));
        let mut groups: Vec<u32> = groups.filter_map(|(group, _)| self.gid(group)).collect();
        groups.sort_unstable();
        groups
    }
}

/// A user, a group or a project on a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameOrId {
    /// By number.
    Number(u32),
    /// By a name of the volume's own.
    Name(String),
}

impl NameOrId {
    /// Reads a number or a name. A `+` before digits says that they are no name, as with GNU's
    /// tools.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix('+').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::Name(text.to_owned()));
        }
        match digits.parse() {
            // The system calls use the last number for "no user or group".
            Ok(u32::MAX) | Err(_) => Err(format!("{text} is no number of a user or group")),
            Ok(number) => Ok(Self::Number(number)),
        }
    }

    /// Returns whether the name has to be looked up.
    pub(crate) fn is_name(&self) -> bool {
        matches!(self, Self::Name(_))
    }

    /// Returns the number of the user. The error names a user that does not exist.
    pub(crate) fn uid(&self, names: &IdNames) -> Result<u32, String> {
        self.number("user", |name| names.uid(name))
    }

    /// Returns the number of the group. The error names a group that does not exist.
    pub(crate) fn gid(&self, names: &IdNames) -> Result<u32, String> {
        self.number("group", |name| names.gid(name))
    }

    /// Returns the number of the project. The error names a project that does not exist.
    pub(crate) fn project(&self, names: &IdNames) -> Result<u32, String> {
        self.number("project", |name| names.projects.by_name.get(name).copied())
    }

    fn number(&self, kind: &str, find: impl Fn(&str) -> Option<u32>) -> Result<u32, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => find(name).ok_or_else(|| {
                format!(
                    "{} is not a {kind} of",
                    crate::text::escape(name.as_bytes())
                )
            }),
        }
    }
}

impl Table {
    /// Reads lines of fields between colons, of which the first for a number or name counts. The
    /// name is the first field, the number the one of index `number`. A name that a terminal or a
    /// script could mistake for something else is left out.
    fn parse(bytes: &[u8], number: usize) -> Self {
        let mut table = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (Some(name), Some(id)) = (fields.next(), fields.nth(number - 1)) else {
                continue;
            };
            let (Ok(name), Ok(id)) = (std::str::from_utf8(name), std::str::from_utf8(id)) else {
                continue;
            };
            let (true, Ok(id)) = (is_name(name), id.parse::<u32>()) else {
                continue;
            };
            table.by_id.entry(id).or_insert_with(|| name.into());
            table.by_name.entry(name.into()).or_insert(id);
            if let Some(Ok(rest)) = fields.next().map(std::str::from_utf8) {
                table.rest.entry(name.into()).or_insert_with(|| rest.into());
            }
        }
        table
    }

    fn name(&self, id: u32) -> Cow<'_, str> {
        match self.by_id.get(&id) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(id.to_string()),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && name.bytes().all(|byte| byte.is_ascii_graphic())
        && !name.bytes().all(|byte| byte.is_ascii_digit())
}

fn head(session: &Session, path: &str) -> Vec<u8> {
    let Ok(file) = session.open(path) else {
        return Vec::new();
    };
    if !file.metadata().is_file() {
        return Vec::new();
    }
    let mut bytes =
        vec![0; MAX_BYTES.min(usize::try_from(file.metadata().len()).unwrap_or(MAX_BYTES))];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn first_line_counts_and_odd_lines_are_skipped() {
        let table = Table::parse(
            b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:\n# comment\n\nbad\nx:y:z:\n\xff:x:7:\na\x1b:x:8:\n123:x:9:\njoe:x:1000:1000:",
            2,
        );
        assert_eq!(table.name(0), "root");
        assert_eq!(table.name(1000), "joe");
        assert_eq!(table.name(7), "7");
        assert_eq!(table.name(8), "8");
        assert_eq!(table.name(9), "9");
        assert_eq!(table.by_name.get("toor"), Some(&0));
        assert_eq!(table.rest.get("joe").map(|group| &**group), Some("1000"));
        let projects = Table::parse(b"# comment\nbuild:77\nlogs:x\n", 1);
        assert_eq!((&*projects.name(77), projects.by_name.len()), ("build", 1));
    }
}
