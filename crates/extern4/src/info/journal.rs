//! The journal of a volume: where it is, what it holds, and what was replayed.
//!
//! `Info` has it. A damaged journal is left out: a check reports its faults.

use std::fmt;

use extern4_disk::superblock::JournalLocation;
use extern4_ext4::Replayed;

use crate::volume::Volume;

/// The journal of a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalInfo {
    /// Where it is; `None` if the volume has none.
    pub location: Option<JournalPlace>,
    /// The fields of the journal's superblock; `None` if it is on another device or cannot be read.
    pub contents: Option<JournalContents>,
    /// The amount that was replayed in memory when the volume was opened; `None` for a clean
    /// volume.
    pub replayed: Option<Replayed>,
}

/// The place of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalPlace {
    /// In this inode of the volume.
    Inode(u32),
    /// On another device, whose journal has this UUID.
    Device([u8; 16]),
}

/// The fields of a journal's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalContents {
    /// Its size in bytes.
    pub bytes: u64,
    /// The names of its features.
    pub features: Vec<String>,
    /// The number of the next transaction.
    pub sequence: u32,
    /// The block where the log starts; 0 for an empty log.
    pub start: u32,
    /// The error number that ended all changes; 0 for none.
    pub errno: i32,
}

impl JournalInfo {
    pub(super) fn of(volume: &Volume) -> Self {
        let ext4 = volume.ext4();
        let location = ext4.superblock().journal().map(|location| match location {
            JournalLocation::Inode(ino) => JournalPlace::Inode(ino),
            JournalLocation::Device { uuid, .. } => JournalPlace::Device(uuid),
        });
        Self {
            location,
            contents: JournalContents::of(volume),
            replayed: ext4.replayed(),
        }
    }
}

impl JournalContents {
    fn of(volume: &Volume) -> Option<Self> {
        let journal = volume.ext4().journal_info(None).ok()??.superblock;
        let features = format!(
            "{} {} {}",
            journal.compat, journal.incompat, journal.ro_compat
        );
        Some(Self {
            bytes: u64::from(journal.len_blocks).saturating_mul(u64::from(journal.block_size)),
            features: features.split_whitespace().map(str::to_owned).collect(),
            sequence: journal.sequence.0,
            start: journal.start.unwrap_or(0),
            errno: journal.errno,
        })
    }
}

impl fmt::Display for JournalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::Device(uuid) => {
                let number = format!("{:032x}", u128::from_be_bytes(*uuid));
                let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|at| &number[at]);
                write!(f, "on another device, UUID {a}-{b}-{c}-{d}-{e}")
            }
        }
    }
}
