//! Access control lists, their entries, and the access check.
//!
//! An [`Acl`] is always valid: every constructor checks the rules of `acl(5)`, or fails with an
//! [`AclError`] that names the broken rule. So the checks and conversions cannot fail. The VFS
//! checks callers with it and computes modes and inherited lists; `text`, `xattr` and `disk` read
//! and write it.

/// The subject of an [`AclEntry`]. The order is that of the entries in a list.
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
    /// The most rights that named users, the file's group and named groups get.
    Mask,
    /// All other users.
    Other,
}

impl AclTag {
    /// Returns the number that both of Linux's byte forms store (`linux/posix_acl.h`), and the id
    /// of a named user or group.
    pub const fn to_raw(self) -> (u16, Option<u32>) {
        match self {
            Self::UserObj => (0x01, None),
            Self::User(id) => (0x02, Some(id)),
            Self::GroupObj => (0x04, None),
            Self::Group(id) => (0x08, Some(id)),
            Self::Mask => (0x10, None),
            Self::Other => (0x20, None),
        }
    }

    /// Returns the tag with this number; `id` counts for a named user or group only. `None` for an
    /// unknown number.
    pub const fn from_raw(raw: u16, id: u32) -> Option<Self> {
        match raw {
            0x01 => Some(Self::UserObj),
            0x02 => Some(Self::User(id)),
            0x04 => Some(Self::GroupObj),
            0x08 => Some(Self::Group(id)),
            0x10 => Some(Self::Mask),
            0x20 => Some(Self::Other),
            _ => None,
        }
    }

    /// Returns whether this names one user or one group by id.
    pub const fn is_named(self) -> bool {
        matches!(self, Self::User(_) | Self::Group(_))
    }

    /// Returns the place of entries of this kind in a list.
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

/// One entry of a list: a subject and its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom the entry is about, and its id for a named user or group.
    pub tag: AclTag,
    /// The rights: read 4, write 2, execute 1.
    pub perm: u8,
}

impl AclEntry {
    /// Returns the whole entry as one number, for hashing. Different entries have different
    /// numbers.
    pub fn word(&self) -> u64 {
        let (raw, id) = self.tag.to_raw();
        u64::from(id.unwrap_or(0)) << 32 | u64::from(raw) << 8 | u64::from(self.perm)
    }
}

/// A valid access control list.
///
/// The entries stand in the order owner, named users, group, named groups, mask, other. Owner,
/// group and other are there exactly once, and a mask is there if the list names a user or a group.
/// A list never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Box<[AclEntry]>,
}

/// The reason why entries, bytes or a text are no ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// Owner, group or others are missing.
    #[error("the entries for owner, group and others must all be there")]
    Missing,
    /// Entries stand in the wrong order, or one that may stand only once stands twice.
    #[error("entries are out of order, or one comes twice")]
    Order,
    /// A user or a group is named, and there is no mask.
    #[error("a named user or group needs a mask")]
    NoMask,
    /// An entry has rights other than read, write and execute.
    #[error("rights are read, write and execute only")]
    Perm,
    /// The bytes do not have the form of the attribute.
    #[error("not the bytes of an ACL attribute")]
    Encoding,
    /// The attribute has an unknown version.
    #[error("an ACL attribute of another version than 2")]
    Version,
    /// The text does not have the form of an ACL.
    #[error("not the text of an ACL: entries look like `user:1000:rw-`")]
    Text,
}

impl Acl {
    /// Returns the list of these entries.
    ///
    /// # Errors
    /// The rule of the type that the entries break.
    pub fn new(entries: impl Into<Vec<AclEntry>>) -> Result<Self, AclError> {
        let entries = entries.into();
        let mut last = None;
        let mut required = 0;
        let mut named = false;
        let mut mask = false;
        for entry in &entries {
            if entry.perm > 7 {
                return Err(AclError::Perm);
            }
            let repeats = entry.tag.is_named();
            let rank = entry.tag.rank();
            if last.is_some_and(|last| if repeats { rank < last } else { rank <= last }) {
                return Err(AclError::Order);
            }
            last = Some(rank);
            named |= repeats;
            mask |= entry.tag == AclTag::Mask;
            required += usize::from(matches!(
                entry.tag,
                AclTag::UserObj | AclTag::GroupObj | AclTag::Other
            ));
        }
        match (required, named && !mask) {
            (3, false) => Ok(Self {
                entries: entries.into(),
            }),
            (3, true) => Err(AclError::NoMask),
            _ => Err(AclError::Missing),
        }
    }

    /// Returns the list that grants the same rights as the nine permission bits of `mode`.
    pub fn from_mode(mode: u32) -> Self {
        let entry = |tag, shift| AclEntry {
            tag,
            perm: rights(mode, shift),
        };
        Self {
            entries: [
                entry(AclTag::UserObj, 6),
                entry(AclTag::GroupObj, 3),
                entry(AclTag::Other, 0),
            ]
            .into(),
        }
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns the nine permission bits of a file with this ACL, and whether the bits alone grant
    /// the same rights.
    ///
    /// The group bits are the mask where there is one.
    pub fn equiv_mode(&self) -> (u32, bool) {
        let mut mode = 0;
        let mut whole = true;
        for entry in &self.entries {
            let perm = u32::from(entry.perm);
            match entry.tag {
                AclTag::UserObj => mode |= perm << 6,
                AclTag::GroupObj => mode |= perm << 3,
                AclTag::Other => mode |= perm,
                // The mask comes after the group's entry and replaces its bits.
                AclTag::Mask => {
                    mode = (mode & !0o070) | (perm << 3);
                    whole = false;
                }
                AclTag::User(_) | AclTag::Group(_) => whole = false,
            }
        }
        (mode, whole)
    }

    /// Returns the rights that every entry grants: the access check never refuses them.
    pub fn granted_by_all(&self) -> u8 {
        self.entries.iter().fold(7, |all, entry| all & entry.perm)
    }

    /// Returns the list after `chmod` to `mode`. The entries of owner and others take the bits of
    /// the mode, and so does the mask or, without a mask, the group's entry.
    pub fn with_mode(&self, mode: u32) -> Self {
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

    /// Returns the access ACL and the mode of a new file that is made with `mode` in a directory
    /// with this default ACL. There is no ACL if the mode alone grants the same rights. The umask
    /// plays no part.
    pub fn for_new_file(&self, mode: u32) -> (Option<Self>, u32) {
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

    /// Returns whether a caller that is not the owner gets all rights of `want` on a file of group
    /// `gid`. The caller is user `uid`, and `in_group` says whether it belongs to a group.
    ///
    /// The algorithm of `acl(5)`, "Access check algorithm".
    #[inline]
    pub fn allows(&self, uid: u32, in_group: impl Fn(u32) -> bool, gid: u32, want: u8) -> bool {
        let has_all = |perm: u8| perm & want == want;
        // The owner's entry is the first and the entry of others the last, and named users come
        // before groups.
        let [_, entries @ .., other] = &*self.entries else {
            return false;
        };
        for (at, entry) in entries.iter().enumerate() {
            match entry.tag {
                AclTag::User(named) if named == uid => return has_all(entry.perm & self.mask()),
                AclTag::User(_) => {}
                _ => return self.allows_group(&entries[at..], other.perm, in_group, gid, want),
            }
        }
        has_all(other.perm)
    }

    /// Returns the second half of [`allows`](Self::allows), for a user that no entry names.
    /// `entries` are the entries of the groups, and the mask.
    fn allows_group(
        &self,
        entries: &[AclEntry],
        others: u8,
        in_group: impl Fn(u32) -> bool,
        gid: u32,
        want: u8,
    ) -> bool {
        let has_all = |perm: u8| perm & want == want;
        let mut in_some_group = false;
        for entry in entries {
            let group = match entry.tag {
                AclTag::GroupObj => gid,
                AclTag::Group(named) => named,
                _ => continue,
            };
            if in_group(group) {
                if has_all(entry.perm) {
                    return has_all(self.mask());
                }
                in_some_group = true;
            }
        }
        !in_some_group && has_all(others)
    }

    /// Returns the rights that the mask lets through: all of them where there is no mask.
    fn mask(&self) -> u8 {
        match &*self.entries {
            // The order of entries makes it the last but one.
            [
                ..,
                AclEntry {
                    tag: AclTag::Mask,
                    perm,
                },
                _,
            ] => *perm,
            _ => 7,
        }
    }
}

/// Returns the three bits of `mode` above `shift`.
fn rights(mode: u32, shift: u32) -> u8 {
    u8::try_from((mode >> shift) & 7).expect("three bits")
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
        let u = e(AclTag::UserObj, 7);
        let g = e(AclTag::GroupObj, 5);
        let o = e(AclTag::Other, 0);
        let m = e(AclTag::Mask, 7);
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
    fn rights_that_every_entry_grants_are_never_refused() {
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
            let callers: [(u32, &[u32]); 4] = [(7, &[9]), (8, &[7]), (8, &[1, 7]), (8, &[9])];
            let allows = |(uid, groups): (u32, &[u32])| {
                acl.allows(uid, |gid| groups.contains(&gid), 1, rights)
            };
            assert!(callers.into_iter().all(allows), "{text}");
        }
    }

    #[test]
    fn new_files_start_with_the_default_acl_cut_to_their_mode() {
        let (got, mode) = acl("u::rwx,g:7:rwx,g::r-x,m::rwx,o::r-x").for_new_file(0o644);
        assert_eq!(
            got.unwrap().to_string(),
            "user::rw-\ngroup::r-x\ngroup:7:rwx\nmask::r--\nother::r--"
        );
        assert_eq!(mode, 0o644);
        assert_eq!(
            acl("u::rwx,g::r-x,o::r-x").for_new_file(0o2777),
            (None, 0o2755)
        );
    }

    #[test]
    fn access_check_follows_acl_5() {
        let list = acl("u::rwx,u:10:rw-,g::r--,g:20:-w-,g:21:r-x,m::r-x,o::rwx");
        let check =
            |uid, groups: &[u32], want| list.allows(uid, |gid| groups.contains(&gid), 50, want);
        assert!(check(10, &[], 4), "named user, within the mask");
        assert!(!check(10, &[], 2), "named user, cut by the mask");
        assert!(!check(10, &[21], 1), "a named user is not asked for groups");
        assert!(check(11, &[50], 4), "owning group");
        assert!(
            !check(11, &[50], 1),
            "a group that matches shuts out others' rights"
        );
        assert!(check(11, &[50, 21], 5), "any one group may grant");
        assert!(!check(11, &[50, 20], 6), "but one has to grant all of it");
        assert!(!check(11, &[20], 2), "named group, cut by the mask");
        assert!(check(11, &[], 7), "others are not masked");
    }
}
