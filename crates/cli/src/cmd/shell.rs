//! `extern4 shell`: takes commands on one volume, one after the other.
//!
//! On a terminal it edits lines, keeps a history and completes commands and paths. Elsewhere it
//! reads standard input as it is. The volume is opened for reading first, and for writing by the
//! first command that changes it.
//!
//! `args` calls [`run`]; `language` has the parser and the interpreter. A command that fails is
//! reported, and the shell goes on.

mod complete;
mod editor;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::interruptible::Interruptible;
use crate::language::interpreter::{Interpreter, Step};
use crate::language::statement::Parser;
use crate::language::variable;
use crate::language::words::{Fault, statements};
use crate::text::escape;

use editor::{Editor, Input};

const COMMANDS: &str = "\
Commands are those of extern4, with paths of the volume, and the language is that of scripts (extern4 script --help). \
'help' lists the commands, among them words of debugfs. Changes are durable when the shell ends; begin and commit make \
some durable together. The history is kept in $XDG_STATE_HOME/extern4/history, or below ~/.local/state.

Without a terminal and with -c, the exit code is that of the worst command, and a failure does not end the shell.";

#[derive(clap::Args)]
#[command(after_help = COMMANDS)]
pub(crate) struct Args {
    /// The volume, and the directory to start in
    #[arg(value_name = "IMAGE[:/PATH]", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// Change nothing
    #[arg(short, long)]
    read_only: bool,
    /// Run these commands, and take none from a terminal or standard input
    #[arg(short = 'c', long = "command", value_name = "COMMANDS")]
    commands: Option<OsString>,
}

/// A shell at work.
struct Shell<'a> {
    app: &'a mut App,
    parser: Parser,
    interpreter: Interpreter,
    /// Where the lines come from, for messages; `None` for a terminal.
    source: Option<&'static str>,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    app.begin_script(args.image_path.clone(), args.read_only);
    let Some(base) = app.base().cloned() else {
        return Ok(());
    };
    let Some(target) = app.target(&base) else {
        return Ok(());
    };
    if let Err(error) = target.session().at(target.path()) {
        app.error(&base, &error);
        return Ok(());
    }
    drop(target);
    let stop = app.stop_on_signals();
    let parser = Parser::new(base);
    let interpreter = Interpreter::default();
    let mut shell = Shell {
        app,
        parser,
        interpreter,
        source: None,
    };
    if let Some(commands) = &args.commands {
        shell.source = Some("-c");
        shell.read(commands.as_bytes())?;
    } else if io::stdin().is_terminal() && io::stdout().is_terminal() {
        shell.interact()?;
    } else {
        shell.source = Some("standard input");
        match Interruptible::standard_input(stop) {
            Ok(input) => shell.read(BufReader::new(input))?,
            Err(error) => {
                shell
                    .app
                    .fail_at(ExitStatus::Failed, "standard input", host_reason(&error))
            }
        }
    }
    if shell.parser.has_begun() {
        let reason =
            "a transaction was begun and not committed: nothing between begin and the end was done";
        shell.app.fail(ExitStatus::Failed, reason);
    }
    Ok(())
}

impl Shell<'_> {
    /// Takes commands from a terminal. A command that has failed is forgotten with its message.
    fn interact(&mut self) -> io::Result<()> {
        let mut editor = match Editor::new(self.parser.names()) {
            Ok(editor) => editor,
            Err(error) => {
                self.app.fail(
                    ExitStatus::Failed,
                    format_args!("the terminal: {}", host_reason(&error)),
                );
                return Ok(());
            }
        };
        while !self.interpreter.has_exited() && !self.app.is_terminated() {
            let prompt = self.prompt();
            match editor.line(&prompt, self.app) {
                Ok(Input::Line(line)) => {
                    self.parser.remember(editor.history());
                    self.run(line.as_bytes(), 1)?;
                }
                Ok(Input::Interrupted) => self.abort(),
                Ok(Input::End) => break,
                Err(error) => {
                    self.app.fail(
                        ExitStatus::Failed,
                        format_args!("the terminal: {}", host_reason(&error)),
                    );
                    return Ok(());
                }
            }
            if !self.app.is_terminated() {
                // Ctrl-C ends a command, and not the shell.
                self.app.forget_signal();
            }
            self.app.take_status();
        }
        self.app.report_stop("the shell has ended");
        Ok(())
    }

    /// Takes commands from an input without a terminal.
    fn read(&mut self, mut input: impl BufRead) -> io::Result<()> {
        let mut text = Vec::new();
        let mut line = 0;
        let mut first = 1;
        while !self.interpreter.has_exited() && !self.app.is_stopped() {
            let read = match input.read_until(b'\n', &mut text) {
                Ok(read) => read,
                Err(_) if self.app.is_stopped() => break,
                Err(error) => {
                    self.app
                        .fail_at(ExitStatus::Failed, "standard input", host_reason(&error));
                    break;
                }
            };
            line += 1;
            if read > 0 && is_unfinished(&text) {
                continue;
            }
            self.run(&text, first)?;
            if read == 0 {
                break;
            }
            text.clear();
            first = line + 1;
        }
        self.app.report_stop(format_args!("{line} lines read"));
        Ok(())
    }

    fn prompt(&self) -> String {
        let path = self
            .app
            .base()
            .map(|base| base.path.clone())
            .unwrap_or_default();
        let path = escape(path.as_os_str().as_encoded_bytes()).into_owned();
        format!(
            "extern4:{path}{} ",
            if self.parser.has_begun() { "*" } else { ">" }
        )
    }

    /// Runs the statements of a text, up to the first that fails; none if one of them is no
    /// statement. `first` is the number of the text's first line, for messages.
    fn run(&mut self, text: &[u8], first: usize) -> io::Result<()> {
        let found = statements(text, &variable);
        let has_fault = found.iter().any(|(_, words)| words.is_err());
        for (line, words) in found
            .into_iter()
            .filter(|(_, words)| !has_fault || words.is_err())
        {
            let place = self
                .source
                .map(|source| format!("{source}:{}: ", first + line - 1));
            let place = place.unwrap_or_default();
            self.app.script_line(place.clone());
            // Within a transaction, the parser goes ahead of what happens.
            if let Some(base) = self.app.base().filter(|_| !self.parser.has_begun()) {
                self.parser.stand_at(base.clone());
            }
            let parsed = words.map_err(|fault| fault.reason().to_owned());
            let before = self.app.take_status();
            match parsed.and_then(|words| self.parser.parse(words)) {
                Ok(statement) => self.interpreter.run(Step { place, statement }, self.app)?,
                Err(message) => self.app.fail(ExitStatus::Usage, message),
            }
            let has_failed = self.app.status() != ExitStatus::Success;
            self.app.found(before);
            if has_failed || self.app.is_stopped() {
                break;
            }
        }
        self.app.script_line(String::new());
        Ok(())
    }

    /// Forgets the transaction that was begun, as Ctrl-C asks.
    fn abort(&mut self) {
        if self.parser.has_begun() {
            self.parser.forget_begun();
            self.interpreter.abort();
            self.app
                .note("the transaction was aborted: nothing of it was done");
        }
    }
}

/// Returns whether more lines may complete the last statement of a text.
fn is_unfinished(text: &[u8]) -> bool {
    let found = statements(text, &variable);
    let is_open = found
        .last()
        .is_some_and(|(_, words)| matches!(words, Err(Fault::Unfinished(_))));
    let line = text.strip_suffix(b"\n").unwrap_or_default();
    let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
    is_open || backslashes % 2 == 1
}
