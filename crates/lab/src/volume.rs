//! Volumes on which a user walks through directories that mostly belong to others.
//!
//! They are `extern4-vfs` over memory, with the walk of production or one with another search check
//! ([`Check`]). So the sides differ in nothing but the check. The chapters on ACLs, search
//! permission and open files, and the traces, run on them.

mod production;

use extern4_vfs::lab::Check;
use extern4_vfs::{Cred, FileType};

use crate::plan::Side;

pub use production::Production;

/// A file that a new volume has.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path. A directory comes before its entries.
    pub path: String,
    /// Its type: a directory or a regular file.
    pub kind: FileType,
    /// Its owner. The group has the same number.
    pub uid: u32,
    /// Its permission bits.
    pub mode: u16,
}

impl File {
    /// Returns a directory that root owns and every user may search.
    pub fn directory(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind: FileType::Directory,
            uid: 0,
            mode: 0o755,
        }
    }

    /// Returns a file that root owns and every user may read.
    pub fn regular(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            kind: FileType::Regular,
            uid: 0,
            mode: 0o644,
        }
    }
}

/// Returns the search check of a side.
pub(crate) fn check_of(side: Side) -> Check {
    match side {
        Side::Baseline => Check::General,
        Side::Patch => Check::Flag,
        Side::Merged => Check::ModeAndAcl,
        Side::Extern4 => Check::Word,
    }
}

/// Returns the caller of all walks.
pub fn user() -> Cred {
    Cred::new(1000, 1000, &[])
}

/// The file of the patches' figures, below four directories.
pub const PATH: &str = "/usr/include/linux/fs.h";
/// [`PATH`] with a `.` in it.
pub const PATH_BY_NAME: &str = "/./usr/include/linux/fs.h";
/// The directories on the path.
pub const DIRECTORIES: [&str; 4] = ["/", "/usr", "/usr/include", "/usr/include/linux"];

/// Returns the file, the directories above it, and ten other files in each of these.
pub fn headers() -> Vec<File> {
    let mut files: Vec<_> = DIRECTORIES[1..]
        .iter()
        .map(|path| File::directory(*path))
        .collect();
    for dir in DIRECTORIES {
        let dir = dir.trim_end_matches('/');
        files.extend((0..10).map(|n| File::regular(format!("{dir}/other{n}.h"))));
    }
    files.push(File::regular(PATH));
    files
}

#[cfg(test)]
pub(crate) mod tests {
    use std::thread;

    use extern4_sync::primitive::{AtomicU64, Ordering};

    use extern4_vfs::Errno;

    use super::*;

    /// Checks the behaviour of a volume, which does not depend on its search check.
    pub(crate) fn walks_as_it_should(make: impl Fn(&[File]) -> Production) {
        let mut files = headers();
        files.push(File {
            uid: 1000,
            mode: 0o700,
            ..File::directory("/home")
        });
        files.push(File {
            mode: 0o700,
            ..File::directory("/root")
        });
        files.push(File {
            mode: 0o600,
            ..File::regular("/home/secret")
        });
        files.push(File::regular("/root/open"));
        let volume = make(&files);
        for path in [PATH, PATH_BY_NAME, "/usr/../usr/include/linux/fs.h"] {
            let attr = volume.stat(path).unwrap();
            assert_eq!(
                (attr.kind, attr.mode, attr.uid),
                (FileType::Regular, 0o644, 0),
                "{path}"
            );
            assert_eq!(attr.ino, volume.stat(PATH).unwrap().ino);
        }
        assert_eq!(volume.stat("/usr").unwrap().kind, FileType::Directory);
        assert_eq!(volume.stat("/home/secret").unwrap().mode, 0o600);
        let errors = [
            ("/usr/none", Errno::ENOENT),
            ("/usr/none/fs.h", Errno::ENOENT),
            ("/usr/include/linux/fs.h/x", Errno::ENOTDIR),
            ("/root/open", Errno::EACCES),
            ("/root/none", Errno::EACCES),
        ];
        for (path, errno) in errors {
            assert_eq!(volume.stat(path).unwrap_err(), errno, "{path}");
            assert_eq!(volume.open_and_close(path).unwrap_err(), errno, "{path}");
        }
        assert_eq!(volume.open_and_close(PATH), Ok(()));
        assert_eq!(volume.open_and_close("/home/secret"), Err(Errno::EACCES));
        let all = || ["/", "/usr", "/root"].map(|path| volume.directory(path));
        assert!(volume.may_search(&["/", "/usr"].map(|path| volume.directory(path))));
        assert!(!volume.may_search(&all()));
        volume.chmod("/root", 0o701);
        assert!(volume.may_search(&all()));
        assert!(
            volume.stat("/root/open").is_ok() && volume.stat("/root/none") == Err(Errno::ENOENT)
        );
        volume.chmod("/usr/include", 0o744);
        assert_eq!(volume.stat(PATH).unwrap_err(), Errno::EACCES);
        assert_eq!(volume.stat(PATH_BY_NAME).unwrap_err(), Errno::EACCES);
    }

    /// Checks that a call which begins after a change has returned is judged by the change. `set`
    /// lets the user pass `/usr`, or not.
    pub(crate) fn a_change_counts_at_once(volume: &Production, set: impl Fn(bool)) {
        const CHANGES: u64 = 2000;
        // The number of changes begun, that of changes ended, and that of answers between two
        // changes. While the first is odd, the user may not pass.
        let [begun, ended, answers] = &[const { AtomicU64::new(0) }; 3];
        let ask = || {
            let mut last = 0;
            while last < CHANGES {
                last = ended.load(Ordering::SeqCst);
                let passed = volume.stat(PATH_BY_NAME).is_ok();
                if begun.load(Ordering::SeqCst) == last {
                    assert_eq!(passed, last % 2 == 0, "after {last} changes");
                    answers.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        thread::scope(|scope| {
            let asking = [scope.spawn(ask), scope.spawn(ask)];
            for change in 1..=CHANGES {
                begun.store(change, Ordering::SeqCst);
                set(change % 2 == 0);
                ended.store(change, Ordering::SeqCst);
                let answered = answers.load(Ordering::SeqCst);
                // Wait for two answers now and then. A thread that found a fault has ended and
                // gives none.
                while change % 50 < 2
                    && answers.load(Ordering::SeqCst) < answered + 2
                    && !asking.iter().any(|asking| asking.is_finished())
                {
                    thread::yield_now();
                }
            }
        });
    }
}
