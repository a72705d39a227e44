//! The registry of the open files of a file system.
//!
//! Each open file has a record (`slab_registry`). A record holds no reference to its file, so a
//! listing keeps no file open.
//!
//! `OpenFile` enters itself here and leaves when it is dropped. `Volume` of the `extern4` crate
//! lists the open files and their counters from here. A listing shows each file that is open
//! throughout it, and perhaps some files that are opened or closed meanwhile.

#[cfg(feature = "lab")]
pub(crate) mod lab;
#[allow(unreachable_pub, reason = "public in the lab")]
pub(crate) mod opened;
#[allow(unreachable_pub, reason = "public in the lab")]
pub(crate) mod registry;
#[allow(unreachable_pub, reason = "public in the lab")]
pub(crate) mod slab_registry;
pub(crate) mod write_gate;

use extern4_sync::percpu;
use extern4_sync::thread_counter::ThreadCounter;
use extern4_sync::thread_slots::thread_number;

use opened::Opened;
use registry::Registry;

use crate::errno::{Errno, Result};
use crate::open_flags::OpenFlags;
#[cfg(feature = "lab")]
use lab::InUse;

/// The registry of a file system.
#[cfg(not(feature = "lab"))]
type InUse = slab_registry::SlabRegistry<Opened>;

/// The ticket of a file in the registry.
type RegistryTicket = <InUse as Registry<Opened>>::Ticket;

/// The open files of one file system.
pub(crate) struct OpenFiles {
    pub(crate) registry: InUse,
    counts: ThreadCounter<5>,
}

/// Indices of the counters.
const ADDED: usize = 0;
const BY_THREAD: usize = 1;
const ON_CPU: usize = 2;
const ON_NODE: usize = 3;
const ELSEWHERE: usize = 4;

/// The entry of an open file.
pub(crate) struct RegistryEntry {
    ticket: RegistryTicket,
    /// The CPU on which the file was opened.
    cpu: usize,
    thread: usize,
}

/// Counters of a file system's open files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFileStats {
    /// Files opened since the volume was, closed ones included.
    pub opened: u64,
    /// Files closed by the thread that had opened them, or one that took its place.
    pub closed_by_thread: u64,
    /// Files closed on the CPU on which they had been opened.
    pub closed_on_cpu: u64,
    /// On another CPU of the same NUMA node.
    pub closed_on_node: u64,
    /// On another node.
    pub closed_elsewhere: u64,
}

/// An open file, as the registry lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFileInfo {
    /// The session that opened it: [`Session::id`](crate::Session::id).
    pub session: u64,
    /// The user who opened it.
    pub uid: u32,
    /// How it was opened.
    pub flags: OpenFlags,
    /// The inode number.
    pub ino: u64,
    /// The path by which it was opened, as the caller gave it: relative to the session's working
    /// directory unless it starts with a slash.
    pub path: Vec<u8>,
    /// The position of the next read or write, if the users of the file keep it here.
    pub position: u64,
}

impl OpenFiles {
    /// Creates a registry without open files.
    pub(crate) fn new() -> Self {
        Self {
            registry: InUse::default(),
            counts: ThreadCounter::new(),
        }
    }

    /// Enters a file that was opened by `path`. `ENFILE` if there are more than can be counted.
    pub(crate) fn enter(&self, info: &OpenFileInfo, path: &[u8]) -> Result<RegistryEntry> {
        let ticket = self
            .registry
            .add(|opened| opened.fill(info, path))
            .ok_or(Errno::ENFILE)?;
        self.counts.add([1, 0, 0, 0, 0]);
        Ok(RegistryEntry {
            ticket,
            cpu: percpu::cpu(),
            thread: thread_number(),
        })
    }

    pub(crate) fn leave(&self, entry: &RegistryEntry) {
        let removed = self.registry.remove(&entry.ticket, Opened::empty);
        debug_assert!(removed, "closed twice");
        let mut counts = [0; 5];
        counts[BY_THREAD] = u64::from(entry.thread == thread_number());
        let cpu = percpu::cpu();
        let place = if cpu == entry.cpu {
            ON_CPU
        } else if percpu::node_of(cpu) == percpu::node_of(entry.cpu) {
            ON_NODE
        } else {
            ELSEWHERE
        };
        counts[place] = 1;
        self.counts.add(counts);
    }

    /// Calls `look` with the record of a file.
    fn with<R>(&self, entry: &RegistryEntry, look: impl FnOnce(&Opened) -> R) -> R {
        self.registry
            .with(&entry.ticket, look)
            .expect("an entry stands until its file is closed")
    }

    pub(crate) fn position(&self, entry: &RegistryEntry) -> u64 {
        self.with(entry, Opened::position)
    }

    pub(crate) fn set_position(&self, entry: &RegistryEntry, position: u64) {
        self.with(entry, |opened| opened.set_position(position));
    }

    pub(crate) fn path(&self, entry: &RegistryEntry) -> Vec<u8> {
        self.with(entry, Opened::path).unwrap_or_default()
    }

    pub(crate) fn stats(&self) -> OpenFileStats {
        let counts = self.counts.sum();
        OpenFileStats {
            opened: counts[ADDED],
            closed_by_thread: counts[BY_THREAD],
            closed_on_cpu: counts[ON_CPU],
            closed_on_node: counts[ON_NODE],
            closed_elsewhere: counts[ELSEWHERE],
        }
    }
}
