//! `-perm`: exactly these bits, all of them, or any of them.
//!
//! `parse` reads it, and `eval` asks it. It matches as GNU `find` does.

use crate::mode_change::ModeChange;

/// A test of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Perm {
    Exactly(u32),
    All(u32),
    Any(u32),
}

impl Perm {
    /// Reads `MODE`, `-MODE` or `/MODE`, with an octal or a symbolic mode.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text.as_bytes().first()? {
            b'-' => Self::All(mode(&text[1..])?),
            b'/' => Self::Any(mode(&text[1..])?),
            _ => Self::Exactly(mode(text)?),
        })
    }

    /// Returns whether the permission bits of `mode` match. As in GNU `find`, any bit of none is
    /// true.
    pub(super) fn matches(self, mode: u32) -> bool {
        let bits = mode & 0o7777;
        match self {
            Self::Exactly(wanted) => bits == wanted,
            Self::All(wanted) => bits & wanted == wanted,
            Self::Any(wanted) => wanted == 0 || bits & wanted != 0,
        }
    }
}

/// Reads an octal mode, or symbolic clauses such as `u+rw,go=r` that start with no bit set. `+600`
/// once meant any of the bits, so it means nothing now.
fn mode(text: &str) -> Option<u32> {
    if text
        .strip_prefix('+')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        return None;
    }
    Some(ModeChange::parse(text)?.apply(0, false, 0))
}

#[cfg(test)]
mod tests {
    use super::{Perm, mode};

    #[test]
    fn modes_are_read() {
        let check = |text: &str, expected| assert_eq!(mode(text), expected, "{text}");
        check("644", Some(0o644));
        check("4755", Some(0o4755));
        check("u=rw,g=r,o=r", Some(0o644));
        check("u+rwx,go+rx", Some(0o755));
        check("a+r", Some(0o444));
        check("+x", Some(0o111));
        check("u+s", Some(0o4000));
        check("g=s", Some(0o2000));
        check("+t", Some(0o1000));
        check("u=rw,g=u", Some(0o660));
        check("u=rwx-w", Some(0o500));
        check("888", None);
        check("+600", None);
        check("77777", None);
        check("u", None);
        check("q+r", None);
        check("u+q", None);
    }

    #[test]
    fn bits_are_compared() {
        let check = |text: &str, mode, expected| {
            assert_eq!(
                Perm::parse(text).map(|perm| perm.matches(mode)),
                Some(expected),
                "{text} {mode:o}"
            );
        };
        check("644", 0o100644, true);
        check("644", 0o100645, false);
        check("-644", 0o100755, true);
        check("-2000", 0o100755, false);
        check("/222", 0o100444, false);
        check("/022", 0o100464, true);
        check("/000", 0o100000, true);
        check("-000", 0o100000, true);
        check("-u+w,g+w", 0o100664, true);
    }
}
