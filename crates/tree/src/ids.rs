//! [`IdMap`]: maps of user and group ids; and changes of an entry's ids and mode.
//!
//! `build` applies `--uid-map`, `--gid-map` and `--chmod` by it. Ids in ACLs and in capabilities
//! are mapped, too, and an access ACL follows a new mode. An id in no range is an error, so no id
//! is kept by mistake.

use extern4_acl::{Acl, AclEntry, AclKind, AclTag};

use crate::entry::Entry;

/// The attribute `security.capability`, the revision of it that has the root id of a user
/// namespace, and the place of that id.
const CAPABILITY: &[u8] = b"security.capability";
const CAPABILITY_REVISION_3: u32 = 0x0300_0000;
const CAPABILITY_REVISIONS: u32 = 0xff00_0000;
const CAPABILITY_ROOT: std::ops::Range<usize> = 20..24;

/// A range of ids and their new ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The first id of the range.
    pub from: u32,
    /// The new id of the first; those after it follow in order.
    pub to: u32,
    /// The number of ids.
    pub count: u32,
}

/// A map of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    /// Sorted, and without overlaps.
    ranges: Vec<IdRange>,
}

impl IdMap {
    /// Makes a map of these ranges. The error names a range that is not valid.
    ///
    /// # Errors
    /// A sentence that names the range.
    pub fn new(ranges: impl Into<Vec<IdRange>>) -> Result<Self, String> {
        let mut ranges = ranges.into();
        ranges.sort_by_key(|range| range.from);
        for IdRange { from, to, count } in &ranges {
            // 2^32 - 1 means no id.
            if *count == 0 || from.checked_add(*count).is_none() || to.checked_add(*count).is_none()
            {
                return Err(format!("there is no range {from}:{to}:{count} of ids"));
            }
        }
        for pair in ranges.windows(2) {
            if pair[0].from + pair[0].count > pair[1].from {
                return Err(format!("two ranges map the id {}", pair[1].from));
            }
        }
        Ok(Self { ranges })
    }

    /// Returns the new id of `id`; `None` if it is in no range.
    pub fn map(&self, id: u32) -> Option<u32> {
        let at = self
            .ranges
            .partition_point(|range| range.from <= id)
            .checked_sub(1)?;
        let IdRange { from, to, count } = self.ranges[at];
        (id - from < count).then(|| to + (id - from))
    }
}

impl Entry {
    /// Maps the owner and the group, the users and groups in ACLs, and the root id of capabilities.
    /// `None` keeps users, or groups. The error names an id that is in no range.
    ///
    /// # Errors
    /// A sentence that names the id. The entry is then mapped in part.
    pub fn map_ids(&mut self, users: Option<&IdMap>, groups: Option<&IdMap>) -> Result<(), String> {
        let user = |id| mapped(users, id).ok_or_else(|| format!("no range maps the user {id}"));
        let group = |id| mapped(groups, id).ok_or_else(|| format!("no range maps the group {id}"));
        (self.uid, self.gid) = (user(self.uid)?, group(self.gid)?);
        for (name, value) in &mut self.xattrs {
            if name == CAPABILITY {
                if let Some(root) = capability_root(value) {
                    value[CAPABILITY_ROOT].copy_from_slice(&user(root)?.to_le_bytes());
                }
            } else if AclKind::from_xattr_name(name).is_some()
                && let Ok(Some(acl)) = Acl::from_xattr(value)
            {
                *value = mapped_acl(&acl, user, group)?.to_xattr();
            }
        }
        Ok(())
    }

    /// Sets the permission bits as `chmod` does: an access ACL follows them.
    pub fn set_mode(&mut self, mode: u16) {
        self.mode = mode;
        for (name, value) in &mut self.xattrs {
            if AclKind::from_xattr_name(name) == Some(AclKind::Access)
                && let Ok(Some(acl)) = Acl::from_xattr(value)
            {
                *value = acl.with_mode(mode.into()).to_xattr();
            }
        }
    }

    /// Takes all extended attributes and ACLs away. Without its ACL, the mode gives the group the
    /// rights that the ACL gave it, and not the rights of the ACL's mask.
    pub fn leave_out_xattrs(&mut self) {
        for (name, value) in std::mem::take(&mut self.xattrs) {
            if AclKind::from_xattr_name(&name) == Some(AclKind::Access)
                && let Ok(Some(acl)) = Acl::from_xattr(&value)
            {
                let rights = |tag| {
                    acl.entries()
                        .iter()
                        .find(|entry| entry.tag == tag)
                        .map(|entry| entry.perm)
                };
                let mask = rights(AclTag::Mask).unwrap_or(0o7);
                let group = rights(AclTag::GroupObj).unwrap_or(0) & mask;
                self.mode = self.mode & !0o070 | u16::from(group) << 3;
            }
        }
    }
}

fn mapped(map: Option<&IdMap>, id: u32) -> Option<u32> {
    map.map_or(Some(id), |map| map.map(id))
}

/// Returns the root id of the user namespace of capabilities, if they have one.
fn capability_root(value: &[u8]) -> Option<u32> {
    let revision = u32::from_le_bytes(value.get(..4)?.try_into().ok()?) & CAPABILITY_REVISIONS;
    let root = value.get(CAPABILITY_ROOT)?.try_into().ok()?;
    (revision == CAPABILITY_REVISION_3).then(|| u32::from_le_bytes(root))
}

fn mapped_acl(
    acl: &Acl,
    user: impl Fn(u32) -> Result<u32, String>,
    group: impl Fn(u32) -> Result<u32, String>,
) -> Result<Acl, String> {
    let entry = |entry: &AclEntry| {
        let tag = match entry.tag {
            AclTag::User(id) => AclTag::User(user(id)?),
            AclTag::Group(id) => AclTag::Group(group(id)?),
            tag => tag,
        };
        Ok(AclEntry {
            tag,
            perm: entry.perm,
        })
    };
    let entries: Vec<AclEntry> = acl
        .entries()
        .iter()
        .map(entry)
        .collect::<Result<_, String>>()?;
    Acl::new(entries).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Kind, Time};

    fn map(ranges: &[(u32, u32, u32)]) -> Result<IdMap, String> {
        let range = |&(from, to, count)| IdRange { from, to, count };
        IdMap::new(ranges.iter().map(range).collect::<Vec<_>>())
    }

    fn entry(xattrs: &[(&str, &[u8])]) -> Entry {
        Entry {
            path: b"x".to_vec(),
            kind: Kind::Fifo,
            mode: 0o644,
            uid: 100_000,
            gid: 0,
            mtime: Time::default(),
            xattrs: xattrs
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec()))
                .collect(),
            flags: None,
            project: None,
        }
    }

    #[test]
    fn ranges_map_ids() {
        let map_of = map(&[(100_000, 1, 65_535), (1000, 0, 1)]).unwrap();
        let cases = [
            (1000, Some(0)),
            (100_000, Some(1)),
            (165_534, Some(65_535)),
            (165_535, None),
            (0, None),
        ];
        for (id, expected) in cases {
            assert_eq!(map_of.map(id), expected, "{id}");
        }
        assert_eq!(
            map(&[(0, u32::MAX - 1, 1)]).unwrap().map(0),
            Some(u32::MAX - 1)
        );
        for wrong in [
            &[(0, 0, 0)][..],
            &[(0, u32::MAX, 1)],
            &[(u32::MAX, 0, 1)],
            &[(0, 0, 2), (1, 5, 1)],
        ] {
            assert!(map(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ids_in_attributes_are_mapped() {
        let acl = "user::rw-,user:100007:r--,group::r--,group:5:r--,mask::r--,other::---";
        let acl = acl.parse::<Acl>().unwrap().to_xattr();
        // The magic number of revision 3, two pairs of words, and the root's id.
        let capability = [
            &0x0300_0001_u32.to_le_bytes()[..],
            &[9; 16],
            &100_000_u32.to_le_bytes(),
        ]
        .concat();
        let mut entry = entry(&[
            ("security.capability", &capability),
            ("system.posix_acl_access", &acl),
            ("user.x", &capability),
        ]);
        let users = map(&[(100_000, 0, 65_536)]).unwrap();
        entry.map_ids(Some(&users), None).unwrap();
        assert_eq!((entry.uid, entry.gid), (0, 0));
        assert_eq!(
            entry.xattrs[0].1,
            [&0x0300_0001_u32.to_le_bytes()[..], &[9; 16], &[0; 4]].concat()
        );
        let expected = "user::rw-,user:7:r--,group::r--,group:5:r--,mask::r--,other::---";
        assert_eq!(
            entry.xattrs[1].1,
            expected.parse::<Acl>().unwrap().to_xattr()
        );
        assert_eq!(entry.xattrs[2].1, capability);
        assert_eq!(
            entry.map_ids(Some(&users), None).unwrap_err(),
            "no range maps the user 0"
        );
        let groups = map(&[(0, 5, 1)]).unwrap();
        assert_eq!(
            entry.map_ids(None, Some(&groups)).unwrap_err(),
            "no range maps the group 5"
        );
    }

    #[test]
    fn an_acl_follows_the_mode() {
        let acl = "user::rw-,user:7:rwx,group::r--,mask::rwx,other::---"
            .parse::<Acl>()
            .unwrap();
        let mut entry = entry(&[("system.posix_acl_access", &acl.to_xattr())]);
        entry.set_mode(0o4750);
        let expected = "user::rwx,user:7:rwx,group::r--,mask::r-x,other::---"
            .parse::<Acl>()
            .unwrap();
        assert_eq!(
            (entry.mode, &entry.xattrs[0].1),
            (0o4750, &expected.to_xattr())
        );
    }
}
