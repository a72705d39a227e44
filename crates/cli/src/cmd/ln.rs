//! `extern4 ln`: gives files more names, or makes symbolic links.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::targets::{Destination, NameRelation, name_relation, own_name, report_naming};
use crate::text::quoted;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to link to; with -s, what the links say, which need not be there
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<OsString>,
    /// The new name, or a directory to make links in
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_path: OsString,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// Replace files that are there
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let to = app.written_path(&args.image_path);
    let sources: Vec<ImagePath> = if args.symbolic {
        Vec::new()
    } else {
        args.targets.iter().map(|text| app.image_path(text)).collect()
    };
    if let Some(image_path) = sources.iter().find(|image_path| !image_path.image.is(&to.image)) {
        app.fail_at(
            ExitStatus::Failed,
            image_path,
            format_args!("is in another volume than {}", quoted(&to)),
        );
        return Ok(());
    }
    let Some(target) = app.target(&to) else { return Ok(()) };
    let Some(destination) = Destination::new(&target, args.targets.len(), app) else { return Ok(()) };
    for (index, text) in args.targets.iter().enumerate() {
        let source = sources.get(index);
        let Some(new) =
            destination.of(own_name(source.map_or(Path::new(text), |image_path| &image_path.path)))
        else {
            app.fail_at(ExitStatus::Failed, &to, "the link needs a name");
            continue;
        };
        if let Some(image_path) = source.filter(|_| args.force)
            && name_relation(target.session(), &image_path.path, &new) == NameRelation::SameName
        {
            let to = target.volume.image_path(&new);
            app.fail(
                ExitStatus::Failed,
                format_args!("{} and {} are the same file", quoted(image_path), quoted(to)),
            );
            continue;
        }
        let made = link(args, &target, source, text, &new);
        if let Err(error) = made {
            match source {
                Some(image_path) => report_naming(&target, image_path, &new, &error, app),
                None => app.error(target.volume.image_path(&new), &error),
            }
        }
    }
    Ok(())
}

fn link(
    args: &Args,
    target: &Target,
    source: Option<&ImagePath>,
    text: &OsString,
    new: &Path,
) -> extern4::Result<()> {
    let session = target.session();
    let make = |new: &Path| match source {
        Some(image_path) => session.hard_link(&image_path.path, new),
        None => session.symlink(text, new),
    };
    if !args.force {
        return make(new);
    }
    match session.symlink_metadata(new) {
        Ok(found) if !found.is_dir() => {}
        _ => return make(new),
    }
    // A file of that name exists. The link is made under a temporary name and renamed, so that the
    // name always exists.
    let mut temporary = OsString::from(".extern4-link.");
    temporary.push(std::process::id().to_string());
    let temporary = new.with_file_name(temporary);
    make(&temporary)?;
    // A rename of one name of a file over another does nothing, and both stay.
    let done = session.rename(&temporary, new);
    let _ = session.remove_file(&temporary);
    done
}
