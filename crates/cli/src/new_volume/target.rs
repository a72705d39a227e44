//! Files, devices and partitions that are to become volumes.
//!
//! `mkfs` and `build` open their target with it. One that holds something, is mounted or is locked
//! is refused, unless `--force` is given for the first.

use extern4::Volume;
use extern4::block::BlockDevice;
use extern4::block::partition::Border;

use super::error::NewVolumeError;
use crate::image_path::{Image, Part};

/// Bytes at the start of a device that tell whether it holds something.
const HEAD_BYTES: u64 = 128 << 10;

/// How much of a file, device or partition can become a volume.
pub(crate) struct Room {
    /// The bytes up to the end of the file, device or partition.
    all: u64,
    /// The bytes up to what the volume must not overwrite.
    free: u64,
    /// The thing that is there, if it is not the end.
    border: Option<String>,
}

impl Room {
    /// Looks how much room there is. A volume at a byte of a disk ends with the partition there, or
    /// before the next one and the partition table. With `force`, the table itself can go.
    pub(crate) fn of(image: &Image, force: bool) -> Result<Self, NewVolumeError> {
        let mut options = Volume::options();
        options.part(image.part);
        let (device, _) = options.device(&image.file)?;
        Self::on(&device, image, force)
    }

    fn on(device: &dyn BlockDevice, image: &Image, force: bool) -> Result<Self, NewVolumeError> {
        let all = device.size_bytes();
        let endless = Self {
            all,
            free: all,
            border: None,
        };
        let Part::Offset(start) = image.part else {
            return Ok(endless);
        };
        let table = match Volume::partitions(&image.file) {
            // Nothing says where the partitions are.
            Err(_) if force => None,
            table => table?,
        };
        let border = table.and_then(|table| table.room(start));
        let Some((at, border)) = border.filter(|(at, _)| !(force && *at == start)) else {
            return Ok(endless);
        };
        let border = match border {
            Border::Start(number) => {
                format!("overwrite partition {number}, which begins at byte {at}")
            }
            Border::End(number) => format!("go past the end of partition {number} at byte {at}"),
            Border::Table => format!("overwrite the partition table at byte {at}"),
        };
        Ok(Self {
            all,
            free: (at - start).min(all),
            border: Some(border).filter(|_| at - start < all),
        })
    }

    /// Returns how many bytes a volume without a size gets. A byte of the partition table is no
    /// place for one.
    pub(crate) fn bytes(&self) -> Result<u64, NewVolumeError> {
        match self.border {
            Some(_) if self.free == 0 => self.check(1, false)?,
            _ => {}
        }
        Ok(self.free)
    }

    /// Checks that there is room for a volume of `wanted` bytes. With `force`, it may overwrite
    /// partitions and their table.
    pub(crate) fn check(&self, wanted: u64, force: bool) -> Result<(), NewVolumeError> {
        match &self.border {
            _ if wanted > self.all => Err(NewVolumeError::Target(format!(
                "{wanted} bytes are more than its {}",
                self.all
            ))),
            Some(border) if wanted > self.free && !force => Err(NewVolumeError::Target(format!(
                "the volume would {border}; --force allows that"
            ))),
            _ => Ok(()),
        }
    }
}

/// Opens what is to become a volume. It must be empty, or `force` say that what it holds can go.
pub(crate) fn device(
    image: &Image,
    is_device: bool,
    force: bool,
) -> Result<(Box<dyn BlockDevice>, Room), NewVolumeError> {
    let mut options = Volume::options();
    options.write(true);
    options.part(image.part);
    let (device, _) = options.device(&image.file)?;
    let room = Room::on(&device, image, force)?;
    if !force {
        let mut head = vec![0; room.bytes()?.min(HEAD_BYTES) as usize];
        device
            .read_at(&mut head, 0)
            .map_err(NewVolumeError::target)?;
        let kind = if is_device { "device" } else { "file" };
        let holds = |holds: &str| {
            Err(NewVolumeError::Target(format!(
                "the {kind} holds {holds}; --force overwrites it"
            )))
        };
        if head.iter().any(|byte| *byte != 0) {
            return holds(contents(&head));
        }
        if image.part == Part::Whole && Volume::partitions(&image.file)?.is_some() {
            return holds("the copy of a partition table (GPT)");
        }
    }
    Ok((Box::new(device), room))
}

/// A name for what a device holds.
fn contents(head: &[u8]) -> &'static str {
    let has = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    if has(0x438, &[0x53, 0xef]) {
        "an ext2, ext3 or ext4 volume"
    } else if has(0, b"XFSB") {
        "an XFS volume"
    } else if has(0x10040, b"_BHRfS_M") {
        "a btrfs volume"
    } else if has(0x200, b"EFI PART") {
        "a partition table (GPT)"
    } else if has(510, &[0x55, 0xaa]) {
        "a partition table or a boot sector"
    } else if has(0, b"LUKS\xba\xbe") {
        "a LUKS volume"
    } else if has(4086, b"SWAPSPACE2") {
        "a swap area"
    } else {
        "data"
    }
}
