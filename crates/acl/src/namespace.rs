//! The namespaces of extended attributes (`xattr(7)`), and the table of their prefixes.
//!
//! The VFS takes the rule of access from it, and `disk` the numbers of prefixes on volumes.
//! Directories of the host take from it which attributes a user may read. A name belongs to one
//! namespace at most. A name that no row matches has none, and system calls refuse it.

/// A namespace that system calls know. Each has its own rule of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XattrNamespace {
    /// `user.`: attributes of regular files and directories, under the permissions of the file.
    User,
    /// `trusted.`: visible and writable with `CAP_SYS_ADMIN` only.
    Trusted,
    /// `security.`: readable by all users; security modules decide on writing.
    Security,
    /// `system.`: the ACLs, and nothing else.
    System,
}

/// A row of [`PREFIXES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The start of the name, or the whole name.
    pub text: &'static str,
    /// Whether `text` is a whole name, so that nothing may follow it.
    pub is_whole: bool,
    /// The namespace of names that start so; `None` if no system call on Linux knows them.
    pub namespace: Option<XattrNamespace>,
    /// The number that an ext4 volume stores in place of the prefix.
    pub ext4_index: u8,
}

impl Prefix {
    const fn start(text: &'static str, ext4_index: u8, namespace: Option<XattrNamespace>) -> Self {
        Self {
            text,
            is_whole: false,
            namespace,
            ext4_index,
        }
    }

    const fn whole(text: &'static str, ext4_index: u8) -> Self {
        Self {
            text,
            is_whole: true,
            namespace: Some(XattrNamespace::System),
            ext4_index,
        }
    }

    /// Returns the rest of `name` behind this prefix; `None` if the name does not match.
    pub fn strip<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        name.strip_prefix(self.text.as_bytes())
            .filter(|rest| rest.is_empty() || !self.is_whole)
    }
}

/// All prefixes. Whole names come first, so that the first row that matches a name is the most
/// specific one.
///
/// The numbers: the kernel's ext4 documentation, "Extended Attributes".
pub const PREFIXES: [Prefix; 8] = [
    Prefix::whole("system.posix_acl_access", 2),
    Prefix::whole("system.posix_acl_default", 3),
    Prefix::whole("system.richacl", 8),
    Prefix::start("user.", 1, Some(XattrNamespace::User)),
    Prefix::start("trusted.", 4, Some(XattrNamespace::Trusted)),
    Prefix::start("security.", 6, Some(XattrNamespace::Security)),
    Prefix::start("system.", 7, Some(XattrNamespace::System)),
    Prefix::start("gnu.", 10, None),
];

/// Returns the row of `name` and the rest of the name behind the prefix; `None` if no prefix
/// matches.
pub fn split(name: &[u8]) -> Option<(&'static Prefix, &[u8])> {
    static ROWS: [Prefix; 8] = PREFIXES;
    ROWS.iter()
        .find_map(|prefix| Some((prefix, prefix.strip(name)?)))
}

impl XattrNamespace {
    /// Returns the namespace of `name`; `None` if system calls do not know the name.
    pub fn of(name: &[u8]) -> Option<Self> {
        split(name)?.0.namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_the_most_specific_prefix() {
        type Split<'a> = Option<(u8, &'a str, Option<XattrNamespace>)>;
        let cases: [(&str, Split<'_>); 9] = [
            ("user.note", Some((1, "note", Some(XattrNamespace::User)))),
            ("user.", Some((1, "", Some(XattrNamespace::User)))),
            (
                "trusted.overlay.opaque",
                Some((4, "overlay.opaque", Some(XattrNamespace::Trusted))),
            ),
            (
                "security.selinux",
                Some((6, "selinux", Some(XattrNamespace::Security))),
            ),
            (
                "system.posix_acl_access",
                Some((2, "", Some(XattrNamespace::System))),
            ),
            (
                "system.posix_acl_accessory",
                Some((7, "posix_acl_accessory", Some(XattrNamespace::System))),
            ),
            ("gnu.author", Some((10, "author", None))),
            ("user", None),
            ("", None),
        ];
        for (name, want) in cases {
            let found =
                split(name.as_bytes()).map(|(row, rest)| (row.ext4_index, rest, row.namespace));
            assert_eq!(
                found,
                want.map(|(index, rest, space)| (index, rest.as_bytes(), space)),
                "{name}"
            );
            assert_eq!(
                XattrNamespace::of(name.as_bytes()),
                want.and_then(|(_, _, space)| space),
                "{name}"
            );
        }
    }

    #[test]
    fn each_row_is_found_by_its_own_text() {
        for row in &PREFIXES {
            assert_eq!(split(row.text.as_bytes()), Some((row, &b""[..])));
        }
    }
}
