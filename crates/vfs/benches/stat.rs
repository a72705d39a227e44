//! Measures a warm path walk on a file system in memory: nanoseconds for each call.
//!
//! `cargo bench -p extern4-vfs --bench stat -- parked` measures it while other threads of the
//! process sleep.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use extern4_vfs::*;

const PATH: &str = "/usr/include/linux/sched/fs.h";

fn volume() -> Session {
    let sb = SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default())
        .expect("a new volume");
    let root = Session::new(&Namespace::new(sb), Cred::root());
    for dir in [
        "/usr",
        "/usr/include",
        "/usr/include/linux",
        "/usr/include/linux/sched",
    ] {
        root.mkdir(dir, 0o755).expect("a new name");
    }
    root.mknod(PATH, NewKind::Regular, 0o644)
        .expect("a new name");
    root.symlink("include", "/usr/inc").expect("a new name");
    root
}

/// The best and the median of many short rounds: on a busy machine the best is nearest to what a
/// call costs.
fn measure(name: &str, threads: usize, act: impl Fn() + Sync) {
    measure_each(name, threads, |_| act());
}

/// Does the same, and tells `act` which of the threads it is.
fn measure_each(name: &str, threads: usize, act: impl Fn(usize) + Sync) {
    const CALLS: u32 = 5_000;
    const ROUNDS: usize = 200;
    let round = |index| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| act(index));
        start.elapsed()
    };
    let round = &round;
    let rounds = |index| move || (0..ROUNDS).map(|_| round(index)).collect::<Vec<_>>();
    let mut rounds: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|index| scope.spawn(rounds(index)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    rounds.sort();
    let each = |round: Duration| round.as_secs_f64() * 1e9 / f64::from(CALLS);
    let best = each(rounds[0]);
    let median = each(rounds[rounds.len() / 2]);
    println!("{name:<44} {threads} thread(s) best {best:>8.1} ns, median {median:>8.1} ns");
}

/// Measures one and two threads while others sleep that have used the volume before.
fn among_parked_threads(root: &Session) {
    const FILES: [&str; 2] = [
        "/usr/include/linux/sched/0.h",
        "/usr/include/linux/sched/1.h",
    ];
    for path in FILES {
        root.mknod(path, NewKind::Regular, 0o644)
            .expect("a new name");
    }
    let stat = |index: usize| {
        drop(black_box(
            root.stat(black_box(FILES[index]), LookupFlags::FOLLOW),
        ))
    };
    let open = |index: usize| {
        drop(black_box(
            root.open(black_box(FILES[index]), OpenFlags::READ),
        ))
    };
    for parked in [1, 63, 64, 128, 512] {
        let ready = Barrier::new(parked + 1);
        let end = Barrier::new(parked + 1);
        thread::scope(|scope| {
            for _ in 0..parked {
                scope.spawn(|| {
                    stat(0);
                    open(0);
                    ready.wait();
                    end.wait();
                });
            }
            ready.wait();
            for running in [1, 2] {
                measure_each(&format!("stat, {parked} threads parked"), running, stat);
                measure_each(
                    &format!("open and close, {parked} threads parked"),
                    running,
                    open,
                );
            }
            end.wait();
        });
    }
}

fn main() {
    let root = volume();
    if std::env::args().any(|arg| arg == "parked") {
        return among_parked_threads(&root);
    }
    let user = root.with_cred(Cred::new(1000, 1000, &[]));
    for threads in [1, 2] {
        let stat = |path: &'static str, follow| {
            let how = if follow {
                LookupFlags::FOLLOW
            } else {
                LookupFlags::NOFOLLOW
            };
            let user = &user;
            move || drop(black_box(user.stat(black_box(path), how)))
        };
        measure("stat, 5 components", threads, stat(PATH, true));
        measure(
            "stat, a name that is not there",
            threads,
            stat("/usr/include/linux/sched/none", true),
        );
        measure(
            "stat, through a symbolic link",
            threads,
            stat("/usr/inc/linux/sched/fs.h", true),
        );
        measure("open and close", threads, || {
            drop(black_box(user.open(PATH, OpenFlags::READ)))
        });
        let dirs = root.with_cred(Cred::root());
        measure("create and unlink, one directory", threads, move || {
            let name = format!("/usr/include/{:?}", thread::current().id());
            dirs.mknod(&name, NewKind::Regular, 0o644)
                .expect("a new name");
            dirs.unlink(&name).expect("there");
        });
    }
}
