//! The errors of this crate, and their one translation to the error numbers of the VFS.
//!
//! Functions of this crate return [`Error`], which keeps the broken rule and its place, or the
//! device's error. At the VFS traits it becomes an [`extern4_vfs::Error`]: the errno that Linux
//! would return, with this error as its cause. Programs that open volumes print the text of an
//! `Error`, so it says what the user can do where something can be done.

use std::fmt;
use std::sync::Arc;

use extern4_disk::feature::Feature;
use extern4_disk::{Corrupt, CorruptKind, Place, Structure};
use extern4_vfs::Errno;

/// The result of an operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reasons why an operation failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device does not hold an ext2, ext3 or ext4 file system where one was looked for.
    #[error("not an ext2, ext3 or ext4 file system: {0}")]
    NotExt(&'static str),
    /// The volume breaks its own format.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The device failed.
    #[error(transparent)]
    Io(#[from] extern4_block::Error),
    /// The volume uses something that cannot be read.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The contents are encrypted, and no key is known.
    #[error("inode {ino} is encrypted, and extern4 cannot be given the key")]
    Encrypted {
        /// The inode.
        ino: u32,
    },
    /// The inode is encrypted, and nothing tells by which key.
    #[error("inode {ino} is encrypted, but has no encryption policy")]
    NoPolicy {
        /// The inode.
        ino: u32,
    },
    /// The inode is encrypted by a policy that is not known.
    #[error("inode {ino} is encrypted by a policy that is damaged or not known")]
    BadPolicy {
        /// The inode.
        ino: u32,
    },
    /// An inode number that is not in use, or that no file can have.
    #[error("inode {ino} {why}")]
    Stale {
        /// The inode number.
        ino: u64,
        /// Why it cannot be read, as the end of a sentence.
        why: &'static str,
    },
    /// Another node or program has the volume, as its multiple mount protection block says.
    #[error("{0}")]
    InUse(InUse),
    /// The volume takes no more changes, because of an earlier error.
    #[error("{0}")]
    Stopped(Arc<str>),
    /// The volume takes no more changes, because of damage.
    #[error("{0}")]
    Damaged(Arc<str>),
    /// An errno that explains itself, such as `ENODATA`. An operation returns it before it has
    /// changed anything.
    #[error("{0}")]
    Answer(Errno),
}

/// Something that a volume has and extern4 cannot read, with the sentence that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsupported {
    /// Features without which the volume cannot be read rightly.
    Features(Vec<Feature>),
    /// The device holds the external journal of another volume.
    JournalDevice,
    /// The volume's journal is on another device, has to be replayed, and was not given.
    ExternalJournal,
    /// An encoding of names that is not known.
    Encoding(u16),
    /// A journal that has to be replayed and cannot, with the sentence that says why.
    Journal(String),
    /// Features of a volume that can be read, but not safely changed.
    Writing(Vec<Feature>),
    /// Another reason why a volume that can be read is not changed, as the end of a sentence.
    WritingTo(&'static str),
    /// Checksums that are to be computed again, where the feature or state of this name forbids it.
    Rewriting(&'static str),
    /// The checksums of the volume were being computed again when that was interrupted.
    Interrupted,
    /// A transaction, on a volume without a journal.
    Transaction,
    /// Features that are to be taken away, and that files of the volume use.
    InUse(Vec<Feature>),
    /// A change of features that the volume does not allow, with the clause that says why.
    Tuning(&'static str),
    /// A new UUID, where the feature of this name makes what is on the volume depend on the old
    /// one.
    Uuid(&'static str),
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Features(features) => {
                f.write_str("the volume has features that extern4 cannot read:")?;
                features.iter().try_for_each(|feature| write!(f, " {feature}"))
            }
            Self::JournalDevice => f.write_str(
                "this is the external journal of a volume, not a volume (feature journal_dev); open the volume",
            ),
            Self::ExternalJournal => f.write_str(
                "its journal is on another device, which was not given; without it a volume is not changed, nor read after a crash",
            ),
            Self::Journal(why) => f.write_str(why),
            Self::Tuning(why) => f.write_str(why),
            Self::Writing(features) => {
                f.write_str("it can only be read: it has features that extern4 cannot write to safely:")?;
                features.iter().try_for_each(|feature| write!(f, " {feature}"))
            }
            Self::InUse(features) => {
                f.write_str("files of the volume use what is to be taken away:")?;
                features.iter().try_for_each(|feature| write!(f, " {feature}"))
            }
            Self::Uuid(feature) => {
                write!(f, "the UUID cannot be changed: data on the volume depends on it (feature {feature})")
            }
            Self::Interrupted => {
                f.write_str("its checksums were being rewritten; tune --uuid with --rewrite, run again, ends that")
            }
            Self::Rewriting(what) => write!(f, "its checksums are not rewritten: it has {what}"),
            Self::Transaction => f.write_str("it has no journal, so changes cannot be made durable together"),
            Self::WritingTo(why) => write!(f, "it can only be read: {why}"),
            Self::Encoding(encoding) => write!(f, "names are in encoding {encoding}; only utf8-12.1 (1) is known"),
        }
    }
}

impl std::error::Error for Unsupported {}

/// The holder of a volume, as the volume itself names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The holder is a file system check, running or crashed.
    pub checking: bool,
    /// The name of the host that uses the volume, from the MMP block.
    pub host: String,
    /// The device's name on that host.
    pub device: String,
    /// How many seconds ago the holder wrote the block, if the clocks agree.
    pub seconds_ago: u64,
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            checking,
            host,
            device,
            seconds_ago,
        } = self;
        let (user, hint) = if *checking {
            (
                "e2fsck is at work on it",
                "; if that has died, tune2fs -f -E clear_mmp takes it away",
            )
        } else {
            ("it is in use", "")
        };
        let s = if *seconds_ago == 1 { "" } else { "s" };
        write!(
            f,
            "{user} on host {host}, as {device}, which wrote so {seconds_ago} second{s} ago{hint}"
        )
    }
}

impl From<extern4_jbd2::Error> for Error {
    fn from(error: extern4_jbd2::Error) -> Self {
        match error {
            extern4_jbd2::Error::Device(error) => error.into(),
            extern4_jbd2::Error::Corrupt(corrupt) => corrupt.into(),
            extern4_jbd2::Error::Closed => Errno::EROFS.into(),
            extern4_jbd2::Error::Aborted(_) => Self::Stopped(error.to_string().into()),
            extern4_jbd2::Error::Damaged(_) => Self::Damaged(error.to_string().into()),
            other => Unsupported::Journal(other.to_string()).into(),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Answer(errno)
    }
}

impl Error {
    /// Returns the rule of the format that the volume breaks, if that is what went wrong.
    pub fn corrupt_kind(&self) -> Option<CorruptKind> {
        match self {
            Self::Corrupt(corrupt) => Some(corrupt.kind),
            _ => None,
        }
    }

    /// Returns the damage of the volume that the error is about, if it is about any.
    pub(crate) fn damage(&self) -> Option<Corrupt> {
        let kind = match self {
            Self::Corrupt(corrupt) => return Some(*corrupt),
            Self::Io(extern4_block::Error::BlockOutOfRange { block, .. }) => {
                CorruptKind::BlockOutOfRange {
                    field: "a block number",
                    block: *block,
                }
            }
            Self::Stale { why, .. } => CorruptKind::Mismatch { what: why },
            _ => return None,
        };
        let place = Place::new(Structure::Inode);
        let place = match self {
            Self::Stale { ino, .. } => u32::try_from(*ino).map_or(place, |ino| place.ino(ino)),
            _ => place,
        };
        Some(place.corrupt(kind))
    }

    /// Returns the error as one of an internal file of the volume, such as `the journal`. There an
    /// inode that is not in use is damage, because the volume named it, not the caller.
    pub(crate) fn in_part(self, part: &'static str) -> Self {
        let place = Place::new(Structure::Inode).of(part);
        match self {
            Self::Corrupt(Corrupt { place, kind }) => match place.structure {
                // Their messages name the part already.
                Structure::JournalSuperblock
                | Structure::JournalBlock
                | Structure::FastCommit
                | Structure::GroupDescriptor => self,
                _ => place.of(part).corrupt(kind).into(),
            },
            Self::Stale { ino, .. } => {
                let place = u32::try_from(ino).map_or(place, |ino| place.ino(ino));
                place
                    .corrupt(CorruptKind::Mismatch {
                        what: "no such inode is in use",
                    })
                    .into()
            }
            Self::Io(extern4_block::Error::BlockOutOfRange { block, .. }) => place
                .corrupt(CorruptKind::BlockOutOfRange {
                    field: "its map",
                    block,
                })
                .into(),
            other => other,
        }
    }

    /// Returns the error number that the Linux kernel gives for it.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotExt(_) => Errno::EINVAL,
            Self::Corrupt(_) => Errno::EUCLEAN,
            // The cache refuses a block outside of the volume before it reads. So the pointer was
            // bad, not the device.
            Self::Io(extern4_block::Error::BlockOutOfRange { .. }) => Errno::EUCLEAN,
            Self::Io(_) => Errno::EIO,
            Self::Unsupported(_) => Errno::EOPNOTSUPP,
            Self::Encrypted { .. } => Errno::ENOKEY,
            Self::NoPolicy { .. } => Errno::ENODATA,
            Self::BadPolicy { .. } => Errno::EINVAL,
            Self::Stale { .. } => Errno::ESTALE,
            Self::InUse(_) => Errno::EBUSY,
            Self::Stopped(_) | Self::Damaged(_) => Errno::EROFS,
            Self::Answer(errno) => *errno,
        }
    }
}

impl From<Error> for extern4_vfs::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Answer(errno) => errno.into(),
            other => Self::with_cause(other.errno(), other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_number_and_keeps_its_cause() {
        let corrupt = Place::new(Structure::Inode)
            .ino(12)
            .corrupt(CorruptKind::Loop { what: "it" });
        let cases = [
            (Error::Corrupt(corrupt), Errno::EUCLEAN),
            (
                extern4_block::Error::UnexpectedEnd {
                    offset: 0,
                    missing: 1,
                }
                .into(),
                Errno::EIO,
            ),
            (
                extern4_block::Error::BlockOutOfRange {
                    block: 9,
                    block_count: 8,
                }
                .into(),
                Errno::EUCLEAN,
            ),
            (Error::Encrypted { ino: 12 }, Errno::ENOKEY),
            (Error::NoPolicy { ino: 12 }, Errno::ENODATA),
            (Error::BadPolicy { ino: 12 }, Errno::EINVAL),
            (
                Error::Stale {
                    ino: 99,
                    why: "is not in use",
                },
                Errno::ESTALE,
            ),
            (Unsupported::JournalDevice.into(), Errno::EOPNOTSUPP),
            (extern4_jbd2::Error::Corrupt(corrupt).into(), Errno::EUCLEAN),
            (
                extern4_jbd2::Error::Damaged("it".into()).into(),
                Errno::EROFS,
            ),
            (
                extern4_jbd2::Error::Aborted("it".into()).into(),
                Errno::EROFS,
            ),
        ];
        for (error, errno) in cases {
            let text = error.to_string();
            let vfs = extern4_vfs::Error::from(error);
            assert_eq!(vfs.errno(), errno);
            assert_eq!(vfs.cause().map(ToString::to_string), Some(text));
        }
        assert!(
            extern4_vfs::Error::from(Error::from(Errno::ENODATA))
                .cause()
                .is_none()
        );
    }
}
