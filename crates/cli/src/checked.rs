//! Rules of a command line that clap cannot express.
//!
//! The arguments of subcommands implement [`Check`], and clap calls it when it reads a line. So
//! `run` gets only arguments that go together, and a wrong line ends as any other usage error does.

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, FromArgMatches};

/// Arguments with a rule about how they go together.
pub(crate) trait Check {
    /// Checks the rule. The error is the message for the user.
    fn check(&mut self) -> Result<(), String>;
}

/// Arguments that have been checked, so a script with a wrong line changes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked<A>(pub(crate) A);

impl<A: FromArgMatches + Check> FromArgMatches for Checked<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = A::from_arg_matches(matches)?;
        let wrong = |message| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"));
        args.check().map_err(wrong)?;
        Ok(Self(args))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: clap::Args + Check> clap::Args for Checked<A> {
    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}
