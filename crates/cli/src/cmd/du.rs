//! `extern4 du`: shows how much space files take.
//!
//! `args` calls [`run`]. A file with several names counts once in a run. A directory that cannot be
//! read is reported, and the sum lacks it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::{DirEntry, Glob, Metadata, WalkEvent};

use crate::app::{App, Opened, Shown, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::interruptible;
use crate::json;
use crate::output::{Out, flush};
use crate::text::{BlockSize, size};

#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    /// Files and directories to sum up
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show only the sum of each path
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Leave out files whose path, or a part of it behind a slash, matches the pattern
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Leave out files that match a pattern of this file of the host, one a line; - is standard
    /// input
    #[arg(short = 'X', long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Show sizes with a unit, such as 1.5M, instead of in units of 1024 bytes
    #[arg(short, long, overrides_with_all = UNITS)]
    human_readable: bool,
    /// Show sizes with a unit of powers of 1000
    #[arg(long, overrides_with_all = UNITS)]
    si: bool,
    /// Show files too, not only directories
    #[arg(short, long)]
    all: bool,
    /// Show only what is at most this many directories deep; everything counts
    #[arg(short = 'd', long, value_name = "DEPTH")]
    max_depth: Option<usize>,
    /// Show the sum of all paths too
    #[arg(short = 'c', long)]
    total: bool,
    /// Count the bytes in files, not the space they take
    #[arg(long)]
    apparent_size: bool,
    /// Count the bytes in files and show them as they are
    #[arg(short, long)]
    bytes: bool,
    /// Show sizes in units of this many bytes: 1M, or M to show the unit too
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = BlockSize::parse, overrides_with_all = UNITS)]
    block_size: Option<BlockSize>,
    /// Show sizes in units of 1024 bytes, as without this option
    #[arg(short, overrides_with_all = UNITS)]
    kibibytes: bool,
    /// Show sizes in units of 1 MiB
    #[arg(short, overrides_with_all = UNITS)]
    mebibytes: bool,
    /// Count inodes, not space
    #[arg(long)]
    inodes: bool,
    /// Count a file once for each of its names
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Leave directories below out of the sum of a directory
    #[arg(short = 'S', long)]
    separate_dirs: bool,
    /// Leave out what is smaller than this, or with -SIZE, larger
    #[arg(short, long, value_name = "SIZE", value_parser = threshold, allow_hyphen_values = true)]
    threshold: Option<i64>,
    /// End lines with a NUL
    #[arg(short = '0', long)]
    null: bool,
    /// Do not follow symbolic links, as without this option
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// Stay in one volume, as without this option
    #[arg(short = 'x', long)]
    one_file_system: bool,
    /// Write one JSON object a line for each file or directory
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The options of which the last one says how sizes are shown.
const UNITS: [&str; 5] = [
    "human_readable",
    "si",
    "block_size",
    "kibibytes",
    "mebibytes",
];

impl Args {
    /// Returns how sizes are shown.
    fn unit(&self) -> BlockSize {
        let chosen = [
            (self.human_readable, BlockSize::Human),
            (self.si, BlockSize::Decimal),
            (self.bytes || self.inodes, BlockSize::of(1)),
            (self.mebibytes, BlockSize::of(1 << 20)),
        ];
        let chosen = chosen
            .into_iter()
            .find_map(|(given, unit)| given.then_some(unit));
        chosen
            .or_else(|| self.block_size.clone())
            .unwrap_or(BlockSize::of(1024))
    }
}

/// Reads a size with an optional sign.
fn threshold(text: &str) -> Result<i64, String> {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or((1, text), |digits| (-1, digits));
    let number = size(digits).and_then(|number| i64::try_from(number).ok());
    let number = number.filter(|number| sign > 0 || *number > 0);
    number
        .map(|number| number * sign)
        .ok_or_else(|| "write it as 4096, 1M or -1M".to_owned())
}

/// The bytes of a directory that the walk is inside of.
struct Sum {
    bytes: u64,
    /// The bytes of directories below, where they are kept apart.
    below: u64,
}

/// Sums over all paths of the command line.
struct Du<'a> {
    args: &'a Args,
    shown: Shown,
    unit: BlockSize,
    excluded: Vec<Glob>,
    out: Out,
    total_bytes: u64,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(excluded) = excluded(args, app) else {
        return Ok(());
    };
    let shown = app.shown_for(&args.image_paths);
    let out = app.out(shown.is_complete());
    let mut du = Du {
        args,
        shown,
        unit: args.unit(),
        excluded,
        out,
        total_bytes: 0,
    };
    let mut counted = Vec::new();
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let at = match counted
            .iter()
            .position(|(image, _)| *image == image_path.image)
        {
            Some(at) => at,
            None => {
                counted.push((image_path.image.clone(), HashSet::new()));
                counted.len() - 1
            }
        };
        du.image_path(&target, &mut counted[at].1, app)?;
    }
    if args.total && !args.json {
        let size = du.unit.show(du.total_bytes);
        write!(du.out, "{size}\ttotal")?;
        du.out.write_all(&[du.end()])?;
    }
    app.end_output(&mut du.out)
}

/// Returns the patterns of names to leave out. Reports a file of patterns that cannot be read.
fn excluded(args: &Args, app: &mut App) -> Option<Vec<Glob>> {
    let mut globs: Vec<_> = args
        .exclude
        .iter()
        .map(|text| Glob::new(text.as_bytes(), false))
        .collect();
    for file in &args.exclude_from {
        match interruptible::read(file, app.stop()) {
            Ok(text) => {
                let lines = text
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty());
                globs.extend(lines.map(|line| Glob::new(line, false)));
            }
            Err(error) => {
                app.fail_at(ExitStatus::Failed, file.display(), host_reason(&error));
                return None;
            }
        }
    }
    Some(globs)
}

impl Du<'_> {
    /// Returns whether a pattern leaves the file out.
    fn excludes(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        let starts = path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at + 1);
        let mut parts = std::iter::once(0).chain(starts).map(|start| &path[start..]);
        !self.excluded.is_empty()
            && parts.any(|part| self.excluded.iter().any(|glob| glob.matches(part)))
    }

    /// Returns the byte that ends a line.
    fn end(&self) -> u8 {
        if self.args.null { 0 } else { b'\n' }
    }

    /// Sums one path up. A file with several names counts once, at the first of them.
    fn image_path(
        &mut self,
        target: &Target,
        counted: &mut HashSet<u64>,
        app: &mut App,
    ) -> io::Result<()> {
        let mut sums: Vec<Sum> = Vec::new();
        let mut walk = target.session().walk(target.path()).with_metadata();
        while let Some(event) = walk.next_event() {
            let found = event.and_then(|event| match event {
                WalkEvent::Leave(entry) => Ok((entry, None)),
                WalkEvent::Enter(entry) | WalkEvent::File(entry) => {
                    entry.metadata().map(|metadata| (entry, Some(metadata)))
                }
            });
            match found {
                Ok((entry, None)) => self.leave(&target.volume, entry, &mut sums)?,
                Ok((entry, Some(_))) if self.excludes(entry.path()) => walk.skip_subtree(),
                Ok((entry, Some(metadata))) => {
                    self.visit(&target.volume, entry, &metadata, counted, &mut sums)?;
                }
                Err(error) => {
                    flush(&mut self.out)?;
                    let path = error.path().unwrap_or(target.path()).to_owned();
                    app.error(target.volume.image_path(&path), &error);
                }
            }
        }
        Ok(())
    }

    /// Adds a file to the sum of its directory, or begins the sum of a directory.
    fn visit(
        &mut self,
        volume: &Opened,
        entry: DirEntry,
        metadata: &Metadata,
        counted: &mut HashSet<u64>,
        sums: &mut Vec<Sum>,
    ) -> io::Result<()> {
        let is_single = self.args.count_links || metadata.nlink() < 2;
        let new = is_single && !metadata.is_dir() || counted.insert(metadata.ino());
        let bytes = if new { self.bytes(metadata) } else { 0 };
        if metadata.is_dir() {
            sums.push(Sum { bytes, below: 0 });
            return Ok(());
        }
        let sum = sums
            .last_mut()
            .map_or(&mut self.total_bytes, |sum| &mut sum.bytes);
        *sum = sum.saturating_add(bytes);
        if new && (self.args.all || entry.depth() == 0) {
            let depth = entry.depth();
            self.line(volume, entry.into_path(), bytes, depth)?;
        }
        Ok(())
    }

    /// Ends the sum of a directory.
    fn leave(&mut self, volume: &Opened, entry: DirEntry, sums: &mut Vec<Sum>) -> io::Result<()> {
        let Some(Sum { bytes, below }) = sums.pop() else {
            return Ok(());
        };
        let sum = match sums.last_mut() {
            None => &mut self.total_bytes,
            Some(above) if self.args.separate_dirs => &mut above.below,
            Some(above) => &mut above.bytes,
        };
        *sum = sum.saturating_add(bytes.saturating_add(below));
        self.line(volume, entry.into_path(), bytes, sums.len())
    }

    fn bytes(&self, metadata: &Metadata) -> u64 {
        if self.args.inodes {
            1
        } else if self.args.apparent_size || self.args.bytes {
            // Only these have contents.
            let has_size = metadata.is_file() || metadata.is_symlink() || metadata.is_dir();
            if has_size { metadata.len() } else { 0 }
        } else {
            metadata.blocks().saturating_mul(512)
        }
    }

    fn line(&mut self, volume: &Opened, path: PathBuf, bytes: u64, depth: usize) -> io::Result<()> {
        let deepest = if self.args.summarize {
            0
        } else {
            self.args.max_depth.unwrap_or(usize::MAX)
        };
        let is_passed_over = self.args.threshold.is_some_and(|threshold| {
            if threshold < 0 {
                bytes > threshold.unsigned_abs()
            } else {
                bytes < threshold.unsigned_abs()
            }
        });
        if depth > deepest || is_passed_over {
            return Ok(());
        }
        if self.args.json {
            let line = json::line(|object| {
                json::file(object, &volume.image, &path);
                object.raw(if self.args.inodes { "inodes" } else { "bytes" }, bytes);
            });
            return self.out.write_all(line.as_bytes());
        }
        write!(self.out, "{}\t", self.unit.show(bytes))?;
        self.out.write_all(&self.shown.path(&volume.image, &path))?;
        self.out.write_all(&[self.end()])
    }
}
