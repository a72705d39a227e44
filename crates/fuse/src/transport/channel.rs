//! `/dev/fuse`: each request is one read, each answer one write.
//!
//! One thread a CPU, each with a channel of its own (`FUSE_DEV_IOC_CLONE`), so that answers do not meet at one lock in the kernel. What
//! waits for the device, such as `fsync`, goes to further threads, so that others' requests do not wait for it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno as OsErrno;
use zerocopy::IntoBytes as _;

use super::{SHORT_ANSWER_BYTES, Waiters, answer, waits};
use crate::abi::{InHeader, OutHeader, WriteIn};
use crate::init::MAX_DATA_BYTES;
use crate::request::Request;
use crate::server::Server;

/// Room for a request: that which writes most, and what may be appended to it.
const REQUEST_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>() + MAX_DATA_BYTES + 4096;
/// Room for an answer.
const ANSWER_BYTES: usize = HEADER_BYTES + MAX_DATA_BYTES + 4096;
const HEADER_BYTES: usize = size_of::<OutHeader>();

/// A way to the kernel, and room for what goes through it.
pub(super) struct Channel {
    device: Arc<OwnedFd>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Channel {
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device, request: vec![0; REQUEST_BYTES], answer: vec![0; ANSWER_BYTES] }
    }

    /// Answers requests until the mount is no more.
    pub(super) fn run(&mut self, server: &Arc<Server>, waiters: &Waiters) -> io::Result<()> {
        while self.step(server, Some(waiters))? {}
        Ok(())
    }

    /// Answers one request. False once the mount is no more.
    pub(super) fn step(&mut self, server: &Arc<Server>, waiters: Option<&Waiters>) -> io::Result<bool> {
        let len = match rustix::io::read(&*self.device, &mut self.request[..]) {
            Ok(len) => len,
            // One that was taken back before it was read.
            Err(OsErrno::INTR | OsErrno::AGAIN | OsErrno::NOENT) => return Ok(true),
            Err(OsErrno::NODEV | OsErrno::CONNABORTED) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Some(request) = Request::parse(&self.request[..len]) else { return Ok(true) };
        if let Some(waiters) = waiters
            && waits(request.header.opcode)
        {
            let (server, device) = (Arc::clone(server), Arc::clone(&self.device));
            let bytes = self.request[..len].to_vec();
            waiters.hand_over(Box::new(move || {
                let request = Request::parse(&bytes).expect("it was parsed before");
                respond(&server, &device, &request, &mut [0; SHORT_ANSWER_BYTES]);
            }));
            return Ok(true);
        }
        respond(server, &self.device, &request, &mut self.answer);
        Ok(true)
    }
}

/// Answers a request. Whether anybody takes the answer is not ours to know.
fn respond(server: &Server, device: &OwnedFd, request: &Request<'_>, space: &mut [u8]) {
    let Some((header, body)) = answer(server, request, &mut space[HEADER_BYTES..]) else { return };
    space[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    match rustix::io::write(device, &space[..HEADER_BYTES + body]) {
        // Nobody waits for it any more; or the mount has gone, which the next read tells.
        Ok(_) | Err(OsErrno::NOENT | OsErrno::NODEV | OsErrno::CONNABORTED | OsErrno::NOTCONN) => {}
        Err(error) => {
            server.log(&format!("an answer to opcode {} was not taken: {error}", request.header.opcode));
        }
    }
}
