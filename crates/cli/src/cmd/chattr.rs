//! `extern4 chattr`: changes attributes such as immutable and append-only.
//!
//! `args` calls [`run`]. A change that the volume or the caller's rights do not allow is reported
//! at its file.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use extern4::FileFlags;

use crate::app::{App, Target};
use crate::checked::{Check, Checked};
use crate::exit_status::ExitStatus;
use crate::file_flags::{FlagChange, letters};
use crate::targets::{Traversal, change_files, written_paths};

/// The arguments.
pub(crate) type Args = Checked<Line>;

#[derive(clap::Args)]
#[command(
    after_help = "Changes are +LETTERS, -LETTERS or =LETTERS before the files. Letters: a append only, A no \
    access times, c compressed, C no copy on write, d no dump, D synchronous directory, i immutable, j journaled \
    data, m not compressed, P project hierarchy, s secure deletion, S synchronous, t no tail merging, T top of a \
    hierarchy, u undeletable, x direct access. The form of the block map (e) and folded names (F) stay as they are."
)]
pub(crate) struct Line {
    /// Changes, and behind them the files to change
    #[arg(
        value_name = "CHANGE|IMAGE:/PATH",
        required = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
    /// Change everything below directories too; symbolic links are left alone
    #[arg(short = 'R')]
    recursive: bool,
    /// Print the attributes of each file that is changed
    #[arg(short = 'V')]
    verbose: bool,
    /// Print no messages about files that cannot be changed
    #[arg(short = 'f')]
    silent: bool,
    /// The project to which the files are charged
    #[arg(short, value_name = "PROJECT")]
    project: Option<u32>,
    #[arg(skip)]
    change: FlagChange,
}

impl Check for Line {
    /// Takes the changes off the words, and leaves the files.
    fn check(&mut self) -> Result<(), String> {
        let is_change = |word: &OsString| {
            let first = word.as_os_str().as_bytes().first();
            first.is_some_and(|first| b"+-=".contains(first))
        };
        if self.words.iter().any(|word| word == "-v") {
            return Err(
                "-v: the generation of an inode is not changed while the volume is in use"
                    .to_owned(),
            );
        }
        let files = self
            .words
            .iter()
            .position(|word| !is_change(word))
            .unwrap_or(self.words.len());
        for word in self.words.drain(..files) {
            self.change = self.change.and(&word.to_string_lossy())?;
        }
        if let Some(option) = self
            .words
            .iter()
            .find(|word| word.as_os_str().as_bytes().starts_with(b"-"))
        {
            return Err(format!("unexpected argument '{}' found", option.display()));
        }
        if self.words.is_empty() {
            return Err("there is no file after the changes".to_owned());
        }
        if self.change.is_empty() && self.project.is_none() {
            return Err("there is no change: write one as +A, -d or =ai".to_owned());
        }
        Ok(())
    }
}

/// The flag for the form of the block map, which a file keeps.
const EXTENTS: u32 = 0x8_0000;

pub(crate) fn run(Checked(args): &Args, app: &mut App) -> io::Result<()> {
    app.set_silent(args.silent);
    for image_path in written_paths(&args.words, app) {
        if let Some(target) = app.target(&image_path) {
            change(args, &target, app);
        }
    }
    app.set_silent(false);
    Ok(())
}

fn change(args: &Line, target: &Target, app: &mut App) {
    let found = target.session().symlink_metadata(target.path());
    if found.is_ok_and(|found| !found.is_dir() && !found.is_file()) {
        let reason = "only files and directories have attributes";
        return app.fail_at(ExitStatus::Failed, &target.image_path, reason);
    }
    let traversal = if args.recursive {
        Traversal::Physical
    } else {
        Traversal::Single
    };
    change_files(target, traversal, app, |file| {
        let found = file.metadata;
        if !found.is_dir() && !found.is_file() {
            return Ok(None);
        }
        let mut flags = args.change.apply(found.flags());
        flags.set(
            FileFlags::from_bits_retain(EXTENTS),
            found.flags().bits() & EXTENTS != 0,
        );
        file.session.set_flags(file.path, flags)?;
        if let Some(project) = args.project {
            file.session.set_project(file.path, project)?;
        }
        Ok(args
            .verbose
            .then(|| format!("Flags of {} set as {}", file.quoted(), letters(flags))))
    });
}
