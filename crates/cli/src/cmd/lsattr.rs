//! `extern4 lsattr`: shows the attributes that `chattr` changes.
//!
//! `args` calls [`run`]. Letters and names are lsattr(1)'s (`file_flags`).

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{FileType, Metadata};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, Shown, Target};
use crate::exit_status::ExitStatus;
use crate::file_flags::{letters, names, set};
use crate::json::{self, FileName};
use crate::output::{Out, flush};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files, and directories whose files are listed
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// List everything below directories
    #[arg(short = 'R')]
    recursive: bool,
    /// List files whose names start with a dot, '.' and '..' too
    #[arg(short = 'a')]
    all: bool,
    /// List directories themselves
    #[arg(short = 'd')]
    directory: bool,
    /// Print names of attributes instead of letters
    #[arg(short = 'l')]
    long: bool,
    /// Print the number of the project
    #[arg(short = 'p')]
    project: bool,
    /// Print the number of the generation
    #[arg(short = 'v')]
    generation: bool,
    /// Write one JSON object a line for each file
    #[arg(long)]
    json: bool,
}

/// A file.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Line {
    #[serde(flatten)]
    file: FileName,
    /// The bits of FS_IOC_GETFLAGS.
    flags: u32,
    /// The flags as letters, as lsattr(1) writes them.
    letters: String,
    /// The names of the flags that are set.
    flag_names: Vec<&'static str>,
    /// The project.
    project: u32,
    /// The generation of the inode.
    generation: u32,
}

/// A run of the command in one volume.
struct Listing<'a> {
    args: &'a Args,
    target: &'a Target,
    shown: Shown,
    out: &'a mut Out,
    app: &'a mut App,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image_paths: Vec<_> = args
        .image_paths
        .iter()
        .map(|text| app.image_path(text))
        .collect();
    let shown = app.shown_for(&image_paths);
    let mut out = app.out(shown.is_complete());
    for image_path in &image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let found = match target.session().symlink_metadata(target.path()) {
            Ok(found) => found,
            Err(error) => {
                flush(&mut out)?;
                app.error(image_path, &error);
                continue;
            }
        };
        let mut listing = Listing {
            args,
            target: &target,
            shown,
            out: &mut out,
            app,
        };
        match found.file_type() {
            FileType::Directory if !args.directory => listing.directory(target.path())?,
            FileType::Directory | FileType::Regular => listing.line(target.path(), &found)?,
            _ => {
                flush(&mut out)?;
                app.fail_at(
                    ExitStatus::Failed,
                    image_path,
                    "only files and directories have attributes",
                );
            }
        }
    }
    app.end_output(&mut out)
}

impl Listing<'_> {
    /// Lists the files in a directory, and with `-R` below each directory what is in it.
    fn directory(&mut self, top: &Path) -> io::Result<()> {
        let mut levels = vec![self.entries(top)?.into_iter()];
        // A directory has one parent: one that occurs twice is a loop of a corrupt volume.
        let mut seen = HashSet::new();
        while let Some(level) = levels.last_mut() {
            let Some((path, found)) = level.next() else {
                levels.pop();
                if !levels.is_empty() && !self.args.json {
                    self.out.write_all(b"\n")?;
                }
                continue;
            };
            self.line(&path, &found)?;
            let is_dots = matches!(
                path.as_os_str().as_bytes(),
                [.., b'/', b'.'] | [.., b'/', b'.', b'.']
            );
            if !self.args.recursive || !found.is_dir() || is_dots {
                continue;
            }
            if !seen.insert(found.ino()) {
                let path = self.target.volume.image_path(&path);
                flush(self.out)?;
                self.app.fail_at(
                    ExitStatus::Corrupt,
                    path,
                    "directory is in another place too",
                );
                continue;
            }
            if !self.args.json {
                let name = self.shown.path(&self.target.image_path.image, &path);
                self.out.write_all(&[b"\n", &name[..], b":\n"].concat())?;
            }
            levels.push(self.entries(&path)?.into_iter());
        }
        Ok(())
    }

    /// Returns the files and directories in a directory. Reports a failure.
    fn entries(&mut self, path: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
        let read = || {
            let mut entries = Vec::new();
            for dots in [".", ".."].into_iter().filter(|_| self.args.all) {
                let path = path.join(dots);
                let found = self
                    .target
                    .volume
                    .reach(&path, |session, path| session.metadata(path))?;
                entries.push((path, found));
            }
            for entry in self
                .target
                .volume
                .reach(path, |session, path| session.read_dir(path))?
            {
                let entry = entry?;
                let is_shown = self.args.all || !entry.file_name().as_bytes().starts_with(b".");
                if is_shown && matches!(entry.file_type()?, FileType::Regular | FileType::Directory)
                {
                    entries.push((path.join(entry.file_name()), entry.metadata()?));
                }
            }
            Ok(entries)
        };
        let entries: extern4::Result<_> = read();
        match entries {
            Ok(entries) => Ok(entries),
            Err(error) => {
                flush(self.out)?;
                self.app.error(self.target.volume.image_path(path), &error);
                Ok(Vec::new())
            }
        }
    }

    fn line(&mut self, path: &Path, found: &Metadata) -> io::Result<()> {
        if self.args.json {
            let line = json::to_line(&Line {
                file: FileName::of(&self.target.image_path.image, path),
                flags: found.flags().bits(),
                letters: letters(found.flags()),
                flag_names: set(found.flags()).collect(),
                project: found.project(),
                generation: found.generation(),
            });
            return self.out.write_all(line.as_bytes());
        }
        let name = self.shown.path(&self.target.image_path.image, path);
        if self.args.project {
            write!(self.out, "{:5} ", found.project())?;
        }
        if self.args.generation {
            write!(self.out, "{:<10} ", found.generation())?;
        }
        if !self.args.long {
            write!(self.out, "{} ", letters(found.flags()))?;
            self.out.write_all(&name)?;
            return self.out.write_all(b"\n");
        }
        self.out.write_all(&name)?;
        let width = 28_usize.saturating_sub(name.len());
        writeln!(self.out, "{:width$} {}", "", names(found.flags()))
    }
}
