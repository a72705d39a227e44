//! `extern4 lsattr`: shows the attributes that `chattr` changes.
//!
//! `args` calls [`run`]. Letters and names are those of lsattr(1) (`file_flags`).

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

use extern4::{FileType, Metadata};

use crate::app::{App, Shown, Target};
use crate::exit_status::ExitStatus;
use crate::file_flags::{letters, names, set};
use crate::json;
use crate::output::{Out, flush};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files, and directories whose files are listed
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// List everything below directories
    #[arg(short = 'R')]
    recursive: bool,
    /// List files whose names start with a dot too
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

/// A run of the command in one volume.
struct Listing<'a> {
    args: &'a Args,
    target: &'a Target,
    shown: Shown,
    out: &'a mut Out,
    app: &'a mut App,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image_paths: Vec<_> = args.image_paths.iter().map(|text| app.image_path(text)).collect();
    let shown = app.shown_for(&image_paths);
    let mut out = app.out(shown.is_complete());
    for image_path in &image_paths {
        let Some(target) = app.target(image_path) else { continue };
        let found = match target.session().symlink_metadata(target.path()) {
            Ok(found) => found,
            Err(error) => {
                flush(&mut out)?;
                app.error(image_path, &error);
                continue;
            }
        };
        let mut listing = Listing { args, target: &target, shown, out: &mut out, app };
        match found.file_type() {
            FileType::Directory if !args.directory => listing.directory(target.path())?,
            FileType::Directory | FileType::Regular => listing.line(target.path(), &found)?,
            _ => {
                flush(&mut out)?;
                app.fail_at(ExitStatus::Failed, image_path, "only files and directories have attributes");
            }
        }
    }
    app.end_output(&mut out)
}

impl Listing<'_> {
    /// Lists the files in a directory, and with `-R` everything below it.
    fn directory(&mut self, top: &Path) -> io::Result<()> {
        let mut left = vec![top.to_owned()];
        let mut is_first = true;
        while let Some(path) = left.pop() {
            if !is_first && !self.args.json {
                let name = self.shown.path(&self.target.image_path.image, &path);
                self.out.write_all(b"\n")?;
                self.out.write_all(&name)?;
                self.out.write_all(b":\n")?;
            }
            let mut below = Vec::new();
            for (path, found) in self.entries(&path)? {
                self.line(&path, &found)?;
                if found.is_dir() && self.args.recursive {
                    below.push(path);
                }
            }
            left.extend(below.into_iter().rev());
            if !std::mem::take(&mut is_first) && !self.args.json {
                self.out.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    /// Returns the files and directories in a directory. Reports a failure.
    fn entries(&mut self, path: &Path) -> io::Result<Vec<(std::path::PathBuf, Metadata)>> {
        let read = || {
            let mut entries = Vec::new();
            for entry in self.target.session().read_dir(path)? {
                let entry = entry?;
                let name = std::os::unix::ffi::OsStrExt::as_bytes(entry.file_name());
                let is_shown = self.args.all || !name.starts_with(b".");
                if is_shown && matches!(entry.file_type()?, FileType::Regular | FileType::Directory) {
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
            let line = json::line(|object| {
                json::file(object, &self.target.image_path.image, path);
                object.raw("flags", found.flags().bits());
                object.text("letters", &letters(found.flags()));
                object.texts("flag_names", set(found.flags()));
                object.raw("project", found.project());
                object.raw("generation", found.generation());
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
