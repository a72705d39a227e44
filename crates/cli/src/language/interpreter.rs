//! Runs statements, and holds back those of a transaction until it is committed.
//!
//! `script` and `shell` give it each statement. Those of a transaction become durable together or
//! not at all. A failure inside of one drops it whole.

use std::env;
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use super::statement::Statement;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::text::escape;

/// A statement, and the text before messages about it.
pub(crate) struct Step {
    /// Where the statement stands, such as `changes:4: `.
    pub(crate) place: String,
    /// The statement.
    pub(crate) statement: Statement,
}

/// Runs statements one after the other.
#[derive(Default)]
pub(crate) struct Interpreter {
    /// The statements since `begin`, which wait for `commit`.
    held_back: Option<Vec<Step>>,
    has_exited: bool,
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
                return commit(steps, &step.place, app);
            }
            (Statement::Exit, _) => self.has_exited = true,
            (Statement::Help(_), _) | (_, None) => return perform(&step, app),
            (_, Some(held_back)) => held_back.push(step),
        }
        Ok(())
    }
}

/// Runs the statements of a transaction. The first failure ends it, and then nothing has changed.
fn commit(steps: Vec<Step>, place: &str, app: &mut App) -> io::Result<()> {
    let mut done = Ok(());
    app.in_transaction(|app| {
        for step in &steps {
            done = perform(step, app);
            if done.is_err() || app.status() != ExitStatus::Success || app.is_stopped() {
                return false;
            }
        }
        app.script_line(place.to_owned());
        true
    });
    done
}

fn perform(step: &Step, app: &mut App) -> io::Result<()> {
    app.script_line(step.place.clone());
    match &step.statement {
        // It prints by way of the app.
        Statement::Command(command) if command.changes() => command.run(app),
        _ => app.progress().clone().hidden(|| run(step, app)),
    }
}

fn run(step: &Step, app: &mut App) -> io::Result<()> {
    match &step.statement {
        Statement::Command(command) => command.run(app)?,
        Statement::Pattern(line) => line.run(app)?,
        Statement::Cd(to) => {
            let found = app.target(to).map(|target| target.session().at(target.path()).map(drop));
            match found {
                Some(Ok(())) => app.stand_at(to.clone()),
                Some(Err(error)) => app.error(to, &error),
                None => {}
            }
        }
        Statement::Lcd(to) => {
            app.fix_image();
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
            Ok(status) => app.fail(ExitStatus::Failed, format_args!("the host's command: {status}")),
            Err(error) => app.fail_at(ExitStatus::Failed, "sh", host_reason(&error)),
        },
        Statement::Help(text) => write!(io::stdout().lock(), "{text}")?,
        Statement::Begin | Statement::Commit | Statement::Abort | Statement::Exit => {}
    }
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
