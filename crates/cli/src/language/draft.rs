//! A statement that is being read: its words and redirections so far.
//!
//! `words` fills it byte by byte. A redirection that makes no sense is a fault.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use super::words::{Fault, Meaning, Output, Redirections, Word, Words};
use crate::globs;

/// The operator of a redirection whose file is still to come.
#[derive(Clone, Copy)]
pub(super) enum Operator {
    Input,
    File,
    End,
}

impl Operator {
    fn text(self) -> &'static str {
        match self {
            Self::Input => "<",
            Self::File => ">",
            Self::End => ">>",
        }
    }
}

/// A word that is being read.
#[derive(Default)]
pub(super) struct Draft {
    text: Vec<u8>,
    pattern: Vec<u8>,
    is_pattern: bool,
}

impl Draft {
    /// Adds a byte that stands for itself or has a meaning in a pattern.
    pub(super) fn push(&mut self, byte: u8) {
        self.is_pattern |= matches!(byte, b'*' | b'?' | b'[');
        self.text.push(byte);
        self.pattern.push(byte);
    }

    /// Adds bytes that stand for themselves.
    pub(super) fn push_quoted(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        self.pattern.extend_from_slice(&globs::escaped(bytes));
    }

    fn end(self) -> Word {
        let meaning = if self.is_pattern {
            Meaning::Pattern(OsString::from_vec(self.pattern))
        } else {
            Meaning::Name
        };
        Word {
            text: OsString::from_vec(self.text),
            meaning,
        }
    }
}

/// A command that is being read.
#[derive(Default)]
pub(super) struct CommandDraft {
    pub(super) words: Vec<Word>,
    pub(super) word: Option<Draft>,
    /// The operator that takes the next word.
    pub(super) operator: Option<Operator>,
    redirections: Redirections,
}

impl CommandDraft {
    /// Returns whether nothing of the command was read.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.word.is_none() && self.redirections == Redirections::default()
    }

    /// Ends the word, which is an argument or the file of a redirection.
    pub(super) fn end_word(&mut self) -> Result<(), Fault> {
        match self.word.take() {
            Some(word) => self.push(word.end()),
            None => Ok(()),
        }
    }

    pub(super) fn push(&mut self, word: Word) -> Result<(), Fault> {
        let Some(operator) = self.operator.take() else {
            self.words.push(word);
            return Ok(());
        };
        if word.meaning != Meaning::Name {
            let text = word.text.display();
            let operator = operator.text();
            return Err(Fault::Wrong(format!(
                "{text}: a '{operator}' takes the name of one file; quote it"
            )));
        }
        match operator {
            Operator::Input if self.redirections.input.is_some() => {
                Err(Fault::Wrong("a command has one '<'".to_owned()))
            }
            Operator::Input => {
                self.redirections.input = Some(word);
                Ok(())
            }
            Operator::File => self.output(Output::File(word)),
            Operator::End => self.output(Output::End(word)),
        }
    }

    pub(super) fn output(&mut self, output: Output) -> Result<(), Fault> {
        match self.redirections.output.replace(output) {
            None => Ok(()),
            Some(_) => Err(Fault::Wrong(
                "the output of a command goes to one place".to_owned(),
            )),
        }
    }

    /// Begins a redirection.
    pub(super) fn operator(&mut self, operator: Operator) -> Result<(), Fault> {
        let text = operator.text();
        let is_number =
            |word: &&Draft| !word.text.is_empty() && word.text.iter().all(u8::is_ascii_digit);
        let number = self.word.as_ref().filter(is_number);
        if let Some(number) = number.map(|word| String::from_utf8_lossy(&word.text).into_owned()) {
            return Err(Fault::Wrong(format!(
                "{number}{text}: a '{text}' is about standard input and output alone; write a space before it"
            )));
        }
        self.end_word()?;
        match self.operator.replace(operator) {
            None => Ok(()),
            Some(_) => Err(no_file(operator)),
        }
    }

    /// Ends the command.
    pub(super) fn end(mut self) -> Result<Option<Words>, Fault> {
        self.end_word()?;
        if let Some(operator) = self.operator {
            return Err(no_file(operator));
        }
        match self.words.is_empty() {
            true if self.redirections == Redirections::default() => Ok(None),
            true => Err(Fault::Wrong(
                "a redirection needs a command before it".to_owned(),
            )),
            false => Ok(Some(Words::Command(self.words, self.redirections))),
        }
    }
}

pub(super) fn no_file(operator: Operator) -> Fault {
    Fault::Wrong(format!("there is no file behind '{}'", operator.text()))
}

/// Returns the fault of an operator of other shells that joins commands.
pub(super) fn joins(operator: &str) -> Fault {
    Fault::Wrong(format!(
        "'{operator}' has no meaning here: a ';' or a new line ends a command, and the first failure ends a \
         script; quote it to mean the text"
    ))
}
