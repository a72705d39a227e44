//! `extern4 ls`: lists directories as GNU `ls` does.

mod entry;
mod long;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::FileType;

use crate::app::{App, Opened, Shown, Target};
use crate::color::{Colors, When};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush, out};
use crate::text::{columns, human, units};

use entry::Entry;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Files and directories to list
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show type, permissions, links, owner, group, size and time
    #[arg(short)]
    long: bool,
    /// Show names that start with a dot, '.' and '..' too
    #[arg(short)]
    all: bool,
    /// Show names that start with a dot, but not '.' and '..'
    #[arg(short = 'A')]
    almost_all: bool,
    /// List the directories below too
    #[arg(short = 'R')]
    recursive: bool,
    /// Show inode numbers
    #[arg(short)]
    inode: bool,
    /// Show sizes with a unit, such as 1.5K
    #[arg(short, long)]
    human_readable: bool,
    /// Like -l, but with user and group numbers instead of the names in the image's /etc/passwd and
    /// /etc/group
    #[arg(short)]
    numeric: bool,
    /// One name a line
    #[arg(short = '1')]
    one: bool,
    /// List directories themselves, not what is in them
    #[arg(short)]
    directory: bool,
    /// Sort by time of the last change, newest first
    #[arg(short)]
    time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S')]
    size: bool,
    /// Sort backwards
    #[arg(short)]
    reverse: bool,
    /// Colour names by their type, as LS_COLORS says
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always",
        num_args = 0..=1, require_equals = true)]
    color: When,
    /// Write one JSON object a line for each entry
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The form of the listing, from the arguments and the terminal.
struct Listing<'a> {
    args: &'a Args,
    colors: Option<Colors>,
    shown: Shown,
    line_width: usize,
    /// Whether `-l` is given, or `-n`, which implies it.
    long_format: bool,
    long: long::Style,
    out: Out,
    /// Whether something was printed, so that the next heading needs an empty line before it.
    begun: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let shown = Shown::new(&args.image_paths);
    let mut listing = Listing {
        args,
        colors: if args.json { None } else { Colors::new(args.color) },
        shown,
        line_width: line_width(),
        long_format: args.long || args.numeric,
        long: long::Style::new(args.numeric, args.human_readable),
        out: out(),
        begun: false,
    };
    let mut directories = Vec::new();
    let mut files: Vec<(Target, Entry)> = Vec::new();
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else { continue };
        match listing.argument(&target) {
            Ok(entry) if entry.kind == FileType::Directory && !args.directory => directories.push(target),
            Ok(entry) => files.push((target, entry)),
            Err(error) => app.error(image_path, &error),
        }
    }
    listing.files(files, app)?;
    let headings = args.image_paths.len() > 1 || args.recursive;
    for target in directories {
        listing.tree(&target.volume, target.path(), headings, app)?;
    }
    flush(&mut listing.out)
}

fn line_width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let terminal = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(80)
}

impl Listing<'_> {
    /// Returns whether attributes are needed, and not only names, numbers and types.
    fn needs_metadata(&self) -> bool {
        self.long_format || self.args.time || self.args.size || self.args.json || self.colors.is_some()
    }

    /// Returns an argument as an entry. A link to a directory stands for the directory, unless the
    /// options ask for links themselves.
    fn argument(&self, target: &Target) -> extern4::Result<Entry> {
        let path = target.path();
        let session = target.session();
        let follow = !self.long_format && !self.args.directory;
        let followed =
            if follow { session.metadata(path).ok().filter(extern4::Metadata::is_dir) } else { None };
        let metadata = match followed {
            Some(metadata) => metadata,
            None => session.symlink_metadata(path)?,
        };
        let name = self.shown.path(&target.image_path.image, path);
        Ok(Entry::new(OsStr::from_bytes(&name).to_owned(), path.to_owned(), metadata))
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
            self.sort(&mut entries);
            self.print(&target.volume, &entries, app)?;
            self.begun = true;
        }
        Ok(())
    }

    /// Lists a directory, and with `-R` those below it, depth first in the order of the listing.
    fn tree(&mut self, volume: &Opened, path: &Path, headings: bool, app: &mut App) -> io::Result<()> {
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
            if self.long_format && !self.args.json {
                self.total(&entries)?;
            }
            self.print(volume, &entries, app)?;
            self.begun = true;
            if self.args.recursive {
                let below = entries.into_iter().rev();
                pending
                    .extend(below.filter(Entry::is_subdirectory).map(|entry| (entry.path, Some(entry.ino))));
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
        self.out.write_all(&self.shown.path(&volume.image, path))?;
        self.out.write_all(b":\n")
    }

    fn total(&mut self, entries: &[Entry]) -> io::Result<()> {
        let blocks: u64 = entries.iter().filter_map(|entry| entry.metadata).map(|found| found.blocks()).sum();
        let bytes = blocks.saturating_mul(512);
        let total = if self.args.human_readable { human(bytes) } else { units(bytes, 1024).to_string() };
        writeln!(self.out, "total {total}")
    }

    /// Returns the entries of a directory that are to be shown, in order. The error of an entry
    /// stays with it.
    fn read(&self, volume: &Opened, path: &Path) -> extern4::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut listed = volume.reach(path, |session, path| session.read_dir(path))?;
        if self.needs_metadata() {
            listed = listed.with_metadata();
        }
        for found in listed {
            let found = found?;
            if found.file_name().as_bytes().starts_with(b".") && !self.args.all && !self.args.almost_all {
                continue;
            }
            entries.push(Entry::found(&found, path, self.needs_metadata()));
        }
        if self.args.all {
            for dots in [".", ".."] {
                let path = path.join(dots);
                let metadata = volume.reach(&path, |session, path| session.metadata(path))?;
                entries.push(Entry::new(dots.into(), path, metadata));
            }
        }
        self.sort(&mut entries);
        Ok(entries)
    }

    fn sort(&self, entries: &mut [Entry]) {
        let key = |entry: &Entry| {
            let metadata = entry.metadata;
            let time = metadata.filter(|_| self.args.time).map(|found| found.mtime());
            let size = metadata.filter(|_| self.args.size).map(|found| found.len());
            std::cmp::Reverse((size, time))
        };
        entries.sort_by(|a, b| {
            let order = key(a).cmp(&key(b)).then_with(|| a.name.as_bytes().cmp(b.name.as_bytes()));
            if self.args.reverse { order.reverse() } else { order }
        });
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
        if self.long_format {
            return self.print_long(volume, entries);
        }
        let inode_width = entries.iter().map(|entry| digits(entry.ino)).max().unwrap_or(0);
        let cells: Vec<_> = entries
            .iter()
            .map(|entry| {
                let mut text = Vec::new();
                let mut width = 0;
                if self.args.inode {
                    text.extend_from_slice(format!("{:>inode_width$} ", entry.ino).as_bytes());
                    width += inode_width + 1;
                }
                width += self.name(volume, entry, &mut text);
                (text, width)
            })
            .collect();
        if self.shown.terminal && !self.args.one {
            return self.out.write_all(&columns(&cells, self.line_width));
        }
        for (text, _) in cells {
            self.out.write_all(&text)?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Appends a name in its printed form and returns its width.
    fn name(&self, volume: &Opened, entry: &Entry, text: &mut Vec<u8>) -> usize {
        entry.write_name(volume, self.colors.as_ref(), self.shown.terminal, text)
    }

    fn print_long(&mut self, volume: &Opened, entries: &[Entry]) -> io::Result<()> {
        let rows: Vec<_> = entries.iter().map(|entry| self.long.row(volume, entry)).collect();
        let widths = long::Widths::of(&rows);
        let inode_width = entries.iter().map(|entry| digits(entry.ino)).max().unwrap_or(0);
        for (entry, row) in entries.iter().zip(rows) {
            let mut line = Vec::new();
            if self.args.inode {
                line.extend_from_slice(format!("{:>inode_width$} ", entry.ino).as_bytes());
            }
            row.write(&widths, &mut line);
            self.name(volume, entry, &mut line);
            if entry.kind == FileType::Symlink {
                entry.write_target(volume, self.shown.terminal, &mut line);
            }
            line.push(b'\n');
            self.out.write_all(&line)?;
        }
        Ok(())
    }

    fn print_json(&mut self, volume: &Opened, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let Some(metadata) = &entry.metadata else { continue };
            let line = json::line(|object| super::stat::members(object, volume, &entry.path, metadata));
            self.out.write_all(line.as_bytes())?;
        }
        Ok(())
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Returns the path of the entry `name` of `directory`.
fn join(directory: &Path, name: &OsStr) -> PathBuf {
    directory.join(name)
}
