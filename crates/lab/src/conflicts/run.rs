//! Makes the pairs on a volume, and finds the lines that they conflict on.
//!
//! `conflicts` calls it for each kind of volume. It compares each result with the specification,
//! and stops if one differs; so a fast wrong call is never counted as free.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use extern4_sync::audit::{Conflict, Footprint, conflicts};
use extern4_vfs::{LookupFlags, NewKind, OpenFlags, Session};

use super::field::Fields;
use super::setup::Setup;
use super::worker::{BLOCK_BYTES, CallReport, ObservedOutcome, Worker};
use super::{Matrix, TRIES, Test};
use crate::Result;
use crate::spec::{BLOCKS, Kind, NameSlot, Outcome, Pair};

/// Makes all pairs. The first `stepped` calls of each kind are single-stepped, to count the locked
/// instructions that the audit does not record. That takes long.
///
/// # Errors
/// A call fails with an error that the specification does not have, or returns something else than
/// specified.
pub fn run(setup: &Setup, pairs: &[Pair], stepped: usize) -> Result<Matrix> {
    let mut bench =
        Bench { root: setup.session(), fields: Fields::default(), made: 0, stepped, unseen: BTreeMap::new() };
    let tests = thread::scope(|scope| {
        let workers = [0, 1].map(|number| Worker::start(scope, number, setup.session()));
        bench.warm_up(&workers)?;
        pairs.iter().map(|pair| bench.test(&workers, pair)).collect::<Result<_>>()
    })?;
    let mean =
        |(kind, counts): (Kind, Vec<u64>)| (kind, counts.iter().sum::<u64>() as f64 / counts.len() as f64);
    Ok(Matrix { on: setup.on(), tests, unseen: bench.unseen.into_iter().map(mean).collect() })
}

/// The state of a run.
struct Bench {
    root: Session,
    fields: Fields,
    /// The number of directories made so far.
    made: usize,
    /// The number of calls of each kind to single-step.
    stepped: usize,
    /// Locked instructions that the audit did not record, of the first calls of each kind.
    unseen: BTreeMap<Kind, Vec<u64>>,
}

impl Bench {
    /// Warms up the workers. Threads that create files at the same time choose places apart from
    /// each other after a conflict.
    fn warm_up(&mut self, workers: &[Worker; 2]) -> Result<()> {
        const TIMES: usize = 50;
        let at = NameSlot { dir: 0, name: 0 };
        for _ in 0..TIMES {
            let base = self.directory()?;
            self.root.mknod(format!("{base}/{}", at.path()), NewKind::Regular, 0o644)?;
            Worker::prepare_at_once(workers, &base, at);
            workers.iter().for_each(Worker::forget);
            self.remove(&base)?;
        }
        Ok(())
    }

    /// Tests a pair, and repeats it in other directories while the calls conflict.
    fn test(&mut self, workers: &[Worker; 2], pair: &Pair) -> Result<Test> {
        let mut met = Vec::new();
        for number in 0..TRIES {
            met.push(self.attempt(workers, pair, number)?);
            if met.last().is_some_and(BTreeSet::is_empty) {
                break;
            }
        }
        let at_first = met[0].is_empty();
        let common = met.iter().skip(1).fold(met[0].clone(), |common, fields| &common & fields);
        let last = met.pop().expect("there was a try");
        // A field in conflict at each try is not there by chance.
        let fields = if common.is_empty() { last } else { common };
        Ok(Test { kinds: pair.kinds(), nearness: pair.nearness(), at_first, fields })
    }

    /// Makes a pair once. Returns the names of the fields in conflict.
    fn attempt(&mut self, workers: &[Worker; 2], pair: &Pair, number: usize) -> Result<BTreeSet<String>> {
        let base = self.directory()?;
        let numbers = self.create_files(&base, pair)?;
        for (worker, file) in workers.iter().zip(pair.start.open) {
            let at = NameSlot::all().find(|at| pair.start.names[at.index()] == Some(file));
            worker.prepare(&base, at.expect("what is open has a name"));
        }
        // Warm up: a repeated call finds its data cached from the second time on.
        if pair.kinds().iter().all(|kind| kind.reads_only()) {
            Worker::stat_in_turn(workers);
        } else {
            // A repeated write is visible to the other call only if the two do not commute.
            let calls = [0, 1].map(|who| pair.kinds()[who].is_repeatable().then_some(pair.calls[who]));
            Worker::repeat(workers, calls);
        }
        // Alternate, so that the second caller is not always the same.
        let first = number % 2;
        let mut reports = [None, None];
        for who in [first, 1 - first] {
            let kind = pair.kinds()[who];
            let step =
                self.stepped > 0 && self.unseen.get(&kind).is_none_or(|counts| counts.len() < self.stepped);
            let call = workers[who].call(pair.calls[who], step);
            if let Some(unseen) = call.unseen {
                self.unseen.entry(kind).or_default().push(unseen);
            }
            reports[who] = Some(call);
        }
        let reports = reports.map(|reports| reports.expect("both have called"));
        for who in [0, 1] {
            check(pair, who, &reports[who], &numbers)?;
        }
        workers.iter().for_each(Worker::forget);
        self.remove(&base)?;
        let footprints = reports.map(|reports| reports.footprint);
        let found = conflicts(&footprints[0], &footprints[1]);
        Ok(found.iter().map(|conflict| self.name(conflict, &footprints)).collect())
    }

    /// Names the fields on a line in conflict: those that are written. If the other call uses none
    /// of them, also the fields that it uses, which need not share the line.
    fn name(&mut self, conflict: &Conflict, footprints: &[Footprint; 2]) -> String {
        let [ours, theirs] = footprints.each_ref().map(|footprint| {
            let of_line = footprint.accesses(conflict.line);
            of_line.map(|access| (self.fields.name(access.site), access.kind.writes())).collect::<Vec<_>>()
        });
        let both = || ours.iter().chain(&theirs);
        let written: BTreeSet<_> =
            both().filter(|(_, writes)| *writes).map(|(name, _)| name.as_str()).collect();
        let meet =
            |name: &str| [&ours, &theirs].iter().all(|side| side.iter().any(|(known, _)| known == name));
        let mut text = written.iter().copied().collect::<Vec<_>>().join(" + ");
        if !written.iter().any(|name| meet(name)) {
            let neighbours: BTreeSet<_> = both()
                .filter(|(name, _)| !written.contains(name.as_str()))
                .map(|(name, _)| name.as_str())
                .collect();
            if !neighbours.is_empty() {
                text +=
                    &format!(", on the line of {}", neighbours.into_iter().collect::<Vec<_>>().join(" + "));
            }
        }
        text
    }

    /// Creates a directory with the two directories of the specification.
    fn directory(&mut self) -> Result<String> {
        self.made += 1;
        let base = format!("/t{}", self.made);
        self.root.mkdir(&base, 0o755)?;
        for dir in [0, 1] {
            self.root.mkdir(format!("{base}/d{dir}"), 0o755)?;
        }
        Ok(base)
    }

    /// Creates the initial files of a pair. Returns their inode numbers.
    fn create_files(&self, base: &str, pair: &Pair) -> Result<Vec<u64>> {
        let mut first: Vec<Option<(String, u64)>> = vec![None; pair.start.files()];
        for at in NameSlot::all() {
            let path = format!("{base}/{}", at.path());
            let Some(file) = pair.start.names[at.index()] else { continue };
            if let Some((other, _)) = &first[file] {
                self.root.link(other, LookupFlags::FOLLOW, &path)?;
                continue;
            }
            let open = self.root.open(&path, OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL)?;
            open.write_at(&vec![0; BLOCKS * BLOCK_BYTES as usize], 0)?;
            self.root.chmod(&path, 0o644, LookupFlags::FOLLOW)?;
            first[file] = Some((path, open.stat().ino));
        }
        Ok(first.into_iter().flatten().map(|(_, ino)| ino).collect())
    }

    fn remove(&self, base: &str) -> Result<()> {
        for at in NameSlot::all() {
            // The name may not exist any more.
            let _ = self.root.unlink(format!("{base}/{}", at.path()));
        }
        for dir in ["/d0", "/d1", ""] {
            self.root.rmdir(format!("{base}{dir}"))?;
        }
        Ok(())
    }
}

/// Checks that the volume returned the specified outcome.
fn check(pair: &Pair, who: usize, reports: &CallReport, numbers: &[u64]) -> Result<()> {
    let call = pair.calls[who];
    let seen = reports.outcome.clone()?;
    let is_as_specified = match (pair.outcomes[who], seen) {
        (Outcome::Attributes { file, links, mode, .. }, ObservedOutcome::Attributes(ino, nlink, bits)) => {
            (numbers[file], links, mode) == (ino, nlink, bits)
        }
        (specified, ObservedOutcome::As(seen)) => specified == seen,
        _ => false,
    };
    match is_as_specified {
        true => Ok(()),
        false => {
            Err(format!("{call} returned {seen:?} and not {:?}, in {pair:?}", pair.outcomes[who]).into())
        }
    }
}
