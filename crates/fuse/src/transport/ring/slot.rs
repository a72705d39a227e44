//! A slot for one request and its answer, in memory that kernel and server use alternately.
//!
//! The thread of a queue (`ring`) owns its slots. The memory is reached through pointers, and the
//! kernel writes to it whenever it has the slot. So the code here does not look at it then
//! (`is_away`). A slot that is dropped while the kernel has it leaves its memory to the kernel for
//! good. So the kernel never writes to memory that the server uses for something else.

#![allow(unsafe_code)]

use std::io;
use std::mem::transmute;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};

use io_uring::squeue::Entry128;
use io_uring::{opcode, types};
use rustix::event::PollFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::Ring;
use crate::abi::{OutHeader, RingCommand, RingHeader};
use crate::request::Request;
use crate::server::Server;
use crate::transport::answer;

/// The most bytes of a request's payload that are copied before the answer. A longer payload is
/// data to be written, and has a short answer.
const COPIED_BYTES: usize = 8192;
const SHORT_ANSWER_BYTES: usize = 256;

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    base: *mut u8,
    len: usize,
}

/// A place for one request.
pub(super) struct Slot {
    header: NonNull<RingHeader>,
    payload: NonNull<[u8]>,
    /// The two parts of the memory, in the form that the kernel reads.
    vectors: Box<[IoVec; 2]>,
    copied: Vec<u8>,
    commit_id: u64,
    is_away: bool,
}

// SAFETY: the pointers are to the ring's memory, which only the kernel points to otherwise.
unsafe impl Send for Slot {}

impl Slot {
    /// Creates a slot for requests that carry `payload_bytes`.
    pub(super) fn new(payload_bytes: usize) -> io::Result<Self> {
        let payload = map_payload(payload_bytes)?;
        let header = Box::leak(Box::new(RingHeader::new_zeroed()));
        let vectors = Box::new([
            IoVec {
                base: std::ptr::from_mut(header).cast(),
                len: size_of::<RingHeader>(),
            },
            IoVec {
                base: payload.as_ptr().cast(),
                len: payload.len(),
            },
        ]);
        let header = NonNull::from(header);
        Ok(Self {
            header,
            payload,
            vectors,
            copied: Vec::new(),
            commit_id: 0,
            is_away: false,
        })
    }

    /// Returns how much a request may carry.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Returns both parts of the memory.
    fn memory(&mut self) -> (&mut RingHeader, &mut [u8]) {
        assert!(!self.is_away, "the kernel has this slot");
        // SAFETY: both were made in `new` and are freed in `drop`.
        // SAFETY: the kernel does not have them, and `self` is borrowed exclusively, so no other
        // code uses them.
        unsafe { (self.header.as_mut(), self.payload.as_mut()) }
    }

    /// Marks the slot as back from the kernel, with a request.
    pub(super) fn come_back(&mut self) {
        self.is_away = false;
        self.commit_id = self.memory().0.entry.commit_id;
    }

    /// Copies the payload of the request, unless it is data to be written.
    fn parts(&mut self) -> (RingHeader, Option<Vec<u8>>) {
        let mut copied = std::mem::take(&mut self.copied);
        let (header, payload) = self.memory();
        let len = usize::try_from(header.entry.payload_size)
            .unwrap_or(usize::MAX)
            .min(payload.len());
        if len > COPIED_BYTES {
            return (*header, None);
        }
        copied.clear();
        copied.extend_from_slice(&payload[..len]);
        (*header, Some(copied))
    }

    /// Returns the request, without names and data.
    pub(super) fn request(&mut self) -> Request<'_> {
        let (header, _) = self.memory();
        request(header, &[])
    }

    /// Returns a copy of the request, to be answered elsewhere. It has no data to be written.
    pub(super) fn copy(&mut self) -> (RingHeader, Vec<u8>) {
        let (header, copied) = self.parts();
        (header, copied.unwrap_or_default())
    }

    /// Answers the request in its place.
    pub(super) fn answer(&mut self, server: &Server) {
        let (parts, copied) = self.parts();
        let len = usize::try_from(parts.entry.payload_size).unwrap_or(usize::MAX);
        let (_, payload) = self.memory();
        let Some(copied) = copied else {
            let mut short = [0; SHORT_ANSWER_BYTES];
            let data = &payload[..len.min(payload.len())];
            let (header, body) = answer_parts(server, &parts, data, &mut short);
            return self.set_answer(header, &short[..body]);
        };
        let (header, body) = answer_parts(server, &parts, &copied, payload);
        self.copied = copied;
        self.set_header(header, body);
    }

    /// Puts an answer into its place.
    pub(super) fn set_answer(&mut self, header: OutHeader, body: &[u8]) {
        self.memory().1[..body.len()].copy_from_slice(body);
        self.set_header(header, body.len());
    }

    fn set_header(&mut self, header: OutHeader, body: usize) {
        let (place, _) = self.memory();
        place.header[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        place.entry.payload_size = u32::try_from(body).expect("no longer than there is room");
    }

    /// Gives the slot to the kernel, as an entry of queue `queue`: with `command`, in a submission
    /// that is called `name`.
    pub(super) fn hand_over(
        &mut self,
        ring: &mut Ring,
        device: RawFd,
        queue: u16,
        command: u32,
        name: u64,
    ) -> io::Result<()> {
        let mut sqe = Submission {
            // IORING_OP_URING_CMD
            opcode: 46,
            flags: 0,
            ioprio: 0,
            fd: device,
            command,
            padding: 0,
            address: self.vectors.as_ptr() as u64,
            len: 2,
            command_flags: 0,
            name,
            rest: 0,
            arguments: [0; 80],
        };
        let arguments = RingCommand {
            commit_id: self.commit_id,
            queue,
            ..RingCommand::default()
        };
        sqe.arguments[..size_of::<RingCommand>()].copy_from_slice(arguments.as_bytes());
        // SAFETY: both are 128 bytes without padding, and the crate's is the kernel's structure,
        // whose every byte may be anything.
        let sqe = unsafe { transmute::<Submission, Entry128>(sqe) };
        self.is_away = true;
        // SAFETY: the memory that the vectors name stays until the slot has come back, for `drop`
        // leaves it if that has not.
        // SAFETY: the kernel reads the vectors themselves at submission, and they stand in a box of
        // the slot.
        unsafe { push(ring, &sqe) }
    }
}

/// Maps memory for payloads. It begins at a page boundary. The kernel copies a page at a time, and
/// would otherwise have to find two of the server's pages for each.
fn map_payload(bytes: usize) -> io::Result<NonNull<[u8]>> {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses where nothing is.
    let memory = unsafe { mmap_anonymous(null_mut(), bytes, rights, MapFlags::PRIVATE) }?;
    let memory = NonNull::new(memory.cast()).expect("nothing is mapped there");
    Ok(NonNull::slice_from_raw_parts(memory, bytes))
}

/// Requests a completion, called `name`, for when `file` is ready.
pub(super) fn push_poll(
    ring: &mut Ring,
    file: RawFd,
    ready: PollFlags,
    name: u64,
) -> io::Result<()> {
    let poll = opcode::PollAdd::new(types::Fd(file), u32::from(ready.bits())).build();
    // SAFETY: it names no memory.
    unsafe { push(ring, &poll.user_data(name).into()) }
}

/// Enters a submission.
///
/// # Safety
/// Memory that the submission names has to stay until its completion.
unsafe fn push(ring: &mut Ring, entry: &Entry128) -> io::Result<()> {
    loop {
        // SAFETY: as the caller has promised.
        if unsafe { ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        ring.submit()?;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.is_away {
            // SAFETY: it came from a box in `new`, and nothing else has it any more.
            drop(unsafe { Box::from_raw(self.header.as_ptr()) });
            // SAFETY: it was mapped in `new`, and nothing else has it any more.
            let _ = unsafe { munmap(self.payload.as_ptr().cast(), self.payload.len()) };
        }
    }
}

/// Answers a request that was copied out of a slot.
pub(super) fn answer_parts(
    server: &Server,
    parts: &RingHeader,
    payload: &[u8],
    space: &mut [u8],
) -> (OutHeader, usize) {
    let request = request(parts, payload);
    // No request without an answer comes this way; if one did, an empty answer would free its slot.
    answer(server, &request, space, None).unwrap_or((
        OutHeader {
            unique: request.header.unique,
            ..OutHeader::default()
        },
        0,
    ))
}

fn request<'a>(parts: &'a RingHeader, payload: &'a [u8]) -> Request<'a> {
    Request::of_parts(&parts.header, &parts.argument, payload).expect("room for a header")
}

/// `struct io_uring_sqe` of 128 bytes, for a command of the file that it is about.
#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    command: u32,
    padding: u32,
    address: u64,
    len: u32,
    command_flags: u32,
    name: u64,
    rest: u64,
    arguments: [u8; 80],
}
const _: () = assert!(size_of::<Submission>() == 128);
