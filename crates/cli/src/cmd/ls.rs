//! `extern4 ls`: lists directories as GNU `ls` does.
//!
//! `args` calls [`run`]. A file or directory that cannot be read is reported, and the listing goes
//! on.

mod args;
mod entry;
mod long;
mod name;
mod order;

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{FileType, Metadata};

use crate::app::{App, Opened, Shown, Target};
use crate::color::Colors;
use crate::exit_status::ExitStatus;
use crate::json;
use crate::output::{Out, flush};
use crate::text::{columns, commas, rows};

pub(crate) use args::Args;
use args::{Format, Hidden};
use entry::{Entry, NameStyle, Needs};
use name::Indicators;
use order::{Order, Sorting};

/// The form of the listing, from the arguments and the terminal.
struct Listing<'a> {
    args: &'a Args,
    shown: Shown,
    hidden: Hidden,
    form: Format,
    sorting: Sorting,
    name: NameStyle,
    long: long::Style,
    out: Out,
    /// Whether something was printed, so that the next heading needs an empty line before it.
    begun: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut listing = Listing::new(args, app);
    let mut directories: Vec<(Target, Entry)> = Vec::new();
    let mut files: Vec<(Target, Entry)> = Vec::new();
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        match listing.argument(&target) {
            Ok(entry) if entry.kind == FileType::Directory && !args.directory => {
                directories.push((target, entry));
            }
            Ok(entry) => files.push((target, entry)),
            Err(error) => app.error(image_path, &error),
        }
    }
    // As GNU `ls` does it: files first, and each kind in the order of the listing.
    listing.sorting.sort(&mut files, |(_, entry)| entry);
    listing.sorting.sort(&mut directories, |(_, entry)| entry);
    listing.files(files, app)?;
    let headings = args.image_paths.len() > 1 || args.recursive;
    for (target, _) in directories {
        listing.tree(&target.volume, target.path(), headings, app)?;
    }
    app.end_output(&mut listing.out)
}

impl<'a> Listing<'a> {
    fn new(args: &'a Args, app: &App) -> Self {
        let shown = app.shown_for(&args.image_paths);
        let form = args.form();
        let name = NameStyle {
            colors: Colors::new(args.color()),
            quoting: args.quoting(shown.terminal),
            hides_control: args.hides_control(shown.terminal),
            indicators: args.indicators(),
            with_targets: form == Format::Long,
            complete: shown.is_complete().then_some(shown),
            has_painted: Cell::new(false),
        };
        Self {
            args,
            shown,
            hidden: args.hidden(),
            form,
            sorting: args.sorting(),
            name,
            long: long::Style::new(args),
            out: app.out(shown.is_complete()),
            begun: false,
        }
    }

    /// Returns what has to be known of each file.
    fn needs(&self) -> Needs {
        let args = self.args;
        Needs {
            metadata: self.form == Format::Long
                || matches!(self.sorting.order, Order::Time | Order::Size)
                || args.json
                || args.blocks
                || self.name.colors.is_some()
                || self.name.indicators == Indicators::Classify,
            dereference: args.dereference,
            link_targets: self.sorting.directories_first,
        }
    }

    /// Returns an argument as an entry. A link to a directory stands for the directory, unless the
    /// options ask for links themselves.
    fn argument(&self, target: &Target) -> extern4::Result<Entry> {
        let path = target.path();
        let session = target.session();
        let args = self.args;
        let follows_all = args.dereference || args.dereference_command_line;
        let follows_directories = args.dereference_command_line_symlink_to_dir
            || self.form != Format::Long
                && !args.directory
                && self.name.indicators != Indicators::Classify;
        // A link that leads nowhere is an error only if it has to be followed.
        let followed = match (follows_all, follows_directories) {
            (true, _) => Some(session.metadata(path)?),
            (false, true) => session.metadata(path).ok().filter(Metadata::is_dir),
            (false, false) => None,
        };
        let metadata = followed.map_or_else(|| session.symlink_metadata(path), Ok)?;
        // The name is escaped later, as all names are.
        let mut name = self.shown.prefix(&target.image_path.image);
        name.extend_from_slice(path.as_os_str().as_bytes());
        let mut entry = Entry::new(
            OsStr::from_bytes(&name).to_owned(),
            path.to_owned(),
            metadata,
        );
        if self.needs().link_targets && entry.kind == FileType::Symlink {
            entry.leads_to_directory = session.metadata(path).is_ok_and(|found| found.is_dir());
        }
        Ok(entry)
    }

    /// Lists the arguments that are not listed as directories.
    fn files(&mut self, files: Vec<(Target, Entry)>, app: &mut App) -> io::Result<()> {
        let mut rest = files.into_iter().peekable();
        while let Some((target, entry)) = rest.next() {
            let mut entries = vec![entry];
            let same = |next: &(Target, Entry)| next.0.image_path.image == target.image_path.image;
            while let Some((_, entry)) = rest.next_if(same) {
                entries.push(entry);
            }
            self.print(&target.volume, &entries, app)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Lists a directory, and with `-R` those below it, depth first in the order of the listing.
    fn tree(
        &mut self,
        volume: &Opened,
        path: &Path,
        headings: bool,
        app: &mut App,
    ) -> io::Result<()> {
        let mut pending = vec![(path.to_owned(), None)];
        // A directory has one parent: one that occurs twice is a loop of a corrupt volume.
        let mut seen = HashSet::new();
        while let Some((path, ino)) = pending.pop() {
            if ino.is_some_and(|ino: u64| !seen.insert(ino)) {
                flush(&mut self.out)?;
                app.fail_at(
                    ExitStatus::Corrupt,
                    volume.image_path(&path),
                    "directory is in another place too",
                );
                continue;
            }
            let entries = match self.read(volume, &path) {
                Ok(entries) => entries,
                Err(error) => {
                    flush(&mut self.out)?;
                    app.error(volume.image_path(&path), &error);
                    continue;
                }
            };
            if !self.args.json {
                self.heading(volume, &path, headings)?;
            }
            if (self.form == Format::Long || self.args.blocks) && !self.args.json {
                self.total(&entries)?;
            }
            self.print(volume, &entries, app)?;
            self.begun = true;
            if self.args.recursive {
                let below = entries.into_iter().rev();
                pending.extend(
                    below
                        .filter(Entry::is_subdirectory)
                        .map(|entry| (entry.path, Some(entry.ino))),
                );
            }
        }
        Ok(())
    }

    fn heading(&mut self, volume: &Opened, path: &Path, wanted: bool) -> io::Result<()> {
        if !wanted {
            return Ok(());
        }
        if self.begun {
            self.out.write_all(b"\n")?;
        }
        let mut name = self.shown.prefix(&volume.image);
        name.extend_from_slice(path.as_os_str().as_bytes());
        match self.name.complete {
            Some(shown) => self.out.write_all(&shown.path(&volume.image, path))?,
            None => self
                .out
                .write_all(&self.name.quoting.quote(&name, self.name.hides_control))?,
        }
        self.out.write_all(b":\n")
    }

    fn total(&mut self, entries: &[Entry]) -> io::Result<()> {
        let blocks: u64 = entries
            .iter()
            .filter_map(|entry| entry.metadata)
            .map(|found| found.blocks())
            .sum();
        writeln!(
            self.out,
            "total {}",
            self.args.space_unit().show(blocks.saturating_mul(512))
        )
    }

    /// Returns the entries of a directory that are to be shown, in order. The error of an entry
    /// stays with it.
    fn read(&self, volume: &Opened, path: &Path) -> extern4::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut listed = volume.reach(path, |session, path| session.read_dir(path))?;
        let needs = self.needs();
        if needs.metadata {
            listed = listed.with_metadata();
        }
        if self.args.shows_dots() {
            for dots in [".", ".."] {
                let path = path.join(dots);
                let metadata = volume.reach(&path, |session, path| session.metadata(path))?;
                entries.push(Entry::new(dots.into(), path, metadata));
            }
        }
        for found in listed {
            let found = found?;
            if !self.hidden.has(found.file_name().as_bytes()) {
                entries.push(Entry::found(volume, &found, path, needs));
            }
        }
        self.sorting.sort(&mut entries, |entry| entry);
        Ok(entries)
    }

    fn print(&mut self, volume: &Opened, entries: &[Entry], app: &mut App) -> io::Result<()> {
        for entry in entries {
            if let Some(error) = &entry.error {
                flush(&mut self.out)?;
                app.error(volume.image_path(&entry.path), error);
            }
        }
        if self.args.json {
            return self.print_json(volume, entries);
        }
        let details = self.details(volume, entries);
        if self.form == Format::Long {
            return self.print_long(volume, entries, &details);
        }
        let cells: Vec<_> = entries
            .iter()
            .zip(details)
            .map(|(entry, mut text)| {
                let width = text.len() + entry.write_name(volume, &self.name, &mut text);
                (text, width)
            })
            .collect();
        match self.form {
            Format::Columns => {
                self.out
                    .write_all(&columns(&cells, self.args.line_width(), self.args.tab()))
            }
            Format::Across => {
                self.out
                    .write_all(&rows(&cells, self.args.line_width(), self.args.tab()))
            }
            Format::Commas => self.out.write_all(&commas(&cells, self.args.line_width())),
            Format::Long | Format::SingleColumn => {
                for (text, _) in cells {
                    self.out.write_all(&text)?;
                    self.out.write_all(&[self.args.end()])?;
                }
                Ok(())
            }
        }
    }

    /// Returns what stands before each name in every form: inode number, space and context.
    fn details(&self, volume: &Opened, entries: &[Entry]) -> Vec<Vec<u8>> {
        let args = self.args;
        let contexts = args.context && self.form != Format::Long;
        let unit = args.space_unit();
        let columns = entries.iter().map(|entry| {
            let ino = args.inode.then(|| entry.ino.to_string());
            let blocks = args.blocks.then(|| match &entry.metadata {
                Some(found) => unit.show(found.blocks().saturating_mul(512)),
                None => "?".to_owned(),
            });
            let context = contexts.then(|| entry.context(volume));
            [ino, blocks, context]
        });
        let columns: Vec<_> = columns.collect();
        // Names in lines with commas are not aligned.
        let width = |at: usize| {
            let widest = columns
                .iter()
                .filter_map(|row| row[at].as_ref().map(String::len))
                .max();
            widest.filter(|_| self.form != Format::Commas).unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        let line = |row: &[Option<String>; 3]| {
            let cells = row
                .iter()
                .zip(widths)
                .filter_map(|(cell, width)| Some(format!("{:>width$} ", cell.as_ref()?)));
            cells.collect::<String>().into_bytes()
        };
        columns.iter().map(line).collect()
    }

    fn print_long(
        &mut self,
        volume: &Opened,
        entries: &[Entry],
        details: &[Vec<u8>],
    ) -> io::Result<()> {
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| self.long.row(volume, entry))
            .collect();
        let widths = long::Widths::of(&rows);
        for ((entry, row), details) in entries.iter().zip(rows).zip(details) {
            let mut line = details.clone();
            row.write(&widths, &mut line);
            entry.write_name(volume, &self.name, &mut line);
            if entry.kind == FileType::Symlink && entry.error.is_none() {
                entry.write_target(volume, &self.name, &mut line);
            }
            line.push(self.args.end());
            self.out.write_all(&line)?;
        }
        Ok(())
    }

    fn print_json(&mut self, volume: &Opened, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let Some(metadata) = &entry.metadata else {
                continue;
            };
            let line =
                json::line(|object| super::stat::members(object, volume, &entry.path, metadata));
            self.out.write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

/// Returns the path of the entry `name` of `directory`.
fn join(directory: &Path, name: &OsStr) -> PathBuf {
    directory.join(name)
}
