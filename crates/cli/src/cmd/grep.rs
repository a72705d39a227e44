//! `extern4 grep`: prints the lines of files that match a pattern, as GNU `grep` does.
//!
//! `args` calls [`run`]. The exit codes are grep's: 0 with a match, 1 without, 2 for trouble.

mod colors;
mod pattern;
mod search;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use extern4::FileType;
use extern4_tree::Glob;

use crate::app::{App, Shown};
use crate::color::When;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::input::{Input, below, inputs};
use crate::output::flush;

use search::{Name, Search};

#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    args_override_self = true,
    after_help = "Exit codes: 0 some line was selected; 1 none was; 2 trouble.\n\
        Patterns have no back-references; -o prints the first alternative that matches, not the longest."
)]
pub(crate) struct Args {
    /// The pattern, unless -e or -f gives one, and the files to search; '-' is standard input, as
    /// is no file
    #[arg(value_name = "PATTERN] [IMAGE:/PATH")]
    words: Vec<OsString>,
    /// A pattern; may be given more than once
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN", allow_hyphen_values = true)]
    patterns: Vec<OsString>,
    /// Patterns, one a line, from this file of the host ('-' for standard input)
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Patterns are extended regular expressions
    #[arg(short = 'E', long, overrides_with_all = ["fixed_strings", "basic_regexp"])]
    extended_regexp: bool,
    /// Patterns are texts
    #[arg(short = 'F', long, overrides_with_all = ["extended_regexp", "basic_regexp"])]
    fixed_strings: bool,
    /// Patterns are basic regular expressions, as without this option
    #[arg(short = 'G', long)]
    basic_regexp: bool,
    /// Upper and lower case are the same
    #[arg(short, long, visible_short_alias = 'y', overrides_with = "no_ignore_case")]
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
    #[arg(long, value_name = "NAME", default_value = "(standard input)", hide_default_value = true)]
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
    /// Print this many lines behind each selected one
    #[arg(short = 'A', long, value_name = "NUM")]
    after_context: Option<usize>,
    /// Print this many lines before each selected one
    #[arg(short = 'B', long, value_name = "NUM")]
    before_context: Option<usize>,
    /// Print this many lines on both sides of each selected one
    #[arg(short = 'C', long, value_name = "NUM")]
    context: Option<usize>,
    /// Search everything below directories; symbolic links are not followed
    #[arg(short, long)]
    recursive: bool,
    /// With -r, search only files with such names
    #[arg(long, value_name = "GLOB")]
    include: Vec<OsString>,
    /// Do not search files with such names
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,
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

/// The names of files that a recursive search takes.
struct Names {
    include: Vec<Glob>,
    exclude: Vec<Glob>,
    exclude_dir: Vec<Glob>,
}

impl Names {
    fn new(args: &Args) -> Self {
        let globs = |texts: &[OsString]| {
            texts.iter().map(|text| Glob::new(text.as_bytes(), false)).collect::<Vec<_>>()
        };
        Self {
            include: globs(&args.include),
            exclude: globs(&args.exclude),
            exclude_dir: globs(&args.exclude_dir),
        }
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
    if args.recursive && files.is_empty() {
        app.fail(ExitStatus::Usage, "-r takes the directories to search, such as disk.img:/etc");
        return Ok(());
    }
    let regex = match pattern::compile(args, pattern, app) {
        Ok(regex) => regex,
        Err(message) => {
            app.fail(ExitStatus::Usage, message);
            return Ok(());
        }
    };
    let many = files.len() > 1 || args.recursive;
    let shown = if args.null { app.shown().as_operands() } else { app.shown() };
    let out = app.out(args.files_with_matches || args.files_without_match);
    let mut search = Search::new(args, regex, args.with_filename || many && !args.no_filename, out);
    for input in inputs(files, app) {
        let done = match &input {
            Input::Volume(image_path) if args.recursive => tree(image_path, args, shown, &mut search, app)?,
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
    let Some(source) = input.open(app) else { return Ok(false) };
    let done = search.file(source, &Name { input, shown: input.name(shown, &args.label) });
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

/// Searches the regular files of a tree. Returns true if the search is over.
fn tree(
    image_path: &ImagePath,
    args: &Args,
    shown: Shown,
    search: &mut Search<'_>,
    app: &mut App,
) -> io::Result<bool> {
    let Some(target) = app.target(image_path) else { return Ok(false) };
    let names = Names::new(args);
    // As an operand, a link is followed.
    let top = target.session().canonicalize(target.path()).unwrap_or_else(|_| target.path().to_owned());
    let mut walk = target.session().walk(&top);
    while let Some(entry) = walk.next() {
        let (entry, kind) = match entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind))) {
            Ok(found) => found,
            Err(error) => {
                flush(&mut search.out)?;
                let path = error.path().unwrap_or(&top).to_owned();
                app.error(target.volume.image_path(&path), &error);
                continue;
            }
        };
        let name = entry.file_name().as_bytes();
        match kind {
            FileType::Directory => {
                let skipped = names.exclude_dir.iter().any(|glob| glob.matches(name));
                if skipped && entry.depth() > 0 {
                    walk.skip_subtree();
                }
            }
            FileType::Regular
                if names.takes(name) && file(&below(image_path, entry.path()), args, shown, search, app)? =>
            {
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}
