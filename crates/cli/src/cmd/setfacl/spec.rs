//! ACL entries as the command line gives them, and the edits that they make to an ACL.
//!
//! clap parses entries with it, and `setfacl` applies the edits. The result is what setfacl(1)
//! makes of the same ACL, the mask included.

use extern4::{Acl, AclEntry, AclTag};

use crate::id_names::{IdNames, NameOrId};

/// An entry to set or remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    default: bool,
    tag: Tag,
    rights: Option<Rights>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tag {
    UserObj,
    User(NameOrId),
    GroupObj,
    Group(NameOrId),
    Mask,
    Other,
}

/// Read, write and execute. `X` grants execute only on a directory, or where an entry of the ACL
/// grants it already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    perm: u8,
    maybe_execute: bool,
}

/// An entry with the numeric ids of one volume.
pub(super) struct Bound {
    /// It is an entry of the default ACL.
    pub(super) default: bool,
    tag: AclTag,
    rights: Rights,
}

impl Spec {
    /// Reads `[d:]u:NAME:rwx`.
    pub(super) fn with_rights(text: &str) -> Result<Self, String> {
        Self::parse(text, true)
            .ok_or_else(|| "write it as u:NAME:rwx, g:NAME:rx, m::r or o::-".to_owned())
    }

    /// Reads `[d:]u:NAME`.
    pub(super) fn without_rights(text: &str) -> Result<Self, String> {
        Self::parse(text, false).ok_or_else(|| "write it as u:NAME, g:NAME or m:".to_owned())
    }

    fn parse(text: &str, with_rights: bool) -> Option<Self> {
        let mut fields: Vec<&str> = text.split(':').map(str::trim).collect();
        let default = matches!(fields[0], "d" | "default");
        if default {
            fields.remove(0);
        }
        let (rights, fields) = if with_rights {
            let (last, fields) = fields.split_last()?;
            (Some(Rights::parse(last)?), fields)
        } else {
            (None, &fields[..])
        };
        let (word, name) = match fields {
            [word] => (*word, ""),
            [word, name] => (*word, *name),
            // Three fields without rights: an empty last one counts as absent.
            [word, name, ""] if !with_rights => (*word, *name),
            _ => return None,
        };
        let tag = match (word, name) {
            ("u" | "user", "") => Tag::UserObj,
            ("g" | "group", "") => Tag::GroupObj,
            ("m" | "mask", "") => Tag::Mask,
            ("o" | "other", "") => Tag::Other,
            ("u" | "user", name) => Tag::User(NameOrId::parse(name).ok()?),
            ("g" | "group", name) => Tag::Group(NameOrId::parse(name).ok()?),
            _ => return None,
        };
        Some(Self {
            default,
            tag,
            rights,
        })
    }

    /// Returns whether the entry has a name to look up.
    pub(super) fn has_name(&self) -> bool {
        matches!(&self.tag, Tag::User(who) | Tag::Group(who) if who.is_name())
    }

    /// Resolves the entry with the names of a volume. `all_default` makes every entry one of the
    /// default ACL.
    pub(super) fn bind(&self, all_default: bool, names: &IdNames) -> Result<Bound, String> {
        let tag = match &self.tag {
            Tag::UserObj => AclTag::UserObj,
            Tag::User(who) => AclTag::User(who.uid(names)?),
            Tag::GroupObj => AclTag::GroupObj,
            Tag::Group(who) => AclTag::Group(who.gid(names)?),
            Tag::Mask => AclTag::Mask,
            Tag::Other => AclTag::Other,
        };
        Ok(Bound {
            default: self.default || all_default,
            tag,
            rights: self.rights.unwrap_or_default(),
        })
    }
}

impl Bound {
    /// Returns the entry in the form that an ACL stores.
    pub(super) fn entry(&self, executable: bool) -> AclEntry {
        let perm = self.rights.perm | u8::from(self.rights.maybe_execute && executable);
        AclEntry {
            tag: self.tag,
            perm,
        }
    }
}

impl Rights {
    fn parse(text: &str) -> Option<Self> {
        if let [digit @ b'0'..=b'7'] = text.as_bytes() {
            return Some(Self {
                perm: digit - b'0',
                maybe_execute: false,
            });
        }
        if text.is_empty() {
            return None;
        }
        text.bytes().try_fold(Self::default(), |rights, letter| {
            Some(match letter {
                b'r' => Self {
                    perm: rights.perm | 4,
                    ..rights
                },
                b'w' => Self {
                    perm: rights.perm | 2,
                    ..rights
                },
                b'x' => Self {
                    perm: rights.perm | 1,
                    ..rights
                },
                b'X' => Self {
                    maybe_execute: true,
                    ..rights
                },
                b'-' => rights,
                _ => return None,
            })
        })
    }
}

/// Removes everything that permission bits cannot express. Rights that the mask took from the group
/// stay taken from it.
pub(super) fn remove_extended(entries: &mut Vec<AclEntry>) {
    let mask = entries
        .iter()
        .find(|entry| entry.tag == AclTag::Mask)
        .map_or(7, |entry| entry.perm);
    entries.retain(|entry| {
        matches!(
            entry.tag,
            AclTag::UserObj | AclTag::GroupObj | AclTag::Other
        )
    });
    for entry in entries
        .iter_mut()
        .filter(|entry| entry.tag == AclTag::GroupObj)
    {
        entry.perm &= mask;
    }
}

/// Gives a default ACL the entries for owner, group and others that it lacks, from the access ACL.
pub(super) fn complete(entries: &mut Vec<AclEntry>, access: &Acl) {
    for entry in access.entries() {
        let base = matches!(
            entry.tag,
            AclTag::UserObj | AclTag::GroupObj | AclTag::Other
        );
        if base && !entries.iter().any(|there| there.tag == entry.tag) {
            entries.push(*entry);
        }
    }
}

/// When the mask of an ACL is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MaskRule {
    /// Unless one of the changed entries is the mask.
    Usual,
    Always,
    /// Never; a mask that is missing takes the rights of the group.
    Never,
}

/// The ACL that a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Which {
    pub(super) default: bool,
    /// Whether `X` grants the right to execute.
    pub(super) executable: bool,
    pub(super) mask: MaskRule,
}

/// Removes and sets the entries that are for this ACL. Then it recomputes the mask, as the rule
/// says.
pub(super) fn edit(entries: &mut Vec<AclEntry>, remove: &[Bound], modify: &[Bound], which: Which) {
    let Which {
        default,
        executable,
        mask,
    } = which;
    let mut edited = false;
    let mut masked = false;
    for spec in remove.iter().filter(|spec| spec.default == default) {
        entries.retain(|entry| entry.tag != spec.tag);
        edited = true;
        masked |= spec.tag == AclTag::Mask;
    }
    for spec in modify.iter().filter(|spec| spec.default == default) {
        entries.retain(|entry| entry.tag != spec.tag);
        entries.push(spec.entry(executable));
        edited = true;
        masked |= spec.tag == AclTag::Mask;
    }
    let group_class = |entry: &&AclEntry| {
        matches!(
            entry.tag,
            AclTag::User(_) | AclTag::GroupObj | AclTag::Group(_)
        )
    };
    let needs_mask = entries
        .iter()
        .any(|entry| matches!(entry.tag, AclTag::User(_) | AclTag::Group(_) | AclTag::Mask));
    let computed = match mask {
        MaskRule::Usual => !masked,
        MaskRule::Always => true,
        MaskRule::Never => {
            let group = entries
                .iter()
                .find(|entry| entry.tag == AclTag::GroupObj)
                .map(|entry| entry.perm);
            let has_mask = entries.iter().any(|entry| entry.tag == AclTag::Mask);
            if let Some(perm) = group.filter(|_| needs_mask && !has_mask) {
                entries.push(AclEntry {
                    tag: AclTag::Mask,
                    perm,
                });
            }
            false
        }
    };
    if edited && computed && needs_mask {
        let perm = entries
            .iter()
            .filter(group_class)
            .fold(0, |perm, entry| perm | entry.perm);
        entries.retain(|entry| entry.tag != AclTag::Mask);
        entries.push(AclEntry {
            tag: AclTag::Mask,
            perm,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, MaskRule, Rights, Spec, Tag, Which, complete, edit, remove_extended};
    use crate::id_names::{IdNames, NameOrId};
    use extern4::{Acl, AclEntry, AclTag};

    fn acl(text: &str) -> Vec<AclEntry> {
        text.parse::<Acl>().expect(text).entries().to_vec()
    }

    fn bound(text: &str, with_rights: bool) -> Vec<Bound> {
        let one = |text: &str| {
            let spec = if with_rights {
                Spec::with_rights(text)
            } else {
                Spec::without_rights(text)
            };
            spec.expect(text)
                .bind(false, &IdNames::default())
                .expect(text)
        };
        text.split(',')
            .filter(|text| !text.is_empty())
            .map(one)
            .collect()
    }

    #[test]
    fn entries_are_read() {
        let check = |text: &str, default, tag: Tag, perm, maybe_execute| {
            let rights = Some(Rights {
                perm,
                maybe_execute,
            });
            assert_eq!(
                Spec::with_rights(text),
                Ok(Spec {
                    default,
                    tag,
                    rights
                }),
                "{text}"
            );
        };
        check(
            "u:ann:rwx",
            false,
            Tag::User(NameOrId::Name("ann".into())),
            7,
            false,
        );
        check(
            "user:1000:r-x",
            false,
            Tag::User(NameOrId::Number(1000)),
            5,
            false,
        );
        check("user::rw-", false, Tag::UserObj, 6, false);
        check("d:g:50:rX", true, Tag::Group(NameOrId::Number(50)), 4, true);
        check("default:group::5", true, Tag::GroupObj, 5, false);
        check("m::r", false, Tag::Mask, 4, false);
        check("mask:r", false, Tag::Mask, 4, false);
        check("o:-", false, Tag::Other, 0, false);
        for text in [
            "",
            "u",
            "u:ann",
            "x::r",
            "m:ann:r",
            "u:ann:q",
            "u:ann:",
            "u:a:b:r",
            "u:4294967295:r",
        ] {
            assert!(Spec::with_rights(text).is_err(), "{text}");
        }
        assert!(Spec::without_rights("u:ann").is_ok());
        assert!(Spec::without_rights("m:").is_ok());
        assert!(Spec::without_rights("u:ann:rwx").is_err());
    }

    #[test]
    fn masks_are_computed_as_setfacl_does() {
        let check = |before: &str, remove: &str, modify: &str, after: &str| {
            let mut entries = acl(before);
            let which = Which {
                default: false,
                executable: false,
                mask: MaskRule::Usual,
            };
            edit(
                &mut entries,
                &bound(remove, false),
                &bound(modify, true),
                which,
            );
            entries.sort_by_key(|entry| entry.tag);
            assert_eq!(entries, acl(after), "{before} -x {remove} -m {modify}");
        };
        let base = "u::rw-,g::r--,o::r--";
        check(
            base,
            "",
            "u:5:rwx,m::r",
            "u::rw-,u:5:rwx,g::r--,m::r--,o::r--",
        );
        check(
            "u::rw-,u:5:rwx,g::r--,m::r--,o::r--",
            "",
            "g:7:rw",
            "u::rw-,u:5:rwx,g::r--,g:7:rw-,m::rwx,o::r--",
        );
        check(
            "u::rw-,u:5:rwx,g::r--,m::rwx,o::r--",
            "u:5",
            "",
            "u::rw-,g::r--,m::r--,o::r--",
        );
        check("u::rw-,g::r--,m::r--,o::r--", "m", "", base);
        check(
            "u::rw-,u:9:r--,g::r--,m::rwx,o::r--",
            "u:99",
            "",
            "u::rw-,u:9:r--,g::r--,m::r--,o::r--",
        );
        check(base, "", "u:5:X", "u::rw-,u:5:---,g::r--,m::r--,o::r--");
        check(base, "", "o::-", "u::rw-,g::r--,o::---");
    }

    #[test]
    fn the_rest_of_an_acl_gives_no_more_rights() {
        let mut entries = acl("u::rw-,u:5:rw-,g::rw-,m::r--,o::r--");
        remove_extended(&mut entries);
        assert_eq!(entries, acl("u::rw-,g::r--,o::r--"));
        let mut default = vec![AclEntry {
            tag: AclTag::User(5),
            perm: 5,
        }];
        complete(
            &mut default,
            &"u::rwx,g::r-x,o::r-x".parse().expect("an ACL"),
        );
        assert_eq!(default.len(), 4);
    }
}
