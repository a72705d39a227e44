//! The comparison of two trees: types, attributes, contents, and the paths that only one has.
//!
//! `diff` calls it with the operands. Its differences come in the order of paths, whatever the
//! number of threads. Something that cannot be read is reported as trouble and never as equal.

use std::collections::HashMap;
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extern4_tree::{Contents, Entry, Kind};

use super::blocks::ChangedBlocks;
use super::change::{self, Change};
use super::contents::{Comparer, Fault, Opener};
use super::directories::LeadingDirectories;
use super::inodes::Inodes;
use super::joint;
use super::listing::{self, Listed, Listing};
use super::operand::{Root, Tree};
use super::threads::each_item;
use super::{Args, Both};
use crate::app::{App, Target};
use crate::exit_status::ExitStatus;
use crate::volume_tree::{at, report_unreadable};

/// A path at which the trees differ.
pub(super) struct Difference {
    pub(super) path: Vec<u8>,
    pub(super) finding: Finding,
}

/// How the trees differ at a path.
pub(super) enum Finding {
    OnlyInOld(Arc<Entry>),
    OnlyInNew(Arc<Entry>),
    Changed(Vec<Change>),
}

/// Compares two trees. Reports what cannot be compared.
pub(super) fn trees(args: &Args, trees: &Both<Tree>, app: &mut App) -> Vec<Difference> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Blocks show no rights, so only the superuser may compare by them.
    let changed = app.is_superuser().then(|| changed_blocks(trees, threads)).flatten();
    if changed.as_ref().is_some_and(ChangedBlocks::is_empty) && tops(trees).is_some_and(is_same) {
        return Vec::new();
    }
    let openers = trees.as_ref().map(Tree::opener);
    let listings = changed.as_ref().and_then(|blocks| short_lists(trees, blocks, threads));
    let listings = listings.unwrap_or_else(|| whole_lists(openers.as_ref()));
    let is_complete = report(&listings.old, &trees.old, app) & report(&listings.new, &trees.new, app);
    if !is_complete {
        return Vec::new();
    }
    let mut merge = Merge::new(args, trees, listings.as_ref());
    merge.run();
    let Merge { candidates, files, .. } = merge;
    let outcomes = compare_contents(openers.as_ref(), &files, changed.as_ref(), threads);
    report_faults(&outcomes, app);
    candidates.into_iter().filter_map(|candidate| candidate.difference(&outcomes)).collect()
}

/// Returns the blocks in which two volumes differ, if one may be a copy of the other.
fn changed_blocks(trees: &Both<Tree>, threads: usize) -> Option<ChangedBlocks> {
    match (&trees.old.root, &trees.new.root) {
        (Root::Volume(old), Root::Volume(new)) => {
            ChangedBlocks::find(Both { old: &old.volume, new: &new.volume }, threads)
        }
        _ => None,
    }
}

/// Lists two copies of one volume, without the files that are the same in both. `None` if only
/// whole lists can tell how they differ.
fn short_lists(trees: &Both<Tree>, blocks: &ChangedBlocks, threads: usize) -> Option<Both<Listing>> {
    let (Root::Volume(old), Root::Volume(new)) = (&trees.old.root, &trees.new.root) else { return None };
    let volumes = Both { old: &**old.volume.volume.ext4(), new: &**new.volume.volume.ext4() };
    let inodes = Inodes::compare(volumes, blocks, threads).ok()?;
    let leading = LeadingDirectories::find(volumes.old, &inodes, threads).ok()?;
    let top = |target: &Target| at(target.session(), target.path().as_os_str().as_bytes()).ok();
    let tops = Both { old: top(old)?, new: top(new)? };
    joint::list(tops.as_ref(), &inodes, &leading).ok()
}

/// Lists both trees at the same time.
fn whole_lists(openers: Both<&Opener<'_>>) -> Both<Listing> {
    std::thread::scope(|scope| {
        let old = scope.spawn(|| openers.old.list());
        let new = openers.new.list();
        Both { old: old.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), new }
    })
}

/// Returns the paths of the tops, if both are in volumes.
fn tops(trees: &Both<Tree>) -> Option<Both<&Path>> {
    match (&trees.old.root, &trees.new.root) {
        (Root::Volume(old), Root::Volume(new)) => Some(Both { old: old.path(), new: new.path() }),
        _ => None,
    }
}

fn is_same<T: PartialEq>(both: Both<T>) -> bool {
    both.old == both.new
}

/// Reports files that a list lacks. Returns whether the source was listed to its end.
fn report(listing: &Listing, tree: &Tree, app: &mut App) -> bool {
    for warning in &listing.warnings {
        app.note(format_args!("warning: {warning}"));
    }
    if let Root::Volume(target) = &tree.root {
        listing.unreadable.iter().for_each(|file| report_unreadable(file, target, app));
    }
    if let Some(failure) = &listing.failure {
        app.fail(ExitStatus::Failed, failure);
    }
    listing.failure.is_none()
}

/// A path that both trees have, or only one.
struct Candidate {
    path: Vec<u8>,
    finding: Finding,
    /// The index of its files in [`Merge::files`], if their contents have to be compared.
    files: Option<usize>,
}

/// A walk over both lists, in the order of their keys.
struct Merge<'t> {
    args: &'t Args,
    trees: &'t Both<Tree>,
    listings: Both<&'t Listing>,
    first_names: Both<HashMap<*const Entry, &'t [u8]>>,
    candidates: Vec<Candidate>,
    /// Regular files of the same size.
    files: Vec<Both<Arc<Entry>>>,
    /// The indices of files, which may come again under other names.
    known: HashMap<(*const Entry, *const Entry), usize>,
}

impl<'t> Merge<'t> {
    fn new(args: &'t Args, trees: &'t Both<Tree>, listings: Both<&'t Listing>) -> Self {
        let first_names = listings.map(Listing::first_names);
        let (candidates, files, known) = (Vec::new(), Vec::new(), HashMap::new());
        Self { args, trees, listings, first_names, candidates, files, known }
    }

    fn run(&mut self) {
        let mut old = self.listings.old.files.iter().peekable();
        let mut new = self.listings.new.files.iter().peekable();
        // A directory that only one tree has stands for all below it.
        let mut skipped: Option<Vec<u8>> = None;
        loop {
            let (key, files) = match (old.peek(), new.peek()) {
                (None, None) => return,
                (Some((key, _)), None) => (*key, (old.next(), None)),
                (None, Some((key, _))) => (*key, (None, new.next())),
                (Some((left, _)), Some((right, _))) => match left.cmp(right) {
                    std::cmp::Ordering::Less => (*left, (old.next(), None)),
                    std::cmp::Ordering::Greater => (*right, (None, new.next())),
                    std::cmp::Ordering::Equal => (*left, (old.next(), new.next())),
                },
            };
            if skipped.as_ref().is_some_and(|above| key.starts_with(above)) {
                continue;
            }
            let is_in_both = match files {
                (Some((_, old)), Some((_, new))) => self.pair(key, Both { old, new }),
                (Some((_, old)), None) => {
                    if !self.listings.new.may_lack(key) && !is_own(old, self.trees) {
                        self.only(key, Finding::OnlyInOld(Arc::clone(&old.entry)));
                    }
                    false
                }
                (None, Some((_, new))) => {
                    if !self.listings.old.may_lack(key) && !is_own(new, self.trees) {
                        self.only(key, Finding::OnlyInNew(Arc::clone(&new.entry)));
                    }
                    false
                }
                (None, None) => return,
            };
            if !is_in_both {
                skipped = Some([key, &[0][..]].concat());
            }
        }
    }

    fn only(&mut self, key: &[u8], finding: Finding) {
        self.candidates.push(Candidate { path: listing::path(key), finding, files: None });
    }

    /// Compares two files of the same path. Returns whether their types are the same.
    fn pair(&mut self, key: &[u8], files: Both<&Listed>) -> bool {
        let entries = files.map(|file| &file.entry);
        let is_unreadable = |entry: &Arc<Entry>| matches!(entry.kind, Kind::HardLink(_));
        if is_unreadable(entries.old) || is_unreadable(entries.new) {
            return true;
        }
        let mut changes = Vec::new();
        let mut compared = None;
        if !files.old.is_implied && !files.new.is_implied {
            let whole_seconds = self.trees.as_ref().map(Tree::may_have_whole_seconds);
            changes = change::of_attributes(self.args, entries.map(|entry| &**entry), whole_seconds);
        } else if !is_same(entries.map(|entry| change::type_of(&entry.kind))) {
            changes.push(Change::Type(entries.map(|entry| change::type_of(&entry.kind))));
        }
        let is_same_type = !matches!(changes.first(), Some(Change::Type(_)));
        if is_same_type {
            self.links(key, entries, &mut changes);
            compared = self.contents(entries, &mut changes);
        }
        if !changes.is_empty() || compared.is_some() {
            let finding = Finding::Changed(changes);
            self.candidates.push(Candidate { path: listing::path(key), finding, files: compared });
        }
        is_same_type
    }

    /// Compares which names belong to one file.
    fn links(&self, key: &[u8], entries: Both<&Arc<Entry>>, changes: &mut Vec<Change>) {
        let first = |names: &HashMap<*const Entry, &'t [u8]>, entry: &Arc<Entry>| {
            listing::path(names.get(&Arc::as_ptr(entry)).copied().unwrap_or(key))
        };
        let first = Both {
            old: first(&self.first_names.old, entries.old),
            new: first(&self.first_names.new, entries.new),
        };
        if first.old != first.new {
            changes.push(Change::Links(first));
        }
    }

    /// Notes that contents have to be compared. Files of different sizes have different contents.
    fn contents(&mut self, entries: Both<&Arc<Entry>>, changes: &mut Vec<Change>) -> Option<usize> {
        let size = |entry: &Arc<Entry>| contents_of(entry).map(|contents| contents.size);
        let sizes = entries.map(size);
        if sizes.old != sizes.new {
            changes.push(Change::Contents);
            return None;
        }
        sizes.old.filter(|size| *size > 0)?;
        let key = (Arc::as_ptr(entries.old), Arc::as_ptr(entries.new));
        let files = &mut self.files;
        Some(*self.known.entry(key).or_insert_with(|| {
            files.push(entries.map(Arc::clone));
            files.len() - 1
        }))
    }
}

/// Returns whether a file is the directory that every volume has of its own, while the other tree
/// is no volume.
fn is_own(file: &Listed, trees: &Both<Tree>) -> bool {
    let are_volumes = matches!((&trees.old.root, &trees.new.root), (Root::Volume(_), Root::Volume(_)));
    file.is_lost_found && !are_volumes
}

fn contents_of(entry: &Entry) -> Option<&Contents> {
    match &entry.kind {
        Kind::File(contents) => Some(contents),
        _ => None,
    }
}

type Outcome = Result<bool, Fault>;

/// Compares the contents of files. Returns which pairs are the same.
fn compare_contents(
    openers: Both<&Opener<'_>>,
    files: &[Both<Arc<Entry>>],
    changed: Option<&ChangedBlocks>,
    threads: usize,
) -> Vec<Outcome> {
    let start = || (Comparer::default(), Vec::new());
    let Ok(states) = each_item(threads, files.len(), start, |(comparer, outcomes), index| {
        let entries = files[index].as_ref().map(|entry| &**entry);
        if let (Some(old), Some(new)) = (contents_of(entries.old), contents_of(entries.new)) {
            outcomes.push((index, comparer.is_same(openers, entries, Both { old, new }, changed)));
        }
        Ok::<_, Infallible>(())
    });
    let mut outcomes: Vec<_> = states.into_iter().flat_map(|(_, outcomes)| outcomes).collect();
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn report_faults(outcomes: &[Outcome], app: &mut App) {
    for fault in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        match fault {
            Fault::Volume(image_path, error) => app.error(image_path, error),
            Fault::Source(error) => app.fail(ExitStatus::Failed, error),
        }
    }
}

impl Candidate {
    /// Returns the difference, if there is one.
    fn difference(self, outcomes: &[Outcome]) -> Option<Difference> {
        let Self { path, mut finding, files } = self;
        if let Finding::Changed(changes) = &mut finding {
            if files.is_some_and(|files| matches!(outcomes[files], Ok(false))) {
                changes.push(Change::Contents);
            }
            if changes.is_empty() {
                return None;
            }
        }
        Some(Difference { path, finding })
    }
}
