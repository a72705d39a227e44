//! [`Spool`]: a temporary file without a name, for contents that can be read only once.
//!
//! `tar` writes the contents of a compressed or piped archive to it during the scan; `stores` reads
//! them later. The file is in the directory that the user chose, and is gone when it is closed,
//! also after a crash. Where the file system has no nameless files, the name is removed right after
//! the file is made.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// How many names are tried if the file system has no files without a name.
const TRIES: u32 = 100;

/// A temporary file without a name.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Arc<File>,
    len: u64,
}

impl Spool {
    /// Makes the file in a directory.
    pub(crate) fn new(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            // NFS, overlayfs before Linux 6.3, and others.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => unlinked(directory)?,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            file: Arc::new(file),
            len: 0,
        })
    }

    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&*self.file).write(bytes)?;
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a file with a name, and removes the name.
fn unlinked(directory: &Path) -> io::Result<File> {
    for number in 0..TRIES {
        let path = directory.join(format!(".extern4-{}-{number}", std::process::id()));
        match File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
        {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_spool_leaves_no_name() {
        let dir = tempfile::tempdir().unwrap();
        for make in [
            |dir: &Path| Spool::new(dir),
            |dir: &Path| {
                Ok(Spool {
                    file: Arc::new(unlinked(dir)?),
                    len: 0,
                })
            },
        ] {
            let mut spool = make(dir.path()).unwrap();
            spool.write_all(b"contents").unwrap();
            let mut back = [0; 8];
            spool.file().read_exact_at(&mut back, 0).unwrap();
            assert_eq!((&back, spool.len()), (b"contents", 8));
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
