//! Requests: parsing of the bytes from the kernel.
//!
//! A request may come from a kernel with a fault, or from a fuzzer. So the parser checks every
//! length, and refuses a request that does not fit with `EINVAL`.
//!
//! The transports parse each request here, and the handlers split the arguments off.

use extern4_vfs::{Errno, Result};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::InHeader;
use crate::caller::Caller;

/// A parsed request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    /// The header: request type, caller and node.
    pub(crate) header: InHeader,
    /// The caller, as far as the header names it.
    pub(crate) caller: Caller,
    args: &'a [u8],
    /// The bytes behind the first argument, where the transport delivers them separately.
    payload: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// Parses a request. `None` for bytes that are no request: then the kernel does not wait for a
    /// reply.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, args) = InHeader::read_from_prefix(bytes).ok()?;
        let whole = usize::try_from(header.len).is_ok_and(|len| len == bytes.len());
        whole.then_some(Self {
            caller: Caller::of(&header),
            header,
            args,
            payload: None,
        })
    }

    /// Builds a request from its parts. Where it has no first argument, all is in the payload.
    pub(crate) fn of_parts(header: &[u8], args: &'a [u8], payload: &'a [u8]) -> Option<Self> {
        let (header, _) = InHeader::read_from_prefix(header).ok()?;
        Some(Self {
            caller: Caller::of(&header),
            header,
            args,
            payload: Some(payload),
        })
    }

    /// Returns this request with `caller`, about which the server knows more, in place of the
    /// request's caller.
    pub(crate) fn by(&self, caller: Caller) -> Self {
        Self { caller, ..*self }
    }

    /// Returns the first argument, and the bytes behind it.
    pub(crate) fn split<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<(T, &'a [u8])> {
        let (first, rest) = T::read_from_prefix(self.args).map_err(|_| Errno::EINVAL)?;
        Ok((first, self.payload.unwrap_or(rest)))
    }

    /// Returns the only argument.
    pub(crate) fn arg<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T> {
        self.split().map(|(arg, _)| arg)
    }

    /// Returns the arguments as they came, for a request that has only text.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.payload.unwrap_or(self.args)
    }
}

/// Splits text off that ends with a zero byte.
pub(crate) fn text(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(Errno::EINVAL)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// Splits the name of a directory entry off. An empty name, or one with a slash in it, would be a
/// path, and is refused. The handlers of requests decide about `.` and `..`. The file system
/// refuses a name that is too long.
pub(crate) fn name(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let (name, rest) = text(bytes)?;
    if name.is_empty() || name.contains(&b'/') {
        return Err(Errno::EINVAL.into());
    }
    Ok((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MkdirIn, Opcode};
    use zerocopy::IntoBytes as _;

    fn request(args: &[u8]) -> Vec<u8> {
        let len = u32::try_from(size_of::<InHeader>() + args.len()).unwrap();
        let header = InHeader {
            len,
            opcode: Opcode::Mkdir as u32,
            ..InHeader::default()
        };
        [header.as_bytes(), args].concat()
    }

    #[test]
    fn short_requests_are_refused_wherever_they_end() {
        let whole = request(
            &[
                MkdirIn {
                    mode: 0o755,
                    umask: 0o22,
                }
                .as_bytes(),
                b"name\0",
            ]
            .concat(),
        );
        for len in 0..whole.len() {
            assert!(
                Request::parse(&whole[..len]).is_none(),
                "{len}: the header tells the length"
            );
        }
        for len in 0..8 {
            let bytes = request(&whole[40..40 + len]);
            assert!(
                Request::parse(&bytes).unwrap().split::<MkdirIn>().is_err(),
                "{len}"
            );
        }
        let (mkdir, rest) = Request::parse(&whole).unwrap().split::<MkdirIn>().unwrap();
        assert_eq!(
            (mkdir.mode, mkdir.umask, name(rest).unwrap()),
            (0o755, 0o22, (&b"name"[..], &b""[..]))
        );
    }

    #[test]
    fn names_are_names() {
        for bad in [&b""[..], b"\0", b"a/b\0", b"/\0", b"no end"] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(name(b"a\0b\0").unwrap(), (&b"a"[..], &b"b\0"[..]));
        assert_eq!(text(b"\0").unwrap(), (&b""[..], &b""[..]));
    }
}
