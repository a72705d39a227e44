//! `extern4 info`: what a volume is, as `dumpe2fs -h` tells it and a little more.
//!
//! Everything is a [`facts::Fact`]: one word for scripts, a few for people, and the value in both forms.

mod disk;
mod facts;
mod groups;

use std::io::{self, Write as _};

use extern4::ErrorKind;

use crate::app::App;
use crate::json;
use crate::place::{Part, Place};
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
        if place.image.part == Part::Whole
            && let Some(disk) = disk::Disk::of(&place.image)
        {
            out.write_all(if args.json { disk.json() } else { disk.people() }.as_bytes())?;
            continue;
        }
        volume(args, place, &mut out, app)?;
    }
    flush(&mut out)
}

fn volume(args: &Args, place: &Place, out: &mut Out, app: &mut App) -> io::Result<()> {
    let Some(volume) = app.volume(&place.image) else { return Ok(()) };
    let ext4 = volume.volume.ext4();
    let facts = match facts::gather(&volume) {
        Ok(facts) => facts,
        Err(error) => {
            flush(out)?;
            app.error(&place.image, &error);
            debug_assert_ne!(error.kind(), ErrorKind::NotExt, "the volume is open");
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
