//! The options of `tree`, and what they say together.
//!
//! `tree` and its parts ask for the form, the order and the columns that result.

use std::ffi::OsString;

use clap::ValueEnum;

use crate::color::When;
use crate::image_path::ImagePath;

#[derive(clap::Args)]
#[command(disable_help_flag = true, args_override_self = true)]
pub(crate) struct Args {
    /// Directories to show
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    pub(super) image_paths: Vec<ImagePath>,
    /// Show names that start with a dot too
    #[arg(short, long)]
    pub(super) all: bool,
    /// Show only directories
    #[arg(short, long)]
    pub(super) directories: bool,
    /// Follow symbolic links to directories
    #[arg(short = 'l')]
    pub(super) follow: bool,
    /// Show the whole path of each file
    #[arg(short)]
    pub(super) full_path: bool,
    /// Stay in one volume, as without this option
    #[arg(short = 'x')]
    one_volume: bool,
    /// Go only this many directories deep
    #[arg(short = 'L', long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) level: Option<u32>,
    /// Show only files with names that match: *, ?, [...], and | between patterns; / at the end for
    /// directories
    #[arg(short = 'P', value_name = "PATTERN")]
    pub(super) pattern: Vec<OsString>,
    /// Leave out files and directories with names that match
    #[arg(short = 'I', value_name = "PATTERN")]
    pub(super) ignored: Vec<OsString>,
    /// Upper and lower case are the same in patterns
    #[arg(long)]
    pub(super) ignore_case: bool,
    /// With -P, show everything in directories with names that match
    #[arg(long)]
    pub(super) matchdirs: bool,
    /// Leave out directories in which nothing is shown
    #[arg(long)]
    pub(super) prune: bool,
    /// Do not go into directories with more files than this
    #[arg(long, value_name = "NUMBER")]
    pub(super) filelimit: Option<usize>,
    /// Show no numbers of directories and files at the end
    #[arg(long)]
    pub(super) noreport: bool,
    /// Draw lines with the characters of UTF-8 or ASCII
    #[arg(long, value_name = "NAME", value_parser = charset)]
    pub(super) charset: Option<Charset>,
    /// Draw no lines
    #[arg(short = 'i')]
    pub(super) no_indent: bool,
    /// Show attributes at the beginning of lines
    #[arg(long)]
    pub(super) metafirst: bool,
    /// Show ? for characters that are not printable
    #[arg(short = 'q')]
    pub(super) question_marks: bool,
    /// Show names as they are; a terminal gets escapes
    #[arg(short = 'N')]
    pub(super) literal: bool,
    /// Show names in double quotes
    #[arg(short = 'Q')]
    pub(super) quote: bool,
    /// Show types and permissions
    #[arg(short = 'p')]
    pub(super) mode: bool,
    /// Show owners
    #[arg(short = 'u')]
    pub(super) user: bool,
    /// Show groups
    #[arg(short = 'g')]
    pub(super) group: bool,
    /// Show sizes
    #[arg(short = 's')]
    size: bool,
    /// Show sizes with a unit, such as 1.5K
    #[arg(short = 'h')]
    human: bool,
    /// Show sizes with a unit of powers of 1000
    #[arg(long)]
    si: bool,
    /// Show as the size of a directory the sum of what is in it
    #[arg(long)]
    pub(super) du: bool,
    /// Show times of the last change
    #[arg(short = 'D')]
    date: bool,
    /// Show times in this form of strftime(3)
    #[arg(long, value_name = "FORMAT")]
    pub(super) timefmt: Option<String>,
    /// Append / to directories, * to programs, | to pipes and = to sockets
    #[arg(short = 'F')]
    pub(super) classify: bool,
    /// Show inode numbers
    #[arg(long)]
    pub(super) inodes: bool,
    /// Sort by the numbers in names
    #[arg(short = 'v', overrides_with_all = ORDERS)]
    by_version: bool,
    /// Sort by time of the last change, oldest first
    #[arg(short = 't', overrides_with_all = ORDERS)]
    by_time: bool,
    /// Sort by time of the last change of attributes, and show that with -D
    #[arg(short = 'c', overrides_with_all = ORDERS)]
    pub(super) by_change: bool,
    /// Do not sort
    #[arg(short = 'U', overrides_with_all = ORDERS)]
    unsorted: bool,
    /// The order of names
    #[arg(long, value_name = "WORD", overrides_with_all = ORDERS)]
    sort: Option<Order>,
    /// Sort backwards
    #[arg(short = 'r')]
    pub(super) reverse: bool,
    /// List directories before files
    #[arg(long)]
    pub(super) dirsfirst: bool,
    /// List files before directories
    #[arg(long)]
    pub(super) filesfirst: bool,
    /// Use no colours
    #[arg(short = 'n')]
    plain: bool,
    /// Use colours also where no terminal is
    #[arg(short = 'C')]
    colored: bool,
    /// Colour names by their type, as LS_COLORS says
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always",
        num_args = 0..=1, require_equals = true)]
    color: When,
    /// Write XML
    #[arg(short = 'X', conflicts_with_all = ["as_json", "json"])]
    as_xml: bool,
    /// Write JSON as tree(1) does
    #[arg(short = 'J', conflicts_with = "json")]
    as_json: bool,
    /// Write one JSON object a line for each file, and one with their numbers
    #[arg(long)]
    pub(super) json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The options of which the last one decides the order.
const ORDERS: [&str; 5] = ["by_version", "by_time", "by_change", "unsorted", "sort"];

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    Json,
    Xml,
    /// An object a line.
    Objects,
}

/// The order of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Order {
    Name,
    Version,
    /// Largest first.
    Size,
    /// Oldest first.
    Mtime,
    /// Oldest first.
    Ctime,
    /// As they stand in the directory.
    None,
}

/// The characters of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    Utf8,
    Ascii,
}

fn charset(text: &str) -> Result<Charset, String> {
    match &*text.to_ascii_lowercase() {
        "utf-8" | "utf8" => Ok(Charset::Utf8),
        "ascii" | "us-ascii" | "ansi_x3.4-1968" => Ok(Charset::Ascii),
        _ => Err("write it as UTF-8 or ASCII".to_owned()),
    }
}

/// The way in which sizes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    Bytes,
    /// With a unit that is a power of this.
    Units(u32),
}

impl Args {
    pub(super) fn form(&self) -> Form {
        match (self.as_json, self.as_xml, self.json) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Xml,
            (.., true) => Form::Objects,
            _ => Form::Lines,
        }
    }

    pub(super) fn order(&self) -> Order {
        let orders = [
            (self.by_version, Order::Version),
            (self.by_time, Order::Mtime),
            (self.by_change, Order::Ctime),
            (self.unsorted, Order::None),
        ];
        let chosen = orders
            .into_iter()
            .find_map(|(given, order)| given.then_some(order));
        chosen.or(self.sort).unwrap_or(Order::Name)
    }

    /// Returns how sizes are shown, if they are.
    pub(super) fn sizes(&self) -> Option<Sizes> {
        match (self.si, self.human, self.size || self.du) {
            (true, ..) => Some(Sizes::Units(1000)),
            (_, true, _) => Some(Sizes::Units(1024)),
            (.., true) => Some(Sizes::Bytes),
            _ => None,
        }
    }

    pub(super) fn shows_time(&self) -> bool {
        self.date || self.timefmt.is_some()
    }

    pub(super) fn color(&self) -> When {
        match (self.colored, self.plain) {
            (true, _) => When::Always,
            (false, true) => When::Never,
            (false, false) => self.color,
        }
    }

    /// Returns whether attributes of files are shown, or count.
    pub(super) fn needs_metadata(&self) -> bool {
        let is_sorted = matches!(self.order(), Order::Size | Order::Mtime | Order::Ctime);
        let is_shown =
            self.mode || self.user || self.group || self.sizes().is_some() || self.shows_time();
        is_sorted || is_shown || self.classify || self.json || self.color().is_wanted()
    }

    /// Returns whether everything has to be read before anything is shown.
    pub(super) fn needs_all(&self) -> bool {
        self.du || self.prune
    }
}
