//! Multiple mount protection: only one host at a time writes to a volume on a shared device.
//!
//! The volume has a block for it. Hosts are called nodes here.
//!
//! 1. A node that opens the volume for writing writes a sequence number to the block, and a new one
//!    after each interval, for as long as the volume is open.
//! 2. A node that finds a sequence number waits for longer than that and reads again. If the number
//!    has changed, the volume is in use. If not, the node that wrote it has crashed.
//! 3. If two nodes find the volume free at the same moment, the last to write gets it. So each node
//!    reads its number back before it uses the volume.
//! 4. Before it reads back, a node that wrote within [`CLAIM_TIME`] of finding the volume free
//!    waits for [`CLAIM_WAIT`]. Any other node that found it free then has written by that time, or
//!    knows that it is late.
//! 5. A late node may have overwritten the number of a node that has the volume. It waits for the
//!    full interval of rule 2, in which the owner finds the foreign number and stops.
//! 6. A node that finds a foreign number in its place, or cannot write for too long, aborts
//!    its journal. None of its later changes becomes durable.
//!
//! `mount` takes an [`MmpGuard`] before it replays the journal, and calls [`check`] for a reader.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/mmp.rst`. e2fsck was observed to wait a
//! second beyond twice the interval, and so does a node here.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use extern4_block::BufferCache;
use extern4_disk::mmp::{MMP_SIZE, Mmp, MmpNode, MmpState};
use extern4_disk::superblock::Superblock;
use extern4_disk::{Corrupt, Place, Structure};
use extern4_jbd2::Aborter;
use extern4_sync::opener::Opener;

use crate::error::{Error, InUse, Result};
use crate::time::now_seconds;
use crate::volume::Volume;
use crate::volume::loss::Losses;

/// The longest time from finding the volume free to writing the number. A node that takes longer is
/// late.
const CLAIM_TIME: Duration = Duration::from_millis(50);
/// How long a node that is not late waits for others that are not.
const CLAIM_WAIT: Duration = Duration::from_millis(100);
/// The longest interval in seconds: `mke2fs(8)` sets no longer one. A larger value on a damaged
/// volume counts as this.
const MAX_SECONDS: u16 = 300;

/// The block, and the means to read and write it.
struct MmpBlock {
    cache: Arc<BufferCache>,
    superblock: Superblock,
    /// The offset of the block on the device in bytes.
    offset: u64,
}

impl MmpBlock {
    /// Returns the block of a volume; `None` if it does not have the feature.
    fn of(volume: &Volume) -> Option<Self> {
        let superblock = volume.superblock().clone();
        // OK: the superblock has been checked to name a block of the volume.
        let offset = superblock.mmp_block()? << superblock.geometry().block_bits();
        Some(Self {
            cache: Arc::clone(&volume.cache),
            superblock,
            offset,
        })
    }

    /// Reads the block from the device, past all caches.
    fn read(&self) -> Result<Mmp> {
        let mut bytes = [0; MMP_SIZE];
        let device = self.cache.device();
        device.forget(self.offset..self.offset + MMP_SIZE as u64);
        device.read_at(&mut bytes, self.offset)?;
        let block = self.superblock.mmp_block().unwrap_or(0);
        Ok(Mmp::decode(
            &bytes,
            &self.superblock,
            Place::new(Structure::Mmp).block(block),
        )?)
    }

    fn write(&self, mmp: &Mmp) -> Result<()> {
        self.cache
            .write_bytes(self.offset, &mmp.encode(&self.superblock))?;
        Ok(self.cache.device().flush()?)
    }

    /// Returns the interval between two numbers of a node.
    fn interval(&self) -> Duration {
        Duration::from_secs(self.seconds().into())
    }

    fn seconds(&self) -> u16 {
        self.superblock.mmp_interval().clamp(1, MAX_SECONDS)
    }

    /// Waits until it is certain that no node has the volume open for writing. Returns the block
    /// and the time at which it was read.
    fn wait_until_free(&self) -> Result<(Mmp, Instant)> {
        let looked = Instant::now();
        let found = self.read()?;
        match found.state() {
            MmpState::Clean => Ok((found, looked)),
            MmpState::Fsck => Err(in_use(&found)),
            MmpState::Live(_) => {
                sleep(wait_time(self.seconds(), found.check_interval()));
                let looked = Instant::now();
                let later = self.read()?;
                let is_free = later.state() == found.state() || later.state() == MmpState::Clean;
                if is_free {
                    Ok((later, looked))
                } else {
                    Err(in_use(&later))
                }
            }
        }
    }
}

/// Returns how long a number must stay unchanged for its node to count as crashed. `seconds` is the
/// interval of the volume. `check_interval` is from the node that wrote the number, usually twice
/// its interval.
fn wait_time(seconds: u16, check_interval: u16) -> Duration {
    let longest = seconds.max(check_interval).min(2 * MAX_SECONDS);
    Duration::from_secs(2 * u64::from(longest) + 1)
}

fn in_use(mmp: &Mmp) -> crate::Error {
    let text = |name: &[u8]| String::from_utf8_lossy(name).escape_debug().to_string();
    crate::Error::InUse(InUse {
        checking: mmp.state() == MmpState::Fsck,
        host: text(mmp.node_name()),
        device: text(mmp.device_name()),
        seconds_ago: u64::from(now_seconds()).saturating_sub(mmp.time()),
    })
}

/// Refuses to read a volume that another node is writing to. Unless the block says that the volume
/// is clean, it has to wait to find out. Returns the damage of a block that cannot tell, which
/// keeps no reader away.
pub(crate) fn check(volume: &Volume) -> Result<Option<Corrupt>> {
    let Some(block) = MmpBlock::of(volume) else {
        return Ok(None);
    };
    match block.wait_until_free() {
        Ok(_) => Ok(None),
        Err(Error::Corrupt(corrupt)) => Ok(Some(corrupt)),
        Err(error) => Err(error),
    }
}

/// Protects a volume for as long as it is open for writing. Dropping it without
/// [`release`](Self::release) acts like a crash: another node has to wait before it can open the
/// volume.
pub(crate) struct MmpGuard {
    opener: Opener,
    heartbeat: Arc<Heartbeat>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the guard and its thread share.
struct Heartbeat {
    block: MmpBlock,
    /// The seconds within which this node must renew its number. Other nodes wait for twice as
    /// long.
    check_interval: u16,
    /// Locks: held over reading and writing the block.
    state: Mutex<HeartbeatState>,
    ended: Condvar,
}

struct HeartbeatState {
    /// The block as this node wrote it last.
    ours: Mmp,
    ended: bool,
    /// The reason, if another node has taken the volume or may have.
    lost: Option<Error>,
    aborter: Option<Aborter>,
    losses: Option<Arc<Losses>>,
}

impl MmpGuard {
    /// Claims the volume; `None` if it does not have the feature.
    ///
    /// # Errors
    /// [`Error::InUse`](crate::Error::InUse) if another node has it; a corrupt block; a device that
    /// fails.
    pub(crate) fn take(volume: &Volume) -> Result<Option<Self>> {
        let Some(block) = MmpBlock::of(volume) else {
            return Ok(None);
        };
        let (free, looked) = block.wait_until_free()?;
        let host = rustix::system::uname();
        let device = volume
            .device
            .name()
            .map_or(&b"memory"[..], |name| name.as_encoded_bytes());
        let node = MmpNode {
            host: host.nodename().to_bytes(),
            device,
        };
        let sequence = RandomState::new().hash_one(now_seconds()) as u32;
        let check_interval = 2 * block.seconds();
        let ours = free.taken(sequence, &node, check_interval, now_seconds().into());
        block.write(&ours)?;
        // Rules 3 to 5: another node may have found the volume free at the same moment.
        sleep(if looked.elapsed() < CLAIM_TIME {
            CLAIM_WAIT
        } else {
            wait_time(block.seconds(), check_interval)
        });
        let found = block.read()?;
        if found.state() != ours.state() {
            return Err(in_use(&found));
        }
        let state = Mutex::new(HeartbeatState {
            ours,
            ended: false,
            lost: None,
            aborter: None,
            losses: None,
        });
        let heartbeat = Arc::new(Heartbeat {
            block,
            check_interval,
            state,
            ended: Condvar::new(),
        });
        let thread = {
            let heartbeat = Arc::clone(&heartbeat);
            thread::Builder::new()
                .name("extern4-mmp".into())
                .spawn(move || heartbeat.run())
        };
        let thread = thread.map_err(|_| extern4_vfs::Errno::EAGAIN)?;
        Ok(Some(Self {
            opener: Opener::here(),
            heartbeat,
            thread: Some(thread),
        }))
    }

    /// Sets the journal to abort if the volume is lost, and where to report the loss.
    pub(crate) fn aborts(&self, aborter: Option<Aborter>, losses: Arc<Losses>) {
        let mut state = self.heartbeat.lock();
        (state.aborter, state.losses) = (aborter, Some(losses));
        state.abort_if_lost();
    }

    /// Marks the volume as free, if this node still has it.
    pub(crate) fn release(&self) -> Result<()> {
        let mut state = self.heartbeat.lock();
        if std::mem::replace(&mut state.ended, true) || state.lost.is_some() {
            return Ok(());
        }
        self.heartbeat.ended.notify_all();
        let free = state.ours.released(now_seconds().into());
        if self.heartbeat.is_ours(&state)? {
            self.heartbeat.block.write(&free)
        } else {
            Ok(())
        }
    }
}

impl Drop for MmpGuard {
    fn drop(&mut self) {
        if !self.opener.is_here() {
            // A forked child does not have the thread, and the lock may have been held at the fork.
            std::mem::forget(self.thread.take());
            return;
        }
        self.heartbeat.lock().ended = true;
        self.heartbeat.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
        }
    }
}

impl HeartbeatState {
    fn abort_if_lost(&self) {
        if let (Some(aborter), Some(why)) = (&self.aborter, &self.lost) {
            aborter.abort(&why.to_string());
            if let Some(losses) = &self.losses {
                losses.report(why);
            }
        }
    }
}

impl Heartbeat {
    fn lock(&self) -> MutexGuard<'_, HeartbeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ours(&self, state: &HeartbeatState) -> Result<bool> {
        Ok(self.block.read()?.state() == state.ours.state())
    }

    /// Writes a new number after each interval, until the guard ends it or it finds a foreign
    /// number.
    fn run(&self) {
        let mut written = Instant::now();
        let mut state = self.lock();
        while !state.ended && state.lost.is_none() {
            let waited = self
                .ended
                .wait_timeout_while(state, self.block.interval(), |state| !state.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.ended {
                return;
            }
            match self.renew(&mut state) {
                Ok(None) => written = Instant::now(),
                Ok(Some(theirs)) => state.lost = Some(in_use(&theirs)),
                // A later write may succeed. After `check_interval` another node may have taken the
                // volume.
                Err(error) => {
                    let is_late =
                        written.elapsed() > Duration::from_secs(self.check_interval.into());
                    state.lost = is_late.then_some(error);
                }
            }
            state.abort_if_lost();
        }
    }

    /// Writes the next number. Returns the block on the device instead if it has a foreign number.
    fn renew(&self, state: &mut HeartbeatState) -> Result<Option<Mmp>> {
        let found = self.block.read()?;
        if found.state() != state.ours.state() {
            return Ok(Some(found));
        }
        let next = state.ours.renewed(now_seconds().into());
        self.block.write(&next)?;
        state.ours = next;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_waits_longer_than_the_longest_interval() {
        assert_eq!(wait_time(5, 10), Duration::from_secs(21));
        assert_eq!(wait_time(5, 1), Duration::from_secs(11));
        assert_eq!(wait_time(300, 600), Duration::from_secs(1201));
        assert_eq!(wait_time(300, u16::MAX), wait_time(300, 600));
    }
}
