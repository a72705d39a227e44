//! A device that can lose power at any moment, for tests of what survives a crash.
//!
//! Tests of `jbd2`, `ext4` and `extern4` write to one, and then open what each possible crash
//! leaves.
//!
//! It remembers every write and flush since it was made. A *moment* is a number of those requests.
//! A crash at a moment leaves each sector (512 bytes, the unit that a disk writes whole) in one of
//! several states. A sector holds its contents at the last flush, or any version written since. So
//! writes that no flush has followed may be lost, kept or torn, in any order. A discard writes
//! nonsense.
//!
//! ```text
//! write flush write write | write flush        the moment 4
//! ╰── durable ──╯ ╰─ any ─╯                    crash(4, |sector| keep it?)
//! ```

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{BlockDevice, check_range, check_span, read_each_at};
use crate::{MemoryDevice, Op, Result};

/// The bytes that a disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// The byte that reads return after a discard.
const DISCARDED: u8 = 0xd1;

/// One request that changed something, or made it durable.
enum Event {
    Write { offset: usize, bytes: Vec<u8> },
    Flush,
}

/// A version of a sector, or of a part of it, that was written and not flushed at the moment of a
/// crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSector {
    /// The request that wrote it, counted from the first.
    pub event: usize,
    /// The sector's number on the device.
    pub sector: u64,
}

/// A device in memory that remembers its writes and flushes.
pub struct CrashDevice {
    size: u64,
    state: Mutex<State>,
}

struct State {
    /// The contents that reads see.
    now: Vec<u8>,
    events: Vec<Event>,
    /// The durable contents after the first `durable_at` requests, of which the last is a flush.
    /// `durable_at` normally only grows, so that a test that explores a long history in order
    /// applies each write once.
    durable: Vec<u8>,
    durable_at: usize,
    /// The contents at the start, for a test that goes back to an earlier moment.
    initial: Vec<u8>,
}

impl CrashDevice {
    /// Returns a device with these contents, all durable.
    pub fn new(bytes: Vec<u8>) -> Self {
        let now = bytes.clone();
        let durable = bytes.clone();
        let state = State {
            now,
            events: Vec::new(),
            durable,
            durable_at: 0,
            initial: bytes,
        };
        Self {
            size: state.now.len() as u64,
            state: Mutex::new(state),
        }
    }

    /// Returns the present moment: the number of writes and flushes so far.
    pub fn moment(&self) -> usize {
        self.lock().events.len()
    }

    /// Returns whether the last request before `moment` was a flush, so that a crash could lose
    /// nothing.
    pub fn is_flushed(&self, moment: usize) -> bool {
        moment == 0 || matches!(self.lock().events.get(moment - 1), Some(Event::Flush))
    }

    /// Returns the number of flushes before `moment`.
    pub fn flushes(&self, moment: usize) -> usize {
        self.lock()
            .events
            .iter()
            .take(moment)
            .filter(|event| matches!(event, Event::Flush))
            .count()
    }

    /// Returns the sectors that a crash at `moment` could lose, in the order in which they were
    /// written.
    pub fn pending(&self, moment: usize) -> Vec<PendingSector> {
        let state = self.lock();
        let moment = moment.min(state.events.len());
        let mut pending = Vec::new();
        for event in last_flush(&state.events, moment)..moment {
            if let Event::Write { offset, bytes } = &state.events[event] {
                pending.extend(sectors(*offset, bytes.len()).map(|sector| PendingSector {
                    event,
                    sector: sector as u64,
                }));
            }
        }
        pending
    }

    /// Returns the device after a crash at `moment`: everything flushed, and the
    /// [pending](Self::pending) sectors for which `keep` returns true.
    pub fn crash(
        &self,
        moment: usize,
        mut keep: impl FnMut(PendingSector) -> bool,
    ) -> MemoryDevice {
        let mut state = self.lock();
        let moment = moment.min(state.events.len());
        let flushed = last_flush(&state.events, moment);
        state.advance(flushed);
        let mut bytes = state.durable.clone();
        for event in flushed..moment {
            let Event::Write {
                offset,
                bytes: written,
            } = &state.events[event]
            else {
                continue;
            };
            for sector in sectors(*offset, written.len()) {
                if keep(PendingSector {
                    event,
                    sector: sector as u64,
                }) {
                    let start = (sector * SECTOR_BYTES).max(*offset);
                    let end = ((sector + 1) * SECTOR_BYTES).min(offset + written.len());
                    bytes[start..end].copy_from_slice(&written[start - offset..end - offset]);
                }
            }
        }
        MemoryDevice::new(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, op: Op, offset: u64, bytes: Vec<u8>) -> Result<()> {
        check_range(op, offset, bytes.len() as u64, self.size)?;
        // OK: inside a vector, hence inside `usize`.
        let offset = offset as usize;
        let mut state = self.lock();
        state.now[offset..offset + bytes.len()].copy_from_slice(&bytes);
        state.events.push(Event::Write { offset, bytes });
        Ok(())
    }
}

impl State {
    /// Sets `durable` to the contents at the flush `moment`.
    fn advance(&mut self, moment: usize) {
        if moment < self.durable_at {
            self.durable.copy_from_slice(&self.initial);
            self.durable_at = 0;
        }
        for event in &self.events[self.durable_at..moment] {
            if let Event::Write { offset, bytes } = event {
                self.durable[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
        }
        self.durable_at = moment;
    }
}

/// Returns the number of requests up to the last flush among the first `moment`, including that
/// flush.
fn last_flush(events: &[Event], moment: usize) -> usize {
    events[..moment]
        .iter()
        .rposition(|event| matches!(event, Event::Flush))
        .map_or(0, |at| at + 1)
}

/// Returns the sectors that `len` bytes at `offset` touch.
fn sectors(offset: usize, len: usize) -> Range<usize> {
    offset / SECTOR_BYTES..(offset + len).div_ceil(SECTOR_BYTES)
}

impl fmt::Debug for CrashDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashDevice")
            .field("size", &self.size)
            .field("moment", &self.moment())
            .finish()
    }
}

impl BlockDevice for CrashDevice {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn sector_bytes(&self) -> u32 {
        512
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        check_range(Op::Read, offset, buf.len() as u64, self.size)?;
        // OK: inside a vector, hence inside `usize`.
        let offset = offset as usize;
        buf.copy_from_slice(&self.lock().now[offset..offset + buf.len()]);
        Ok(())
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        read_each_at(self, bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(Op::Write, offset, buf.to_vec())
    }

    /// Returns false, although writes are whole: tests of callers that have to exclude writers run
    /// on this device.
    fn writes_whole(&self) -> bool {
        false
    }

    fn flush(&self) -> Result<()> {
        self.lock().events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let len = check_span(Op::Discard, &range, self.size)?;
        // The contents after a discard are unspecified, so this writes bytes that make no sense.
        self.write(Op::Discard, range.start, vec![DISCARDED; len as usize])
    }

    fn write_zeroes(&self, range: Range<u64>) -> Result<()> {
        let len = check_span(Op::WriteZeroes, &range, self.size)?;
        self.write(Op::WriteZeroes, range.start, vec![0; len as usize])
    }

    fn prefetch(&self, _range: Range<u64>) {}

    fn file_range(&self, _range: Range<u64>) -> Option<(&File, u64)> {
        None
    }

    fn forget(&self, _range: Range<u64>) {}

    fn name(&self) -> Option<&OsStr> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the pending sectors are kept, as bits.
    fn crash(device: &CrashDevice, moment: usize, bits: u32) -> Vec<u8> {
        let mut at = 0;
        let kept = device.crash(moment, |_| {
            at += 1;
            bits >> (at - 1) & 1 == 1
        });
        kept.into_bytes()
            .chunks(SECTOR_BYTES)
            .map(|sector| sector[SECTOR_BYTES - 1])
            .collect()
    }

    #[test]
    fn unflushed_writes_may_be_lost_kept_or_torn() {
        let device = CrashDevice::new(vec![0; 4 * SECTOR_BYTES]);
        device.write_at(&[1; 2 * SECTOR_BYTES], 0).unwrap();
        device.flush().unwrap();
        device.write_at(&[2; 2 * SECTOR_BYTES], 512).unwrap();
        device.write_at(&[3; SECTOR_BYTES], 512).unwrap();
        assert_eq!((device.moment(), device.flushes(4)), (4, 1));
        assert_eq!(
            [0, 1, 2, 3].map(|moment| device.is_flushed(moment)),
            [true, false, true, false]
        );
        let pending = device.pending(4);
        let expected =
            [(2, 1), (2, 2), (3, 1)].map(|(event, sector)| PendingSector { event, sector });
        assert_eq!(pending, expected);
        for (bits, expected) in [
            (0, [1, 1, 0, 0]),
            (1, [1, 2, 0, 0]),
            (2, [1, 1, 2, 0]),
            (4, [1, 3, 0, 0]),
            (7, [1, 3, 2, 0]),
        ] {
            assert_eq!(crash(&device, 4, bits), expected);
        }
        // Backwards in time, too.
        assert_eq!(crash(&device, 1, 2), [0, 1, 0, 0]);
        assert_eq!(crash(&device, 2, 0), [1, 1, 0, 0]);
    }

    #[test]
    fn a_part_of_a_sector_keeps_the_rest() {
        let device = CrashDevice::new(vec![7; 2 * SECTOR_BYTES]);
        device.write_at(&[1; 4], 510).unwrap();
        let mut expected = vec![7; 2 * SECTOR_BYTES];
        expected[512..514].fill(1);
        let kept = device.crash(1, |pending| pending.sector == 1);
        assert_eq!(kept.into_bytes(), expected);
        assert!(device.write_at(&[1; 4], 1022).is_err());
        assert_eq!(device.moment(), 1);
    }
}
