//! A walk in another thread, ahead of the thread that uses the files: one CPU reads while
//! another writes.
//!
//! `into` takes the steps. They come in the order of the walk, and memory and open files stay
//! bounded.

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use super::source::Body;
use super::walk::{Step, Walk};

/// Steps in a batch at most. Batches are handed over whole, so that neither thread waits for the
/// other often.
const BATCH_STEPS: usize = 128;
/// Bytes of contents that end a batch. It may exceed this by one file.
const BATCH_BYTES: usize = 512 << 10;
/// Open files that end a batch. The files of all batches are open at the same time.
const BATCH_OPEN: usize = 8;
/// Batches that wait at most.
const BATCHES: usize = 8;

#[derive(Default)]
struct Batch {
    steps: Vec<Step>,
    bytes: Vec<u8>,
}

/// Calls `each` for every step of the walk, in its order, with the contents that the step refers
/// to, until a call breaks. Fails only at the start, if no thread can be started.
pub(super) fn walk(
    walk: Walk,
    mut each: impl FnMut(Step, &[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let (full, batches) = sync_channel::<Batch>(BATCHES);
    let (empty, used) = channel();
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("reader".to_owned());
        reader.spawn_scoped(scope, move || read(walk, &full, &used))?;
        for mut batch in batches {
            if batch
                .steps
                .drain(..)
                .try_for_each(|step| each(step, &batch.bytes))
                .is_break()
            {
                // The reader finds that nothing takes its batches.
                break;
            }
            // The reader uses the memory again. At the end it is gone, and the send fails.
            let _ = empty.send(batch);
        }
        Ok(())
    })
}

fn read(mut walk: Walk, full: &SyncSender<Batch>, used: &Receiver<Batch>) {
    let mut at_end = false;
    while !at_end {
        let mut batch = used.try_recv().unwrap_or_default();
        batch.bytes.clear();
        walk.bytes = batch.bytes;
        let mut open = 0;
        while batch.steps.len() < BATCH_STEPS && walk.bytes.len() < BATCH_BYTES && open < BATCH_OPEN
        {
            let Some(step) = walk.next() else {
                at_end = true;
                break;
            };
            open += usize::from(
                matches!(&step, Step::File(found) if matches!(found.body, Ok(Body::Open(_)))),
            );
            batch.steps.push(step);
        }
        batch.bytes = std::mem::take(&mut walk.bytes);
        if full.send(batch).is_err() {
            return;
        }
    }
}
