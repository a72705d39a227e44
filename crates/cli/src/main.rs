//! The command `extern4`: looks into ext2, ext3 and ext4 images and devices, and changes and mounts them, without the kernel's ext4.
//!
//! One file a subcommand under [`cmd`]; what they share stands beside it. A subcommand writes its result to standard
//! output, reports what fails to [`app::App`] and goes on with the rest; `main` turns the worst of it into the exit
//! code.

#![deny(unsafe_code)]

mod app;
mod args;
mod blockmap;
mod cmd;
mod color;
mod control;
mod helper;
mod mode_change;
mod mount_table;
mod names;
mod place;
mod raw;
mod report;
mod resolve;
mod standard_input;
mod status;
mod text;
mod wrapping;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use extern4::Cred;
use extern4_measure::json;

use crate::app::{App, Opening, host_reason};
use crate::args::Args;
use crate::status::Status;
use crate::text::{escape, is_printable};

/// `bench` counts allocations.
#[global_allocator]
static ALLOCATOR: extern4_sync::allocations::Counting = extern4_sync::allocations::Counting;

fn main() -> ExitCode {
    cmd::mount::outlive_size_limit();
    let args = match helper::read(std::env::args_os()) {
        helper::Line::Run(line) => match Args::try_parse_from(line) {
            Ok(args) => args,
            Err(says) => return explain(&says),
        },
        helper::Line::Fake => return ExitCode::SUCCESS,
    };
    let mut app = App::new(args.command.name(), args.cred(), args.opening.clone());
    if let Some(option) = args.useless_option() {
        app.fail(Status::Usage, format_args!("{option} has no effect on {}", args.command.name()));
        return ExitCode::from(app.status().code());
    }
    let done = args.command.run(&mut app);
    app.close();
    ExitCode::from(match done {
        Ok(()) => app.status().code(),
        Err(error) => unwritten(&error, &mut app),
    })
}

/// Says what is wrong with the command line, or what was asked for with `--help` or `--version`.
fn explain(says: &clap::Error) -> ExitCode {
    let text = says.render().to_string();
    let is_plain = |c| c == '\n' || is_printable(c);
    if says.use_stderr() && !text.chars().all(is_plain) {
        // A pattern of the shell may have put in the name of another user's file.
        let lines = text.lines().map(|line| escape(line.as_bytes()).into_owned() + "\n");
        let _ = io::stderr().lock().write_all(lines.collect::<String>().as_bytes());
        return ExitCode::from(Status::USAGE);
    }
    let printed = says.print().and_then(|()| io::stdout().flush());
    ExitCode::from(match printed {
        Err(error) if !says.use_stderr() => {
            unwritten(&error, &mut App::new("help", Cred::root(), Opening::default()))
        }
        _ => u8::try_from(says.exit_code()).unwrap_or(Status::USAGE),
    })
}

/// The code to end with where the output could not be written.
fn unwritten(error: &io::Error, app: &mut App) -> u8 {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Status::CLOSED_PIPE;
    }
    app.fail(Status::Failed, format_args!("cannot write: {}", host_reason(error)));
    app.status().code()
}
