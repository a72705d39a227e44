//! The statements of a script or a shell, and their parser.
//!
//! `script` and `shell` parse with it, and `interpreter` runs the result. A statement that makes no
//! sense is an error with its line, and runs in no part.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};

use super::command_line::CommandLine;
use super::expert;
use super::words::{Meaning, Output, Redirections, Word, Words};
use crate::args::{self, Command};
use crate::cmd::quota;
use crate::image_path::ImagePath;
use crate::operands::host_path;
use crate::text::escape;

/// A statement.
pub(crate) enum Statement {
    /// A subcommand.
    Command(Box<CommandLine>),
    /// A statement with another input or output.
    Redirected(Box<Self>, Redirections),
    /// `cd`: relative paths of the volume start in this directory from now on, or in the root.
    Cd(Option<Word>),
    /// `lcd`: relative paths of the host start here from now on.
    Lcd(PathBuf),
    /// `pwd`.
    Pwd,
    /// `lpwd`.
    Lpwd,
    /// A command line for a shell of the host.
    Host(OsString),
    /// `begin`: what follows is one transaction.
    Begin,
    /// `commit`: the transaction ends and becomes durable.
    Commit,
    /// `abort`: the transaction ends, and nothing of it happens.
    Abort,
    /// A text that was asked for.
    Help(String),
    /// `history`: the lines that were typed.
    History(String),
    /// `exit`.
    Exit,
}

impl Statement {
    /// Returns whether the statement changes the volume.
    pub(crate) fn changes(&self) -> bool {
        match self {
            Self::Command(line) => line.command.changes(),
            Self::Redirected(inner, redirections) => {
                let to_volume = matches!(
                    &redirections.output,
                    Some(Output::File(to) | Output::End(to)) if host_path(&to.text).is_none()
                );
                to_volume || inner.changes()
            }
            _ => false,
        }
    }

    /// Returns the statement without its redirections.
    pub(crate) fn plain(&self) -> &Self {
        if let Self::Redirected(inner, _) = self {
            inner
        } else {
            self
        }
    }
}

/// A parsed line of the language.
#[derive(clap::Parser)]
#[command(
    name = "extern4",
    no_binary_name = true,
    disable_help_subcommand = true
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// The statements that are no subcommands, with their arguments and meanings.
const OWN: &[(&str, &str, &str)] = &[
    (
        "cd",
        "[DIRECTORY]",
        "Go to a directory of the volume; cd - goes back",
    ),
    ("pwd", "", "Show the directory of the volume"),
    ("lcd", "[DIRECTORY]", "Go to a directory of the host"),
    ("lpwd", "", "Show the directory of the host"),
    ("!", "COMMAND", "Run a command of the host"),
    ("begin", "", "Begin a transaction: hold back what follows"),
    ("commit", "", "Do all that was held back in one transaction"),
    ("abort", "", "Forget what was held back"),
    (
        "help",
        "[COMMAND]",
        "Show this list, or the help of a command",
    ),
    ("history", "", "Show the lines that were typed"),
    ("exit", "", "End the shell"),
];

/// The redirections behind a command, and their meanings.
const BEHIND: &[(&str, &str)] = &[
    (
        "> FILE, >> FILE",
        "Write the output to a file of the volume, or to host:FILE",
    ),
    (
        "< FILE",
        "Read a file of the volume, or host:FILE, as standard input",
    ),
    (
        "| COMMAND",
        "Pipe the output to a command of the host, up to the end of the line",
    ),
];

/// The statements that only change where later ones stand. They read and write nothing.
const SILENT: [&str; 8] = ["cd", "lcd", "begin", "commit", "abort", "exit", "quit", "q"];

/// The subcommands that do not work on the open volume, and why each is refused.
const REFUSED: &[(&[&str], &str)] = &[
    (&["script", "shell"], "one script does not run another"),
    (
        &["mount", "umount", "recover", "tune", "bench"],
        "the volume is open here; end this first",
    ),
    (
        &["mkfs", "build", "top", "completions", "man", "help"],
        "it is not about this volume; use !extern4",
    ),
    (&["diff"], "it compares with other trees; use !extern4"),
];

/// The subcommands whose paths default to the current directory.
const DEFAULTED: &[&str] = &[
    "ls", "tree", "du", "df", "info", "check", "stat", "stats", "inode", "getfacl",
];

/// Parses statements.
pub(crate) struct Parser {
    grammar: clap::Command,
    /// The volume, and its directory in which relative paths start.
    base: Arc<Mutex<ImagePath>>,
    /// `begin` was parsed, and neither `commit` nor `abort` after it.
    has_begun: bool,
    /// The lines that `history` shows.
    history: Vec<String>,
}

impl Parser {
    /// Returns a parser of statements about the volume of `base`, whose path is the directory that
    /// relative paths start in.
    pub(crate) fn new(base: ImagePath) -> Self {
        let base = Arc::new(Mutex::new(base));
        let mut grammar = Line::command().mut_subcommands(|command| with_base(command, &base));
        grammar.build();
        Self {
            grammar,
            base,
            has_begun: false,
            history: Vec::new(),
        }
    }

    fn base(&self) -> MutexGuard<'_, ImagePath> {
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the directory that relative paths start in, and its volume.
    pub(crate) fn stand_at(&self, base: ImagePath) {
        *self.base() = base;
    }

    /// Returns whether a transaction was begun and not ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Forgets that a transaction was begun.
    pub(crate) fn forget_begun(&mut self) {
        self.has_begun = false;
    }

    /// Sets the lines that `history` shows.
    pub(crate) fn remember(&mut self, history: Vec<String>) {
        self.history = history;
    }

    /// Returns the statement that the words are. Later statements are parsed as if it had been run
    /// without a failure.
    pub(crate) fn parse(&mut self, words: Words) -> Result<Statement, String> {
        let (words, redirections) = match words {
            Words::Host(line) if line.as_bytes().trim_ascii().is_empty() => {
                return Err("no command behind '!'".to_owned());
            }
            Words::Host(line) => return Ok(Statement::Host(line)),
            Words::Command(words, redirections) => (words, redirections),
        };
        let name = words[0].text.to_string_lossy().into_owned();
        let asks_help = words.get(1).is_some_and(|word| word.text == "--help");
        if name == "put" && redirections.input.is_none() && !asks_help {
            return Err(
                "put: standard input is not its own here; write put FILE < host:FILE".to_owned(),
            );
        }
        let is_plain = redirections == Redirections::default();
        if SILENT.contains(&&*name) && !is_plain {
            return Err(format!("{name}: it reads and writes nothing"));
        }
        let statement = self.plain(&name, words)?;
        Ok(if is_plain {
            statement
        } else {
            Statement::Redirected(Box::new(statement), redirections)
        })
    }

    /// Returns the statement of words without redirections.
    fn plain(&mut self, name: &str, words: Vec<Word>) -> Result<Statement, String> {
        match (name, &words[1..]) {
            ("cd", [] | [_]) => {
                let to = words.get(1).cloned();
                // Where the others lead is known when they run.
                let text = to.as_ref().map_or(Some(OsStr::new("/")), |to| {
                    (to.meaning == Meaning::Name && to.text != "-").then_some(&*to.text)
                });
                if let Some(text) = text {
                    let base = self.base().directory(text);
                    self.stand_at(base);
                }
                Ok(Statement::Cd(to))
            }
            ("quota", [what, ..]) if self.has_begun && what.text == "check" => {
                Err("quota check: not between begin and commit".to_owned())
            }
            ("lcd" | "check", _) if self.has_begun => {
                Err(format!("{name}: not between begin and commit"))
            }
            ("lcd", []) => {
                let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
                home.map(|home| Statement::Lcd(home.into()))
                    .ok_or_else(|| "lcd: $HOME is not set".to_owned())
            }
            ("lcd", [to]) => Ok(Statement::Lcd(to.text.clone().into())),
            ("pwd", []) => Ok(Statement::Pwd),
            ("lpwd", []) => Ok(Statement::Lpwd),
            ("begin", []) if self.has_begun => {
                Err("begin: a transaction has begun already".to_owned())
            }
            ("commit" | "abort", []) if !self.has_begun => {
                Err(format!("{name}: no transaction has begun"))
            }
            ("begin" | "commit" | "abort", []) => {
                self.has_begun = name == "begin";
                Ok(match name {
                    "begin" => Statement::Begin,
                    "commit" => Statement::Commit,
                    _ => Statement::Abort,
                })
            }
            ("history", []) => Ok(Statement::History(self.past())),
            ("help" | "?", []) => Ok(Statement::Help(self.help())),
            ("help" | "?", [about]) => self.help_about(about),
            ("exit" | "quit" | "q", []) => Ok(Statement::Exit),
            (
                "cd" | "lcd" | "pwd" | "lpwd" | "begin" | "commit" | "abort" | "history" | "help"
                | "?" | "exit" | "quit" | "q",
                _,
            ) => Err(format!("{name}: too many arguments")),
            _ => self.command(words),
        }
    }

    /// Returns the lines of the history, with their numbers.
    fn past(&self) -> String {
        let lines = self.history.iter().zip(1..);
        lines
            .map(|(line, number)| format!("{number:>5}  {}\n", escape(line.as_bytes())))
            .collect()
    }

    /// Returns the help of one statement.
    fn help_about(&mut self, about: &Word) -> Result<Statement, String> {
        let name = about.text.to_string_lossy();
        let name = match &*name {
            "?" => "help",
            "quit" | "q" => "exit",
            name => name,
        };
        if let Some((name, args, meaning)) = OWN.iter().find(|(own, ..)| *own == name) {
            let usage = format!("{name} {args}");
            return Ok(Statement::Help(format!(
                "{meaning}\n\nUsage: {}\n",
                usage.trim_end()
            )));
        }
        match expert::help(name) {
            Some(help) => help.map(Statement::Help),
            None => self.command(vec![about.text.clone().into(), "--help".into()]),
        }
    }

    fn command(&mut self, words: Vec<Word>) -> Result<Statement, String> {
        let mut words = expert::translated(words)?;
        let name = words[0].text.to_string_lossy().into_owned();
        if let Some((_, reason)) = REFUSED.iter().find(|(names, _)| names.contains(&&*name)) {
            return Err(format!("{name}: {reason}"));
        }
        let asks_help = words.get(1).is_some_and(|word| word.text == "--help");
        match (&*name, asks_help) {
            (_, true) => {}
            // The volume is known.
            ("block", _) => words.insert(1, ".".into()),
            ("quota", _) => {
                let is_subcommand = words
                    .get(1)
                    .is_some_and(|word| quota::SUBCOMMANDS.iter().any(|name| word.text == *name));
                words.insert(1 + usize::from(is_subcommand), ".".into());
            }
            ("find", _) if words.get(1).is_none_or(|word| is_expression(&word.text)) => {
                let text = self.base().path.clone().into_os_string();
                words.insert(
                    1,
                    Word {
                        text,
                        meaning: Meaning::Directory,
                    },
                );
            }
            _ => {}
        }
        self.parsed(words)
    }

    /// Returns the statement that the words of a subcommand are, which are what its command line
    /// would have.
    pub(super) fn parsed(&mut self, words: Vec<Word>) -> Result<Statement, String> {
        let texts = words.iter().map(|word| word.text.clone());
        let found = self.grammar.try_get_matches_from_mut(texts);
        let parsed = found.and_then(|found| {
            let places = args::places(&self.grammar, &found);
            Line::from_arg_matches(&found).map(|line| (line.command, places))
        });
        match parsed {
            Ok((command, places)) => {
                if let Command::Find(args) = &command {
                    args.check()?;
                }
                let is_inode = |word: &&Word| matches!(word.meaning, Meaning::Inode(_));
                if let Some(word) = words
                    .iter()
                    .filter(is_inode)
                    .find(|word| !places.contains(&word.text))
                {
                    return Err(format!(
                        "{}: an inode cannot stand here",
                        word.text.display()
                    ));
                }
                let base = self.base().clone();
                Ok(Statement::Command(Box::new(CommandLine {
                    command,
                    words,
                    places,
                    base,
                })))
            }
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                Ok(Statement::Help(error.render().to_string()))
            }
            Err(error) => Err(reason(&error)),
        }
    }

    /// Returns the names of all statements, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let own = OWN.iter().map(|(name, ..)| (*name).to_owned());
        let commands = self.commands().map(|command| command.get_name().to_owned());
        let mut names: Vec<String> = own
            .chain(commands)
            .chain(expert::names().map(str::to_owned))
            .collect();
        names.sort_unstable();
        names
    }

    fn commands(&self) -> impl Iterator<Item = &clap::Command> {
        let is_refused = |name: &str| REFUSED.iter().any(|(names, _)| names.contains(&name));
        self.grammar
            .get_subcommands()
            .filter(move |command| !is_refused(command.get_name()))
    }

    fn help(&self) -> String {
        let line = |name: &str, about: &str| format!("  {name:<18}{about}\n");
        let commands = self.commands().map(|command| {
            line(
                command.get_name(),
                &command
                    .get_about()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            )
        });
        let own = OWN
            .iter()
            .map(|(name, args, about)| line(&format!("{name} {args}"), about));
        let behind = BEHIND.iter().map(|(text, about)| line(text, about));
        let words = expert::names().collect::<Vec<_>>().join(" ");
        format!(
            "{}\nBehind a command:\n{}\nCommands of extern4, with paths of the volume:\n{}\nWords of debugfs: {words}\n",
            own.collect::<String>(),
            behind.collect::<String>(),
            commands.collect::<String>(),
        )
    }
}

/// Returns whether a word of find's arguments begins its expression, or is an option.
fn is_expression(word: &OsStr) -> bool {
    matches!(word.as_bytes(), [b'-', _, ..] | b"(" | b"!")
}

/// Returns a subcommand whose paths are paths of a volume, relative to the directory in `base`.
fn with_base(command: clap::Command, base: &Arc<Mutex<ImagePath>>) -> clap::Command {
    let is_defaulted = DEFAULTED.contains(&command.get_name());
    let command = command.mut_subcommands(|inner| with_base(inner, base));
    command.mut_args(|arg| {
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<ImagePath>();
        let base = Arc::clone(base);
        let joined = move |text: OsString| {
            let base = base.lock().unwrap_or_else(PoisonError::into_inner);
            // The directory itself is shown without a dot.
            if text == "." {
                base.clone()
            } else {
                base.join(&text)
            }
        };
        let arg = if is_path {
            arg.value_parser(OsStringValueParser::new().map(joined))
        } else {
            arg
        };
        if is_defaulted && arg.is_positional() {
            arg.required(false).default_value(".")
        } else {
            arg
        }
    })
}

/// Returns the first paragraph of clap's message, which names the error. The rest is about the
/// command line.
fn reason(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .trim_start_matches("error: ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{Line, Parser, Statement};
    use crate::image_path::ImagePath;
    use crate::language::words::statements;
    use clap::CommandFactory as _;

    fn parser() -> Parser {
        Parser::new(ImagePath::parse(OsStr::new("disk.img:/dir")))
    }

    fn parse(parser: &mut Parser, line: &str) -> Result<Statement, String> {
        let (_, words) = statements(line.as_bytes(), &|_| None).remove(0);
        parser.parse(words.expect("words"))
    }

    #[test]
    fn lines_are_commands() {
        Line::command().debug_assert();
        let mut parser = parser();
        for good in [
            "mkdir -p '/a b'",
            "chmod -R u+rwX,go-w /a",
            "chmod -x /a",
            "ls",
            "ls -l /",
            "find",
            "find -name x",
            "find a -name x",
            "block 12",
            "quota",
            "quota -u 0",
            "quota set -u 0 --block-hard 1M",
            "quota set --help",
            "icheck 12",
            "stat <2>",
            "cat <12> x > /y",
            "put /x < host:y",
            "put --help",
            "ls | wc -l",
            "cd",
            "cd /x",
            "cd -",
            "cd <12>",
            "pwd",
            "!ls",
            "help",
            "help ls",
            "help cd",
            "? ncheck",
            "help > host:x",
            "history",
            "du",
            "df",
            "info",
            "check",
            "get x",
            "lcd /",
            "exit",
        ] {
            assert!(
                parse(&mut parser, good).is_ok(),
                "{good}: {:?}",
                parse(&mut parser, good).err()
            );
        }
        for bad in [
            "mkdir",
            "mkdir --nonsense /a",
            "chmod 888 /",
            "mount x",
            "put x",
            "put x > /y",
            "begin > x",
            "cd / | wc",
            "chmod <12> /x",
            "help mkfs",
            "help clri",
            "help nonsense",
            "script",
            "find -nonsense",
            "commit",
            "abort",
            "cd a b",
            "!",
            "nonsense",
            "logdump",
            "block",
            "quota set",
            "--as 0:0 ls",
        ] {
            let Err(message) = parse(&mut parser, bad) else {
                panic!("{bad}")
            };
            assert!(!message.contains('\n') && !message.is_empty(), "{message}");
        }
    }

    #[test]
    fn relative_paths_start_in_the_directory() {
        let mut parser = parser();
        for (line, expected) in [
            ("cd a", "/dir/a"),
            ("cd ..", "/dir"),
            ("cd ../../..", "/"),
            ("cd /x//y/./z/", "/x/y/z"),
            ("cd", "/"),
        ] {
            assert!(
                matches!(parse(&mut parser, line), Ok(Statement::Cd(_))),
                "{line}"
            );
            assert_eq!(parser.base().path.to_str(), Some(expected), "{line}");
        }
        assert_eq!(
            parser.base().join(OsStr::new("a/../b")).path.to_str(),
            Some("/a/../b")
        );
        parse(&mut parser, "cd x").map(drop).expect("a directory");
        assert_eq!(
            parser.base().join(OsStr::new("a")).path.to_str(),
            Some("/x/a")
        );
        assert_eq!(
            parser.base().join(OsStr::new("/a")).path.to_str(),
            Some("/a")
        );
        assert_eq!(
            parser.base().join(OsStr::new("")).path.to_str(),
            Some("/x/.")
        );
    }

    #[test]
    fn transactions_do_not_nest() {
        let mut parser = parser();
        for (line, is_good) in [
            ("begin", true),
            ("begin", false),
            ("lcd /", false),
            ("check", false),
            ("quota check", false),
            ("commit", true),
            ("commit", false),
            ("begin", true),
            ("abort", true),
            ("abort", false),
        ] {
            assert_eq!(parse(&mut parser, line).is_ok(), is_good, "{line}");
        }
    }
}
