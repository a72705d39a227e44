//! The unit in which space is shown: `-B 1M`, `-BM`, `-h`, `--si`.
//!
//! `df`, `du` and `ls` show space with it. Sizes are rounded up, as GNU's tools do.

use super::human::human_decimal;
use super::size::size;
use super::{human, units};

/// How a number of bytes is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockSize {
    /// In a unit, and what stands behind numbers in it.
    Unit { bytes: u64, suffix: String },
    /// With the binary unit that fits.
    Human,
    /// With the decimal unit that fits.
    Decimal,
}

impl BlockSize {
    /// The unit of this many bytes.
    pub(crate) fn of(bytes: u64) -> Self {
        Self::Unit {
            bytes,
            suffix: String::new(),
        }
    }

    /// Reads a number of bytes with a unit. A unit alone is shown behind numbers.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "human-readable" => return Ok(Self::Human),
            "si" => return Ok(Self::Decimal),
            _ => {}
        }
        let is_unit = !text.starts_with(|c: char| c.is_ascii_digit());
        let bytes = if is_unit {
            size(&format!("1{text}"))
        } else {
            size(text)
        };
        let bytes = bytes.filter(|bytes| *bytes > 0 && !text.is_empty());
        let suffix = if is_unit {
            text.to_owned()
        } else {
            String::new()
        };
        bytes
            .map(|bytes| Self::Unit { bytes, suffix })
            .ok_or_else(|| "write it as 1024, 1M or M".to_owned())
    }

    /// Returns a number of bytes in this unit, rounded up.
    pub(crate) fn show(&self, number: u64) -> String {
        match self {
            Self::Unit { bytes, suffix } => format!("{}{suffix}", units(number, *bytes)),
            Self::Human => human(number),
            Self::Decimal => human_decimal(number),
        }
    }

    /// Returns the bytes of the unit, if all numbers have the same.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Unit { bytes, .. } => Some(*bytes),
            Self::Human | Self::Decimal => None,
        }
    }

    /// Returns the name of the unit at the head of a column: `1K`, `512B`; none where numbers have
    /// other units.
    pub(crate) fn name(&self) -> Option<String> {
        let bytes = self.bytes()?;
        for (power, unit) in [(6, "E"), (5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K")] {
            for (base, mark) in [(1024_u64, ""), (1000, "B")] {
                let factor = base.pow(power);
                if bytes.is_multiple_of(factor) {
                    let unit = if base == 1000 {
                        unit.replace('K', "k")
                    } else {
                        unit.to_owned()
                    };
                    return Some(format!("{}{unit}{mark}", bytes / factor));
                }
            }
        }
        Some(format!("{bytes}B"))
    }
}

#[cfg(test)]
mod tests {
    use super::BlockSize;

    #[test]
    fn units_are_shown_as_gnu_does() {
        let check = |text: &str, bytes, shown: &str, name: &str| {
            let unit = BlockSize::parse(text).expect(text);
            assert_eq!(
                (&*unit.show(bytes), unit.name().as_deref()),
                (shown, Some(name)),
                "{text}"
            );
        };
        check("1M", 5 << 20, "5", "1M");
        check("M", (5 << 20) + 1, "6M", "1M");
        check("512", 1024, "2", "512B");
        check("kB", 1500, "2kB", "1kB");
        check("2K", 4096, "2", "2K");
        for text in ["", "0", "x", "-1"] {
            assert!(BlockSize::parse(text).is_err(), "{text}");
        }
    }
}
