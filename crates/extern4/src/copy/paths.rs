//! The two ends of a copy, and names at the end of paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::session::Session;
use crate::volume::Volume;

/// A file or directory at one end of a copy: on the host, or in a volume.
#[derive(Clone, Copy)]
pub enum CopyPath<'a> {
    /// A path of the host.
    Host(&'a Path),
    /// A path in a volume, which the copy uses with the rights of a session of that volume.
    Volume(&'a Volume, &'a Session, &'a Path),
}

impl<'a> CopyPath<'a> {
    /// Returns a path of the host.
    pub fn host(path: &'a (impl AsRef<Path> + ?Sized)) -> Self {
        Self::Host(path.as_ref())
    }

    /// Returns a path of `volume`, which `session` is a view of.
    pub fn volume(
        volume: &'a Volume,
        session: &'a Session,
        path: &'a (impl AsRef<Path> + ?Sized),
    ) -> Self {
        Self::Volume(volume, session, path.as_ref())
    }

    /// Returns the path alone.
    pub fn path(self) -> &'a Path {
        match self {
            Self::Host(path) | Self::Volume(_, _, path) => path,
        }
    }
}

/// Returns the name at the end of a path, or `None` for a root or a directory named by its dots.
pub fn own_name(path: &Path) -> Option<OsString> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/.") || bytes.ends_with(b"/./") {
        return None;
    }
    path.file_name().map(ToOwned::to_owned)
}

/// Returns whether a path ends as only paths of directories do.
pub(super) fn is_slashed(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::own_name;
    use std::path::Path;

    #[test]
    fn paths_have_names() {
        let check = |path: &str, name: Option<&str>| {
            assert_eq!(
                own_name(Path::new(path))
                    .as_deref()
                    .and_then(|name| name.to_str()),
                name,
                "{path}"
            );
        };
        check("/etc/passwd", Some("passwd"));
        check("/etc/", Some("etc"));
        check("/", None);
        check("/etc/.", None);
        check("/etc/..", None);
    }
}
