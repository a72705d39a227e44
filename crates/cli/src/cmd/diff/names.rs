//! The comparison of two trees by their names, as `diff` of GNU compares directories.
//!
//! `diff` calls it where one of GNU's options is given. It prints the lines of GNU diff in the C
//! locale, in the same order, and ends with the same exit code.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use extern4::diff::{
    Both, FileError, NameFinding, NameOptions, Node, OneError, OpenFile, View, compare_names,
};
use extern4::{FileType, Timespec};

use super::operand::NamedTree;
use super::texts::{Side, Trouble, Writer, name as quoted_name, too_large};
use super::timespec;
use crate::app::App;
use crate::exit_status::ExitStatus;

/// Compares two trees, and writes the differences.
pub(super) fn compare(
    trees: &Both<NamedTree>,
    options: &NameOptions,
    writer: Writer<'_>,
    app: &mut App,
) -> io::Result<()> {
    let Some(views) = views(trees, app) else {
        return Ok(());
    };
    let words = command_line(trees);
    let mut report = Report {
        trees,
        words,
        writer,
        app,
    };
    compare_names(views.as_ref(), options, |path, finding| {
        report.finding(path, finding)
    })?;
    report.writer.flush()
}

/// Returns the trees by their names. Reports one that cannot be listed.
fn views<'t>(trees: &'t Both<NamedTree>, app: &mut App) -> Option<Both<View<'t>>> {
    let mut view = |tree: &'t NamedTree| {
        let view = tree
            .tree
            .view()
            .map_err(|error| tree.report(b"", &error, app))
            .ok()?;
        view.warnings()
            .iter()
            .for_each(|warning| app.note(format_args!("warning: {warning}")));
        Some(view)
    };
    Some(Both {
        old: view(&trees.old)?,
        new: view(&trees.new)?,
    })
}

/// Writes what a comparison finds.
struct Report<'w> {
    trees: &'w Both<NamedTree>,
    /// The command and its options, for the line in front of each file's changes.
    words: String,
    writer: Writer<'w>,
    app: &'w mut App,
}

impl Report<'_> {
    fn finding(&mut self, path: &[u8], finding: NameFinding<'_>) -> io::Result<()> {
        let Both { old, new } = self.trees.as_ref();
        let tree = |is_new| if is_new { new } else { old };
        match finding {
            NameFinding::OnlyInOld => self.differ(&[&old.only(path)]),
            NameFinding::OnlyInNew => self.differ(&[&new.only(path)]),
            NameFinding::Types(nodes) => self.types(path, nodes),
            NameFinding::Same => self.writer.identical(&old.shown(path), &new.shown(path)),
            NameFinding::Links => {
                let old = old.shown(path);
                let new = new.shown(path);
                self.differ(&[b"Symbolic links ", &old, b" and ", &new, b" differ"])
            }
            NameFinding::Directories => {
                let old = old.shown(path);
                let new = new.shown(path);
                self.writer
                    .line(&[b"Common subdirectories: ", &old, b" and ", &new])
            }
            NameFinding::Files { nodes, files } => self.files(path, nodes, files),
            NameFinding::Unreadable(error) => {
                tree(error.is_new).report(path, &error.error, self.app);
                Ok(())
            }
            NameFinding::Dangling { is_new } => {
                self.fail(tree(is_new), path, "No such file or directory");
                Ok(())
            }
            NameFinding::Loop { is_new } => {
                self.fail(tree(is_new), path, "recursive directory loop");
                Ok(())
            }
        }
    }

    /// Writes a line about a difference.
    fn differ(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.app.differs();
        self.writer.line(parts)
    }

    /// Reports a file of one of the trees.
    fn fail(&mut self, tree: &NamedTree, path: &[u8], reason: &str) {
        let shown = String::from_utf8_lossy(&tree.shown(path)).into_owned();
        self.app.fail_at(ExitStatus::Failed, shown, reason);
    }

    fn types(&mut self, path: &[u8], nodes: Both<Node>) -> io::Result<()> {
        let names = self.labelled(path);
        let words = nodes.map(type_words);
        self.differ(&[
            b"File ",
            &names.old,
            b" is a ",
            words.old,
            b" while file ",
            &names.new,
            b" is a ",
            words.new,
        ])
    }

    /// Returns the names that `--label` gives to both files, or else their paths.
    fn labelled(&self, path: &[u8]) -> Both<Vec<u8>> {
        let labels = &self.writer.gnu.label;
        let name = |tree: &NamedTree, label: Option<&OsString>| {
            label.map_or_else(|| tree.shown(path), |label| label.as_bytes().to_vec())
        };
        Both {
            old: name(&self.trees.old, labels.first()),
            new: name(&self.trees.new, labels.get(1)),
        }
    }

    /// Compares two regular files, of which one may be missing.
    fn files(
        &mut self,
        path: &[u8],
        nodes: Both<Option<Node>>,
        files: Both<&OpenFile<'_>>,
    ) -> io::Result<()> {
        let labels = self.writer.gnu.label.len();
        let modified =
            |node: Option<Node>| node.map_or(Timespec::default(), |node| timespec(node.modified));
        let names = self.labelled(path);
        let sides = Both {
            old: Side {
                name: names.old,
                modified: (labels < 1).then(|| modified(nodes.old)),
                file: files.old,
            },
            new: Side {
                name: names.new,
                modified: (labels < 2).then(|| modified(nodes.new)),
                file: files.new,
            },
        };
        let title = format!(
            "{} {} {}",
            self.words,
            quoted_name(&sides.old.name),
            quoted_name(&sides.new.name)
        );
        match self.writer.compare(sides.as_ref(), &title) {
            Ok(true) => {}
            Ok(false) => self.app.differs(),
            Err(Trouble::Output(error)) => return Err(error),
            Err(Trouble::File(FileError::TooLarge { is_new })) => {
                let Both { old, new } = self.trees.as_ref();
                self.fail(if is_new { new } else { old }, path, &too_large());
            }
            Err(Trouble::File(FileError::Unreadable(OneError { is_new, error }))) => {
                let Both { old, new } = self.trees.as_ref();
                let tree = if is_new { new } else { old };
                tree.report(path, &error, self.app);
            }
        }
        Ok(())
    }
}

/// Returns the words of GNU diff for the type of a file.
fn type_words(node: Node) -> &'static [u8] {
    match node.file_type {
        FileType::Regular if node.size == 0 => b"regular empty file",
        FileType::Regular => b"regular file",
        FileType::Directory => b"directory",
        FileType::Symlink => b"symbolic link",
        FileType::CharDevice => b"character special file",
        FileType::BlockDevice => b"block special file",
        FileType::Fifo => b"fifo",
        FileType::Socket => b"socket",
    }
}

/// Returns the command with the options of this process, as GNU diff repeats them.
fn command_line(trees: &Both<NamedTree>) -> String {
    let mut words: Vec<_> = std::env::args_os()
        .skip_while(|word| word != "diff")
        .collect();
    for operand in [&trees.new, &trees.old] {
        if let Some(at) = words.iter().rposition(|word| *word == operand.operand) {
            words.remove(at);
        }
    }
    let words: Vec<_> = words
        .iter()
        .filter(|word| *word != "--")
        .map(|word| shell_quoted(word.as_bytes()))
        .collect();
    words.join(" ")
}

/// Returns a word as a shell reads it, with bytes that are no text escaped.
fn shell_quoted(word: &[u8]) -> String {
    let text = crate::text::escape(word);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+,./:@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
