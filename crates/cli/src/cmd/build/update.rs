//! `--update`: brings a volume that is there to the state of the sources.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use extern4::Errno;
use extern4::build::{Builder, Change, Update, UpdateError, UpdateOptions, UpdateStep, Watch};

use crate::app::App;
use crate::image_path::{Image, ImagePath};
use crate::new_volume::{Filling, NewVolumeError};
use crate::text::counted;
use crate::volume_tree::path_below;

/// How an update reports its work.
#[derive(Clone, Copy)]
pub(crate) struct Reporting {
    /// Whether it only says what it would do.
    pub(crate) dry_run: bool,
    /// Whether it prints a line about each change.
    pub(crate) verbose: bool,
    /// Whether it prints the numbers.
    pub(crate) numbers: bool,
    /// Whether it shows no progress.
    pub(crate) quiet: bool,
}

/// Updates the volume in `image` by the sources that `collect` puts together.
pub(crate) fn update(
    image: &Image,
    options: UpdateOptions,
    reporting: Reporting,
    app: &mut App,
    collect: impl FnOnce(&Filling, &mut App) -> Result<Builder, NewVolumeError>,
) -> io::Result<()> {
    let done = Filling::run(image, reporting.quiet, app, |filling, app| {
        let builder = collect(filling, app)?;
        run(image, builder, options, reporting, filling, app)
    });
    match done {
        Ok(()) => {}
        Err(NewVolumeError::Stopped) => app.report_stop("nothing was changed"),
        Err(failure) => failure.report(image, app),
    }
    Ok(())
}

fn run(
    image: &Image,
    builder: Builder,
    options: UpdateOptions,
    reporting: Reporting,
    filling: &Filling,
    app: &mut App,
) -> Result<(), NewVolumeError> {
    let watch = filling.watch();
    // A volume that is open for reading stays as it is, access times included.
    let opened = app.volume(image).ok_or(NewVolumeError::Reported)?;
    let planned = Update::plan(builder.merge()?, &opened.session, options, Some(&watch));
    let update = planned.map_err(|error| failed(error, image, app))?;
    update.warnings().for_each(|warning| app.note(warning));
    for refused in update.refused() {
        app.error(at(image, &refused.path), &refused.error);
    }
    if reporting.dry_run {
        for (change, path) in update.changes() {
            app.print(format_args!(
                "would {} {}",
                infinitive(change),
                at(image, path).quoted()
            ));
        }
    }
    let written = if reporting.dry_run || update.summary().is_empty() {
        update.summary().bytes
    } else {
        write(image, &update, reporting, &watch, app)?
    };
    if reporting.numbers && !app.is_stopped() {
        app.print(numbers(&update, written, reporting.dry_run));
    }
    Ok(())
}

/// Writes what differs. Returns the bytes of contents that were written.
fn write(
    image: &Image,
    update: &Update,
    reporting: Reporting,
    watch: &Watch,
    app: &mut App,
) -> Result<u64, NewVolumeError> {
    app.write_to(image);
    let opened = app.volume(image).ok_or(NewVolumeError::Reported)?;
    let mut done = 0;
    let all = update.changes().count() as u64;
    let ended = update.run(&opened.session, Some(watch), &mut |step| match step {
        UpdateStep::Done(change, path) => {
            done += 1;
            if reporting.verbose {
                app.print(format_args!(
                    "{} {}",
                    participle(change),
                    at(image, path).quoted()
                ));
            }
            ControlFlow::Continue(())
        }
        UpdateStep::Failed(unreadable) => {
            app.error(at(image, &unreadable.path), &unreadable.error);
            // All that follows would fail as well.
            match unreadable.error.errno() {
                Errno::ENOSPC | Errno::EROFS | Errno::EIO => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    });
    match ended {
        Ok(written) => Ok(written),
        Err(UpdateError::Interrupted) => {
            app.report_stop(format_args!(
                "{done} of {} done",
                counted(all, "change", "changes")
            ));
            Err(NewVolumeError::Reported)
        }
        Err(error) => Err(failed(error, image, app)),
    }
}

fn failed(error: UpdateError, image: &Image, app: &mut App) -> NewVolumeError {
    match error {
        UpdateError::Source(error) => error.into(),
        UpdateError::Volume(unreadable) => {
            app.error(at(image, &unreadable.path), &unreadable.error);
            NewVolumeError::Reported
        }
        error => NewVolumeError::failed(error),
    }
}

fn at(image: &Image, path: &[u8]) -> ImagePath {
    ImagePath {
        image: image.clone(),
        path: path_below(Path::new("/"), path),
    }
}

fn infinitive(change: Change) -> &'static str {
    match change {
        Change::Create => "create",
        Change::Replace => "replace",
        Change::SetAttributes => "change",
        Change::Remove => "remove",
    }
}

fn participle(change: Change) -> &'static str {
    match change {
        Change::Create => "created",
        Change::Replace => "replaced",
        Change::SetAttributes => "changed",
        Change::Remove => "removed",
    }
}

fn numbers(update: &Update, written: u64, dry_run: bool) -> String {
    let summary = update.summary();
    format!(
        "{} created, {} replaced, {} changed, {} removed, {} kept, {written} bytes {}",
        summary.created,
        summary.replaced,
        summary.changed,
        summary.removed,
        summary.kept,
        if dry_run { "to write" } else { "written" },
    )
}
