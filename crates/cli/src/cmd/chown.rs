//! `extern4 chown`: changes owners and groups.

use std::ffi::OsString;
use std::io;

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::id_names::{IdNames, NameOrId};
use crate::image_path::{Image, ImagePath};
use crate::targets::{change, followed, written_paths};
use crate::text::quoted;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// OWNER, OWNER:GROUP or :GROUP: numbers, or names of the volume's own /etc/passwd and
    /// /etc/group
    #[arg(value_name = "OWNER[:GROUP]", value_parser = wanted)]
    owner: Wanted,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Change everything below directories too, symbolic links themselves included
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// An owner and a group; `None` for the one that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    owner: Option<NameOrId>,
    group: Option<NameOrId>,
}

fn wanted(text: &str) -> Result<Wanted, String> {
    let (owner, group) = match text.split_once(':') {
        Some((owner, group)) if !group.is_empty() => (owner, group),
        None if !text.is_empty() => (text, ""),
        _ => return Err("write it as OWNER, OWNER:GROUP or :GROUP".to_owned()),
    };
    Ok(Wanted { owner: who(owner)?, group: who(group)? })
}

fn who(text: &str) -> Result<Option<NameOrId>, String> {
    if text.is_empty() { Ok(None) } else { NameOrId::parse(text).map(Some) }
}

impl Wanted {
    fn has_names(&self) -> bool {
        [&self.owner, &self.group].into_iter().flatten().any(NameOrId::is_name)
    }

    /// Returns the numbers of the owner and the group in a volume. An unknown name is an error.
    fn numbers(&self, names: &IdNames) -> Result<(Option<u32>, Option<u32>), String> {
        let owner = self.owner.as_ref().map(|who| who.uid(names)).transpose()?;
        Ok((owner, self.group.as_ref().map(|who| who.gid(names)).transpose()?))
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    // Names first: if one is unknown, nothing is changed anywhere.
    let image_paths: Vec<ImagePath> = args.image_paths.iter().map(|text| app.image_path(text)).collect();
    let mut known: Vec<(Image, Option<u32>, Option<u32>)> = Vec::new();
    for image_path in &image_paths {
        if known.iter().any(|(image, ..)| *image == image_path.image) {
            continue;
        }
        let names =
            if args.owner.has_names() { app.names_of(&image_path.image) } else { Some(IdNames::default()) };
        let Some(names) = names else { return Ok(()) };
        match args.owner.numbers(&names) {
            Ok((owner, group)) => known.push((image_path.image.clone(), owner, group)),
            Err(message) => {
                app.fail(ExitStatus::Failed, format_args!("{message} {}", quoted(&image_path.image)));
                return Ok(());
            }
        }
    }
    for image_path in written_paths(&args.image_paths, app) {
        let Some((_, owner, group)) = known.iter().find(|(image, ..)| *image == image_path.image) else {
            continue;
        };
        let Some(target) = app.target(&image_path) else { continue };
        if args.no_dereference && !args.recursive {
            if let Err(error) = target.session().lchown(target.path(), *owner, *group) {
                app.error(&image_path, &error);
            }
            continue;
        }
        change(&target, args.recursive, app, |session, path, found| {
            // Below a directory, the change is to the link itself.
            if args.recursive && found.is_symlink() {
                return session.lchown(path, *owner, *group);
            }
            session.lchown(followed(session, path)?, *owner, *group)
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{NameOrId, Wanted, wanted};

    #[test]
    fn owners_are_read() {
        let check = |text: &str, owner: Option<NameOrId>, group: Option<NameOrId>| {
            assert_eq!(wanted(text), Ok(Wanted { owner, group }), "{text}");
        };
        let name = |name: &str| Some(NameOrId::Name(name.to_owned()));
        check("0", Some(NameOrId::Number(0)), None);
        check("1000:50", Some(NameOrId::Number(1000)), Some(NameOrId::Number(50)));
        check(":50", None, Some(NameOrId::Number(50)));
        check("ann:staff", name("ann"), name("staff"));
        for text in ["", ":", "ann:", "4294967295", "0:4294967296"] {
            assert!(wanted(text).is_err(), "{text}");
        }
    }
}
