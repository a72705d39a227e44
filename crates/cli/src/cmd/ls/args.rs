//! The options of `ls`, and what they say together.
//!
//! `ls` asks for the form, the order and the marks that result. As with GNU `ls`, the last of
//! several options that exclude each other counts.

use std::ffi::OsString;

use clap::ValueEnum;
use extern4::Glob;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;

use crate::color::When;
use crate::image_path::ImagePath;
use crate::text::BlockSize;

use super::long::TimeStyle;
use super::name::{Indicators, Quoting};
use super::order::{Order, Sorting, Stamp};

#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    /// Files and directories to list
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    pub(super) image_paths: Vec<ImagePath>,
    /// Show type, permissions, links, owner, group, size and time
    #[arg(short = 'l', overrides_with_all = FORMATS)]
    long: bool,
    /// Show names that start with a dot, '.' and '..' too
    #[arg(short, long, overrides_with = "almost_all")]
    all: bool,
    /// Show names that start with a dot, but not '.' and '..'
    #[arg(short = 'A', long, overrides_with = "all")]
    almost_all: bool,
    /// List the directories below too
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
    /// Show inode numbers
    #[arg(short, long)]
    pub(super) inode: bool,
    /// Show the space that files take, in units of 1024 bytes
    #[arg(short = 's', long = "size")]
    pub(super) blocks: bool,
    /// Show sizes with a unit, such as 1.5K
    #[arg(short, long, overrides_with_all = ["si", "block_size"])]
    human_readable: bool,
    /// Show sizes with a unit of powers of 1000
    #[arg(long, overrides_with = "block_size")]
    si: bool,
    /// Show sizes in units of this many bytes: 1M, or M to show the unit too
    #[arg(long, value_name = "SIZE", value_parser = BlockSize::parse)]
    block_size: Option<BlockSize>,
    /// Show space in units of 1024 bytes, as without this option
    #[arg(short, long)]
    kibibytes: bool,
    /// Like -l, but with user and group numbers instead of the names in the image's /etc/passwd and
    /// /etc/group
    #[arg(short, long = "numeric-uid-gid", overrides_with_all = FORMATS)]
    numeric: bool,
    /// Like -l, without the owner
    #[arg(short = 'g')]
    no_owner: bool,
    /// Like -l, without the group
    #[arg(short = 'o')]
    without_group: bool,
    /// With -l, leave out the group
    #[arg(short = 'G', long)]
    no_group: bool,
    /// With -l, show the author, who is the owner
    #[arg(long)]
    author: bool,
    /// Show security contexts (SELinux)
    #[arg(short = 'Z', long)]
    pub(super) context: bool,
    /// One name a line, unless the list is a long one
    #[arg(short = '1', overrides_with_all = ["columns", "across", "commas", "format"])]
    one: bool,
    /// In columns, read downwards
    #[arg(short = 'C', overrides_with_all = FORMATS)]
    columns: bool,
    /// In columns, read across
    #[arg(short = 'x', overrides_with_all = FORMATS)]
    across: bool,
    /// In lines, with commas between the names
    #[arg(short = 'm', overrides_with_all = FORMATS)]
    commas: bool,
    /// The form of the list
    #[arg(long, value_name = "WORD", overrides_with_all = FORMATS)]
    format: Option<Format>,
    /// The width of lines; 0 for no limit
    #[arg(short, long, value_name = "COLUMNS")]
    width: Option<usize>,
    /// The distance of tab stops in columns; 0 for spaces only
    #[arg(short = 'T', long, value_name = "COLUMNS")]
    tabsize: Option<usize>,
    /// List directories themselves, not what is in them
    #[arg(short, long)]
    pub(super) directory: bool,
    /// Show what symbolic links lead to in place of them
    #[arg(short = 'L', long)]
    pub(super) dereference: bool,
    /// Follow the symbolic links among the arguments
    #[arg(short = 'H', long)]
    pub(super) dereference_command_line: bool,
    /// Follow the symbolic links to directories among the arguments
    #[arg(long)]
    pub(super) dereference_command_line_symlink_to_dir: bool,
    /// Leave out names that match the pattern
    #[arg(short = 'I', long, value_name = "PATTERN")]
    ignore: Vec<OsString>,
    /// Leave out names that match the pattern, unless -a or -A is given
    #[arg(long, value_name = "PATTERN")]
    hide: Vec<OsString>,
    /// Leave out names that end with ~
    #[arg(short = 'B', long)]
    ignore_backups: bool,
    /// Sort by time of the last change, newest first
    #[arg(short = 't', overrides_with_all = ORDERS)]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S', overrides_with_all = ORDERS)]
    by_size: bool,
    /// Sort by what stands behind the last dot
    #[arg(short = 'X', overrides_with_all = ORDERS)]
    by_extension: bool,
    /// Sort by the numbers in names: file-9 before file-10
    #[arg(short = 'v', overrides_with_all = ORDERS)]
    by_version: bool,
    /// Do not sort
    #[arg(short = 'U', overrides_with_all = ORDERS)]
    unsorted: bool,
    /// Show everything, unsorted: -a and -U, without -l, -s and colours
    #[arg(short = 'f')]
    raw: bool,
    /// The order of names
    #[arg(long, value_name = "WORD", overrides_with_all = ORDERS)]
    sort: Option<Order>,
    /// Sort backwards
    #[arg(short, long)]
    pub(super) reverse: bool,
    /// List directories before files
    #[arg(long)]
    group_directories_first: bool,
    /// With -t or -l, use the time of the last change of attributes; alone, sort by it
    #[arg(short = 'c', overrides_with_all = ["access_time", "time"])]
    change_time: bool,
    /// With -t or -l, use the time of the last reading; alone, sort by it
    #[arg(short = 'u', overrides_with_all = ["change_time", "time"])]
    access_time: bool,
    /// The time to show and sort by
    #[arg(long, value_name = "WORD")]
    time: Option<Stamp>,
    /// The form of times: full-iso, long-iso, iso, locale or +FORMAT
    #[arg(long, value_name = "STYLE", value_parser = TimeStyle::parse)]
    time_style: Option<TimeStyle>,
    /// Like -l --time-style=full-iso
    #[arg(long)]
    full_time: bool,
    /// Append / to directories, * to programs, @ to links, | to pipes and = to sockets
    #[arg(short = 'F', long, value_name = "WHEN", num_args = 0..=1, default_missing_value = "always", require_equals = true)]
    classify: Option<When>,
    /// Like -F, without *
    #[arg(long)]
    file_type: bool,
    /// Append / to directories
    #[arg(short = 'p')]
    slash: bool,
    /// The marks to append to names
    #[arg(long, value_name = "WORD")]
    indicator_style: Option<Indicators>,
    /// Print names as they are
    #[arg(short = 'N', long)]
    literal: bool,
    /// Print C escapes for bytes that are not printable
    #[arg(short = 'b', long)]
    escape: bool,
    /// Print names in double quotes
    #[arg(short = 'Q', long)]
    quote_name: bool,
    /// Print ? for bytes that are not printable
    #[arg(short = 'q', long)]
    hide_control_chars: bool,
    /// The form of names
    #[arg(long, value_name = "WORD")]
    quoting_style: Option<Quoting>,
    /// End lines with a NUL, with names as they are
    #[arg(long)]
    zero: bool,
    /// Colour names by their type, as LS_COLORS says
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always",
        num_args = 0..=1, require_equals = true)]
    color: When,
    /// Write one JSON object a line for each entry
    #[arg(long)]
    pub(super) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The options of which the last one decides the form of the list.
const FORMATS: [&str; 6] = ["long", "numeric", "columns", "across", "commas", "format"];

/// The options of which the last one decides the order.
const ORDERS: [&str; 6] = [
    "by_time",
    "by_size",
    "by_extension",
    "by_version",
    "unsorted",
    "sort",
];

/// The form of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// As -l
    #[value(alias = "verbose")]
    Long,
    /// As -1
    SingleColumn,
    /// As -C
    #[value(alias = "vertical")]
    Columns,
    /// As -x
    #[value(alias = "horizontal")]
    Across,
    /// As -m
    Commas,
}

/// The names that a listing leaves out.
pub(super) struct Hidden {
    dots: bool,
    patterns: Vec<Glob>,
}

impl Hidden {
    /// Returns whether the listing leaves this name out.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.dots && name.starts_with(b".")
            || self.patterns.iter().any(|pattern| pattern.matches(name))
    }
}

impl Args {
    /// Returns whether `.` and `..` are shown.
    pub(super) fn shows_dots(&self) -> bool {
        self.all || self.raw
    }

    pub(super) fn hidden(&self) -> Hidden {
        let all = self.all || self.almost_all || self.raw;
        let hide = self.hide.iter().filter(|_| !all);
        let mut patterns: Vec<_> = self
            .ignore
            .iter()
            .chain(hide)
            .map(|text| Glob::new(text.as_bytes(), false))
            .collect();
        if self.ignore_backups {
            patterns.push(Glob::new(b"*~", false));
        }
        Hidden {
            dots: !all,
            patterns,
        }
    }

    pub(super) fn form(&self) -> Format {
        let terminal = std::io::stdout().is_terminal();
        let forms = [
            (self.one || self.zero && !self.long, Format::SingleColumn),
            (self.columns, Format::Columns),
            (self.across, Format::Across),
            (self.commas, Format::Commas),
        ];
        if self.long || self.numeric || self.full_time || self.no_owner || self.without_group {
            return Format::Long;
        }
        let chosen = forms
            .into_iter()
            .find_map(|(given, form)| given.then_some(form))
            .or(self.format);
        chosen.unwrap_or(if terminal {
            Format::Columns
        } else {
            Format::SingleColumn
        })
    }

    /// Returns how sizes are shown that the options speak of.
    fn unit(&self) -> Option<BlockSize> {
        let chosen = [
            (self.human_readable, BlockSize::Human),
            (self.si, BlockSize::Decimal),
        ];
        let chosen = chosen
            .into_iter()
            .find_map(|(given, unit)| given.then_some(unit));
        chosen.or_else(|| self.block_size.clone())
    }

    /// Returns how sizes of files are shown.
    pub(super) fn size_unit(&self) -> BlockSize {
        self.unit().unwrap_or(BlockSize::of(1))
    }

    /// Returns how the space that files take is shown.
    pub(super) fn space_unit(&self) -> BlockSize {
        self.unit().unwrap_or(BlockSize::of(1024))
    }

    /// Returns how the listing is sorted.
    pub(super) fn sorting(&self) -> Sorting {
        let orders = [
            (self.by_time, Order::Time),
            (self.by_size, Order::Size),
            (self.by_extension, Order::Extension),
            (self.by_version, Order::Version),
            (self.unsorted || self.raw, Order::None),
        ];
        let chosen = orders
            .into_iter()
            .find_map(|(given, order)| given.then_some(order))
            .or(self.sort);
        let has_stamp = self.change_time || self.access_time || self.time.is_some();
        let implied = if has_stamp && self.form() != Format::Long {
            Order::Time
        } else {
            Order::Name
        };
        let order = chosen.unwrap_or(implied);
        let directories_first = self.group_directories_first && order != Order::None;
        Sorting {
            order,
            stamp: self.stamp(),
            directories_first,
            reverse: self.reverse,
        }
    }

    pub(super) fn stamp(&self) -> Stamp {
        match (self.change_time, self.access_time) {
            (true, _) => Stamp::Ctime,
            (_, true) => Stamp::Atime,
            _ => self.time.unwrap_or(Stamp::Mtime),
        }
    }

    pub(super) fn time_style(&self) -> TimeStyle {
        let full = self.full_time.then_some(TimeStyle::FullIso);
        let usual = || {
            std::env::var("TIME_STYLE")
                .ok()
                .and_then(|text| TimeStyle::parse(&text).ok())
        };
        full.or_else(|| self.time_style.clone())
            .or_else(usual)
            .unwrap_or(TimeStyle::Locale)
    }

    pub(super) fn is_numeric(&self) -> bool {
        self.numeric
    }

    pub(super) fn shows_author(&self) -> bool {
        self.author
    }

    pub(super) fn shows_owner(&self) -> bool {
        !self.no_owner
    }

    pub(super) fn shows_group(&self) -> bool {
        !(self.without_group || self.no_group)
    }

    pub(super) fn indicators(&self) -> Indicators {
        let classify = self.classify.is_some_and(|when| match when {
            When::Auto => std::io::stdout().is_terminal(),
            When::Always => true,
            When::Never => false,
        });
        match (classify, self.file_type, self.slash) {
            (true, ..) => Indicators::Classify,
            (_, true, _) => Indicators::FileType,
            (.., true) => Indicators::Slash,
            _ => self.indicator_style.unwrap_or(Indicators::None),
        }
    }

    /// Returns the form of names for output to a terminal, or to something else.
    pub(super) fn quoting(&self, terminal: bool) -> Quoting {
        match (self.literal || self.zero, self.escape, self.quote_name) {
            (true, ..) => Quoting::Literal,
            (_, true, _) => Quoting::Escape,
            (.., true) => Quoting::C,
            _ => {
                let usual = if terminal {
                    Quoting::ShellEscape
                } else {
                    Quoting::Literal
                };
                let set = || std::env::var("QUOTING_STYLE").ok();
                let set = || set().and_then(|text| Quoting::from_str(&text, false).ok());
                self.quoting_style.or_else(set).unwrap_or(usual)
            }
        }
    }

    /// Returns whether literal names have `?` for bytes that are not printable.
    pub(super) fn hides_control(&self, terminal: bool) -> bool {
        self.hide_control_chars || terminal
    }

    /// Returns the byte that ends a line.
    pub(super) fn end(&self) -> u8 {
        if self.zero { 0 } else { b'\n' }
    }

    /// Returns the distance of tab stops.
    pub(super) fn tab(&self) -> usize {
        let set = || {
            std::env::var("TABSIZE")
                .ok()
                .and_then(|text| text.parse().ok())
        };
        self.tabsize.or_else(set).unwrap_or(8)
    }

    pub(super) fn color(&self) -> When {
        if self.json || self.zero || self.raw && self.color == When::Auto {
            When::Never
        } else {
            self.color
        }
    }

    /// Returns the width of lines.
    pub(super) fn line_width(&self) -> usize {
        let columns = || {
            std::env::var("COLUMNS")
                .ok()
                .and_then(|text| text.parse().ok())
        };
        let terminal = || {
            rustix::termios::tcgetwinsize(std::io::stdout())
                .ok()
                .map(|size| usize::from(size.ws_col))
        };
        match self.width {
            Some(0) => usize::MAX,
            Some(width) => width,
            None => columns()
                .or_else(terminal)
                .filter(|width| *width > 0)
                .unwrap_or(80),
        }
    }
}
