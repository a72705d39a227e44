//! The operands of a comparison: which kind of tree or file each one is.
//!
//! `diff` calls it first. It opens what it recognises, and reports a failure at the operand. A path
//! that could mean several things is taken as the other operand suggests.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use extern4::diff::{Both, Error, Tree};
use extern4_tree::{DirectorySource, Platform, TarSource};

use crate::app::{App, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::oci_image;
use crate::volume_tree::{at, path_below};

/// Where an ext volume has its magic number, and the number.
const MAGIC: (u64, [u8; 2]) = (1080, [0x53, 0xef]);

/// Two trees or two files.
pub(super) enum Operands {
    Trees(Both<NamedTree>),
    Files(Both<TextFile>),
}

/// A tree to compare.
pub(super) struct NamedTree {
    pub(super) tree: Tree,
    name: TreeName,
}

/// The name of a tree in the output.
enum TreeName {
    Volume(Target),
    /// A directory of the host, as the operand names it.
    Directory(Vec<u8>),
    /// An archive or an image of a container.
    Archive(Vec<u8>),
}

/// A file to compare.
pub(super) enum TextFile {
    Volume(Target),
    Host(PathBuf),
}

/// An operand. The kind of a file of the host may depend on the other operand.
enum Operand {
    Tree(NamedTree),
    FileInVolume(Target),
    HostFile(PathBuf),
}

impl Operands {
    /// Finds out what two operands are. Reports a failure.
    pub(super) fn find(old: &OsStr, new: &OsStr, platform: Option<&Platform>, app: &mut App) -> Option<Self> {
        let names = Both { old, new };
        let operands = Both { old: operand(old, platform, app)?, new: operand(new, platform, app)? };
        let is_file = |operand: &Operand| matches!(operand, Operand::FileInVolume(_));
        let is_text = |operand: &Operand| match operand {
            Operand::HostFile(path) => !is_image(path, app) && !is_archive(path),
            _ => false,
        };
        let Both { old, new } = operands.as_ref();
        if is_file(old) || is_file(new) || is_text(old) && is_text(new) {
            let file = |operand, name: &OsStr, app: &mut App| match operand {
                Operand::FileInVolume(target) => Some(TextFile::Volume(target)),
                Operand::HostFile(path) => Some(TextFile::Host(path)),
                Operand::Tree(_) => {
                    let reason = "this is a tree, and the other operand is a file";
                    app.fail_at(ExitStatus::Failed, name.display(), reason);
                    None
                }
            };
            let (old, new) = (file(operands.old, names.old, app)?, file(operands.new, names.new, app)?);
            return Some(Self::Files(Both { old, new }));
        }
        let (old, new) = (tree(operands.old, names.old, app)?, tree(operands.new, names.new, app)?);
        Some(Self::Trees(Both { old, new }))
    }
}

/// Returns what an operand is as far as it says alone. Reports a failure.
fn operand(text: &OsStr, platform: Option<&Platform>, app: &mut App) -> Option<Operand> {
    let path = Path::new(text);
    let failed = |error: extern4_tree::Error, app: &mut App| app.fail(ExitStatus::Failed, error);
    let name = || text.as_bytes().to_vec();
    let source = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let tree = DirectorySource::new(path).map(Tree::source);
            tree.map(|tree| NamedTree { tree, name: TreeName::Directory(name()) })
        }
        Ok(_) => return Some(Operand::HostFile(path.to_owned())),
        Err(error) => match text.as_bytes().strip_prefix(b"oci:") {
            Some(image) => {
                let image =
                    oci_image::open(OsStr::from_bytes(image), platform, &std::env::temp_dir(), app.stop());
                image.map(|image| NamedTree::archive(Tree::source(image), name()))
            }
            None if ImagePath::is_one(text) => return in_volume(text, app),
            None => {
                app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
                return None;
            }
        },
    };
    source.map(Operand::Tree).map_err(|error| failed(error, app)).ok()
}

fn in_volume(text: &OsStr, app: &mut App) -> Option<Operand> {
    let target = app.target(&ImagePath::parse(text))?;
    match target.volume.reach(target.path(), |session, path| session.metadata(path)) {
        Ok(found) if found.is_dir() => NamedTree::in_volume(target, app).map(Operand::Tree),
        Ok(_) => Some(Operand::FileInVolume(target)),
        Err(error) => {
            app.error(&target.image_path, &error);
            None
        }
    }
}

/// Opens an operand that has to be a tree. Reports a failure.
fn tree(operand: Operand, name: &OsStr, app: &mut App) -> Option<NamedTree> {
    match operand {
        Operand::Tree(tree) => Some(tree),
        Operand::FileInVolume(target) => NamedTree::in_volume(target, app),
        Operand::HostFile(path) if !is_image(&path, app) && is_archive(&path) => {
            match TarSource::open(&path, std::env::temp_dir()) {
                Ok(source) => Some(NamedTree::archive(Tree::source(source), name.as_bytes().to_vec())),
                Err(error) => {
                    app.fail(ExitStatus::Failed, error);
                    None
                }
            }
        }
        // If it is no volume, its opening says why.
        Operand::HostFile(_) => {
            let target = app.target(&ImagePath::parse(name))?;
            NamedTree::in_volume(target, app)
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
    file.and_then(|file| TarSource::is_archive(&file)).unwrap_or(false)
}

impl NamedTree {
    /// Takes a directory in a volume. Reports a failure.
    fn in_volume(target: Target, app: &mut App) -> Option<Self> {
        let top = at(target.session(), target.path().as_os_str().as_bytes());
        let top = top.map_err(|error| app.error(&target.image_path, &error)).ok()?;
        let tree = Tree::volume(&target.volume.volume, top);
        Some(Self { tree, name: TreeName::Volume(target) })
    }

    /// Takes an archive, whose times may lack their fraction of a second.
    fn archive(tree: Tree, name: Vec<u8>) -> Self {
        Self { tree: tree.whole_seconds(true), name: TreeName::Archive(name) }
    }

    /// Returns the path of a file of the tree as the output shows it.
    pub(super) fn shown(&self, path: &[u8]) -> Vec<u8> {
        match &self.name {
            TreeName::Volume(target) => {
                let path = path_below(target.path(), path);
                [target.image_path.image.to_string().as_bytes(), b":", path.as_os_str().as_bytes()].concat()
            }
            TreeName::Directory(name) | TreeName::Archive(name) if path.is_empty() => name.clone(),
            TreeName::Directory(name) if name.ends_with(b"/") => [name, path].concat(),
            TreeName::Directory(name) => [name, &b"/"[..], path].concat(),
            TreeName::Archive(name) => [name, &b":"[..], path].concat(),
        }
    }

    /// Reports a file of the tree that cannot be compared.
    pub(super) fn report(&self, path: &[u8], error: &Error, app: &mut App) {
        match (error, &self.name) {
            (Error::Volume(error), TreeName::Volume(target)) => {
                app.error(target.volume.image_path(&path_below(target.path(), path)), error);
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
        }
    }
}
