//! `extern4 info`: describes a volume, as `dumpe2fs -h` does and a little more.
//!
//! Everything is a [`facts::Fact`]: one word for scripts, a few for people, and the value in both
//! forms.
//!
//! `args` calls [`run`]. It reads the superblock and descriptors, and changes nothing. A disk
//! without a volume is described by its partitions (`disk`).

mod disk;
mod facts;
mod groups;

pub(crate) use facts::error_text;

use std::io::{self, Write as _};

use crate::app::{App, Opened};
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush, out};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Volumes to describe; of a disk with partitions, those are listed
    #[arg(value_name = "IMAGE", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// List the block groups too
    #[arg(short, long)]
    groups: bool,
    /// Write one JSON object a line for each volume or disk
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut out = out();
    for (index, image_path) in args.image_paths.iter().enumerate() {
        if index > 0 && !args.json {
            out.write_all(b"\n")?;
        }
        match app.try_volume(&image_path.image) {
            Ok(Some(opened)) => volume(args, &opened, &mut out, app)?,
            Ok(None) => {}
            Err(error) => match disk::Disk::of(&image_path.image, error.kind()) {
                Some(disk) => out.write_all(
                    if args.json {
                        disk.json()
                    } else {
                        disk.people()
                    }
                    .as_bytes(),
                )?,
                None => {
                    flush(&mut out)?;
                    app.refused(&image_path.image, &error);
                }
            },
        }
    }
    flush(&mut out)
}

fn volume(args: &Args, volume: &Opened, out: &mut Out, app: &mut App) -> io::Result<()> {
    let facts = match facts::gather(volume) {
        Ok(facts) => facts,
        Err(error) => {
            flush(out)?;
            app.error(&volume.image, &error);
            return Ok(());
        }
    };
    if !args.json {
        out.write_all(facts::people(&facts).as_bytes())?;
        if args.groups {
            groups::people(&volume.volume, out)?;
        }
        return Ok(());
    }
    let line = json::line(|object| {
        facts::json(&facts, object);
        if args.groups {
            groups::json(&volume.volume, object);
        }
    });
    out.write_all(line.as_bytes())
}
