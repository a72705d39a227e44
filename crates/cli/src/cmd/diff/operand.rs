//! The operands of a comparison: which kind of tree or file each one is.
//!
//! `diff` calls it first. It opens what it recognises, and reports a failure at the operand. A path
//! that could mean several things is taken as the other operand suggests. Of a directory and a
//! file, the file of the same name in the directory is compared.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use extern4::diff::{Both, Error, Tree};
use extern4::tar::TarSource;

use super::Args;
use crate::app::{App, Shown, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::oci_image;
use crate::volume_tree::{at, path_below};

/// Where an ext volume has its magic number, and the number.
const MAGIC: (u64, [u8; 2]) = (1080, [0x53, 0xef]);

/// Two trees or two files.
pub(super) enum Operands {
    Trees(Box<Both<NamedTree>>),
    Files(Both<TextFile>),
}

/// A tree to compare.
pub(super) struct NamedTree {
    pub(super) tree: Tree,
    pub(super) operand: OsString,
    place: Place,
    form: Shown,
}

/// Where a tree is.
enum Place {
    Volume(Target),
    Directory,
    /// In an archive or an image of a container.
    Archive,
}

/// A file to compare.
pub(super) enum TextFile {
    Volume(Target),
    Host(PathBuf),
    /// Standard input.
    Input,
    /// A file that is not there, which counts as empty.
    Absent(OsString),
}

/// An operand. The kind of a file of the host may depend on the other operand.
enum Operand {
    Tree(NamedTree),
    File(TextFile),
    HostFile(PathBuf),
}

impl Operands {
    /// Finds out what two operands are. Reports a failure.
    pub(super) fn find(old: &OsStr, new: &OsStr, args: &Args, app: &mut App) -> Option<Self> {
        let operands = Both {
            old: operand(old, args, app)?,
            new: operand(new, args, app)?,
        };
        let is_certain = |operand: &Operand| matches!(operand, Operand::File(_));
        let Both {
            old: one,
            new: other,
        } = operands.as_ref();
        let below = match (one, other) {
            (Operand::Tree(tree), file) if tree.has_paths() && is_file(file, app) => {
                Some((tree.named_as(file, app)?, new.to_owned()))
            }
            (file, Operand::Tree(tree)) if tree.has_paths() && is_file(file, app) => {
                Some((old.to_owned(), tree.named_as(file, app)?))
            }
            _ => None,
        };
        if let Some((old, new)) = below {
            return Self::find(&old, &new, args, app);
        }
        if is_certain(one) || is_certain(other) || is_file(one, app) && is_file(other, app) {
            let old = file(operands.old, old, app)?;
            let new = file(operands.new, new, app)?;
            if let (TextFile::Absent(old), TextFile::Absent(new)) = (&old, &new) {
                [old, new].iter().for_each(|name| report_absent(name, app));
                return None;
            }
            return Some(Self::Files(Both { old, new }));
        }
        let old = tree(operands.old, old, app)?;
        let new = tree(operands.new, new, app)?;
        Some(Self::Trees(Box::new(Both { old, new })))
    }
}

/// Returns whether an operand is a file that is compared line by line, and no tree.
fn is_file(operand: &Operand, app: &App) -> bool {
    match operand {
        Operand::File(_) => true,
        Operand::HostFile(path) => !is_image(path, app) && !is_archive(path),
        Operand::Tree(_) => false,
    }
}

fn report_absent(name: &OsStr, app: &mut App) {
    app.fail_at(
        ExitStatus::Failed,
        name.display(),
        "No such file or directory",
    );
}

/// Returns what an operand is as far as it says alone. Reports a failure.
fn operand(text: &OsStr, args: &Args, app: &mut App) -> Option<Operand> {
    let path = Path::new(text);
    if text == "-" {
        return Some(Operand::File(TextFile::Input));
    }
    let absent = || Some(Operand::File(TextFile::Absent(text.to_owned())));
    let tree = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Tree::directory(path).map(|tree| (tree, Place::Directory)),
        Ok(_) => return Some(Operand::HostFile(path.to_owned())),
        Err(error) => match text.as_bytes().strip_prefix(b"oci:") {
            Some(image) => {
                let image = OsStr::from_bytes(image);
                let spool = std::env::temp_dir();
                let image = oci_image::open(image, args.platform.as_ref(), &spool, app.stop());
                let tree =
                    image.map(|image| (Tree::source(image).whole_seconds(true), Place::Archive));
                tree.map_err(Error::from)
            }
            None if ImagePath::is_one(text) => return in_volume(text, args, app),
            None if args.gnu.new_file && error.kind() == io::ErrorKind::NotFound => {
                return absent();
            }
            None => {
                app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
                return None;
            }
        },
    };
    let (tree, place) = tree
        .map_err(|error| app.fail(ExitStatus::Failed, error))
        .ok()?;
    Some(Operand::Tree(NamedTree {
        tree,
        operand: text.to_owned(),
        place,
        form: app.shown(),
    }))
}

fn in_volume(text: &OsStr, args: &Args, app: &mut App) -> Option<Operand> {
    let target = app.target(&ImagePath::parse(text))?;
    match target
        .volume
        .reach(target.path(), |session, path| session.metadata(path))
    {
        Ok(found) if found.is_dir() => NamedTree::in_volume(text, target, app).map(Operand::Tree),
        Ok(_) => Some(Operand::File(TextFile::Volume(target))),
        Err(error) if args.gnu.new_file && error.errno() == extern4::Errno::ENOENT => {
            Some(Operand::File(TextFile::Absent(text.to_owned())))
        }
        Err(error) => {
            app.error(&target.image_path, &error);
            None
        }
    }
}

/// Takes an operand as a file. Reports a tree.
fn file(operand: Operand, name: &OsStr, app: &mut App) -> Option<TextFile> {
    match operand {
        Operand::File(file) => Some(file),
        Operand::HostFile(path) => Some(TextFile::Host(path)),
        Operand::Tree(_) => {
            let reason = "this is a tree, and the other operand is a file";
            app.fail_at(ExitStatus::Failed, name.display(), reason);
            None
        }
    }
}

/// Opens an operand that has to be a tree. Reports a failure.
fn tree(operand: Operand, name: &OsStr, app: &mut App) -> Option<NamedTree> {
    match operand {
        Operand::Tree(tree) => Some(tree),
        Operand::HostFile(path) if !is_image(&path, app) && is_archive(&path) => {
            let source = TarSource::open(&path, std::env::temp_dir());
            let source = source
                .map_err(|error| app.fail(ExitStatus::Failed, error))
                .ok()?;
            let tree = Tree::source(source).whole_seconds(true);
            Some(NamedTree {
                tree,
                operand: name.to_owned(),
                place: Place::Archive,
                form: app.shown(),
            })
        }
        // If it is no volume, its opening says why.
        Operand::File(_) | Operand::HostFile(_) => {
            let target = app.target(&ImagePath::parse(name))?;
            NamedTree::in_volume(name, target, app)
        }
    }
}

/// Returns whether a file of the host has the mark of a volume.
fn is_image(path: &Path, app: &App) -> bool {
    let mut magic = [0; 2];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, MAGIC.0));
    app.opening().superblock.is_some() || read.is_ok() && magic == MAGIC.1
}

fn is_archive(path: &Path) -> bool {
    let file = File::open(path);
    file.and_then(|file| TarSource::is_archive(&file))
        .unwrap_or(false)
}

impl NamedTree {
    /// Takes a directory in a volume. Reports a failure.
    fn in_volume(operand: &OsStr, target: Target, app: &mut App) -> Option<Self> {
        let top = at(target.session(), target.path().as_os_str().as_bytes());
        let top = top
            .map_err(|error| app.error(&target.image_path, &error))
            .ok()?;
        let tree = Tree::volume(&target.volume.volume, top);
        let place = Place::Volume(target);
        Some(Self {
            tree,
            operand: operand.to_owned(),
            place,
            form: app.shown(),
        })
    }

    /// Returns whether an operand can name a file in the tree.
    fn has_paths(&self) -> bool {
        !matches!(self.place, Place::Archive)
    }

    /// Returns the operand for the file in the tree that has the name of another file. Reports
    /// standard input, which has none.
    fn named_as(&self, file: &Operand, app: &mut App) -> Option<OsString> {
        let path = match file {
            Operand::File(TextFile::Volume(target)) => target.path(),
            Operand::File(TextFile::Absent(path)) => Path::new(path),
            Operand::HostFile(path) | Operand::File(TextFile::Host(path)) => path,
            Operand::File(TextFile::Input) | Operand::Tree(_) => Path::new(""),
        };
        let Some(name) = path.file_name() else {
            app.fail_at(
                ExitStatus::Failed,
                self.operand.display(),
                "standard input has no name in a directory",
            );
            return None;
        };
        Some(OsString::from_vec(self.path(name.as_bytes())))
    }

    /// Returns the path of a file of the tree as the output shows it.
    pub(super) fn shown(&self, path: &[u8]) -> Vec<u8> {
        match &self.place {
            _ if !self.form.is_complete() => self.path(path),
            Place::Volume(target) => self
                .form
                .path(&target.image_path.image, &path_below(target.path(), path)),
            Place::Directory | Place::Archive => self.form.text(&self.path(path)).into_owned(),
        }
    }

    /// Returns the path of a file of the tree behind the operand.
    fn path(&self, path: &[u8]) -> Vec<u8> {
        let operand = self.operand.as_bytes();
        match &self.place {
            Place::Volume(target) => {
                let path = path_below(target.path(), path);
                [
                    target.image_path.image.to_string().as_bytes(),
                    b":",
                    path.as_os_str().as_bytes(),
                ]
                .concat()
            }
            _ if path.is_empty() => operand.to_vec(),
            Place::Directory if operand.ends_with(b"/") => [operand, path].concat(),
            Place::Directory => [operand, b"/", path].concat(),
            Place::Archive => [operand, b":/", path].concat(),
        }
    }

    /// Returns the line about a file that only this tree has.
    pub(super) fn only(&self, path: &[u8]) -> Vec<u8> {
        let name = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        let directory = self.shown(&path[..name.saturating_sub(1)]);
        let name = if self.form.is_complete() {
            self.shown(path)
        } else {
            path[name..].to_vec()
        };
        [b"Only in ", &directory[..], b": ", &name].concat()
    }

    /// Reports a file of the tree that cannot be compared.
    pub(super) fn report(&self, path: &[u8], error: &Error, app: &mut App) {
        match (error, &self.place) {
            (Error::Volume(error), Place::Volume(target)) => {
                app.error(
                    target.volume.image_path(&path_below(target.path(), path)),
                    error,
                );
            }
            (error, _) => app.fail(ExitStatus::Failed, error),
        }
    }
}

impl TextFile {
    /// Returns the name of the file as the output shows it.
    pub(super) fn name(&self) -> Vec<u8> {
        match self {
            Self::Volume(target) => target.image_path.to_string().into_bytes(),
            Self::Host(path) => path.as_os_str().as_bytes().to_vec(),
            Self::Input => b"-".to_vec(),
            Self::Absent(name) => name.as_bytes().to_vec(),
        }
    }
}
