//! The command `extern4`: looks into ext2, ext3 and ext4 images and devices, and changes and mounts
//! them, without the kernel's ext4.
//!
//! Each subcommand has one file under [`cmd`]; the code that they share is next to it. A subcommand
//! writes its result to standard output, reports failures to [`app::App`] and goes on with the
//! rest. `main` turns the worst failure into the exit code.

#![deny(unsafe_code)]

mod app;
mod args;
mod backup;
mod blockmap;
mod caller;
mod checked;
mod cmd;
mod color;
mod container_format;
mod control;
mod counters;
mod exit_status;
mod file_flags;
mod globs;
mod id_names;
mod image_path;
mod input;
mod kernel_copy;
mod language;
mod mode_change;
mod mount_helper;
mod mount_table;
mod new_volume;
mod operands;
mod output;
mod overwrite;
mod owner;
mod posix_regex;
mod real_path;
mod refused;
mod standard_input;
mod stop;
mod targets;
mod text;
mod verbosity;
mod volume_tree;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue};
use extern4_measure::json;

use crate::app::{App, Opening, host_reason, message_of, try_help};
use crate::args::Args;
use crate::caller::Caller;
use crate::exit_status::ExitStatus;
use crate::text::escape;

/// `bench` counts allocations.
#[global_allocator]
static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;

fn main() -> ExitCode {
    cmd::mount::outlive_size_limit();
    let line = match mount_helper::read(std::env::args_os()) {
        mount_helper::Line::Run(line) => line,
        mount_helper::Line::Fake => return ExitCode::SUCCESS,
    };
    let (mut args, places) = match Args::read(&line) {
        Ok(read) => read,
        Err(says) => return explain(&says),
    };
    let mut app = App::new(args.command.name(), args.caller(), args.opening.clone());
    if let Some(option) = args.useless_option() {
        app.fail(ExitStatus::Usage, format_args!("{option} has no effect on {}", args.command.name()));
        return ExitCode::from(app.status().code());
    }
    let places: Vec<_> = places.iter().map(OsString::as_os_str).collect();
    if let Some(line) = globs::expand(&line, &places, &mut app) {
        match Args::read(&line) {
            Ok((expanded, _)) => args = expanded,
            Err(says) => return explain(&says),
        }
    }
    let done = args.command.run(&mut app).and_then(|()| app.take_unwritten());
    app.close();
    ExitCode::from(match done {
        Ok(()) => app.exit_code(),
        Err(error) => unwritten(&error, &mut app),
    })
}

/// Prints the error in the command line, or the text that `--help` or `--version` asks for.
fn explain(says: &clap::Error) -> ExitCode {
    let text = says.render().to_string();
    if let Some(error) = text.strip_prefix("error: ") {
        // A pattern of the shell may have put in the name of another user's file.
        let command = subcommand();
        let lines = match refusal(says, command.as_deref()) {
            Some(message) => message,
            None => usage_message(command.as_deref(), error),
        };
        let lines = lines.lines().map(|line| escape(line.as_bytes()).into_owned() + "\n");
        let _ = io::stderr().lock().write_all(lines.collect::<String>().as_bytes());
        return ExitCode::from(ExitStatus::USAGE);
    }
    let printed = says.print().and_then(|()| io::stdout().flush());
    ExitCode::from(match printed {
        Err(error) if !says.use_stderr() => {
            unwritten(&error, &mut App::new("help", Caller::root(), Opening::default()))
        }
        _ => u8::try_from(says.exit_code()).unwrap_or(ExitStatus::USAGE),
    })
}

/// Returns the message about an option that the namesake of a subcommand takes, and that no volume
/// can fulfil.
fn refusal(says: &clap::Error, command: Option<&str>) -> Option<String> {
    let Some(ContextValue::String(option)) = says.get(ContextKind::InvalidArg) else { return None };
    let (option, reason) = refused::find(command?, option)?;
    Some(message_of(command?, format_args!("{option}: {reason}")))
}

/// Returns the subcommand that the command line names.
fn subcommand() -> Option<String> {
    let known = Args::command();
    let words = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
    words.into_iter().find(|word| known.get_subcommands().any(|command| command.get_name() == word))
}

/// Returns clap's message about a command line in the form of all other messages. It has the
/// reason, clap's tips, and the way to the help in place of the usage.
fn usage_message(command: Option<&str>, error: &str) -> String {
    let ends = ["\n\nUsage:", "\n\nFor more"].into_iter().filter_map(|end| error.find(end));
    let error = &error[..ends.min().unwrap_or(error.len())];
    let mut paragraphs =
        error.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let reason = paragraphs.next().unwrap_or_default();
    let (first, help) = match command {
        Some(command) => (message_of(command, reason), try_help(command)),
        None => (format!("extern4: {reason}"), "Try 'extern4 --help' for more information.".to_owned()),
    };
    std::iter::once(first).chain(paragraphs).chain([help]).collect::<Vec<_>>().join("\n")
}

/// Returns the exit code for a failure to write the output.
fn unwritten(error: &io::Error, app: &mut App) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return ExitStatus::CLOSED_PIPE;
    }
    app.fail(ExitStatus::Failed, format_args!("cannot write: {}", host_reason(error)));
    app.exit_code()
}
