//! The context of selected lines: `-A`, `-B`, `-C` and `-NUM`.
//!
//! `grep` flattens it into its arguments. The digits of `-12` are options of one letter each, whose
//! places give the number.

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

/// The numbers of lines that are printed around each selected one.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Context {
    /// Print this many lines behind each selected one
    #[arg(short = 'A', long, value_name = "NUM")]
    after_context: Option<usize>,
    /// Print this many lines before each selected one
    #[arg(short = 'B', long, value_name = "NUM")]
    before_context: Option<usize>,
    /// Print this many lines on both sides of each selected one, as -NUM does
    #[arg(short = 'C', long, value_name = "NUM")]
    context: Option<usize>,
    #[command(flatten)]
    digits: Digits,
    /// The line between groups of lines, in place of --
    #[arg(long, value_name = "TEXT", overrides_with = "no_group_separator")]
    group_separator: Option<String>,
    /// Print no line between groups of lines
    #[arg(long, overrides_with = "group_separator")]
    no_group_separator: bool,
}

impl Context {
    fn both(&self) -> Option<usize> {
        self.context.or(self.digits.0)
    }

    /// Returns the number of lines before each selected one, if there is to be a context.
    pub(super) fn before(&self) -> Option<usize> {
        self.before_context.or(self.both())
    }

    /// Returns the number of lines behind each selected one, if there is to be a context.
    pub(super) fn after(&self) -> Option<usize> {
        self.after_context.or(self.both())
    }

    /// Returns the line between groups of lines.
    pub(super) fn separator(&self) -> Option<&str> {
        (!self.no_group_separator).then(|| self.group_separator.as_deref().unwrap_or("--"))
    }
}

/// The number that `-NUM` gives.
#[derive(Clone, Copy, Debug, Default)]
struct Digits(Option<usize>);

const DIGITS: [&str; 10] = [
    "digit0", "digit1", "digit2", "digit3", "digit4", "digit5", "digit6", "digit7", "digit8",
    "digit9",
];

impl clap::Args for Digits {
    fn augment_args(command: Command) -> Command {
        command.args(DIGITS.iter().zip('0'..='9').map(|(id, digit)| {
            // A value that is never given, so that each place counts.
            let arg = Arg::new(*id)
                .short(digit)
                .hide(true)
                .action(ArgAction::Append);
            arg.num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Digits {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut places: Vec<(usize, usize)> = Vec::new();
        for (digit, id) in DIGITS.iter().enumerate() {
            places.extend(
                matches
                    .indices_of(id)
                    .into_iter()
                    .flatten()
                    .map(|at| (at, digit)),
            );
        }
        places.sort_unstable();
        let number = |number: usize, digit| number.saturating_mul(10).saturating_add(digit);
        let read = places
            .iter()
            .fold(0, |read, (_, digit)| number(read, *digit));
        Ok(Self((!places.is_empty()).then_some(read)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
