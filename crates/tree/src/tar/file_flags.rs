//! Inode flags in archives: the record `SCHILY.fflags`, as libarchive's `bsdtar --fflags` writes
//! it.
//!
//! `read` and `write` share the table. The names were seen in archives of bsdtar 3.6.2 for files of
//! which `chattr` had set each flag; `journal-data` and the further names that are read come from
//! libarchive's table. libarchive has no name for `casefold`. Names that Linux has no flag for,
//! such as the flags of macOS, say nothing about an ext4 file, and are passed over as unknown
//! records are.

use extern4_disk::inode::InodeFlags;

/// The names that are written, each with its flag.
const NAMES: [(&[u8], InodeFlags); 14] = [
    (b"sappnd", InodeFlags::APPEND),
    (b"schg", InodeFlags::IMMUTABLE),
    (b"nodump", InodeFlags::NODUMP),
    (b"undel", InodeFlags::UNRM),
    (b"compress", InodeFlags::COMPR),
    (b"noatime", InodeFlags::NOATIME),
    (b"dirsync", InodeFlags::DIRSYNC),
    (b"journal-data", InodeFlags::JOURNAL_DATA),
    (b"secdel", InodeFlags::SECRM),
    (b"sync", InodeFlags::SYNC),
    (b"notail", InodeFlags::NOTAIL),
    (b"topdir", InodeFlags::TOPDIR),
    (b"projinherit", InodeFlags::PROJINHERIT),
    (b"casefold", InodeFlags::CASEFOLD),
];

/// Further names that are read.
const ALIASES: [(&[u8], InodeFlags); 5] = [
    (b"sappend", InodeFlags::APPEND),
    (b"schange", InodeFlags::IMMUTABLE),
    (b"simmutable", InodeFlags::IMMUTABLE),
    (b"journal", InodeFlags::JOURNAL_DATA),
    (b"securedeletion", InodeFlags::SECRM),
];

/// Returns the names of the flags; empty without any that has one.
pub(super) fn names(flags: InodeFlags) -> Vec<u8> {
    let set = NAMES.iter().filter(|(_, flag)| flags.contains(*flag));
    set.map(|(name, _)| *name).collect::<Vec<_>>().join(&b',')
}

/// Returns the flags with these names.
pub(super) fn parse(names: &[u8]) -> InodeFlags {
    let words = names.split(|byte| matches!(byte, b',' | b' ' | b'\t'));
    let flag = |word: &[u8]| NAMES.iter().chain(&ALIASES).find(|(name, _)| *name == word);
    words
        .filter_map(flag)
        .fold(InodeFlags::empty(), |flags, (_, flag)| flags | *flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_flags_are_each_other() {
        let all = NAMES
            .iter()
            .fold(InodeFlags::empty(), |all, (_, flag)| all | *flag);
        assert_eq!(parse(&names(all)), all);
        // All that users can set, but for the one flag that says how the host reads a file.
        assert_eq!(InodeFlags::SETTABLE - all, InodeFlags::DAX);
        assert_eq!(names(InodeFlags::empty()), b"");
        assert_eq!(
            parse(b"simmutable, hidden,,nodump"),
            InodeFlags::IMMUTABLE | InodeFlags::NODUMP
        );
    }
}
