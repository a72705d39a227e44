//! `extern4 cat`: the contents of files, one after the other.

use std::io::{self, Write as _};

use extern4::File;

use crate::app::{App, Target};
use crate::place::Place;

/// Bytes read at a time: few enough to stay in a core's own cache until they are written.
const CHUNK_BYTES: usize = 256 << 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to write
    #[arg(value_name = "PLACE", required = true, value_parser = Place::parser())]
    places: Vec<Place>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    for place in &args.places {
        let Some(target) = app.target(place) else { continue };
        match target.session().open(target.path()) {
            Ok(file) => write(&file, &target, &mut buffer, app)?,
            Err(error) => app.error(place, &error),
        }
    }
    Ok(())
}

/// Writes a file to standard output; a failure to read it is reported, and the rest of it left out.
fn write(file: &File, target: &Target, buffer: &mut [u8], app: &mut App) -> io::Result<()> {
    // Straight to the descriptor: `Stdout` would look for line feeds in all of it.
    let mut out = std::fs::File::from(rustix::io::dup(io::stdout())?);
    let mut offset = 0;
    loop {
        match file.read_at(buffer, offset) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                out.write_all(&buffer[..len])?;
                offset += len as u64;
            }
            Err(error) => {
                app.error(&target.place, &error);
                return Ok(());
            }
        }
    }
}
