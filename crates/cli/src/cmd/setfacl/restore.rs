//! `--restore`: sets the ACLs that an output of `getfacl` lists, so that a file can keep ACLs for
//! later.
//!
//! `setfacl` calls it. If the file has a mistake, no ACL changes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{Acl, AclKind, Session};

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::id_names::{IdNames, NameOrId};
use crate::interruptible;
use crate::targets::written_paths;

use super::spec::{Bound, Spec};

/// One paragraph of the file.
#[derive(Debug, Default)]
struct Record {
    line: usize,
    path: PathBuf,
    owner: Option<NameOrId>,
    group: Option<NameOrId>,
    /// The set-id bits and the sticky bit.
    flags: u32,
    entries: Vec<Spec>,
}

/// A paragraph with the numeric ids of a volume.
struct Restored {
    path: PathBuf,
    owner: Option<u32>,
    group: Option<u32>,
    flags: u32,
    access: Acl,
    default: Option<Acl>,
}

/// Restores the ACLs from `file`. It reads the whole file before it changes anything.
pub(super) fn run(file: &Path, image_paths: &[OsString], app: &mut App) {
    let [image_path] = image_paths else {
        app.fail(
            ExitStatus::Usage,
            "--restore takes one IMAGE:/PATH, which the paths start from",
        );
        return;
    };
    let shown = crate::text::escape(file.as_os_str().as_bytes()).into_owned();
    let text = match interruptible::read(file, app.stop()) {
        Ok(text) => text,
        Err(error) => return app.fail_at(ExitStatus::Failed, &shown, host_reason(&error)),
    };
    let base = app.image_path(image_path);
    let Some(names) = app.names_of(&base.image) else {
        return;
    };
    let records = parse(&text).and_then(|records| {
        let bind =
            |record: &Record| bind(record, &names, &base).map_err(|message| (record.line, message));
        records.iter().map(bind).collect::<Result<Vec<_>, _>>()
    });
    let records = match records {
        Ok(records) => records,
        Err((line, message)) => {
            return app.fail(
                ExitStatus::Failed,
                format_args!("{shown}:{line}: {message}"),
            );
        }
    };
    for image_path in written_paths(image_paths, app) {
        let Some(target) = app.target(&image_path) else {
            return;
        };
        for record in &records {
            let path = target.path().join(&record.path);
            if let Err(error) = restore(target.session(), &path, record) {
                app.error(target.volume.image_path(&path), &error);
            }
        }
    }
}

fn restore(session: &Session, path: &Path, record: &Restored) -> extern4::Result<()> {
    if record.owner.is_some() || record.group.is_some() {
        session.lchown(path, record.owner, record.group)?;
        // The group's bits are the ACL's mask, and are set with it.
        session.set_permissions(path, record.flags | record.access.equiv_mode().0)?;
    }
    session.set_acl(path, AclKind::Access, Some(record.access.clone()))?;
    if session.metadata(path)?.is_dir() {
        session.set_acl(path, AclKind::Default, record.default.clone())?;
    }
    Ok(())
}

fn bind(
    record: &Record,
    names: &IdNames,
    base: &crate::image_path::ImagePath,
) -> Result<Restored, String> {
    let in_volume = |message: String| format!("{message} {}", base.image);
    let bound: Vec<Bound> = record
        .entries
        .iter()
        .map(|spec| spec.bind(false, names))
        .collect::<Result<_, _>>()
        .map_err(in_volume)?;
    let acl = |default| {
        let of = bound.iter().filter(|bound| bound.default == default);
        let mut entries: Vec<_> = of.map(|bound| bound.entry(false)).collect();
        entries.sort_by_key(|entry| entry.tag);
        if entries.is_empty() {
            Ok(None)
        } else {
            Acl::new(entries)
                .map(Some)
                .map_err(|error| error.to_string())
        }
    };
    Ok(Restored {
        path: record.path.clone(),
        owner: record
            .owner
            .as_ref()
            .map(|who| who.uid(names))
            .transpose()
            .map_err(in_volume)?,
        group: record
            .group
            .as_ref()
            .map(|who| who.gid(names))
            .transpose()
            .map_err(in_volume)?,
        flags: record.flags,
        access: acl(false)?.ok_or("there are no entries for owner, group and others")?,
        default: acl(true)?,
    })
}

/// Reads the paragraphs; an error comes with its line number.
fn parse(text: &[u8]) -> Result<Vec<Record>, (usize, String)> {
    let mut records: Vec<Record> = Vec::new();
    for (index, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = index + 1;
        let wrong = |message: &str| (line, message.to_owned());
        if let Some(name) = bytes.strip_prefix(b"# file: ") {
            records.push(Record {
                line,
                path: relative(&crate::text::unescape(name)),
                ..Record::default()
            });
            continue;
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| wrong("not text"))?
            .trim();
        if text.is_empty() {
            continue;
        }
        let record = records
            .last_mut()
            .ok_or_else(|| wrong("there is no '# file:' line before it"))?;
        if let Some(owner) = text.strip_prefix("# owner: ") {
            record.owner = Some(NameOrId::parse(owner).map_err(|message| (line, message))?);
        } else if let Some(group) = text.strip_prefix("# group: ") {
            record.group = Some(NameOrId::parse(group).map_err(|message| (line, message))?);
        } else if let Some(flags) = text.strip_prefix("# flags: ") {
            record.flags = self::flags(flags).ok_or_else(|| wrong("flags look like sst or ---"))?;
        } else if !text.starts_with('#') {
            let entry = text.split_once('#').map_or(text, |(entry, _)| entry).trim();
            record
                .entries
                .push(Spec::with_rights(entry).map_err(|message| (line, message))?);
        }
    }
    Ok(records)
}

fn flags(text: &str) -> Option<u32> {
    let [user, group, sticky] = text.as_bytes() else {
        return None;
    };
    let bit = |byte: u8, letter, bit| match byte {
        b'-' => Some(0),
        _ => (byte == letter).then_some(bit),
    };
    Some(bit(*user, b's', 0o4000)? | bit(*group, b's', 0o2000)? | bit(*sticky, b't', 0o1000)?)
}

/// Returns `path` relative to the image path, without leading slashes.
fn relative(path: &[u8]) -> PathBuf {
    let start = path
        .iter()
        .position(|byte| *byte != b'/')
        .unwrap_or(path.len());
    PathBuf::from(OsStr::from_bytes(&path[start..]))
}

#[cfg(test)]
mod tests {
    use super::{flags, parse};

    #[test]
    fn paragraphs_are_read() {
        let text = b"# file: a\\040b\n# owner: ann\n# group: 50\n# flags: -st\nuser::rwx\n\
            user:5:rwx\t#effective:r-x\ngroup::r-x\nmask::r-x\nother::---\ndefault:user::rwx\n\n# file: /\nuser::rw-\n";
        let records = parse(text).expect("paragraphs");
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].path.to_str(), Some("a b"));
        assert_eq!(records[0].entries.len(), 6);
        assert_eq!(records[0].flags, 0o3000);
        assert_eq!(records[1].path.to_str(), Some(""));
        assert_eq!(
            parse(b"user::rwx\n").map_err(|(line, _)| line).err(),
            Some(1)
        );
        assert_eq!(
            parse(b"# file: a\nuser::rwz\n")
                .map_err(|(line, _)| line)
                .err(),
            Some(2)
        );
    }

    #[test]
    fn flags_are_read() {
        assert_eq!(flags("s--"), Some(0o4000));
        assert_eq!(flags("sst"), Some(0o7000));
        assert_eq!(flags("t--"), None);
        assert_eq!(flags("ss"), None);
    }
}
