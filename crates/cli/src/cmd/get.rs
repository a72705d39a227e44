//! `extern4 get`: writes the contents of one file to standard output, the opposite of `put`.

use std::io;

use crate::app::App;
use crate::place::Place;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write
    #[arg(value_name = "PLACE", value_parser = Place::parser())]
    place: Place,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    super::cat::write(std::slice::from_ref(&args.place), app)
}
