//! Lookups next to changes: no answer is older than the last change that ended before the question.
//!
//! One thread makes changes of twelve kinds and publishes the right answer for each path. Others
//! ask for these paths. An answer counts if no change of its directory began or ended meanwhile,
//! and then it has to be the right one. Half of the directories have hash trees, and one of two
//! volumes has too little memory for all names. `EXTERN4_STALE_CHECKS` says how many answers are to
//! count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use extern4::block::MemoryDevice;
use extern4::{RenameFlags, Session, Volume};
use extern4_testkit::image::ImageSpec;

const SPEC: ImageSpec = ImageSpec::new(
    "stale",
    32 << 20,
    &["-t", "ext4", "-b", "1024", "-N", "8000"],
);
/// Places that change independently.
const PLACES: usize = 6;
/// Paths that are asked for: two names in a directory that stays, and in one that moves, under both
/// of its names.
const PATHS: usize = 6;
/// Names in a directory that moves, so that it has a hash tree.
const FILLING: usize = 300;
const ASKING: usize = 3;

/// The kinds of changes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Create,
    MakeDir,
    Symlink,
    Link,
    Unlink,
    RemoveDir,
    RenameWithin,
    RenameAcross,
    Replace,
    Exchange,
    MoveParent,
    Chmod,
}

const CHANGES: [Change; 12] = [
    Change::Create,
    Change::MakeDir,
    Change::Symlink,
    Change::Link,
    Change::Unlink,
    Change::RemoveDir,
    Change::RenameWithin,
    Change::RenameAcross,
    Change::Replace,
    Change::Exchange,
    Change::MoveParent,
    Change::Chmod,
];

/// The answers for the paths of a place, as other threads see them.
#[derive(Default)]
struct Shown {
    /// Odd while a change is under way.
    version: AtomicU64,
    /// Attributes as [`answer`] packs them, 0 for a path that is not there.
    answers: [AtomicU64; PATHS],
}

/// A place as the thread that changes it knows it.
struct Place {
    number: usize,
    /// The directory that moves has its other name.
    moved: bool,
    /// The attributes behind two names in each of the two directories.
    names: [Option<u64>; 4],
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("below the bound")
    }
}

/// Links to a file, in the packed attributes.
const LINKS: u64 = 0xff;
const MODES: u64 = 0xffff << 8;

/// Returns the number, the mode and the links of a path in one word.
fn answer(session: &Session, path: &str) -> u64 {
    session.symlink_metadata(path).map_or(0, |found| {
        found.ino() << 24
            | u64::from(found.mode()) << 8
            | if found.is_dir() {
                0
            } else {
                u64::from(found.nlink())
            }
    })
}

fn is_directory(attributes: u64) -> bool {
    attributes & (0o170_000 << 8) == 0o040_000 << 8
}

fn is_link(attributes: u64) -> bool {
    attributes & (0o170_000 << 8) == 0o120_000 << 8
}

fn path(place: usize, path: usize) -> String {
    let directory = ["near", "far", "moved"][path / 2];
    format!("/place{place}/{directory}/{}", ["a", "b"][path % 2])
}

impl Place {
    fn make(session: &Session, number: usize) -> Self {
        for directory in ["near", "far"] {
            session
                .create_dir_all(format!("/place{number}/{directory}"))
                .expect("a directory");
        }
        for filler in 0..FILLING {
            session
                .create(format!("/place{number}/far/a-name-that-fills-it-{filler}"))
                .expect("a file");
        }
        Self {
            number,
            moved: false,
            names: [None; 4],
        }
    }

    /// The path of a name as it is now.
    fn path(&self, name: usize) -> String {
        path(
            self.number,
            if self.moved && name >= 2 {
                name + 2
            } else {
                name
            },
        )
    }

    /// Makes a change if it is possible for these names. Returns whether it was.
    fn change(&mut self, session: &Session, change: Change, one: usize, other: usize) -> bool {
        let from = self.path(one);
        let to = self.path(other);
        let there = self.names[one];
        let there_too = self.names[other];
        let same_file = there.map(|file| file >> 24) == there_too.map(|file| file >> 24);
        let done = match (change, there, there_too) {
            (Change::Create, None, _) => session.create_new(from).map(drop),
            (Change::MakeDir, None, _) => session.create_dir(from),
            (Change::Symlink, None, _) => session.symlink("target", from),
            (Change::Link, Some(file), None) if !is_directory(file) => session.hard_link(from, to),
            (Change::Unlink, Some(file), _) if !is_directory(file) => session.remove_file(from),
            (Change::RemoveDir, Some(file), _) if is_directory(file) => session.remove_dir(from),
            (Change::RenameWithin, Some(_), None) if one / 2 == other / 2 => {
                session.rename(from, to)
            }
            (Change::RenameAcross, Some(_), None) if one / 2 != other / 2 => {
                session.rename(from, to)
            }
            (Change::Replace, Some(file), Some(old))
                if !same_file && is_directory(file) == is_directory(old) =>
            {
                session.rename(from, to)
            }
            (Change::Exchange, Some(_), Some(_)) if !same_file => {
                session.rename_with(from, to, RenameFlags::EXCHANGE)
            }
            (Change::MoveParent, ..) => {
                let ends = ["far", "moved"].map(|name| format!("/place{}/{name}", self.number));
                let [from, to] = [usize::from(self.moved), usize::from(!self.moved)];
                self.moved = !self.moved;
                session.rename(&ends[from], &ends[to])
            }
            (Change::Chmod, Some(file), _) if !is_link(file) => session.set_permissions(
                from,
                if file & (0o100 << 8) == 0 {
                    0o755
                } else {
                    0o640
                },
            ),
            _ => return false,
        };
        done.unwrap_or_else(|error| panic!("{change:?}: {error}"));
        self.note(session, change, one, other);
        true
    }

    /// Brings the names to the state after a change. The attributes of a new file, and a new mode,
    /// are asked for, and must stay so; all else follows from the change.
    fn note(&mut self, session: &Session, change: Change, one: usize, other: usize) {
        let asked = answer(session, &self.path(one));
        let file = self.names[one];
        match change {
            Change::Create | Change::MakeDir | Change::Symlink => self.names[one] = Some(asked),
            Change::Link => self.names[other] = file,
            Change::Unlink | Change::RemoveDir => self.names[one] = None,
            Change::RenameWithin | Change::RenameAcross | Change::Replace => {
                (self.names[one], self.names[other]) = (None, file);
            }
            Change::Exchange => self.names.swap(one, other),
            Change::MoveParent => {}
            Change::Chmod => {
                let same = |name: &&mut u64| Some(**name >> 24) == file.map(|file| file >> 24);
                for name in self.names.iter_mut().flatten().filter(same) {
                    *name = *name & !MODES | asked & MODES;
                }
            }
        }
        let links = |file: u64| {
            self.names
                .iter()
                .flatten()
                .filter(|other| **other >> 24 == file >> 24)
                .count()
        };
        self.names = self.names.map(|name| {
            name.map(|file| {
                if is_directory(file) {
                    file
                } else {
                    file & !LINKS | links(file) as u64
                }
            })
        });
    }

    /// Publishes the answers for all paths.
    fn show(&self, shown: &Shown) {
        for (at, answer) in shown.answers.iter().enumerate() {
            let name = match (at, self.moved) {
                (0..2, _) | (2..4, false) => self.names[at],
                (4.., true) => self.names[at - 2],
                _ => None,
            };
            answer.store(name.unwrap_or(0), SeqCst);
        }
    }
}

/// Makes changes until `is_over`, and until each kind has been made.
fn make_changes(
    session: &Session,
    shown: &[Shown; PLACES],
    mut places: Vec<Place>,
    is_over: impl Fn() -> bool,
) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut made = [0_u64; CHANGES.len()];
    while !is_over() || made.contains(&0) {
        let place = random.below(PLACES);
        let kind = random.below(CHANGES.len());
        let one = random.below(4);
        let other = random.below(4);
        if one == other {
            continue;
        }
        shown[place].version.fetch_add(1, SeqCst);
        if places[place].change(session, CHANGES[kind], one, other) {
            made[kind] += 1;
            places[place].show(&shown[place]);
        }
        shown[place].version.fetch_add(1, SeqCst);
        // The threads that ask have to come to an answer in between.
        thread::yield_now();
    }
}

/// Asks for one path. Returns whether the answer counts.
fn ask(session: &Session, shown: &Shown, paths: &[String; PATHS], at: usize) -> bool {
    let version = shown.version.load(SeqCst);
    let right = shown.answers[at].load(SeqCst);
    let given = answer(session, &paths[at]);
    let counts = version.is_multiple_of(2) && shown.version.load(SeqCst) == version;
    assert!(
        !counts || given == right,
        "{}: {given:#x}, and {right:#x} is right",
        paths[at]
    );
    counts
}

fn probe(cache_bytes: Option<u64>) {
    let wanted = std::env::var("EXTERN4_STALE_CHECKS")
        .map_or(200_000, |text| text.parse().expect("a number"));
    let device = MemoryDevice::new(std::fs::read(SPEC.build().path).expect("the image is read"));
    let mut options = Volume::options();
    options.write(true);
    if let Some(bytes) = cache_bytes {
        options.cache_size(bytes);
    }
    let volume = options.open_device(Arc::new(device)).expect("it opens");
    let session = volume.superuser();
    let places: Vec<Place> = (0..PLACES)
        .map(|number| Place::make(&session, number))
        .collect();
    let shown: [Shown; PLACES] = Default::default();
    let checks = AtomicU64::new(0);
    let is_over = || checks.load(SeqCst) >= wanted;
    thread::scope(|scope| {
        for asker in 0..ASKING {
            let session = &session;
            let shown = &shown;
            let checks = &checks;
            scope.spawn(move || {
                let paths: [[String; PATHS]; PLACES] =
                    std::array::from_fn(|place| std::array::from_fn(|at| path(place, at)));
                let mut random = Random(asker as u64 + 1);
                while !is_over() {
                    let ask_one = |_| {
                        let place = random.below(PLACES);
                        ask(session, &shown[place], &paths[place], random.below(PATHS))
                    };
                    checks.fetch_add(
                        (0..256).map(ask_one).filter(|counts| *counts).count() as u64,
                        SeqCst,
                    );
                }
            });
        }
        make_changes(&session, &shown, places, is_over);
    });
    drop(session);
    volume.close().expect("it closes");
}

#[test]
fn no_answer_is_stale() {
    probe(None);
}

#[test]
fn no_answer_is_stale_with_little_memory() {
    probe(Some(128 << 10));
}
