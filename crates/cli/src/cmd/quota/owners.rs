//! The users, groups and projects that a command line names.

use extern4::quota::Kind;

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::id_names::{IdNames, NameOrId};
use crate::image_path::Image;
use crate::text::quoted;

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Owners {
    /// A user, by number or by a name of the volume's /etc/passwd
    #[arg(short, long = "user", value_name = "USER", group = "owner", value_parser = NameOrId::parse)]
    users: Vec<NameOrId>,
    /// A group, by number or by a name of the volume's /etc/group
    #[arg(short, long = "group", value_name = "GROUP", group = "owner", value_parser = NameOrId::parse)]
    groups: Vec<NameOrId>,
    /// A project, by number or by a name of the volume's /etc/projid
    #[arg(short = 'P', long = "project", value_name = "PROJECT", group = "owner", value_parser = NameOrId::parse)]
    projects: Vec<NameOrId>,
}

/// A user, a group or a project.
pub(super) type Owner = (Kind, u32);

impl Owners {
    /// Returns the owners, sorted by kind. Reports one that the volume does not know by that name.
    pub(super) fn find(&self, names: &IdNames, image: &Image, app: &mut App) -> Option<Vec<Owner>> {
        let users = self
            .users
            .iter()
            .map(|user| Ok((Kind::User, user.uid(names)?)));
        let groups = self
            .groups
            .iter()
            .map(|group| Ok((Kind::Group, group.gid(names)?)));
        let projects = self
            .projects
            .iter()
            .map(|project| Ok((Kind::Project, project.project(names)?)));
        let found = users
            .chain(groups)
            .chain(projects)
            .collect::<Result<Vec<_>, String>>();
        let report = |message| {
            app.fail(
                ExitStatus::Failed,
                format_args!("{message} {}", quoted(image)),
            )
        };
        found.map_err(report).ok()
    }
}
