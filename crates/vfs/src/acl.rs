//! POSIX.1e access control lists.
//!
//! An [`Acl`] is valid by construction, immutable, and keeps its entries in the order in which they are asked: owner,
//! named users, group, named groups, mask, others. `acl(5)` says what they mean. The mask of an ACL is the group part
//! of the file's mode, which is why `chmod` changes ACLs and setting an ACL changes the mode.

use std::fmt;
use std::str::FromStr;

use crate::cred::Cred;

/// Whom an [`AclEntry`] speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AclTag {
    /// The file's owner.
    UserObj,
    /// A user by id.
    User(u32),
    /// The file's group.
    GroupObj,
    /// A group by id.
    Group(u32),
    /// The most that named users, the file's group and named groups may get.
    Mask,
    /// Everybody else.
    Other,
}

impl AclTag {
    /// Where entries of this kind stand in a list.
    const fn rank(self) -> u8 {
        match self {
            Self::UserObj => 0,
            Self::User(_) => 1,
            Self::GroupObj => 2,
            Self::Group(_) => 3,
            Self::Mask => 4,
            Self::Other => 5,
        }
    }
}

/// One entry: whom, and read 4, write 2, execute 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom the entry speaks of.
    pub tag: AclTag,
    /// The rights: `0o7` at most.
    pub perm: u8,
}

impl AclEntry {
    /// All of it in one number.
    pub(crate) fn word(&self) -> u64 {
        let (tag, id) = match self.tag {
            AclTag::UserObj => (0, 0),
            AclTag::User(uid) => (1, uid),
            AclTag::GroupObj => (2, 0),
            AclTag::Group(gid) => (3, gid),
            AclTag::Mask => (4, 0),
            AclTag::Other => (5, 0),
        };
        u64::from(id) << 16 | tag << 8 | u64::from(self.perm)
    }
}

/// A valid access control list: entries in the order of their tags, each of the three required ones once, a mask
/// where there is a named user or group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    pub(crate) entries: Box<[AclEntry]>,
}

/// Which of an inode's two ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclKind {
    /// The one that decides who may use the inode.
    Access,
    /// The one that new children of a directory start with.
    Default,
}

impl AclKind {
    /// Name of the extended attribute that holds it.
    pub const fn xattr_name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }

    /// The kind that an extended attribute of this name holds.
    pub fn from_xattr_name(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default].into_iter().find(|kind| kind.xattr_name() == name)
    }
}

/// Why a list of entries, an extended attribute or a text is no ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Owner, group or others are missing.
    #[error("the entries for owner, group and others must all be there")]
    Missing,
    /// Entries stand in the wrong order, or one that may come once comes again.
    #[error("entries are out of order, or one comes twice")]
    Order,
    /// Named users or groups without a mask.
    #[error("a named user or group needs a mask")]
    NoMask,
    /// Rights other than read, write, execute.
    #[error("rights are read, write and execute only")]
    Perm,
    /// The attribute's bytes have no such form.
    #[error("not the bytes of an ACL attribute")]
    Encoding,
    /// The attribute says that it has another form than is known here.
    #[error("an ACL attribute of another version than 2")]
    Version,
    /// The text has no such form.
    #[error("not the text of an ACL: entries look like `user:1000:rw-`")]
    Text,
}

/// Version word at the start of the `system.posix_acl_*` attributes (`linux/posix_acl_xattr.h`).
const XATTR_VERSION: u32 = 2;
/// The id of entries that have none.
const XATTR_NO_ID: u32 = u32::MAX;
const XATTR_HEADER: usize = 4;
const XATTR_ENTRY: usize = 8;

impl Acl {
    /// Checks entries and makes them an ACL.
    pub fn new(entries: impl Into<Vec<AclEntry>>) -> Result<Self, AclError> {
        let entries = entries.into();
        let mut last = None;
        let (mut required, mut named, mut mask) = (0, false, false);
        for entry in &entries {
            if entry.perm > 7 {
                return Err(AclError::Perm);
            }
            let repeats = matches!(entry.tag, AclTag::User(_) | AclTag::Group(_));
            let rank = entry.tag.rank();
            if last.is_some_and(|last| if repeats { rank < last } else { rank <= last }) {
                return Err(AclError::Order);
            }
            last = Some(rank);
            named |= repeats;
            mask |= entry.tag == AclTag::Mask;
            required += usize::from(matches!(entry.tag, AclTag::UserObj | AclTag::GroupObj | AclTag::Other));
        }
        match (required, named && !mask) {
            (3, false) => Ok(Self { entries: entries.into() }),
            (3, true) => Err(AclError::NoMask),
            _ => Err(AclError::Missing),
        }
    }

    /// The ACL that says what the nine permission bits of `mode` say.
    pub fn from_mode(mode: u16) -> Self {
        let entry = |tag, shift: u16| AclEntry { tag, perm: rights(mode, shift) };
        Self {
            entries: [entry(AclTag::UserObj, 6), entry(AclTag::GroupObj, 3), entry(AclTag::Other, 0)].into(),
        }
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// The nine permission bits that stand for this ACL, and whether they say all of it.
    ///
    /// The group bits are the mask where there is one.
    pub fn equiv_mode(&self) -> (u16, bool) {
        let mut mode = 0;
        let mut whole = true;
        for entry in &self.entries {
            let perm = u16::from(entry.perm);
            match entry.tag {
                AclTag::UserObj => mode |= perm << 6,
                AclTag::GroupObj => mode |= perm << 3,
                AclTag::Other => mode |= perm,
                // The mask comes after the group's own entry and stands in its place.
                AclTag::Mask => {
                    mode = (mode & !0o070) | (perm << 3);
                    whole = false;
                }
                AclTag::User(_) | AclTag::Group(_) => whole = false,
            }
        }
        (mode, whole)
    }

    /// The rights that each entry has: the ACL refuses them to nobody.
    pub(crate) fn granted_by_all(&self) -> u8 {
        self.entries.iter().fold(7, |all, entry| all & entry.perm)
    }

    /// What `chmod` to `mode` makes of this ACL: the owner's and others' entries, and the mask or, without one, the
    /// group's entry, take the bits of the mode.
    pub fn with_mode(&self, mode: u16) -> Self {
        let mut acl = self.clone();
        let has_mask = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
        for entry in &mut acl.entries {
            match entry.tag {
                AclTag::UserObj => entry.perm = rights(mode, 6),
                AclTag::Mask => entry.perm = rights(mode, 3),
                AclTag::GroupObj if !has_mask => entry.perm = rights(mode, 3),
                AclTag::Other => entry.perm = rights(mode, 0),
                _ => {}
            }
        }
        acl
    }

    /// What a new file gets whose directory has this as its default ACL and whose creator asked for `mode`: its
    /// access ACL, unless the mode says all of it, and its permission bits. The umask plays no part.
    pub fn for_new_file(&self, mode: u16) -> (Option<Self>, u16) {
        let mut acl = self.clone();
        let has_mask = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
        for entry in &mut acl.entries {
            match entry.tag {
                AclTag::UserObj => entry.perm &= rights(mode, 6),
                AclTag::Mask => entry.perm &= rights(mode, 3),
                AclTag::GroupObj if !has_mask => entry.perm &= rights(mode, 3),
                AclTag::Other => entry.perm &= rights(mode, 0),
                _ => {}
            }
        }
        let (bits, whole) = acl.equiv_mode();
        ((!whole).then_some(acl), (mode & !0o777) | bits)
    }

    /// Whether a caller who is not the owner gets all of the rights `want` on a file of group `gid`.
    ///
    /// The algorithm of `acl(5)`, "Access check algorithm".
    #[inline]
    pub fn allows(&self, cred: &Cred, gid: u32, want: u8) -> bool {
        let has_all = |perm: u8| perm & want == want;
        // The owner's entry is the first, that of others the last, and named users come before groups.
        let [_, entries @ .., other] = &*self.entries else { return false };
        for (at, entry) in entries.iter().enumerate() {
            match entry.tag {
                AclTag::User(uid) if uid == cred.uid() => return has_all(entry.perm & self.mask()),
                AclTag::User(_) => {}
                _ => return self.allows_group(&entries[at..], other.perm, cred, gid, want),
            }
        }
        has_all(other.perm)
    }

    /// The same where no entry names the user: `entries` are those of groups, and the mask.
    fn allows_group(&self, entries: &[AclEntry], others: u8, cred: &Cred, gid: u32, want: u8) -> bool {
        let has_all = |perm: u8| perm & want == want;
        let mut in_some_group = false;
        for entry in entries {
            let group = match entry.tag {
                AclTag::GroupObj => gid,
                AclTag::Group(named) => named,
                _ => continue,
            };
            if cred.in_group(group) {
                if has_all(entry.perm) {
                    return has_all(self.mask());
                }
                in_some_group = true;
            }
        }
        !in_some_group && has_all(others)
    }

    /// What the mask lets through: all where there is none.
    fn mask(&self) -> u8 {
        match &*self.entries {
            // By the order of entries, it is the last but one.
            [.., AclEntry { tag: AclTag::Mask, perm }, _] => *perm,
            _ => 7,
        }
    }

    /// The value of the `system.posix_acl_*` attribute, version 2, little-endian.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(XATTR_HEADER + self.entries.len() * XATTR_ENTRY);
        bytes.extend_from_slice(&XATTR_VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id): (u16, u32) = match entry.tag {
                AclTag::UserObj => (0x01, XATTR_NO_ID),
                AclTag::User(uid) => (0x02, uid),
                AclTag::GroupObj => (0x04, XATTR_NO_ID),
                AclTag::Group(gid) => (0x08, gid),
                AclTag::Mask => (0x10, XATTR_NO_ID),
                AclTag::Other => (0x20, XATTR_NO_ID),
            };
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&u16::from(entry.perm).to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Reads the value of a `system.posix_acl_*` attribute; `None` for one without entries, which means no ACL.
    pub fn from_xattr(bytes: &[u8]) -> Result<Option<Self>, AclError> {
        let (version, rest) = bytes.split_first_chunk::<XATTR_HEADER>().ok_or(AclError::Encoding)?;
        if u32::from_le_bytes(*version) != XATTR_VERSION {
            return Err(AclError::Version);
        }
        if !rest.len().is_multiple_of(XATTR_ENTRY) {
            return Err(AclError::Encoding);
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let entries: Result<Vec<_>, _> = rest.chunks_exact(XATTR_ENTRY).map(decode_xattr_entry).collect();
        Self::new(entries?).map(Some)
    }
}

/// The three bits of `mode` above `shift`.
fn rights(mode: u16, shift: u16) -> u8 {
    u8::try_from((mode >> shift) & 7).expect("three bits")
}

fn decode_xattr_entry(bytes: &[u8]) -> Result<AclEntry, AclError> {
    let [t0, t1, p0, p1, id @ ..] = bytes else { return Err(AclError::Encoding) };
    let id = u32::from_le_bytes(id.try_into().map_err(|_| AclError::Encoding)?);
    let tag = match u16::from_le_bytes([*t0, *t1]) {
        0x01 => AclTag::UserObj,
        0x02 => AclTag::User(id),
        0x04 => AclTag::GroupObj,
        0x08 => AclTag::Group(id),
        0x10 => AclTag::Mask,
        0x20 => AclTag::Other,
        _ => return Err(AclError::Encoding),
    };
    if id == XATTR_NO_ID && matches!(tag, AclTag::User(_) | AclTag::Group(_)) {
        return Err(AclError::Encoding);
    }
    let perm = u8::try_from(u16::from_le_bytes([*p0, *p1])).map_err(|_| AclError::Perm)?;
    Ok(AclEntry { tag, perm })
}

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
        let (Some(tag), Some(who), perm, None) = (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(AclError::Text);
        };
        // `mask:rwx` and `other:r-x` are common short forms of `mask::rwx` and `other::r-x`.
        let (who, perm) = match (tag, perm) {
            (_, Some(perm)) => (who, perm),
            ("mask" | "m" | "other" | "o", None) => ("", who),
            _ => return Err(AclError::Text),
        };
        let id = || who.parse::<u32>().ok().filter(|&id| id != XATTR_NO_ID).ok_or(AclError::Text);
        let tag = match (tag, who.is_empty()) {
            ("user" | "u", true) => AclTag::UserObj,
            ("user" | "u", false) => AclTag::User(id()?),
            ("group" | "g", true) => AclTag::GroupObj,
            ("group" | "g", false) => AclTag::Group(id()?),
            ("mask" | "m", true) => AclTag::Mask,
            ("other" | "o", true) => AclTag::Other,
            _ => return Err(AclError::Text),
        };
        Ok(Self { tag, perm: parse_rights(perm)? })
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
    if text.is_empty() { Err(AclError::Text) } else { Ok(perm) }
}

/// One entry a line, as `getfacl` prints them.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            entry.fmt(f)?;
        }
        Ok(())
    }
}

/// Reads entries parted by lines or commas, in any order; `#` starts a comment.
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

    fn acl(text: &str) -> Acl {
        text.parse().unwrap()
    }

    #[test]
    fn entries_must_be_whole_and_in_order() {
        let e = |tag, perm| AclEntry { tag, perm };
        let (u, g, o, m) =
            (e(AclTag::UserObj, 7), e(AclTag::GroupObj, 5), e(AclTag::Other, 0), e(AclTag::Mask, 7));
        let named = e(AclTag::User(5), 6);
        assert_eq!(Acl::new([u, g]), Err(AclError::Missing));
        assert_eq!(Acl::new([]), Err(AclError::Missing));
        assert_eq!(Acl::new([g, u, o]), Err(AclError::Order));
        assert_eq!(Acl::new([u, u, g, o]), Err(AclError::Order));
        assert_eq!(Acl::new([u, named, g, o]), Err(AclError::NoMask));
        assert_eq!(Acl::new([u, g, e(AclTag::Other, 8)]), Err(AclError::Perm));
        assert!(Acl::new([u, g, m, o]).is_ok());
        assert!(Acl::new([u, named, named, g, m, o]).is_ok());
    }

    #[test]
    fn mode_and_acl_speak_of_the_same_bits() {
        for mode in 0..0o1000 {
            assert_eq!(Acl::from_mode(mode).equiv_mode(), (mode, true));
        }
        let named = acl("u::rwx,u:1:rw-,g::r-x,m::r--,o::---");
        assert_eq!(named.equiv_mode(), (0o740, false));
        assert_eq!(
            named.with_mode(0o671).to_string(),
            "user::rw-\nuser:1:rw-\ngroup::r-x\nmask::rwx\nother::--x"
        );
    }

    #[test]
    fn what_each_entry_has_is_refused_to_nobody() {
        for (text, rights) in [
            ("u::rwx,g::r-x,o::r-x", 5),
            ("u::rwx,u:7:rwx,g::r-x,m::rwx,o::r-x", 5),
            ("u::rwx,u:7:rw-,g::r-x,m::rwx,o::r-x", 4),
            ("u::rwx,g::r-x,g:7:--x,m::rwx,o::rwx", 1),
            ("u::rwx,g::---,g:7:rwx,m::rwx,o::rwx", 0),
            ("u::rwx,u:7:rwx,g::rwx,m::r--,o::rwx", 4),
        ] {
            let acl = acl(text);
            assert_eq!(acl.granted_by_all(), rights, "{text}");
            let callers =
                [Cred::new(7, 9, &[]), Cred::new(8, 7, &[]), Cred::new(8, 1, &[7]), Cred::new(8, 9, &[])];
            assert!(callers.iter().all(|cred| acl.allows(cred, 1, rights)), "{text}");
        }
    }

    #[test]
    fn new_files_start_with_the_default_acl_cut_to_their_mode() {
        let (got, mode) = acl("u::rwx,g:7:rwx,g::r-x,m::rwx,o::r-x").for_new_file(0o644);
        assert_eq!(got.unwrap().to_string(), "user::rw-\ngroup::r-x\ngroup:7:rwx\nmask::r--\nother::r--");
        assert_eq!(mode, 0o644);
        assert_eq!(acl("u::rwx,g::r-x,o::r-x").for_new_file(0o2777), (None, 0o2755));
    }

    #[test]
    fn xattr_form_round_trips() {
        let full = acl("u::rwx,u:0:---,u:1000:rw-,g::r-x,g:7:-wx,m::rwx,o::r-x");
        assert_eq!(Acl::from_xattr(&full.to_xattr()), Ok(Some(full.clone())));
        assert_eq!(Acl::from_xattr(&2u32.to_le_bytes()), Ok(None));
        assert_eq!(Acl::from_xattr(&1u32.to_le_bytes()), Err(AclError::Version));
        assert_eq!(Acl::from_xattr(&full.to_xattr()[..11]), Err(AclError::Encoding));
        assert_eq!(Acl::from_xattr(b""), Err(AclError::Encoding));
    }

    #[test]
    fn text_form_round_trips() {
        let full = acl("# file: x\nuser::rwx\nother::r-x\nmask::rwx #effective\ngroup::r-x\nuser:12:rw-");
        assert_eq!(full.to_string().parse::<Acl>(), Ok(full));
        for bad in ["user:x:rw-", "user::rwz", "nobody::rwx", "user", "user:::rwx", "mask:5:rwx", "u::"] {
            assert_eq!(bad.parse::<AclEntry>(), Err(AclError::Text), "{bad}");
        }
    }

    #[test]
    fn access_check_follows_acl_5() {
        let list = acl("u::rwx,u:10:rw-,g::r--,g:20:-w-,g:21:r-x,m::r-x,o::rwx");
        let check = |uid, groups: &[u32], want| list.allows(&Cred::new(uid, 900, groups), 50, want);
        assert!(check(10, &[], 4), "named user, within the mask");
        assert!(!check(10, &[], 2), "named user, cut by the mask");
        assert!(!check(10, &[21], 1), "a named user is not asked for groups");
        assert!(check(11, &[50], 4), "owning group");
        assert!(!check(11, &[50], 1), "a group that matches shuts out others' rights");
        assert!(check(11, &[50, 21], 5), "any one group may grant");
        assert!(!check(11, &[50, 20], 6), "but one has to grant all of it");
        assert!(!check(11, &[20], 2), "named group, cut by the mask");
        assert!(check(11, &[], 7), "others are not masked");
    }
}
