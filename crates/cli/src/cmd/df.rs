//! `extern4 df`: shows how full volumes are.

use std::io::{self, Write as _};

use extern4::StatFs;

use crate::app::App;
use crate::image_path::ImagePath;
use crate::json;
use crate::output::{flush, out};
use crate::text::{human, units};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
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
    /// Write one JSON object a line for each volume
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
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

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut rows = Vec::new();
    let mut out = out();
    for image_path in &args.image_paths {
        let Some(volume) = app.volume(&image_path.image) else { continue };
        match volume.volume.stat_fs() {
            Ok(found) if args.json => {
                out.write_all(json_line(&image_path.image.to_string(), &found).as_bytes())?
            }
            Ok(found) => rows.push((image_path.image.to_string(), found)),
            Err(error) => app.error(image_path, &error),
        }
    }
    if !rows.is_empty() {
        table(args, &rows, &mut out)?;
    }
    flush(&mut out)
}

fn table(args: &Args, rows: &[(String, StatFs)], out: &mut impl io::Write) -> io::Result<()> {
    let heading = match (args.inodes, args.human_readable) {
        (true, _) => ["Volume", "Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Volume", "Size", "Used", "Avail", "Use%"],
        (false, false) => ["Volume", "1K-blocks", "Used", "Available", "Use%"],
    };
    let mut cells = vec![heading.map(str::to_owned)];
    for (volume, found) in rows {
        let usage = if args.inodes { Usage::inodes(found) } else { Usage::space(found) };
        let number = |value: u64| match (args.inodes, args.human_readable) {
            (_, true) => human(value),
            (true, false) => value.to_string(),
            (false, false) => units(value, 1024).to_string(),
        };
        let percent = usage.percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"));
        cells.push([
            volume.clone(),
            number(usage.total),
            number(usage.used),
            number(usage.available),
            percent,
        ]);
    }
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3), width(4)];
    for [volume, total, used, available, percent] in &cells {
        let [a, b, c, d, e] = widths;
        writeln!(out, "{volume:a$} {total:>b$} {used:>c$} {available:>d$} {percent:>e$}")?;
    }
    Ok(())
}

fn json_line(image: &str, found: &StatFs) -> String {
    json::line(|object| {
        object.text("image", image);
        object.raw("block_size", found.block_size);
        object.raw("blocks", found.blocks);
        object.raw("blocks_free", found.blocks_free);
        object.raw("blocks_available", found.blocks_available);
        object.raw("inodes", found.files);
        object.raw("inodes_free", found.files_free);
    })
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
