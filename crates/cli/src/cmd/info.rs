//! `extern4 info`: describes a volume, as `dumpe2fs -h` does and a little more.
//!
//! Everything is a [`facts::Fact`]: one word for scripts, a few for people, and the value in both
//! forms.

mod disk;
mod facts;
mod groups;

use std::io::{self, Write as _};

pub(crate) use self::facts::type_name;
use crate::app::{App, Opened};
use crate::json;
use crate::place::Place;
use crate::report::{Out, flush, out};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Volumes to describe; of a disk with partitions, those are listed
    #[arg(value_name = "PLACE", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
    /// List the block groups too
    #[arg(short, long)]
    groups: bool,
    /// Write one JSON object a line for each volume or disk
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut out = out();
    for (index, place) in args.places.iter().enumerate() {
        if index > 0 && !args.json {
            out.write_all(b"\n")?;
        }
        match app.try_volume(&place.image) {
            Ok(opened) => volume(args, &opened, &mut out, app)?,
            Err(error) => match disk::Disk::of(&place.image, error.kind()) {
                Some(disk) => {
                    out.write_all(if args.json { disk.json() } else { disk.people() }.as_bytes())?
                }
                None => {
                    flush(&mut out)?;
                    app.refused(&place.image, &error);
                }
            },
        }
    }
    flush(&mut out)
}

fn volume(args: &Args, volume: &Opened, out: &mut Out, app: &mut App) -> io::Result<()> {
    let ext4 = volume.volume.ext4();
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
            groups::people(ext4, out)?;
        }
        return Ok(());
    }
    let line = json::line(|object| {
        facts::json(&facts, object);
        if args.groups {
            groups::json(ext4, object);
        }
    });
    out.write_all(line.as_bytes())
}
