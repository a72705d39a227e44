//! Large answers by `splice(2)`: the kernel copies them once, out of its cache of the image, and
//! the server does not touch them.
//!
//! The thread writes the header to its own pipe, then splices the lent body after it, by
//! reference. It then splices all of it into `/dev/fuse`, which copies it to where the reader wants
//! it. With `SPLICE_F_MOVE` the kernel would give the reader the pages themselves. That would take
//! them out of the cache of the image, where the next reader wants them, so the server never sets
//! it.
//!
//! The second step reads the bytes in the pipe when it copies them, so the lender waits for that.
//! The thread discards a pipe that may still hold bytes: so no answer has bytes of another one in
//! it.
//!
//! Each thread of `channel` has one, for READs whose contents the file system can lend. Where
//! splicing fails or the pipe has no room, the server answers with a copy.

use std::fs::File;
use std::os::fd::OwnedFd;

use extern4_vfs::Lent;
use rustix::io::{Errno as OsErrno, write};
use rustix::param::page_size;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};
use zerocopy::IntoBytes as _;

use crate::abi::OutHeader;
use crate::init::MAX_DATA_BYTES;
use crate::reply::Outlet;

/// The pipe of a thread, made at its first use.
#[derive(Default)]
pub(super) struct Pipe {
    ends: Option<Ends>,
    /// No pipe could be made, or none can be used, and the thread tries no other.
    is_refused: bool,
}

/// A pipe, empty.
struct Ends {
    out: OwnedFd,
    into: OwnedFd,
    /// Pages that have room in it, each whole or in part.
    pages: usize,
}

impl Pipe {
    /// Returns the path through the pipe to `device`.
    pub(super) fn outlet<'p>(&'p mut self, device: &'p OwnedFd) -> Spliced<'p> {
        Spliced { pipe: self, device }
    }

    /// Takes the ends out, to be put back when the pipe is empty again.
    fn take(&mut self) -> Option<Ends> {
        if self.ends.is_none() && !self.is_refused {
            self.ends = Ends::new().ok();
            self.is_refused = self.ends.is_none();
        }
        self.ends.take()
    }
}

impl Ends {
    fn new() -> Result<Self, OsErrno> {
        // Nonblocking: a body without room is an error, and no thread waits.
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user with many pipes may get no large one: then only short answers go through it.
        let _ = fcntl_setpipe_size(&into, MAX_DATA_BYTES);
        let pages = fcntl_getpipe_size(&into)? / page_size();
        Ok(Self { out, into, pages })
    }

    /// Returns whether a header and `body` have room.
    fn has_room(&self, body: &[Lent<'_>]) -> bool {
        // A piece that begins inside a page takes a part of one more.
        let pages = |piece: &Lent<'_>| match *piece {
            Lent::Host { offset, len, .. } => (in_page(offset) + len).div_ceil(page_size()),
            Lent::Zeroes(len) => len.div_ceil(page_size()),
        };
        // The header takes one more.
        body.iter().map(pages).sum::<usize>() < self.pages
    }

    /// Puts an answer in, and sends it. After an error, bytes may be left in the pipe.
    fn send(&self, device: &OwnedFd, header: &OutHeader, body: &[Lent<'_>]) -> Result<(), OsErrno> {
        self.put(header.as_bytes())?;
        for piece in body {
            match *piece {
                Lent::Host { file, offset, len } => self.put_from(file, offset, len)?,
                Lent::Zeroes(len) => self.put_zeroes(len)?,
            }
        }
        let len = usize::try_from(header.len).expect("it was one");
        match splice(&self.out, None, device, None, len, SpliceFlags::empty())? {
            sent if sent == len => Ok(()),
            _ => Err(OsErrno::IO),
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<(), OsErrno> {
        match write(&self.into, bytes)? {
            put if put == bytes.len() => Ok(()),
            _ => Err(OsErrno::AGAIN),
        }
    }

    fn put_from(&self, file: &File, mut offset: u64, len: usize) -> Result<(), OsErrno> {
        let mut left = len;
        while left > 0 {
            // The call advances the offset.
            match splice(
                file,
                Some(&mut offset),
                &self.into,
                None,
                left,
                SpliceFlags::NONBLOCK,
            )? {
                // The file ends here, which it should not.
                0 => return Err(OsErrno::IO),
                put => left -= put,
            }
        }
        Ok(())
    }

    fn put_zeroes(&self, len: usize) -> Result<(), OsErrno> {
        static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
        let mut left = len;
        while left > 0 {
            let part = left.min(ZEROES.len());
            self.put(&ZEROES[..part])?;
            left -= part;
        }
        Ok(())
    }
}

/// Returns the offset within its page.
fn in_page(offset: u64) -> usize {
    // OK: less than a page.
    (offset % page_size() as u64) as usize
}

/// The path through a pipe to a device.
pub(super) struct Spliced<'p> {
    pipe: &'p mut Pipe,
    device: &'p OwnedFd,
}

impl Outlet for Spliced<'_> {
    fn send(&mut self, unique: u64, body: &[Lent<'_>]) -> bool {
        let Some(ends) = self.pipe.take() else {
            return false;
        };
        if !ends.has_room(body) {
            self.pipe.ends = Some(ends);
            return false;
        }
        let len: usize = body.iter().map(Lent::len_bytes).sum();
        let len = u32::try_from(size_of::<OutHeader>() + len).expect("no more than was asked for");
        let sent = ends.send(
            self.device,
            &OutHeader {
                len,
                error: 0,
                unique,
            },
            body,
        );
        match sent {
            Ok(()) => self.pipe.ends = Some(ends),
            // The image's file system does not support splice.
            Err(OsErrno::INVAL) => self.pipe.is_refused = true,
            Err(_) => {}
        }
        sent.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;
    use crate::init::MAX_READ_BYTES;

    const UNIQUE: u64 = 0x1234_5678;

    /// A file that has a name for a moment only.
    fn scratch(contents: &[u8]) -> File {
        let name = format!(
            "extern4-fuse-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let path = std::env::temp_dir().join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let mut file = file.expect("a file");
        std::fs::remove_file(&path).expect("its name");
        file.write_all(contents).expect("it is written");
        file
    }

    /// Sends an answer to a file, and returns the bytes that arrive there.
    fn sent(pipe: &mut Pipe, body: &[Lent<'_>]) -> Option<Vec<u8>> {
        let (out, device) = pipe_with(PipeFlags::empty()).expect("a pipe");
        fcntl_setpipe_size(&device, MAX_DATA_BYTES).expect("the largest size for any user");
        let taken = pipe.outlet(&device).send(UNIQUE, body);
        drop(device);
        let mut bytes = Vec::new();
        File::from(out).read_to_end(&mut bytes).expect("it is read");
        taken.then_some(bytes)
    }

    fn answer(body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(size_of::<OutHeader>() + body.len()).expect("a short one");
        [
            OutHeader {
                len,
                error: 0,
                unique: UNIQUE,
            }
            .as_bytes(),
            body,
        ]
        .concat()
    }

    #[test]
    fn pieces_come_whole_and_in_order() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let file = scratch(&bytes);
        let mut pipe = Pipe::default();
        let host = |offset, len| Lent::Host {
            file: &file,
            offset,
            len,
        };
        for (offset, len) in [
            (0, 4096),
            (4096, 131_072),
            (1, 1),
            (4095, 2),
            (77_777, 100_001),
        ] {
            let start = usize::try_from(offset).expect("a short file");
            let part = &bytes[start..start + len];
            assert_eq!(
                sent(&mut pipe, &[host(offset, len)]),
                Some(answer(part)),
                "{offset}, {len}"
            );
            let want = answer(&[part, &[0; 70_001], part].concat());
            let body = [host(offset, len), Lent::Zeroes(70_001), host(offset, len)];
            assert_eq!(sent(&mut pipe, &body), Some(want), "{offset}, {len}, twice");
        }
    }

    #[test]
    fn the_largest_answer_has_room() {
        let bytes: Vec<u8> = (0..=MAX_DATA_BYTES).map(|at| (at % 251) as u8).collect();
        let file = scratch(&bytes);
        let mut pipe = Pipe::default();
        let host = |offset, len| {
            [Lent::Host {
                file: &file,
                offset,
                len,
            }]
        };
        assert_eq!(
            sent(&mut pipe, &host(4096, MAX_READ_BYTES)),
            Some(answer(&bytes[4096..MAX_DATA_BYTES]))
        );
        assert_eq!(
            sent(&mut pipe, &host(1, MAX_READ_BYTES)),
            None,
            "it takes a page more"
        );
        assert_eq!(
            sent(&mut pipe, &[Lent::Zeroes(MAX_READ_BYTES)]),
            Some(answer(&vec![0; MAX_READ_BYTES]))
        );
    }

    #[test]
    fn half_written_data_is_in_no_answer() {
        let file = scratch(&[b'x'; 10_000]);
        let mut pipe = Pipe::default();
        for _ in 0..3 {
            // It ends earlier.
            let body = [Lent::Host {
                file: &file,
                offset: 0,
                len: 10_001,
            }];
            assert_eq!(sent(&mut pipe, &body), None);
            let body = [Lent::Host {
                file: &file,
                offset: 9_000,
                len: 1_000,
            }];
            assert_eq!(sent(&mut pipe, &body), Some(answer(&[b'x'; 1_000])));
        }
        // It takes no answer.
        let nowhere = OwnedFd::from(File::open("/dev/null").expect("a device"));
        assert!(!pipe.outlet(&nowhere).send(UNIQUE, &[Lent::Zeroes(100)]));
        assert_eq!(sent(&mut pipe, &[Lent::Zeroes(3)]), Some(answer(&[0; 3])));
    }

    #[test]
    fn where_nothing_can_be_spliced_it_is_not_tried_again() {
        let directory = File::open("/").expect("a directory");
        let mut pipe = Pipe::default();
        assert_eq!(
            sent(
                &mut pipe,
                &[Lent::Host {
                    file: &directory,
                    offset: 0,
                    len: 1
                }]
            ),
            None
        );
        assert!(pipe.ends.is_none());
        assert_eq!(sent(&mut pipe, &[Lent::Zeroes(3)]), None);
        assert!(pipe.ends.is_none());
    }

    #[test]
    fn an_answer_without_room_is_not_begun() {
        let file = scratch(&[b'x'; 4096]);
        let body = vec![
            Lent::Host {
                file: &file,
                offset: 1,
                len: 1
            };
            1000
        ];
        let mut pipe = Pipe::default();
        assert_eq!(sent(&mut pipe, &body), None);
        assert!(pipe.ends.is_some());
        assert_eq!(sent(&mut pipe, &body[..3]), Some(answer(b"xxx")));
    }
}
