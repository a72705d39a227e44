//! `extern4 mv`: renames files within a volume.

use std::ffi::OsString;
use std::io;

use extern4::{Errno, RenameFlags};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::targets::{Destination, NameRelation, name_relation, own_name, report_naming, written_paths};
use crate::text::quoted;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to rename
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// The new name, or a directory to put them into, in the same volume
    #[arg(value_name = "DESTINATION", required = true)]
    destination: OsString,
    /// Do not replace a file that is there, and do not mind it either
    #[arg(short, long)]
    no_clobber: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image_paths = written_paths(&args.image_paths, app);
    let to = app.written_path(&args.destination);
    if let Some(image_path) = image_paths.iter().find(|image_path| !image_path.image.is(&to.image)) {
        app.fail_at(
            ExitStatus::Failed,
            image_path,
            format_args!(
                "is in another volume than {}: copy it with cp -a, then remove it with rm",
                quoted(&to)
            ),
        );
        return Ok(());
    }
    let Some(target) = app.target(&to) else { return Ok(()) };
    let Some(destination) = Destination::new(&target, image_paths.len(), app) else { return Ok(()) };
    let flags = if args.no_clobber { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
    for image_path in &image_paths {
        let Some(new) = destination.of(own_name(&image_path.path)) else {
            app.fail_at(ExitStatus::Failed, image_path, "a root or '.' or '..' is not renamed");
            continue;
        };
        // Such a rename would do nothing, and both names would stay.
        if !args.no_clobber
            && name_relation(target.session(), &image_path.path, &new) != NameRelation::TwoFiles
        {
            let to = target.volume.image_path(&new);
            app.fail(
                ExitStatus::Failed,
                format_args!("{} and {} are the same file", quoted(image_path), quoted(to)),
            );
            continue;
        }
        match target.session().rename_with(&image_path.path, &new, flags) {
            Ok(()) => {}
            Err(error) if args.no_clobber && error.errno() == Errno::EEXIST => {}
            Err(error) => report_naming(&target, image_path, &new, &error, app),
        }
    }
    Ok(())
}
