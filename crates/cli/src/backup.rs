//! The names under which commands keep files that they replace: `file~` or `file.~1~`.
//!
//! `cp`, `mv` and `ln` rename an existing file so before they give its name away, if `-b` asks for
//! it. A numbered name is one that no file has. A file that cannot be renamed is not replaced.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use extern4::{Errno, Session};

/// The options that keep replaced files.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Backup {
    /// Keep a file that is replaced under another name
    #[arg(short = 'b')]
    keep: bool,
    /// Keep a file that is replaced, with numbered names (numbered), with a suffix (simple), or
    /// numbered where numbered ones are there already (existing)
    #[arg(long = "backup", value_name = "CONTROL", num_args = 0..=1, require_equals = true, default_missing_value = "existing", value_parser = control)]
    control: Option<Control>,
    /// The suffix of files that are kept (default: ~)
    #[arg(short = 'S', long, value_name = "SUFFIX", value_parser = suffix)]
    suffix: Option<OsString>,
}

/// How names of kept files are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    None,
    Simple,
    Numbered,
    Existing,
}

fn control(text: &str) -> Result<Control, String> {
    Ok(match text {
        "none" | "off" => Control::None,
        "simple" | "never" => Control::Simple,
        "numbered" | "t" => Control::Numbered,
        "existing" | "nil" => Control::Existing,
        _ => return Err("write it as none, simple, numbered or existing".to_owned()),
    })
}

fn suffix(text: &str) -> Result<OsString, String> {
    if text.is_empty() || text.contains('/') {
        Err("a suffix is a part of a name".to_owned())
    } else {
        Ok(text.into())
    }
}

impl Backup {
    /// Returns whether files that are replaced are kept.
    pub(crate) fn is_on(&self) -> bool {
        self.control().is_some()
    }

    fn control(&self) -> Option<Control> {
        let implied = (self.keep || self.suffix.is_some()).then_some(Control::Existing);
        self.control
            .or(implied)
            .filter(|control| *control != Control::None)
    }

    /// Returns the name that keeps the file `name`, next to `names` of its directory.
    pub(crate) fn name(
        &self,
        name: &OsStr,
        names: impl Iterator<Item = OsString>,
    ) -> Option<OsString> {
        let control = self.control()?;
        let highest = names.filter_map(|other| number(&other, name)).max();
        let number = match control {
            Control::Numbered => Some(highest.unwrap_or(0) + 1),
            Control::Existing => highest.map(|highest| highest + 1),
            Control::None | Control::Simple => None,
        };
        let mut kept = name.as_bytes().to_vec();
        match number {
            Some(number) => kept.extend_from_slice(format!(".~{number}~").as_bytes()),
            None => {
                kept.extend_from_slice(self.suffix.as_deref().unwrap_or(OsStr::new("~")).as_bytes())
            }
        }
        Some(OsString::from_vec(kept))
    }

    /// Renames the file at `path` to the name that keeps it. Returns that path, or `None` if
    /// replaced files are not kept.
    pub(crate) fn make(&self, session: &Session, path: &Path) -> extern4::Result<Option<PathBuf>> {
        let (true, Some(name)) = (self.is_on(), path.file_name()) else {
            return Ok(None);
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let mut names = Vec::new();
        for entry in session.read_dir(parent)? {
            names.push(entry?.file_name().to_owned());
        }
        let Some(kept) = self.name(name, names.into_iter()) else {
            return Ok(None);
        };
        let kept = path.with_file_name(kept);
        match session.rename(path, &kept) {
            Ok(()) => Ok(Some(kept)),
            Err(error) if error.errno() == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the number of a kept file: 3 of `name.~3~`.
fn number(other: &OsStr, name: &OsStr) -> Option<u64> {
    let text = other
        .as_bytes()
        .strip_prefix(name.as_bytes())?
        .strip_prefix(b".~")?
        .strip_suffix(b"~")?;
    std::str::from_utf8(text)
        .ok()
        .filter(|text| !text.starts_with(['0', '+']))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::{Backup, Control};
    use std::ffi::{OsStr, OsString};

    #[test]
    fn kept_files_are_named_as_by_gnu() {
        let check = |control, suffix: Option<&str>, names: &[&str], expected: Option<&str>| {
            let backup = Backup {
                keep: false,
                control,
                suffix: suffix.map(OsString::from),
            };
            let kept = backup.name(OsStr::new("f"), names.iter().map(OsString::from));
            assert_eq!(
                kept.as_deref(),
                expected.map(OsStr::new),
                "{backup:?} {names:?}"
            );
        };
        check(None, None, &[], None);
        check(Some(Control::None), Some(".bak"), &[], None);
        check(Some(Control::Simple), None, &["f.~1~"], Some("f~"));
        check(Some(Control::Existing), None, &["f", "f~"], Some("f~"));
        check(
            Some(Control::Existing),
            None,
            &["f.~2~", "f.~10~", "g.~99~", "f.~x~"],
            Some("f.~11~"),
        );
        check(Some(Control::Numbered), None, &["f"], Some("f.~1~"));
        check(None, Some(".bak"), &["f"], Some("f.bak"));
    }
}
