//! `extern4 ln`: gives files more names, or makes symbolic links.
//!
//! `args` calls [`run`]. A name that exists is kept unless an option replaces it. Hard links
//! between volumes are refused.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use extern4::Errno;
use extern4::copy::own_name;

use crate::app::{App, Target};
use crate::backup::Backup;
use crate::checked::Checked;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::operands::{DestinationKind, Operands};
use crate::real_path::{Missing, real_path, relative};
use crate::targets::{Destination, NameRelation, name_relation, report_naming};
use crate::text::{always_quoted, quoted};

/// For hard links, the sources are files of the volume. With -s they are what the links say, which
/// need not be there.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operands: Checked<Operands>,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// With -s, write the way from the link to its target
    #[arg(short, long, requires = "symbolic")]
    relative: bool,
    /// Replace files that are there
    #[arg(short, long, overrides_with = "interactive")]
    force: bool,
    /// Ask before a file is replaced
    #[arg(short, long)]
    interactive: bool,
    /// Take a destination that is a symbolic link to a directory as the new name
    #[arg(short, long)]
    no_dereference: bool,
    /// For hard links, link to what symbolic links lead to
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// For hard links, link to symbolic links themselves (the default)
    #[arg(short = 'P', long)]
    physical: bool,
    #[command(flatten)]
    backup: Backup,
    /// Print each link that is made
    #[arg(short, long)]
    verbose: bool,
}

/// The other end of a new link.
enum Source {
    /// A file that gets one more name.
    File(ImagePath),
    /// The text of a symbolic link.
    Text(OsString),
}

impl Source {
    fn path(&self) -> &Path {
        match self {
            Self::File(image_path) => &image_path.path,
            Self::Text(text) => Path::new(text),
        }
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Checked(operands) = &args.operands;
    let to = app.written_path(operands.destination());
    let mut sources = Vec::new();
    for text in operands.sources() {
        let is_path =
            !args.symbolic || args.relative && !app.in_script() && ImagePath::is_one(text);
        let source = if is_path {
            Source::File(app.image_path(text))
        } else {
            Source::Text(text.clone())
        };
        if let Source::File(image_path) = &source
            && !image_path.image.is(&to.image)
        {
            let reason = format_args!("is in another volume than {}", quoted(&to));
            app.fail_at(ExitStatus::Failed, image_path, reason);
            return Ok(());
        }
        sources.push(source);
    }
    let Some(target) = app.target(&to) else {
        return Ok(());
    };
    let is_link = args.no_dereference
        && target
            .session()
            .symlink_metadata(target.path())
            .is_ok_and(|found| found.is_symlink());
    let kind = if is_link {
        DestinationKind::Name
    } else {
        operands.kind()
    };
    let Some(destination) = Destination::new(&target, kind, sources.len(), app) else {
        return Ok(());
    };
    app.stop_on_signals();
    for source in &sources {
        if app.is_stopped() {
            break;
        }
        match destination.of(own_name(source.path())) {
            Some(new) => link(args, &target, source, &new, app),
            None => app.fail_at(ExitStatus::Failed, &to, "the link needs a name"),
        }
    }
    app.report_stop("the rest was not linked");
    Ok(())
}

/// Makes one link. Reports a failure.
fn link(args: &Args, target: &Target, source: &Source, new: &Path, app: &mut App) {
    let session = target.session();
    let to = target.volume.image_path(new);
    let replaces = args.force || args.interactive || args.backup.is_on();
    if let Source::File(from) = source
        && replaces
        && !args.symbolic
        && name_relation(session, &from.path, new) == NameRelation::SameName
    {
        let both = format_args!("{} and {} are the same file", quoted(from), quoted(&to));
        return app.fail(ExitStatus::Failed, both);
    }
    let there = session
        .symlink_metadata(new)
        .is_ok_and(|found| !found.is_dir());
    if there && args.interactive && !app.confirm(format_args!("replace {}", to.quoted())) {
        return;
    }
    let kept = match if there {
        args.backup.make(session, new)
    } else {
        Ok(None)
    } {
        Ok(kept) => kept,
        Err(error) => return app.error(&to, &error),
    };
    let end = match end(args, target, source, new) {
        Ok(end) => end,
        Err(error) => return app.fail_at(ExitStatus::Failed, &to, error),
    };
    let make = |new: &Path| {
        if args.symbolic {
            session.symlink(&end, new)
        } else {
            session.hard_link(&end, new)
        }
    };
    let made = if there && kept.is_none() && replaces {
        replace(target, new, make)
    } else {
        make(new)
    };
    match (made, source) {
        (Ok(()), _) if args.verbose => {
            let kept = kept.map(|kept| format!("{} ~ ", target.volume.image_path(&kept).quoted()));
            let (arrow, end) = if args.symbolic {
                (
                    "->",
                    always_quoted(std::os::unix::ffi::OsStrExt::as_bytes(end.as_os_str())),
                )
            } else {
                ("=>", target.volume.image_path(source.path()).quoted())
            };
            app.print(format_args!(
                "{}{} {arrow} {end}",
                kept.unwrap_or_default(),
                to.quoted()
            ));
        }
        (Ok(()), _) => {}
        (Err(error), Source::File(from)) if !args.symbolic => {
            report_naming(target, from, new, &error, app)
        }
        (Err(error), _) => app.error(&to, &error),
    }
}

/// Returns the other end of a link called `new`: the file, or what the link says.
fn end(args: &Args, target: &Target, source: &Source, new: &Path) -> Result<PathBuf, Errno> {
    let session = target.session();
    if args.relative {
        // A path in a volume has no other beginning than the root.
        let to = real_path(
            session,
            &Path::new("/").join(source.path()),
            Missing::Anywhere,
        )?;
        let from = real_path(
            session,
            new.parent().unwrap_or(Path::new("/")),
            Missing::Anywhere,
        )?;
        return Ok(relative(&from, &to));
    }
    if args.logical && !args.symbolic {
        return session
            .canonicalize(source.path())
            .map_err(|error| error.errno());
    }
    Ok(source.path().to_owned())
}

/// Makes a link in the place of a file, under a temporary name first, so that the name always
/// exists.
fn replace(
    target: &Target,
    new: &Path,
    make: impl Fn(&Path) -> extern4::Result<()>,
) -> extern4::Result<()> {
    let session = target.session();
    let mut temporary = OsString::from(".extern4-link.");
    temporary.push(std::process::id().to_string());
    let temporary = new.with_file_name(temporary);
    make(&temporary)?;
    // A rename of one name of a file over another does nothing, and both stay.
    let done = session.rename(&temporary, new);
    let _ = session.remove_file(&temporary);
    done
}
