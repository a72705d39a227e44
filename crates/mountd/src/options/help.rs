//! The table of mount options for readers: in `--help` and the manual page, and in the guide.
//!
//! `args` and `man` print it, and the guide's table has the same rows.

use super::spelling::Spelling;
use super::table::{Layer, MountOption, Remount, TABLE};

/// A row of the table in the manual page.
pub struct Row {
    /// The ways to write the option.
    pub spellings: Vec<&'static str>,
    /// The effect of the option, or the reason why it has none.
    pub meaning: String,
    /// Whether a remount changes it; empty for an option without an effect.
    pub on_remount: &'static str,
}

/// Returns the rows of the table.
pub fn rows() -> impl Iterator<Item = Row> {
    TABLE.iter().map(|option| Row {
        spellings: Spelling::of(option).map(|spelling| spelling.text).collect(),
        meaning: meaning(option),
        on_remount: match option.layer {
            Layer::Ignored | Layer::Refused => "",
            _ => on_remount(option),
        },
    })
}

/// Returns the options with their meanings, a paragraph each.
pub fn help() -> String {
    let mut text = "Options:".to_owned();
    for option in TABLE {
        let spellings: Vec<_> = Spelling::of(option).map(|spelling| spelling.text).collect();
        text += &format!("\n\n{}: {}", spellings.join(", "), meaning(option));
    }
    text
}

fn meaning(option: &MountOption) -> String {
    let note = match option.layer {
        Layer::Ignored => "Ignored. ",
        Layer::Refused => "Refused: ",
        Layer::Kernel | Layer::Command | Layer::Server | Layer::Ext4 => "",
    };
    format!("{note}{}", option.help)
}

/// Returns what a remount does about the option.
fn on_remount(option: &MountOption) -> &'static str {
    match option.remount {
        Remount::Changes => "changes",
        Remount::Fixed(..) | Remount::Reported => "fixed",
        Remount::Ignores => "ignored",
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Meaning;
    use super::*;

    const BEGIN: &str =
        "<!-- The table of mount options, as the test `the_guide_has_the_table` prints it -->\n";
    const END: &str = "<!-- The end of the table -->\n";

    /// Returns a row of a Markdown table.
    fn row(columns: &[&str]) -> String {
        format!("| {} |\n", columns.join(" | "))
    }

    fn spellings(option: &'static MountOption) -> String {
        // Without the limits of a value.
        let short = |spelling: Spelling| {
            format!("`{}`", spelling.text.split(',').next().unwrap_or_default())
        };
        Spelling::of(option)
            .map(short)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn layer(layer: Layer) -> &'static str {
        match layer {
            Layer::Kernel => "the kernel",
            Layer::Command => "the command",
            Layer::Server => "the server",
            Layer::Ext4 => "ext4",
            Layer::Ignored | Layer::Refused => "",
        }
    }

    fn shown(option: &MountOption) -> &'static str {
        let is_flag = |(_, meaning): &(&str, Meaning)| matches!(meaning, Meaning::Flag(..));
        match option.remount {
            Remount::Reported => "`stats`",
            _ if option.spellings.iter().any(is_flag) => "mount table",
            _ => "",
        }
    }

    /// Returns the tables of the guide.
    fn guide() -> String {
        let of_layer =
            |layers: &'static [Layer]| TABLE.iter().filter(|option| layers.contains(&option.layer));
        let mut text = row(&[
            "option",
            "meaning",
            "carried out by",
            "shown in",
            "on remount",
        ]) + "|---|---|---|---|---|\n";
        for option in of_layer(&[Layer::Kernel, Layer::Command, Layer::Server, Layer::Ext4]) {
            text += &row(&[
                &spellings(option),
                option.help,
                layer(option.layer),
                shown(option),
                on_remount(option),
            ]);
        }
        for (head, kind) in [
            ("ignored", &[Layer::Ignored]),
            ("refused", &[Layer::Refused]),
        ] {
            text += &format!("\n{}|---|---|\n", row(&[head, "reason"]));
            of_layer(kind).for_each(|option| text += &row(&[&spellings(option), option.help]));
        }
        text
    }

    #[test]
    fn the_guide_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/mount.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let found = page
            .split_once(BEGIN)
            .and_then(|(_, rest)| rest.split_once(END))
            .map(|(table, _)| table);
        let expected = guide();
        assert!(
            found == Some(&*expected),
            "{path} must have between its two comments:\n{expected}"
        );
    }

    #[test]
    fn every_option_is_in_the_help() {
        let text = help();
        for option in TABLE {
            assert!(text.contains(option.help));
            for spelling in Spelling::of(option) {
                assert!(text.contains(spelling.text), "{}", spelling.text);
            }
        }
    }
}
