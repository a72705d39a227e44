//! The state of the specified file system, and the effect of each call on it.
//!
//! `commute` and `conflicts` apply calls to it. States that no later call can tell apart compare as
//! equal ([`State::canonical`]).

use super::call::{Call, NameSlot, Outcome};

/// Places for a name: two directories with two each.
pub const PLACES: usize = 4;
/// Blocks in a file.
pub const BLOCKS: usize = 2;

/// A file, as far as calls can observe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// The number of its names.
    pub links: u32,
    /// Its permission bits.
    pub mode: u16,
    /// Its extended attribute, if it has one.
    pub attribute: Option<u8>,
    /// The byte that each of its blocks is filled with.
    pub blocks: [u8; BLOCKS],
    /// A call has changed it: its change time is not the initial one.
    pub marked: bool,
}

impl FileState {
    /// Creates a file with `links` names.
    pub fn new(links: u32) -> Self {
        Self { links, mode: 0o644, attribute: None, blocks: [0; BLOCKS], marked: false }
    }
}

/// The contents of a file system, and the open files of two threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    names: [Option<usize>; PLACES],
    files: Vec<FileState>,
    /// The number of initial files, whose numbers have a meaning.
    old: usize,
    descriptors: [Option<usize>; 2],
    opened: [Option<usize>; 2],
}

/// An initial state in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number of the file at each place.
    pub names: [Option<usize>; PLACES],
    /// The file that each thread has open.
    pub open: [usize; 2],
}

/// Returns the initial states of pairs: full and half-empty directories, hard links in one and
/// across two, descriptors of one file and of two.
pub fn starts() -> Vec<Start> {
    let names = [
        [Some(0), Some(1), Some(2), Some(3)],
        [Some(0), None, Some(1), None],
        [Some(0), Some(0), Some(1), None],
        [Some(0), None, Some(0), Some(1)],
        [Some(0), Some(1), None, None],
    ];
    names.iter().flat_map(|&names| [[0, 1], [0, 0]].map(|open| Start { names, open })).collect()
}

impl Start {
    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.names.iter().flatten().max().map_or(0, |last| last + 1)
    }

    /// Returns the full state.
    pub fn state(&self) -> State {
        let links = |file| self.names.iter().filter(|name| **name == Some(file)).count();
        let files = (0..self.files()).map(|file| FileState::new(u32::try_from(links(file)).expect("few")));
        State {
            names: self.names,
            files: files.collect(),
            old: self.files(),
            descriptors: self.open.map(Some),
            opened: [None; 2],
        }
    }
}

impl State {
    /// Makes a call as thread `who`.
    pub fn apply(&mut self, who: usize, call: Call) -> Outcome {
        match call {
            Call::Stat(at) => self.found(at, |file, state| Outcome::Attributes {
                file,
                links: state.links,
                mode: state.mode,
                marked: state.marked,
            }),
            Call::Open(at) => match self.names[at.index()] {
                None => Outcome::Absent,
                found => {
                    self.opened[who] = found;
                    Outcome::Done
                }
            },
            Call::Close => {
                self.descriptors[who] = None;
                Outcome::Done
            }
            Call::Create(at) => self.create(at),
            Call::Unlink(at) => self.unlink(at),
            Call::Link(from, to) => self.link(from, to),
            Call::Rename(from, to) => self.rename(from, to),
            Call::Chmod(at, mode) => self.change(at, |file| file.mode = mode),
            Call::SetXattr(at, value) => self.change(at, |file| file.attribute = Some(value)),
            Call::Read(block) => Outcome::Block(self.file_of(who).blocks[block]),
            Call::Write(block, value) => {
                let file = self.file_of(who);
                file.blocks[block] = value;
                file.marked = true;
                Outcome::Done
            }
            Call::ReadDir(dir) => {
                Outcome::Names([0, 1].map(|name| self.names[NameSlot { dir, name }.index()].is_some()))
            }
        }
    }

    /// Returns this state with new files in the order in which names and descriptors lead to them.
    /// Files that neither leads to are left out. The results are equal for states that no call can
    /// tell apart.
    pub fn canonical(&self) -> Self {
        let leads = self.names.iter().chain(&self.descriptors).chain(&self.opened);
        let mut order: Vec<usize> = (0..self.old).collect();
        for file in leads.flatten() {
            if !order.contains(file) {
                order.push(*file);
            }
        }
        let number = |file: Option<usize>| order.iter().position(|known| Some(*known) == file);
        let is_used = |file: usize| self.files[file].links > 0 || self.holds(file);
        // All removed files are equal.
        let state = |&file: &usize| if is_used(file) { self.files[file].clone() } else { FileState::new(0) };
        Self {
            names: self.names.map(number),
            files: order.iter().map(state).collect(),
            old: self.old,
            descriptors: self.descriptors.map(number),
            opened: self.opened.map(number),
        }
    }

    fn holds(&self, file: usize) -> bool {
        self.descriptors.iter().chain(&self.opened).any(|held| *held == Some(file))
    }

    fn found(&mut self, at: NameSlot, look: impl FnOnce(usize, &mut FileState) -> Outcome) -> Outcome {
        match self.names[at.index()] {
            Some(file) => look(file, &mut self.files[file]),
            None => Outcome::Absent,
        }
    }

    fn change(&mut self, at: NameSlot, change: impl FnOnce(&mut FileState)) -> Outcome {
        self.found(at, |_, file| {
            change(file);
            file.marked = true;
            Outcome::Done
        })
    }

    fn file_of(&mut self, who: usize) -> &mut FileState {
        let file = self.descriptors[who].expect("a thread reads and writes what it has open");
        &mut self.files[file]
    }

    fn create(&mut self, at: NameSlot) -> Outcome {
        if self.names[at.index()].is_some() {
            return Outcome::Exists;
        }
        self.names[at.index()] = Some(self.files.len());
        self.files.push(FileState::new(1));
        Outcome::Done
    }

    fn unlink(&mut self, at: NameSlot) -> Outcome {
        let outcome = self.change(at, |file| file.links -= 1);
        self.names[at.index()] = None;
        outcome
    }

    fn link(&mut self, from: NameSlot, to: NameSlot) -> Outcome {
        match (self.names[from.index()], self.names[to.index()]) {
            (None, _) => Outcome::Absent,
            (_, Some(_)) => Outcome::Exists,
            (Some(file), None) => {
                self.names[to.index()] = Some(file);
                self.change(from, |file| file.links += 1)
            }
        }
    }

    fn rename(&mut self, from: NameSlot, to: NameSlot) -> Outcome {
        let moved = self.names[from.index()];
        match moved {
            None => return Outcome::Absent,
            // rename(2): both are names of one file, so nothing is done.
            Some(_) if moved == self.names[to.index()] => return Outcome::Done,
            Some(file) => self.files[file].marked = true,
        }
        self.unlink(to);
        self.names[to.index()] = moved;
        self.names[from.index()] = None;
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NameSlot = NameSlot { dir: 0, name: 0 };
    const B: NameSlot = NameSlot { dir: 0, name: 1 };
    const C: NameSlot = NameSlot { dir: 1, name: 0 };

    #[test]
    fn calls_do_what_posix_says() {
        let mut state = Start { names: [Some(0), None, Some(1), None], open: [0, 1] }.state();
        assert_eq!(state.apply(0, Call::Stat(B)), Outcome::Absent);
        assert_eq!(state.apply(0, Call::Create(A)), Outcome::Exists);
        assert_eq!(state.apply(0, Call::Link(A, B)), Outcome::Done);
        let attributes = Outcome::Attributes { file: 0, links: 2, mode: 0o644, marked: true };
        assert_eq!(state.apply(1, Call::Stat(B)), attributes);
        // Both names belong to one file.
        assert_eq!(state.apply(0, Call::Rename(A, B)), Outcome::Done);
        assert_eq!(state.apply(0, Call::ReadDir(0)), Outcome::Names([true, true]));
        assert_eq!(state.apply(0, Call::Rename(A, C)), Outcome::Done);
        assert_eq!(state.apply(0, Call::ReadDir(0)), Outcome::Names([false, true]));
        // The file that had the name is still open.
        assert_eq!(state.apply(1, Call::Write(1, 7)), Outcome::Done);
        assert_eq!(state.apply(1, Call::Read(1)), Outcome::Block(7));
        assert_eq!(state.apply(0, Call::Read(1)), Outcome::Block(0));
        assert_eq!(state.apply(0, Call::Unlink(A)), Outcome::Absent);
    }

    #[test]
    fn numbers_of_new_and_removed_files_make_no_difference() {
        let start = Start { names: [Some(0), None, None, None], open: [0, 0] };
        let run = |calls: &[Call]| {
            let mut state = start.state();
            calls.iter().for_each(|call| assert_eq!(state.apply(0, *call), Outcome::Done));
            state.canonical()
        };
        assert_eq!(run(&[Call::Create(B), Call::Create(C)]), run(&[Call::Create(C), Call::Create(B)]));
        let gone = [Call::Create(B), Call::Chmod(B, 0o600), Call::Unlink(B)];
        assert_eq!(run(&gone), run(&[]));
        assert_ne!(run(&[Call::Unlink(A), Call::Create(A)]), run(&[]), "another file");
    }
}
