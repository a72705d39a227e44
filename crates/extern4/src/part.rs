//! Which part of an image or a disk a volume fills, and how text names it.
//!
//! [`VolumeOptions::part`](crate::VolumeOptions::part) opens the volume there.

use std::fmt;

/// The part of an image or a disk that a volume fills.
///
/// ```
/// use extern4::part::Part;
///
/// assert_eq!(format!("disk.img{}", Part::Partition(2)), "disk.img#2");
/// assert_eq!(format!("disk.img{}", Part::Offset(512)), "disk.img@512");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// A partition, counted from 1 as Linux counts them.
    Partition(u32),
    /// Everything from this byte on.
    Offset(u64),
}

/// Writes what follows the name of the image: `#` and the number of a partition, `@` and bytes, or
/// nothing.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Partition(number) => write!(f, "#{number}"),
            Self::Offset(bytes) => write!(f, "@{bytes}"),
        }
    }
}

/// Reads a number of bytes, with an optional binary unit: `K`, `M`, `G` or `T`, or `KiB` and so on.
///
/// ```
/// use extern4::part::parse_bytes;
///
/// assert_eq!(parse_bytes("4M"), Some(4 << 20));
/// assert_eq!(parse_bytes("4MB"), None);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let short = text
        .strip_suffix("iB")
        .filter(|short| short.ends_with(['K', 'M', 'G', 'T']));
    let text = short.unwrap_or(text);
    let shift = match text.bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_number)?;
    number.checked_mul(1 << shift)
}
