//! `tar -c`.

use std::fs::File as HostFile;
use std::io::{self, IsTerminal as _, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;

use extern4::build::{Entry, NewFile, Unreadable};
use extern4::export::{ExportError, ExportObserver};
use extern4::tar::{TarBuilder, member_name};

use super::member_line::MemberLines;
use super::{Args, misused};
use crate::app::{App, Target};
use crate::cmd::export::{Pace, reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::volume_tree::path_below;

/// A file that goes into an archive with all below it, and its name there.
struct Operand {
    from: ImagePath,
    name: Vec<u8>,
}

/// Follows an archive: its progress, the lines about members, and what it does not get.
struct Follower<'a> {
    args: &'a Args,
    pace: &'a mut Pace,
    lines: &'a mut MemberLines,
    target: &'a Target,
    app: &'a mut App,
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let operands = operands(args, app);
    if operands.is_empty() {
        misused(app, "name the files to put into the archive: IMAGE:/PATH");
        return Ok(());
    }
    match write(args, &operands, app) {
        // A signal that came after the last member came too late.
        Ok(()) => {}
        Err(ExportError::Interrupted) => app.report_stop("the archive is not whole"),
        Err(error) => app.fail_at(ExitStatus::Failed, args.shown().display(), reason(&error)),
    }
    Ok(())
}

fn operands(args: &Args, app: &App) -> Vec<Operand> {
    let base = args
        .directory
        .as_ref()
        .map(|directory| app.image_path(directory));
    let operand = |word| match &base {
        Some(base) => Operand {
            from: base.join(word),
            name: member_name(word.as_bytes()),
        },
        None => {
            let from = app.image_path(word);
            let name = member_name(from.path.as_os_str().as_bytes());
            Operand { from, name }
        }
    };
    args.paths
        .iter()
        .map(|word| operand(word.as_os_str()))
        .collect()
}

/// Writes the archive.
fn write(args: &Args, operands: &[Operand], app: &mut App) -> Result<(), ExportError> {
    if args.is_stream() {
        if io::stdout().is_terminal() {
            let reason = "an archive is not for a terminal; name a file with -f";
            return Err(io::Error::other(reason).into());
        }
        let out = HostFile::from(rustix::io::dup(io::stdout()).map_err(io::Error::from)?);
        return write_to(out, args, operands, app);
    }
    // A device or a pipe keeps its name.
    if args.file.metadata().is_ok_and(|found| !found.is_file()) {
        return write_to(
            HostFile::options().write(true).open(&args.file)?,
            args,
            operands,
            app,
        );
    }
    let file = NewFile::new(&args.file)?;
    write_to(file.file(), args, operands, app)?;
    file.finish(&args.file, true)?;
    Ok(())
}

fn write_to(
    out: impl Write,
    args: &Args,
    operands: &[Operand],
    app: &mut App,
) -> Result<(), ExportError> {
    let mut tar = TarBuilder::new(out, args.compression())?.filter(args.rules.0.clone());
    let mut lines = MemberLines::new(args.verbose > 1, args.full_time);
    let mut pace = Pace::begin("archived", app);
    for operand in operands {
        let Some(target) = app.target(&operand.from) else {
            continue;
        };
        let mut follower = Follower {
            args,
            pace: &mut pace,
            lines: &mut lines,
            target: &target,
            app,
        };
        let added = tar.add(
            &target.volume.volume,
            target.session(),
            target.path(),
            &operand.name,
            &mut follower,
        );
        match added {
            Err(ExportError::Volume(Unreadable { error, .. })) => app.error(&operand.from, &error),
            added => added?,
        }
    }
    tar.finish()?;
    Ok(())
}

impl ExportObserver for Follower<'_> {
    fn wants_total(&self) -> bool {
        self.pace.wants_total()
    }

    fn expect(&mut self, bytes: u64) {
        self.pace.expect(bytes);
    }

    fn advance(&mut self, files: u64, bytes: u64) -> ControlFlow<()> {
        self.pace.advance(files, bytes)
    }

    fn left_out(&mut self, path: &[u8], reason: &'static str) {
        self.app.fail_at(
            ExitStatus::Failed,
            self.image_path(path),
            format_args!("{reason}; left out"),
        );
    }

    /// Prints the member where the archive does not go.
    fn added(&mut self, member: &Entry) {
        if self.args.verbose == 0 {
            return;
        }
        let line = self.lines.line(member);
        if self.args.is_stream() {
            let _ = self
                .app
                .progress()
                .suspend(|| writeln!(io::stderr().lock(), "{line}"));
        } else {
            self.app.print(line);
        }
    }

    fn failed(&mut self, unreadable: &Unreadable) {
        self.app
            .error(self.image_path(&unreadable.path), &unreadable.error);
    }
}

impl Follower<'_> {
    /// Returns a path below the operand for messages.
    fn image_path(&self, path: &[u8]) -> ImagePath {
        self.target
            .volume
            .image_path(&path_below(self.target.path(), path))
    }
}
