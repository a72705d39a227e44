//! The line editor of a terminal, with its history.
//!
//! `shell` asks it for each line. A history that cannot be read or written is left alone.

use std::env;
use std::fs;
use std::io;
use std::path::PathBuf;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config};

use super::complete::Completer;
use crate::app::{App, host_reason};

/// The most lines that the history keeps.
const MOST_LINES: usize = 1000;

/// The answer to a prompt.
pub(super) enum Input {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D.
    End,
}

/// A line editor.
pub(super) struct Editor {
    editor: rustyline::Editor<Completer, FileHistory>,
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
        let mut editor = rustyline::Editor::with_config(config).map_err(as_io)?;
        editor.set_helper(Some(Completer::new(names)));
        let history = history_file();
        if let Some(file) = &history {
            // There is none before the first use.
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history })
    }

    /// Shows the prompt and returns the answer.
    pub(super) fn line(&mut self, prompt: &str, app: &mut App) -> io::Result<Input> {
        let base = app.base().cloned();
        let session = base.and_then(|base| {
            let opened = app.try_volume(&base.image).ok()??;
            Some((opened.session.clone(), base))
        });
        self.look_at(session);
        let answer = self.editor.readline(prompt);
        // The volume may be closed by the next command.
        self.look_at(None);
        match answer {
            Ok(line) => Ok(Input::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupted),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(as_io(error)),
        }
    }

    fn look_at(&mut self, session: Option<(extern4::Session, crate::image_path::ImagePath)>) {
        if let Some(completer) = self.editor.helper_mut() {
            completer.look_at(session);
        }
    }

    /// Writes the history to its file.
    pub(super) fn save_history(&mut self, app: &App) {
        let Some(file) = &self.history else { return };
        let made = file.parent().map_or(Ok(()), fs::create_dir_all);
        if let Err(error) = made.and_then(|()| self.editor.save_history(file).map_err(as_io)) {
            app.note_at(file.display(), format_args!("the history was not kept: {}", host_reason(&error)));
        }
    }
}

/// Returns the file of the history; `None` without a home directory.
fn history_file() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("extern4/history"))
}

fn as_io(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}
