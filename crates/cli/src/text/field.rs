//! Fields of formats, as printf(3) has them: `%-10.3s`.
//!
//! `stat -c` and `find -printf` parse and fill fields with it.

/// The characters of a format that are still to be read.
pub(crate) type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// The limit for the width of a field.
const MAX_WIDTH: usize = 4096;

/// The flags, the width and the precision of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Field {
    left: bool,
    zero: bool,
    width: usize,
    /// The digits behind the point; `Some(None)` for a point alone.
    pub(crate) precision: Option<Option<usize>>,
}

impl Field {
    /// Reads what stands between a `%` and its letter.
    pub(crate) fn parse(rest: &mut Chars<'_>) -> Self {
        let mut field = Self::default();
        while let Some(flag) = rest.next_if(|c| "-0+ #'I".contains(*c)) {
            field.left |= flag == '-';
            field.zero |= flag == '0';
        }
        field.width = number(rest).unwrap_or(0);
        if rest.next_if_eq(&'.').is_some() {
            field.precision = Some(number(rest));
        }
        field
    }

    /// Appends a text, cut to the precision and padded to the width.
    pub(crate) fn push_text(&self, text: &[u8], out: &mut Vec<u8>) {
        let most = self.precision.map_or(usize::MAX, Option::unwrap_or_default);
        self.push(&text[..text.len().min(most)], false, out);
    }

    /// Appends a number, padded to the width.
    pub(crate) fn push_number(&self, number: &str, out: &mut Vec<u8>) {
        self.push(number.as_bytes(), self.zero && !self.left, out);
    }

    fn push(&self, value: &[u8], zeros: bool, out: &mut Vec<u8>) {
        let padding = self.width.saturating_sub(value.len());
        if self.left {
            out.extend_from_slice(value);
        }
        out.resize(out.len() + padding, if zeros { b'0' } else { b' ' });
        if !self.left {
            out.extend_from_slice(value);
        }
    }
}

fn number(rest: &mut Chars<'_>) -> Option<usize> {
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    digits
        .parse()
        .ok()
        .map(|number: usize| number.min(MAX_WIDTH))
}

/// Reads an escape behind its backslash; `None` for `\c`, which ends the output.
pub(crate) fn escape_sequence(rest: &mut Chars<'_>) -> Option<Vec<u8>> {
    Some(match rest.next() {
        None => b"\\".to_vec(),
        Some('a') => vec![7],
        Some('b') => vec![8],
        Some('c') => return None,
        Some('e') => vec![27],
        Some('f') => vec![12],
        Some('n') => b"\n".to_vec(),
        Some('r') => b"\r".to_vec(),
        Some('t') => b"\t".to_vec(),
        Some('v') => vec![11],
        Some(c @ ('\\' | '"')) => c.to_string().into_bytes(),
        Some('x') => vec![digits(rest, 0, 2, 16)],
        Some(digit @ '0'..='7') => vec![digits(rest, digit.to_digit(8).unwrap_or(0), 2, 8)],
        Some(other) => format!("\\{other}").into_bytes(),
    })
}

/// Reads up to `most` further digits of a byte.
fn digits(rest: &mut Chars<'_>, start: u32, most: usize, radix: u32) -> u8 {
    let mut value = start;
    for _ in 0..most {
        let Some(digit) = rest.next_if(|c| c.is_digit(radix)) else {
            break;
        };
        value = value * radix + digit.to_digit(radix).unwrap_or(0);
    }
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::{Field, escape_sequence};

    #[test]
    fn fields_are_padded_and_cut() {
        let check = |text: &str, value: &str, as_text: &str, as_number: &str| {
            let field = Field::parse(&mut text.chars().peekable());
            let mut one = Vec::new();
            let mut other = Vec::new();
            field.push_text(value.as_bytes(), &mut one);
            field.push_number(value, &mut other);
            assert_eq!((one, other), (as_text.into(), as_number.into()), "{text}");
        };
        check("", "12", "12", "12");
        check("5", "12", "   12", "   12");
        check("-5", "12", "12   ", "12   ");
        check("05", "12", "   12", "00012");
        check(".1", "12", "1", "12");
    }

    #[test]
    fn escapes_are_read() {
        for (text, bytes) in [
            ("n", &b"\n"[..]),
            ("101x", b"A"),
            ("x41", b"A"),
            ("q", b"\\q"),
            ("", b"\\"),
        ] {
            assert_eq!(
                escape_sequence(&mut text.chars().peekable()).as_deref(),
                Some(bytes),
                "{text}"
            );
        }
        assert_eq!(escape_sequence(&mut "c".chars().peekable()), None);
    }
}
