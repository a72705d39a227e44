//! The text form of ACLs, as `getfacl(1)` prints and `setfacl(1)` reads it.
//!
//! The command, manifests and archives use it, with names of users or with numbers. Each list that
//! is printed is read back as the same list. A text that is no valid ACL is an error.

use std::fmt;
use std::str::FromStr;

use crate::xattr::NO_ID;
use crate::{Acl, AclEntry, AclError, AclTag};

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag {
            AclTag::UserObj => f.write_str("user::")?,
            AclTag::User(uid) => write!(f, "user:{uid}:")?,
            AclTag::GroupObj => f.write_str("group::")?,
            AclTag::Group(gid) => write!(f, "group:{gid}:")?,
            AclTag::Mask => f.write_str("mask::")?,
            AclTag::Other => f.write_str("other::")?,
        }
        for (bit, letter) in [(4, "r"), (2, "w"), (1, "x")] {
            f.write_str(if self.perm & bit != 0 { letter } else { "-" })?;
        }
        Ok(())
    }
}

impl FromStr for AclEntry {
    type Err = AclError;

    fn from_str(text: &str) -> Result<Self, AclError> {
        let mut fields = text.split(':').map(str::trim);
        let (Some(tag), Some(who), perm, None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(AclError::Text);
        };
        // `mask:rwx` and `other:r-x` are common short forms of `mask::rwx` and `other::r-x`.
        let (who, perm) = match (tag, perm) {
            (_, Some(perm)) => (who, perm),
            ("mask" | "m" | "other" | "o", None) => ("", who),
            _ => return Err(AclError::Text),
        };
        let id = || {
            who.parse::<u32>()
                .ok()
                .filter(|&id| id != NO_ID)
                .ok_or(AclError::Text)
        };
        let tag = match (tag, who.is_empty()) {
            ("user" | "u", true) => AclTag::UserObj,
            ("user" | "u", false) => AclTag::User(id()?),
            ("group" | "g", true) => AclTag::GroupObj,
            ("group" | "g", false) => AclTag::Group(id()?),
            ("mask" | "m", true) => AclTag::Mask,
            ("other" | "o", true) => AclTag::Other,
            _ => return Err(AclError::Text),
        };
        Ok(Self {
            tag,
            perm: parse_rights(perm)?,
        })
    }
}

/// Reads `rwx`, `r-x`, `rx` or an octal digit.
fn parse_rights(text: &str) -> Result<u8, AclError> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Ok(digit - b'0');
    }
    let mut perm = 0;
    for letter in text.bytes() {
        perm |= match letter {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return Err(AclError::Text),
        };
    }
    if text.is_empty() {
        Err(AclError::Text)
    } else {
        Ok(perm)
    }
}

/// Writes one entry a line, as `getfacl` does.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries().iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            entry.fmt(f)?;
        }
        Ok(())
    }
}

/// Reads entries in any order, separated by lines or commas. `#` starts a comment.
impl FromStr for Acl {
    type Err = AclError;

    fn from_str(text: &str) -> Result<Self, AclError> {
        let entries: Result<Vec<AclEntry>, _> = text
            .lines()
            .map(|line| line.split_once('#').map_or(line, |(entry, _)| entry))
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .map(str::parse)
            .collect();
        let mut entries = entries?;
        entries.sort_by_key(|entry| entry.tag);
        Self::new(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let full: Acl =
            "# file: x\nuser::rwx\nother::r-x\nmask::rwx #effective\ngroup::r-x\nuser:12:rw-"
                .parse()
                .unwrap();
        assert_eq!(full.to_string().parse::<Acl>(), Ok(full));
        for bad in [
            "user:x:rw-",
            "user::rwz",
            "nobody::rwx",
            "user",
            "user:::rwx",
            "mask:5:rwx",
            "u::",
        ] {
            assert_eq!(bad.parse::<AclEntry>(), Err(AclError::Text), "{bad}");
        }
    }
}
