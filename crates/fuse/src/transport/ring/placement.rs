//! Where the thread of a queue runs.
//!
//! Who asks and waits is answered soonest on the CPU on which he waits. Who reads a long file does not wait, for the kernel asks ahead: if
//! what he is to read next is copied on another CPU meanwhile, he has his own one for himself.

use rustix::fs::OFlags;

use crate::abi::{Opcode, ReadIn};
use crate::request::Request;

/// So much is asked for at once only ahead, or by who goes past the kernel's cache.
const AHEAD_BYTES: u32 = 128 << 10;
/// After so many requests of the other kind it changes: to change takes as long as some short answers.
const AGREE: u32 = 2;

/// On which CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cpu {
    /// That of the queue.
    #[default]
    Own,
    Any,
}

/// Where it runs, and what speaks against that.
#[derive(Default)]
pub(super) struct Placement {
    now: Cpu,
    contrary: u32,
}

impl Placement {
    /// Where to run after this request, if that is to change.
    pub(super) fn after(&mut self, request: Request<'_>) -> Option<Cpu> {
        self.change(if asks_ahead(request) { Cpu::Any } else { Cpu::Own })
    }

    fn change(&mut self, best: Cpu) -> Option<Cpu> {
        self.contrary = if best == self.now { 0 } else { self.contrary + 1 };
        if self.contrary < AGREE {
            return None;
        }
        *self = Self { now: best, contrary: 0 };
        Some(best)
    }
}

/// Whether nobody waits for it, as far as can be seen.
fn asks_ahead(request: Request<'_>) -> bool {
    request.header.opcode == Opcode::Read as u32
        && request
            .arg()
            .is_ok_and(|read: ReadIn| read.size >= AHEAD_BYTES && read.flags & OFlags::DIRECT.bits() == 0)
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
            let header = InHeader { opcode: opcode as u32, ..InHeader::default() };
            let read = ReadIn { size, flags, ..ReadIn::default() };
            asks_ahead(Request::of_parts(header.as_bytes(), read.as_bytes(), &[]).expect("a request"))
        };
        assert!(asks(Opcode::Read, AHEAD_BYTES, 0));
        assert!(!asks(Opcode::Read, AHEAD_BYTES - 1, 0));
        assert!(!asks(Opcode::Read, AHEAD_BYTES, OFlags::DIRECT.bits()));
        assert!(!asks(Opcode::Readdir, AHEAD_BYTES, 0));
    }
}
