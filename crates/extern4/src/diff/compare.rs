//! The comparison of two trees: types, attributes, contents, and the paths that only one has.
//!
//! Its differences come in the order of paths, whatever the number of threads.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use extern4_tree::{Contents, Entry, Kind};
use extern4_vfs::{Caps, FileType};

use super::blocks::ChangedBlocks;
use super::change::{self, Change};
use super::contents::{Comparer, OneError};
use super::directories::LeadingDirectories;
use super::fault::Fault;
use super::inodes::Inodes;
use super::joint;
use super::listing::{self, Listed, Listing};
use super::threads::each_item;
use super::tree::{Root, Tree};
use super::{Both, Options};
use crate::session::Session;
use crate::volume::Volume;

/// The result of a comparison of two trees.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The differences, in the order of their paths: the names in a directory by their bytes. A
    /// directory that only one tree has stands for all below it.
    pub differences: Vec<Difference>,
    /// Messages of the sources about files that are left out or altered.
    pub warnings: Vec<String>,
    /// The files of each tree that cannot be compared. Of a source that cannot be listed to its
    /// end, nothing is compared.
    pub faults: Both<Vec<Fault>>,
}

/// A path at which the trees differ.
#[derive(Debug)]
pub struct Difference {
    /// The path below the tops of the trees; empty for these.
    pub path: Vec<u8>,
    /// How they differ.
    pub finding: Finding,
}

/// How the trees differ at a path.
#[derive(Debug)]
pub enum Finding {
    /// Only the old tree has the file.
    OnlyInOld(Arc<Entry>),
    /// Only the new tree has the file.
    OnlyInNew(Arc<Entry>),
    /// The files differ in these attributes, or in their contents.
    Changed(Vec<Change>),
}

/// Compares two trees.
///
/// Files without a difference are the same: contents are always compared, also where size and time
/// are equal. Three things are no difference: the size of a directory, the empty `lost+found` of a
/// volume next to a tree that is none, and the fraction of a second that a tree
/// [may lack](Tree::whole_seconds). An attribute that a tree cannot hold is not compared.
pub fn compare(trees: Both<&Tree>, options: &Options) -> Comparison {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    };
    let volumes = volumes(trees);
    let changed = volumes.and_then(|volumes| changed_blocks(volumes, threads));
    if let (Some(volumes), Some(changed)) = (volumes, &changed)
        && changed.is_empty()
        && top_inos(volumes).is_some_and(is_same)
    {
        return Comparison::default();
    }
    let short = volumes.zip(changed.as_ref());
    let short = short.and_then(|(volumes, changed)| short_lists(volumes, changed, threads));
    let mut listings = short.unwrap_or_else(|| whole_lists(trees));
    let mut found = Comparison::default();
    for listing in [&mut listings.old, &mut listings.new] {
        found.warnings.append(&mut listing.warnings);
    }
    if listings.old.failure.is_some() || listings.new.failure.is_some() {
        found.faults = listings.map(Listing::into_faults);
        return found;
    }
    let mut merge = Merge::new(options, trees, listings.as_ref());
    merge.run();
    let Merge {
        candidates, files, ..
    } = merge;
    found.faults = listings.map(Listing::into_faults);
    let outcomes = compare_contents(trees, &files, changed.as_ref(), threads);
    let differences = candidates
        .into_iter()
        .filter_map(|candidate| candidate.difference(&outcomes));
    found.differences = differences.collect();
    for (files, outcome) in files.iter().zip(outcomes) {
        let Err(OneError { is_new, error }) = outcome else {
            continue;
        };
        let (entry, faults) = if is_new {
            (&files.new, &mut found.faults.new)
        } else {
            (&files.old, &mut found.faults.old)
        };
        faults.push(Fault {
            path: entry.path.clone(),
            error,
        });
    }
    found
}

/// Returns the volumes of two trees, and sessions at their tops.
fn volumes(trees: Both<&Tree>) -> Option<Both<(&Volume, &Session)>> {
    match (&trees.old.root, &trees.new.root) {
        (
            Root::Volume {
                volume: old,
                top: old_top,
            },
            Root::Volume {
                volume: new,
                top: new_top,
            },
        ) => Some(Both {
            old: (old, old_top),
            new: (new, new_top),
        }),
        _ => None,
    }
}

/// Returns the blocks in which two volumes differ, if one may be a copy of the other.
fn changed_blocks(volumes: Both<(&Volume, &Session)>, threads: usize) -> Option<ChangedBlocks> {
    // Blocks show no rights, so only the superuser may compare by them.
    let may_see_all = |session: &Session| session.cred().has(Caps::all());
    let may_see_all = may_see_all(volumes.old.1) && may_see_all(volumes.new.1);
    may_see_all
        .then(|| ChangedBlocks::find(volumes.map(|(volume, _)| volume), threads))
        .flatten()
}

/// Returns the inode numbers of the tops.
fn top_inos(volumes: Both<(&Volume, &Session)>) -> Option<Both<u64>> {
    let ino = |top: &Session| top.metadata(".").ok().map(|found| found.ino());
    Some(Both {
        old: ino(volumes.old.1)?,
        new: ino(volumes.new.1)?,
    })
}

/// Lists two copies of one volume, without the files that are the same in both. `None` if only
/// whole lists can tell how they differ.
fn short_lists(
    volumes: Both<(&Volume, &Session)>,
    blocks: &ChangedBlocks,
    threads: usize,
) -> Option<Both<Listing>> {
    let tops = volumes.map(|(_, top)| top);
    let volumes = Both {
        old: &**volumes.old.0.ext4(),
        new: &**volumes.new.0.ext4(),
    };
    let inodes = Inodes::compare(volumes, blocks, threads).ok()?;
    let leading = LeadingDirectories::find(volumes.old, &inodes, threads).ok()?;
    joint::list(tops, &inodes, &leading).ok()
}

/// Lists both trees at the same time.
fn whole_lists(trees: Both<&Tree>) -> Both<Listing> {
    std::thread::scope(|scope| {
        let old = scope.spawn(|| trees.old.list());
        let new = trees.new.list();
        Both {
            old: old
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            new,
        }
    })
}

fn is_same<T: PartialEq>(both: Both<T>) -> bool {
    both.old == both.new
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
    options: &'t Options,
    trees: Both<&'t Tree>,
    listings: Both<&'t Listing>,
    first_names: Both<HashMap<*const Entry, &'t [u8]>>,
    candidates: Vec<Candidate>,
    /// Regular files of the same size.
    files: Vec<Both<Arc<Entry>>>,
    /// The indices of files, which may come again under other names.
    known: HashMap<(*const Entry, *const Entry), usize>,
}

impl<'t> Merge<'t> {
    fn new(options: &'t Options, trees: Both<&'t Tree>, listings: Both<&'t Listing>) -> Self {
        let first_names = listings.map(Listing::first_names);
        let candidates = Vec::new();
        let files = Vec::new();
        let known = HashMap::new();
        Self {
            options,
            trees,
            listings,
            first_names,
            candidates,
            files,
            known,
        }
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
        self.candidates.push(Candidate {
            path: listing::path(key),
            finding,
            files: None,
        });
    }

    /// Compares two files of the same path. Returns whether their types are the same.
    fn pair(&mut self, key: &[u8], files: Both<&Listed>) -> bool {
        let entries = files.map(|file| &file.entry);
        let mut changes = Vec::new();
        let mut compared = None;
        let Some(types) = types(entries) else {
            return true;
        };
        let is_same_type = is_same(types);
        if !is_same_type {
            changes.push(Change::Type(types));
        } else if !files.old.is_implied && !files.new.is_implied {
            let whole_seconds = self.trees.map(|tree| tree.has_whole_seconds);
            changes =
                change::of_attributes(self.options, entries.map(|entry| &**entry), whole_seconds);
        }
        if is_same_type {
            self.links(key, entries, &mut changes);
            compared = self.contents(entries, &mut changes);
        }
        if !changes.is_empty() || compared.is_some() {
            let finding = Finding::Changed(changes);
            self.candidates.push(Candidate {
                path: listing::path(key),
                finding,
                files: compared,
            });
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

/// Returns the types of two files. `None` if one is a further name of a file that could not be
/// read.
fn types(entries: Both<&Arc<Entry>>) -> Option<Both<FileType>> {
    Some(Both {
        old: change::file_type(&entries.old.kind)?,
        new: change::file_type(&entries.new.kind)?,
    })
}

/// Returns whether a file is the directory that every volume has, while the other tree
/// is no volume.
fn is_own(file: &Listed, trees: Both<&Tree>) -> bool {
    file.is_lost_found && volumes(trees).is_none()
}

pub(super) fn contents_of(entry: &Entry) -> Option<&Contents> {
    match &entry.kind {
        Kind::File(contents) => Some(contents),
        _ => None,
    }
}

type Outcome = Result<bool, OneError>;

/// Compares the contents of files. Returns which pairs are the same.
fn compare_contents(
    trees: Both<&Tree>,
    files: &[Both<Arc<Entry>>],
    changed: Option<&ChangedBlocks>,
    threads: usize,
) -> Vec<Outcome> {
    let start = || (Comparer::default(), Vec::new());
    let Ok(states) = each_item(
        threads,
        files.len(),
        start,
        |(comparer, outcomes), index| {
            let Both { old, new } = &files[index];
            outcomes.push((
                index,
                compare_pair(comparer, trees, Both { old, new }, changed),
            ));
            Ok::<_, Infallible>(())
        },
    );
    let mut outcomes: Vec<_> = states
        .into_iter()
        .flat_map(|(_, outcomes)| outcomes)
        .collect();
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn compare_pair(
    comparer: &mut Comparer,
    trees: Both<&Tree>,
    entries: Both<&Entry>,
    changed: Option<&ChangedBlocks>,
) -> Outcome {
    let old = trees.old.open(entries.old).map_err(OneError::of_old)?;
    let new = trees.new.open(entries.new).map_err(OneError::of_new)?;
    comparer.is_same(
        Both {
            old: &old,
            new: &new,
        },
        changed,
    )
}

impl Candidate {
    /// Returns the difference, if there is one.
    fn difference(self, outcomes: &[Outcome]) -> Option<Difference> {
        let Self {
            path,
            mut finding,
            files,
        } = self;
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
