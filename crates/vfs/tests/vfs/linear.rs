//! Is what many threads see at once what one after the other could have seen?
//!
//! Random histories of a few threads on two directories with three names are carried out for real,
//! and then explained: there must be an order of the calls' steps (see `model`) that agrees with
//! every answer and with the order in which calls began and ended. Knobs:
//! `EXTERN4_LINEAR_HISTORIES` says how many histories, `EXTERN4_LINEAR_SEED` which.

mod model;
mod op;
mod search;

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use extern4_vfs::{Access, RenameFlags};

use self::op::{Call, DIRS, Made, NAMES, Op, Place, Shape, Spelling, Volume, Who};
use self::search::{History, check};

const THREADS: usize = 4;
/// Histories on one volume, so that its caches are in all states.
const PER_VOLUME: u64 = 100;

/// Numbers that are as random as a test needs (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below the bound")
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn name(&mut self) -> Place {
        Place {
            dir: self.below(DIRS),
            name: Some(self.below(NAMES)),
        }
    }

    /// A name, or now and then the directory itself.
    fn place(&mut self) -> Place {
        let Place { dir, name } = self.name();
        Place {
            dir,
            name: name.filter(|_| self.below(3) > 0),
        }
    }

    fn make(&mut self) -> Op {
        let id = u32::try_from(self.below(1 << 20)).expect("small");
        Op::Make(
            self.pick(&[Made::File, Made::File, Made::Dir, Made::Link(id)]),
            self.name(),
        )
    }

    fn op(&mut self) -> Op {
        let who = self.pick(&[Who::Root, Who::User]);
        match self.below(24) {
            0..3 => Op::Find(who, self.name()),
            3..7 => Op::Stat(who, self.name()),
            7..9 => Op::Access(
                self.place(),
                self.pick(&[Access::READ, Access::EXEC, Access::READ | Access::WRITE]),
            ),
            9 => Op::ReadLink(self.name()),
            10..13 => self.make(),
            13 => Op::Link(self.name(), self.name()),
            14 => Op::Unlink(self.name()),
            15 => Op::Rmdir(self.name()),
            16..21 => {
                let flags = [
                    RenameFlags::empty(),
                    RenameFlags::NOREPLACE,
                    RenameFlags::EXCHANGE,
                ];
                Op::Rename(self.name(), self.name(), self.pick(&flags))
            }
            21 => Op::Chmod(self.place(), self.pick(&[0o755, 0o711, 0o700, 0o640])),
            22 => Op::SetAcl(
                self.place(),
                self.pick(&[None, Some(Shape::Shut), Some(Shape::Open)]),
            ),
            _ => Op::DropCaches,
        }
    }

    /// A spelling that asks for no rights that the model does not know of.
    fn spelling(&mut self, op: Op) -> Spelling {
        match op {
            Op::Find(Who::User, _) | Op::Stat(Who::User, _) | Op::Access(..) => {
                self.pick(&[Spelling::Below, Spelling::Absolute])
            }
            _ => self.pick(&[Spelling::Below, Spelling::Absolute, Spelling::DotDot]),
        }
    }
}

/// The state that the threads share.
struct Stage<'a> {
    volume: &'a Volume,
    clock: &'a AtomicU64,
}

impl Stage<'_> {
    fn call(&self, op: Op, spelling: Spelling) -> Call {
        // SeqCst: the counter is what says that one call ended before another began.
        let start = self.clock.fetch_add(1, Ordering::SeqCst);
        let out = self.volume.act(op, spelling);
        let end = self.clock.fetch_add(1, Ordering::SeqCst);
        Call {
            op,
            out,
            start,
            end,
        }
    }

    /// The calls of one thread. Pauses let others in: on few processors threads would take turns
    /// otherwise.
    fn play(&self, seed: u64) -> Vec<Call> {
        let mut random = Random(seed);
        let count = 5 + random.below(4);
        let mut calls = Vec::with_capacity(count);
        for _ in 0..count {
            let op = random.op();
            let spelling = random.spelling(op);
            match random.below(8) {
                0 => thread::yield_now(),
                pause => (0..pause).for_each(|_| std::hint::spin_loop()),
            }
            calls.push(self.call(op, spelling));
        }
        calls
    }
}

/// Seeds of the threads of one history; the first is that of the calls that come before all others.
fn seeds(seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    let threads = 3 + random.below(THREADS - 2);
    (0..=threads).map(|_| random.next()).collect()
}

/// Carries out `count` histories and gives each to `judge`, with its seed.
/// Stops at the first that it objects to.
fn play_all(
    first_seed: u64,
    count: u64,
    judge: &mut dyn FnMut(u64, &Volume, &History) -> Result<(), String>,
) -> Result<(), String> {
    for chunk in 0..count.div_ceil(PER_VOLUME) {
        let volume = Volume::new(chunk);
        let clock = AtomicU64::new(0);
        let stage = Stage {
            volume: &volume,
            clock: &clock,
        };
        let seeds_of = |n: u64| first_seed.wrapping_add(chunk * PER_VOLUME + n);
        let rounds = PER_VOLUME.min(count - chunk * PER_VOLUME);
        let barrier = Barrier::new(THREADS + 1);
        let gate = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let stage = &stage;
            let barrier = &barrier;
            let gate = &gate;
            let stop = &stop;
            let (send, receive) = std::sync::mpsc::channel();
            for thread in 0..THREADS {
                let send = send.clone();
                scope.spawn(move || {
                    for round in 0..rounds {
                        let seeds = seeds(seeds_of(round));
                        barrier.wait();
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        // Awake at last, but one by one: whoever comes first waits for the others
                        // in a loop.
                        gate.fetch_add(1, Ordering::SeqCst);
                        let all = THREADS * usize::try_from(round + 1).expect("few rounds");
                        while gate.load(Ordering::SeqCst) < all {
                            thread::yield_now();
                        }
                        let calls = seeds
                            .get(thread + 1)
                            .map_or_else(Vec::new, |&seed| stage.play(seed));
                        send.send((thread, calls)).expect("a receiver");
                    }
                });
            }
            for round in 0..rounds {
                let mut history: History = vec![Vec::new(); THREADS + 1];
                let mut random = Random(seeds(seeds_of(round))[0]);
                let before = 2 + random.below(4);
                history[THREADS] = (0..before)
                    .map(|_| stage.call(random.make(), Spelling::Below))
                    .collect();
                barrier.wait();
                for _ in 0..THREADS {
                    let (thread, calls) = receive.recv().expect("every thread answers");
                    history[thread] = calls;
                }
                let verdict = judge(seeds_of(round), &volume, &history);
                if verdict.is_err() && round + 1 < rounds {
                    // The threads wait for the next round, and leave instead.
                    stop.store(true, Ordering::SeqCst);
                    barrier.wait();
                }
                verdict?;
                volume.clear();
            }
            Ok::<(), String>(())
        })?;
    }
    Ok(())
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A history as a person reads it, in the order in which calls began.
fn tell(history: &History) -> String {
    let mut calls: Vec<_> = history
        .iter()
        .enumerate()
        .flat_map(|(thread, calls)| {
            calls
                .iter()
                .enumerate()
                .map(move |(index, call)| (call.start, thread, index, call))
        })
        .collect();
    calls.sort_by_key(|(start, ..)| *start);
    let mut text = String::new();
    for (start, thread, index, call) in calls {
        let _ = writeln!(
            text,
            "{start:>6} to {:>6}  {thread}.{index}  {:?} -> {:?}",
            call.end, call.op, call.out
        );
    }
    text
}

/// Pairs of calls that ran at the same time.
fn overlaps(history: &History) -> usize {
    let calls: Vec<&Call> = history.iter().flatten().collect();
    let meets = |a: &Call, b: &Call| a.start < b.start && b.start < a.end;
    calls
        .iter()
        .map(|a| calls.iter().filter(|b| meets(a, b)).count())
        .sum()
}

#[test]
fn concurrent_histories_are_linearizable() {
    let count = env("EXTERN4_LINEAR_HISTORIES", 8000);
    let first_seed = env("EXTERN4_LINEAR_SEED", RandomState::new().hash_one(0));
    let mut overlapping = 0;
    let verdict = play_all(first_seed, count, &mut |seed, volume, history| {
        overlapping += overlaps(history);
        check(history, volume.dirs).map_err(|dead_end| {
            format!(
                "EXTERN4_LINEAR_SEED={seed}: nothing explains\n{}{dead_end}",
                tell(history)
            )
        })
    });
    if let Err(text) = verdict {
        panic!("{text}");
    }
    println!(
        "{count} histories from seed {first_seed}, {overlapping} pairs of calls at the same time"
    );
}
