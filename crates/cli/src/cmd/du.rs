//! `extern4 du`: shows how much space files take.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::PathBuf;

use extern4::{FileType, Metadata};

use crate::app::{App, Opened, Shown, Target};
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush, out};
use crate::text::{human, units};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Files and directories to sum up
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show only the sum of each path
    #[arg(short, long, conflicts_with_all = ["all", "max_depth"])]
    summarize: bool,
    /// Show sizes with a unit, such as 1.5M, instead of in units of 1024 bytes
    #[arg(short, long)]
    human_readable: bool,
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
    /// Write one JSON object a line for each file or directory
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// A directory on the way down to the current entry.
struct Level {
    path: PathBuf,
    bytes: u64,
}

/// Sums over all paths of the command line.
struct Du<'a> {
    args: &'a Args,
    shown: Shown,
    out: Out,
    total_bytes: u64,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut du = Du { args, shown: Shown::new(&args.image_paths), out: out(), total_bytes: 0 };
    let mut counted = Vec::new();
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else { continue };
        let at = match counted.iter().position(|(image, _)| *image == image_path.image) {
            Some(at) => at,
            None => {
                counted.push((image_path.image.clone(), HashSet::new()));
                counted.len() - 1
            }
        };
        du.image_path(&target, &mut counted[at].1, app)?;
    }
    if args.total && !args.json {
        let size = du.size(du.total_bytes);
        writeln!(du.out, "{size}\ttotal")?;
    }
    flush(&mut du.out)
}

impl Du<'_> {
    /// Sums one path up. A file with several names counts once, at the first of them.
    fn image_path(&mut self, target: &Target, counted: &mut HashSet<u64>, app: &mut App) -> io::Result<()> {
        let mut levels: Vec<Level> = Vec::new();
        for entry in target.session().walk(target.path()).with_metadata() {
            let found = entry.and_then(|entry| entry.metadata().map(|metadata| (entry, metadata)));
            let (entry, metadata) = match found {
                Ok(found) => found,
                Err(error) => {
                    flush(&mut self.out)?;
                    let path = error.path().unwrap_or(target.path()).to_owned();
                    app.error(target.volume.image_path(&path), &error);
                    continue;
                }
            };
            self.ascend(&target.volume, &mut levels, entry.depth())?;
            let new = metadata.nlink() < 2 && !metadata.is_dir() || counted.insert(metadata.ino());
            let bytes = if new { self.bytes(&metadata) } else { 0 };
            let path = entry.path().to_owned();
            if metadata.file_type() == FileType::Directory {
                levels.push(Level { path, bytes });
                continue;
            }
            if let Some(level) = levels.last_mut() {
                level.bytes = level.bytes.saturating_add(bytes);
            } else {
                self.total_bytes = self.total_bytes.saturating_add(bytes);
            }
            if new && (self.args.all || entry.depth() == 0) {
                self.line(&target.volume, path, bytes, entry.depth())?;
            }
        }
        self.ascend(&target.volume, &mut levels, 0)
    }

    /// Leaves the directories that are not above depth `depth`.
    fn ascend(&mut self, volume: &Opened, levels: &mut Vec<Level>, depth: usize) -> io::Result<()> {
        while levels.len() > depth {
            let Some(level) = levels.pop() else { break };
            let sum = levels.last_mut().map_or(&mut self.total_bytes, |above| &mut above.bytes);
            *sum = sum.saturating_add(level.bytes);
            self.line(volume, level.path, level.bytes, levels.len())?;
        }
        Ok(())
    }

    fn bytes(&self, metadata: &Metadata) -> u64 {
        if self.args.apparent_size || self.args.bytes {
            metadata.len()
        } else {
            metadata.blocks().saturating_mul(512)
        }
    }

    fn size(&self, bytes: u64) -> String {
        match (self.args.human_readable, self.args.bytes) {
            (true, _) => human(bytes),
            (false, true) => bytes.to_string(),
            (false, false) => units(bytes, 1024).to_string(),
        }
    }

    fn line(&mut self, volume: &Opened, path: PathBuf, bytes: u64, depth: usize) -> io::Result<()> {
        let deepest = if self.args.summarize { 0 } else { self.args.max_depth.unwrap_or(usize::MAX) };
        if depth > deepest {
            return Ok(());
        }
        if self.args.json {
            let line = json::line(|object| {
                object.text("image", &volume.image.to_string());
                object.bytes("path", std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
                object.raw("bytes", bytes);
            });
            return self.out.write_all(line.as_bytes());
        }
        write!(self.out, "{}\t", self.size(bytes))?;
        self.out.write_all(&self.shown.path(&volume.image, &path))?;
        self.out.write_all(b"\n")
    }
}
