//! The CPU on which the thread of a queue runs.
//!
//! A caller that waits is answered soonest on its own CPU. The reader of a long file does not wait,
//! for the kernel reads ahead. If another CPU copies the next part meanwhile, the reader has its
//! own CPU for itself.
//!
//! The thread of a queue asks it after each request. A wrong choice costs time only.

use rustix::fs::OFlags;

use crate::abi::{Opcode, ReadIn};
use crate::request::Request;

/// Only read-ahead, or a caller that bypasses the kernel's cache, asks for this much at once.
const AHEAD_BYTES: u32 = 128 << 10;
/// The number of requests in a row that must want the other choice before the thread moves. A move
/// takes as long as some short answers.
const AGREE: u32 = 2;

/// The CPUs on which the thread may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cpu {
    /// The CPU of the queue.
    #[default]
    Own,
    Any,
}

/// The CPU on which the thread runs now, and the number of last requests that want the other
/// choice.
#[derive(Default)]
pub(super) struct Placement {
    now: Cpu,
    contrary: u32,
}

impl Placement {
    /// Returns the CPU on which to run after this request, if that is to change.
    pub(super) fn after(&mut self, request: Request<'_>) -> Option<Cpu> {
        self.change(if asks_ahead(request) {
            Cpu::Any
        } else {
            Cpu::Own
        })
    }

    fn change(&mut self, best: Cpu) -> Option<Cpu> {
        self.contrary = if best == self.now {
            0
        } else {
            self.contrary + 1
        };
        if self.contrary < AGREE {
            return None;
        }
        *self = Self {
            now: best,
            contrary: 0,
        };
        Some(best)
    }
}

/// Returns whether no caller waits for the request, as far as the server can see.
fn asks_ahead(request: Request<'_>) -> bool {
    request.header.opcode == Opcode::Read as u32
        && request.arg().is_ok_and(|read: ReadIn| {
            read.size >= AHEAD_BYTES && read.flags & OFlags::DIRECT.bits() == 0
        })
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;
    use crate::abi::InHeader;

    #[test]
    fn it_changes_when_several_requests_agree() {
        let mut placement = Placement::default();
        let mut after = |best| placement.change(best);
        for _ in 0..3 {
            assert_eq!(after(Cpu::Own), None);
            assert_eq!(after(Cpu::Any), None);
        }
        assert_eq!(after(Cpu::Any), Some(Cpu::Any));
        for _ in 0..3 {
            assert_eq!(after(Cpu::Any), None);
            assert_eq!(after(Cpu::Own), None);
        }
        assert_eq!(after(Cpu::Own), Some(Cpu::Own));
        assert_eq!(after(Cpu::Own), None);
    }

    #[test]
    fn long_reads_through_the_cache_are_asked_for_ahead() {
        let asks = |opcode: Opcode, size, flags| {
            let header = InHeader {
                opcode: opcode as u32,
                ..InHeader::default()
            };
            let read = ReadIn {
                size,
                flags,
                ..ReadIn::default()
            };
            asks_ahead(
                Request::of_parts(header.as_bytes(), read.as_bytes(), &[]).expect("a request"),
            )
        };
        assert!(asks(Opcode::Read, AHEAD_BYTES, 0));
        assert!(!asks(Opcode::Read, AHEAD_BYTES - 1, 0));
        assert!(!asks(Opcode::Read, AHEAD_BYTES, OFlags::DIRECT.bits()));
        assert!(!asks(Opcode::Readdir, AHEAD_BYTES, 0));
    }
}
