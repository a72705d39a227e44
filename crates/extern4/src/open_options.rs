//! How to open a file, with the names and rules of `std::fs::OpenOptions`.
//!
//! Options that make no sense together fail with `EINVAL` before anything is opened or made.

use extern4_vfs::OpenFlags;

/// The options with which [`Session::open_with`](crate::Session::open_with) opens a file. Names and
/// rules are the rules of `std::fs::OpenOptions`.
///
/// ```
/// use std::io::Write;
///
/// use extern4::{File, Volume};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let dir = tempfile::tempdir()?;
///     let session = Volume::create_new(dir.path().join("disk.img"), 16 << 20)?.superuser();
///     for line in ["one\n", "two\n"] {
///         let mut log = session.open_with("/log", File::options().append(true).create(true))?;
///         log.write_all(line.as_bytes())?;
///     }
///     assert_eq!(session.read_to_string("/log")?, "one\ntwo\n");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    pub(crate) mode: u32,
    custom: OpenFlags,
}

impl OpenOptions {
    /// Returns options that are all unset. At least one of [`read`](Self::read),
    /// [`write`](Self::write) and [`append`](Self::append) has to follow.
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom: OpenFlags::empty(),
        }
    }

    /// Sets whether the file can be read.
    pub const fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// Sets whether the file can be written. A write goes over existing contents.
    pub const fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Sets whether the file can be written at its end, wherever the position is.
    pub const fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// Sets whether the open empties an existing file. The file must also be opened for
    /// [writing](Self::write).
    pub const fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Sets whether the open makes a missing file. The file must also be opened to
    /// [write](Self::write) or to [append](Self::append).
    pub const fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Sets whether the open makes the file, and fails with `EEXIST` if there is one, or a symbolic
    /// link. [`create`](Self::create) and [`truncate`](Self::truncate) then have no effect. The
    /// file must also be opened to [write](Self::write) or to [append](Self::append).
    pub const fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Sets the mode of a file that the open makes; the session's umask takes bits away. The
    /// default is 0666.
    pub const fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Sets further flags of `open(2)`, such as [`OpenFlags::NOFOLLOW`]; a later call replaces
    /// them. [`OpenFlags::READ`] and [`OpenFlags::WRITE`] have no effect here.
    pub const fn custom_flags(&mut self, flags: OpenFlags) -> &mut Self {
        self.custom = flags;
        self
    }

    /// Returns the flags of `open(2)`, or why these options make no sense together.
    pub(crate) fn flags(&self) -> Result<OpenFlags, &'static str> {
        let writes = self.write || self.append;
        if !self.read && !writes {
            return Err("the file is opened neither to read, to write nor to append");
        }
        if !writes && (self.truncate || self.create || self.create_new) {
            return Err("to create or truncate a file, open it to write or to append");
        }
        if self.append && self.truncate && !self.create_new {
            return Err("a file is not truncated to append to it");
        }
        let mut flags = self.custom.difference(OpenFlags::READ | OpenFlags::WRITE);
        if flags.contains(OpenFlags::PATH) {
            // Linux ignores all other flags, too.
            return Ok(flags & (OpenFlags::PATH | OpenFlags::NOFOLLOW | OpenFlags::DIRECTORY));
        }
        let mut add = |flag, is_set| flags |= if is_set { flag } else { OpenFlags::empty() };
        add(OpenFlags::READ, self.read);
        add(OpenFlags::WRITE, writes);
        add(OpenFlags::APPEND, self.append);
        add(OpenFlags::CREATE, self.create || self.create_new);
        add(OpenFlags::EXCL, self.create_new);
        add(OpenFlags::TRUNC, self.truncate && !self.create_new);
        Ok(flags)
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}
