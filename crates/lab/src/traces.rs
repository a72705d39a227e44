//! Recorded traces: the paths that programs ask for, in order, played through all sides.
//!
//! `scripts/record-traces` recorded the traces in `crates/lab/traces`, and describes their format.
//! Calls that ask for attributes and calls that open and close are played. Of a call that changes
//! names, only its walk is played, as a question for the attributes of the name. A name exists in
//! the volume if any call found it. The loadfile of dbench is read from the place where its package
//! installs it.
//!
//! `may_exec` and `main` play them. All sides get the same volume and the same calls in the same
//! order.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use extern4_measure::load::Load;
use extern4_vfs::FileType;

use crate::Result;
use crate::plan::Side;
use crate::volume::{File, Production, check_of};

/// The place where the package of dbench installs its loadfile.
const DBENCH: &str = "/usr/share/dbench/client.txt";
/// Calls between two checks of whether the time is up.
const BATCH: usize = 1000;

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Stat(String),
    Open(String),
}

impl Call {
    fn path(&self) -> &str {
        match self {
            Self::Stat(path) | Self::Open(path) => path,
        }
    }
}

/// The calls of a program, and the files that they refer to.
#[derive(Debug, Default)]
pub struct Trace {
    calls: Vec<Call>,
    /// The existing paths; true for a directory.
    found: BTreeMap<String, bool>,
    /// Directories that not all users may search, with their modes.
    closed: BTreeMap<String, u16>,
}

impl Trace {
    /// Reads a trace: a recorded one, or the loadfile of dbench.
    ///
    /// # Errors
    /// The file cannot be read, or is no trace.
    pub fn read(path: &Path) -> Result<Self> {
        if path == Path::new(DBENCH) {
            return Ok(Self::of_loadfile(&std::fs::read_to_string(path)?));
        }
        let unpacked = Command::new("gzip").arg("-dc").arg(path).output()?;
        if !unpacked.status.success() {
            return Err(format!("{}: {}", path.display(), String::from_utf8_lossy(&unpacked.stderr)).into());
        }
        Self::of_recorded(&String::from_utf8(unpacked.stdout)?)
    }

    /// Reads a recorded trace of the repository.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn named(name: &str) -> Result<Self> {
        Self::read(&folder().join(name).with_extension("gz"))
    }

    /// Returns the path of each call, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.calls.iter().map(Call::path)
    }

    fn of_recorded(text: &str) -> Result<Self> {
        let mut trace = Self::default();
        for line in text.lines() {
            let (kind, path) = line.split_once(' ').ok_or_else(|| format!("no line of a trace: {line}"))?;
            if kind == "d" {
                let (mode, path) = path.split_once(' ').ok_or_else(|| format!("no mode: {line}"))?;
                trace.closed.insert(path.to_owned(), u16::from_str_radix(mode, 8)?);
                continue;
            }
            let failed = kind.chars().all(char::is_uppercase);
            trace.call(kind.eq_ignore_ascii_case("o"), path, !failed);
        }
        Ok(trace)
    }

    /// Parses a loadfile. The format is from dbench(1) and the file itself. Paths are those of
    /// Windows.
    fn of_loadfile(text: &str) -> Self {
        let mut trace = Self::default();
        for line in text.lines() {
            let opens = match line.split(' ').next() {
                Some("NTCreateX") => true,
                Some("QUERY_PATH_INFORMATION" | "FIND_FIRST" | "Unlink" | "Rename" | "Mkdir" | "Deltree") => {
                    false
                }
                _ => continue,
            };
            let is_there = line.ends_with("NT_STATUS_OK");
            for path in line.split('"').skip(1).step_by(2) {
                trace.call(opens, &path.replace('\\', "/"), is_there);
            }
        }
        trace
    }

    fn call(&mut self, opens: bool, path: &str, is_there: bool) {
        let is_directory = path.len() > 1 && path.ends_with('/');
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { "/" } else { path };
        if is_there && path != "/" {
            *self.found.entry(path.to_owned()).or_default() |= is_directory;
            for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
                self.found.insert(path[..at].to_owned(), true);
            }
        }
        let path = path.to_owned();
        self.calls.push(if opens { Call::Open(path) } else { Call::Stat(path) });
    }

    /// Returns the files of the volume. Root owns those that all may search, and the user those
    /// that are closed to others.
    pub fn files(&self) -> Vec<File> {
        let file = |(path, is_directory): (&String, &bool)| {
            let kind = if *is_directory { FileType::Directory } else { FileType::Regular };
            let closed = self.closed.get(path).filter(|_| *is_directory);
            let mode = closed.copied().unwrap_or(if *is_directory { 0o755 } else { 0o644 });
            File { path: path.clone(), kind, uid: if closed.is_some() { 1000 } else { 0 }, mode }
        };
        // A directory sorts before its entries.
        self.found.iter().map(file).collect()
    }
}

/// The cost of a call: nanoseconds of the clock for each call of all threads, and of CPU time.
#[derive(Clone, Copy, Debug)]
struct Took {
    wall: f64,
    cpu: f64,
}

fn play(volume: &Production, calls: &[Call], threads: usize, span: Duration) -> Took {
    let done = Load::of(threads).repeat(
        || std::thread::sleep(span),
        |thread| calls.len() * thread / threads,
        |at| {
            for call in calls.iter().cycle().skip(*at).take(BATCH) {
                // Many names do not exist.
                match call {
                    Call::Stat(path) => drop(std::hint::black_box(volume.stat(path))),
                    Call::Open(path) => drop(std::hint::black_box(volume.open_and_close(path))),
                }
            }
            *at = (*at + BATCH) % calls.len();
            BATCH as u64
        },
    );
    Took { wall: done.nanos(), cpu: done.cpu_nanos() }
}

/// The extent of playing.
#[derive(Clone, Copy, Debug)]
pub struct Playing {
    /// Numbers of threads, one run for each.
    pub threads: &'static [usize],
    /// Time for each figure.
    pub span: Duration,
    /// Samples of each figure, whose median is printed.
    pub rounds: usize,
}

impl Playing {
    /// The extent for a report.
    pub const FULL: Self =
        Self { threads: &[1, 2, 16, 64, 128], span: Duration::from_millis(300), rounds: 3 };
    /// The extent for a test.
    pub const QUICK: Self = Self { threads: &[1, 2], span: Duration::from_millis(1), rounds: 1 };
}

/// Returns the name of a trace, and the percentage of its search checks that each [`Side`] answers
/// the short way.
///
/// # Errors
/// The trace cannot be read.
pub fn shares(file: &Path) -> Result<(String, [f64; 4])> {
    let trace = Trace::read(file)?;
    let (files, paths) = (trace.files(), trace.paths().map(str::to_owned).collect::<Vec<_>>());
    let mut shares = [0.0; 4];
    for side in Side::EVERY {
        shares[side as usize] = share(&Production::new(check_of(side), &files), &paths);
    }
    Ok((name(file), shares))
}

/// Returns the percentage of the search checks of these paths that are answered the short way.
fn share(volume: &Production, paths: &[String]) -> f64 {
    let [fast, full] = volume.searches(paths);
    100.0 * fast as f64 / (fast + full).max(1) as f64
}

/// Returns the name of a trace in tables.
fn name(file: &Path) -> String {
    if file == Path::new(DBENCH) {
        return "dbench".to_owned();
    }
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Plays the traces in `files` and returns tables.
///
/// # Errors
/// A trace cannot be read.
pub fn run(files: &[PathBuf], playing: Playing, say: &mut dyn FnMut(&str)) -> Result<String> {
    let names = Side::EVERY.map(|side| format!(" {} |", side.name())).concat();
    let dashes = "|---".to_owned() + &"|--:".repeat(2 * Side::EVERY.len() + 1) + "|\n";
    let mut out = format!("| trace | threads | ns a call:{names} CPU ns a call:{names}\n{dashes}");
    let mut shares = format!("\n| trace | calls | files | checks that are fast:{names}\n");
    writeln!(shares, "|---{}|", "|--:".repeat(Side::EVERY.len() + 2))?;
    for path in files {
        let trace = Trace::read(path)?;
        let name = name(path);
        let files = trace.files();
        let volumes = Side::EVERY.map(|side| Production::new(check_of(side), &files));
        for &threads in playing.threads {
            say(&format!("{name}, {threads} threads"));
            let round =
                |_| volumes.each_ref().map(|volume| play(volume, &trace.calls, threads, playing.span));
            let rounds: Vec<_> = (0..playing.rounds).map(round).collect();
            let median = |side: usize, what: fn(&Took) -> f64| {
                let mut all: Vec<_> = rounds.iter().map(|round| what(&round[side])).collect();
                all.sort_by(f64::total_cmp);
                format!(" {:.0} |", all[all.len() / 2])
            };
            let whats: [fn(&Took) -> f64; 2] = [|took| took.wall, |took| took.cpu];
            let figures = whats.map(|what| [0, 1, 2, 3].map(|side| median(side, what)).concat()).concat();
            writeln!(out, "| {name} | {threads} |{figures}")?;
        }
        let paths: Vec<_> = trace.paths().map(str::to_owned).collect();
        let fast = volumes.each_ref().map(|volume| format!(" {:.1} % |", share(volume, &paths)));
        writeln!(shares, "| {name} | {} | {} |{}", trace.calls.len(), files.len(), fast.concat())?;
    }
    Ok(out + &shares)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

/// Returns all traces: those in the repository, and the loadfile if dbench is installed.
pub fn all() -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = std::fs::read_dir(folder())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    files.extend(Some(PathBuf::from(DBENCH)).filter(|path| path.exists()));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_trace_is_read_and_played() {
        let text =
            "d 700 /home/user\nS /home/user/none\no /home/user/a/f\ns /home/user/b/\nu /gone\nO /none\n";
        let trace = Trace::of_recorded(text).expect("a trace");
        assert_eq!(trace.calls.len(), 5);
        assert_eq!(trace.calls[1], Call::Open("/home/user/a/f".to_owned()));
        let volume = Production::new(check_of(Side::Extern4), &trace.files());
        let there = trace.calls.iter().map(|call| volume.stat(call.path()).is_ok());
        assert_eq!(there.collect::<Vec<_>>(), [false, true, true, true, false]);
        // All may search / and /home/user/a, and /home/user is the user's own.
        let volume = Production::new(check_of(Side::Baseline), &trace.files());
        assert_eq!(volume.searches(&["/home/user/a/f".to_owned()]), [0, 4]);
        // The first path through a missing directory is walked with references, by the same check.
        let [fast, full] = volume.searches(&["/home/user/a/none/f".to_owned()]);
        assert!(fast == 0 && full >= 4, "{fast} {full}");
        assert!(Trace::of_recorded("nonsense").is_err());
    }

    #[test]
    fn a_loadfile_is_read() {
        let text = "Mkdir \"\\c\" NT_STATUS_OK\nNTCreateX \"\\c\\f\" 0x1 0x2 1 NT_STATUS_OK\nClose 1 NT_STATUS_OK\n\
            Rename \"\\c\\f\" \"\\c\\g\" NT_STATUS_OK\nUnlink \"\\c\\h\" NT_STATUS_NO_SUCH_FILE\n";
        let trace = Trace::of_loadfile(text);
        let paths: Vec<_> = trace.calls.iter().map(Call::path).collect();
        assert_eq!(paths, ["/c", "/c/f", "/c/f", "/c/g", "/c/h"]);
        assert_eq!(trace.files().len(), 3);
    }

    /// The first components of recorded paths: directories that any machine has, and names that the
    /// recorder substitutes.
    const PUBLIC: [&str; 13] =
        ["src", "build", "repo", "home", "tmp", "usr", "lib", "lib64", "bin", "etc", "proc", "sys", "dev"];

    /// Returns whether a path tells nothing of the machine that it was recorded on.
    fn is_public(path: &str) -> bool {
        let parts: Vec<_> = path.split('/').skip(1).collect();
        match parts[..] {
            [""] => true,
            ["home", "user", ".cargo", "registry", _, host, ..] => host == "registry",
            ["home", "user", first, ..] => [".cargo", ".rustup", ".config", ".gitconfig"].contains(&first),
            ["home", other, ..] => other == "user",
            [first, ..] => PUBLIC.contains(&first),
            [] => false,
        }
    }

    /// Each trace is small, and names nothing of the machine that it was recorded on.
    #[test]
    fn recorded_traces_are_small_and_public() {
        let files = all().expect("traces");
        let names: Vec<_> = files.iter().filter_map(|file| file.file_stem()?.to_str()).collect();
        assert_eq!(names[..3], ["c-build", "cargo-check", "git-status"]);
        for file in &files[..3] {
            assert!(std::fs::metadata(file).expect("a trace").len() < 300_000, "{}", file.display());
            let trace = Trace::read(file).expect("a trace");
            assert!(trace.calls.len() > 1000, "{}", file.display());
            let foreign = trace.calls.iter().find(|call| !is_public(call.path()));
            assert_eq!(foreign, None, "{}", file.display());
        }
        assert!(!is_public("/home/user/.cargo/registry/src/index.crates.io/x") && !is_public("/root/x"));
    }

    #[test]
    fn all_traces_are_played_on_all_sides() {
        let files = all().expect("traces");
        let text = run(&files, Playing::QUICK, &mut |_| {}).expect("they are played");
        let lines = |name: &str| text.lines().filter(|line| line.starts_with(&format!("| {name} |"))).count();
        for file in &files {
            assert_eq!(lines(&name(file)), Playing::QUICK.threads.len() + 1, "{text}");
        }
    }
}
