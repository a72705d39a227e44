//! `extern4 grep`: prints the lines of files that match a pattern, as GNU `grep` does.
//!
//! `args` calls [`run`]. The exit codes are grep's: 0 with a match, 1 without, 2 for trouble.

mod colors;
mod context;
mod matcher;
mod pattern;
mod search;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use extern4::FileType;
use extern4::Glob;

use crate::app::{App, Shown, Target, host_reason};
use crate::color::When;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::input::{Input, below, inputs};
use crate::interruptible;
use crate::output::flush;
use crate::targets::{MAX_LINKS, renamed};

use context::Context;
use search::{Name, Search};

#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    args_override_self = true,
    after_help = "Exit codes: 0 some line was selected; 1 none was; 2 trouble.\n\
        A pattern that refers back to a group, and one of -P, backtracks: a line on which that takes too many \
        steps is an error."
)]
pub(crate) struct Args {
    /// The pattern, unless -e or -f gives one, and the files to search; '-' is standard input, as
    /// is no file
    #[arg(value_name = "PATTERN] [IMAGE:/PATH")]
    words: Vec<OsString>,
    /// A pattern; may be given more than once
    #[arg(
        short = 'e',
        long = "regexp",
        value_name = "PATTERN",
        allow_hyphen_values = true
    )]
    patterns: Vec<OsString>,
    /// Patterns, one a line, from this file of the host ('-' for standard input)
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Patterns are extended regular expressions
    #[arg(short = 'E', long, overrides_with_all = SYNTAXES)]
    extended_regexp: bool,
    /// Patterns are texts
    #[arg(short = 'F', long, overrides_with_all = SYNTAXES)]
    fixed_strings: bool,
    /// Patterns are basic regular expressions, as without this option
    #[arg(short = 'G', long, overrides_with_all = SYNTAXES)]
    basic_regexp: bool,
    /// The pattern is a regular expression of Perl's
    #[arg(short = 'P', long, overrides_with_all = SYNTAXES)]
    perl_regexp: bool,
    /// Upper and lower case are the same
    #[arg(
        short,
        long,
        visible_short_alias = 'y',
        overrides_with = "no_ignore_case"
    )]
    ignore_case: bool,
    /// Upper and lower case differ, as without this option
    #[arg(long)]
    no_ignore_case: bool,
    /// Match whole words only
    #[arg(short, long)]
    word_regexp: bool,
    /// Match whole lines only
    #[arg(short = 'x', long)]
    line_regexp: bool,
    /// Select the lines that do not match
    #[arg(short = 'v', long)]
    invert_match: bool,
    /// Print the number of selected lines of each file
    #[arg(short, long)]
    count: bool,
    /// Print the names of the files with selected lines
    #[arg(short = 'l', long, overrides_with = "files_without_match")]
    files_with_matches: bool,
    /// Print the names of the files without selected lines
    #[arg(short = 'L', long)]
    files_without_match: bool,
    /// Print only the parts of lines that match
    #[arg(short, long)]
    only_matching: bool,
    /// Print nothing, and end at the first selected line
    #[arg(short, long, visible_alias = "silent")]
    quiet: bool,
    /// Say nothing of files that cannot be read
    #[arg(short = 's', long)]
    no_messages: bool,
    /// Stop in a file after this many selected lines
    #[arg(short, long, value_name = "NUM")]
    max_count: Option<u64>,
    /// Print the byte at which a line begins
    #[arg(short, long)]
    byte_offset: bool,
    /// Print the names of files before lines
    #[arg(short = 'H', long, overrides_with = "no_filename")]
    with_filename: bool,
    /// Print no names of files before lines
    #[arg(short = 'h', long)]
    no_filename: bool,
    /// The name to print for standard input
    #[arg(
        long,
        value_name = "NAME",
        default_value = "(standard input)",
        hide_default_value = true
    )]
    label: String,
    /// Print the numbers of lines
    #[arg(short = 'n', long)]
    line_number: bool,
    /// Print a NUL behind the names of files
    #[arg(short = 'Z', long)]
    null: bool,
    /// Lines end with a NUL
    #[arg(short = 'z', long)]
    null_data: bool,
    /// Treat every file as text
    #[arg(short = 'a', long)]
    text: bool,
    /// Take files that are not text for files without a match
    #[arg(short = 'I')]
    no_binary: bool,
    /// How to treat files that are not text: by a message (binary), as text (text), or as -I
    /// (without-match)
    #[arg(long, value_name = "TYPE")]
    binary_files: Option<BinaryFiles>,
    /// Write each line at once
    #[arg(long)]
    line_buffered: bool,
    /// No effect: files are never converted
    #[arg(short = 'U', long)]
    binary: bool,
    /// Let the texts of lines begin at a tab stop
    #[arg(short = 'T', long)]
    initial_tab: bool,
    #[command(flatten)]
    context: Context,
    /// Search everything below directories; symbolic links are not followed
    #[arg(short, long, overrides_with = "dereference_recursive")]
    recursive: bool,
    /// Search everything below directories, also where symbolic links lead
    #[arg(short = 'R', long)]
    dereference_recursive: bool,
    /// How to treat directories: read, which fails, skip, or recurse as -r
    #[arg(short = 'd', long, value_name = "ACTION")]
    directories: Option<Directories>,
    /// How to treat devices and pipes, which have no contents in a volume: read or skip
    #[arg(short = 'D', long, value_name = "ACTION")]
    devices: Option<Devices>,
    /// With -r, search only files with such names
    #[arg(long, value_name = "GLOB")]
    include: Vec<OsString>,
    /// Do not search files with such names
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
    /// Do not search files with names that match a pattern of this file of the host, one a line
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// With -r, do not search directories with such names
    #[arg(long, value_name = "GLOB")]
    exclude_dir: Vec<OsString>,
    /// Colour matches, names and numbers, as GREP_COLORS says
    #[arg(long, visible_alias = "colour", value_name = "WHEN", default_value = "auto",
        default_missing_value = "auto", num_args = 0..=1, require_equals = true)]
    color: When,
    /// Write one JSON object for each line, part of a line, number or name that would be printed.
    /// Every file is text
    #[arg(long, conflicts_with_all = ["quiet", "null"])]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The options of which the last one says what patterns are.
const SYNTAXES: [&str; 4] = [
    "extended_regexp",
    "fixed_strings",
    "basic_regexp",
    "perl_regexp",
];

/// How files that are not text are treated.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum BinaryFiles {
    Binary,
    Text,
    WithoutMatch,
}

/// How directories are treated.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Directories {
    Read,
    Skip,
    Recurse,
}

/// How devices are treated.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum Devices {
    Read,
    Skip,
}

impl Args {
    /// Returns whether every file is treated as text.
    fn treats_all_as_text(&self) -> bool {
        self.text || self.json || self.binary_files == Some(BinaryFiles::Text)
    }

    /// Returns whether files that are not text have no match.
    fn skips_binary(&self) -> bool {
        self.no_binary || self.binary_files == Some(BinaryFiles::WithoutMatch)
    }

    fn is_recursive(&self) -> bool {
        self.recursive
            || self.dereference_recursive
            || self.directories == Some(Directories::Recurse)
    }

    /// Returns whether a file of this type is passed over.
    fn skips(&self, kind: FileType) -> bool {
        match kind {
            FileType::Directory => self.directories == Some(Directories::Skip),
            FileType::Regular | FileType::Symlink => false,
            _ => self.devices == Some(Devices::Skip),
        }
    }
}

/// The names of files that a recursive search takes.
struct Names {
    include: Vec<Glob>,
    exclude: Vec<Glob>,
    exclude_dir: Vec<Glob>,
}

impl Names {
    /// Returns the names of the command line. Reports a file of patterns that cannot be read.
    fn new(args: &Args, app: &mut App) -> Option<Self> {
        let globs = |texts: &[OsString]| {
            texts
                .iter()
                .map(|text| Glob::new(text.as_bytes(), false))
                .collect::<Vec<_>>()
        };
        let mut exclude = globs(&args.exclude);
        for file in &args.exclude_from {
            match interruptible::read(file, app.stop()) {
                Ok(text) => {
                    let lines = text
                        .split(|byte| *byte == b'\n')
                        .filter(|line| !line.is_empty());
                    exclude.extend(lines.map(|line| Glob::new(line, false)));
                }
                Err(error) => {
                    app.fail_at(ExitStatus::Failed, file.display(), host_reason(&error));
                    return None;
                }
            }
        }
        Some(Self {
            include: globs(&args.include),
            exclude,
            exclude_dir: globs(&args.exclude_dir),
        })
    }

    fn takes(&self, name: &[u8]) -> bool {
        let any = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(name));
        !any(&self.exclude) && (self.include.is_empty() || any(&self.include))
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    app.compares();
    let has_pattern = !args.patterns.is_empty() || !args.file.is_empty();
    let (pattern, files) = match args.words.split_first() {
        _ if has_pattern => (None, &args.words[..]),
        Some((pattern, files)) => (Some(pattern), files),
        None => {
            app.fail(ExitStatus::Usage, "a pattern is missing");
            return Ok(());
        }
    };
    if args.is_recursive() && files.is_empty() {
        app.fail(
            ExitStatus::Usage,
            "-r takes the directories to search, such as disk.img:/etc",
        );
        return Ok(());
    }
    let regex = match pattern::compile(args, pattern, app) {
        Ok(regex) => regex,
        Err(message) => {
            app.fail(ExitStatus::Usage, message);
            return Ok(());
        }
    };
    let Some(names) = Names::new(args, app) else {
        return Ok(());
    };
    let many = files.len() > 1 || args.is_recursive();
    let shown = if args.null {
        app.shown().as_operands()
    } else {
        app.shown()
    };
    let out = app.out(args.files_with_matches || args.files_without_match);
    let mut search = Search::new(
        args,
        regex,
        args.with_filename || many && !args.no_filename,
        out,
    );
    for input in inputs(files, app) {
        let done = match &input {
            Input::Volume(image_path) if args.is_recursive() => Tree {
                args,
                names: &names,
                shown,
                search: &mut search,
                app,
                above: Vec::new(),
            }
            .named(image_path)?,
            input if is_passed_over(input, args, &names, app) => false,
            _ => file(&input, args, shown, &mut search, app)?,
        };
        if done {
            break;
        }
    }
    if !search.selected_any {
        app.differs();
    }
    app.end_output(&mut search.out)
}

/// Searches one file. Returns true if the search is over.
fn file(
    input: &Input,
    args: &Args,
    shown: Shown,
    search: &mut Search<'_>,
    app: &mut App,
) -> io::Result<bool> {
    if args.no_messages && !is_readable(input, app) {
        app.found(ExitStatus::Failed);
        return Ok(false);
    }
    let Some(source) = input.open(app) else {
        return Ok(false);
    };
    let done = search.file(
        source,
        &Name {
            input,
            shown: input.name(shown, &args.label),
        },
    );
    let done = match done {
        Ok(search::Found::Binary) => {
            flush(&mut search.out)?;
            app.note(format_args!("{input}: binary file matches"));
            Ok(())
        }
        Ok(search::Found::Shown) => Ok(()),
        Err(failure) => {
            flush(&mut search.out)?;
            Err(failure)
        }
    };
    input.settle(done, app)?;
    Ok(args.quiet && search.selected_any)
}

/// Returns whether the input can be opened, without a message if not.
fn is_readable(input: &Input, app: &mut App) -> bool {
    match input {
        Input::Volume(image_path) => match app.target(image_path) {
            Some(target) => target.session().open(target.path()).is_ok(),
            None => false,
        },
        Input::Standard | Input::Host(_) => true,
    }
}

/// Returns whether an operand is not searched, by its name or its type.
fn is_passed_over(input: &Input, args: &Args, names: &Names, app: &mut App) -> bool {
    let Input::Volume(image_path) = input else {
        return false;
    };
    if image_path
        .path
        .file_name()
        .is_some_and(|name| !names.takes(name.as_bytes()))
    {
        return true;
    }
    if args.directories != Some(Directories::Skip) && args.devices != Some(Devices::Skip) {
        return false;
    }
    let Some(target) = app.target(image_path) else {
        return false;
    };
    target
        .session()
        .metadata(target.path())
        .is_ok_and(|found| args.skips(found.file_type()))
}

/// A search of the regular files below an operand.
struct Tree<'a, 's> {
    args: &'a Args,
    names: &'a Names,
    shown: Shown,
    search: &'a mut Search<'s>,
    app: &'a mut App,
    /// The directories from which links led here.
    above: Vec<PathBuf>,
}

impl Tree<'_, '_> {
    /// Searches below an operand, which is followed if it is a link. Returns true if the search is
    /// over.
    fn named(&mut self, image_path: &ImagePath) -> io::Result<bool> {
        let Some(target) = self.app.target(image_path) else {
            return Ok(false);
        };
        let top = target
            .session()
            .canonicalize(target.path())
            .unwrap_or_else(|_| target.path().to_owned());
        self.below(&target, &top, &top)
    }

    /// Searches below directory `real`, which messages call `shown`. Returns true if the search is
    /// over.
    fn below(&mut self, target: &Target, real: &Path, shown: &Path) -> io::Result<bool> {
        let mut walk = target.session().walk(real);
        while let Some(entry) = walk.next() {
            let (entry, kind) =
                match entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind))) {
                    Ok(found) => found,
                    Err(error) => {
                        flush(&mut self.search.out)?;
                        let path = renamed(error.path().unwrap_or(real), real, shown);
                        self.app.error(target.volume.image_path(&path), &error);
                        continue;
                    }
                };
            let name = entry.file_name().as_bytes();
            let path = renamed(entry.path(), real, shown);
            let is_done = match kind {
                FileType::Directory => {
                    let skipped = self.names.exclude_dir.iter().any(|glob| glob.matches(name));
                    if skipped && entry.depth() > 0 {
                        walk.skip_subtree();
                    }
                    false
                }
                FileType::Regular if self.names.takes(name) => self.file(target, &path)?,
                FileType::Symlink if self.args.dereference_recursive => {
                    self.link(target, entry.path(), &path)?
                }
                _ => false,
            };
            if is_done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn file(&mut self, target: &Target, path: &Path) -> io::Result<bool> {
        file(
            &below(&target.image_path, path),
            self.args,
            self.shown,
            self.search,
            self.app,
        )
    }

    /// Searches what a symbolic link leads to. Returns true if the search is over.
    fn link(&mut self, target: &Target, link: &Path, shown: &Path) -> io::Result<bool> {
        let found = target
            .volume
            .reach(link, |session, path| session.metadata(path));
        let name = link.file_name().unwrap_or_default().as_bytes();
        let is_directory = match found {
            Ok(found) if found.is_file() && self.names.takes(name) => {
                return self.file(target, shown);
            }
            Ok(found) => {
                found.is_dir() && !self.names.exclude_dir.iter().any(|glob| glob.matches(name))
            }
            Err(error) => {
                flush(&mut self.search.out)?;
                self.app.error(target.volume.image_path(shown), &error);
                false
            }
        };
        let Some(real) = is_directory
            .then(|| target.session().canonicalize(link).ok())
            .flatten()
        else {
            return Ok(false);
        };
        self.above.push(link.to_owned());
        let is_loop =
            self.above.len() > MAX_LINKS || self.above.iter().any(|above| above.starts_with(&real));
        let is_done = if is_loop {
            flush(&mut self.search.out)?;
            self.app.note_at(
                target.volume.image_path(shown),
                "the link leads back to a directory above it",
            );
            false
        } else {
            self.below(target, &real, shown)?
        };
        self.above.pop();
        Ok(is_done)
    }
}
