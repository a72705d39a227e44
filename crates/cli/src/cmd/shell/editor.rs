//! The line editor of a terminal, with its history.
//!
//! `shell` asks it for each line. A thread reads the keys, so that a signal can end the shell
//! meanwhile. A history that cannot be read or written is left alone.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvError};
use std::thread;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config};

use super::complete::{Completer, SharedVolume};
use crate::app::{App, host_reason};

/// The most lines that the history keeps.
const MOST_LINES: usize = 1000;

/// Ends the mode in which a terminal marks pasted text, and the line of the prompt.
const LEAVE_PROMPT: &[u8] = b"\x1b[?2004l\r\n";

/// The answer to a prompt.
pub(super) enum Input {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or a signal that ends the shell.
    End,
}

type LineEditor = rustyline::Editor<Completer, FileHistory>;

/// A line editor.
pub(super) struct Editor {
    /// `None` while, and after, a thread reads the line that a signal ended.
    editor: Option<LineEditor>,
    volume: SharedVolume,
    /// The file of the history, if there is a place for it.
    history: Option<PathBuf>,
}

impl Editor {
    /// Makes an editor that completes these names of commands.
    pub(super) fn new(names: Vec<String>) -> io::Result<Self> {
        let config = Config::builder()
            .max_history_size(MOST_LINES)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(as_io)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .auto_add_history(true)
            .build();
        let mut editor = LineEditor::with_config(config).map_err(as_io)?;
        let volume = SharedVolume::default();
        editor.set_helper(Some(Completer::new(names, volume.clone())));
        let history = history_file();
        if let Some(file) = &history {
            // There is none before the first use.
            let _ = editor.load_history(file);
        }
        Ok(Self {
            editor: Some(editor),
            volume,
            history,
        })
    }

    /// Shows the prompt and returns the answer.
    pub(super) fn line(&mut self, prompt: &str, app: &mut App) -> io::Result<Input> {
        let base = app.base().cloned();
        self.volume.set(base.and_then(|base| {
            let opened = app.try_volume(&base.image).ok()??;
            Some((opened.session.clone(), base))
        }));
        let answer = self.read(prompt, app);
        // The next command may close the volume.
        self.volume.set(None);
        match answer? {
            Some(Ok(line)) => {
                self.save_history(app);
                Ok(Input::Line(line))
            }
            Some(Err(ReadlineError::Interrupted)) => Ok(Input::Interrupted),
            Some(Err(ReadlineError::Eof)) | None => Ok(Input::End),
            Some(Err(error)) => Err(as_io(error)),
        }
    }

    /// Reads a line in a thread. Returns `None` if a signal ends the shell.
    fn read(
        &mut self,
        prompt: &str,
        app: &mut App,
    ) -> io::Result<Option<rustyline::Result<String>>> {
        let Some(mut editor) = self.editor.take() else {
            return Ok(None);
        };
        let settings = tcgetattr(io::stdin())?;
        let (prompt, (answers, answer)) = (prompt.to_owned(), mpsc::channel());
        let is_read = eventfd(0, EventfdFlags::CLOEXEC)?;
        let wakes = is_read.try_clone()?;
        thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || {
                let line = editor.readline(&prompt);
                // Without a receiver, the shell is about to end.
                let _ = answers.send((line, editor));
                let _ = write(&wakes, &[1; 8]);
            })?;
        while app.stop().wait(&is_read).is_break() {
            if app.is_terminated() {
                restore(&settings);
                return Ok(None);
            }
            // Ctrl-C is a key here.
            app.forget_signal();
        }
        let _ = read(&is_read, &mut [0_u8; 8]);
        let (line, editor) = answer
            .recv()
            .map_err(|RecvError| io::Error::other("the editor has ended"))?;
        self.editor = Some(editor);
        Ok(Some(line))
    }

    /// Returns the lines of the history, the oldest first.
    pub(super) fn history(&self) -> Vec<String> {
        self.editor
            .iter()
            .flat_map(|editor| editor.history().iter().cloned())
            .collect()
    }

    /// Writes the history to its file. A failure is reported once.
    fn save_history(&mut self, app: &App) {
        let (Some(file), Some(editor)) = (&self.history, &mut self.editor) else {
            return;
        };
        let made = match file.parent() {
            Some(parent) => fs::create_dir_all(parent),
            None => Ok(()),
        };
        if let Err(error) = made.and_then(|()| editor.save_history(file).map_err(as_io)) {
            app.note_at(
                file.display(),
                format_args!("the history was not kept: {}", host_reason(&error)),
            );
            self.history = None;
        }
    }
}

/// Gives the terminal back as it was before the prompt.
fn restore(settings: &Termios) {
    // The shell ends in any case.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, settings);
    let _ = io::stdout()
        .write_all(LEAVE_PROMPT)
        .and_then(|()| io::stdout().flush());
}

/// Returns the file of the history; `None` without a home directory.
fn history_file() -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("extern4/history"))
}

fn as_io(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}
