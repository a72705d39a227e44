//! `extern4 setfacl`: changes access control lists, in the words that `getfacl` prints.

mod restore;
mod spec;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use extern4::{Acl, AclEntry, AclKind, Metadata, Session};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::id_names::IdNames;
use crate::image_path::{Image, ImagePath};
use crate::targets::{change, written_paths};
use crate::text::quoted;

use spec::{Bound, Spec};

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Args {
    /// Files to change; with --restore, the directory that its paths start from
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Set these entries: [d:]u:NAME:rwx, g:NAME:rx, m::r, o::-, separated by commas
    #[arg(short, long, value_name = "ENTRIES", value_parser = Spec::with_rights, value_delimiter = ',', group = "what")]
    modify: Vec<Spec>,
    /// Remove these entries: [d:]u:NAME, g:NAME, m:, separated by commas; before -m
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = Spec::without_rights, value_delimiter = ',', group = "what")]
    remove: Vec<Spec>,
    /// Remove all entries but those of the permission bits; before -x and -m
    #[arg(short = 'b', long, group = "what")]
    remove_all: bool,
    /// Remove default ACLs; before -x and -m
    #[arg(short = 'k', long, group = "what")]
    remove_default: bool,
    /// The entries are those of the default ACL, which new files in a directory get
    #[arg(short, long)]
    default: bool,
    /// Change everything below directories too; symbolic links are left alone
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Set what this output of getfacl says: ACLs, owners and modes ('-' for standard input)
    #[arg(
        long,
        value_name = "FILE",
        group = "what",
        conflicts_with_all = ["modify", "remove", "remove_all", "remove_default", "default", "recursive"]
    )]
    restore: Option<PathBuf>,
}

/// The changes to make in one volume, with names turned into its numbers.
struct Edit {
    image: Image,
    modify: Vec<Bound>,
    remove: Vec<Bound>,
}

/// A change that would make an ACL invalid, or an error of the volume.
enum Failure {
    Volume(extern4::Error),
    Says(String),
}

impl From<extern4::Error> for Failure {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if let Some(file) = &args.restore {
        restore::run(file, &args.image_paths, app);
        return Ok(());
    }
    // Names first: if one is unknown, nothing is changed anywhere.
    let image_paths: Vec<ImagePath> = args.image_paths.iter().map(|text| app.image_path(text)).collect();
    let mut edits: Vec<Edit> = Vec::new();
    for image_path in &image_paths {
        if edits.iter().any(|edit| edit.image == image_path.image) {
            continue;
        }
        let named = args.modify.iter().chain(&args.remove).any(Spec::has_name);
        let Some(names) = (if named { app.names_of(&image_path.image) } else { Some(IdNames::default()) })
        else {
            return Ok(());
        };
        match edit(args, &image_path.image, &names) {
            Ok(edit) => edits.push(edit),
            Err(message) => {
                app.fail(ExitStatus::Failed, format_args!("{message} {}", quoted(&image_path.image)));
                return Ok(());
            }
        }
    }
    for image_path in written_paths(&args.image_paths, app) {
        let Some(edit) = edits.iter().find(|edit| edit.image == image_path.image) else { continue };
        let Some(target) = app.target(&image_path) else { continue };
        let mut senseless = Vec::new();
        change(&target, args.recursive, app, |session, path, found| {
            if found.is_symlink() {
                return Ok(());
            }
            match apply(args, edit, session, path, found) {
                Ok(()) => Ok(()),
                Err(Failure::Volume(error)) => Err(error),
                Err(Failure::Says(message)) => {
                    senseless.push((path.to_owned(), message));
                    Ok(())
                }
            }
        });
        for (path, message) in senseless {
            app.fail_at(ExitStatus::Failed, target.volume.image_path(&path), &message);
        }
    }
    Ok(())
}

fn edit(args: &Args, image: &Image, names: &IdNames) -> Result<Edit, String> {
    let bind = |specs: &[Spec]| {
        specs.iter().map(|spec| spec.bind(args.default, names)).collect::<Result<Vec<_>, _>>()
    };
    Ok(Edit { image: image.clone(), modify: bind(&args.modify)?, remove: bind(&args.remove)? })
}

fn apply(args: &Args, edit: &Edit, session: &Session, path: &Path, found: &Metadata) -> Result<(), Failure> {
    let old = session.acl(path, AclKind::Access)?;
    let bits = Acl::from_mode(found.mode());
    let mut access = old.as_ref().unwrap_or(&bits).entries().to_vec();
    if args.remove_all {
        spec::remove_extended(&mut access);
    }
    // The meaning of X depends on the ACL before the change.
    let executable = found.is_dir() || access.iter().any(|entry| entry.perm & 1 != 0);
    spec::edit(&mut access, &edit.remove, &edit.modify, false, executable);
    let new = sensible(access)?;
    if new != *old.as_ref().unwrap_or(&bits) {
        session.set_acl(path, AclKind::Access, Some(new.clone()))?;
    }
    let touched = edit.modify.iter().chain(&edit.remove).any(|spec| spec.default);
    if !found.is_dir() {
        return if touched && !args.recursive {
            Err(Failure::Says("only directories have default ACLs".to_owned()))
        } else {
            Ok(())
        };
    }
    let old = session.acl(path, AclKind::Default)?;
    let kept = old.as_ref().filter(|_| !args.remove_all && !args.remove_default);
    let mut default = kept.map(|acl| acl.entries().to_vec()).unwrap_or_default();
    if edit.modify.iter().any(|spec| spec.default) {
        spec::complete(&mut default, &new);
    }
    if touched && !default.is_empty() {
        spec::edit(&mut default, &edit.remove, &edit.modify, true, true);
    }
    let new = if default.is_empty() { None } else { Some(sensible(default)?) };
    if new != old {
        session.set_acl(path, AclKind::Default, new)?;
    }
    Ok(())
}

fn sensible(mut entries: Vec<AclEntry>) -> Result<Acl, Failure> {
    entries.sort_by_key(|entry| entry.tag);
    Acl::new(entries).map_err(|error| Failure::Says(error.to_string()))
}
