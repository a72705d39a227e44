//! The user that a command acts as: that of `--as`, or the superuser.
//!
//! `args` reads it, and `app` makes sessions with its credentials. Names come from the volume's
//! own `/etc/passwd`. A user that the volume does not know is an error.

use extern4::Cred;

use crate::id_names::IdNames;

/// A user of a volume, by numbers or by a name of the volume's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The user, the group and further groups.
    Ids {
        uid: u32,
        gid: u32,
        groups: Vec<u32>,
    },
    /// A user with the groups that the volume knows.
    User(u32),
    /// A name of the volume's `/etc/passwd`.
    Name(String),
}

impl Caller {
    /// Reads `UID:GID[,GID...]`, `UID` or `NAME`.
    pub(crate) fn argument(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let read = || {
            let Some((uid, groups)) = text.split_once(':') else {
                let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                return number(text)
                    .map(Self::User)
                    .or(is_name.then(|| Self::Name(text.to_owned())));
            };
            let mut groups = groups.split(',').map(number);
            let uid = number(uid)?;
            let gid = groups.next()??;
            Some(Self::Ids {
                uid,
                gid,
                groups: groups.collect::<Option<_>>()?,
            })
        };
        read().ok_or_else(|| "write it as 1000:1000, 1000:1000,4,27, 1000 or a name".to_owned())
    }

    /// Returns the superuser.
    pub(crate) const fn root() -> Self {
        Self::Ids {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        }
    }

    /// Returns whether the caller is the superuser of every volume.
    pub(crate) fn is_superuser(&self) -> bool {
        match self {
            Self::Ids { uid, .. } | Self::User(uid) => *uid == 0,
            Self::Name(name) => name == "root",
        }
    }

    /// Returns the caller's credentials in a volume. The error says what is missing there.
    pub(crate) fn cred(&self, names: impl FnOnce() -> IdNames) -> Result<Cred, String> {
        match self {
            Self::Ids { uid, gid, groups } => Ok(Cred::new(*uid, *gid, groups)),
            Self::User(0) => Ok(Cred::root()),
            Self::User(uid) => {
                let names = names();
                let name = names.has_user(*uid).then(|| names.user(*uid).into_owned());
                // Without a name, the user is in the group of the same number, as on most systems.
                let gid = name
                    .as_ref()
                    .and_then(|name| names.login_group(name))
                    .unwrap_or(*uid);
                Ok(Cred::new(
                    *uid,
                    gid,
                    &name.map_or_else(Vec::new, |name| names.groups_of(&name)),
                ))
            }
            Self::Name(name) => {
                let names = names();
                let missing = || {
                    if names.has_users() {
                        format!("has no user {name} in its /etc/passwd")
                    } else {
                        format!("has no /etc/passwd that could name {name}; give --as a number")
                    }
                };
                let uid = names.uid(name).ok_or_else(missing)?;
                let gid = names.login_group(name).ok_or_else(missing)?;
                Ok(Cred::new(uid, gid, &names.groups_of(name)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Caller;

    #[test]
    fn callers_are_read() {
        let check = |text: &str, uid, gid, groups: &[u32]| {
            assert_eq!(
                Caller::argument(text),
                Ok(Caller::Ids {
                    uid,
                    gid,
                    groups: groups.to_vec()
                }),
                "{text}"
            );
        };
        check("0:0", 0, 0, &[]);
        check("1000:100", 1000, 100, &[]);
        check("1000:100,4,27", 1000, 100, &[4, 27]);
        assert_eq!(Caller::argument("1000"), Ok(Caller::User(1000)));
        assert_eq!(Caller::argument("ann"), Ok(Caller::Name("ann".to_owned())));
        for bad in [
            "",
            "1000:",
            ":1",
            "a:b",
            "1:2,",
            "1:2,x",
            "-1:0",
            "4294967296:0",
            "-1",
            "4294967296",
            "+1",
        ] {
            assert!(Caller::argument(bad).is_err(), "{bad}");
        }
    }
}
