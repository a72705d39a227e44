//! `extern4 df`: shows how full volumes are.
//!
//! `args` calls [`run`]. The figures are the figures of `statfs(2)` on the kernel's mount of the
//! same volume.

mod field;

use std::io::{self, Write as _};

use extern4::StatFs;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{Out, flush, out};
use crate::text::{BlockSize, width};

use self::field::{Field, Fields};

#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    /// Volumes to show
    #[arg(value_name = "IMAGE", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show sizes with a unit, such as 1.5G
    #[arg(short, long, overrides_with_all = UNITS)]
    human_readable: bool,
    /// Show sizes with a unit of powers of 1000
    #[arg(short = 'H', long, overrides_with_all = UNITS)]
    si: bool,
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
    /// Show these columns (default: all): source, fstype, itotal, iused, iavail, ipcent, size,
    /// used, avail, pcent, file, target
    #[arg(long, value_name = "LIST", value_parser = Fields::argument, num_args = 0..=1, require_equals = true,
        default_missing_value = "", conflicts_with_all = ["inodes", "print_type", "portability"])]
    output: Option<Fields>,
    /// Show sizes in units of this many bytes: 1M, or M to show the unit too
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = BlockSize::parse, overrides_with_all = UNITS)]
    block_size: Option<BlockSize>,
    /// Show sizes in units of 1024 bytes, as without this option
    #[arg(short, overrides_with_all = UNITS)]
    kibibytes: bool,
    /// Show all volumes, as without this option
    #[arg(short, long)]
    all: bool,
    /// Show only local volumes, as all here are
    #[arg(short, long)]
    local: bool,
    /// Do not write anything first, as without this option
    #[arg(long, overrides_with = "sync")]
    no_sync: bool,
    /// Write everything first, as the command always does
    #[arg(long)]
    sync: bool,
    /// No effect
    #[arg(short)]
    v: bool,
    /// Write one JSON object a line for each volume
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The options of which the last one says how sizes are shown.
const UNITS: [&str; 4] = ["human_readable", "si", "block_size", "kibibytes"];

/// A volume with its figures, or the sum of several.
struct Row {
    /// The volume, as the table shows it.
    name: String,
    kind: String,
    /// The operand.
    file: String,
    /// The place where it is mounted.
    target: String,
    space: Usage,
    inodes: Usage,
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
    fn sum<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let sum = |of: fn(&Self) -> u64| all.clone().map(of).fold(0, u64::saturating_add);
        let total = sum(|one| one.total);
        let used = sum(|one| one.used);
        let available = sum(|one| one.available);
        Self {
            total,
            used,
            available,
            percent: percent(used, available),
        }
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

    /// Returns how sizes are shown.
    fn unit(&self) -> BlockSize {
        let chosen = [
            (self.human_readable, BlockSize::Human),
            (self.si, BlockSize::Decimal),
        ];
        let chosen = chosen
            .into_iter()
            .find_map(|(given, unit)| given.then_some(unit));
        chosen
            .or_else(|| self.block_size.clone())
            .unwrap_or(BlockSize::of(1024))
    }

    /// Returns the columns of the table.
    fn fields(&self) -> Vec<Field> {
        use Field::{
            Avail, Fstype, Iavail, Ipcent, Itotal, Iused, Pcent, Size, Source, Target, Used,
        };
        if let Some(Fields(fields)) = &self.output {
            return fields.clone();
        }
        let figures = if self.inodes {
            [Itotal, Iused, Iavail, Ipcent]
        } else {
            [Size, Used, Avail, Pcent]
        };
        let kind = self.print_type.then_some(Fstype);
        std::iter::once(Source)
            .chain(kind)
            .chain(figures)
            .chain([Target])
            .collect()
    }

    fn heading(&self, field: Field, unit: &BlockSize) -> String {
        match (field, unit.name()) {
            (Field::Size, None) => "Size".to_owned(),
            (Field::Size, Some(_)) if self.portability => {
                format!("{}-blocks", unit.bytes().unwrap_or_default())
            }
            (Field::Size, Some(name)) => format!("{name}-blocks"),
            (Field::Avail, Some(_)) if self.output.is_none() => "Available".to_owned(),
            (Field::Pcent, Some(_)) if self.portability => "Capacity".to_owned(),
            _ => field.heading().to_owned(),
        }
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut rows = Vec::new();
    let mut out = out();
    for image_path in &args.image_paths {
        let Some(volume) = app.volume(&image_path.image) else {
            continue;
        };
        let kind = volume.type_name();
        if !args.takes(kind) {
            continue;
        }
        match volume.volume.stat_fs() {
            Ok(found) if args.json => {
                out.write_all(json_line(&image_path.image.to_string(), kind, &found).as_bytes())?
            }
            Ok(found) => rows.push(Row {
                name: image_path.image.to_string(),
                kind: kind.to_owned(),
                file: image_path.to_string(),
                target: "-".to_owned(),
                space: Usage::space(&found),
                inodes: Usage::inodes(&found),
            }),
            Err(error) => app.error(image_path, &error),
        }
    }
    if !rows.is_empty() {
        table(args, rows, &mut out)?;
    } else if app.status() == ExitStatus::Success && !args.json {
        app.fail(ExitStatus::Failed, "no volume is of such a type");
    }
    flush(&mut out)
}

impl Row {
    /// Returns the sum of several. Its name stands in the column of names, or where there is none,
    /// in that of mounts.
    fn total(rows: &[Self], has_names: bool) -> Self {
        let none = || "-".to_owned();
        let total = "total".to_owned();
        Self {
            target: if has_names { none() } else { total.clone() },
            name: total,
            kind: none(),
            file: none(),
            space: Usage::sum(rows.iter().map(|row| &row.space)),
            inodes: Usage::sum(rows.iter().map(|row| &row.inodes)),
        }
    }

    /// Returns what stands in a column. Numbers of inodes have a unit only if one is to fit.
    fn cell(&self, field: Field, unit: &BlockSize) -> String {
        let count = if unit.bytes().is_some() {
            &BlockSize::of(1)
        } else {
            unit
        };
        let percent = |of: &Usage| {
            of.percent
                .map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
        };
        match field {
            Field::Source => self.name.clone(),
            Field::Fstype => self.kind.clone(),
            Field::File => self.file.clone(),
            Field::Target => self.target.clone(),
            Field::Size => unit.show(self.space.total),
            Field::Used => unit.show(self.space.used),
            Field::Avail => unit.show(self.space.available),
            Field::Pcent => percent(&self.space),
            Field::Itotal => count.show(self.inodes.total),
            Field::Iused => count.show(self.inodes.used),
            Field::Iavail => count.show(self.inodes.available),
            Field::Ipcent => percent(&self.inodes),
        }
    }
}

fn table(args: &Args, mut rows: Vec<Row>, out: &mut Out) -> io::Result<()> {
    let unit = args.unit();
    let fields = args.fields();
    if args.total {
        rows.push(Row::total(&rows, fields.contains(&Field::Source)));
    }
    let headings = fields
        .iter()
        .map(|field| args.heading(*field, &unit))
        .collect();
    let cells = |row: &Row| fields.iter().map(|field| row.cell(*field, &unit)).collect();
    let lines: Vec<Vec<String>> = std::iter::once(headings)
        .chain(rows.iter().map(cells))
        .collect();
    let widest = |at: usize| lines.iter().map(|line| width(&line[at])).max().unwrap_or(0);
    let widths: Vec<_> = fields
        .iter()
        .enumerate()
        .map(|(at, field)| widest(at).max(field.least_width()))
        .collect();
    for line in &lines {
        for (at, (cell, field)) in line.iter().zip(&fields).enumerate() {
            let padding = " ".repeat(widths[at] - width(cell));
            let text = match (field.is_text(), at + 1 == fields.len()) {
                (true, true) => cell.clone(),
                (true, false) => format!("{cell}{padding} "),
                (false, is_last) => format!("{padding}{cell}{}", if is_last { "" } else { " " }),
            };
            out.write_all(text.as_bytes())?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A volume.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Line {
    /// The image, as the command line names it.
    image: String,
    /// ext2, ext3 or ext4.
    #[serde(rename = "type")]
    type_name: String,
    #[serde(flatten)]
    space: Space,
}

fn json_line(image: &str, kind: &str, found: &StatFs) -> String {
    json::to_line(&Line {
        image: image.to_owned(),
        type_name: kind.to_owned(),
        space: found.into(),
    })
}

/// The members about the space of a volume.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Space {
    /// Bytes of a block.
    block_size: u32,
    /// Blocks, without the structures of the file system.
    blocks: u64,
    /// Free blocks.
    blocks_free: u64,
    /// Free blocks that users without privilege may take.
    blocks_available: u64,
    /// Inodes.
    inodes: u64,
    /// Free inodes.
    inodes_free: u64,
}

impl From<&StatFs> for Space {
    fn from(found: &StatFs) -> Self {
        Self {
            block_size: found.block_size,
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
            inodes: found.files,
            inodes_free: found.files_free,
        }
    }
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
