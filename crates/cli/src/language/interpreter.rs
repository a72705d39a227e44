//! Runs statements, and holds back the statements of a transaction until it is committed.
//!
//! `script` and `shell` give it each statement. The statements of a transaction become durable
//! together or not at all. A failure inside of one drops it whole.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use super::command_line::files;
use super::redirection;
use super::statement::{Parser, Statement};
use super::words::Word;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::text::escape;

/// A statement, and the text before messages about it.
pub(crate) struct Step {
    /// Where the statement stands, such as `changes:4: `.
    pub(crate) place: String,
    pub(crate) statement: Statement,
}

/// Runs statements one after the other.
#[derive(Default)]
pub(crate) struct Interpreter {
    /// The statements since `begin`, which wait for `commit`.
    held_back: Option<Vec<Step>>,
    has_exited: bool,
    /// Parses again where files are found only now.
    parser: Option<Parser>,
}

impl Interpreter {
    /// Returns whether `exit` was run.
    pub(crate) fn has_exited(&self) -> bool {
        self.has_exited
    }

    /// Forgets the transaction that was begun, if there is one.
    pub(crate) fn abort(&mut self) {
        self.held_back = None;
    }

    /// Runs a statement, or holds it back if it belongs to a transaction. The error is one of
    /// writing the output.
    pub(crate) fn run(&mut self, step: Step, app: &mut App) -> io::Result<()> {
        match (&step.statement, &mut self.held_back) {
            (Statement::Begin, held_back) => *held_back = Some(Vec::new()),
            (Statement::Abort, held_back) => *held_back = None,
            (Statement::Commit, held_back) => {
                let steps = mem::take(held_back).unwrap_or_default();
                return self.commit(steps, &step.place, app);
            }
            (Statement::Exit, _) => self.has_exited = true,
            (Statement::Help(_) | Statement::History(_), _) | (_, None) => {
                return self.perform(&step, app);
            }
            (_, Some(held_back)) => held_back.push(step),
        }
        Ok(())
    }

    /// Runs the statements of a transaction. The first failure ends it, and then nothing has
    /// changed.
    fn commit(&mut self, steps: Vec<Step>, place: &str, app: &mut App) -> io::Result<()> {
        let mut done = Ok(());
        app.in_transaction(|app| {
            for step in &steps {
                done = self.perform(step, app);
                if done.is_err() || app.status() != ExitStatus::Success || app.is_stopped() {
                    return false;
                }
            }
            app.script_line(place.to_owned());
            true
        });
        done
    }

    fn perform(&mut self, step: &Step, app: &mut App) -> io::Result<()> {
        app.script_line(step.place.clone());
        match &step.statement {
            Statement::Redirected(statement, redirections) => {
                redirection::run(redirections, app, |app| self.plain(statement, app))
            }
            statement => self.plain(statement, app),
        }
    }

    fn plain(&mut self, statement: &Statement, app: &mut App) -> io::Result<()> {
        match statement {
            // It prints by way of the app.
            Statement::Command(line) if line.command.changes() => line.run(&mut self.parser, app),
            _ => app.progress().clone().hidden(|| self.shown(statement, app)),
        }
    }

    fn shown(&mut self, statement: &Statement, app: &mut App) -> io::Result<()> {
        match statement {
            Statement::Command(line) => line.run(&mut self.parser, app)?,
            Statement::Cd(to) => cd(to.as_ref(), app)?,
            Statement::Lcd(to) => {
                if let Err(error) = env::set_current_dir(to) {
                    app.fail_at(ExitStatus::Failed, to.display(), host_reason(&error));
                }
            }
            Statement::Pwd => {
                let path = app.base().map(|base| base.path.clone()).unwrap_or_default();
                say(&escape(path.as_os_str().as_bytes()))?;
            }
            Statement::Lpwd => match env::current_dir() {
                Ok(path) => say(&escape(path.as_os_str().as_bytes()))?,
                Err(error) => app.fail_at(ExitStatus::Failed, ".", host_reason(&error)),
            },
            Statement::Host(line) => match Command::new("sh").arg("-c").arg(line).status() {
                Ok(status) if status.success() => {}
                Ok(status) => app.fail(
                    ExitStatus::Failed,
                    format_args!("the host's command: {status}"),
                ),
                Err(error) => app.fail_at(ExitStatus::Failed, "sh", host_reason(&error)),
            },
            Statement::Help(text) | Statement::History(text) => {
                write!(io::stdout().lock(), "{text}")?
            }
            Statement::Redirected(..)
            | Statement::Begin
            | Statement::Commit
            | Statement::Abort
            | Statement::Exit => {}
        }
        Ok(())
    }
}

/// Goes to a directory of the volume.
fn cd(to: Option<&Word>, app: &mut App) -> io::Result<()> {
    let Some(base) = app.base().cloned() else {
        return Ok(());
    };
    let to = match to {
        Some(word) if word.text == "-" => match app.directory_before() {
            Some(before) => {
                say(&escape(before.path.as_os_str().as_bytes()))?;
                before
            }
            None => {
                app.fail(
                    ExitStatus::Failed,
                    "cd: there is no directory to go back to",
                );
                return Ok(());
            }
        },
        Some(word) => match files(word, &base, app).as_deref() {
            None => return Ok(()),
            Some([]) => base.directory(&word.text),
            Some([only]) => base.directory(only.as_os_str()),
            Some(_) => {
                app.fail_at(
                    ExitStatus::Failed,
                    word.text.display(),
                    "more than one file matches",
                );
                return Ok(());
            }
        },
        None => base.directory(OsStr::new("/")),
    };
    let found = app
        .target(&to)
        .map(|target| target.session().at(target.path()).map(drop));
    match found {
        Some(Ok(())) => app.stand_at(to),
        Some(Err(error)) => app.error(&to, &error),
        None => {}
    }
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
