//! The comparison of two trees by their names, as `diff` of GNU compares directories.
//!
//! `diff` calls it where one of GNU's options is given. It compares names and contents, and neither
//! owners nor modes. It prints the lines of GNU diff in the C locale, in the same order, and ends
//! with the same exit code.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use extern4::diff::{Both, Error, Node, OneError, OpenFile, View};
use extern4::{FileType, Timespec};
use extern4_tree::Glob;

use super::operand::NamedTree;
use super::texts::{Side, Trouble, Writer, name as quoted_name};
use super::timespec;
use crate::app::App;
use crate::exit_status::ExitStatus;

/// Compares two trees, and writes the differences.
pub(super) fn compare(
    trees: &Both<NamedTree>,
    excludes: &[Glob],
    writer: Writer<'_>,
    app: &mut App,
) -> io::Result<()> {
    let Some(views) = views(trees, app) else {
        return Ok(());
    };
    let ancestors = Both {
        old: Vec::new(),
        new: Vec::new(),
    };
    let words = command_line(trees);
    let mut walk = Walk {
        trees,
        views: views.as_ref(),
        excludes,
        words,
        ancestors,
        writer,
        app,
    };
    walk.top()?;
    walk.writer.flush()
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

/// A walk over both trees.
struct Walk<'w> {
    trees: &'w Both<NamedTree>,
    views: Both<&'w View<'w>>,
    excludes: &'w [Glob],
    /// The command and its options, for the line in front of each file's changes.
    words: String,
    /// The directories above, by their [`Node::id`].
    ancestors: Both<Vec<(u64, u64)>>,
    writer: Writer<'w>,
    app: &'w mut App,
}

impl Walk<'_> {
    fn top(&mut self) -> io::Result<()> {
        let Some(nodes) = self.nodes(
            b"",
            Both {
                old: true,
                new: true,
            },
        ) else {
            return Ok(());
        };
        self.enter(nodes);
        self.directory(
            b"",
            Both {
                old: true,
                new: true,
            },
        )
    }

    fn enter(&mut self, nodes: Both<Option<Node>>) {
        self.ancestors.old.extend(nodes.old.map(|node| node.id));
        self.ancestors.new.extend(nodes.new.map(|node| node.id));
    }

    /// Compares the directories at a path, of which one may be missing.
    fn directory(&mut self, path: &[u8], present: Both<bool>) -> io::Result<()> {
        let Some(names) = self.names(path, present) else {
            return Ok(());
        };
        let mut all: Vec<&Vec<u8>> = names.old.union(&names.new).collect();
        if let Some(first) = self
            .writer
            .gnu
            .starting_file
            .as_ref()
            .filter(|_| path.is_empty())
        {
            all.retain(|name| name.as_slice() >= first.as_bytes());
        }
        all.retain(|name| !self.excludes.iter().any(|pattern| pattern.matches(name)));
        for name in all {
            let present = Both {
                old: names.old.contains(name),
                new: names.new.contains(name),
            };
            let below = if path.is_empty() {
                name.clone()
            } else {
                [path, b"/", name].concat()
            };
            self.entry(&below, present)?;
        }
        Ok(())
    }

    /// Returns the names in both directories. Reports one that cannot be read.
    fn names(&mut self, path: &[u8], present: Both<bool>) -> Option<Both<BTreeSet<Vec<u8>>>> {
        let read = |view: &View<'_>, is_present: bool| {
            if is_present {
                view.names(path)
            } else {
                Ok(Default::default())
            }
        };
        let old = read(self.views.old, present.old).map_err(|error| self.report_old(path, &error));
        let new = read(self.views.new, present.new).map_err(|error| self.report_new(path, &error));
        Some(Both {
            old: old.ok()?,
            new: new.ok()?,
        })
    }

    /// Returns what is at a path. Reports what cannot be looked at.
    fn nodes(&mut self, path: &[u8], present: Both<bool>) -> Option<Both<Option<Node>>> {
        let follow = !self.writer.gnu.no_dereference || path.is_empty();
        let old = present
            .old
            .then(|| self.views.old.node(path, follow))
            .transpose();
        let old = old.map_err(|error| self.report_old(path, &error));
        let new = present
            .new
            .then(|| self.views.new.node(path, follow))
            .transpose();
        let new = new.map_err(|error| self.report_new(path, &error));
        let nodes = Both {
            old: old.ok()?.flatten(),
            new: new.ok()?.flatten(),
        };
        // A name that leads nowhere is a symbolic link.
        let gone = Both {
            old: present.old && nodes.old.is_none(),
            new: present.new && nodes.new.is_none(),
        };
        for (tree, is_gone) in [(&self.trees.old, gone.old), (&self.trees.new, gone.new)] {
            if is_gone {
                let shown = String::from_utf8_lossy(&tree.shown(path)).into_owned();
                self.app
                    .fail_at(ExitStatus::Failed, shown, "No such file or directory");
            }
        }
        (!gone.old && !gone.new).then_some(nodes)
    }

    fn report_old(&mut self, path: &[u8], error: &Error) {
        self.trees.old.report(path, error, self.app);
    }

    fn report_new(&mut self, path: &[u8], error: &Error) {
        self.trees.new.report(path, error, self.app);
    }

    /// Compares a name that one of two directories has, or both.
    fn entry(&mut self, path: &[u8], present: Both<bool>) -> io::Result<()> {
        let gnu = self.writer.gnu;
        let is_in_both = present.old && present.new;
        if !is_in_both && self.is_own(path, present) {
            return Ok(());
        }
        let is_empty_else = gnu.new_file || gnu.unidirectional_new_file && present.new;
        if !is_in_both && !is_empty_else {
            return self.only(path, present);
        }
        let Some(nodes) = self.nodes(path, present) else {
            return Ok(());
        };
        let types = Both {
            old: nodes.old,
            new: nodes.new,
        }
        .map(|node| node.map(|node| node.file_type));
        match (types.old.or(types.new), types.new.or(types.old)) {
            (Some(FileType::Directory), Some(FileType::Directory)) => self.directories(path, nodes),
            (Some(FileType::Regular), Some(FileType::Regular)) => self.files(path, nodes),
            _ if !is_in_both => self.only(path, present),
            (Some(FileType::Symlink), Some(FileType::Symlink)) => self.links(path),
            (Some(FileType::CharDevice), Some(FileType::CharDevice))
            | (Some(FileType::BlockDevice), Some(FileType::BlockDevice))
                if nodes.old.map(|node| node.device) == nodes.new.map(|node| node.device) =>
            {
                self.identical(path)
            }
            _ => self.types(path, nodes),
        }
    }

    /// Returns whether a name is that of the directory which every volume has, and the other tree
    /// is no volume.
    fn is_own(&self, path: &[u8], present: Both<bool>) -> bool {
        let Both { old, new } = self.views;
        let (view, other) = if present.old { (old, new) } else { (new, old) };
        view.is_lost_found(path) && !other.is_volume()
    }

    fn only(&mut self, path: &[u8], present: Both<bool>) -> io::Result<()> {
        self.app.differs();
        let tree = if present.old {
            &self.trees.old
        } else {
            &self.trees.new
        };
        self.writer.line(&[&tree.only(path)])
    }

    fn types(&mut self, path: &[u8], nodes: Both<Option<Node>>) -> io::Result<()> {
        self.app.differs();
        let word = |node: Option<Node>| node.map_or(&b""[..], type_words);
        let Both { old, new } = self.labelled(path);
        let old_type = word(nodes.old);
        let new_type = word(nodes.new);
        self.writer.line(&[
            b"File ",
            &old,
            b" is a ",
            old_type,
            b" while file ",
            &new,
            b" is a ",
            new_type,
        ])
    }

    fn links(&mut self, path: &[u8]) -> io::Result<()> {
        let old = self
            .views
            .old
            .link_target(path)
            .map_err(|error| self.report_old(path, &error));
        let new = self
            .views
            .new
            .link_target(path)
            .map_err(|error| self.report_new(path, &error));
        let (Ok(old), Ok(new)) = (old, new) else {
            return Ok(());
        };
        if old == new {
            return self.identical(path);
        }
        self.app.differs();
        let old = self.trees.old.shown(path);
        let new = self.trees.new.shown(path);
        self.writer
            .line(&[b"Symbolic links ", &old, b" and ", &new, b" differ"])
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

    /// With `-s`, says that two files are the same.
    fn identical(&mut self, path: &[u8]) -> io::Result<()> {
        let old = self.trees.old.shown(path);
        let new = self.trees.new.shown(path);
        self.writer.identical(&old, &new)
    }

    fn directories(&mut self, path: &[u8], nodes: Both<Option<Node>>) -> io::Result<()> {
        if !self.writer.gnu.recursive {
            let old = self.trees.old.shown(path);
            let new = self.trees.new.shown(path);
            return self
                .writer
                .line(&[b"Common subdirectories: ", &old, b" and ", &new]);
        }
        let is_above = |ids: &[(u64, u64)], node: Option<Node>| {
            node.is_some_and(|node| ids.contains(&node.id))
        };
        let loops = if is_above(&self.ancestors.old, nodes.old) {
            Some(&self.trees.old)
        } else {
            Some(&self.trees.new).filter(|_| is_above(&self.ancestors.new, nodes.new))
        };
        if let Some(tree) = loops {
            let shown = String::from_utf8_lossy(&tree.shown(path)).into_owned();
            self.app
                .fail_at(ExitStatus::Failed, shown, "recursive directory loop");
            return Ok(());
        }
        let depths = self.ancestors.as_ref().map(Vec::len);
        self.enter(nodes);
        self.directory(
            path,
            Both {
                old: nodes.old.is_some(),
                new: nodes.new.is_some(),
            },
        )?;
        self.ancestors.old.truncate(depths.old);
        self.ancestors.new.truncate(depths.new);
        Ok(())
    }

    /// Compares two regular files, of which one may be missing.
    fn files(&mut self, path: &[u8], nodes: Both<Option<Node>>) -> io::Result<()> {
        let views = self.views;
        let old = open_or_empty(views.old, path, nodes.old)
            .map_err(|error| self.report_old(path, &error));
        let new = open_or_empty(views.new, path, nodes.new)
            .map_err(|error| self.report_new(path, &error));
        let (Ok(old), Ok(new)) = (old, new) else {
            return Ok(());
        };
        let labels = self.writer.gnu.label.len();
        let modified =
            |node: Option<Node>| node.map_or(Timespec::default(), |node| timespec(node.modified));
        let names = self.labelled(path);
        let sides = Both {
            old: Side {
                name: names.old,
                modified: (labels < 1).then(|| modified(nodes.old)),
                file: &old,
            },
            new: Side {
                name: names.new,
                modified: (labels < 2).then(|| modified(nodes.new)),
                file: &new,
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
            Err(Trouble::TooLarge(is_new)) => {
                let tree = if is_new {
                    &self.trees.new
                } else {
                    &self.trees.old
                };
                let shown = String::from_utf8_lossy(&tree.shown(path)).into_owned();
                self.app
                    .fail_at(ExitStatus::Failed, shown, Trouble::too_large());
            }
            Err(Trouble::Unreadable(OneError {
                is_new: false,
                error,
            })) => self.report_old(path, &error),
            Err(Trouble::Unreadable(OneError {
                is_new: true,
                error,
            })) => self.report_new(path, &error),
        }
        Ok(())
    }
}

/// Opens a regular file; one that is missing is empty.
fn open_or_empty<'v>(
    view: &'v View<'_>,
    path: &[u8],
    node: Option<Node>,
) -> Result<OpenFile<'v>, Error> {
    match node {
        Some(_) => view.open(path),
        None => Ok(OpenFile::of_bytes(Vec::new())),
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
