//! Scans a directory with two threads: one walks, and the caller's thread feeds the sink.
//!
//! The walk waits for the kernel most of the time, and the sink computes, so they overlap. The
//! walking thread also has its own current directory, by which `xattrs` reads attributes.
//! [`scan`] is `DirectorySource::scan`. The sink gets entries in the order of the walk, in batches
//! of bounded number. After an error of either thread the other ends, and the sink's error takes
//! precedence.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::DirectorySource;
use super::walk::Walk;
use super::xattrs::By;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::source::{Sink, Unwanted};

/// The entries of a batch, and the batches that can wait before the walk blocks.
const BATCH: usize = 128;
const BATCHES: usize = 8;

/// A result of the walk.
enum Found {
    Entry(Entry),
    Warning(String),
}

/// Passes the tree of the source to the sink.
pub(super) fn scan(source: &DirectorySource, sink: &mut dyn Sink) -> Result<()> {
    let (sender, receiver) = sync_channel(BATCHES);
    let unwanted = sink.unwanted();
    std::thread::scope(|scope| {
        let walk = std::thread::Builder::new().name("extern4-walk".to_owned());
        let walk = walk.spawn_scoped(scope, move || {
            walk_into(source, sender, unwanted, By::of_this_thread())
        });
        let walk = walk.map_err(|error| Error::io(source.name(b""), error))?;
        // After an error the walk finds that its channel is closed, and ends.
        let fed = feed(receiver, sink);
        let walked = walk
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        fed.and(walked)
    })
}

fn feed(receiver: Receiver<Vec<Found>>, sink: &mut dyn Sink) -> Result<()> {
    for found in receiver.into_iter().flatten() {
        match found {
            Found::Entry(entry) => sink.entry(entry)?,
            Found::Warning(message) => sink.warn(message),
        }
    }
    Ok(())
}

fn walk_into(
    source: &DirectorySource,
    sender: SyncSender<Vec<Found>>,
    unwanted: Option<Unwanted>,
    by: By,
) -> Result<()> {
    let mut batches = Batches {
        sender,
        batch: Vec::with_capacity(BATCH),
    };
    let walked = Walk::new(source, &mut batches, unwanted, by).run();
    // Entries from before an error are passed on, as without this thread.
    batches.send().and(walked)
}

/// The sink of the walk, which sends batches to the other thread.
struct Batches {
    sender: SyncSender<Vec<Found>>,
    batch: Vec<Found>,
}

impl Batches {
    fn add(&mut self, found: Found) -> Result<()> {
        self.batch.push(found);
        if self.batch.len() < BATCH {
            Ok(())
        } else {
            self.send()
        }
    }

    fn send(&mut self) -> Result<()> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        // The receiver ended because of the sink's error, which `scan` returns instead of this one.
        self.sender
            .send(batch)
            .map_err(|_| Error::Sink("the sink ended".into()))
    }
}

impl Sink for Batches {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.add(Found::Entry(entry))
    }

    fn remove(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn clear(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn warn(&mut self, message: String) {
        self.batch.push(Found::Warning(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Collected, is_root, run};

    #[test]
    fn all_ways_of_reading_attributes_find_the_same() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::create_dir(dir.path().join("c")).unwrap();
        for name in ["", "a", "a/b", "a/b/f", "a/f", "c", "c/f", "d"] {
            let path = dir.path().join(name);
            if !path.exists() {
                std::fs::write(&path, "").unwrap();
            }
            let value = name.as_bytes();
            rustix::fs::setxattr(&path, "user.name", value, rustix::fs::XattrFlags::empty())
                .unwrap();
        }
        if is_root() {
            run(
                dir.path(),
                "sh",
                &["-c", "ln -s a l; setfattr -h -n trusted.name -v l l"],
            );
        }
        let source = DirectorySource::new(dir.path()).unwrap();
        let by = |wanted: Option<By>| {
            let (sender, receiver) = sync_channel(BATCHES);
            let mut found = Collected::default();
            std::thread::scope(|scope| {
                let source = &source;
                scope.spawn(move || {
                    let by = By::of_this_thread();
                    assert_eq!(by, By::CurrentDirectory);
                    walk_into(source, sender, None, wanted.unwrap_or(by)).unwrap();
                });
                feed(receiver, &mut found).unwrap();
            });
            found.entries
        };
        let first = by(None);
        for entry in first.iter().filter(|entry| entry.path != b"l") {
            assert_eq!(entry.xattrs, [(b"user.name".to_vec(), entry.path.clone())]);
        }
        assert_eq!(first.len(), if is_root() { 9 } else { 8 });
        assert_eq!(by(Some(By::Proc)), first);
        assert_eq!(by(Some(By::Path)), first);
    }

    #[test]
    fn an_error_of_the_sink_ends_the_walk() {
        struct Full(usize);
        impl Sink for Full {
            fn entry(&mut self, _: Entry) -> Result<()> {
                self.0 += 1;
                if self.0 == 300 {
                    Err(Error::Sink("full".into()))
                } else {
                    Ok(())
                }
            }
            fn remove(&mut self, _: &[u8]) -> Result<()> {
                Ok(())
            }
            fn clear(&mut self, _: &[u8]) -> Result<()> {
                Ok(())
            }
            fn warn(&mut self, _: String) {}
        }
        let dir = tempfile::tempdir().unwrap();
        for number in 0..5000 {
            std::fs::create_dir(dir.path().join(number.to_string())).unwrap();
        }
        let source = DirectorySource::new(dir.path()).unwrap();
        let before = std::env::current_dir().unwrap();
        let mut sink = Full(0);
        assert_eq!(scan(&source, &mut sink).unwrap_err().to_string(), "full");
        assert_eq!(sink.0, 300);
        // The walk's current directory is not that of the process.
        assert_eq!(std::env::current_dir().unwrap(), before);
    }
}
