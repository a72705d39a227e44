//! `extern4 mv`: renames files within a volume.

use std::ffi::OsString;
use std::io;

use extern4::{Errno, RenameFlags};

use crate::app::App;
use crate::resolve::{Destination, Names, names, own_name, report_naming, written_places};
use crate::status::Status;
use crate::text::quoted;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to rename
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// The new name, or a directory to put them into, in the same volume
    #[arg(value_name = "DESTINATION", required = true)]
    destination: OsString,
    /// Do not replace a file that is there, and do not mind it either
    #[arg(short, long)]
    no_clobber: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let places = written_places(&args.places, app);
    let to = app.written_place(&args.destination);
    if let Some(place) = places.iter().find(|place| !place.image.is(&to.image)) {
        app.fail_at(
            Status::Failed,
            place,
            format_args!(
                "is in another volume than {}: copy it with cp -a, then remove it with rm",
                quoted(&to)
            ),
        );
        return Ok(());
    }
    let Some(target) = app.target(&to) else { return Ok(()) };
    let Some(destination) = Destination::new(&target, places.len(), app) else { return Ok(()) };
    let flags = if args.no_clobber { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    for place in &places {
        let Some(new) = destination.of(own_name(&place.path)) else {
            app.fail_at(Status::Failed, place, "a root or '.' or '..' is not renamed");
            continue;
        };
        // Such a rename would do nothing, and both names would stay.
        if !args.no_clobber && names(target.session(), &place.path, &new) != Names::OfTwo {
            let to = target.volume.place(&new);
            app.fail(Status::Failed, format_args!("{} and {} are the same file", quoted(place), quoted(to)));
            continue;
        }
        match target.session().rename_with(&place.path, &new, flags) {
            Ok(()) => {}
            Err(error) if args.no_clobber && error.errno() == Errno::EEXIST => {}
            Err(error) => report_naming(&target, place, &new, &error, app),
        }
    }
    Ok(())
}
