//! Types and permission bits.
//!
//! `ls`, `stat`, `find` and `chmod` print modes with it, as GNU's tools do.

use std::fmt;

use extern4::FileType;

/// A mode as `ls -l` writes it: `drwxr-xr-t`.
#[derive(Clone, Copy)]
pub(crate) struct ModeText {
    /// Type of the file.
    pub(crate) kind: FileType,
    /// `st_mode`; only the permission, set-id and sticky bits count.
    pub(crate) mode: u32,
}

impl ModeText {
    fn letters(self) -> [u8; 10] {
        let mut text = *b"----------";
        text[0] = type_letter(self.kind);
        for (index, letter) in b"rwxrwxrwx".iter().enumerate() {
            if self.mode & (0o400 >> index) != 0 {
                text[index + 1] = *letter;
            }
        }
        for (bit, at, letter) in [(0o4000, 3, b's'), (0o2000, 6, b's'), (0o1000, 9, b't')] {
            if self.mode & bit != 0 {
                text[at] = if text[at] == b'x' {
                    letter
                } else {
                    letter.to_ascii_uppercase()
                };
            }
        }
        text
    }
}

impl fmt::Display for ModeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.letters()
            .iter()
            .try_for_each(|letter| fmt::Write::write_char(f, char::from(*letter)))
    }
}

/// Returns the letter that `ls -l` and `find -type` use.
pub(crate) const fn type_letter(kind: FileType) -> u8 {
    match kind {
        FileType::Regular => b'-',
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        FileType::CharDevice => b'c',
        FileType::BlockDevice => b'b',
        FileType::Fifo => b'p',
        FileType::Socket => b's',
    }
}

/// Returns the type in words, as `stat` writes it.
pub(crate) const fn type_name(kind: FileType, size: u64) -> &'static str {
    match kind {
        FileType::Regular if size == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character special file",
        FileType::BlockDevice => "block special file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Returns the permission bits as an octal number of four digits.
pub(crate) fn octal_mode(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::ModeText;
    use extern4::FileType;

    #[test]
    fn modes_are_as_ls_writes_them() {
        let check =
            |kind, mode, shown: &str| assert_eq!(ModeText { kind, mode }.to_string(), shown);
        check(FileType::Regular, 0o100644, "-rw-r--r--");
        check(FileType::Directory, 0o041777, "drwxrwxrwt");
        check(FileType::Directory, 0o041776, "drwxrwxrwT");
        check(FileType::Regular, 0o104755, "-rwsr-xr-x");
        check(FileType::Regular, 0o106644, "-rwSr-Sr--");
        check(FileType::Symlink, 0o120777, "lrwxrwxrwx");
        check(FileType::Socket, 0o140000, "s---------");
    }
}
