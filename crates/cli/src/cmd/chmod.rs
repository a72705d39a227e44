//! `extern4 chmod`: changes permission bits.
//!
//! `args` calls [`run`]. Symbolic links below a directory are left alone.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::app::{App, Target};
use crate::checked::{Check, Checked};
use crate::exit_status::ExitStatus;
use crate::mode_change::ModeChange;
use crate::targets::{FoundFile, Traversal, change_files, written_paths};
use crate::text::ModeText;
use crate::verbosity::Verbosity;

/// The arguments.
pub(crate) type Args = Checked<Line>;

#[derive(clap::Args)]
pub(crate) struct Line {
    /// An octal mode, or clauses such as u+rwX,go-w, unless --reference is given
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    mode: OsString,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required_unless_present = "reference")]
    image_paths: Vec<OsString>,
    /// Take the mode from this file
    #[arg(long, value_name = "PATH")]
    reference: Option<OsString>,
    /// Change everything below directories too; symbolic links are left alone
    #[arg(short = 'R', long)]
    recursive: bool,
    /// With -R, refuse the root of a volume
    #[arg(long, overrides_with = "no_preserve_root")]
    preserve_root: bool,
    /// With -R, change the root of a volume as any directory (the default)
    #[arg(long)]
    no_preserve_root: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Line {
    /// Reads the first operand, which is no mode if --reference is given.
    fn mode(&self) -> Result<Option<ModeChange>, String> {
        if self.reference.is_some() {
            return Ok(None);
        }
        let text = self.mode.to_string_lossy();
        ModeChange::argument(&text)
            .map(Some)
            .map_err(|message| format!("invalid value {text:?}: {message}"))
    }
}

impl Check for Line {
    fn check(&mut self) -> Result<(), String> {
        self.mode().map(drop)
    }
}

/// The umask for a clause that names no class of users: that of new files.
const UMASK: u32 = 0o022;

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    let Ok(mode) = args.mode() else { return Ok(()) };
    let first = mode.is_none().then_some(&args.mode);
    let paths: Vec<_> = first
        .into_iter()
        .chain(&args.image_paths)
        .cloned()
        .collect();
    app.set_silent(args.verbosity.silent);
    let image_paths = written_paths(&paths, app);
    if let Some(mode) = mode.or_else(|| reference(args, app)) {
        for image_path in image_paths {
            if let Some(target) = app.target(&image_path) {
                change(args, &mode, &target, app);
            }
        }
    }
    app.set_silent(false);
    Ok(())
}

/// Returns the mode of the reference. Reports a failure.
fn reference(args: &Line, app: &mut App) -> Option<ModeChange> {
    let image_path = app.image_path(args.reference.as_ref()?);
    let target = app.target(&image_path)?;
    match target.session().metadata(target.path()) {
        Ok(found) => Some(ModeChange::Octal {
            mode: found.mode() & 0o7777,
            whole: true,
        }),
        Err(error) => {
            app.error(&image_path, &error);
            None
        }
    }
}

fn change(args: &Line, mode: &ModeChange, target: &Target, app: &mut App) {
    if args.recursive && args.preserve_root && target.path() == Path::new("/") {
        let reason = "the root of a volume, which --preserve-root keeps";
        return app.fail_at(ExitStatus::Failed, &target.image_path, reason);
    }
    if args.verbosity.tells(false) && target.session().symlink_metadata(target.path()).is_err() {
        app.print(format_args!(
            "{} could not be accessed",
            target.image_path.quoted()
        ));
    }
    let traversal = if args.recursive {
        Traversal::Physical
    } else {
        Traversal::Single
    };
    change_files(target, traversal, app, |file| {
        if file.metadata.is_symlink() {
            return Ok(args.verbosity.tells(false).then(|| {
                format!(
                    "neither symbolic link {} nor referent has been changed",
                    file.quoted()
                )
            }));
        }
        let old = file.metadata.mode() & 0o7777;
        let new = mode.apply(old, file.metadata.is_dir(), UMASK);
        file.session.set_permissions(file.path, new)?;
        Ok(args
            .verbosity
            .tells(old != new)
            .then(|| line(file, old, new)))
    });
}

fn line(file: &FoundFile<'_>, old: u32, new: u32) -> String {
    let kind = file.metadata.file_type();
    // The letter of the type is not a part of the mode.
    let letters = |mode| ModeText { kind, mode }.to_string()[1..].to_owned();
    let shown = file.quoted();
    if old == new {
        return format!("mode of {shown} retained as {old:04o} ({})", letters(old));
    }
    format!(
        "mode of {shown} changed from {old:04o} ({}) to {new:04o} ({})",
        letters(old),
        letters(new)
    )
}
