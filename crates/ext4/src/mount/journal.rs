//! The journal of a volume: finding it, replaying it, and facts about it.
//!
//! The journal is a hidden file of the volume, or an external device. Its own superblock decides
//! whether it has to be replayed. The volume's flag `needs_recovery` only says that there must be a
//! journal. Backup superblocks never have that flag, and a superblock restored from one has lost
//! it. e2fsck decides in the same way; Linux discards the log of a volume without the flag.
//!
//! Opening for reading calls `recover`: the volume is then read through a device that returns the
//! journal's copy of each block that has one, and nothing is written. Opening for writing calls
//! `empty`, which writes the copies in place. A damaged log is an error, and so is an external
//! journal that was not given.

use std::sync::Arc;

use extern4_block::BlockDevice;
use extern4_disk::fast_commit::Record;
use extern4_disk::feature::Incompat;
use extern4_disk::inode::FileKind;
use extern4_disk::journal::JournalSuperblock;
use extern4_disk::superblock::JournalLocation;
use extern4_disk::{CorruptKind, Place, Structure};
use extern4_jbd2::{Journal, JournalMap, Replayed, ReplayedDevice};

use crate::error::{Error, Result, Unsupported};
use crate::fs::Ext4;
use crate::fs::options::OpenOptions;
use crate::inode::info::InodeInfo;
use crate::run::RunKind;

/// The most runs that a journal may have. Damaged indirect blocks that refer to each other could
/// otherwise yield an unbounded number.
const MAX_RUNS: usize = 1 << 20;

type Device = Arc<dyn BlockDevice>;

/// A volume whose journal has been replayed into memory.
pub(crate) struct Recovery {
    /// The device with the journal's copies of blocks over it.
    pub(crate) device: Device,
    /// The records of the fast commits on top of that.
    pub(crate) fast_commits: Vec<Vec<Record>>,
    /// How much was replayed.
    pub(crate) replayed: Replayed,
}

/// The known facts about a volume's journal.
#[derive(Clone, Debug)]
pub struct JournalInfo {
    /// Where it is.
    pub location: JournalLocation,
    /// Its superblock as it is on the device.
    pub superblock: JournalSuperblock,
    /// How much was replayed when the volume was opened; `None` if there was nothing to replay.
    pub replayed: Option<Replayed>,
    /// It was replayed although the primary superblock says that nothing is to be recovered.
    pub is_unannounced: bool,
}

/// Reads the journal of `fs`; `None` if it has none, or an empty one.
pub(crate) fn recover(fs: &Ext4, options: &OpenOptions) -> Result<Option<Recovery>> {
    let external = options.journal_device.as_ref();
    if !fs.is_flagged() {
        match is_dirty(fs, external) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // The primary superblock says that the journal is not needed. A backup superblock
            // cannot say that.
            Err(_) if options.superblock.is_none() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let Some(journal) = open(fs, external)? else {
        return Ok(None);
    };
    let recovered = journal.recover(fs.superblock().blocks_count())?;
    if let Some(damage) = recovered.damage().first() {
        return Err((*damage).into());
    }
    Ok(Some(Recovery {
        fast_commits: recovered.fast_commits().commits.clone(),
        replayed: recovered.replayed(),
        device: Arc::new(ReplayedDevice::new(Arc::clone(&fs.device), recovered)),
    }))
}

/// Replays the journal of `fs` onto the device and empties it. Returns the journal and how much was
/// replayed; `None` if the volume has no journal.
pub(crate) fn empty(
    fs: &Ext4,
    options: &OpenOptions,
) -> Result<Option<(Journal<Device>, Option<Replayed>)>> {
    let Some(journal) = open(fs, options.journal_device.as_ref())? else {
        return Ok(None);
    };
    let recovered = journal.recover(fs.superblock().blocks_count())?;
    if !fs.is_flagged() && !recovered.journal().is_dirty() {
        return Ok(Some((recovered.mark_empty(0)?, None)));
    }
    let replayed = recovered.replayed();
    if replayed.fast_commits > 0 {
        let why = "its journal holds fast commits, which are not written back yet; mount it once, or run e2fsck";
        return Err(Unsupported::WritingTo(why).into());
    }
    recovered.write_in_place(&*fs.device)?;
    Ok(Some((recovered.mark_empty(0)?, Some(replayed))))
}

/// Opens the journal of the volume, internal or external; `None` if it has none.
fn open(fs: &Ext4, external: Option<&Device>) -> Result<Option<Journal<Device>>> {
    find(fs, external).map_err(|error| error.in_part("the journal"))
}

fn find(fs: &Ext4, external: Option<&Device>) -> Result<Option<Journal<Device>>> {
    let block_size = fs.superblock().block_size();
    Ok(match fs.superblock().journal() {
        None => None,
        Some(JournalLocation::Inode(ino)) => Some(Journal::internal(
            Arc::clone(&fs.device),
            block_size,
            map_of(fs, ino)?,
        )?),
        Some(JournalLocation::Device { uuid, .. }) => {
            let device = external.ok_or(Unsupported::ExternalJournal)?;
            Some(Journal::external(Arc::clone(device), block_size, &uuid)?)
        }
    })
}

/// Whether the journal's superblock says that its log is not empty. Of an internal journal it reads
/// only that block.
fn is_dirty(fs: &Ext4, external: Option<&Device>) -> Result<bool> {
    let Some(JournalLocation::Inode(ino)) = fs.superblock().journal() else {
        return Ok(open(fs, external)?.is_some_and(|journal| journal.is_dirty()));
    };
    let place = Place::new(Structure::JournalSuperblock).ino(ino);
    let first = journal_inode(fs, ino).and_then(|inode| inode.map(fs, 0));
    let RunKind::Mapped { physical } = first.map_err(|error| error.in_part("the journal"))?.kind
    else {
        let what = "the journal has no first block";
        return Err(place.corrupt(CorruptKind::Mismatch { what }).into());
    };
    let mut bytes = [0; JournalSuperblock::SIZE];
    // OK: a mapped block is one of the volume, whose size in bytes is below 2^63.
    fs.device.read_at(
        &mut bytes,
        physical << fs.superblock().geometry().block_bits(),
    )?;
    Ok(JournalSuperblock::decode(&bytes, place.block(physical))?
        .start
        .is_some())
}

/// Returns the inode of the journal.
fn journal_inode(fs: &Ext4, ino: u32) -> Result<InodeInfo> {
    let inode = fs.load_inode(ino)?;
    if inode.fields().kind() != FileKind::Regular || inode.fields().links() == 0 {
        let what = "the journal is not a file that is in use";
        return Err(Place::new(Structure::Inode)
            .ino(ino)
            .corrupt(CorruptKind::Mismatch { what })
            .into());
    }
    Ok(inode)
}

/// Returns the map of the journal in inode `ino`.
fn map_of(fs: &Ext4, ino: u32) -> Result<JournalMap> {
    let inode = journal_inode(fs, ino)?;
    let end = inode.size() >> fs.superblock().geometry().block_bits();
    let mut runs = Vec::new();
    let mut at = 0;
    while let Ok(logical) = u32::try_from(at)
        && at < end
    {
        let run = inode.map(fs, logical)?;
        let len = run.len_blocks.min(end - at);
        if let RunKind::Mapped { physical } = run.kind {
            // OK: a mapped run comes from one extent, or from one block of pointers.
            let len_blocks = u32::try_from(len).unwrap_or(u32::MAX);
            runs.push(extern4_jbd2::Run {
                logical,
                physical,
                len_blocks,
            });
            if runs.len() > MAX_RUNS {
                let what = "the journal is in too many pieces";
                return Err(Place::new(Structure::Inode)
                    .ino(ino)
                    .corrupt(CorruptKind::Mismatch { what })
                    .into());
            }
        }
        at += len;
    }
    Ok(JournalMap::new(runs)?)
}

impl Ext4 {
    /// Whether the superblock says that the journal has to be replayed.
    pub(crate) fn is_flagged(&self) -> bool {
        self.superblock()
            .features()
            .incompat
            .contains(Incompat::RECOVER)
    }

    /// Returns facts about the volume's journal. `None` if the volume has none, or if the journal
    /// is external and the caller does not give its device.
    ///
    /// # Errors
    /// A journal that is corrupt, or a device that fails.
    pub fn journal_info(&self, external: Option<&Device>) -> Result<Option<JournalInfo>> {
        let Some(location) = self.superblock().journal() else {
            return Ok(None);
        };
        let journal = match open(self, external) {
            Err(Error::Unsupported(Unsupported::ExternalJournal)) => return Ok(None),
            journal => journal?,
        };
        Ok(journal.map(|journal| JournalInfo {
            location,
            superblock: journal.superblock().clone(),
            replayed: self.replayed,
            is_unannounced: self.unannounced,
        }))
    }

    /// Returns how much was replayed when the volume was opened; `None` if it was clean.
    pub fn replayed(&self) -> Option<Replayed> {
        self.replayed
    }
}
