//! [`Glob`]: shell patterns for names, as `fnmatch` without flags matches them.
//!
//! `*` and `?` also match a slash and a leading dot. [`Filter`](crate::Filter) and the commands
//! that take patterns (`find`, `ls`, `du`, `grep`, patterns in image paths) use it. Any bytes are a
//! valid pattern, and names need not be UTF-8. A match takes time proportional to the product of
//! both lengths at most.

/// A pattern, split into pieces that match one after the other.
#[derive(Clone, Debug)]
pub struct Glob {
    pieces: Vec<Piece>,
    fold: bool,
    /// The pattern, if it has no special characters and can be compared as a whole.
    literal: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Piece {
    Char(char),
    /// A byte that is not part of a character.
    Byte(u8),
    Any,
    Star,
    Set {
        negated: bool,
        members: Vec<Member>,
    },
}

#[derive(Clone, Debug)]
enum Member {
    Range(char, char),
    Class(fn(char) -> bool),
}

/// One unit of a name: a character, or a byte that is not part of one.
#[derive(Clone, Copy)]
enum Unit {
    Char(char),
    Byte(u8),
}

impl Glob {
    /// Parses a pattern. With `fold` it ignores case.
    pub fn new(pattern: &[u8], fold: bool) -> Self {
        let mut pieces = Vec::new();
        let mut rest = pattern;
        while let Some((unit, after)) = next(rest) {
            rest = after;
            pieces.push(match unit {
                Unit::Char('*') => {
                    if matches!(pieces.last(), Some(Piece::Star)) {
                        continue;
                    }
                    Piece::Star
                }
                Unit::Char('?') => Piece::Any,
                Unit::Char('[') => match set(rest, fold) {
                    Some((set, after)) => {
                        rest = after;
                        set
                    }
                    None => Piece::Char('['),
                },
                Unit::Char('\\') => match next(rest) {
                    Some((unit, after)) => {
                        rest = after;
                        piece(unit, fold)
                    }
                    None => Piece::Char('\\'),
                },
                unit => piece(unit, fold),
            });
        }
        let special = pattern
            .iter()
            .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
        let literal = (!special && !fold).then(|| pattern.to_vec());
        Self {
            pieces,
            fold,
            literal,
        }
    }

    /// Whether the pattern matches all of `name`.
    ///
    /// The match backtracks to the last star only: everything before it has matched as early as
    /// possible, which leaves the most for the rest. So the time is at most proportional to the
    /// product of both lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        if let Some(literal) = &self.literal {
            return literal == name;
        }
        let mut rest = name;
        let mut at = 0;
        let mut retry: Option<(&[u8], usize)> = None;
        loop {
            let matched = match (self.pieces.get(at), next(rest)) {
                (Some(Piece::Star), _) => {
                    retry = Some((rest, at + 1));
                    at += 1;
                    continue;
                }
                (Some(piece), Some((unit, after))) if piece.matches(unit, self.fold) => Some(after),
                (None, None) => return true,
                _ => None,
            };
            if let Some(after) = matched {
                (rest, at) = (after, at + 1);
                continue;
            }
            let Some((from, star)) = retry else {
                return false;
            };
            let Some((_, after)) = next(from) else {
                return false;
            };
            retry = Some((after, star));
            (rest, at) = (after, star);
        }
    }
}

impl Piece {
    fn matches(&self, unit: Unit, fold: bool) -> bool {
        match (self, unit) {
            (Self::Any, _) => true,
            (Self::Byte(wanted), Unit::Byte(byte)) => *wanted == byte,
            (Self::Char(wanted), Unit::Char(c)) => *wanted == lower(c, fold),
            (Self::Set { negated, members }, Unit::Char(c)) => {
                let c = lower(c, fold);
                members.iter().any(|member| member.has(c)) != *negated
            }
            (Self::Set { negated, .. }, Unit::Byte(_)) => *negated,
            _ => false,
        }
    }
}

impl Member {
    fn has(&self, c: char) -> bool {
        match self {
            Self::Range(first, last) => (*first..=*last).contains(&c),
            Self::Class(class) => class(c),
        }
    }
}

fn piece(unit: Unit, fold: bool) -> Piece {
    match unit {
        Unit::Char(c) => Piece::Char(lower(c, fold)),
        Unit::Byte(byte) => Piece::Byte(byte),
    }
}

/// Returns the lower case of a character if that is one character, too.
fn lower(c: char, fold: bool) -> char {
    let mut lower = c.to_lowercase();
    match (fold, lower.next(), lower.next()) {
        (true, Some(lower), None) => lower,
        _ => c,
    }
}

/// Returns the first unit of `bytes` and the rest.
fn next(bytes: &[u8]) -> Option<(Unit, &[u8])> {
    let first = *bytes.first()?;
    if first.is_ascii() {
        return Some((Unit::Char(char::from(first)), &bytes[1..]));
    }
    let longest = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(longest) {
        Ok(text) => text.chars().next(),
        Err(error) => longest[..error.valid_up_to()]
            .utf8_chunks()
            .next()
            .and_then(|chunk| chunk.valid().chars().next()),
    };
    Some(match valid {
        Some(c) => (Unit::Char(c), &bytes[c.len_utf8()..]),
        None => (Unit::Byte(first), &bytes[1..]),
    })
}

/// Parses a set after its `[`; `None` if it has no end, so that the bracket is literal.
fn set(pattern: &[u8], fold: bool) -> Option<(Piece, &[u8])> {
    let (negated, mut rest) = match pattern {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut members = Vec::new();
    loop {
        if let Some((class, after)) = class(rest) {
            members.push(class);
            rest = after;
            continue;
        }
        let (first, after) = member(rest)?;
        if rest[0] == b']' && !members.is_empty() {
            return Some((Piece::Set { negated, members }, &rest[1..]));
        }
        rest = after;
        let mut last = first;
        if let [b'-', end @ ..] = rest
            && end.first().is_some_and(|byte| *byte != b']')
        {
            (last, rest) = member(end)?;
        }
        members.push(Member::Range(lower(first, fold), lower(last, fold)));
    }
}

fn member(pattern: &[u8]) -> Option<(char, &[u8])> {
    let (unit, rest) = next(pattern)?;
    let (unit, rest) = match unit {
        Unit::Char('\\') => next(rest)?,
        unit => (unit, rest),
    };
    match unit {
        Unit::Char(c) => Some((c, rest)),
        Unit::Byte(_) => None,
    }
}

/// Parses `[:class:]`.
fn class(pattern: &[u8]) -> Option<(Member, &[u8])> {
    let inner = pattern.strip_prefix(b"[:")?;
    let end = inner.windows(2).position(|pair| pair == b":]")?;
    let class: fn(char) -> bool = match &inner[..end] {
        b"alnum" => char::is_alphanumeric,
        b"alpha" => char::is_alphabetic,
        b"blank" => |c| matches!(c, ' ' | '\t'),
        b"cntrl" => char::is_control,
        b"digit" => |c| c.is_ascii_digit(),
        b"graph" => |c| !c.is_control() && !c.is_whitespace(),
        b"lower" => char::is_lowercase,
        b"print" => |c| !c.is_control(),
        b"punct" => |c| !c.is_control() && !c.is_whitespace() && !c.is_alphanumeric(),
        b"space" => char::is_whitespace,
        b"upper" => char::is_uppercase,
        b"xdigit" => |c| c.is_ascii_hexdigit(),
        _ => return None,
    };
    Some((Member::Class(class), &inner[end + 2..]))
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn patterns_match_as_fnmatch_does() {
        let check = |pattern: &str, name: &[u8], matches: bool| {
            assert_eq!(
                Glob::new(pattern.as_bytes(), false).matches(name),
                matches,
                "{pattern} {name:?}"
            );
        };
        check("abc", b"abc", true);
        check("abc", b"abcd", false);
        check("*", b"", true);
        check("*", b".hidden", true);
        check("*.c", b"main.c", true);
        check("*.c", b"main.cc", false);
        check("a*b*c", b"aXbXbXc", true);
        check("a*b*c", b"aXbXbX", false);
        check("/usr/*/x", b"/usr/a/b/x", true);
        check("?", "ü".as_bytes(), true);
        check("?", b"\xff", true);
        check("??", b"\xff", false);
        check("[a-c]x", b"bx", true);
        check("[!a-c]x", b"bx", false);
        check("[^a-c]x", b"dx", true);
        check("[]x]", b"]", true);
        check("[a-]", b"-", true);
        check("[[:digit:]x]*", b"7up", true);
        check("[[:upper:]]", b"a", false);
        check("[abc", b"[abc", true);
        check("\\*", b"*", true);
        check("\\*", b"a", false);
        check("a\\", b"a\\", true);
        check("[ä-ö]", "ö".as_bytes(), true);
        check("", b"", true);
        check("", b"a", false);
    }

    #[test]
    fn case_is_folded_on_demand() {
        assert!(Glob::new(b"README*", true).matches(b"readme.md"));
        assert!(Glob::new("Ä".as_bytes(), true).matches("ä".as_bytes()));
        assert!(!Glob::new(b"README", false).matches(b"readme"));
        assert!(Glob::new(b"[A-C]", true).matches(b"b"));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(100) + "b";
        assert!(!Glob::new(pattern.as_bytes(), false).matches(&[b'a'; 255]));
    }
}
