//! `extern4 get`: writes the contents of one file to standard output, the opposite of `put`.
//!
//! `args` calls [`run`]. It writes the bytes unchanged, also to a terminal. On an error, it may
//! have written a part of them.

use std::io;

use crate::app::App;
use crate::image_path::ImagePath;
use crate::input::Input;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file to write
    #[arg(value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    image_path: ImagePath,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    super::cat::write(&[Input::Volume(args.image_path.clone())], app)
}
