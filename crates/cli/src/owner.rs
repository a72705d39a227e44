//! An owner and a group as `chown` takes them: `ann`, `ann:staff`, `ann:` or `:staff`.
//!
//! `chown`, `chgrp` and `cp` parse with it, and look names up in each volume. A name that one of
//! the volumes does not know is reported before any file changes.

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::id_names::{IdNames, NameOrId};
use crate::image_path::{Image, ImagePath};
use crate::text::quoted;

/// An owner and a group; `None` for the one that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    user: Option<NameOrId>,
    group: Option<NameOrId>,
    /// The owner and the group of a text such as `ann.staff`, the former form of `ann:staff`. It
    /// counts where no user has the whole name.
    dotted: Option<(NameOrId, NameOrId)>,
    /// The group is the one with which the user logs in.
    login_group: bool,
    /// The numbers count lines of a file, and not of the command line.
    is_copied: bool,
}

/// The numbers of an owner and a group in one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerIds {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

impl Owner {
    /// Reads an owner and a group of the command line.
    pub(crate) fn argument(text: &str) -> Result<Self, String> {
        let one = |text: &str| {
            (!text.is_empty())
                .then(|| NameOrId::parse(text))
                .transpose()
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let user = one(user)?;
        let group = one(group)?;
        let login_group = group.is_none() && text.ends_with(':') && user.is_some();
        if text.is_empty() || login_group && !user.as_ref().is_some_and(NameOrId::is_name) {
            return Err("write it as OWNER, OWNER:GROUP, NAME: or :GROUP".to_owned());
        }
        let dotted = match text.split_once('.').filter(|_| !text.contains(':')) {
            Some((user, group)) => one(user)?.zip(one(group)?),
            None => None,
        };
        Ok(Self {
            user,
            group,
            dotted,
            login_group,
            is_copied: false,
        })
    }

    /// Reads a group of the command line.
    pub(crate) fn group_argument(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a group has a name or a number".to_owned());
        }
        let group = Some(NameOrId::parse(text)?);
        Ok(Self {
            user: None,
            group,
            dotted: None,
            login_group: false,
            is_copied: false,
        })
    }

    /// Returns the owner and the group that a file has.
    pub(crate) fn numbers(uid: Option<u32>, gid: Option<u32>) -> Self {
        let user = uid.map(NameOrId::Number);
        let group = gid.map(NameOrId::Number);
        Self {
            user,
            group,
            dotted: None,
            login_group: false,
            is_copied: true,
        }
    }

    /// Returns whether a name has to be looked up.
    pub(crate) fn has_names(&self) -> bool {
        [&self.user, &self.group]
            .into_iter()
            .flatten()
            .any(NameOrId::is_name)
    }

    /// Returns the numbers in a volume. An unknown name is an error.
    pub(crate) fn ids(&self, names: &IdNames) -> Result<OwnerIds, String> {
        if let Some(ids) = self.dotted_ids(names) {
            return Ok(ids);
        }
        let uid = self.user.as_ref().map(|user| user.uid(names)).transpose()?;
        let gid = self
            .group
            .as_ref()
            .map(|group| group.gid(names))
            .transpose()?;
        let login = match &self.user {
            Some(NameOrId::Name(name)) if self.login_group => Some(
                names
                    .login_group(name)
                    .ok_or_else(|| format!("{name} has no login group in the passwd file of"))?,
            ),
            _ => None,
        };
        Ok(OwnerIds {
            uid,
            gid: gid.or(login),
        })
    }

    /// Returns the numbers of an owner and a group with a dot between them, if they are meant.
    fn dotted_ids(&self, names: &IdNames) -> Option<OwnerIds> {
        let (user, group) = self.dotted.as_ref()?;
        let is_user = self
            .user
            .as_ref()
            .is_some_and(|user| user.uid(names).is_ok());
        let ids = OwnerIds {
            uid: user.uid(names).ok(),
            gid: group.gid(names).ok(),
        };
        (!is_user && ids.uid.is_some() && ids.gid.is_some()).then_some(ids)
    }

    /// Returns the numbers in the volume of `image`. Reports an unknown name.
    pub(crate) fn ids_in(&self, image: &Image, app: &mut App) -> Option<OwnerIds> {
        let names = if self.has_names() {
            app.names_of(image)?
        } else {
            IdNames::default()
        };
        if let (Some(_), Some(NameOrId::Name(text))) = (self.dotted_ids(&names), &self.user) {
            app.note(format_args!("warning: '.' should be ':': {}", quoted(text)));
        }
        let ids = self.ids(&names);
        ids.map_err(|message| {
            app.fail(
                ExitStatus::Failed,
                format_args!("{message} {}", quoted(image)),
            )
        })
        .ok()
    }

    /// Returns the numbers in the volumes of all paths, by image. If a name is unknown in one of
    /// them, that is reported, and there are none.
    pub(crate) fn ids_by_image(
        &self,
        paths: &[ImagePath],
        app: &mut App,
    ) -> Option<Vec<(Image, OwnerIds)>> {
        let mut known: Vec<(Image, OwnerIds)> = Vec::new();
        for path in paths {
            if !known.iter().any(|(image, _)| *image == path.image) {
                known.push((path.image.clone(), self.ids_in(&path.image, app)?));
            }
        }
        Some(known)
    }

    /// Returns the owner in the words of the command line, for lines about changes. A part that the
    /// command line does not name has the name that the volume knows.
    pub(crate) fn text(&self, ids: &OwnerIds, names: &IdNames) -> String {
        let is_other = self.is_copied || self.dotted_ids(names).is_some();
        let given = |given: &Option<NameOrId>| {
            given
                .as_ref()
                .filter(|_| !is_other)
                .map(|given| match given {
                    NameOrId::Number(number) => number.to_string(),
                    NameOrId::Name(name) => name.clone(),
                })
        };
        let user = given(&self.user).or(ids.uid.map(|uid| names.user(uid).into_owned()));
        let group = given(&self.group).or(ids.gid.map(|gid| names.group(gid).into_owned()));
        match (user, group) {
            (Some(user), Some(group)) => format!("{user}:{group}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NameOrId, Owner};

    #[test]
    fn owners_are_read() {
        let check = |text: &str, user: Option<NameOrId>, group: Option<NameOrId>, login_group| {
            assert_eq!(
                Owner::argument(text),
                Ok(Owner {
                    user,
                    group,
                    dotted: None,
                    login_group,
                    is_copied: false
                }),
                "{text}"
            );
        };
        let name = |name: &str| Some(NameOrId::Name(name.to_owned()));
        check("0", Some(NameOrId::Number(0)), None, false);
        check(
            "1000:50",
            Some(NameOrId::Number(1000)),
            Some(NameOrId::Number(50)),
            false,
        );
        check(":50", None, Some(NameOrId::Number(50)), false);
        check(
            "+1001:+50",
            Some(NameOrId::Number(1001)),
            Some(NameOrId::Number(50)),
            false,
        );
        check("+ann", name("+ann"), None, false);
        check("ann:staff", name("ann"), name("staff"), false);
        check("ann:", name("ann"), None, true);
        check(":", None, None, false);
        for text in [
            "",
            "1000:",
            "+1000:",
            "4294967295",
            "+4294967295",
            "0:4294967296",
        ] {
            assert!(Owner::argument(text).is_err(), "{text}");
        }
    }
}
