//! Setters for an inode's fields. [`Inode::encode`] writes the new values to the volume.
//!
//! `ext4`, `mkfs` and the builder call them. A setter whose value does not fit the record or the
//! volume's features returns false, or stores the nearest value, as its own documentation says.

use zerocopy::FromZeros;

use super::{
    DeviceNumber, FileKind, Inode, InodeFlags, MAP_SIZE, RawInode, RawInodeExtra, RuleFlags, Rules,
};
use crate::superblock::Superblock;
use crate::time::Timestamp;

impl Inode {
    /// Returns a new inode of this type and these permissions: no links, no blocks, times of zero.
    pub fn new(ino: u32, mode: u16, generation: u32, sb: &Superblock) -> Self {
        let mut base = RawInode::new_zeroed();
        base.i_mode.set(mode);
        base.i_generation.set(generation);
        let mut extra = RawInodeExtra::new_zeroed();
        extra.i_extra_isize.set(Self::extra_isizes(sb).1);
        let kind = FileKind::of_mode(mode).unwrap_or(FileKind::None);
        Self {
            base,
            extra,
            ino,
            kind,
            rules: Rules::of(sb),
        }
    }

    /// Sets the permissions, with set-user-ID, set-group-ID and sticky bit; the type stays.
    pub fn set_permissions(&mut self, permissions: u16) {
        self.base
            .i_mode
            .set(self.mode() & 0xf000 | permissions & 0o7777);
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        let (low, high) = halves(self.storable(uid));
        self.base.i_uid.set(low);
        self.base.l_i_uid_high.set(high);
    }

    /// Sets the group.
    pub fn set_gid(&mut self, gid: u32) {
        let (low, high) = halves(self.storable(gid));
        self.base.i_gid.set(low);
        self.base.l_i_gid_high.set(high);
    }

    /// Returns the id to store for `id`. Where ids have 16 bits, a larger one becomes the overflow
    /// id, as in Linux.
    const fn storable(&self, id: u32) -> u32 {
        const NOBODY: u32 = 65_534;
        if self.rules.has(RuleFlags::SHORT_IDS) && id > 0xffff {
            NOBODY
        } else {
            id
        }
    }

    /// Sets the size in bytes.
    pub fn set_size(&mut self, size: u64) {
        let (low, high) = words(size);
        self.base.i_size_lo.set(low);
        self.base.i_size_high.set(high);
    }

    /// Sets the number of hard links.
    pub fn set_links(&mut self, links: u16) {
        self.base.i_links_count.set(links);
    }

    /// Sets how many units of 512 bytes the file takes. Returns false, and sets nothing, if the
    /// volume's format cannot express the number.
    #[must_use]
    pub fn set_sectors(&mut self, sectors: u64) -> bool {
        let (flags, number) = match (u32::try_from(sectors), self.rules.has(RuleFlags::HUGE_FILE)) {
            (Ok(_), _) => (self.flags() - InodeFlags::HUGE_FILE, sectors),
            (Err(_), true) if sectors < 1 << 48 => (self.flags() - InodeFlags::HUGE_FILE, sectors),
            (Err(_), true) => (
                self.flags() | InodeFlags::HUGE_FILE,
                sectors.div_ceil(1 << self.rules.sector_bits),
            ),
            (Err(_), false) => return false,
        };
        let (low, high) = words(number);
        let Ok(high) = u16::try_from(high) else {
            return false;
        };
        self.set_flags(flags);
        self.base.i_blocks_lo.set(low);
        self.base.l_i_blocks_high.set(high);
        true
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.base.i_flags.set(flags.bits());
    }

    /// Sets the generation.
    pub fn set_generation(&mut self, generation: u32) {
        self.base.i_generation.set(generation);
    }

    /// Sets the block of extended attributes.
    pub fn set_xattr_block(&mut self, block: Option<u64>) {
        let (low, high) = words(block.unwrap_or(0));
        self.base.i_file_acl_lo.set(low);
        if self.rules.has(RuleFlags::WIDE_XATTR_BLOCK) {
            // OK: a volume has fewer than 2^48 blocks.
            self.base.l_i_file_acl_high.set(halves(high).0);
        }
    }

    /// Sets when the file was last read.
    pub fn set_atime(&mut self, time: Timestamp) {
        let (seconds, extra) = self.encoded(time, 16);
        self.base.i_atime.set(seconds);
        self.extra.i_atime_extra.set(extra);
    }

    /// Sets when the inode was last changed.
    pub fn set_ctime(&mut self, time: Timestamp) {
        let (seconds, extra) = self.encoded(time, 8);
        self.base.i_ctime.set(seconds);
        self.extra.i_ctime_extra.set(extra);
    }

    /// Sets when the content was last changed.
    pub fn set_mtime(&mut self, time: Timestamp) {
        let (seconds, extra) = self.encoded(time, 12);
        self.base.i_mtime.set(seconds);
        self.extra.i_mtime_extra.set(extra);
    }

    /// Sets when the file was created, if the record has room for it.
    pub fn set_crtime(&mut self, time: Timestamp) {
        if self.extra_isize() >= 20 {
            let (seconds, extra) = self.encoded(time, 24);
            self.extra.i_crtime.set(seconds);
            self.extra.i_crtime_extra.set(extra);
        }
    }

    /// Returns the seconds and extra bits of `time`; the record has the latter if its extra fields
    /// reach to byte `end`.
    fn encoded(&self, time: Timestamp, end: u16) -> (u32, u32) {
        if self.extra_isize() >= end {
            time.encode()
        } else {
            (time.encode_short(), 0)
        }
    }

    /// Sets when the file was deleted, in seconds since 1970, or the next orphan in the list.
    pub fn set_dtime(&mut self, dtime: u32) {
        self.base.i_dtime.set(dtime);
    }

    /// Sets the project, if the record has room for it.
    pub fn set_project(&mut self, project: u32) {
        if self.extra_isize() >= 32 {
            self.extra.i_projid.set(project);
        }
    }

    /// Sets the version.
    pub fn set_version(&mut self, version: u64) {
        let (low, high) = words(version);
        self.base.l_i_version.set(low);
        if self.extra_isize() >= 28 {
            self.extra.i_version_hi.set(high);
        }
    }

    /// Sets the 60 bytes of `i_block`.
    pub fn set_map(&mut self, map: &[u8; MAP_SIZE]) {
        self.base.i_block = *map;
    }

    /// Sets the number of a device file, in the old form where it fits, as Linux does.
    pub fn set_device(&mut self, number: DeviceNumber) {
        let DeviceNumber { major, minor } = number;
        let mut map = [0; MAP_SIZE];
        if major < 256 && minor < 256 {
            map[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
        } else {
            let new = minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12;
            map[4..8].copy_from_slice(&new.to_le_bytes());
        }
        self.set_map(&map);
    }

    /// Sets how many attributes share the value of an extended attribute inode.
    pub fn set_ea_refcount(&mut self, count: u64) {
        let (low, high) = words(count);
        self.base.l_i_version.set(low);
        self.base.i_ctime.set(high);
    }

    /// Sets the checksum of the value of an extended attribute inode.
    pub fn set_ea_hash(&mut self, hash: u32) {
        self.base.i_atime.set(hash);
    }
}

fn words(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

fn halves(number: u32) -> (u16, u16) {
    let [a, b, c, d] = number.to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}
