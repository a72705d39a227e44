//! A subcommand of the language, with the words that it was written in.
//!
//! Patterns and inodes in its paths stand for the files that are there when it runs, and relative
//! paths start in the directory of that moment. `statement` makes it, and `interpreter` runs it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::statement::{Parser, Statement};
use super::words::{Meaning, Word};
use crate::app::{App, Opened};
use crate::args::Command;
use crate::exit_status::ExitStatus;
use crate::globs;
use crate::image_path::ImagePath;

/// A subcommand and its words.
pub(crate) struct CommandLine {
    /// The subcommand as it is in `base`, with all words taken for names.
    pub(super) command: Command,
    pub(super) words: Vec<Word>,
    /// The texts of the words that may be paths.
    pub(super) places: Vec<OsString>,
    /// The directory that its relative paths start in, as far as that was known.
    pub(super) base: ImagePath,
}

impl CommandLine {
    /// Runs the subcommand. `parser` is made if it is needed. The error is one of writing the
    /// output.
    pub(super) fn run(&self, parser: &mut Option<Parser>, app: &mut App) -> io::Result<()> {
        let Some(base) = app.base().cloned() else {
            return Ok(());
        };
        let is_name = |word: &Word| matches!(word.meaning, Meaning::Name | Meaning::Directory);
        if base == self.base
            && self
                .words
                .iter()
                .all(|word| is_name(word) || !self.is_place(word))
        {
            return self.command.run(app);
        }
        let Some(words) = self.expanded(&base, app) else {
            return Ok(());
        };
        let parser = parser.get_or_insert_with(|| Parser::new(base.clone()));
        parser.stand_at(base);
        match parser.parsed(words) {
            Ok(Statement::Command(line)) => line.command.run(app),
            Ok(_) => Ok(()),
            Err(message) => {
                app.fail(ExitStatus::Usage, message);
                Ok(())
            }
        }
    }

    fn is_place(&self, word: &Word) -> bool {
        self.places.contains(&word.text)
    }

    /// Returns the words with paths in place of patterns and inodes. A pattern that nothing matches
    /// stays. Reports an inode that no file has.
    fn expanded(&self, base: &ImagePath, app: &mut App) -> Option<Vec<Word>> {
        let mut words = Vec::new();
        for word in &self.words {
            let found = match word.meaning {
                Meaning::Directory => vec![base.path.clone()],
                _ if self.is_place(word) => files(word, base, app)?,
                _ => Vec::new(),
            };
            if found.is_empty() {
                words.push(word.text.clone().into())
            } else {
                words.extend(found.into_iter().map(Word::from))
            }
        }
        Some(words)
    }
}

/// Returns the files that a pattern or an inode stands for; none for a name, and for a pattern that
/// nothing matches. Reports an inode that no file has.
pub(super) fn files(word: &Word, base: &ImagePath, app: &mut App) -> Option<Vec<PathBuf>> {
    match &word.meaning {
        Meaning::Name | Meaning::Directory => Some(Vec::new()),
        Meaning::Pattern(pattern) => {
            let opened = app.volume(&base.image)?;
            let mut failed =
                |path: &Path, error: &extern4::Error| app.error(opened.image_path(path), error);
            Some(globs::matches(
                &opened.session,
                &absolute(&base.path, pattern),
                &mut failed,
            ))
        }
        Meaning::Inode(number) => {
            let opened = app.volume(&base.image)?;
            let path = path_of(&opened, *number);
            if path.is_none() {
                let reason =
                    format!("no file has this inode number; 'inode -n {number}' shows the inode");
                app.fail_at(ExitStatus::Failed, word.text.display(), reason);
            }
            path.map(|path| vec![path])
        }
    }
}

/// Returns the path of the file with an inode number, or one of its paths.
fn path_of(opened: &Opened, number: u64) -> Option<PathBuf> {
    let mut walk = opened.session.walk("/").flatten();
    walk.find(|entry| entry.ino() == number)
        .map(extern4::DirEntry::into_path)
}

/// Returns the absolute pattern that `pattern` is in a directory.
fn absolute(directory: &Path, pattern: &OsStr) -> PathBuf {
    let directory = OsString::from_vec(globs::escaped(directory.as_os_str().as_bytes()));
    Path::new(&directory).join(pattern)
}
