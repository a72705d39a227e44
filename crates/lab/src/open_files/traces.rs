//! Traces of opened and closed files, played back: of a booting machine, of a build, and of the
//! clients of a file server.
//!
//! A [`Trace`] lists the steps of each process. A process runs on an idle thread, from its first
//! step to its last. It takes over files from the process that started it, and closes them in the
//! end. So some files are closed by other threads than the threads that opened them. All sides play
//! a trace through the VFS, with their registry in it.
//!
//! `open_files` measures them on each side. A trace is the same in each run.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use extern4_sync::percpu;
use extern4_sync::primitive::Mutex;
use extern4_vfs::lab::LabRegistry;
use extern4_vfs::{OpenFile, OpenFlags};

use super::{Baseline, Extern4, Locks, Moves, Patch, sample};
use crate::plan::Plan;
use crate::random::Random;
use crate::row::Sample;
use crate::volume::{File, Production};

/// A step of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Opens the file with this number among the paths.
    Open(usize),
    /// Closes the file that the process opened last.
    Close,
    /// Starts the process with the first number. It takes over the last opened files, as many as
    /// the second number says.
    Start(usize, usize),
}

use Step::{Close, Open, Start};

/// The steps of all processes. The first process starts the others, and runs again when no process
/// is left.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    processes: Vec<Vec<Step>>,
}

/// The numbers of paths of a trace: of libraries and programs, and of all files.
const LIBRARIES: usize = 40;
const PATHS: usize = 400;

fn path(number: usize) -> String {
    if number < LIBRARIES {
        format!("/usr/lib/lib{number}.so")
    } else {
        format!("/usr/share/data/{number}")
    }
}

/// Returns all files of the traces, and their directories.
fn files() -> Vec<File> {
    let directories = ["/usr", "/usr/lib", "/usr/share", "/usr/share/data"].map(File::directory);
    directories
        .into_iter()
        .chain((0..PATHS).map(|number| File::regular(path(number))))
        .collect()
}

/// Adds steps that open and close `files` random files, numbered from `from` to before `to`.
fn look_at(steps: &mut Vec<Step>, random: &mut Random, files: usize, (from, to): (usize, usize)) {
    for _ in 0..files {
        steps.extend([
            Open(from + random.below((to - from) as u64) as usize),
            Close,
        ]);
    }
}

/// Returns the steps that load a program.
fn load(random: &mut Random, libraries: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    look_at(&mut steps, random, libraries, (0, LIBRARIES));
    steps
}

const DATA: (usize, usize) = (LIBRARIES, PATHS);

impl Trace {
    /// Adds a process, and returns its number.
    fn add(&mut self, steps: Vec<Step>) -> usize {
        self.processes.push(steps);
        self.processes.len() - 1
    }

    /// Returns the trace of a boot. Scripts read a little, open the output files of their commands,
    /// and end before the last of these commands.
    pub(super) fn boot() -> Self {
        const SCRIPTS: usize = 40;
        let mut trace = Self {
            processes: vec![Vec::new()],
        };
        let mut random = Random::new(1);
        for _ in 0..SCRIPTS {
            let mut script = load(&mut random, 5);
            look_at(&mut script, &mut random, 3, DATA);
            for handed_over in [0, 1, 1] {
                let mut command = load(&mut random, 6);
                look_at(&mut command, &mut random, 2, DATA);
                let command = trace.add(command);
                script.extend((0..handed_over).map(|_| Open(LIBRARIES)));
                script.push(Start(command, handed_over));
            }
            let script = trace.add(script);
            trace.processes[0].push(Start(script, 0));
        }
        trace
    }

    /// Returns the trace of a build. A compiler for each source looks at headers, and hands its
    /// output to an assembler.
    pub(super) fn build() -> Self {
        const SOURCES: usize = 60;
        const HEADERS: usize = 25;
        let mut trace = Self {
            processes: vec![Vec::new()],
        };
        let mut random = Random::new(2);
        for _ in 0..SOURCES {
            let mut assembler = load(&mut random, 4);
            look_at(&mut assembler, &mut random, 1, DATA);
            let assembler = trace.add(assembler);
            let mut compiler = load(&mut random, 4);
            compiler.push(Open(LIBRARIES + random.below(60) as usize));
            look_at(&mut compiler, &mut random, HEADERS, DATA);
            compiler.extend([Close, Open(LIBRARIES), Start(assembler, 1)]);
            let compiler = trace.add(compiler);
            trace.processes[0].push(Start(compiler, 0));
        }
        trace
    }

    /// Returns the trace of a file server's clients, each with a few files open at a time.
    pub(super) fn dbench() -> Self {
        const CLIENTS: usize = 16;
        let mut trace = Self {
            processes: vec![Vec::new()],
        };
        let mut random = Random::new(3);
        for _ in 0..CLIENTS {
            let mut client = Vec::new();
            for _ in 0..100 {
                let files = 1 + random.below(3) as usize;
                client.extend((0..files).map(|_| Open(LIBRARIES + random.below(300) as usize)));
                client.extend((0..files).map(|_| Close));
            }
            let client = trace.add(client);
            trace.processes[0].push(Start(client, 0));
        }
        trace
    }
}

/// An open file, and the CPU that it was opened on.
type Held = (OpenFile, usize);

/// A trace while it is played.
pub(super) struct Stage<'t> {
    trace: &'t Trace,
    paths: Vec<String>,
    volume: Production,
    /// Started processes that no thread runs yet, with the files that they have taken over.
    ready: Mutex<VecDeque<(usize, Vec<Held>)>>,
    moves: Moves,
}

impl<'t> Stage<'t> {
    pub(super) fn new(trace: &'t Trace, registry: Option<Arc<dyn LabRegistry>>) -> Self {
        let volume = Production::with_registry(registry, &files());
        let paths = (0..PATHS).map(path).collect();
        Self {
            trace,
            paths,
            volume,
            ready: Mutex::default(),
            moves: Moves::new(),
        }
    }

    /// Runs a process that is ready, or the first of all. Returns how many files it closed.
    fn run_one(&self) -> u64 {
        let next = self.ready().pop_front();
        let (process, mut held) = next.unwrap_or_default();
        let taken_over = held.len();
        let mut closed = 0;
        for &step in &self.trace.processes[process] {
            match step {
                Open(path) => held.push((self.open(path), percpu::cpu())),
                Close => closed += self.close(held.pop()),
                Start(other, files) => {
                    let files = held.split_off(held.len().saturating_sub(files).max(taken_over));
                    self.ready().push_back((other, files));
                }
            }
        }
        closed
            + held
                .into_iter()
                .map(|file| self.close(Some(file)))
                .sum::<u64>()
    }

    fn open(&self, path: usize) -> OpenFile {
        self.volume
            .user
            .open(&self.paths[path], OpenFlags::READ)
            .expect("it is there")
    }

    fn close(&self, file: Option<Held>) -> u64 {
        let Some((file, cpu)) = file else { return 0 };
        drop(file);
        self.moves.note(cpu);
        1
    }

    fn ready(&self) -> impl std::ops::DerefMut<Target = VecDeque<(usize, Vec<Held>)>> + '_ {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Plays a trace on `threads` threads. An operation is a file that is opened and closed.
pub(super) fn take<R: VolumeRegistry>(plan: &Plan, trace: &Trace, threads: usize) -> Sample {
    let registry = Arc::new(R::default());
    let stage = &Stage::new(trace, R::in_place(&registry));
    let done = plan.work(1, threads, |_| (), |()| stage.run_one());
    sample(&done, &stage.moves, registry.locks())
}

/// A registry that a volume can have.
pub(super) trait VolumeRegistry: Locks + Sized {
    /// Returns the registry that the volume has in the place of production's; `None` for
    /// production's own.
    fn in_place(registry: &Arc<Self>) -> Option<Arc<dyn LabRegistry>>;
}

impl VolumeRegistry for Baseline {
    fn in_place(registry: &Arc<Self>) -> Option<Arc<dyn LabRegistry>> {
        Some(Arc::<Self>::clone(registry))
    }
}

impl VolumeRegistry for Patch {
    fn in_place(registry: &Arc<Self>) -> Option<Arc<dyn LabRegistry>> {
        Some(Arc::<Self>::clone(registry))
    }
}

impl VolumeRegistry for Extern4 {
    fn in_place(_: &Arc<Self>) -> Option<Arc<dyn LabRegistry>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each opened file is closed once, by the process that has it in the end.
    fn closes_all(trace: &Trace, registry: Option<Arc<dyn LabRegistry>>) -> (u64, Stage<'_>) {
        let stage = Stage::new(trace, registry);
        let mut closed = stage.run_one();
        while !stage.ready().is_empty() {
            closed += stage.run_one();
        }
        (closed, stage)
    }

    #[test]
    fn each_opened_file_is_closed() {
        for trace in [Trace::boot(), Trace::build(), Trace::dbench()] {
            let steps = || trace.processes.iter().flatten();
            let opened = steps().filter(|step| matches!(step, Open(_))).count() as u64;
            let baseline = Arc::<Baseline>::default();
            let patch = Arc::<Patch>::default();
            for registry in [Baseline::in_place(&baseline), Patch::in_place(&patch), None] {
                let (closed, stage) = closes_all(&trace, registry);
                assert_eq!(
                    (closed, stage.volume.superblock().open_files()),
                    (opened, Vec::new())
                );
            }
            assert!(baseline.locks() >= 2 * opened && patch.locks() >= 2 * opened);
            assert!(steps().all(|step| !matches!(step, Open(path) if *path >= PATHS)));
        }
    }

    #[test]
    fn some_files_are_handed_over() {
        let handed_over = |trace: &Trace| {
            let steps = trace.processes.iter().flatten();
            steps
                .map(|step| {
                    if let Start(_, files) = step {
                        *files
                    } else {
                        0
                    }
                })
                .sum::<usize>()
        };
        let all = [Trace::boot(), Trace::build(), Trace::dbench()];
        assert_eq!(all.each_ref().map(handed_over), [80, 60, 0]);
    }
}
