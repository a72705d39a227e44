//! POSIX ACLs between their text form in tar archives and Linux's form in extended attributes.
//!
//! `tar::pax` parses ACLs of archives, and `tar::write` writes them. A text that is no valid ACL is
//! an error that says what is wrong with it. Names of users and groups are not looked up: an entry
//! needs a number.
//!
//! Sources: acl(5), acl_from_text(3), `Documentation/filesystems` of Linux, star(5), and values
//! that getxattr(2) returned.

/// The version at the start of an ACL in an extended attribute.
const VERSION: [u8; 4] = [2, 0, 0, 0];

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// The id of an entry that has none.
const NO_ID: u32 = u32::MAX;

/// An ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<AclEntry>);

/// An entry of an ACL. The order of its fields is that of entries in an extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct AclEntry {
    tag: u16,
    id: u32,
    perm: u16,
}

impl Acl {
    /// Parses the text form: entries `tag:qualifier:permissions`, with a number after them or as
    /// the qualifier, separated by commas or line breaks. The error says which entry is wrong.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(text);
        let mut entries = Vec::new();
        for line in text.split([',', '\n']) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                entries.push(entry(line)?);
            }
        }
        entries.sort_unstable();
        let acl = Self(entries);
        acl.check().map(|()| acl)
    }

    fn check(&self) -> Result<(), String> {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        if [USER_OBJ, GROUP_OBJ, OTHER]
            .iter()
            .any(|tag| count(*tag) != 1)
        {
            return Err("needs one entry each for the owner, the group and others".to_owned());
        }
        let named = count(USER) + count(GROUP);
        if count(MASK) > 1 || (named > 0 && count(MASK) == 0) {
            return Err("needs one mask".to_owned());
        }
        if self
            .0
            .windows(2)
            .any(|pair| (pair[0].tag, pair[0].id) == (pair[1].tag, pair[1].id))
        {
            return Err("names a user or group twice".to_owned());
        }
        Ok(())
    }

    /// Returns the value of the extended attribute.
    pub(crate) fn to_xattr(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.0 {
            value.extend(entry.tag.to_le_bytes());
            value.extend(entry.perm.to_le_bytes());
            value.extend(entry.id.to_le_bytes());
        }
        value
    }

    /// Parses the value of an extended attribute.
    pub(crate) fn from_xattr(value: &[u8]) -> Option<Self> {
        let entries = value.strip_prefix(&VERSION)?.chunks(8).map(|bytes| {
            let bytes: [u8; 8] = bytes.try_into().ok()?;
            let [tag, tag_high, perm, perm_high, id @ ..] = bytes;
            let tag = u16::from_le_bytes([tag, tag_high]);
            let perm = u16::from_le_bytes([perm, perm_high]);
            [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER]
                .contains(&tag)
                .then_some(AclEntry {
                    tag,
                    id: u32::from_le_bytes(id),
                    perm,
                })
        });
        entries.collect::<Option<_>>().map(Self)
    }

    /// Returns the text form, with numbers for users and groups.
    pub(crate) fn to_text(&self) -> String {
        let entries = self.0.iter().map(|entry| {
            let tag = match entry.tag {
                USER_OBJ | USER => "user",
                GROUP_OBJ | GROUP => "group",
                MASK => "mask",
                _ => "other",
            };
            let id = if matches!(entry.tag, USER | GROUP) {
                entry.id.to_string()
            } else {
                String::new()
            };
            let letter = |bit, letter| if entry.perm & bit != 0 { letter } else { '-' };
            format!(
                "{tag}:{id}:{}{}{}",
                letter(4, 'r'),
                letter(2, 'w'),
                letter(1, 'x')
            )
        });
        entries.collect::<Vec<_>>().join(",")
    }

    /// Whether the permission bits of the mode can express the ACL.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// Returns the nine permission bits of the mode that correspond to the ACL.
    pub(crate) fn mode(&self) -> u16 {
        let perm = |tag| {
            self.0
                .iter()
                .find(|entry| entry.tag == tag)
                .map(|entry| entry.perm & 7)
        };
        let group = perm(MASK).or(perm(GROUP_OBJ)).unwrap_or(0);
        perm(USER_OBJ).unwrap_or(0) << 6 | group << 3 | perm(OTHER).unwrap_or(0)
    }
}

fn entry(line: &str) -> Result<AclEntry, String> {
    let wrong = || format!("has an entry '{line}' that is not understood");
    let mut fields = line.split(':').map(str::trim);
    let tag = fields.next().unwrap_or_default();
    let mut rest: Vec<&str> = fields.collect();
    // Old forms have no empty qualifier: `other:r--`.
    if rest.len() == 1 && matches!(tag, "mask" | "m" | "other" | "o") {
        rest.insert(0, "");
    }
    let (qualifier, perm) = match rest[..] {
        [qualifier, perm, ..] => (qualifier, perm),
        _ => return Err(wrong()),
    };
    let tag = match (tag, qualifier) {
        ("user" | "u", "") => USER_OBJ,
        ("user" | "u", _) => USER,
        ("group" | "g", "") => GROUP_OBJ,
        ("group" | "g", _) => GROUP,
        ("mask" | "m", "") => MASK,
        ("other" | "o", "") => OTHER,
        _ => return Err(wrong()),
    };
    let id = match tag {
        USER | GROUP => {
            let number = rest
                .get(2)
                .filter(|id| !id.is_empty())
                .copied()
                .unwrap_or(qualifier);
            number
                .parse()
                .ok()
                .filter(|id| *id != NO_ID)
                .ok_or_else(|| format!("names '{qualifier}' without a number"))?
        }
        _ => NO_ID,
    };
    let perm = perm.chars().try_fold(0, |bits, letter| match letter {
        'r' => Some(bits | 4),
        'w' => Some(bits | 2),
        'x' => Some(bits | 1),
        '-' => Some(bits),
        _ => None,
    });
    Ok(AclEntry {
        tag,
        id,
        perm: perm.ok_or_else(wrong)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_what_the_kernel_gives() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        crate::testing::run(
            dir.path(),
            "setfacl",
            &["-m", "u:1234:r,g:55:-wx,u:7:---,m::rw", "f"],
        );
        let mut buf = [0; 256];
        let length = rustix::fs::getxattr(
            dir.path().join("f"),
            "system.posix_acl_access",
            &mut buf[..],
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(dir.path().join("f"))
                .unwrap()
                .permissions(),
        );
        let other = if mode & 4 != 0 { "r--" } else { "---" };
        for text in [
            format!(
                "user::rw-,user:lisa:r--:1234,user:7:---,group::{other},group:x:-wx:55,mask::rw-,other::{other}"
            ),
            format!(
                "user::rw-\nuser:1234:r--\ng:55:-wx\nuser:7:--- #x\ngroup::{other}\nmask:rw-\nother:{other}\n"
            ),
        ] {
            let acl = Acl::parse(text.as_bytes()).unwrap();
            assert_eq!(acl.to_xattr(), buf[..length], "{text}");
            assert_eq!(u32::from(acl.mode()), mode & 0o777);
            assert!(!acl.is_minimal());
            assert_eq!(Acl::parse(acl.to_text().as_bytes()).unwrap(), acl);
            assert_eq!(Acl::from_xattr(&buf[..length]).unwrap(), acl);
        }
        assert!(
            Acl::parse(b"user::rwx,group::r-x,other::r--")
                .unwrap()
                .is_minimal()
        );
    }

    #[test]
    fn wrong_text_is_refused() {
        for (text, reason) in [
            (
                "user::rw-,user:lisa:r--,group::r--,mask::r--,other::r--",
                "'lisa' without a number",
            ),
            ("user::rw-,user:1:r--,group::r--,other::r--", "mask"),
            ("user::rw-,group::r--", "others"),
            ("user::rwz,group::r--,other::r--", "not understood"),
            (
                "user::rw-,user:1:r--,user:1:r--,group::r--,mask::r--,other::r--",
                "twice",
            ),
            ("nonsense", "not understood"),
        ] {
            let error = Acl::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for value in [
            &b""[..],
            b"\x02\0\0\0\x01",
            b"\x01\0\0\0",
            b"\x02\0\0\0\x03\0\x07\0\0\0\0\0",
        ] {
            assert_eq!(Acl::from_xattr(value), None);
        }
    }
}
