//! Values of the options of mke2fs that have a special form: sizes with units, systems, and
//! lists of bad blocks.
//!
//! clap calls the parsers when `mkfs` reads its arguments.

use std::path::Path;

use crate::app::host_reason;
use crate::new_volume::NewVolumeError;
use crate::new_volume::size::{self, Size};
use crate::text::quoted;

/// A block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockSize {
    Exactly(u32),
    /// That, or a larger one of the configuration: `-b -4096`.
    AtLeast(u32),
}

impl BlockSize {
    pub(super) fn exactly(self) -> Option<u32> {
        match self {
            Self::Exactly(size) => Some(size),
            Self::AtLeast(_) => None,
        }
    }

    pub(super) fn least(self) -> Option<u32> {
        match self {
            Self::Exactly(_) => None,
            Self::AtLeast(size) => Some(size),
        }
    }
}

pub(super) fn block_size(text: &str) -> Result<BlockSize, String> {
    match text.strip_prefix('-') {
        Some(least) => bytes(least).map(BlockSize::AtLeast),
        None => bytes(text).map(BlockSize::Exactly),
    }
}

/// Reads a number of bytes, with a unit or without.
pub(super) fn bytes<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let bytes = match size::parse(text).map_err(|_| "write it as 4096 or 4K".to_owned())? {
        Size::Bytes(bytes) | Size::Number(bytes) => bytes,
    };
    T::try_from(bytes).map_err(|_| "that is too large".to_owned())
}

/// Reads the name or the number of a system that makes volumes.
pub(super) fn creator_os(text: &str) -> Result<u32, String> {
    // The numbers of the format: Documentation/filesystems/ext4/super.rst, s_creator_os.
    const NAMES: [(&str, u32); 5] = [
        ("linux", 0),
        ("hurd", 1),
        ("gnu", 1),
        ("freebsd", 3),
        ("lites", 4),
    ];
    let known = NAMES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, number)| *number);
    known
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "linux, hurd, freebsd and lites are known".to_owned())
}

/// Reads a file with the numbers of bad blocks, one a line, as badblocks(8) writes it.
pub(super) fn bad_blocks(file: &Path) -> Result<Vec<u64>, NewVolumeError> {
    let name = quoted(file.to_string_lossy());
    let text = std::fs::read_to_string(file)
        .map_err(|error| NewVolumeError::Failed(format!("{name}: {}", host_reason(&error))))?;
    let lines = (1..)
        .zip(text.lines().map(str::trim))
        .filter(|(_, line)| !line.is_empty());
    let number = |(index, line): (usize, &str)| {
        let wrong = |_| {
            NewVolumeError::Usage(format!(
                "{name}, line {index}: that is no number of a block"
            ))
        };
        line.parse().map_err(wrong)
    };
    lines.map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        assert_eq!(block_size("4k"), Ok(BlockSize::Exactly(4096)));
        assert_eq!(block_size("-2048"), Ok(BlockSize::AtLeast(2048)));
        assert_eq!((bytes("4K"), bytes("7")), (Ok(4096_u16), Ok(7_u16)));
        assert!(
            bytes::<u16>("64K").is_err() && block_size("x").is_err() && block_size("-").is_err()
        );
        assert_eq!(["GNU", "linux", "7"].map(creator_os), [Ok(1), Ok(0), Ok(7)]);
        assert!(creator_os("dos").is_err());
    }
}
