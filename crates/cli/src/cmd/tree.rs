//! `extern4 tree`: shows a directory with everything below it.
//!
//! `args` calls [`run`]. A directory that cannot be read is reported, and the tree goes on. Names
//! are escaped on a terminal.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{DirEntry, FileType};

use crate::app::{App, Opened, Shown};
use crate::color::{Colors, Look, When};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush};
use crate::text::{counted, escape, escape_bytes};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directories to show
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show names that start with a dot too
    #[arg(short, long)]
    all: bool,
    /// Show only directories
    #[arg(short, long)]
    directories: bool,
    /// Go only this many directories deep
    #[arg(short = 'L', long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..))]
    level: Option<u32>,
    /// Colour names by their type, as LS_COLORS says
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always",
        num_args = 0..=1, require_equals = true)]
    color: When,
    /// Write one JSON object a line for each file, and one with their numbers
    #[arg(long)]
    json: bool,
}

/// A tree that is being printed.
struct Tree<'a> {
    args: &'a Args,
    colors: Option<Colors>,
    shown: Shown,
    out: Out,
    directories: u64,
    files: u64,
    seen: HashSet<u64>,
}

/// A directory on the way down to the current one, with the entries that are left to print.
struct Level {
    path: PathBuf,
    entries: std::vec::IntoIter<(DirEntry, FileType)>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let shown = app.shown_for(&args.image_paths);
    let mut tree = Tree {
        args,
        colors: Colors::new(args.color),
        shown,
        out: app.out(shown.is_complete()),
        directories: 0,
        files: 0,
        seen: HashSet::new(),
    };
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else { continue };
        tree.seen.clear();
        tree.start(&target.volume, target.path(), app)?;
    }
    tree.summary()?;
    app.end_output(&mut tree.out)
}

impl Tree<'_> {
    fn start(&mut self, volume: &Opened, path: &Path, app: &mut App) -> io::Result<()> {
        let Some(first) = self.level(volume, path.to_owned(), app)? else { return Ok(()) };
        if !self.args.json {
            self.out.write_all(&self.shown.path(&volume.image, path))?;
            self.out.write_all(b"\n")?;
        }
        let mut levels = vec![first];
        while let Some(level) = levels.last_mut() {
            let Some((entry, kind)) = level.entries.next() else {
                levels.pop();
                continue;
            };
            let path = level.path.join(entry.file_name());
            match self.args.json {
                true => self.json_line(volume, levels.len(), &entry, &path, app)?,
                false => self.line(volume, &levels, &entry, kind, &path)?,
            }
            if kind != FileType::Directory {
                self.files += 1;
                continue;
            }
            self.directories += 1;
            let deep_enough = self.args.level.is_some_and(|most| levels.len() >= most as usize);
            if !deep_enough && self.first_visit(volume, &entry, &path, app)? {
                levels.extend(self.level(volume, path, app)?);
            }
        }
        Ok(())
    }

    /// Returns whether the walk meets a directory for the first time. A directory has one parent,
    /// so one that occurs twice is a loop in a corrupt volume.
    fn first_visit(
        &mut self,
        volume: &Opened,
        entry: &DirEntry,
        path: &Path,
        app: &mut App,
    ) -> io::Result<bool> {
        let first = self.seen.insert(entry.ino());
        if !first {
            flush(&mut self.out)?;
            let image_path = volume.image_path(path);
            app.fail_at(ExitStatus::Corrupt, &image_path, "directory is in another place too");
        }
        Ok(first)
    }

    /// Returns the entries of a directory that are to be shown, by name.
    fn level(&mut self, volume: &Opened, path: PathBuf, app: &mut App) -> io::Result<Option<Level>> {
        match self.read(volume, &path) {
            Ok(entries) => Ok(Some(Level { path, entries: entries.into_iter() })),
            Err(error) => {
                flush(&mut self.out)?;
                app.error(volume.image_path(&path), &error);
                Ok(None)
            }
        }
    }

    fn read(&self, volume: &Opened, path: &Path) -> extern4::Result<Vec<(DirEntry, FileType)>> {
        let mut entries = Vec::new();
        for entry in volume.reach(path, |session, path| session.read_dir(path))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let hidden = entry.file_name().as_bytes().starts_with(b".") && !self.args.all;
            if !hidden && (kind == FileType::Directory || !self.args.directories) {
                entries.push((entry, kind));
            }
        }
        entries.sort_by(|(a, _), (b, _)| a.file_name().as_bytes().cmp(b.file_name().as_bytes()));
        Ok(entries)
    }

    fn line(
        &mut self,
        volume: &Opened,
        levels: &[Level],
        entry: &DirEntry,
        kind: FileType,
        path: &Path,
    ) -> io::Result<()> {
        let mut line = Vec::new();
        let (last, above) = levels.split_last().expect("the entry is in the innermost level");
        for level in above {
            let more = !level.entries.as_slice().is_empty();
            line.extend_from_slice(if more { "│   " } else { "    " }.as_bytes());
        }
        let more = !last.entries.as_slice().is_empty();
        line.extend_from_slice(if more { "├── " } else { "└── " }.as_bytes());
        let name = entry.file_name().as_bytes();
        match (&self.colors, entry.metadata()) {
            _ if self.shown.is_complete() => line.extend_from_slice(&self.shown.path(&volume.image, path)),
            (Some(colors), Ok(metadata)) => {
                let look = Look { kind, mode: metadata.mode(), orphan: false };
                colors.paint(&mut line, &escape(name), name, look);
            }
            _ => line.extend_from_slice(&escape_bytes(name, self.shown.terminal)),
        }
        if kind == FileType::Symlink
            && let Ok(target) = volume.reach(path, |session, path| session.read_link(path))
        {
            line.extend_from_slice(b" -> ");
            line.extend_from_slice(&self.shown.text(target.as_os_str().as_bytes()));
        }
        line.push(b'\n');
        self.out.write_all(&line)
    }

    /// Writes an entry as JSON, with its number of directories below the one to show.
    fn json_line(
        &mut self,
        volume: &Opened,
        depth: usize,
        entry: &DirEntry,
        path: &Path,
        app: &mut App,
    ) -> io::Result<()> {
        match entry.metadata() {
            Ok(metadata) => {
                let line = json::line(|object| {
                    super::stat::members(object, volume, path, &metadata);
                    object.raw("depth", depth);
                });
                self.out.write_all(line.as_bytes())
            }
            Err(error) => {
                flush(&mut self.out)?;
                app.error(volume.image_path(path), &error);
                Ok(())
            }
        }
    }

    fn summary(&mut self) -> io::Result<()> {
        if self.args.json {
            let line = json::line(|object| {
                object.raw("directories", self.directories);
                object.raw("files", self.files);
            });
            return self.out.write_all(line.as_bytes());
        }
        write!(self.out, "\n{}", counted(self.directories, "directory", "directories"))?;
        if !self.args.directories {
            write!(self.out, ", {}", counted(self.files, "file", "files"))?;
        }
        writeln!(self.out)
    }
}
