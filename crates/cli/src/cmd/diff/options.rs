//! The options of GNU diff.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use extern4::Glob;
use extern4::diff::{FileOptions, NameOptions, TextOptions};
use regex::bytes::Regex;

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::interruptible;
use crate::posix_regex::{Syntax, without_references};

/// Lines around a change.
const CONTEXT: usize = 3;
/// The lines that `-p` shows: the start of a function in C.
const FUNCTION: &str = "^[[:alpha:]$_]";

/// The options of GNU diff. With any of them, two trees are compared as it compares directories.
#[derive(clap::Args, Default, PartialEq, Eq)]
pub(super) struct Gnu {
    /// Only say whether files differ
    #[arg(short = 'q', long)]
    brief: bool,
    /// Say which files are the same, too
    #[arg(short = 's', long)]
    pub(super) report_identical_files: bool,
    /// Write the changes as diff(1) does without -u
    #[arg(long, conflicts_with = "unified_3")]
    normal: bool,
    /// Write the changes with three lines around them, as patch(1) reads them
    #[arg(short = 'u', id = "unified_3")]
    unified_3: bool,
    /// Write the changes with NUM lines around them
    #[arg(
        short = 'U',
        id = "unified_num",
        value_name = "NUM",
        conflicts_with = "normal"
    )]
    unified_num: Vec<usize>,
    /// Write the changes with NUM lines around them, or three
    #[arg(long, value_name = "NUM", num_args = 0..=1, require_equals = true,
        default_missing_value = "3", conflicts_with = "normal")]
    unified: Vec<usize>,
    /// Show the line in which the changed C function begins
    #[arg(short = 'p', long)]
    show_c_function: bool,
    /// Show the last line above the changes that matches
    #[arg(short = 'F', long, value_name = "RE")]
    show_function_line: Vec<OsString>,
    /// Write LABEL in place of the name and the time of the first file, then of the second
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(super) label: Vec<OsString>,
    /// Compare subdirectories, too
    #[arg(short, long)]
    recursive: bool,
    /// Compare symbolic links, and not the files that they lead to
    #[arg(long)]
    no_dereference: bool,
    /// Take a file that is not there as empty
    #[arg(short = 'N', long)]
    pub(super) new_file: bool,
    /// Take a file that is not in the first tree as empty
    #[arg(short = 'P', long)]
    unidirectional_new_file: bool,
    /// Leave out files whose names match
    #[arg(short = 'x', long, value_name = "PATTERN")]
    exclude: Vec<OsString>,
    /// Leave out files whose names match a line of FILE
    #[arg(short = 'X', long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,
    /// Begin with this name in the directory
    #[arg(short = 'S', long, value_name = "NAME")]
    starting_file: Option<OsString>,
    /// File names that differ in case are of two files, as always
    #[arg(long, hide = true)]
    no_ignore_file_name_case: bool,
    /// Ignore case in contents
    #[arg(short, long)]
    ignore_case: bool,
    /// Ignore whether tabs or spaces lead to a column
    #[arg(short = 'E', long)]
    ignore_tab_expansion: bool,
    /// Ignore white space at the ends of lines
    #[arg(short = 'Z', long)]
    ignore_trailing_space: bool,
    /// Ignore how much white space there is
    #[arg(short = 'b', long)]
    ignore_space_change: bool,
    /// Ignore all white space
    #[arg(short = 'w', long)]
    ignore_all_space: bool,
    /// Ignore changes of blank lines alone
    #[arg(short = 'B', long)]
    ignore_blank_lines: bool,
    /// Ignore changes of which all lines match
    #[arg(short = 'I', long, value_name = "RE")]
    ignore_matching_lines: Vec<OsString>,
    /// Take all files as text
    #[arg(short = 'a', long)]
    text: bool,
    /// Ignore a carriage return at the end of a line
    #[arg(long)]
    strip_trailing_cr: bool,
    /// Look for the smallest set of changes
    #[arg(short = 'd', long)]
    minimal: bool,
}

/// The form in which the changes of two texts are shown.
pub(super) struct TextForm {
    /// Lines around a change; `None` for the form of diff(1) without `-u`.
    pub(super) context: Option<usize>,
    /// The lines that are shown behind the header of a hunk.
    pub(super) headings: Option<Regex>,
}

impl Gnu {
    /// Returns the form of changes. Of two trees, `-u` says that it is as a patch; two files always
    /// are. Reports an expression that is none.
    pub(super) fn text_form(&self, are_trees: bool, app: &mut App) -> Option<TextForm> {
        let numbers = self.unified_num.iter().chain(&self.unified).copied();
        let context = numbers.chain(self.unified_3.then_some(CONTEXT)).max();
        let default = Some(CONTEXT).filter(|_| !are_trees && !self.normal);
        let headings = if self.show_c_function {
            vec![FUNCTION.to_owned()]
        } else {
            Vec::new()
        };
        Some(TextForm {
            context: context.or(default),
            headings: any_of(headings, &self.show_function_line, app)?,
        })
    }

    /// Returns the lines of which a change does not count; `None` within for no lines. Reports an
    /// expression that is none.
    pub(super) fn ignored(&self, app: &mut App) -> Option<Option<Regex>> {
        any_of(Vec::new(), &self.ignore_matching_lines, app)
    }

    /// Returns how files are compared, but for the lines that are ignored.
    pub(super) fn files(&self) -> FileOptions<'static> {
        FileOptions {
            lines: TextOptions {
                minimal: self.minimal,
                ignore_case: self.ignore_case,
                ignore_tab_expansion: self.ignore_tab_expansion,
                ignore_trailing_space: self.ignore_trailing_space,
                ignore_space_change: self.ignore_space_change,
                ignore_all_space: self.ignore_all_space,
            },
            brief: self.brief,
            text: self.text,
            strip_trailing_cr: self.strip_trailing_cr,
            ignore_blank_lines: self.ignore_blank_lines,
            ..FileOptions::default()
        }
    }

    /// Returns how trees are compared by their names. Reports a file of patterns that cannot be
    /// read.
    pub(super) fn names(&self, app: &mut App) -> Option<NameOptions> {
        let starting_file = self.starting_file.as_ref();
        Some(NameOptions {
            recursive: self.recursive,
            no_dereference: self.no_dereference,
            new_file: self.new_file,
            unidirectional_new_file: self.unidirectional_new_file,
            exclude: self.excludes(app)?,
            starting_file: starting_file.map(|name| name.as_bytes().to_vec()),
        })
    }

    /// Returns the patterns of names that are left out. Reports a file that cannot be read.
    fn excludes(&self, app: &mut App) -> Option<Vec<Glob>> {
        let mut patterns: Vec<_> = self
            .exclude
            .iter()
            .map(|pattern| pattern.as_bytes().to_vec())
            .collect();
        for path in &self.exclude_from {
            match interruptible::read(path, app.stop()) {
                Ok(text) => {
                    let lines = text
                        .split(|byte| *byte == b'\n')
                        .map(<[u8]>::trim_ascii_end);
                    patterns.extend(lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec));
                }
                Err(error) => {
                    app.fail_at(ExitStatus::Failed, path.display(), host_reason(&error));
                    return None;
                }
            }
        }
        Some(
            patterns
                .iter()
                .map(|pattern| Glob::new(pattern, false))
                .collect(),
        )
    }
}

/// Compiles expressions in the syntax of grep(1), and others in that of the library. `None` within
/// for no expressions. Reports one that is none.
fn any_of(mut all: Vec<String>, texts: &[OsString], app: &mut App) -> Option<Option<Regex>> {
    for text in texts {
        match text
            .to_str()
            .ok_or("it is not UTF-8".to_owned())
            .and_then(|text| without_references(text, Syntax::Basic))
        {
            Ok(translated) => all.push(translated),
            Err(reason) => {
                app.fail_at(ExitStatus::Usage, text.display(), reason);
                return None;
            }
        }
    }
    if all.is_empty() {
        return Some(None);
    }
    let all: Vec<_> = all.iter().map(|one| format!("(?:{one})")).collect();
    match Regex::new(&all.join("|")) {
        Ok(any) => Some(Some(any)),
        Err(_) => {
            let texts: Vec<_> = texts.iter().map(|text| text.to_string_lossy()).collect();
            app.fail_at(
                ExitStatus::Usage,
                texts.join(" "),
                "not a regular expression, or too large a one",
            );
            None
        }
    }
}
