//! A change of owners and groups, as `chown` and `chgrp` make it.
//!
//! Both commands make an [`OwnerChange`] and run it. Names are looked up in each volume before any
//! file of it changes. A file that cannot be changed is reported, and the walk goes on.

use std::ffi::OsString;
use std::path::Path;

use extern4::{Metadata, Session};

use super::options::Options;
use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::id_names::IdNames;
use crate::owner::{Owner, OwnerIds};
use crate::targets::{FoundFile, Traversal, change_files, followed, written_paths};

/// The part of a reference's owner that a command takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Owner and group.
    Both,
    /// The group.
    Group,
}

/// A run of `chown` or `chgrp`.
pub(crate) struct OwnerChange<'a> {
    pub(crate) options: &'a Options,
    /// The part of a reference's owner that the command takes over.
    pub(crate) wanted: Wanted,
    /// The owner that files need to have.
    pub(crate) from: Option<&'a Owner>,
}

impl OwnerChange<'_> {
    /// Changes the files of these paths to `owner`, or to that of the reference.
    pub(crate) fn run(&self, owner: Option<Owner>, paths: &[OsString], app: &mut App) {
        app.set_silent(self.options.verbosity.silent);
        let image_paths: Vec<_> = paths.iter().map(|text| app.image_path(text)).collect();
        // Names first: if one is unknown, nothing is changed anywhere.
        let given = owner
            .as_ref()
            .map(|owner| owner.ids_by_image(&image_paths, app));
        let from = self.from.map(|from| from.ids_by_image(&image_paths, app));
        if !matches!(given, Some(None)) && !matches!(from, Some(None)) {
            let image_paths = written_paths(paths, app);
            let owner = owner.or_else(|| self.reference(app));
            for image_path in owner.iter().flat_map(|_| &image_paths) {
                let Some(owner) = &owner else { continue };
                let ids = |known: &Option<Option<Vec<_>>>| {
                    let known: &Vec<(_, OwnerIds)> = known.as_ref()?.as_ref()?;
                    known
                        .iter()
                        .find(|(image, _)| *image == image_path.image)
                        .map(|(_, ids)| *ids)
                };
                let new = ids(&given).or_else(|| owner.ids(&IdNames::default()).ok());
                if let Some(target) = app.target(image_path) {
                    self.change(
                        &target,
                        owner,
                        &new.unwrap_or_default(),
                        ids(&from).as_ref(),
                        app,
                    );
                }
            }
        }
        app.set_silent(false);
    }

    /// Returns the owner of the reference. Reports a failure.
    fn reference(&self, app: &mut App) -> Option<Owner> {
        let image_path = app.image_path(self.options.reference.as_ref()?);
        let target = app.target(&image_path)?;
        match target.session().metadata(target.path()) {
            Ok(found) => {
                let uid = (self.wanted == Wanted::Both).then_some(found.uid());
                Some(Owner::numbers(uid, Some(found.gid())))
            }
            Err(error) => {
                app.error(&image_path, &error);
                None
            }
        }
    }

    fn change(
        &self,
        target: &crate::app::Target,
        owner: &Owner,
        ids: &OwnerIds,
        from: Option<&OwnerIds>,
        app: &mut App,
    ) {
        let options = self.options;
        let traversal = options.traversal();
        if traversal != Traversal::Single
            && options.preserve_root
            && target.path() == Path::new("/")
        {
            let reason = "the root of a volume, which --preserve-root keeps";
            return app.fail_at(ExitStatus::Failed, &target.image_path, reason);
        }
        if traversal == Traversal::Single && options.is_of_links() {
            return self.link(target, owner, ids, from, app);
        }
        let names = target.volume.names();
        change_files(target, traversal, app, |file| {
            if options.is_of_links() && traversal != Traversal::Single
                || !file.metadata.is_symlink()
            {
                let line = self.line(&file.quoted(), file.metadata, owner, ids, from, names);
                self.set(
                    file.session,
                    file.path,
                    file.metadata,
                    ids,
                    from,
                    options.is_of_links(),
                )?;
                return Ok(line);
            }
            self.referent(file, owner, ids, from, names)
        });
    }

    /// Changes the file that a symbolic link below a directory leads to.
    fn referent(
        &self,
        file: &FoundFile<'_>,
        owner: &Owner,
        ids: &OwnerIds,
        from: Option<&OwnerIds>,
        names: &IdNames,
    ) -> extern4::Result<Option<String>> {
        let found = file.session.metadata(file.path)?;
        let line = self.line(&file.quoted(), &found, owner, ids, from, names);
        self.set(file.session, file.path, &found, ids, from, false)?;
        Ok(line)
    }

    /// Changes a single file, symbolic link or not, itself.
    fn link(
        &self,
        target: &crate::app::Target,
        owner: &Owner,
        ids: &OwnerIds,
        from: Option<&OwnerIds>,
        app: &mut App,
    ) {
        let session = target.session();
        let path = target.path();
        let changed = session.symlink_metadata(path).and_then(|found| {
            let names = target.volume.names();
            let line = self.line(&target.image_path.quoted(), &found, owner, ids, from, names);
            self.set(session, path, &found, ids, from, true)?;
            Ok(line)
        });
        match changed {
            Ok(line) => line.into_iter().for_each(|line| app.print(line)),
            Err(error) => app.error(&target.image_path, &error),
        }
    }

    fn set(
        &self,
        session: &Session,
        path: &Path,
        found: &Metadata,
        ids: &OwnerIds,
        from: Option<&OwnerIds>,
        is_link: bool,
    ) -> extern4::Result<()> {
        if !is_from(found, from) {
            return Ok(());
        }
        if is_link {
            return session.lchown(path, ids.uid, ids.gid);
        }
        session.lchown(followed(session, path)?, ids.uid, ids.gid)
    }

    /// Returns the line about the change of a file, if there is to be one.
    fn line(
        &self,
        shown: &str,
        found: &Metadata,
        owner: &Owner,
        ids: &OwnerIds,
        from: Option<&OwnerIds>,
        names: &IdNames,
    ) -> Option<String> {
        let differs = |new: Option<u32>, old| new.is_some_and(|new| new != old);
        let changes = is_from(found, from)
            && (differs(ids.uid, found.uid()) || differs(ids.gid, found.gid()));
        if !self.options.verbosity.tells(changes) {
            return None;
        }
        let what = if ids.uid.is_none() && ids.gid.is_some() {
            "group"
        } else {
            "ownership"
        };
        let user = names.user(found.uid());
        let group = names.group(found.gid());
        let old = match (ids.uid, ids.gid) {
            (Some(_), Some(_)) => format!("{user}:{group}"),
            (Some(_), None) => user.into_owned(),
            (None, Some(_)) => group.into_owned(),
            (None, None) => return Some(format!("{what} of {shown} retained")),
        };
        Some(if changes {
            format!(
                "changed {what} of {shown} from {old} to {}",
                owner.text(ids, names)
            )
        } else {
            format!("{what} of {shown} retained as {old}")
        })
    }
}

/// Returns whether a file has the owner that it needs to have.
fn is_from(found: &Metadata, from: Option<&OwnerIds>) -> bool {
    from.is_none_or(|from| {
        from.uid.is_none_or(|uid| uid == found.uid())
            && from.gid.is_none_or(|gid| gid == found.gid())
    })
}
