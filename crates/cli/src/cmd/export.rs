//! `extern4 export`: writes a tree of a volume to a tar archive.

use std::collections::HashMap;
use std::fs::File as HostFile;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use extern4::{DirEntry, File, FileType, Metadata, Session};
use extern4_build::NewFile;
use extern4_tree::{Contents, Data, Entry, Kind, Piece, TarWriter, Time};

use crate::app::{App, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;

/// The directory for files that a check finds without a name.
const LOST_FOUND: &str = "lost+found";
/// Bytes that go to the archive by one call.
const BUFFER_BYTES: usize = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to write; the whole volume if an image is named alone
    #[arg(value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// The archive to make, or - for standard output. It is compressed if its name ends in .zst or
    /// .tzst
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Compress with zstd, whatever the name says
    #[arg(long)]
    zstd: bool,
    /// Replace a file that is there
    #[arg(short = 'F', long)]
    force: bool,
}

/// Why the export ended.
enum Failure {
    Volume(extern4::Error),
    Archive(String),
}

impl From<extern4::Error> for Failure {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Archive(host_reason(&error))
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(target) = app.target(&args.image_path) else { return Ok(()) };
    match export(args, &target) {
        Ok(sockets) => {
            for path in sockets {
                app.note_at(target.volume.image_path(&path), "an archive cannot have sockets; left out");
            }
        }
        Err(Failure::Volume(error)) => {
            let path = error.path().unwrap_or(target.path()).to_owned();
            app.error(target.volume.image_path(&path), &error);
        }
        Err(Failure::Archive(reason)) => app.fail_at(ExitStatus::Failed, args.output.display(), reason),
    }
    Ok(())
}

/// Writes the archive; gives the paths of sockets, which are left out.
fn export(args: &Args, target: &Target) -> Result<Vec<PathBuf>, Failure> {
    let is_compressed =
        args.zstd || args.output.extension().is_some_and(|name| name == "zst" || name == "tzst");
    if args.output.as_os_str() == "-" {
        let out = HostFile::from(rustix::io::dup(io::stdout()).map_err(io::Error::from)?);
        return write(out, is_compressed, target);
    }
    if !args.force && args.output.symlink_metadata().is_ok() {
        return Err(Failure::Archive("File exists (--force replaces it)".to_owned()));
    }
    let file = NewFile::new(&args.output)?;
    let sockets = write(file.file(), is_compressed, target)?;
    file.file().sync_all()?;
    file.finish(&args.output, args.force)?;
    Ok(sockets)
}

fn write(out: impl Write, is_compressed: bool, target: &Target) -> Result<Vec<PathBuf>, Failure> {
    let mut export = Export::new(out, is_compressed)?;
    export.tree(target)?;
    export.archive.finish()?;
    Ok(export.sockets)
}

/// An archive that is being written.
struct Export<W: Write> {
    archive: TarWriter<BufWriter<W>>,
    /// The first path of each file with several names.
    seen: HashMap<u64, Vec<u8>>,
    sockets: Vec<PathBuf>,
}

impl<W: Write> Export<W> {
    fn new(out: W, is_compressed: bool) -> io::Result<Self> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, out);
        let archive = if is_compressed { TarWriter::zstd(out, 0)? } else { TarWriter::new(out) };
        Ok(Self { archive, seen: HashMap::new(), sockets: Vec::new() })
    }

    /// Writes everything below a directory, each directory's names in the order of their bytes.
    fn tree(&mut self, target: &Target) -> Result<(), Failure> {
        let top = target.session().at(target.path())?;
        self.member(&top, Path::new("."), Vec::new(), target.path())?;
        let mut entries = sorted(&top)?;
        if target.path() == Path::new("/") && is_empty(&top, LOST_FOUND)? {
            // Every volume has its own.
            entries.retain(|entry| entry.file_name() != LOST_FOUND);
        }
        let mut levels = vec![(top, Vec::new(), entries)];
        while let Some((session, path, entries)) = levels.last_mut() {
            let Some(entry) = entries.pop() else {
                levels.pop();
                continue;
            };
            let name = entry.file_name();
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name.as_bytes());
            let shown = target.path().join(std::ffi::OsString::from_vec(below.clone()));
            let session = session.clone();
            if self.member(&session, Path::new(name), below.clone(), &shown)? {
                let inside = session.at(name)?;
                let entries = sorted(&inside)?;
                levels.push((inside, below, entries));
            }
        }
        Ok(())
    }

    /// Writes one member. Says whether it is a directory.
    fn member(
        &mut self,
        session: &Session,
        name: &Path,
        path: Vec<u8>,
        shown: &Path,
    ) -> Result<bool, Failure> {
        let metadata = session.symlink_metadata(name)?;
        let is_directory = metadata.is_dir();
        if !is_directory && metadata.nlink() > 1 {
            if let Some(first) = self.seen.get(&metadata.ino()) {
                let entry =
                    Entry { xattrs: Vec::new(), ..entry(Kind::HardLink(first.clone()), path, &metadata) };
                self.append(&entry, None, shown)?;
                return Ok(false);
            }
            self.seen.insert(metadata.ino(), path.clone());
        }
        let mut file = None;
        let kind = match metadata.file_type() {
            FileType::Directory => Kind::Directory,
            FileType::Regular => {
                let opened = file.insert(session.open(name)?);
                Kind::File(contents(opened, metadata.len())?)
            }
            FileType::Symlink => Kind::Symlink(session.read_link(name)?.into_os_string().into_vec()),
            FileType::CharDevice => {
                Kind::CharDevice { major: metadata.rdev().major, minor: metadata.rdev().minor }
            }
            FileType::BlockDevice => {
                Kind::BlockDevice { major: metadata.rdev().major, minor: metadata.rdev().minor }
            }
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        };
        let mut entry = entry(kind, path, &metadata);
        for attribute in session.llistxattr(name)? {
            if let Some(value) = session.lgetxattr(name, &attribute)? {
                entry.xattrs.push((attribute.into_vec(), value));
            }
        }
        entry.xattrs.sort();
        self.append(&entry, file.as_ref(), shown)?;
        Ok(is_directory)
    }

    fn append(&mut self, entry: &Entry, file: Option<&File>, shown: &Path) -> Result<(), Failure> {
        let mut failed = None;
        let mut read = |offset: u64, buf: &mut [u8]| {
            let Some(file) = file else { return Ok(()) };
            read_exact(file, buf, offset).map_err(|error| {
                failed = Some(error);
                io::Error::other("the volume cannot be read")
            })
        };
        let done = self.archive.append(entry, &mut read);
        if let Some(error) = failed {
            return Err(error.into());
        }
        match done {
            Ok(true) => {}
            Ok(false) => self.sockets.push(shown.to_owned()),
            Err(extern4_tree::Error::Io { source, .. }) => return Err(source.into()),
            Err(error) => return Err(Failure::Archive(error.to_string())),
        }
        Ok(())
    }
}

fn entry(kind: Kind, path: Vec<u8>, metadata: &Metadata) -> Entry {
    let mtime = metadata.mtime();
    Entry {
        path,
        kind,
        mode: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: Time { secs: mtime.sec, nanos: mtime.nsec },
        xattrs: Vec::new(),
    }
}

/// Whether there is a directory with this name, and nothing is in it.
fn is_empty(session: &Session, name: &str) -> extern4::Result<bool> {
    let is_directory = session.exists(name)? && session.symlink_metadata(name)?.is_dir();
    Ok(is_directory && session.read_dir(name)?.next().is_none())
}

/// The names in a directory, the last first.
fn sorted(session: &Session) -> extern4::Result<Vec<DirEntry>> {
    let mut entries = session.read_dir(".")?.collect::<extern4::Result<Vec<_>>>()?;
    entries.sort_unstable_by(|a, b| b.file_name().cmp(a.file_name()));
    Ok(entries)
}

/// Where a file has data.
fn contents(file: &File, size: u64) -> extern4::Result<Contents> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < size
        && let Some(offset) = file.seek_data(at)?
    {
        at = file.seek_hole(offset)?.unwrap_or(size).min(size);
        pieces.push(Piece { offset, len: at - offset, position: offset });
    }
    let is_whole = match pieces[..] {
        [] => size == 0,
        [piece] => piece.offset == 0 && piece.len == size,
        _ => false,
    };
    let data = if is_whole { Data::Stored { position: 0 } } else { Data::Pieces(pieces.into()) };
    Ok(Contents { size, data })
}

fn read_exact(file: &File, mut buf: &mut [u8], mut offset: u64) -> extern4::Result<()> {
    while !buf.is_empty() {
        let done = file.read_at(buf, offset)?;
        if done == 0 {
            // The file became shorter: an archive that is being written can only be filled up.
            buf.fill(0);
            return Ok(());
        }
        buf = &mut buf[done..];
        offset += done as u64;
    }
    Ok(())
}
