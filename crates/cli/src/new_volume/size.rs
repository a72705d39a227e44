//! Sizes of volumes, as mke2fs takes them.
//!
//! `mkfs` and `build` parse sizes with it.

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
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| "write it as 64M, 20G or as a number of blocks".to_owned())?;
    let bytes = match unit {
        "" => return Ok(Size::Number(number)),
        "s" => number.checked_mul(512),
        "k" | "K" => number.checked_mul(1 << 10),
        "m" | "M" => number.checked_mul(1 << 20),
        "g" | "G" => number.checked_mul(1 << 30),
        "t" | "T" => number.checked_mul(1 << 40),
        _ => return Err(format!("'{unit}' is no unit: s, K, M, G and T are")),
    };
    bytes.map(Size::Bytes).ok_or_else(|| "it is more than a volume can have".to_owned())
}

/// Reads a size, or `auto`.
pub(crate) fn parse_or_auto(text: &str) -> Result<VolumeSize, String> {
    if text == "auto" { Ok(VolumeSize::Auto) } else { parse(text).map(VolumeSize::Of) }
}

#[cfg(test)]
mod tests {
    use super::{Size, parse};

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse("64M"), Ok(Size::Bytes(64 << 20)));
        assert_eq!(parse("2048s"), Ok(Size::Bytes(1 << 20)));
        assert_eq!(parse("100"), Ok(Size::Number(100)));
        assert_eq!(Size::Number(100).bytes(None), 100 << 10);
        assert_eq!(Size::Number(100).bytes(Some(4096)), 100 << 12);
        for text in ["", "M", "1X", "-1", "99999999999999999999", "99999999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
