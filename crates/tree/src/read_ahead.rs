//! [`ReadAhead`]: a stream that a separate thread reads, so that decompression and its consumer
//! overlap.
//!
//! `tar` puts it between a decoder and the reader of an archive. Memory is bounded by a few
//! buffers. An error of the stream comes after the bytes before it. The thread ends with the
//! stream, or when the reading end is dropped.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// The size of a buffer, and how many may be full before the thread waits.
const BUFFER: usize = 256 << 10;
const BUFFERS: usize = 4;

/// The reading end of the stream.
pub(crate) struct ReadAhead {
    /// Full buffers. An empty one is the end of the stream.
    full: Receiver<io::Result<Vec<u8>>>,
    /// Where used buffers go back.
    used: Sender<Vec<u8>>,
    current: Vec<u8>,
    /// How many bytes of the current buffer have been read.
    taken: usize,
    ended: bool,
}

impl ReadAhead {
    pub(crate) fn new(stream: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, full) = sync_channel(BUFFERS);
        let (used, spare) = channel();
        let thread = std::thread::Builder::new().name("extern4-decode".to_owned());
        // The thread ends with the stream, or when this end is dropped.
        thread.spawn(move || fill(stream, &sender, &spare))?;
        Ok(Self {
            full,
            used,
            current: Vec::new(),
            taken: 0,
            ended: false,
        })
    }
}

fn fill(mut stream: impl Read, full: &SyncSender<io::Result<Vec<u8>>>, spare: &Receiver<Vec<u8>>) {
    loop {
        let mut buf = spare
            .try_recv()
            .unwrap_or_else(|_| Vec::with_capacity(BUFFER));
        buf.clear();
        let read = (&mut stream).take(BUFFER as u64).read_to_end(&mut buf);
        let is_empty = buf.is_empty();
        let error = read.err();
        // Bytes that came before an error are passed on.
        let passes = !is_empty || error.is_none();
        if passes && full.send(Ok(buf)).is_err() {
            return;
        }
        if let Some(error) = error {
            let _ = full.send(Err(error));
            return;
        }
        if is_empty {
            return;
        }
    }
}

impl Read for ReadAhead {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.current.len() && !self.ended {
            // The channel closed without the mark of the end, so the decoder panicked.
            let next = self
                .full
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("the decoder failed")));
            self.ended = next.as_ref().map_or(true, Vec::is_empty);
            let used = std::mem::replace(&mut self.current, next?);
            self.taken = 0;
            if used.capacity() > 0 {
                // The thread may have ended.
                let _ = self.used.send(used);
            }
        }
        let left = &self.current[self.taken..];
        let count = left.len().min(buf.len());
        buf[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that calls a function at its end.
    struct Ends<R, F>(R, F);

    impl<R: Read, F: FnMut() -> io::Result<usize>> Read for Ends<R, F> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buf)? {
                0 => self.1(),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn all_bytes_come_in_order() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31 % 251) as u8).collect();
        for len in [0, 1, BUFFER - 1, BUFFER, BUFFER + 1, bytes.len()] {
            let mut ahead = ReadAhead::new(io::Cursor::new(bytes[..len].to_vec())).unwrap();
            let mut back = Vec::new();
            ahead.read_to_end(&mut back).unwrap();
            assert!(back == bytes[..len], "{len}");
            assert_eq!(ahead.read(&mut [0]).unwrap(), 0);
        }
    }

    #[test]
    fn errors_and_panics_are_no_end() {
        let bytes = || io::Cursor::new(vec![1; BUFFER + 5]);
        let mut back = Vec::new();
        let failing = Ends(bytes(), || Err(io::Error::other("broken")));
        let error = ReadAhead::new(failing)
            .unwrap()
            .read_to_end(&mut back)
            .unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), back.len()),
            ("broken", BUFFER + 5)
        );
        let panicking = Ends(bytes(), || panic!("a panic that the test wants"));
        let error = ReadAhead::new(panicking)
            .unwrap()
            .read_to_end(&mut back)
            .unwrap_err();
        assert!(error.to_string().contains("decoder"), "{error}");
    }

    #[test]
    fn the_thread_ends_when_the_reader_is_dropped() {
        let (alive, dropped) = channel::<()>();
        let stream = Ends(io::repeat(1), move || {
            let _ = alive.send(());
            Ok(0)
        });
        let mut ahead = ReadAhead::new(stream).unwrap();
        ahead.read_exact(&mut [0; 10]).unwrap();
        drop(ahead);
        // The stream belongs to the thread, which drops it and with it the sender.
        let waited = dropped.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(waited, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
