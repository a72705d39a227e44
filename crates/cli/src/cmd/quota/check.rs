//! `extern4 quota check`: compares what the quotas count with what users, groups and projects have,
//! and corrects them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use extern4::Volume;
use extern4::quota::Quotas;
use extern4_check::{Fault, Options, Structure, Wrong, check};
use schemars::JsonSchema;
use serde::Serialize;

use super::owners::Owner;
use super::{kept, whole};
use crate::app::App;
use crate::cmd::check::{json_fault, text};
use crate::cmd::recover::recover;
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, ImagePath};
use crate::json;
use crate::output::{flush, out};
use crate::text::counted;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The volume to check
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// Correct what is wrong
    #[arg(long)]
    repair: bool,
    /// Write nothing but the exit code
    #[arg(short, long)]
    quiet: bool,
    /// Write one JSON object a line for each fault, and one for the volume
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

/// The result of a check.
#[derive(Default)]
struct Found {
    /// Faults of the quotas.
    faults: u64,
    /// The usage of owners whose quotas are wrong, as far as that differs: bytes and inodes.
    usage: BTreeMap<Owner, (Option<u64>, Option<u64>)>,
    /// Faults of the quotas that are more than a wrong number.
    damage: u64,
    /// Faults of the rest of the volume.
    others: u64,
}

impl Found {
    fn add(&mut self, fault: &Fault) {
        if fault.place.structure != Structure::Quota {
            self.others += 1;
            return;
        }
        self.faults += 1;
        match fault.wrong {
            Wrong::Quota {
                kind,
                id,
                unit,
                counted,
                ..
            } => {
                let usage = self.usage.entry((kind, id)).or_default();
                *(if unit == "bytes" {
                    &mut usage.0
                } else {
                    &mut usage.1
                }) = Some(counted);
            }
            Wrong::NoQuota {
                kind,
                id,
                bytes,
                inodes,
            } => {
                self.usage.insert((kind, id), (Some(bytes), Some(inodes)));
            }
            _ => self.damage += 1,
        }
    }
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(image) = whole(&args.image_path, app) else {
        return Ok(());
    };
    if args.repair {
        return repair(args, image, app);
    }
    let Some(opened) = app.volume(image) else {
        return Ok(());
    };
    if let Some(found) = compare(args, &opened.volume, image, app)? {
        if found.faults > 0 {
            app.found(ExitStatus::Corrupt);
        }
        sum_up(args, image, &found, 0)?;
    }
    Ok(())
}

/// Checks a volume and prints the faults of its quotas. Reports that there are others.
fn compare(
    args: &Args,
    volume: &Volume,
    image: &Image,
    app: &mut App,
) -> io::Result<Option<Found>> {
    if kept(volume.quotas(), &[], image, app).is_none() {
        return Ok(None);
    }
    let mut out = out();
    let mut found = Found::default();
    let mut written = Ok(());
    let checked = check(volume.ext4(), &Options::default(), &mut |fault| {
        found.add(&fault);
        if args.quiet || fault.place.structure != Structure::Quota || written.is_err() {
            return;
        }
        let line = if args.json {
            json_fault(image, &fault)
        } else {
            format!("{image}: {}\n", text(&fault))
        };
        written = out.write_all(line.as_bytes());
    });
    written?;
    flush(&mut out)?;
    if let Err(interrupted) = checked {
        app.fail_at(ExitStatus::Failed, image, interrupted);
        return Ok(None);
    }
    if found.others > 0 {
        let others = counted(found.others, "other fault", "other faults");
        app.fail_at(
            ExitStatus::Corrupt,
            image,
            format_args!("the volume has {others}, which check shows"),
        );
    }
    Ok(Some(found))
}

/// Checks a volume and corrects its quotas. The volume stays locked from the one to the other.
fn repair(args: &Args, image: &Image, app: &mut App) -> io::Result<()> {
    if app.in_script() {
        app.fail(
            ExitStatus::Usage,
            "--repair: the volume is open here; end this first",
        );
        return Ok(());
    }
    // A replay frees orphans, whose usage the check would have counted.
    let opened = recover(image, app).and_then(|_| app.open(image, false));
    let volume = match opened {
        Ok(volume) => volume,
        Err(error) => {
            app.refused(image, &error);
            return Ok(());
        }
    };
    let Some(found) = compare(args, &volume, image, app)? else {
        return Ok(());
    };
    let is_damaged = found.damage > 0 || found.others > 0;
    if is_damaged {
        app.fail_at(
            ExitStatus::Corrupt,
            image,
            "nothing is corrected: there is more damage than wrong numbers",
        );
    } else if found.faults > 0 {
        if let Err(error) = volume.set_read_only(false) {
            app.error(image, &error);
            return Ok(());
        }
        if let Err(error) = correct(volume.quotas(), &found) {
            app.error(image, &error);
        }
    }
    if let Err(error) = volume.close() {
        app.error(image, &error);
    }
    let is_corrected = !is_damaged && app.status() == ExitStatus::Success;
    sum_up(
        args,
        image,
        &found,
        if is_corrected { found.usage.len() } else { 0 },
    )
}

/// Sets the usage of all owners whose quotas are wrong.
fn correct(quotas: Quotas<'_>, found: &Found) -> extern4::Result<()> {
    for ((kind, id), (bytes, inodes)) in &found.usage {
        quotas.correct_usage(*kind, *id, *bytes, *inodes)?;
    }
    Ok(())
}

/// The summary.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct SummaryLine {
    /// The image, as the command line names it.
    image: String,
    /// Faults of the quotas.
    faults: u64,
    /// Owners whose counts were corrected.
    corrected: u64,
}

/// Prints the result.
fn sum_up(args: &Args, image: &Image, found: &Found, corrected: usize) -> io::Result<()> {
    let faults = match found.faults {
        0 => "nothing is wrong with the quotas".to_owned(),
        faults => counted(faults, "fault of the quotas", "faults of the quotas"),
    };
    let corrected_text = if corrected > 0 { ", corrected" } else { "" };
    if args.json {
        print_line(&json::to_line(&SummaryLine {
            image: image.to_string(),
            faults: found.faults,
            corrected: corrected as u64,
        }))
    } else if args.quiet {
        Ok(())
    } else {
        print_line(&format!("{image}: {faults}{corrected_text}\n"))
    }
}

fn print_line(line: &str) -> io::Result<()> {
    io::stdout().lock().write_all(line.as_bytes())
}
