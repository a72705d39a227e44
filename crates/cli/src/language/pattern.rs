//! Subcommands with patterns in their paths, which stand for the files that match when the
//! subcommand runs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::statement::{Parser, Statement};
use super::words::Word;
use crate::app::App;
use crate::args::Command;
use crate::exit_status::ExitStatus;
use crate::globs;
use crate::image_path::ImagePath;

/// A subcommand with patterns.
pub(crate) struct PatternLine {
    /// The subcommand as it is if nothing matches.
    pub(super) command: Command,
    /// Its words.
    pub(super) words: Vec<Word>,
    /// The texts of the words that may be paths.
    pub(super) places: Vec<OsString>,
}

impl PatternLine {
    /// Runs the subcommand on the files that match. The error is one of writing the output.
    pub(super) fn run(&self, app: &mut App) -> io::Result<()> {
        let Some((base, words)) = self.expanded(app) else { return self.command.run(app) };
        match Parser::new(base).parsed(words) {
            Ok(Statement::Command(command)) => command.run(app),
            Ok(_) => Ok(()),
            Err(message) => {
                app.fail(ExitStatus::Usage, message);
                Ok(())
            }
        }
    }

    /// Returns the directory that paths start in, and the words with paths in place of patterns;
    /// `None` if nothing matches.
    fn expanded(&self, app: &mut App) -> Option<(ImagePath, Vec<Word>)> {
        let base = app.base()?.clone();
        let opened = app.volume(&base.image)?;
        let mut failed = |path: &Path, error: &extern4::Error| app.error(opened.image_path(path), error);
        let (mut words, mut has_matches) = (Vec::new(), false);
        for word in &self.words {
            let pattern = word.pattern.as_ref().filter(|_| self.places.contains(&word.text));
            let pattern = pattern.map(|pattern| absolute(&base.path, pattern));
            let found = pattern.map(|pattern| globs::matches(&opened.session, &pattern, &mut failed));
            match found.filter(|found| !found.is_empty()) {
                Some(found) => {
                    has_matches = true;
                    words.extend(found.into_iter().map(Word::from));
                }
                None => words.push(word.text.clone().into()),
            }
        }
        has_matches.then_some((base, words))
    }
}

/// Returns the absolute pattern that `pattern` is in a directory.
fn absolute(directory: &Path, pattern: &OsStr) -> PathBuf {
    let directory = OsString::from_vec(globs::escaped(directory.as_os_str().as_bytes()));
    Path::new(&directory).join(pattern)
}
