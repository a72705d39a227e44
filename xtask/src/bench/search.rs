//! Rows of the search check that a walk makes in every directory, on a path of many of them in
//! memory.

use std::time::Instant;

use extern4_measure::callgrind;
use extern4_vfs::lab::Check;
use extern4_vfs::{LookupFlags, Session};

use super::row::{Row, Unit};
use super::tree;
use super::{Bench, RUNS, Result};

/// Walks in one measured loop.
const WALKS: u32 = 200_000;

impl Bench {
    /// Instructions for a walk with the search check from the permission word, by the full one:
    /// 15 % fewer.
    pub(super) fn search_instructions(&self) -> Result<Row> {
        search_instructions("walk-12-fast-search-instructions", &tree::path())
    }

    /// A walk on which an ACL in every directory names the user, compared with one without ACLs.
    pub(super) fn search_acls(&self) -> Result<Row> {
        search_acls("walk-12-acls-vs-none", tree::NAMED, &tree::path())
    }

    /// A walk on which ACLs that refuse strangers name the user, compared with one without ACLs.
    pub(super) fn search_asked_acls(&self) -> Result<Row> {
        search_acls(
            "walk-12-acls-that-refuse-vs-none",
            tree::REFUSING,
            &tree::path(),
        )
    }
}

fn search_instructions(name: &'static str, path: &str) -> Result<Row> {
    // 15 % fewer: one to 0.85.
    let mut row = Row::faster(name, Unit::Instructions, 1.176);
    // Counts hardly differ from run to run.
    for _ in 0..RUNS.min(5) {
        row.add(instructions("fast", path)?, instructions("full", path)?);
    }
    let root = tree::volume(None).map_err(|e| e.to_string())?;
    let before = root.root().superblock().stats();
    walk(&tree::user(&root), path, 1000)?;
    let after = root.root().superblock().stats();
    let fast = after.fast_searches - before.fast_searches;
    let all = fast + after.full_searches - before.full_searches;
    row.set_note(format!(
        "{:.1} % fewer, {:.1} % of the checks fast",
        100.0 - 100.0 / row.ratio(),
        fast as f64 * 100.0 / all as f64
    ));
    Ok(row)
}

fn search_acls(name: &'static str, acl: &'static str, path: &str) -> Result<Row> {
    let [named, none] =
        [Some(acl), None].map(|acl| tree::volume(acl).map(|root| tree::user(&root)));
    let named = named.map_err(|e| e.to_string())?;
    let none = none.map_err(|e| e.to_string())?;
    let mut row = Row::below(name, Unit::Times, 1.5);
    let mut times = Vec::new();
    for run in 0..=RUNS {
        let with = walk(&named, path, WALKS)?;
        let without = walk(&none, path, WALKS)?;
        if run > 0 {
            row.add(with / without, 1.5);
            times.push((with, without));
        }
    }
    let best = |pick: fn(&(f64, f64)) -> f64| times.iter().map(pick).fold(f64::INFINITY, f64::min);
    row.set_note(format!(
        "at best {:.0} ns with and {:.0} ns without",
        best(|t| t.0),
        best(|t| t.1)
    ));
    Ok(row)
}

/// Walks that often; nanoseconds for each.
fn walk(user: &Session, path: &str, walks: u32) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..walks {
        std::hint::black_box(user.stat(std::hint::black_box(path), LookupFlags::FOLLOW))
            .map_err(|e| e.to_string())?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(walks))
}

/// Instructions for one walk: what a long run has more than a short one.
fn instructions(check: &str, path: &str) -> Result<f64> {
    let short = 1_000;
    let long = 11_000;
    Ok((collected(check, path, long)? - collected(check, path, short)?) / f64::from(long - short))
}

/// Instructions of a whole run of [`search_loop`].
fn collected(check: &str, path: &str, walks: u32) -> Result<f64> {
    Ok(callgrind::run(&["search-loop", check, path, &walks.to_string()], None)?.0)
}

/// The hidden subcommand `search-loop fast|full PATH WALKS`: walks in memory, for a tool that
/// counts what that costs.
pub(super) fn search_loop(args: &[String]) -> Result<()> {
    let [check, path, walks] = args else {
        return Err("search-loop takes fast or full, a path, and a number".to_owned());
    };
    let walks = walks.parse().map_err(|_| "walks are a number")?;
    let check = if check == "fast" {
        Check::Word
    } else {
        Check::Full
    };
    let root = tree::volume_with(check, None).map_err(|e| e.to_string())?;
    walk(&tree::user(&root), path, walks).map(drop)
}
