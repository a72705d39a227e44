//! `extern4 recover`: replays the journal of a volume onto it.
//!
//! `args` calls [`run`], and `fsck_helper` calls [`recover`]. A clean volume stays as it is.

use std::io::{self, Write as _};

use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::image_path::{Image, ImagePath};
use crate::json;
use crate::text::counted;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Volumes to recover; one that is clean is not touched
    #[arg(value_name = "IMAGE", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Write one JSON object a line for each volume
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    // A signal ends the command between two volumes: a replay that has begun ends whole.
    app.stop_on_signals();
    let mut done = 0;
    for image_path in &args.image_paths {
        if app.is_stopped() {
            break;
        }
        done += 1;
        let image = &image_path.image;
        match recover(image, app) {
            Ok(replayed) => io::stdout().write_all(report(args, image, replayed).as_bytes())?,
            Err(error) => app.refused(image, &error),
        }
    }
    app.report_stop(format_args!(
        "{done} of {} done",
        counted(args.image_paths.len(), "volume", "volumes")
    ));
    Ok(())
}

/// A volume.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Line {
    /// The image, as the command line names it.
    image: String,
    /// Whether there was anything to replay.
    replayed: bool,
    /// Transactions replayed.
    transactions: u32,
    /// Fast commits replayed.
    fast_commits: u32,
    /// Blocks replayed.
    blocks: u64,
}

/// The numbers of transactions, fast commits and blocks that were replayed; `None` for a clean
/// volume.
pub(crate) type Replayed = Option<(u32, u32, u64)>;

/// Replays the journal of a volume, if there is anything to replay.
pub(crate) fn recover(image: &Image, app: &App) -> extern4::Result<Replayed> {
    // Opening for reading finds whether there is anything to replay, and writes nothing.
    let volume = app.open(image, false)?;
    let found = volume.ext4().replayed();
    drop(volume);
    if found.is_some() {
        app.open(image, true)?.close()?;
    }
    Ok(found.map(|found| (found.transactions, found.fast_commits, found.blocks)))
}

fn report(args: &Args, image: &Image, replayed: Replayed) -> String {
    if args.json {
        let (transactions, fast_commits, blocks) = replayed.unwrap_or_default();
        return json::to_line(&Line {
            image: image.to_string(),
            replayed: replayed.is_some(),
            transactions,
            fast_commits,
            blocks,
        });
    }
    people(image, replayed)
}

/// Returns the report for people.
pub(crate) fn people(image: &Image, replayed: Replayed) -> String {
    let Some((transactions, fast_commits, blocks)) = replayed else {
        return format!("{image}: there is nothing to replay\n");
    };
    let fast = match fast_commits {
        0 => String::new(),
        _ => format!(
            " and {}",
            counted(fast_commits, "fast commit", "fast commits")
        ),
    };
    let transactions = counted(transactions, "transaction", "transactions");
    format!(
        "{image}: {transactions}{fast} replayed, {}\n",
        counted(blocks, "block", "blocks")
    )
}
