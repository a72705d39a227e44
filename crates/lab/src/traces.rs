//! Recorded traces: the paths that programs ask for, in order.
//!
//! `scripts/record-traces` recorded the traces in `crates/lab/traces`, and describes their format.
//! `may_exec` asks for the attributes of each path, whatever the call did. A name exists in the
//! volume if any call found it. Directories that not all users may search keep their modes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use extern4_vfs::FileType;

use crate::Result;
use crate::volume::File;

/// The paths of a program's calls, and the files that they refer to.
#[derive(Debug, Default)]
pub struct Trace {
    paths: Vec<String>,
    /// The existing paths; true for a directory.
    found: BTreeMap<String, bool>,
    /// Directories that not all users may search, with their modes.
    closed: BTreeMap<String, u16>,
}

impl Trace {
    /// Reads a trace of the repository.
    ///
    /// # Errors
    /// There is no such trace, or it is damaged.
    pub fn named(name: &str) -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("traces")
            .join(name)
            .with_extension("gz");
        let unpacked = Command::new("gzip").arg("-dc").arg(&path).output()?;
        if !unpacked.status.success() {
            return Err(format!(
                "{}: {}",
                path.display(),
                String::from_utf8_lossy(&unpacked.stderr)
            )
            .into());
        }
        Self::of(&String::from_utf8(unpacked.stdout)?)
    }

    /// Returns the path of each call, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    fn of(text: &str) -> Result<Self> {
        let mut trace = Self::default();
        for line in text.lines() {
            let (kind, path) = line
                .split_once(' ')
                .ok_or_else(|| format!("no line of a trace: {line}"))?;
            if kind == "d" {
                let (mode, path) = path
                    .split_once(' ')
                    .ok_or_else(|| format!("no mode: {line}"))?;
                trace
                    .closed
                    .insert(path.to_owned(), u16::from_str_radix(mode, 8)?);
                continue;
            }
            trace.call(path, !kind.chars().all(char::is_uppercase));
        }
        Ok(trace)
    }

    fn call(&mut self, path: &str, is_there: bool) {
        let is_directory = path.len() > 1 && path.ends_with('/');
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { "/" } else { path };
        if is_there && path != "/" {
            *self.found.entry(path.to_owned()).or_default() |= is_directory;
            for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
                self.found.insert(path[..at].to_owned(), true);
            }
        }
        self.paths.push(path.to_owned());
    }

    /// Returns the files of the volume. Root owns the files that all may search, and the user the
    /// files that are closed to others.
    pub fn files(&self) -> Vec<File> {
        let file = |(path, is_directory): (&String, &bool)| {
            let kind = if *is_directory {
                FileType::Directory
            } else {
                FileType::Regular
            };
            let closed = self.closed.get(path).filter(|_| *is_directory);
            let mode = closed
                .copied()
                .unwrap_or(if *is_directory { 0o755 } else { 0o644 });
            File {
                path: path.clone(),
                kind,
                uid: if closed.is_some() { 1000 } else { 0 },
                mode,
            }
        };
        // A directory sorts before its entries.
        self.found.iter().map(file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Side;
    use crate::volume::{Production, check_of};

    #[test]
    fn a_recorded_trace_is_read() {
        let text = "d 700 /home/user\nS /home/user/none\no /home/user/a/f\ns /home/user/b/\nu /gone\nO /none\n";
        let trace = Trace::of(text).expect("a trace");
        assert_eq!(trace.paths[..2], ["/home/user/none", "/home/user/a/f"]);
        let volume = Production::new(check_of(Side::Extern4), &trace.files());
        let there = trace.paths().map(|path| volume.stat(path).is_ok());
        assert_eq!(there.collect::<Vec<_>>(), [false, true, true, true, false]);
        // All may search / and /home/user/a, and /home/user is the user's own.
        let volume = Production::new(check_of(Side::Baseline), &trace.files());
        assert_eq!(volume.searches(&["/home/user/a/f".to_owned()]), [0, 4]);
        // The first path through a missing directory is walked with references, by the same check.
        let [fast, full] = volume.searches(&["/home/user/a/none/f".to_owned()]);
        assert!(fast == 0 && full >= 4, "{fast} {full}");
        assert!(Trace::of("nonsense").is_err());
    }

    /// The first components of recorded paths: directories that any machine has, and names that the
    /// recorder substitutes.
    const PUBLIC: [&str; 13] = [
        "src", "build", "repo", "home", "tmp", "usr", "lib", "lib64", "bin", "etc", "proc", "sys",
        "dev",
    ];

    /// Returns whether a path tells nothing of the machine that it was recorded on.
    fn is_public(path: &str) -> bool {
        let parts: Vec<_> = path.split('/').skip(1).collect();
        match parts[..] {
            [""] => true,
            ["home", "user", ".cargo", "registry", _, host, ..] => host == "registry",
            ["home", "user", first, ..] => {
                [".cargo", ".rustup", ".config", ".gitconfig"].contains(&first)
            }
            ["home", other, ..] => other == "user",
            [first, ..] => PUBLIC.contains(&first),
            [] => false,
        }
    }

    /// Each trace is small, and names nothing of the machine that it was recorded on.
    #[test]
    fn recorded_traces_are_small_and_public() {
        for name in ["c-build", "cargo-check"] {
            let trace = Trace::named(name).expect("a trace");
            assert!(trace.paths.len() > 1000, "{name}");
            assert_eq!(trace.paths().find(|path| !is_public(path)), None, "{name}");
        }
        assert!(
            !is_public("/home/user/.cargo/registry/src/index.crates.io/x") && !is_public("/root/x")
        );
    }
}
