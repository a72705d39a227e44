//! The thread that commits and checkpoints.
//!
//! `Transactions` starts this thread, and `journal_state` gives it its jobs. A commit is durable
//! when the thread reports it. After an I/O error it writes nothing more, and every later change
//! fails.
//!
//! Only this thread touches the log and the blocks to be written in place, so these have no lock.
//! The same thread calls the observer. So it never writes a block in place after the observer has
//! learned that the block's revocation is durable.

use std::ops::Range;
use std::sync::Arc;

use extern4_block::{BlockWriter, Pin, Snapshot};
use extern4_disk::journal::{JournalSuperblock, Tid};

use crate::Error;
use crate::checkpoint::CheckpointList;
use crate::counters::Counters;
use crate::journal_state::{Job, JournalState};
use crate::log::{Contents, Log};
use crate::observer::Observer;

/// A transaction that no handle can change any more.
pub(crate) struct Closed {
    pub(crate) tid: Tid,
    /// Blocks with their contents when the last handle was dropped, ascending.
    pub(crate) changed: Vec<(Pin, Snapshot)>,
    /// Blocks of metadata that were freed, ascending.
    pub(crate) revoked: Vec<u64>,
    /// All blocks that were freed.
    pub(crate) freed: Vec<Range<u64>>,
}

impl Closed {
    /// Returns whether there is nothing to be made durable but file data.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.revoked.is_empty() && self.freed.is_empty()
    }
}

/// The log, and the committed blocks that are not yet written in place.
pub(crate) struct Journaling {
    pub(crate) log: Log,
    pub(crate) checkpoint: CheckpointList,
}

pub(crate) struct Committer {
    shared: Arc<JournalState>,
    observer: Arc<dyn Observer>,
    journaling: Option<Journaling>,
    /// The transaction that is being committed.
    closed: Option<Closed>,
}

/// The blocks that may be neither in the log nor in place after an error. They stay in memory, so
/// that later readers see every change in full, and not half of it.
#[expect(dead_code, reason = "it is kept for the pins in it")]
pub(crate) struct Unwritten(Option<Closed>, Option<Journaling>);

impl Committer {
    pub(crate) fn new(
        shared: Arc<JournalState>,
        observer: Arc<dyn Observer>,
        journaling: Option<Journaling>,
    ) -> Self {
        Self {
            shared,
            observer,
            journaling,
            closed: None,
        }
    }

    /// Runs until the journal is closed, dropped or broken.
    pub(crate) fn run(mut self) {
        let _panic = Panic(Arc::clone(&self.shared));
        loop {
            let walking = self
                .journaling
                .as_ref()
                .is_some_and(|journaling| journaling.checkpoint.is_walking());
            let result = match self.shared.next_job(walking) {
                Job::Commit => self.commit(),
                Job::Checkpoint => self.step(),
                Job::CheckpointAll(calls) => self.checkpoint_all(calls),
                Job::Close => {
                    let result = self.close();
                    if result.is_ok() {
                        return self.shared.closed();
                    }
                    result
                }
                Job::Stop => return self.leave(),
            };
            if let Err(error) = result {
                self.fail(error);
                return self.leave();
            }
        }
    }

    fn leave(mut self) {
        let is_damaged = matches!(self.shared.state().error, Some(Error::Damaged(_)));
        if let Some(journaling) = self.journaling.as_mut().filter(|_| is_damaged) {
            journaling.log.note_failure(JournalSuperblock::EUCLEAN);
        }
        self.shared.keep(Unwritten(self.closed, self.journaling));
    }

    /// Stops after an error. From then on it writes only the record of the error.
    fn fail(&mut self, error: Error) {
        // Nothing was written of a transaction that does not fit: the volume is sound.
        let is_sound = self.shared.is_aborted() || matches!(error, Error::TooLarge { .. });
        self.shared.fail(error);
        if let (false, Some(journaling)) = (is_sound, &mut self.journaling) {
            journaling.log.note_failure(JournalSuperblock::EIO);
        }
    }

    /// Closes the running transaction and makes it durable.
    fn commit(&mut self) -> Result<(), Error> {
        let flush = self.shared.flushes.begin();
        let closed = self.shared.close_running(&*self.observer)?;
        if closed.is_empty() {
            self.flush()?;
            self.shared.committed(None, flush);
            return Ok(());
        }
        let tid = closed.tid;
        let closed = self.closed.insert(closed);
        let unsaid = match &mut self.journaling {
            Some(journaling) => journaling.append(&self.shared, closed)?,
            None => write_in_place(&self.shared, closed)?,
        };
        let Some(Closed {
            changed,
            revoked,
            freed,
            ..
        }) = self.closed.take()
        else {
            return Ok(());
        };
        if let Some(journaling) = &mut self.journaling {
            journaling.checkpoint.note(tid, changed, &revoked);
            if unsaid {
                // A journal without features cannot record revocations, but an empty log has no
                // copies to revoke.
                journaling.checkpoint_all(&self.shared)?;
            }
        }
        Counters::add(&self.shared.counters.transactions, 1);
        // Called before the waiting threads are woken, so that they can use the freed blocks.
        self.observer.committed(tid, &freed);
        self.shared.committed(Some(tid), flush);
        if let Some(journaling) = &mut self.journaling {
            journaling.begin_checkpoint();
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        match &self.journaling {
            Some(journaling) => journaling.log.flush_volume(),
            None => self.shared.flush_volume(),
        }
    }

    fn step(&mut self) -> Result<(), Error> {
        self.shared.check_not_aborted()?;
        if let Some(Journaling { log, checkpoint }) = &mut self.journaling {
            checkpoint.step(log)?;
        }
        Ok(())
    }

    fn checkpoint_all(&mut self, calls: u64) -> Result<(), Error> {
        self.commit()?;
        if let Some(journaling) = &mut self.journaling {
            journaling.checkpoint_all(&self.shared)?;
        }
        self.shared.note_checkpointed(calls);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        self.commit()?;
        let Some(journaling) = &mut self.journaling else {
            return Ok(());
        };
        journaling.checkpoint_all(&self.shared)?;
        self.shared.check_not_aborted()?;
        journaling.log.mark_empty()
    }
}

/// Commits without a journal. Makes file data durable, then writes the blocks that refer to it, in
/// ascending order. Returns false: no block needs to be revoked.
fn write_in_place(shared: &JournalState, closed: &Closed) -> Result<bool, Error> {
    shared.flush_volume()?;
    shared.check_not_aborted()?;
    let mut writer = BlockWriter::new(shared.cache.device(), shared.cache.block_size());
    for (pin, snapshot) in &closed.changed {
        writer.push(pin.number(), snapshot)?;
    }
    writer.finish()?;
    shared.flush_volume()?;
    let count = u64::try_from(closed.changed.len()).unwrap_or(u64::MAX);
    Counters::add(&shared.counters.blocks_logged, count);
    Ok(false)
}

/// A guard that reports a panic of the committer, so that no thread waits for ever.
struct Panic(Arc<JournalState>);

impl Drop for Panic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0
                .fail(Error::aborted("the thread that commits has panicked"));
        }
    }
}

impl Journaling {
    /// Makes a transaction durable in the log. Returns true if there were blocks to be revoked and
    /// the log cannot record that.
    fn append(&mut self, shared: &JournalState, closed: &Closed) -> Result<bool, Error> {
        self.make_room(shared, closed)?;
        // A block that the log has no copy of needs no revocation.
        let mut revokes: Vec<_> = self.log.with_copy(&closed.revoked).collect();
        let unsaid = !revokes.is_empty() && !self.log.can_revoke();
        if unsaid {
            revokes.clear();
        }
        let changed = closed.changed.iter();
        let copies: Vec<_> = changed
            .map(|(pin, snapshot)| (pin.number(), Snapshot::clone(snapshot)))
            .collect();
        let contents = Contents {
            tid: closed.tid,
            copies: &copies,
            revokes: &revokes,
        };
        self.log.append(&contents, || shared.check_not_aborted())?;
        Ok(unsaid)
    }

    /// Makes room in the log for a transaction.
    fn make_room(&mut self, shared: &JournalState, closed: &Closed) -> Result<(), Error> {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let measure = self.log.measure();
        // At most one for each block with a copy in the log, however many blocks have been freed.
        let revokes = self.log.with_copy(&closed.revoked).count();
        let blocks = measure.blocks(count(closed.changed.len()), count(revokes));
        if blocks > u64::from(measure.room) {
            return Err(Error::TooLarge {
                blocks,
                room: measure.room,
            });
        }
        if blocks > u64::from(self.log.free()) {
            self.checkpoint_all(shared)?;
        }
        Ok(())
    }

    /// Writes all committed blocks in place, so that the log holds nothing that is needed.
    fn checkpoint_all(&mut self, shared: &JournalState) -> Result<(), Error> {
        let Some((last, _)) = self.log.live().last() else {
            return Ok(());
        };
        self.checkpoint.begin(last);
        while self.checkpoint.is_walking() {
            shared.check_not_aborted()?;
            self.checkpoint.step(&mut self.log)?;
        }
        Ok(())
    }

    /// Begins a checkpoint once the log is half full, or once the waiting snapshots take too much
    /// memory. The checkpoint frees half of the used log. Blocks that younger transactions have
    /// changed again stay in the log until then, so blocks that change all the time are seldom
    /// written.
    fn begin_checkpoint(&mut self) {
        let measure = self.log.measure();
        let half_full = self.log.free() <= measure.room / 2;
        if self.checkpoint.is_walking() || !half_full && !self.checkpoint.is_large() {
            return;
        }
        let enough = (measure.room - self.log.free()) / 2;
        let mut freed = 0;
        let mut last = None;
        for (tid, len_blocks) in self.log.live() {
            freed += len_blocks;
            last = Some(tid);
            if freed >= enough {
                break;
            }
        }
        if let Some(last) = last {
            self.checkpoint.begin(last);
        }
    }
}
