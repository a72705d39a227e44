//! `extern4 quota IMAGE`: shows usage and limits in the form of repquota(8).

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use extern4::quota::{Entry, Grace, Kind, Quotas, Resource};
use schemars::JsonSchema;
use serde::Serialize;

use super::owners::{Owner, Owners};
use super::{kept, whole};
use crate::app::App;
use crate::id_names::IdNames;
use crate::image_path::{Image, ImagePath};
use crate::json::{self, Rfc3339};
use crate::output::{Out, flush, out};
use crate::text::{human, units};

#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("owner").multiple(true))]
pub(super) struct Args {
    /// The volume to look into
    #[arg(value_name = "IMAGE", required = true, value_parser = ImagePath::parser())]
    image_path: Option<ImagePath>,
    #[command(flatten)]
    owners: Owners,
    /// Show owners that have nothing, too
    #[arg(short, long)]
    verbose: bool,
    /// Show numbers in place of names
    #[arg(short, long)]
    numeric: bool,
    /// Show space with a unit, such as 1.5G
    #[arg(short = 's', long)]
    human_readable: bool,
    /// Write one JSON object a line for each kind of quota, and one for each owner
    #[arg(long)]
    json: bool,
}

/// A kind of quota.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct KindLine {
    /// The image, as the command line names it.
    image: String,
    /// The kind of owner.
    #[schemars(extend("enum" = ["user", "group", "project"]))]
    kind: String,
    /// Seconds for which a soft limit of space may be exceeded.
    block_grace: u32,
    /// Seconds for which a soft limit of inodes may be exceeded.
    inode_grace: u32,
}

/// An owner.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct OwnerLine {
    /// The image, as the command line names it.
    image: String,
    /// The kind of owner.
    #[schemars(extend("enum" = ["user", "group", "project"]))]
    kind: String,
    /// The number of the owner.
    id: u32,
    /// The name of the owner in the volume, if it has one.
    name: Option<String>,
    /// Bytes that the owner has.
    bytes: u64,
    /// The soft limit of space in bytes; 0 for none.
    block_soft: u64,
    /// The hard limit of space in bytes; 0 for none.
    block_hard: u64,
    /// When the grace time of space ends, in seconds since 1970.
    block_until: Option<u64>,
    /// When the grace time of space ends.
    block_until_rfc3339: Rfc3339,
    /// Inodes that the owner has.
    inodes: u64,
    /// The soft limit of inodes; 0 for none.
    inode_soft: u64,
    /// The hard limit of inodes; 0 for none.
    inode_hard: u64,
    /// When the grace time of inodes ends, in seconds since 1970.
    inode_until: Option<u64>,
    /// When the grace time of inodes ends.
    inode_until_rfc3339: Rfc3339,
}

impl OwnerLine {
    fn of(image: &Image, kind: Kind, entry: &Entry, name: Option<&str>) -> Self {
        let Entry {
            id, space, inodes, ..
        } = entry;
        let end = |resource: &Resource| Some(resource.until).filter(|until| *until != 0);
        let block_until = end(space);
        let inode_until = end(inodes);
        Self {
            image: image.to_string(),
            kind: kind.to_string(),
            id: *id,
            name: name.map(str::to_owned),
            bytes: space.used,
            block_soft: space.soft,
            block_hard: space.hard,
            block_until,
            block_until_rfc3339: block_until.map(json::at_seconds).into(),
            inodes: inodes.used,
            inode_soft: inodes.soft,
            inode_hard: inodes.hard,
            inode_until,
            inode_until_rfc3339: inode_until.map(json::at_seconds).into(),
        }
    }
}

/// The form in which owners are shown.
struct Report<'a> {
    args: &'a Args,
    image: &'a Image,
    names: &'a IdNames,
    /// The time, in seconds since 1970.
    now: u64,
    out: Out,
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(image) = args
        .image_path
        .as_ref()
        .and_then(|image_path| whole(image_path, app))
    else {
        return Ok(());
    };
    let Some(opened) = app.volume(image) else {
        return Ok(());
    };
    let Some(owners) = args.owners.find(opened.names(), image, app) else {
        return Ok(());
    };
    let quotas = opened.volume.quotas();
    let wanted: Vec<Kind> = owners.iter().map(|(kind, _)| *kind).collect();
    let Some(kinds) = kept(quotas, &wanted, image, app) else {
        return Ok(());
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let mut report = Report {
        args,
        image,
        names: opened.names(),
        now,
        out: out(),
    };
    for kind in kinds {
        let shown = report.kind(quotas, kind, &owners)?;
        flush(&mut report.out)?;
        if let Err(error) = shown {
            app.error(image, &error);
        }
    }
    Ok(())
}

impl Report<'_> {
    /// Shows the quotas of a kind: the quotas of `owners`, or all if none is named. The outer error
    /// is one of writing the output.
    fn kind(
        &mut self,
        quotas: Quotas<'_>,
        kind: Kind,
        owners: &[Owner],
    ) -> io::Result<extern4::Result<()>> {
        match quotas.grace(kind) {
            Ok(Some(grace)) => self.head(kind, grace)?,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
        if owners.is_empty() {
            return self.all(quotas, kind);
        }
        for (_, id) in owners.iter().filter(|(of, _)| *of == kind) {
            match quotas.of(kind, *id) {
                Ok(entry) => self.owner(kind, &entry)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    fn all(&mut self, quotas: Quotas<'_>, kind: Kind) -> io::Result<extern4::Result<()>> {
        for entry in quotas.all(kind) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Ok(Err(error)),
            };
            if self.args.verbose || entry.space.used > 0 || entry.inodes.used > 0 {
                self.owner(kind, &entry)?;
            }
        }
        Ok(Ok(()))
    }

    fn head(&mut self, kind: Kind, grace: Grace) -> io::Result<()> {
        if self.args.json {
            let line = json::to_line(&KindLine {
                image: self.image.to_string(),
                kind: kind.to_string(),
                block_grace: grace.space,
                inode_grace: grace.inodes,
            });
            return self.out.write_all(line.as_bytes());
        }
        let title = match kind {
            Kind::User => "User",
            Kind::Group => "Group",
            Kind::Project => "Project",
        };
        let space = time(grace.space.into());
        let inodes = time(grace.inodes.into());
        writeln!(
            self.out,
            "*** Report for {kind} quotas on device {}",
            self.image
        )?;
        writeln!(
            self.out,
            "Block grace time: {space}; Inode grace time: {inodes}"
        )?;
        let unit = if self.args.human_readable {
            "Space"
        } else {
            "Block"
        };
        writeln!(
            self.out,
            "{:24}{unit} limits                File limits",
            ""
        )?;
        writeln!(
            self.out,
            "{title:<16}used    soft    hard  grace    used  soft  hard  grace"
        )?;
        writeln!(self.out, "{:-<70}", "")
    }

    fn owner(&mut self, kind: Kind, entry: &Entry) -> io::Result<()> {
        let name = match kind {
            Kind::User => self.names.user(entry.id),
            Kind::Group => self.names.group(entry.id),
            Kind::Project => self.names.project(entry.id),
        };
        let number = entry.id.to_string();
        let named = Some(&*name).filter(|name| **name != number);
        if self.args.json {
            let line = json::to_line(&OwnerLine::of(self.image, kind, entry, named));
            return self.out.write_all(line.as_bytes());
        }
        let name = named
            .filter(|_| !self.args.numeric)
            .map_or_else(|| format!("#{number}"), str::to_owned);
        let space = &entry.space;
        let inodes = &entry.inodes;
        let size = |bytes: u64| {
            if self.args.human_readable {
                human(bytes)
            } else {
                units(bytes, 1024).to_string()
            }
        };
        let [used, soft, hard] = [space.used, space.soft, space.hard].map(size);
        let marks = [space, inodes].map(|resource| if is_over(resource) { '+' } else { '-' });
        let [space_grace, inode_grace] = [space, inodes].map(|resource| self.left(resource));
        let line = format!(
            "{name:<9} {}{} {used:>7} {soft:>7} {hard:>7} {space_grace:>6} {:>7} {:>5} {:>5} {inode_grace:>6}",
            marks[0], marks[1], inodes.used, inodes.soft, inodes.hard,
        );
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Returns the grace time that is left, in words; nothing within the soft limit.
    fn left(&self, resource: &Resource) -> String {
        match resource.until {
            _ if resource.soft == 0 || resource.used <= resource.soft => String::new(),
            0 => String::new(),
            until if until <= self.now => "none".to_owned(),
            until => time(until - self.now),
        }
    }
}

/// Returns whether a limit is exceeded.
fn is_over(resource: &Resource) -> bool {
    [resource.soft, resource.hard]
        .into_iter()
        .any(|limit| limit != 0 && resource.used > limit)
}

/// Returns a time in days, or in hours and minutes below two days.
fn time(seconds: u64) -> String {
    const DAY: u64 = 24 * 60;
    let minutes = seconds.saturating_add(30) / 60;
    if minutes >= 2 * DAY {
        return format!("{}days", minutes / DAY);
    }
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::time;

    /// As repquota prints them.
    #[test]
    fn times_are_those_of_repquota() {
        for (seconds, shown) in [
            (0, "00:00"),
            (29, "00:00"),
            (59, "00:01"),
            (7199, "02:00"),
            (90_000, "25:00"),
            (172_700, "47:58"),
            (172_900, "2days"),
            (224_640, "2days"),
            (604_799, "7days"),
            (604_800, "7days"),
        ] {
            assert_eq!(time(seconds), shown, "{seconds}");
        }
    }
}
