//! A manual page in the form of man(7).
//!
//! `man` makes one for each subcommand. Text is escaped, so that nothing in it is a request of
//! man(7).

use std::io::{self, Write};

use clap_mangen::Man;
use extern4_mountd::{counters, options};

use super::MAIN;
use super::notes::{self, Note};
use crate::args::{GUIDE, IMAGE_PATHS};

/// The version in the footer.
const SOURCE: &str = concat!("extern4 ", env!("CARGO_PKG_VERSION"));

/// The page of a command.
pub(super) struct Page {
    command: clap::Command,
    name: String,
    section: &'static str,
}

impl Page {
    /// Returns the page of a command in a section of the manual.
    pub(super) fn of(command: clap::Command, section: &'static str) -> Self {
        let name = command
            .get_display_name()
            .unwrap_or_else(|| command.get_name())
            .to_owned();
        Self {
            command,
            name,
            section,
        }
    }

    /// Returns whether a user means this page by `name`; without one, that of the command itself.
    pub(super) fn is_of(&self, name: &str) -> bool {
        let short = if self.name == MAIN {
            Some("")
        } else {
            self.name.strip_prefix("extern4-")
        };
        self.name == name || short == Some(name)
    }

    pub(super) fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    /// Returns the source of the page.
    pub(super) fn render(&self) -> io::Result<Vec<u8>> {
        let man = Man::new(self.command.clone()).section(self.section);
        let mut page = Vec::new();
        // The first line asks for the preprocessor of tables. There is no date, so that builds can
        // be repeated; clap_mangen would leave out its quotes and move the rest of the footer.
        writeln!(
            page,
            "'\\\" t\n.TH {} {} \"\" \"{SOURCE}\" \"extern4 manual\"",
            self.name, self.section
        )?;
        man.render_name_section(&mut page)?;
        // Its long words cannot be spread over a line.
        writeln!(page, ".ad l")?;
        man.render_synopsis_section(&mut page)?;
        writeln!(page, ".ad")?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if self
            .command
            .get_subcommands()
            .any(|subcommand| !subcommand.is_hide_set())
        {
            man.render_subcommands_section(&mut page)?;
        }
        self.more(&mut page)?;
        if self.name == "extern4-stats" {
            let meanings = counters::ALL
                .iter()
                .map(|counter| (counter.name.into(), counter.meaning));
            list(&mut page, "COUNTERS", meanings)?;
        }
        self.examples(&mut page)?;
        list(&mut page, "EXIT STATUS", notes::exit_status(&self.name))?;
        list(
            &mut page,
            "ENVIRONMENT",
            notes::of(notes::ENVIRONMENT, &self.name),
        )?;
        list(&mut page, "FILES", notes::of(notes::FILES, &self.name))?;
        self.see_also(&mut page)?;
        Ok(page)
    }

    /// Writes what `--help` has after the options.
    fn more(&self, page: &mut Vec<u8>) -> io::Result<()> {
        match &*self.name {
            MAIN => {
                writeln!(page, ".SH \"IMAGE PATHS\"")?;
                prose(page, IMAGE_PATHS)
            }
            "mount.extern4" => mount_options(page),
            "extern4-mount" => {
                writeln!(
                    page,
                    ".SH \"MOUNT OPTIONS\"\nmount.extern4(8) has the table of them."
                )
            }
            _ => {
                let command = &self.command;
                let Some(text) = command
                    .get_after_long_help()
                    .or_else(|| command.get_after_help())
                else {
                    return Ok(());
                };
                writeln!(page, ".SH NOTES")?;
                prose(page, &text.to_string())
            }
        }
    }

    fn examples(&self, page: &mut Vec<u8>) -> io::Result<()> {
        let mut examples = notes::EXAMPLES
            .iter()
            .filter(|(name, ..)| *name == self.name)
            .peekable();
        if examples.peek().is_some() {
            writeln!(page, ".SH EXAMPLES")?;
        }
        for (_, meaning, line) in examples {
            writeln!(
                page,
                ".PP\n{}\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE",
                escaped(meaning),
                escaped(line)
            )?;
        }
        Ok(())
    }

    fn see_also(&self, page: &mut Vec<u8>) -> io::Result<()> {
        let main = (self.name != MAIN).then_some("extern4(1)");
        let others = notes::SEE_ALSO
            .iter()
            .filter(|(name, _)| *name == self.name);
        let pages: Vec<_> = main
            .into_iter()
            .chain(others.map(|(_, page)| *page))
            .collect();
        writeln!(page, ".SH \"SEE ALSO\"")?;
        if !pages.is_empty() {
            writeln!(page, "{}\n.PP", pages.join(", "))?;
        }
        writeln!(page, "The guide: {}", escaped(GUIDE))
    }
}

/// Writes a section of tagged paragraphs, unless there are none.
fn list(page: &mut Vec<u8>, head: &str, notes: impl Iterator<Item = Note>) -> io::Result<()> {
    let mut notes = notes.peekable();
    if notes.peek().is_some() {
        writeln!(page, ".SH \"{head}\"")?;
    }
    notes.try_for_each(|(tag, text)| {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(&tag), escaped(text))
    })
}

/// Writes paragraphs. Lines that begin with a space are kept as they are.
fn prose(page: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let mut verbatim = false;
    for line in text.lines() {
        if verbatim != line.starts_with(' ') {
            verbatim = !verbatim;
            writeln!(page, "{}", if verbatim { ".nf" } else { ".fi" })?;
        }
        writeln!(
            page,
            "{}",
            if line.is_empty() {
                ".PP".to_owned()
            } else {
                escaped(line)
            }
        )?;
    }
    if verbatim {
        writeln!(page, ".fi")
    } else {
        Ok(())
    }
}

/// Writes the table of mount options.
fn mount_options(page: &mut Vec<u8>) -> io::Result<()> {
    writeln!(
        page,
        ".SH \"MOUNT OPTIONS\"\n.TS\nlB lB lB\nlw(30n) lx lw(8n)."
    )?;
    writeln!(page, "option\tmeaning\ton remount")?;
    for row in options::rows() {
        let spellings: Vec<_> = row.spellings.iter().map(|text| escaped(text)).collect();
        let spellings = spellings.join(", ");
        let meaning = escaped(&row.meaning);
        writeln!(
            page,
            "T{{\n.ad l\n.nh\n{spellings}\nT}}\tT{{\n.ad l\n{meaning}\nT}}\t{}",
            row.on_remount
        )?;
    }
    writeln!(page, ".TE")
}

/// Returns text with what roff would take for its own.
fn escaped(text: &str) -> String {
    let text = text
        .replace('\\', "\\(rs")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('~', "\\(ti");
    let text = text.replace('^', "\\(ha").replace('`', "\\(ga");
    if text.starts_with('.') {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{escaped, prose};

    #[test]
    fn text_is_never_a_request() {
        assert_eq!(escaped(".x -a 'b' \\c"), "\\&.x \\-a \\(aqb\\(aq \\(rsc");
    }

    #[test]
    fn indented_lines_are_kept() {
        let mut page = Vec::new();
        prose(&mut page, "a:\n  -b\n  -c\n\nd").expect("memory");
        assert_eq!(
            String::from_utf8_lossy(&page),
            "a:\n.nf\n  \\-b\n  \\-c\n.fi\n.PP\nd\n"
        );
    }
}
