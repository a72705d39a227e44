//! `--chmod`, `--uid-map`, `--gid-map` and `--selinux`: changes of all entries of the sources.
//!
//! `build` makes two functions of them: one changes each entry of the sources, the other labels all
//! files of the volume. A wrong range or mode is a usage error before any source is read.

use std::path::PathBuf;

use extern4::build::{Edit, Entry, IdMap, IdRange, Kind, Label};
use nix::unistd::User;

use super::selinux::Contexts;
use crate::mode_change::ModeChange;
use crate::stop::Stop;

#[derive(clap::Args)]
pub(super) struct Edits {
    /// Change modes as chmod does: 644 or u+rwX,go=rX. D before a clause means directories only,
    /// F all other files: D755,F644
    #[arg(long, value_name = "[D|F]MODE[,...]", value_parser = Chmod::parse)]
    chmod: Vec<Chmod>,
    /// Map COUNT users from FROM on to those from TO on, in ACLs and capabilities too; a user that
    /// no range maps is an error. NAME:START:COUNT, a line of /etc/subuid, undoes the map of that
    /// user's rootless containers: the user becomes 0, and START becomes 1
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = users, conflicts_with = "owner")]
    uid_map: Vec<Ranges>,
    /// Map groups in the same way; NAME:START:COUNT is a line of /etc/subgid
    #[arg(long, value_name = "FROM:TO:COUNT", value_parser = groups, conflicts_with = "owner")]
    gid_map: Vec<Ranges>,
    /// Label files by the file_contexts of an SELinux policy: lines REGEX [TYPE] CONTEXT, of which
    /// the last that matches counts. A file that none matches keeps the label of its source
    #[arg(long, value_name = "FILE_CONTEXTS")]
    selinux: Vec<PathBuf>,
}

impl Edits {
    /// Returns the change of each entry, if there is one. The error is about the ranges.
    pub(super) fn edit(&self) -> Result<Option<Edit>, String> {
        let users = map(&self.uid_map, "--uid-map")?;
        let groups = map(&self.gid_map, "--gid-map")?;
        let chmod = self.chmod.clone();
        if users.is_none() && groups.is_none() && chmod.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(move |entry: &mut Entry| {
            chmod.iter().for_each(|chmod| chmod.apply(entry));
            entry.map_ids(users.as_ref(), groups.as_ref())
        })))
    }

    /// Returns the label of each file, if there is one. The error is about the file contexts.
    pub(super) fn label(&self, stop: &Stop) -> Result<Option<Label>, String> {
        if self.selinux.is_empty() {
            return Ok(None);
        }
        let contexts = Contexts::read(&self.selinux, stop)?;
        Ok(Some(Box::new(move |entry: &mut Entry| {
            contexts.label(entry)
        })))
    }
}

/// The clauses of one `--chmod`, each with the types that it is about.
#[derive(Clone, Debug)]
struct Chmod(Vec<(Types, ModeChange)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Types {
    All,
    Directories,
    Others,
}

impl Chmod {
    fn parse(text: &str) -> Result<Self, String> {
        let clause = |text: &str| {
            let (types, mode) = match text.as_bytes().first() {
                Some(b'D') => (Types::Directories, &text[1..]),
                Some(b'F') => (Types::Others, &text[1..]),
                _ => (Types::All, text),
            };
            Some((types, ModeChange::parse(mode)?))
        };
        let clauses: Option<_> = text.split(',').map(clause).collect();
        clauses
            .map(Self)
            .ok_or_else(|| "write it as 644, u+rwX,go=rX or D755,F644".to_owned())
    }

    /// Links have no modes. The umask plays no part: it differs between machines.
    fn apply(&self, entry: &mut Entry) {
        if matches!(entry.kind, Kind::Symlink(_)) {
            return;
        }
        let is_directory = entry.kind == Kind::Directory;
        let skipped = if is_directory {
            Types::Others
        } else {
            Types::Directories
        };
        let changes = self.0.iter().filter(|(types, _)| *types != skipped);
        let mode = changes.fold(u32::from(entry.mode), |mode, (_, change)| {
            change.apply(mode, is_directory, 0)
        });
        entry.set_mode((mode & 0o7777) as u16);
    }
}

/// The ranges of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges(Vec<IdRange>);

fn users(text: &str) -> Result<Ranges, String> {
    ranges(text, |user| user.uid.as_raw())
}

fn groups(text: &str) -> Result<Ranges, String> {
    ranges(text, |user| user.gid.as_raw())
}

fn ranges(text: &str, own_id: impl Fn(&User) -> u32) -> Result<Ranges, String> {
    let wrong = || "write it as FROM:TO:COUNT, or as NAME:START:COUNT as in /etc/subuid".to_owned();
    let parts: Vec<&str> = text.split(':').collect();
    let [first, second, count] = parts[..] else {
        return Err(wrong());
    };
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let second = number(second)?;
    let count = number(count)?;
    if let Ok(from) = first.parse() {
        return Ok(Ranges(vec![IdRange {
            from,
            to: second,
            count,
        }]));
    }
    let user = User::from_name(first).ok().flatten();
    let user = user.ok_or_else(|| format!("there is no user '{first}'"))?;
    let own = IdRange {
        from: own_id(&user),
        to: 0,
        count: 1,
    };
    Ok(Ranges(vec![
        own,
        IdRange {
            from: second,
            to: 1,
            count,
        },
    ]))
}

fn map(given: &[Ranges], option: &str) -> Result<Option<IdMap>, String> {
    if given.is_empty() {
        return Ok(None);
    }
    let ranges: Vec<IdRange> = given
        .iter()
        .flat_map(|ranges| ranges.0.iter().copied())
        .collect();
    IdMap::new(ranges)
        .map(Some)
        .map_err(|reason| format!("{option}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use extern4::build::Time;

    #[test]
    fn modes_change_by_type() {
        let check = |text: &str, kind: Kind, mode, expected| {
            let mut entry = Entry {
                path: b"x".to_vec(),
                kind,
                mode,
                uid: 0,
                gid: 0,
                mtime: Time::default(),
                xattrs: Vec::new(),
                flags: None,
                project: None,
            };
            Chmod::parse(text).expect(text).apply(&mut entry);
            assert_eq!(entry.mode, expected, "{text}: {:o}", entry.mode);
        };
        check("D755,F644", Kind::Directory, 0o700, 0o755);
        check("D755,F644", Kind::Fifo, 0o700, 0o644);
        check("600", Kind::Directory, 0o755, 0o600);
        check("u+rwX,go=rX", Kind::Directory, 0o200, 0o755);
        check("u+rwX,go=rX", Kind::Fifo, 0o100, 0o755);
        check("go-w,F+x", Kind::Fifo, 0o666, 0o755);
        check("Fa-s", Kind::Directory, 0o2755, 0o2755);
        check("000", Kind::Symlink(b"x".to_vec()), 0o777, 0o777);
        for wrong in ["", "D", "X755", "D888", "u+q", "D755,"] {
            assert!(Chmod::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_read() {
        let range = |from, to, count| IdRange { from, to, count };
        assert_eq!(
            users("100000:0:65536"),
            Ok(Ranges(vec![range(100_000, 0, 65_536)]))
        );
        // The superuser has a name everywhere.
        assert_eq!(
            users("root:100000:5"),
            Ok(Ranges(vec![range(0, 0, 1), range(100_000, 1, 5)]))
        );
        for wrong in [
            "",
            "1:2",
            "1:2:3:4",
            "1:x:3",
            "1:2:-1",
            "4294967296:0:1",
            "no such user:1:2",
        ] {
            assert!(groups(wrong).is_err(), "{wrong}");
        }
    }
}
