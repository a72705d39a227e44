//! The numbers of a new volume: the sizes of blocks, inodes and groups, and how many there are.
//!
//! [`Numbers::choose`] takes options, `mke2fs.conf` and the size of the device, and chooses as
//! `mke2fs` does. It returns the numbers, or an error with the reason why no volume can have them.
//! `Draft` calls it before it places anything, and `journal_device` calls [`Numbers::of_journal`]
//! for an external journal.

use extern4_disk::feature::{Compat, Features, Incompat, RoCompat};

use crate::config::{Config, by_size};
use crate::error::{Error, Result};
use crate::features::{self, HURD};
use crate::options::Options;

/// The blocks that the last group must have besides its metadata.
const MIN_DATA_BLOCKS: u64 = 50;
/// The number of inodes up to that of lost+found.
const MIN_INODES: u64 = 11;
/// The size of a page, to which device sizes are rounded down.
const PAGE: u64 = 4096;
/// How many times its size a volume can grow while it is mounted.
const GROWTH: u64 = 1024;

/// The numbers of a new volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    pub(crate) types: Vec<String>,
    pub(crate) features: Features,
    pub(crate) block_size: u32,
    pub(crate) inode_size: u16,
    pub(crate) blocks: u64,
    /// Blocks for the superuser.
    pub(crate) reserved: u64,
    pub(crate) blocks_per_group: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) groups: u32,
    pub(crate) reserved_gdt_blocks: u16,
}

impl Numbers {
    /// Chooses the numbers for a device of `bytes`.
    pub(crate) fn choose(options: &Options, config: &Config, bytes: u64) -> Result<Self> {
        let types = types(options, config, options.size.unwrap_or(bytes))?;
        let features = features::choose(options, config, &types)?;
        let mut numbers = Self::undivided(options, config, types, features, bytes)?;
        let inode_size = numbers.inode_size;
        numbers.check_size()?;
        numbers.reserved = numbers.percentage(options, config)?;
        if inode_size < 256 && numbers.features.incompat.contains(Incompat::INLINE_DATA) {
            return Err(Error::options(
                "inline_data needs inodes of at least 256 bytes",
            ));
        }
        if inode_size < 256 && numbers.features.ro_compat.contains(RoCompat::PROJECT) {
            return Err(Error::options("project needs inodes of at least 256 bytes"));
        }
        let inodes = numbers.wanted_inodes(options, config)?;
        let mut divided = numbers.clone();
        divided.divide(options, inodes)?;
        if 4 * divided.descriptor_blocks() > 3 * u64::from(divided.blocks_per_group) {
            // The descriptors would fill most of a group, so they go to meta groups.
            numbers.features.compat.remove(Compat::RESIZE_INODE);
            numbers.features.incompat |= Incompat::META_BG;
            numbers.divide(options, inodes)?;
            divided = numbers;
        }
        if divided.overhead(0, options) > divided.blocks_per_group.into() {
            let Self {
                inodes_per_group,
                blocks_per_group,
                ..
            } = divided;
            return Err(Error::options(format!(
                "{inodes_per_group} inodes are too many for a group of {blocks_per_group} blocks"
            )));
        }
        Ok(divided)
    }

    /// Chooses the numbers of an external journal on a device of `bytes`. It has no groups and no
    /// inodes.
    pub(crate) fn of_journal(
        options: &Options,
        config: &Config,
        features: Features,
        bytes: u64,
    ) -> Result<Self> {
        let types = types(options, config, options.size.unwrap_or(bytes))?;
        Self::undivided(options, config, types, features, bytes)
    }

    /// Returns the sizes, without a division into groups.
    fn undivided(
        options: &Options,
        config: &Config,
        types: Vec<String>,
        features: Features,
        bytes: u64,
    ) -> Result<Self> {
        let block_size = block_size(options, config, &types)?;
        let blocks = match options.size {
            Some(size) => size / u64::from(block_size),
            None => bytes / PAGE * PAGE / u64::from(block_size),
        };
        Ok(Self {
            inode_size: inode_size(options, config, &types, block_size)?,
            types,
            features,
            block_size,
            blocks,
            reserved: 0,
            blocks_per_group: blocks_per_group(options, block_size)?,
            inodes_per_group: 0,
            groups: 0,
            reserved_gdt_blocks: 0,
        })
    }

    /// Returns the first block of group 0.
    pub(crate) const fn first_block(&self) -> u64 {
        if self.block_size == 1024 { 1 } else { 0 }
    }

    fn check_size(&self) -> Result<()> {
        let is_wide = self.features.incompat.contains(Incompat::BIT64);
        if self.blocks > u32::MAX.into() && !is_wide {
            let size = self.block_size;
            return Err(Error::Size(format!(
                "a volume of {} blocks of {size} bytes needs 64bit",
                self.blocks
            )));
        }
        if self.blocks <= self.first_block() {
            return Err(self.too_small());
        }
        Ok(())
    }

    fn too_small(&self) -> Error {
        Error::Size(format!(
            "{} blocks of {} bytes are too few for a volume",
            self.blocks, self.block_size
        ))
    }

    /// Returns the number of blocks that are reserved for the superuser.
    fn percentage(&self, options: &Options, config: &Config) -> Result<u64> {
        let of_config = config
            .value(&self.types, "reserved_ratio")
            .and_then(|ratio| ratio.parse().ok());
        let percent = options.reserved_percent.or(of_config).unwrap_or(5.0);
        if !(0.0..=50.0).contains(&percent) {
            return Err(Error::options(format!(
                "{percent} % of reserved blocks: 0 to 50 are possible"
            )));
        }
        Ok((self.blocks as f64 * percent / 100.0) as u64)
    }

    fn wanted_inodes(&self, options: &Options, config: &Config) -> Result<u64> {
        if let Some(inodes) = options.inodes {
            return Ok(inodes.max(1));
        }
        let of_config = config
            .number(&self.types, "inode_ratio")
            .and_then(|ratio| u64::try_from(ratio).ok());
        // A file takes a block, so more inodes would be of no use. `-i` counts as it is.
        let of_config = of_config.map(|ratio| ratio.max(self.block_size.into()));
        let ratio = options.inode_ratio.or(of_config).unwrap_or(8192);
        if !(1024..=67_108_864).contains(&ratio) {
            return Err(Error::options(format!(
                "{ratio} bytes for each inode: 1024 to 67108864 are possible"
            )));
        }
        let inodes = u128::from(self.blocks) * u128::from(self.block_size) / u128::from(ratio);
        u64::try_from(inodes)
            .ok()
            .filter(|inodes| *inodes <= u32::MAX.into())
            .ok_or_else(|| {
                Error::options(format!(
                    "{inodes} inodes are more than a volume can have: 4294967295"
                ))
            })
    }

    /// Divides blocks and inodes into groups.
    ///
    /// The last group is left out if its metadata would fill most of it. Groups are made smaller if
    /// they would have more inodes than a block has bits.
    fn divide(&mut self, options: &Options, inodes: u64) -> Result<()> {
        let all = self.blocks;
        let ratio = self.reserved as f64 / self.blocks as f64;
        let per_block = u64::from(self.block_size) / u64::from(self.inode_size);
        let most = (8 * u64::from(self.block_size)).min(65_536 - per_block);
        loop {
            let data = self.blocks - self.first_block();
            let groups = data.div_ceil(self.blocks_per_group.into());
            let wanted = inodes.max(MIN_INODES + 1).div_ceil(groups);
            if wanted > most {
                if self.blocks_per_group <= 256 {
                    let text =
                        format!("{inodes} inodes are too many for {groups} groups: specify fewer");
                    return Err(Error::options(text));
                }
                (self.blocks, self.blocks_per_group) = (all, self.blocks_per_group - 8);
                continue;
            }
            let table = wanted.div_ceil(per_block);
            let mut per_group = ((table * per_block) & !7).max(8);
            if per_group * groups <= MIN_INODES {
                per_group = MIN_INODES.next_multiple_of(8);
            }
            if per_group * groups > u32::MAX.into() {
                return Err(Error::options(format!(
                    "{inodes} inodes are more than a volume can have"
                )));
            }
            self.groups = narrow(groups)?;
            self.inodes_per_group = narrow(per_group)?;
            self.reserved_gdt_blocks = self.reserved_gdt(options)?;
            let left = data % u64::from(self.blocks_per_group);
            let overhead = self.overhead(self.groups - 1, options);
            if left == 0 || left >= overhead + MIN_DATA_BLOCKS {
                return Ok(());
            }
            if groups == 1 {
                return if left > overhead {
                    Ok(())
                } else {
                    Err(self.too_small())
                };
            }
            self.blocks -= left;
            // The reserved blocks shrink in proportion.
            self.reserved = (ratio * self.blocks as f64) as u64;
        }
    }

    pub(crate) fn descriptor_size(&self) -> u32 {
        if self.features.incompat.contains(Incompat::BIT64) {
            64
        } else {
            32
        }
    }

    fn descriptors_per_block(&self) -> u64 {
        u64::from(self.block_size / self.descriptor_size())
    }

    /// Returns how many blocks are reserved after the descriptors, so that a mounted volume can
    /// grow.
    fn reserved_gdt(&self, options: &Options) -> Result<u16> {
        if !self.features.compat.contains(Compat::RESIZE_INODE) {
            return Ok(0);
        }
        let limit = options
            .resize_limit
            .map(|limit| limit.blocks(self.block_size));
        if let Some(limit) = limit.filter(|limit| *limit <= self.blocks) {
            return Err(Error::options(format!(
                "resize={limit} is not more than the volume has"
            )));
        }
        // A limit for which no block has to be reserved is none.
        match limit.map_or(Ok(0), |limit| self.reserved_for(limit))? {
            0 => self.reserved_for(self.blocks.saturating_mul(GROWTH)),
            reserved => Ok(reserved),
        }
    }

    /// Returns how many blocks are reserved after the descriptors of a volume that can grow to this
    /// many blocks.
    fn reserved_for(&self, most: u64) -> Result<u16> {
        let data = most.min(u32::MAX.into()) - self.first_block();
        let groups = data.div_ceil(self.blocks_per_group.into());
        let blocks = groups.div_ceil(self.descriptors_per_block());
        let now = u64::from(self.groups).div_ceil(self.descriptors_per_block());
        let reserved = blocks
            .saturating_sub(now)
            .min(u64::from(self.block_size) / 4);
        u16::try_from(reserved).map_err(|_| Error::options("the volume cannot grow as far"))
    }

    /// Returns how many blocks a group's metadata needs, as if all were in the group itself.
    fn overhead(&self, group: u32, options: &Options) -> u64 {
        let table = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        let own = 2 + table.div_ceil(self.block_size.into());
        if !self.has_backup(group, options) {
            return own;
        }
        own + 1 + self.descriptor_blocks()
    }

    /// Returns how many blocks there are for files and the journal.
    pub(crate) fn free_blocks(&self, options: &Options) -> u64 {
        let overhead: u64 = (0..self.groups)
            .map(|group| self.overhead(group, options))
            .sum();
        (self.blocks - self.first_block()).saturating_sub(overhead)
    }

    /// Returns how many blocks the descriptors after a superblock have, with those reserved for
    /// growth.
    fn descriptor_blocks(&self) -> u64 {
        let descriptors = if self.features.incompat.contains(Incompat::META_BG) {
            1
        } else {
            u64::from(self.groups).div_ceil(self.descriptors_per_block())
        };
        descriptors + u64::from(self.reserved_gdt_blocks)
    }

    fn has_backup(&self, group: u32, options: &Options) -> bool {
        let is_power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        if self.features.compat.contains(Compat::SPARSE_SUPER2) {
            let backups = options.backup_superblocks.unwrap_or(2);
            return group == 0
                || group == 1 && backups > 0
                || group == self.groups - 1 && backups > 1;
        }
        if group <= 1 {
            return true;
        }
        !self.features.ro_compat.contains(RoCompat::SPARSE_SUPER)
            || [3, 5, 7].into_iter().any(is_power_of)
    }
}

/// Converts a number that earlier checks keep below 2^32.
pub(crate) fn narrow(number: u64) -> Result<u32> {
    u32::try_from(number)
        .map_err(|_| Error::Size(format!("{number} is more than a volume can have")))
}

/// Returns warnings about options that have no effect.
pub(crate) fn warnings(options: &Options, config: &Config) -> Vec<String> {
    let unknown = options
        .usage
        .iter()
        .filter(|name| *name != "default" && !config.has_type(name));
    unknown
        .map(|name| format!("mke2fs.conf defines no type of use '{name}'"))
        .collect()
}

/// Returns the types of the configuration for the volume: the type of `-t`, then the types of its
/// usage.
fn types(options: &Options, config: &Config, bytes: u64) -> Result<Vec<String>> {
    let kind = options.fs_type.as_str();
    if !["ext2", "ext3", "ext4"].contains(&kind) && !config.has_type(kind) {
        return Err(Error::options(format!(
            "mke2fs.conf defines no file system type '{kind}'"
        )));
    }
    let mut types = vec![kind.to_owned()];
    if options.usage.is_empty() {
        types.push(by_size(bytes).to_owned());
    }
    types.extend(options.usage.iter().cloned());
    if options.creator_os == HURD {
        types.push("hurd".to_owned());
    }
    Ok(types)
}

fn block_size(options: &Options, config: &Config, types: &[String]) -> Result<u32> {
    let of_config = config
        .number(types, "blocksize")
        .and_then(|size| u32::try_from(size).ok());
    let of_journal = options
        .external_journal
        .as_ref()
        .map(|journal| journal.block_size);
    let of_config = of_journal.or(of_config.filter(|size| *size > 0));
    let least = options.least_block_size.unwrap_or(1024);
    if !(1024..=65536).contains(&least) {
        return Err(Error::options(format!(
            "blocks of at least {least} bytes: 1024 to 65536 are possible"
        )));
    }
    let by_config = of_config.unwrap_or(4096).max(least.next_power_of_two());
    let size = options.block_size.unwrap_or(by_config);
    if let Some(journal) = of_journal.filter(|journal| *journal != size) {
        return Err(Error::options(format!(
            "blocks of {size} bytes: the external journal has blocks of {journal}"
        )));
    }
    if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
        return Err(Error::options(format!(
            "blocks of {size} bytes: a power of two from 1024 to 65536 is possible"
        )));
    }
    Ok(size)
}

fn inode_size(
    options: &Options,
    config: &Config,
    types: &[String],
    block_size: u32,
) -> Result<u16> {
    if options.revision == 0 {
        return match options.inode_size {
            None | Some(128) => Ok(128),
            Some(size) => Err(Error::options(format!(
                "inodes of {size} bytes: revision 0 has 128"
            ))),
        };
    }
    let of_config = config
        .number(types, "inode_size")
        .and_then(|size| u16::try_from(size).ok());
    let size = options.inode_size.or(of_config).unwrap_or(256);
    if !size.is_power_of_two() || size < 128 || u32::from(size) > block_size {
        let text =
            format!("inodes of {size} bytes: a power of two from 128 to {block_size} is possible");
        return Err(Error::options(text));
    }
    Ok(size)
}

fn blocks_per_group(options: &Options, block_size: u32) -> Result<u32> {
    let most = (8 * block_size).min(65_528);
    match options.blocks_per_group {
        None => Ok(most),
        Some(blocks) if blocks % 8 != 0 || !(256..=most).contains(&blocks) => {
            let text =
                format!("{blocks} blocks a group: a multiple of 8 from 256 to {most} is possible");
            Err(Error::options(text))
        }
        Some(blocks) => Ok(blocks),
    }
}
