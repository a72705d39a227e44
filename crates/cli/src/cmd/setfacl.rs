//! `extern4 setfacl`: changes access control lists, in the words that `getfacl` prints.
//!
//! `args` calls [`run`]. Names are looked up in the volume before any of its files changes. A
//! change that would make an ACL invalid is refused for that file.

mod entries_file;
mod restore;
mod spec;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use extern4::{Acl, AclEntry, AclKind, AclTag, Metadata, Session};

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::id_names::IdNames;
use crate::image_path::{Image, ImagePath};
use crate::targets::{Traversal, change_files, written_paths};
use crate::text::quoted;

use spec::{Bound, MaskRule, Spec, Which};

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Args {
    /// Files to change; with --restore, the directory that its paths start from
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Set these entries: [d:]u:NAME:rwx, g:NAME:rx, m::r, o::-, separated by commas
    #[arg(short, long, value_name = "ENTRIES", value_parser = Spec::with_rights, value_delimiter = ',', group = "what")]
    modify: Vec<Spec>,
    /// Set the entries of this file, one a line ('-' for standard input)
    #[arg(short = 'M', long, value_name = "FILE", group = "what")]
    modify_file: Option<PathBuf>,
    /// Replace the ACL by these entries
    #[arg(long, value_name = "ENTRIES", value_parser = Spec::with_rights, value_delimiter = ',', group = "what")]
    set: Vec<Spec>,
    /// Replace the ACL by the entries of this file, one a line ('-' for standard input)
    #[arg(long, value_name = "FILE", group = "what")]
    set_file: Option<PathBuf>,
    /// Remove these entries: [d:]u:NAME, g:NAME, m:, separated by commas; before -m
    #[arg(short = 'x', long, value_name = "ENTRIES", value_parser = Spec::without_rights, value_delimiter = ',', group = "what")]
    remove: Vec<Spec>,
    /// Remove the entries of this file, one a line ('-' for standard input)
    #[arg(short = 'X', long, value_name = "FILE", group = "what")]
    remove_file: Option<PathBuf>,
    /// Compute the mask again, even if an entry sets it
    #[arg(long, overrides_with = "no_mask")]
    mask: bool,
    /// Do not compute the mask again
    #[arg(short, long)]
    no_mask: bool,
    /// Change nothing, and print the ACLs that would be there
    #[arg(long, conflicts_with = "restore")]
    test: bool,
    /// With -R, follow symbolic links to directories
    #[arg(short = 'L', long, overrides_with = "physical")]
    logical: bool,
    /// With -R, do not follow symbolic links, as without this option
    #[arg(short = 'P', long)]
    physical: bool,
    /// Remove all entries but the entries of the permission bits; before -x and -m
    #[arg(short = 'b', long, group = "what")]
    remove_all: bool,
    /// Remove default ACLs; before -x and -m
    #[arg(short = 'k', long, group = "what")]
    remove_default: bool,
    /// The entries are entries of the default ACL, which new files in a directory get
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
        conflicts_with_all = ["modify", "remove", "remove_all", "remove_default", "default", "recursive",
            "set", "set_file", "modify_file", "remove_file"]
    )]
    restore: Option<PathBuf>,
}

/// The entries of the options and of the files that these name.
struct Entries {
    set: Vec<Spec>,
    modify: Vec<Spec>,
    remove: Vec<Spec>,
}

/// The changes to make in one volume, with names turned into its numbers.
struct Edit {
    image: Image,
    set: Vec<Bound>,
    modify: Vec<Bound>,
    remove: Vec<Bound>,
}

/// The ACLs of a file, and the ACLs that it is to have.
struct Change {
    access: Option<Acl>,
    /// The default ACL; an inner `None` for none.
    default: Option<Option<Acl>>,
}

/// A change that would make an ACL invalid, or an error of the volume.
enum SetfaclError {
    Volume(extern4::Error),
    Says(String),
}

impl From<extern4::Error> for SetfaclError {
    fn from(error: extern4::Error) -> Self {
        Self::Volume(error)
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if let Some(file) = &args.restore {
        restore::run(file, &args.image_paths, app);
        return Ok(());
    }
    let given = match Entries::read(args, app) {
        Ok(given) => given,
        Err(message) => {
            app.fail(ExitStatus::Failed, message);
            return Ok(());
        }
    };
    // Names first: if one is unknown, nothing is changed anywhere.
    let image_paths: Vec<ImagePath> = args
        .image_paths
        .iter()
        .map(|text| app.image_path(text))
        .collect();
    let mut edits: Vec<Edit> = Vec::new();
    for image_path in &image_paths {
        if edits.iter().any(|edit| edit.image == image_path.image) {
            continue;
        }
        let named = given
            .set
            .iter()
            .chain(&given.modify)
            .chain(&given.remove)
            .any(Spec::has_name);
        let Some(names) = (if named {
            app.names_of(&image_path.image)
        } else {
            Some(IdNames::default())
        }) else {
            return Ok(());
        };
        match edit(args, &given, &image_path.image, &names) {
            Ok(edit) => edits.push(edit),
            Err(message) => {
                app.fail(
                    ExitStatus::Failed,
                    format_args!("{message} {}", quoted(&image_path.image)),
                );
                return Ok(());
            }
        }
    }
    if !args.test {
        written_paths(&args.image_paths, app);
    }
    for image_path in image_paths {
        let Some(edit) = edits.iter().find(|edit| edit.image == image_path.image) else {
            continue;
        };
        let Some(target) = app.target(&image_path) else {
            continue;
        };
        let mut senseless = Vec::new();
        change_files(&target, args.traversal(), app, |file| {
            if file.metadata.is_symlink() {
                return Ok(None);
            }
            let done =
                plan(args, edit, file.session, file.path, file.metadata).and_then(|change| {
                    if args.test {
                        Ok(Some(format!(
                            "{}: {}",
                            file.shown,
                            change.text(target.volume.names())
                        )))
                    } else {
                        Ok(change.apply(file.session, file.path).map(|()| None)?)
                    }
                });
            match done {
                Ok(line) => Ok(line),
                Err(SetfaclError::Volume(error)) => Err(error),
                Err(SetfaclError::Says(message)) => {
                    senseless.push((file.shown.clone(), message));
                    Ok(None)
                }
            }
        });
        for (place, message) in senseless {
            app.fail_at(ExitStatus::Failed, place, &message);
        }
    }
    Ok(())
}

impl Args {
    fn traversal(&self) -> Traversal {
        match (self.recursive, self.logical) {
            (false, _) => Traversal::Single,
            (true, false) => Traversal::Physical,
            (true, true) => Traversal::Logical,
        }
    }
}

impl Entries {
    /// Reads the files that the options name. The error names the one that cannot be read.
    fn read(args: &Args, app: &App) -> Result<Self, String> {
        type Parse = fn(&str) -> Result<Spec, String>;
        let all =
            |given: &[Spec], file: &Option<PathBuf>, parse: Parse| -> Result<Vec<Spec>, String> {
                let read = file
                    .as_ref()
                    .map(|file| entries_file::read(file, parse, app.stop()))
                    .transpose()?;
                Ok([given, &read.unwrap_or_default()].concat())
            };
        Ok(Self {
            set: all(&args.set, &args.set_file, Spec::with_rights)?,
            modify: all(&args.modify, &args.modify_file, Spec::with_rights)?,
            remove: all(&args.remove, &args.remove_file, Spec::without_rights)?,
        })
    }
}

fn edit(args: &Args, given: &Entries, image: &Image, names: &IdNames) -> Result<Edit, String> {
    let bind = |specs: &[Spec]| {
        specs
            .iter()
            .map(|spec| spec.bind(args.default, names))
            .collect::<Result<Vec<_>, _>>()
    };
    let set = bind(&given.set)?;
    let mut modify = bind(&given.set)?;
    modify.extend(bind(&given.modify)?);
    Ok(Edit {
        image: image.clone(),
        set,
        modify,
        remove: bind(&given.remove)?,
    })
}

/// Returns the ACLs that a file is to have.
fn plan(
    args: &Args,
    edit: &Edit,
    session: &Session,
    path: &Path,
    found: &Metadata,
) -> Result<Change, SetfaclError> {
    let mask = match (args.mask, args.no_mask) {
        (true, _) => MaskRule::Always,
        (_, true) => MaskRule::Never,
        _ => MaskRule::Usual,
    };
    let old = session.acl(path, AclKind::Access)?;
    let bits = Acl::from_mode(found.mode());
    let mut access = old.as_ref().unwrap_or(&bits).entries().to_vec();
    // The meaning of X depends on the ACL before the change.
    let executable = found.is_dir() || access.iter().any(|entry| entry.perm & 1 != 0);
    if edit.set.iter().any(|spec| !spec.default) {
        access.clear();
    } else if args.remove_all {
        spec::remove_extended(&mut access);
    }
    spec::edit(
        &mut access,
        &edit.remove,
        &edit.modify,
        Which {
            default: false,
            executable,
            mask,
        },
    );
    let new = sensible(access)?;
    let change = Change {
        access: (new != *old.as_ref().unwrap_or(&bits)).then(|| new.clone()),
        default: None,
    };
    let touched = edit
        .modify
        .iter()
        .chain(&edit.remove)
        .any(|spec| spec.default);
    if !found.is_dir() {
        return if touched && !args.recursive {
            Err(SetfaclError::Says(
                "only directories have default ACLs".to_owned(),
            ))
        } else {
            Ok(change)
        };
    }
    let old = session.acl(path, AclKind::Default)?;
    let replaced =
        args.remove_all || args.remove_default || edit.set.iter().any(|spec| spec.default);
    let kept = old.as_ref().filter(|_| !replaced);
    let mut default = kept.map(|acl| acl.entries().to_vec()).unwrap_or_default();
    if edit.modify.iter().any(|spec| spec.default) {
        spec::complete(&mut default, &new);
    }
    if touched && !default.is_empty() {
        spec::edit(
            &mut default,
            &edit.remove,
            &edit.modify,
            Which {
                default: true,
                executable: true,
                mask,
            },
        );
    }
    let new = if default.is_empty() {
        None
    } else {
        Some(sensible(default)?)
    };
    Ok(Change {
        default: (new != old).then_some(new),
        ..change
    })
}

impl Change {
    fn apply(self, session: &Session, path: &Path) -> extern4::Result<()> {
        if let Some(access) = self.access {
            session.set_acl(path, AclKind::Access, Some(access))?;
        }
        if let Some(default) = self.default {
            session.set_acl(path, AclKind::Default, default)?;
        }
        Ok(())
    }

    /// Returns the new ACLs as `--test` prints them, with a star for one that stays as it is.
    fn text(&self, names: &IdNames) -> String {
        let access = self
            .access
            .as_ref()
            .map_or_else(|| "*".to_owned(), |acl| short(acl, "", names));
        let default = match &self.default {
            None => "*".to_owned(),
            Some(None) => String::new(),
            Some(Some(acl)) => short(acl, "d:", names),
        };
        format!("{access},{default}")
    }
}

/// Returns the entries of an ACL in one line.
fn short(acl: &Acl, prefix: &str, names: &IdNames) -> String {
    let entry = |entry: &AclEntry| {
        let (word, name) = match entry.tag {
            AclTag::UserObj => ("u", String::new()),
            AclTag::User(uid) => ("u", names.user(uid).into_owned()),
            AclTag::GroupObj => ("g", String::new()),
            AclTag::Group(gid) => ("g", names.group(gid).into_owned()),
            AclTag::Mask => ("m", String::new()),
            AclTag::Other => ("o", String::new()),
        };
        let rights = [(4, 'r'), (2, 'w'), (1, 'x')];
        let rights = rights.map(|(bit, letter)| if entry.perm & bit != 0 { letter } else { '-' });
        format!(
            "{prefix}{word}:{name}:{}",
            rights.iter().collect::<String>()
        )
    };
    acl.entries()
        .iter()
        .map(entry)
        .collect::<Vec<_>>()
        .join(",")
}

fn sensible(mut entries: Vec<AclEntry>) -> Result<Acl, SetfaclError> {
    entries.sort_by_key(|entry| entry.tag);
    Acl::new(entries).map_err(|error| SetfaclError::Says(error.to_string()))
}
