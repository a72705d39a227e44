//! The command `extern4`: looks into ext2, ext3 and ext4 images and devices, and changes and mounts
//! them, without the kernel's ext4.
//!
//! Each subcommand has one file under [`cmd`]; the code that they share is next to it. A subcommand
//! writes its result to standard output, reports failures to [`app::App`] and goes on with the
//! rest. `main` turns the worst failure into the exit code.

#![deny(unsafe_code)]

mod activity;
mod app;
mod args;
mod backup;
mod caller;
mod checked;
mod cmd;
mod color;
mod container_format;
mod counters;
mod exit_status;
mod file_flags;
mod fsck_helper;
mod globs;
mod holder;
mod id_names;
mod image_hint;
mod image_path;
mod input;
mod interruptible;
mod json;
mod language;
mod mkfs_helper;
mod mode_change;
mod mount_helper;
mod new_volume;
mod oci_image;
mod operands;
mod other_tools;
mod output;
mod overwrite;
mod owner;
mod posix_regex;
mod progress;
mod real_path;
mod refused;
#[cfg(test)]
mod schema;
mod shown;
mod standard_input;
mod stop;
mod targets;
mod text;
mod usage;
mod uuid_option;
mod verbosity;
mod volume_tree;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::app::{App, Lines, Opening, host_reason, try_help};
use crate::args::Args;
use crate::caller::Caller;
use crate::exit_status::ExitStatus;
use crate::text::{message_of, quoted};

/// The line with which a message about the whole command line ends.
const HELP: &str = "Try 'extern4 --help' for more information.";

/// `bench` counts allocations.
#[global_allocator]
static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;

fn main() -> ExitCode {
    extern4_mountd::signals::outlive_size_limit();
    if let Some(code) = fsck_helper::run(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let line = match mount_helper::read(std::env::args_os()) {
        mount_helper::Line::Run(line) => mkfs_helper::read(line),
        mount_helper::Line::Fake => return ExitCode::SUCCESS,
    };
    let (mut args, places) = match Args::read(&line) {
        Ok(read) => read,
        Err(says) => return explain(&says, &line),
    };
    let mut app = App::new(args.command.name(), args.caller(), args.opening.clone());
    if let Some(option) = args.useless_option() {
        app.fail(
            ExitStatus::Usage,
            format_args!("{option} has no effect on {}", args.command.name()),
        );
        return ExitCode::from(app.status().code());
    }
    app.show_progress(args.progress());
    app.print_full_paths(args.full_paths());
    app.run_lines(Lines {
        name: Args::subcommand,
        run: run_line,
    });
    let places: Vec<_> = places.iter().map(OsString::as_os_str).collect();
    if let Some(line) = globs::expand(&line, &places, &mut app) {
        match Args::read(&line) {
            Ok((expanded, _)) => args = expanded,
            Err(says) => return explain(&says, &line),
        }
    }
    let done = args
        .command
        .run(&mut app)
        .and_then(|()| app.take_unwritten());
    app.close();
    ExitCode::from(match done {
        Ok(()) => app.exit_code(),
        Err(error) => unwritten(&error, &mut app),
    })
}

/// Runs a command line within another one.
fn run_line(line: &[OsString], app: &mut App) -> io::Result<()> {
    match Args::read(line) {
        Ok((args, _)) => {
            app.print_full_paths(args.full_paths());
            args.command.run(app)
        }
        Err(says) => {
            let text = says.render().to_string();
            let reason = text
                .split("\n\n")
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            app.fail(
                ExitStatus::Usage,
                reason.split_whitespace().collect::<Vec<_>>().join(" "),
            );
            Ok(())
        }
    }
}

/// Prints the error in the command line, or the text that `--help` or `--version` asks for.
fn explain(says: &clap::Error, line: &[OsString]) -> ExitCode {
    let command = subcommand(line);
    if let Some(message) = refusal(says, command.as_deref()).or_else(|| other_tool(says)) {
        usage::print(&message);
        return ExitCode::from(ExitStatus::USAGE);
    }
    let (name, help) = match command {
        Some(name) => (format!("extern4: {name}"), try_help(&name)),
        None => ("extern4".to_owned(), HELP.to_owned()),
    };
    if usage::print_error(says, &name, &help) {
        return ExitCode::from(ExitStatus::USAGE);
    }
    let printed = says.print().and_then(|()| io::stdout().flush());
    ExitCode::from(match printed {
        Err(error) if !says.use_stderr() => unwritten(
            &error,
            &mut App::new("help", Caller::root(), Opening::default()),
        ),
        _ => u8::try_from(says.exit_code()).unwrap_or(ExitStatus::USAGE),
    })
}

/// Returns the message about an option that the namesake of a subcommand takes, and that no volume
/// can fulfil, or about an operand that stands where an option is needed.
fn refusal(says: &clap::Error, command: Option<&str>) -> Option<String> {
    let Some(ContextValue::String(given)) = says.get(ContextKind::InvalidArg) else {
        return None;
    };
    if let Some((option, reason)) = refused::find(command?, given) {
        return Some(message_of(command?, format_args!("{option}: {reason}")));
    }
    let is_operand =
        says.kind() == ErrorKind::UnknownArgument && (given == "-" || !given.starts_with('-'));
    let reason = is_operand
        .then(|| refused::operand(command?, given))
        .flatten()?;
    Some(message_of(
        command?,
        format_args!("{}: {reason}", quoted(given)),
    ))
}

/// Returns the message about a program that a user takes for a subcommand.
fn other_tool(says: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(name)) = says.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let advice = other_tools::advice(name)?;
    Some(format!(
        "extern4: unrecognized subcommand {}\n{advice}\n{HELP}",
        quoted(name)
    ))
}

/// Returns the subcommand that the command line names.
fn subcommand(line: &[OsString]) -> Option<String> {
    let known = Args::command();
    let mut words = line.iter().skip(1).filter_map(|word| word.to_str());
    words
        .find(|word| {
            known
                .get_subcommands()
                .any(|command| command.get_name() == *word)
        })
        .map(str::to_owned)
}

/// Returns the exit code for a failure to write the output.
fn unwritten(error: &io::Error, app: &mut App) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return ExitStatus::CLOSED_PIPE;
    }
    app.fail(
        ExitStatus::Failed,
        format_args!("cannot write: {}", host_reason(error)),
    );
    app.exit_code()
}
