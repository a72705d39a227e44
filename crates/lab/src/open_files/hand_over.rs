//! The workload of a hand-over: one thread opens files, others close them.
//!
//! `open_files` measures it on each side. It is the worst case for a registry with a list for each
//! CPU or thread, since each file is closed away from its list.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use extern4_sync::{allocations, percpu};
use extern4_vfs::lab::{Opened, Registry};

use super::{Locks, Moves, close, open, sample};
use crate::plan::Plan;
use crate::row::Sample;
use extern4_measure::load::{Done, cpu_time};

/// Files that are handed over at once.
const HANDFUL: usize = 64;
/// Handfuls that may wait for a closer.
const WAITING: usize = 16;

/// Files, and the CPU that opened them.
struct Handful<T> {
    files: Vec<T>,
    cpu: usize,
}

/// Measures the hand-over to `closers` closing threads.
pub(super) fn take<R: Locks<Ticket: Send>>(plan: &Plan, closers: usize) -> Sample {
    let registry = &R::default();
    let moves = &Moves::new();
    let start = Instant::now();
    let mut done = std::thread::scope(|scope| {
        let mut senders = Vec::new();
        let mut closing = Vec::new();
        for _ in 0..closers {
            let (sender, handfuls) = sync_channel(WAITING);
            senders.push(sender);
            closing.push(scope.spawn(move || close_all(registry, moves, &handfuls)));
        }
        let mut done = open_for(registry, plan.span, senders);
        for closed in closing {
            let (cpu, allocated) = closed.join().expect("no panic");
            done.cpu += cpu;
            done.allocations += allocated;
        }
        done
    });
    done.wall = start.elapsed();
    sample(&done, moves, registry.locks())
}

/// Opens files for `span`. Allocations of the hand-over itself do not count.
fn open_for<R: Registry<Opened>>(
    registry: &R,
    span: Duration,
    senders: Vec<SyncSender<Handful<R::Ticket>>>,
) -> Done {
    let start = Instant::now();
    let cpu = cpu_time();
    let mut done = Done::default();
    for sender in senders.iter().cycle() {
        let mut handful = Handful {
            files: Vec::with_capacity(HANDFUL),
            cpu: percpu::cpu(),
        };
        let allocated = allocations::of_this_thread();
        handful
            .files
            .extend((0..HANDFUL as u64).map(|n| open(registry, done.ops + n)));
        done.allocations += allocations::of_this_thread() - allocated;
        done.ops += HANDFUL as u64;
        sender.send(handful).expect("the closers take all");
        if start.elapsed() >= span {
            break;
        }
    }
    done.cpu = cpu_time() - cpu;
    done
}

/// Closes all files that arrive. Returns the CPU time of that, and its allocations.
fn close_all<R: Registry<Opened>>(
    registry: &R,
    moves: &Moves,
    handfuls: &Receiver<Handful<R::Ticket>>,
) -> (Duration, u64) {
    let cpu = cpu_time();
    let mut allocated = 0;
    for Handful { files, cpu } in handfuls {
        let before = allocations::of_this_thread();
        files.iter().for_each(|file| close(registry, file));
        allocated += allocations::of_this_thread() - before;
        moves.note(cpu);
    }
    (cpu_time() - cpu, allocated)
}
