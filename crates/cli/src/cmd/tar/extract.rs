//! `tar -x`.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use extern4::build::{BuildOptions, Entry, Existing, Kind, UpdateOptions};
use extern4::tar::{ChosenMembers, member_name};

use super::list::report_missing;
use super::member_line::MemberLines;
use super::{Args, misused};
use crate::app::App;
use crate::cmd::build::update::{Reporting, update};
use crate::image_path::ImagePath;
use crate::new_volume::NewVolumeError;

/// The bits that modes lose where the archive's are not kept.
const UMASK: u16 = 0o022;

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let (to, names) = match (&args.directory, &*args.paths) {
        (Some(to), names) => (to, names),
        (None, [to, names @ ..]) => (to, names),
        (None, []) => {
            misused(
                app,
                "name the directory to unpack into: IMAGE:/PATH, or -C IMAGE:/PATH",
            );
            return Ok(());
        }
    };
    let to = app.image_path(to);
    let members = Arc::new(args.members(names));
    let chosen = Arc::clone(&members);
    let options = args.options(app.is_superuser());
    let build = BuildOptions {
        keep_directory_links: args.keep_directory_symlink,
        ..BuildOptions::default()
    };
    let reporting = Reporting {
        dry_run: false,
        verbose: false,
        numbers: false,
        quiet: false,
    };
    let keeps_modes = args.keeps_modes(app.is_superuser());
    update(&to.image, options, reporting, app, |filling, app| {
        let prefix = directory(&to, app).ok_or(NewVolumeError::Reported)?;
        let mut builder = filling.builder(build);
        if !keeps_modes {
            builder.edit(Box::new(without_umask));
        }
        let spool = to
            .image
            .file
            .parent()
            .filter(|above| !above.as_os_str().is_empty());
        let archive = args.archive(spool.unwrap_or(Path::new(".")), app)?;
        let mut source =
            ChosenMembers::new(archive, chosen).strip_components(args.strip_components);
        let (printer, lines) = mpsc::channel();
        if args.verbose > 0 {
            let form = Mutex::new(MemberLines::new(args.verbose > 1, args.full_time));
            source = source.on_member(move |member| {
                let mut form = form.lock().unwrap_or_else(PoisonError::into_inner);
                // The receiver lives until the archive is read.
                let _ = printer.send(form.line(member));
            });
        }
        builder.add(Box::new(source), &prefix)?;
        lines.try_iter().for_each(|line| app.print(line));
        Ok(builder)
    })?;
    if !app.is_stopped() {
        report_missing(&members, app);
    }
    Ok(())
}

/// Returns the path of an existing directory from the root of its volume. A failure is reported.
fn directory(to: &ImagePath, app: &mut App) -> Option<Vec<u8>> {
    let opened = app.volume(&to.image)?;
    let found = opened
        .session
        .at(&to.path)
        .and_then(|_| opened.session.canonicalize(&to.path));
    let found = found.map_err(|error| app.error(to, &error)).ok()?;
    Some(member_name(found.as_os_str().as_bytes()))
}

fn without_umask(entry: &mut Entry) -> Result<(), String> {
    if !matches!(entry.kind, Kind::Symlink(_)) {
        entry.set_mode(entry.mode & !UMASK);
    }
    Ok(())
}

impl Args {
    fn keeps_modes(&self, is_superuser: bool) -> bool {
        !self.no_same_permissions && (is_superuser || self.preserve_permissions)
    }

    fn options(&self, is_superuser: bool) -> UpdateOptions {
        UpdateOptions {
            keeps_others: true,
            keeps_directories: self.no_overwrite_dir,
            keeps_directory_links: self.keep_directory_symlink,
            existing: if self.keep_old_files {
                Existing::Refuse
            } else if self.skip_old_files {
                Existing::Skip
            } else if self.keep_newer_files {
                Existing::KeepNewer
            } else {
                Existing::Replace
            },
            owners: !self.no_same_owner && (is_superuser || self.same_owner),
        }
    }
}
