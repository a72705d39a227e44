//! `extern4 getfattr`: shows extended attributes, as `getfattr` writes them and
//! `setfattr --restore` reads them.
//!
//! `args` calls [`run`], and `setfattr --restore` of its output sets the same attributes. An
//! attribute that the caller may not read is not shown.

pub(super) mod encoding;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::{Errno, Session, XattrNamespace};
use regex::Regex;

use crate::app::{App, Opened, Shown, Target};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush};
use crate::text::{Backslash, escape, push_octal};

use encoding::Encoding;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Files to show
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show values too
    #[arg(short, long)]
    dump: bool,
    /// Show only the attribute of this name, with its value
    #[arg(short, long, conflicts_with = "pattern")]
    name: Option<OsString>,
    /// Show attributes whose names match this regular expression; '-' for all (default: ^user\.)
    #[arg(short = 'm', long = "match", value_name = "PATTERN", value_parser = pattern, allow_hyphen_values = true)]
    pattern: Option<Pattern>,
    /// How values are written (default: text where they are text, else base64)
    #[arg(short, long)]
    encoding: Option<Encoding>,
    /// Write values only, as they are
    #[arg(long)]
    only_values: bool,
    /// Show the attributes of symbolic links themselves
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// As always: a walk follows no links
    #[arg(short = 'P', long = "physical", hide = true)]
    _physical: bool,
    /// As always: a volume is one file system
    #[arg(long = "one-file-system", hide = true)]
    _one_file_system: bool,
    /// Show everything below directories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show paths with the slash they start with
    #[arg(long)]
    absolute_names: bool,
    /// Write one JSON object a line for each file, all values included
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The names that are shown.
#[derive(Clone, Debug)]
enum Pattern {
    All,
    Matching(Regex),
}

fn pattern(text: &str) -> Result<Pattern, regex::Error> {
    Ok(if text == "-" {
        Pattern::All
    } else {
        Pattern::Matching(Regex::new(text)?)
    })
}

/// The attributes of a file that are shown. The value is `None` where only names are wanted.
type Attributes = Vec<(OsString, Option<Vec<u8>>)>;

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let shown = app.shown_for(&args.image_paths);
    let mut out = app.out(shown.is_complete());
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let follow = !args.no_dereference && !args.recursive;
        if args.recursive {
            for path in below(args, &target, app) {
                one(args, &target.volume, &path, follow, shown, &mut out, app)?;
            }
        } else {
            one(
                args,
                &target.volume,
                target.path(),
                follow,
                shown,
                &mut out,
                app,
            )?;
        }
    }
    app.end_output(&mut out)
}

/// Returns the paths of everything below an image path, sorted. Links are left out unless the
/// command line asks for links themselves.
fn below(args: &Args, target: &Target, app: &mut App) -> Vec<std::path::PathBuf> {
    let mut paths = Vec::new();
    for entry in target.session().walk(target.path()) {
        match entry {
            Ok(entry) => {
                let link = entry
                    .file_type()
                    .is_ok_and(|kind| kind == extern4::FileType::Symlink);
                if !link || args.no_dereference {
                    paths.push(entry.path().to_owned());
                }
            }
            Err(error) => {
                let path = error.path().unwrap_or(target.path()).to_owned();
                app.error(target.volume.image_path(&path), &error);
            }
        }
    }
    paths.sort();
    paths
}

fn one(
    args: &Args,
    volume: &Opened,
    path: &Path,
    follow: bool,
    shown: Shown,
    out: &mut Out,
    app: &mut App,
) -> io::Result<()> {
    match volume.reach(path, |session, path| read(args, session, path, follow)) {
        Ok(found) => match &args.name {
            Some(name) if found.is_empty() => {
                flush(out)?;
                attribute_failed(&volume.image_path(path), name, None, app);
                Ok(())
            }
            _ if args.json => out.write_all(json_line(volume, path, &found).as_bytes()),
            _ if found.is_empty() => Ok(()),
            _ if args.only_values => found
                .iter()
                .filter_map(|(_, value)| value.as_ref())
                .try_for_each(|value| out.write_all(value)),
            _ => out.write_all(&text(args, volume, path, shown, &found)),
        },
        Err(error) => {
            flush(out)?;
            let image_path = volume.image_path(path);
            match &args.name {
                Some(name) => attribute_failed(&image_path, name, Some(&error), app),
                None => app.error(image_path, &error),
            }
            Ok(())
        }
    }
}

/// Reports a failure at an attribute. Without an error, the attribute is missing.
pub(super) fn attribute_failed(
    image_path: &ImagePath,
    name: &OsStr,
    error: Option<&extern4::Error>,
    app: &mut App,
) {
    let name = escape(name.as_bytes());
    let Some(error) = error else {
        return app.fail_at(
            ExitStatus::Failed,
            image_path,
            format_args!("{name}: No such attribute"),
        );
    };
    match error.errno() {
        Errno::ENODATA => app.fail_at(
            ExitStatus::Failed,
            image_path,
            format_args!("{name}: No such attribute"),
        ),
        Errno::EOPNOTSUPP => {
            let known = "user., trusted., security. and system. are known";
            let reason = format_args!("{name}: there are no attributes of this kind: {known}");
            app.fail_at(ExitStatus::Failed, image_path, reason);
        }
        Errno::E2BIG => app.fail_at(
            ExitStatus::Failed,
            image_path,
            format_args!("{name}: the value is too long"),
        ),
        Errno::EPERM | Errno::ENOSPC | Errno::EDQUOT | Errno::ERANGE | Errno::EINVAL => {
            app.error_about(image_path, &name, error);
        }
        // The file itself cannot be reached.
        _ => app.error(image_path, error),
    }
}

fn read(args: &Args, session: &Session, path: &Path, follow: bool) -> extern4::Result<Attributes> {
    let value = |name: &OsStr| {
        if follow {
            session.getxattr(path, name)
        } else {
            session.lgetxattr(path, name)
        }
    };
    if let Some(name) = &args.name {
        return Ok(value(name)?
            .map(|value| (name.clone(), Some(value)))
            .into_iter()
            .collect());
    }
    let mut names = if follow {
        session.listxattr(path)?
    } else {
        session.llistxattr(path)?
    };
    names.sort();
    names.retain(|name| match &args.pattern {
        None => XattrNamespace::of(name.as_bytes()) == Some(XattrNamespace::User),
        Some(Pattern::All) => true,
        Some(Pattern::Matching(regex)) => regex.is_match(&name.to_string_lossy()),
    });
    let values = args.dump || args.only_values || args.json;
    names
        .into_iter()
        .map(|name| {
            let value = if values { value(&name)? } else { None };
            Ok((name, value))
        })
        .collect()
}

fn text(args: &Args, volume: &Opened, path: &Path, shown: Shown, found: &Attributes) -> Vec<u8> {
    let mut text = b"# file: ".to_vec();
    if shown.is_complete() {
        text.extend(shown.path(&volume.image, path));
    } else {
        text.extend_from_slice(&shown.prefix(&volume.image));
        let path = path.as_os_str().as_bytes();
        let relative = path
            .iter()
            .position(|byte| *byte != b'/')
            .map_or(&b"."[..], |start| &path[start..]);
        let file = if args.absolute_names { path } else { relative };
        push_octal(&mut text, file, b"", Backslash::Octal, shown.terminal);
    }
    text.push(b'\n');
    for (name, value) in found {
        push_octal(
            &mut text,
            name.as_bytes(),
            b"=",
            Backslash::Octal,
            shown.terminal,
        );
        if let Some(value) = value {
            text.push(b'=');
            args.encoding
                .unwrap_or_else(|| Encoding::fitting(value))
                .push(&mut text, value);
        }
        text.push(b'\n');
    }
    text.push(b'\n');
    text
}

fn json_line(volume: &Opened, path: &Path, found: &Attributes) -> String {
    json::line(|object| {
        object.text("image", &volume.image.to_string());
        object.bytes("path", path.as_os_str().as_bytes());
        object.objects("xattrs", found, |(name, value), attribute| {
            attribute.bytes("name", name.as_bytes());
            attribute.bytes("value", value.as_deref().unwrap_or_default());
        });
    })
}
