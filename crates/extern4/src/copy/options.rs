//! The options of a copy, and the attributes that a copy gets by them.
//!
//! Both directions of a copy read them. The command makes them from its arguments; a program sets
//! the fields.

use extern4_vfs::{FileType, Timespec};

use super::failure::Refusal;

/// The options of a copy. The default is that of `cp -a`: whole trees with everything about their
/// files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// Directories are copied with everything below them, and special files as such. Otherwise a
    /// directory is refused, a special file of the host is read, and one of a volume is refused:
    /// it has no contents.
    pub recursive: bool,
    /// Special files are copied with directories: devices, pipes and sockets. Otherwise they are
    /// refused.
    pub special_files: bool,
    /// The attributes that copies keep.
    pub preserve: Preserve,
    /// The owner that copies get in place of that of the original.
    pub uid: Option<u32>,
    /// The group that copies get in place of that of the original.
    pub gid: Option<u32>,
    /// The symbolic links that are followed.
    pub follow: Follow,
    /// The way to copy holes.
    pub sparse: Sparse,
    /// The way in which copies are made.
    pub method: CopyMethod,
    /// The destination is the new name, even if it is a directory. Otherwise the copy goes into
    /// a directory that is there, under its own name.
    pub no_target_directory: bool,
    /// The whole path of the source is made below the destination, which is a directory.
    pub parents: bool,
    /// Attributes are copied, and no contents.
    pub attributes_only: bool,
    /// The copy stays on the file system of a source of the host. A volume is one.
    pub one_file_system: bool,
    /// The permission bits that new files on the host do not get, unless modes are kept. In a
    /// volume, the session has the umask.
    pub umask: u32,
    /// An empty `lost+found` of a volume is left out, and devices that only root could make on the
    /// host.
    pub exports: bool,
    /// A file that is named as the destination and cannot be opened is replaced.
    pub force: bool,
    /// Each file that is there is removed first.
    pub remove_destination: bool,
    /// The observer decides whether a file that is there is replaced.
    pub asks: bool,
    /// A file that is there is renamed to the name that the observer gives it.
    pub sets_aside: bool,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            recursive: true,
            special_files: true,
            preserve: Preserve::ALL,
            uid: None,
            gid: None,
            follow: Follow::Never,
            sparse: Sparse::Auto,
            method: CopyMethod::Copy,
            no_target_directory: false,
            parents: false,
            attributes_only: false,
            one_file_system: false,
            umask: 0o022,
            exports: false,
            force: false,
            remove_destination: false,
            asks: false,
            sets_aside: false,
        }
    }
}

/// The attributes that copies keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Modes and ACLs.
    pub mode: bool,
    /// Owners and groups.
    pub ownership: bool,
    /// Times of the last reading and of the last change.
    pub timestamps: bool,
    /// Hard links among the copies.
    pub links: bool,
    /// Keep extended attributes.
    pub xattr: bool,
    /// New files get modes as if they had no originals. It has no effect where modes are kept.
    pub new_modes: bool,
}

impl Preserve {
    /// Everything.
    pub const ALL: Self = Self {
        mode: true,
        ownership: true,
        timestamps: true,
        links: true,
        xattr: true,
        new_modes: false,
    };

    /// Returns whether attributes apart from links are kept.
    pub(super) fn has_any(self) -> bool {
        self.mode || self.ownership || self.timestamps || self.xattr
    }

    /// Returns the mode that a new file starts with: its own if no later step changes it, else the
    /// owner's bits.
    pub(super) fn first_mode(self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        match (self.mode, self.new_modes) {
            (true, _) => mode & 0o700,
            (false, false) => mode & 0o777 & !umask,
            (false, true) if is_directory => 0o777 & !umask,
            (false, true) => 0o666 & !umask,
        }
    }
}

/// The symbolic links that a copy follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// None: links are copied as such.
    #[default]
    Never,
    /// Only the source itself.
    Named,
    /// All.
    Always,
}

/// The ways to copy holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sparse {
    /// Holes stay holes.
    #[default]
    Auto,
    /// Zeroes become holes.
    Always,
    /// Holes become zeroes.
    Never,
}

/// The ways in which a copy is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMethod {
    /// Its contents are copied.
    #[default]
    Copy,
    /// It is a hard link. The source is in the volume that is written, and its path is one of the
    /// session that writes.
    HardLink,
    /// It is a symbolic link with the path of the source, which is in the volume that is written.
    Symlink,
}

/// The attributes that a copy gets; `None` for attributes that are not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewAttributes {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mode: Option<u32>,
    pub(super) times: Option<(Timespec, Timespec)>,
}

/// The attributes of an original.
#[derive(Clone, Copy)]
pub(super) struct OldAttributes {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
    pub(super) times: (Timespec, Timespec),
}

impl CopyOptions {
    /// Returns the reason why a file of a volume, of this kind, gets no copy: it has no contents.
    pub(super) fn refusal(&self, kind: FileType) -> Option<Refusal> {
        match kind {
            FileType::Regular | FileType::Symlink => None,
            FileType::Directory => (!self.recursive).then_some(Refusal::IsDirectory),
            _ => (!self.recursive || !self.special_files).then_some(Refusal::Special),
        }
    }

    /// Returns the attributes of the copy of an original with these.
    pub(super) fn new_attributes(&self, old: OldAttributes) -> NewAttributes {
        let preserve = self.preserve;
        NewAttributes {
            uid: self.uid.or(preserve.ownership.then_some(old.uid)),
            gid: self.gid.or(preserve.ownership.then_some(old.gid)),
            mode: preserve.mode.then_some(old.mode & 0o7777),
            times: preserve.timestamps.then_some(old.times),
        }
    }

    /// Returns whether copies get attributes after they are made.
    pub(super) fn sets_attributes(&self) -> bool {
        self.preserve.has_any() || self.uid.is_some() || self.gid.is_some()
    }
}
