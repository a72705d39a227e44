//! Makes the superblock of a new volume from options, `mke2fs.conf` and the chosen numbers.
//!
//! `draft` and `journal_device` call [`make`]. The result is decoded with all checks of
//! `extern4_disk`, so numbers that contradict each other are an error. Counts of free blocks and
//! inodes, and the numbers of internal files, are set later.

use extern4_disk::feature::{Compat, Incompat, RoCompat};
use extern4_disk::superblock::{DefaultMountOptions, MAGIC, RawSuperblock, Superblock};
use extern4_disk::{Place, Structure};
use zerocopy::FromBytes;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::numbers::Numbers;
use crate::options::Options;

const FIRST_INO: u32 = 11;
/// The size of the fields after the first 128 bytes of an inode.
const EXTRA_ISIZE: u16 = 32;
const HALF_MD4: u8 = 1;
/// `s_flags`: names are hashed as signed characters.
const SIGNED_HASH: u32 = 1;
/// `s_state`: cleanly unmounted, and faults are known of.
const VALID: u16 = 1;
const ERRORS: u16 = 2;
/// `s_flags`: the volume is for experimental code.
const TEST_FILESYSTEM: u32 = 4;
/// `s_encoding_flags`: names that are no UTF-8 are refused.
const STRICT: u16 = 1;
/// Unicode 12.1, the only encoding of `casefold`.
const UTF8_12_1: u16 = 1;
const CRC32C: u8 = 1;
/// The most bytes of a label.
pub const LABEL_BYTES: usize = 16;
/// The most bytes of the directory of the last mount.
pub const LAST_MOUNTED_BYTES: usize = 64;
/// Seconds between updates of the block of `mmp`.
const MMP_INTERVAL: u16 = 5;
/// The longest time between updates, in seconds.
const MAX_MMP_INTERVAL: u16 = 300;

/// Returns the superblock with these numbers, without counts of free blocks and inodes.
pub(crate) fn make(options: &Options, config: &Config, numbers: &Numbers) -> Result<Superblock> {
    let mut raw =
        RawSuperblock::read_from_bytes(&[0; 1024]).map_err(|_| Error::options("impossible"))?;
    set_numbers(&mut raw, options, numbers)?;
    if options.revision > 0 {
        set_revision_1(&mut raw, options, config, numbers)?;
    }
    raw.s_magic.set(MAGIC);
    raw.s_state.set(if options.superblocks_only {
        VALID | ERRORS
    } else {
        VALID
    });
    raw.s_creator_os.set(options.creator_os);
    raw.s_errors.set(
        options
            .errors
            .or_else(|| errors(config, &numbers.types))
            .unwrap_or(1),
    );
    for (word, bytes) in raw
        .s_hash_seed
        .iter_mut()
        .zip(options.hash_seed.chunks_exact(4))
    {
        *word = zerocopy::little_endian::U32::read_from_bytes(bytes).unwrap_or_default();
    }
    raw.s_def_hash_version = HALF_MD4;
    raw.s_flags
        .set(SIGNED_HASH | if options.is_test { TEST_FILESYSTEM } else { 0 });
    set_times(&mut raw, options.time);
    let periodic = config.is_on(&numbers.types, "enable_periodic_fsck", false);
    raw.s_max_mnt_count
        .set(if periodic { 20 } else { u16::MAX });
    raw.s_checkinterval
        .set(if periodic { 180 * 86_400 } else { 0 });
    if numbers.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        raw.s_checksum.set(raw.compute_checksum());
    }
    Ok(Superblock::from_raw(
        raw,
        Place::new(Structure::Superblock),
    )?)
}

fn halves(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

fn set_numbers(raw: &mut RawSuperblock, options: &Options, numbers: &Numbers) -> Result<()> {
    let (low, high) = halves(numbers.blocks);
    raw.s_blocks_count_lo.set(low);
    raw.s_blocks_count_hi.set(high);
    let (low, high) = halves(numbers.reserved);
    raw.s_r_blocks_count_lo.set(low);
    raw.s_r_blocks_count_hi.set(high);
    raw.s_inodes_count
        .set(numbers.groups * numbers.inodes_per_group);
    raw.s_first_data_block.set(halves(numbers.first_block()).0);
    let log = numbers.block_size.trailing_zeros() - 10;
    raw.s_log_block_size.set(log);
    raw.s_log_cluster_size.set(log);
    raw.s_blocks_per_group.set(numbers.blocks_per_group);
    raw.s_clusters_per_group.set(numbers.blocks_per_group);
    raw.s_inodes_per_group.set(numbers.inodes_per_group);
    raw.s_feature_compat.set(numbers.features.compat.bits());
    raw.s_feature_incompat.set(numbers.features.incompat.bits());
    raw.s_feature_ro_compat
        .set(numbers.features.ro_compat.bits());
    raw.s_reserved_gdt_blocks.set(numbers.reserved_gdt_blocks);
    raw.s_raid_stride.set(options.stride);
    raw.s_raid_stripe_width.set(options.stripe_width);
    copy_text(
        &mut raw.s_volume_name,
        options.label.as_deref(),
        "the label",
    )?;
    copy_text(
        &mut raw.s_last_mounted,
        options.last_mounted.as_deref(),
        "the last mount point",
    )?;
    raw.s_uuid = options.uuid;
    if let Some(journal) = &options.external_journal {
        raw.s_journal_uuid = journal.uuid;
        raw.s_journal_dev.set(journal.device_number);
    }
    Ok(())
}

fn set_revision_1(
    raw: &mut RawSuperblock,
    options: &Options,
    config: &Config,
    numbers: &Numbers,
) -> Result<()> {
    raw.s_rev_level.set(1);
    raw.s_first_ino.set(FIRST_INO);
    raw.s_inode_size.set(numbers.inode_size);
    if numbers.inode_size > 128 {
        raw.s_min_extra_isize.set(EXTRA_ISIZE);
        raw.s_want_extra_isize.set(EXTRA_ISIZE);
    }
    raw.s_default_mount_opts
        .set(mount_options(config, &numbers.types)?.bits());
    copy_text(
        &mut raw.s_mount_opts,
        options.mount_options.as_deref(),
        "the mount options",
    )?;
    set_features(raw, options, config, numbers)
}

/// Sets the fields that belong to features.
fn set_features(
    raw: &mut RawSuperblock,
    options: &Options,
    config: &Config,
    numbers: &Numbers,
) -> Result<()> {
    let features = numbers.features;
    if features.incompat.contains(Incompat::BIT64) {
        raw.s_desc_size.set(64);
    }
    if features.incompat.contains(Incompat::FLEX_BG) {
        raw.s_log_groups_per_flex = log_groups_per_flex(options, config, &numbers.types)?;
    } else if options.groups_per_flex.is_some() {
        return Err(Error::options("groups of a flexible group need flex_bg"));
    }
    if features.compat.contains(Compat::SPARSE_SUPER2) {
        let last = numbers.groups - 1;
        let wanted = options.backup_superblocks.unwrap_or(2);
        let backups = [
            (wanted > 0 && last > 0).then_some(1),
            (wanted > 1 && last > 1).then_some(last),
        ];
        for (word, group) in raw.s_backup_bgs.iter_mut().zip(backups) {
            word.set(group.unwrap_or(0));
        }
    }
    if features.incompat.contains(Incompat::CASEFOLD) {
        raw.s_encoding.set(UTF8_12_1);
        raw.s_encoding_flags
            .set(if options.strict_encoding { STRICT } else { 0 });
    }
    if features.incompat.contains(Incompat::MMP) {
        // The block is chosen later. Until then the field has a valid number.
        raw.s_mmp_block.set(numbers.blocks - 1);
        let interval = options
            .mmp_interval
            .filter(|interval| *interval > 0)
            .unwrap_or(MMP_INTERVAL);
        if interval > MAX_MMP_INTERVAL {
            let text =
                format!("mmp_update_interval={interval}: up to {MAX_MMP_INTERVAL} is possible");
            return Err(Error::options(text));
        }
        raw.s_mmp_interval.set(interval);
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        raw.s_checksum_type = CRC32C;
    }
    if features.incompat.contains(Incompat::CSUM_SEED) {
        let derived = || extern4_disk::checksum::crc32c(!0, &options.uuid);
        raw.s_checksum_seed
            .set(options.checksum_seed.unwrap_or_else(derived));
    }
    Ok(())
}

fn set_times(raw: &mut RawSuperblock, time: u64) {
    let (low, high) = halves(time);
    let high = high.to_le_bytes()[0];
    for (word, byte) in [
        (&mut raw.s_wtime, &mut raw.s_wtime_hi),
        (&mut raw.s_lastcheck, &mut raw.s_lastcheck_hi),
        (&mut raw.s_mkfs_time, &mut raw.s_mkfs_time_hi),
    ] {
        word.set(low);
        *byte = high;
    }
}

fn copy_text(field: &mut [u8], text: Option<&str>, name: &str) -> Result<()> {
    let text = text.unwrap_or("").as_bytes();
    if text.len() > field.len() || text.contains(&0) {
        let most = field.len();
        return Err(Error::options(format!(
            "{name} has {} bytes, and there is room for {most}",
            text.len()
        )));
    }
    field[..text.len()].copy_from_slice(text);
    Ok(())
}

fn errors(config: &Config, types: &[String]) -> Option<u16> {
    match config.value(types, "errors")? {
        "continue" => Some(1),
        "remount-ro" => Some(2),
        "panic" => Some(3),
        _ => None,
    }
}

fn log_groups_per_flex(options: &Options, config: &Config, types: &[String]) -> Result<u8> {
    let of_config = config
        .number(types, "flex_bg_size")
        .and_then(|size| u32::try_from(size).ok());
    let groups = options.groups_per_flex.or(of_config).unwrap_or(16);
    if !groups.is_power_of_two() {
        return Err(Error::options(format!(
            "{groups} groups of a flexible group: a power of two is possible"
        )));
    }
    Ok(groups.trailing_zeros() as u8)
}

fn mount_options(config: &Config, types: &[String]) -> Result<DefaultMountOptions> {
    let mut options = DefaultMountOptions::empty();
    let names = config.value(types, "default_mntopts").unwrap_or("");
    for word in names.split([',', ' ']).filter(|word| !word.is_empty()) {
        let name = word.strip_prefix('^').unwrap_or(word);
        let option = match name {
            "journal_data_writeback" => {
                DefaultMountOptions::JOURNAL_DATA | DefaultMountOptions::JOURNAL_DATA_ORDERED
            }
            name => DefaultMountOptions::all()
                .iter()
                .find(|option| option.names().any(|known| known == name))
                .ok_or_else(|| {
                    Error::options(format!("default_mntopts: there is no option '{name}'"))
                })?,
        };
        // The three words about the journal's mode stand for each other.
        let mode = DefaultMountOptions::JOURNAL_DATA | DefaultMountOptions::JOURNAL_DATA_ORDERED;
        options.remove(if option.intersects(mode) {
            mode
        } else {
            option
        });
        options.set(option, !word.starts_with('^'));
    }
    Ok(options)
}
