//! `extern4 df`: shows how full volumes are.
//!
//! `args` calls [`run`]. The figures are those of `statfs(2)` on the kernel's mount of the same
//! volume.

use std::io::{self, Write as _};

use extern4::StatFs;

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json::{self, Object};
use crate::output::{flush, out};
use crate::text::{BlockSize, human};

#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    /// Volumes to show
    #[arg(value_name = "IMAGE", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show sizes with a unit, such as 1.5G
    #[arg(short, long)]
    human_readable: bool,
    /// Show inodes instead of space
    #[arg(short, long)]
    inodes: bool,
    /// Show the type of the file system
    #[arg(short = 'T', long)]
    print_type: bool,
    /// Show only volumes of this type
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Leave out volumes of this type
    #[arg(short = 'x', long, value_name = "TYPE")]
    exclude_type: Vec<String>,
    /// Show the sum of all volumes too
    #[arg(long)]
    total: bool,
    /// Use the headings of POSIX
    #[arg(short = 'P', long)]
    portability: bool,
    /// Show sizes in units of this many bytes: 1M, or M to show the unit too
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = BlockSize::parse)]
    block_size: Option<BlockSize>,
    /// Show sizes in units of 1024 bytes, as without this option
    #[arg(short, conflicts_with = "block_size")]
    kibibytes: bool,
    /// Show all volumes, as without this option
    #[arg(short, long)]
    all: bool,
    /// Show only local volumes, as all here are
    #[arg(short, long)]
    local: bool,
    /// Do not write anything first, as without this option
    #[arg(long)]
    no_sync: bool,
    /// Write one JSON object a line for each volume
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// A volume with its figures.
struct Row {
    name: String,
    kind: &'static str,
    found: StatFs,
}

/// The figures of a volume, in bytes or inodes.
struct Usage {
    total: u64,
    used: u64,
    available: u64,
    percent: Option<u64>,
}

impl Usage {
    fn space(found: &StatFs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(found.block_size));
        let used = found.blocks.saturating_sub(found.blocks_free);
        Self {
            total: bytes(found.blocks),
            used: bytes(used),
            available: bytes(found.blocks_available),
            percent: percent(used, found.blocks_available),
        }
    }

    /// Returns the sum of several.
    fn sum(all: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
        let (total, used, available) = (sum(|one| one.total), sum(|one| one.used), sum(|one| one.available));
        Self { total, used, available, percent: percent(used, available) }
    }

    fn inodes(found: &StatFs) -> Self {
        let used = found.files.saturating_sub(found.files_free);
        Self {
            total: found.files,
            used,
            available: found.files_free,
            percent: percent(used, found.files_free),
        }
    }
}

/// Returns the share in use of the space that users may have, in percent, rounded up as `df` does.
fn percent(used: u64, available: u64) -> Option<u64> {
    let all = u128::from(used) + u128::from(available);
    let percent = (u128::from(used) * 100).div_ceil(all.max(1));
    (all > 0).then(|| u64::try_from(percent).expect("a share of the whole is at most 100"))
}

impl Args {
    /// Returns whether volumes of this type are shown.
    fn takes(&self, kind: &str) -> bool {
        let names = |types: &[String]| types.iter().any(|name| name == kind);
        (self.types.is_empty() || names(&self.types)) && !names(&self.exclude_type)
    }

    fn usage(&self, found: &StatFs) -> Usage {
        if self.inodes { Usage::inodes(found) } else { Usage::space(found) }
    }

    fn headings(&self, unit: &BlockSize) -> [String; 6] {
        let blocks = match (self.portability, &self.block_size) {
            (true, None) => "1024-blocks".to_owned(),
            _ => format!("{}-blocks", unit.name()),
        };
        let percent = if self.portability { "Capacity" } else { "Use%" };
        match (self.inodes, self.human_readable) {
            (true, _) => ["Volume", "Type", "Inodes", "IUsed", "IFree", "IUse%"].map(str::to_owned),
            (false, true) => ["Volume", "Type", "Size", "Used", "Avail", percent].map(str::to_owned),
            (false, false) => ["Volume", "Type", &blocks, "Used", "Available", percent].map(str::to_owned),
        }
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut rows = Vec::new();
    let mut out = out();
    for image_path in &args.image_paths {
        let Some(volume) = app.volume(&image_path.image) else { continue };
        let kind = volume.type_name();
        if !args.takes(kind) {
            continue;
        }
        match volume.volume.stat_fs() {
            Ok(found) if args.json => {
                out.write_all(json_line(&image_path.image.to_string(), kind, &found).as_bytes())?
            }
            Ok(found) => rows.push(Row { name: image_path.image.to_string(), kind, found }),
            Err(error) => app.error(image_path, &error),
        }
    }
    if !rows.is_empty() {
        table(args, &rows, &mut out)?;
    } else if app.status() == ExitStatus::Success && !args.json {
        app.fail(ExitStatus::Failed, "no volume is of such a type");
    }
    flush(&mut out)
}

fn table(args: &Args, rows: &[Row], out: &mut impl io::Write) -> io::Result<()> {
    let unit = args.block_size.clone().unwrap_or(BlockSize::of(1024));
    let number = |value: u64| match (args.inodes, args.human_readable) {
        (_, true) => human(value),
        (true, false) => value.to_string(),
        (false, false) => unit.show(value),
    };
    let line = |name: &str, kind: &str, usage: &Usage| {
        let percent = usage.percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"));
        let [total, used, available] = [usage.total, usage.used, usage.available].map(number);
        [name.to_owned(), kind.to_owned(), total, used, available, percent]
    };
    let mut cells = vec![args.headings(&unit)];
    cells.extend(rows.iter().map(|row| line(&row.name, row.kind, &args.usage(&row.found))));
    if args.total {
        let usages: Vec<_> = rows.iter().map(|row| args.usage(&row.found)).collect();
        cells.push(line("total", "-", &Usage::sum(&usages)));
    }
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3), width(4), width(5)];
    for [volume, kind, total, used, available, percent] in &cells {
        let [a, b, c, d, e, f] = widths;
        write!(out, "{volume:a$} ")?;
        if args.print_type {
            write!(out, "{kind:b$} ")?;
        }
        writeln!(out, "{total:>c$} {used:>d$} {available:>e$} {percent:>f$}")?;
    }
    Ok(())
}

fn json_line(image: &str, kind: &str, found: &StatFs) -> String {
    json::line(|object| {
        object.text("image", image);
        object.text("type", kind);
        members(object, found);
    })
}

/// Writes the members about the space of a volume.
pub(crate) fn members(object: &mut Object<'_>, found: &StatFs) {
    object.raw("block_size", found.block_size);
    object.raw("blocks", found.blocks);
    object.raw("blocks_free", found.blocks_free);
    object.raw("blocks_available", found.blocks_available);
    object.raw("inodes", found.files);
    object.raw("inodes_free", found.files_free);
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percent_rounds_up() {
        assert_eq!(percent(0, 10), Some(0));
        assert_eq!(percent(1, 999), Some(1));
        assert_eq!(percent(10, 0), Some(100));
        assert_eq!(percent(0, 0), None);
        assert_eq!(percent(u64::MAX, u64::MAX), Some(50));
    }
}
