//! [`Header`]: the header of a member, one block of fixed fields.
//!
//! `read` parses each header by it, and `TarSource::is_archive` recognizes archives. A header is
//! accepted if its checksum is right. The fields are decoded only when they are asked for, because
//! an extended header may replace a field that is wrong.

use super::BLOCK;

/// A header whose checksum is right.
pub(super) struct Header {
    pub(super) block: [u8; BLOCK],
    pub(super) form: Form,
}

/// The program or standard that defines a header's last fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Before POSIX: no fields after the link's target.
    Old,
    /// POSIX: a prefix of the name.
    Ustar,
    /// Like POSIX, with a shorter prefix.
    Star,
    /// GNU: no prefix.
    Gnu,
}

impl Header {
    /// Parses a header; `None` if its checksum is wrong.
    pub(super) fn parse(block: [u8; BLOCK]) -> Option<Self> {
        let stored = number(&block[148..156])?;
        let sum = |byte: fn(u8) -> i64| -> i64 {
            let spaces = 8 * i64::from(b' ');
            block[..148]
                .iter()
                .chain(&block[156..])
                .map(|value| byte(*value))
                .sum::<i64>()
                + spaces
        };
        // Some programs sum signed bytes.
        if stored != sum(i64::from) && stored != sum(|value| i64::from(value.cast_signed())) {
            return None;
        }
        let form = match &block[257..265] {
            b"ustar  \0" => Form::Gnu,
            magic if magic.starts_with(b"ustar\0") && &block[508..512] == b"tar\0" => Form::Star,
            magic if magic.starts_with(b"ustar") => Form::Ustar,
            _ => Form::Old,
        };
        Some(Self { block, form })
    }

    pub(super) fn kind(&self) -> u8 {
        self.block[156]
    }

    pub(super) fn name(&self) -> Vec<u8> {
        let prefix = match self.form {
            Form::Ustar => text(&self.block[345..500]),
            Form::Star => text(&self.block[345..476]),
            Form::Old | Form::Gnu => b"",
        };
        let name = text(&self.block[..100]);
        if prefix.is_empty() {
            name.to_vec()
        } else {
            [prefix, name].join(&b'/')
        }
    }

    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.block[157..257]).to_vec()
    }

    pub(super) fn mode(&self) -> Option<i64> {
        number(&self.block[100..108])
    }

    pub(super) fn uid(&self) -> Option<i64> {
        number(&self.block[108..116])
    }

    pub(super) fn gid(&self) -> Option<i64> {
        number(&self.block[116..124])
    }

    pub(super) fn size(&self) -> Option<i64> {
        number(&self.block[124..136])
    }

    pub(super) fn mtime(&self) -> Option<i64> {
        number(&self.block[136..148])
    }

    /// Returns the major and the minor number of a device, within Linux's limits.
    pub(super) fn device(&self) -> Option<(u32, u32)> {
        let part = |field, bits: u32| {
            let number = number(field).and_then(|number| u32::try_from(number).ok());
            number.filter(|number| *number < 1_u32 << bits)
        };
        Some((
            part(&self.block[329..337], 12)?,
            part(&self.block[337..345], 20)?,
        ))
    }
}

/// Returns the bytes before the first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Parses a number: octal digits, or two's complement in base 256 if the first bit is set.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // Bit 6 is the sign; the bits above a 64-bit number repeat it.
        let start = if first & 0x40 != 0 {
            i64::from(first | 0x80) - 256
        } else {
            i64::from(first & 0x7f)
        };
        return rest.iter().try_fold(start, |number, byte| {
            number.checked_mul(256)?.checked_add(i64::from(*byte))
        });
    }
    let text = text(field).trim_ascii();
    text.iter().try_fold(0_i64, |number, digit| match digit {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_octal_or_binary() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"777777777777", Some(0o777_777_777_777)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"\x80\0\0\0\0\0\0\0\0\x20\0\0", Some(1 << 21)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (
                b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff",
                Some(-257),
            ),
            (
                b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
                Some(i64::MAX),
            ),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff", None),
            (b"0000648\0", None),
            (b"-1\0\0\0\0\0\0", None),
        ] {
            assert_eq!(number(field), expected, "{field:x?}");
        }
    }
}
