//! `extern4 mv`: renames files within a volume, and moves them to the host, from it and between
//! volumes.
//!
//! `args` calls [`run`]. A rename is one step. Any other move is a copy, and then a removal
//! (`cp::moving`).

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::copy::own_name;
use extern4::{Errno, RenameFlags};

use crate::app::{App, Target};
use crate::checked::Checked;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::operands::{Operands, without_slashes};
use crate::overwrite::{Overwrite, backup_note};
use crate::targets::{Destination, NameRelation, name_relation, report_naming, written_paths};
use crate::text::quoted;

use super::cp::moving::{self, Move};
use super::cp::{self, Operand};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operands: Checked<Operands>,
    /// Replace files that are there (the default)
    #[arg(short, long, overrides_with_all = ["no_clobber", "interactive"])]
    force: bool,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Ignore slashes at the end of sources
    #[arg(long)]
    strip_trailing_slashes: bool,
    /// Print each file that is renamed
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Checked(operands) = &args.operands;
    let strip = |text: &OsString| {
        if args.strip_trailing_slashes {
            without_slashes(text)
        } else {
            text.clone()
        }
    };
    let sources: Vec<OsString> = operands.sources().iter().map(strip).collect();
    let (from, to) = cp::sides(&sources, operands.destination(), app);
    let in_volume = |to: &ImagePath| {
        let is_there =
            |from: &Operand| matches!(from, Operand::Volume(from) if from.image.is(&to.image));
        from.iter().all(is_there)
    };
    if !matches!(&to, Operand::Volume(to) if in_volume(to)) {
        let overwrite = &args.overwrite;
        let kind = operands.kind();
        let verbose = args.verbose;
        moving::run(
            &Move {
                overwrite,
                kind,
                verbose,
            },
            from,
            &to,
            app,
        );
        return Ok(());
    }
    let image_paths = written_paths(&sources, app);
    let to = app.written_path(operands.destination());
    let Some(target) = app.target(&to) else {
        return Ok(());
    };
    let destination = Destination::new(&target, operands.kind(), image_paths.len(), app);
    let Some(destination) = destination else {
        return Ok(());
    };
    app.stop_on_signals();
    for image_path in &image_paths {
        if app.is_stopped() {
            break;
        }
        match destination.of(own_name(&image_path.path)) {
            Some(new) => rename(args, &target, image_path, &new, app),
            None => app.fail_at(
                ExitStatus::Failed,
                image_path,
                "a root or '.' or '..' is not renamed",
            ),
        }
    }
    app.report_stop("the rest was not renamed");
    Ok(())
}

/// Renames one file. Reports a failure.
fn rename(args: &Args, target: &Target, from: &ImagePath, new: &Path, app: &mut App) {
    let session = target.session();
    let to = target.volume.image_path(new);
    let keeps_all = args.overwrite.keeps_all();
    // Such a rename would do nothing, and both names would stay.
    if !keeps_all && name_relation(session, &from.path, new) != NameRelation::TwoFiles {
        let both = format_args!("{} and {} are the same file", quoted(from), quoted(&to));
        return app.fail(ExitStatus::Failed, both);
    }
    let there = (!args.overwrite.is_plain())
        .then(|| session.symlink_metadata(new).ok())
        .flatten();
    if let (Some(there), Ok(source)) = (&there, session.symlink_metadata(&from.path))
        && !args
            .overwrite
            .allows(source.mtime(), there.mtime(), &to.quoted(), app)
    {
        return;
    }
    let kept = match there.map_or(Ok(None), |_| args.overwrite.backup.make(session, new)) {
        Ok(kept) => kept.map(|kept| target.volume.image_path(&kept)),
        Err(error) => return app.error(&to, &error),
    };
    let flags = if keeps_all {
        RenameFlags::NOREPLACE
    } else {
        RenameFlags::empty()
    };
    match session.rename_with(&from.path, new, flags) {
        Ok(()) if args.verbose => {
            let note = backup_note(kept.as_ref());
            app.print(format_args!(
                "renamed {} -> {}{note}",
                from.quoted(),
                to.quoted()
            ));
        }
        Ok(()) => {}
        Err(error) if keeps_all && error.errno() == Errno::EEXIST => {}
        Err(error) => report_naming(target, from, new, &error, app),
    }
}
