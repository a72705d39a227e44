//! Files, devices and partitions that are to become volumes.
//!
//! `mkfs` and `build` open their target with it. One that holds something, is mounted or is locked
//! is refused, unless `--force` is given for the first.

use extern4::Volume;
use extern4::block::BlockDevice;

use super::error::NewVolumeError;
use crate::app::part;
use crate::image_path::Image;

/// Bytes at the start of a device that tell whether it holds something.
const HEAD_BYTES: u64 = 128 << 10;

/// Returns the bytes of a file, device or partition.
pub(crate) fn device_bytes(image: &Image) -> Result<u64, NewVolumeError> {
    let mut options = Volume::options();
    part(&mut options, image);
    let (device, _) = options.device(&image.file)?;
    Ok(device.size_bytes())
}

/// Opens what is to become a volume. It must be empty, or `force` say that what it holds can go.
pub(crate) fn device(
    image: &Image,
    is_device: bool,
    force: bool,
) -> Result<Box<dyn BlockDevice>, NewVolumeError> {
    let mut options = Volume::options();
    options.write(true);
    part(&mut options, image);
    let (device, _) = options.device(&image.file)?;
    if !force {
        let mut head = vec![0; device.size_bytes().min(HEAD_BYTES) as usize];
        device.read_at(&mut head, 0).map_err(NewVolumeError::target)?;
        if head.iter().any(|byte| *byte != 0) {
            let kind = if is_device { "device" } else { "file" };
            let holds = contents(&head);
            return Err(NewVolumeError::Target(format!("the {kind} holds {holds}; --force overwrites it")));
        }
    }
    Ok(Box::new(device))
}

/// A name for what a device holds.
fn contents(head: &[u8]) -> &'static str {
    let has = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    match () {
        () if has(0x438, &[0x53, 0xef]) => "an ext2, ext3 or ext4 volume",
        () if has(0, b"XFSB") => "an XFS volume",
        () if has(0x10040, b"_BHRfS_M") => "a btrfs volume",
        () if has(0x200, b"EFI PART") => "a partition table (GPT)",
        () if has(510, &[0x55, 0xaa]) => "a partition table or a boot sector",
        () if has(0, b"LUKS\xba\xbe") => "a LUKS volume",
        () if has(4086, b"SWAPSPACE2") => "a swap area",
        () => "data",
    }
}
