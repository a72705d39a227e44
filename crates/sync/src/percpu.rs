//! Values with one copy for each CPU, each on separate cache lines.
//!
//! [`cpu`] returns the CPU that the thread runs on. The thread may move before it uses the result,
//! so two threads may use one copy at the same time.
//!
//! So values are atomics or locks, and the copies only make contention rare. Caches count in them,
//! and [`Padded`] keeps words of different threads on different lines throughout the workspace.

use std::ops::Deref;
use std::sync::OnceLock;

/// Copies, at most: a machine that may hotplug thousands of CPUs must not need as many cache lines
/// a counter.
const MAX_SLOTS: usize = 256;

/// A value that fills two cache lines, since x86 fetches lines in adjacent pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

/// A value that fills one cache line, within a struct whose earlier lines are only read.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Line<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Returns the CPU that this thread runs on or ran on a moment ago. Normally below
/// [`possible_cpus`].
#[inline]
pub fn cpu() -> usize {
    #[cfg(all(
        target_arch = "x86_64",
        target_os = "linux",
        target_env = "gnu",
        not(any(miri, feature = "loom"))
    ))]
    if let Some(cpu) = rseq::cpu() {
        return cpu;
    }
    system_cpu()
}

#[cfg(not(any(miri, feature = "loom")))]
#[cold]
fn system_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// Returns 0: a model must take the same steps in each run.
#[cfg(any(miri, feature = "loom"))]
fn system_cpu() -> usize {
    0
}

/// Returns 2, so that models are the same on every machine.
#[cfg(feature = "loom")]
pub fn possible_cpus() -> usize {
    2
}

/// Returns the number of CPUs that this machine may ever have, including hotplugged ones.
#[cfg(not(feature = "loom"))]
pub fn possible_cpus() -> usize {
    static POSSIBLE: OnceLock<usize> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        // A list of ranges, "0-3" or "0,2-5": the last number is the highest.
        let last = list
            .trim()
            .rsplit([',', '-'])
            .next()
            .and_then(|last| last.parse::<usize>().ok());
        let online = std::thread::available_parallelism().map_or(1, |n| n.get());
        last.map_or(online, |last| last.saturating_add(1))
            .max(online)
    })
}

/// Returns the NUMA node of a CPU; 0 if the system does not report it.
pub fn node_of(cpu: usize) -> usize {
    static NODES: OnceLock<Vec<usize>> = OnceLock::new();
    NODES.get_or_init(nodes).get(cpu).copied().unwrap_or(0)
}

/// Returns the node of each CPU. Linux reports a list of ranges in `node0/cpulist` and so on.
fn nodes() -> Vec<usize> {
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten()
        .flatten()
    {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix("node")?.parse().ok());
        let list = std::fs::read_to_string(entry.path().join("cpulist"));
        let (Some(number), Ok(list)) = (number, list) else {
            continue;
        };
        for cpu in cpus_in(&list).take_while(|&cpu| cpu < MAX_SLOTS * MAX_SLOTS) {
            nodes.resize(nodes.len().max(cpu + 1), 0);
            nodes[cpu] = number;
        }
    }
    nodes
}

/// Returns the numbers in a list of ranges such as "0-3,8".
fn cpus_in(list: &str) -> impl Iterator<Item = usize> + '_ {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.parse().ok()?..=last.parse().ok()?)
        })
        .flatten()
}

/// One `T` for each CPU.
#[derive(Debug)]
pub struct PerCpu<T> {
    // A power of two of them, so that a mask brings any CPU number into range.
    slots: Box<[Padded<T>]>,
}

impl<T: Default> PerCpu<T> {
    /// Creates a default value for each CPU.
    pub fn new() -> Self {
        let slots = possible_cpus().min(MAX_SLOTS).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| Padded::default()).collect(),
        }
    }
}

impl<T: Default> Default for PerCpu<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerCpu<T> {
    /// Returns the value of this thread's CPU. Other threads may use it at the same time.
    #[inline]
    pub fn local(&self) -> &T {
        &self.slots[cpu() & (self.slots.len() - 1)]
    }

    /// Returns the values of all CPUs.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &slot.0)
    }
}

/// The CPU number in the rseq area of each thread (rseq(2)), which the kernel keeps up to date. The
/// C library (glibc 2.35 and later) registers the area at `__rseq_offset` from the thread pointer.
/// This is one load; `sched_getcpu` is a call.
#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(miri, feature = "loom"))
))]
mod rseq {
    use std::arch::asm;
    // The standard atomics: this caches a constant and is no protocol.
    use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

    /// Byte of `cpu_id` in `struct rseq`.
    const CPU_ID: isize = 4;
    /// The offset is not known yet. No area is at offset 0, where the thread pointer itself is.
    const UNKNOWN: isize = 0;
    /// No area is registered.
    const ABSENT: isize = 1;

    static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);

    #[inline]
    pub(super) fn cpu() -> Option<usize> {
        // Relaxed: all threads store the same value, and it guards no data.
        let offset = match OFFSET.load(Relaxed) {
            UNKNOWN => find(),
            offset => offset,
        };
        if offset == ABSENT {
            return None;
        }
        let id: i32;
        // SAFETY: `offset` is that of the area, of at least 20 bytes, which glibc registered for
        // every thread. The asm loads four bytes of it, which only the kernel writes, and changes
        // nothing.
        unsafe {
            asm!("mov {id:e}, dword ptr fs:[{at}]", id = out(reg) id, at = in(reg) offset + CPU_ID,
                 options(nostack, preserves_flags, readonly));
        }
        // Negative if the area of this thread is not registered.
        usize::try_from(id).ok()
    }

    #[cold]
    fn find() -> isize {
        let (offset, size): (*const isize, *const u32);
        // SAFETY: the asm only loads the addresses of two symbols from the global offset table.
        // They are weak, so they are null if the C library lacks them.
        unsafe {
            asm!(".weak __rseq_offset", ".weak __rseq_size",
                 "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
                 "mov {size}, qword ptr [rip + __rseq_size@GOTPCREL]",
                 offset = out(reg) offset, size = out(reg) size, options(nostack, preserves_flags, readonly));
        }
        let found = if offset.is_null() || size.is_null() {
            ABSENT
        } else {
            // SAFETY: not null, so these are glibc's constants `ptrdiff_t __rseq_offset` and
            // `unsigned int __rseq_size`, which are set before `main`.
            let (offset, size) = unsafe { (offset.read(), size.read()) };
            // A size of zero means that the registration failed or was switched off.
            if size == 0 || offset == UNKNOWN {
                ABSENT
            } else {
                offset
            }
        };
        OFFSET.store(found, Relaxed);
        found
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_knows_its_cpu() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        for cpu in (0..possible_cpus()).filter(|&cpu| allowed.is_set(cpu)) {
            let mut only = rustix::thread::CpuSet::new();
            only.set(cpu);
            rustix::thread::sched_setaffinity(None, &only).unwrap();
            assert_eq!(super::cpu(), cpu);
            assert_eq!(system_cpu(), cpu);
        }
        rustix::thread::sched_setaffinity(None, &allowed).unwrap();
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpus_in("0-2,5\n").collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!(cpus_in("\n").count(), 0);
        assert!((0..possible_cpus()).all(|cpu| node_of(cpu) <= possible_cpus()));
    }

    #[test]
    fn slots_do_not_share_lines() {
        assert_eq!(size_of::<Padded<u64>>(), 128);
        assert!(PerCpu::<u64>::new().slots.len().is_power_of_two());
    }
}
