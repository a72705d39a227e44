//! The attributes of files that `lsattr` shows and `chattr` changes, by letters and by names.
//!
//! `lsattr` and `chattr` use one table, so each letter that is shown can be set where Linux allows
//! it.

use extern4::FileFlags;

/// The letters in the order of `lsattr`, with their bits and their names. The bits come from
/// `FS_IOC_GETFLAGS`; order and names were seen in the output of lsattr 1.47.
const LETTERS: [(u8, u32, &str); 22] = [
    (b's', 0x1, "Secure_Deletion"),
    (b'u', 0x2, "Undelete"),
    (b'S', 0x8, "Synchronous_Updates"),
    (b'D', 0x1_0000, "Synchronous_Directory_Updates"),
    (b'i', 0x10, "Immutable"),
    (b'a', 0x20, "Append_Only"),
    (b'd', 0x40, "No_Dump"),
    (b'A', 0x80, "No_Atime"),
    (b'c', 0x4, "Compression_Requested"),
    (b'E', 0x800, "Encrypted"),
    (b'j', 0x4000, "Journaled_Data"),
    (b'I', 0x1000, "Indexed_directory"),
    (b't', 0x8000, "No_Tailmerging"),
    (b'T', 0x2_0000, "Top_of_Directory_Hierarchies"),
    (b'e', 0x8_0000, "Extents"),
    (b'C', 0x80_0000, "No_COW"),
    (b'x', 0x200_0000, "DAX"),
    (b'F', 0x4000_0000, "Casefold"),
    (b'N', 0x1000_0000, "Inline_Data"),
    (b'P', 0x2000_0000, "Project_Hierarchy"),
    (b'V', 0x10_0000, "Verity"),
    (b'm', 0x400, "Dont_Compress"),
];

/// The letters that `chattr` cannot change: the file system sets them.
const FIXED: &[u8] = b"EINV";

/// Returns the flags as letters, with a hyphen for each that is not set.
pub(crate) fn letters(flags: FileFlags) -> String {
    LETTERS
        .iter()
        .map(|(letter, bit, _)| {
            if flags.bits() & bit != 0 {
                char::from(*letter)
            } else {
                '-'
            }
        })
        .collect()
}

/// Returns the names of the flags that are set.
pub(crate) fn set(flags: FileFlags) -> impl Iterator<Item = &'static str> {
    LETTERS
        .iter()
        .filter(move |(_, bit, _)| flags.bits() & bit != 0)
        .map(|(.., name)| *name)
}

/// Returns the names of the flags that are set, as text.
pub(crate) fn names(flags: FileFlags) -> String {
    let names: Vec<&str> = set(flags).collect();
    if names.is_empty() {
        "---".to_owned()
    } else {
        names.join(", ")
    }
}

/// A change of flags, as `chattr` takes it: `+ai-d` or `=A`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlagChange {
    added: u32,
    removed: u32,
    /// The flags that replace all that can be changed.
    exactly: Option<u32>,
}

impl FlagChange {
    /// Reads an operator with letters, `+ai`, `-d` or `=A`, after the operators that came before.
    pub(crate) fn and(mut self, text: &str) -> Result<Self, String> {
        let (operator, letters) = text.split_at_checked(1).unwrap_or((text, ""));
        let mut bits = 0;
        for letter in letters.bytes() {
            let found = LETTERS.iter().find(|(known, ..)| *known == letter);
            let Some((_, bit, name)) = found else {
                return Err(format!("{:?} is no attribute of files", char::from(letter)));
            };
            if FIXED.contains(&letter) {
                return Err(format!(
                    "{} ({name}) is set by the file system itself",
                    char::from(letter)
                ));
            }
            bits |= bit;
        }
        match operator {
            "+" if bits != 0 => self.added |= bits,
            "-" if bits != 0 => self.removed |= bits,
            "=" => self.exactly = Some(self.exactly.unwrap_or(0) | bits),
            _ => return Err(format!("{text:?} is no change: write it as +A, -d or =ai")),
        }
        if self.added & self.removed != 0 {
            return Err("an attribute is not both added and removed".to_owned());
        }
        if self.exactly.is_some() && self.added | self.removed != 0 {
            return Err("= does not go with + and -".to_owned());
        }
        Ok(self)
    }

    /// Returns whether there is nothing to change.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the flags that the change makes of these.
    pub(crate) fn apply(&self, flags: FileFlags) -> FileFlags {
        let fixed = |(letter, bit, _): &(u8, u32, &str)| FIXED.contains(letter).then_some(*bit);
        let kept: u32 = LETTERS.iter().filter_map(fixed).sum();
        FileFlags::from_bits_retain(match self.exactly {
            Some(bits) => flags.bits() & kept | bits,
            None => (flags.bits() | self.added) & !self.removed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FlagChange, letters, names};
    use extern4::FileFlags;

    #[test]
    fn flags_are_shown_as_by_lsattr() {
        let flags = FileFlags::from_bits_retain(0x8_0020);
        assert_eq!(letters(flags), "-----a--------e-------");
        assert_eq!(names(flags), "Append_Only, Extents");
        assert_eq!(names(FileFlags::empty()), "---");
    }

    #[test]
    fn changes_are_read() {
        let read = |words: &[&str]| {
            words
                .iter()
                .try_fold(FlagChange::default(), |change, word| change.and(word))
        };
        let check = |words: &[&str], before, after| {
            let change = read(words).expect("a change");
            assert_eq!(
                change.apply(FileFlags::from_bits_retain(before)).bits(),
                after,
                "{words:?}"
            );
        };
        check(&["+a", "-d"], 0x8_0040, 0x8_0020);
        check(&["=A"], 0x1040, 0x1080);
        check(&["="], 0x8_0040, 0);
        for words in [
            &["+"][..],
            &["-q"],
            &["+E"],
            &["+a", "-a"],
            &["=a", "+d"],
            &["a"],
            &[""],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
