//! `tar -c`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File as HostFile;
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4::build::{NewFile, TreeFile, TreeWalk, Unreadable, Unwanted};
use extern4::copy::own_name;
use extern4_tree::{Kind, TarWriter};

use super::member_line::MemberLines;
use super::{Args, member_name, misused};
use crate::app::{App, Target};
use crate::cmd::export::ExportError;
use crate::cmd::export::archive::{Pace, buffered, member};
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::volume_tree::path_below;

/// A file that goes into an archive with all below it, and its name there.
struct Operand {
    from: ImagePath,
    name: Vec<u8>,
}

/// An archive that is being made.
struct Creation<'a, W: Write> {
    args: &'a Args,
    tar: TarWriter<W>,
    pace: Pace,
    lines: MemberLines,
    /// The volumes, by their places in the keys of `links`.
    volumes: Vec<Image>,
    /// The first names of files that have several, by volume and inode number.
    links: HashMap<(usize, u64), Vec<u8>>,
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
        Err(ExportError::Stopped) => app.report_stop("the archive is not whole"),
        Err(ExportError::Output(reason)) => {
            app.fail_at(ExitStatus::Failed, args.shown().display(), reason)
        }
        Err(ExportError::Volume(Unreadable { error, .. })) => {
            app.error(args.shown().display(), &error)
        }
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
            name: member_name(word),
        },
        None => {
            let from = app.image_path(word);
            let name = member_name(from.path.as_os_str());
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
            return Err(ExportError::Output(reason.to_owned()));
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
    let out = buffered(out);
    let tar = match args.compression() {
        Some(compression) => TarWriter::compressed(out, compression)?,
        None => TarWriter::new(out),
    };
    let lines = MemberLines::new(args.verbose > 1, args.full_time);
    let pace = Pace::begin("archived", app);
    let volumes = Vec::new();
    let links = HashMap::new();
    let mut creation = Creation {
        args,
        tar,
        pace,
        lines,
        volumes,
        links,
    };
    for operand in operands {
        let Some(target) = app.target(&operand.from) else {
            continue;
        };
        creation.operand(operand, &target, app)?;
    }
    creation.tar.finish()?.flush()?;
    Ok(())
}

impl<W: Write> Creation<'_, W> {
    fn operand(
        &mut self,
        operand: &Operand,
        target: &Target,
        app: &mut App,
    ) -> Result<(), ExportError> {
        let volume = self.volume(&target.volume.image);
        let mut walk = match self.walk(operand, target) {
            Ok(walk) => walk,
            Err(Unreadable { error, .. }) => {
                app.error(&operand.from, &error);
                return Ok(());
            }
        };
        self.pace.expect(target);
        while let Some(file) = walk.next() {
            let added = match file {
                Ok(mut file) => {
                    let added = self.add(&mut file, volume, operand, target, app);
                    if !matches!(added, Ok(true)) {
                        walk.forget_first(&file);
                        self.links.retain(|_, first| *first != file.entry.path);
                    }
                    added.map(drop)
                }
                Err(unreadable) => Err(ExportError::Volume(unreadable)),
            };
            match added {
                Err(ExportError::Volume(unreadable)) => {
                    let path = path_below(target.path(), &unreadable.path);
                    app.error(target.volume.image_path(&path), &unreadable.error);
                }
                added => added?,
            }
        }
        Ok(())
    }

    fn walk(&self, operand: &Operand, target: &Target) -> Result<TreeWalk, Unreadable> {
        let failed = |error| Unreadable {
            path: Vec::new(),
            error,
        };
        let session = target.session();
        let path = target.path();
        let walk = match own_name(path) {
            Some(name) => {
                let above = session
                    .at(path.parent().unwrap_or(Path::new("/")))
                    .map_err(failed)?;
                TreeWalk::of(&above, name.as_bytes())?
            }
            None => TreeWalk::new(&session.at(path).map_err(failed)?)?,
        };
        let rules = self.args.rules.clone();
        let name = operand.name.clone();
        let unwanted: Unwanted = Arc::new(move |path| {
            rules.leaves_out(Path::new(OsStr::from_bytes(&join(&name, path))), true)
        });
        Ok(walk.without(Some(unwanted)))
    }

    /// Adds a file, unless it is left out. Returns whether the archive has it.
    fn add(
        &mut self,
        file: &mut TreeFile,
        volume: usize,
        operand: &Operand,
        target: &Target,
        app: &mut App,
    ) -> Result<bool, ExportError> {
        let path = std::mem::take(&mut file.entry.path);
        file.entry.path = join(&operand.name, &path);
        let shown = Path::new(OsStr::from_bytes(&file.entry.path));
        if self
            .args
            .rules
            .leaves_out(shown, file.entry.kind == Kind::Directory)
        {
            return Ok(false);
        }
        self.link(file, volume, operand);
        let left_out =
            member(file, &mut self.tar, &self.pace).map_err(|failure| match failure {
                ExportError::Volume(Unreadable { error, .. }) => ExportError::Volume(Unreadable {
                    path: path.clone(),
                    error,
                }),
                failure => failure,
            })?;
        if let Some(reason) = left_out {
            app.fail_at(
                ExitStatus::Failed,
                target.volume.image_path(&path_below(target.path(), &path)),
                format_args!("{reason}; left out"),
            );
            return Ok(false);
        }
        if self.args.verbose > 0 {
            self.tell(file, app);
        }
        Ok(true)
    }

    /// Makes a further name of a file a hard link to the first that the archive has.
    fn link(&mut self, file: &mut TreeFile, volume: usize, operand: &Operand) {
        if let Kind::HardLink(first) = &mut file.entry.kind {
            *first = join(&operand.name, first);
        } else if file.metadata.nlink() > 1 && !file.metadata.is_dir() {
            let first = self
                .links
                .entry((volume, file.metadata.ino()))
                .or_insert_with(|| file.entry.path.clone());
            if *first != file.entry.path {
                file.entry.kind = Kind::HardLink(first.clone());
            }
        }
    }

    /// Prints a member where the archive does not go.
    fn tell(&mut self, file: &TreeFile, app: &mut App) {
        let line = self.lines.line(&file.entry);
        if self.args.is_stream() {
            let _ = app
                .progress()
                .suspend(|| writeln!(io::stderr().lock(), "{line}"));
        } else {
            app.print(line);
        }
    }

    fn volume(&mut self, image: &Image) -> usize {
        let known = self.volumes.iter().position(|known| known.is(image));
        known.unwrap_or_else(|| {
            self.volumes.push(image.clone());
            self.volumes.len() - 1
        })
    }
}

fn join(name: &[u8], path: &[u8]) -> Vec<u8> {
    match (name, path) {
        (b"", path) => path.to_vec(),
        (name, b"") => name.to_vec(),
        (name, path) => [name, b"/", path].concat(),
    }
}
