//! Sizes of volumes, as mke2fs takes them.
//!
//! `mkfs` and `build` parse sizes with it.

/// The most digits of a number before the point, and behind it. All such numbers times a unit fit
/// in 128 bits.
const MOST_DIGITS: usize = 12;

/// A size as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// With a unit.
    Bytes(u64),
    /// Without one: blocks if their size was given, else KiB.
    Number(u64),
}

/// The size of a volume that may get a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeSize {
    /// The smallest in which the tree has room.
    Auto,
    Of(Size),
}

impl Size {
    /// Returns the size in bytes. A plain number counts blocks if their size was given.
    pub(crate) fn bytes(self, block_size: Option<u32>) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(number) => number.saturating_mul(block_size.unwrap_or(1024).into()),
        }
    }
}

pub(crate) fn parse(text: &str) -> Result<Size, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    let wrong = || "write it as 64M, 1.5G or as a number of blocks".to_owned();
    let times = match unit {
        "" => return number.parse().map(Size::Number).map_err(|_| wrong()),
        "s" => 512,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return Err(format!("'{unit}' is no unit: s, K, M, G and T are")),
    };
    let bytes = decimal(number, times).ok_or_else(wrong)?;
    u64::try_from(bytes)
        .map(Size::Bytes)
        .map_err(|_| "it is more than a volume can have".to_owned())
}

/// Returns a decimal number such as `1.5`, times a unit, rounded down. `None` if it is no number of
/// at most [`MOST_DIGITS`] digits before and behind the point.
pub(crate) fn decimal(text: &str, unit: u64) -> Option<u128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && (!part.is_empty() || !text.contains('.'));
    let digits =
        |text: &str| text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !digits(whole) || !digits(part) {
        return None;
    }
    let scale = 10_u128.pow(part.len() as u32);
    let number = whole.parse::<u128>().ok()? * scale + part.parse::<u128>().unwrap_or(0);
    number.checked_mul(unit.into()).map(|scaled| scaled / scale)
}

/// Reads a size, or `auto`.
pub(crate) fn parse_or_auto(text: &str) -> Result<VolumeSize, String> {
    if text == "auto" {
        Ok(VolumeSize::Auto)
    } else {
        parse(text).map(VolumeSize::Of)
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, parse};

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse("64M"), Ok(Size::Bytes(64 << 20)));
        assert_eq!(parse("2048s"), Ok(Size::Bytes(1 << 20)));
        assert_eq!(parse("1.5G"), Ok(Size::Bytes(3 << 29)));
        assert_eq!(parse("0.1K"), Ok(Size::Bytes(102)));
        assert_eq!(parse("100"), Ok(Size::Number(100)));
        assert_eq!(Size::Number(100).bytes(None), 100 << 10);
        assert_eq!(Size::Number(100).bytes(Some(4096)), 100 << 12);
        for text in [
            "",
            "M",
            "1X",
            "-1",
            "1.5",
            ".5M",
            "1.M",
            "1.2.3M",
            "99999999999999999999",
            "99999999999T",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
