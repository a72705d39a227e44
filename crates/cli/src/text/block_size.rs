//! The unit in which space is shown: `-B 1M`, `-BM`.
//!
//! `df` and `du` show space with it. Sizes are rounded up, as GNU's tools do.

use super::size::size;
use super::units;

/// A unit, and what stands behind numbers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSize {
    bytes: u64,
    suffix: String,
}

impl BlockSize {
    /// The unit of this many bytes.
    pub(crate) fn of(bytes: u64) -> Self {
        Self { bytes, suffix: String::new() }
    }

    /// Reads a number of bytes with a unit. A unit alone is shown behind numbers.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let is_unit = !text.starts_with(|c: char| c.is_ascii_digit());
        let bytes = if is_unit { size(&format!("1{text}")) } else { size(text) };
        let bytes = bytes.filter(|bytes| *bytes > 0 && !text.is_empty());
        let suffix = if is_unit { text.to_owned() } else { String::new() };
        bytes.map(|bytes| Self { bytes, suffix }).ok_or_else(|| "write it as 1024, 1M or M".to_owned())
    }

    /// Returns a number of bytes in this unit, rounded up.
    pub(crate) fn show(&self, bytes: u64) -> String {
        format!("{}{}", units(bytes, self.bytes), self.suffix)
    }

    /// Returns the name of the unit at the head of a column: `1K`, `512B`.
    pub(crate) fn name(&self) -> String {
        for (power, unit) in [(6, "E"), (5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K")] {
            for (base, mark) in [(1024_u64, ""), (1000, "B")] {
                let factor = base.pow(power);
                if self.bytes.is_multiple_of(factor) {
                    let unit = if base == 1000 { unit.replace('K', "k") } else { unit.to_owned() };
                    return format!("{}{unit}{mark}", self.bytes / factor);
                }
            }
        }
        format!("{}B", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::BlockSize;

    #[test]
    fn units_are_shown_as_gnu_does() {
        let check = |text: &str, bytes, shown: &str, name: &str| {
            let unit = BlockSize::parse(text).expect(text);
            assert_eq!((unit.show(bytes).as_str(), unit.name().as_str()), (shown, name), "{text}");
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
