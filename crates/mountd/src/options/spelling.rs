//! Finds the option that a word spells.
//!
//! The parser calls [`find`]. Spellings come from the table only: with `no`, with a value, or
//! plain.

use super::Options;
use super::table::{Layer, Meaning, MountOption, TABLE};

/// A spelling of the table.
#[derive(Clone, Copy)]
pub(super) struct Spelling {
    pub(super) text: &'static str,
    meaning: &'static Meaning,
    option: &'static MountOption,
}

impl Spelling {
    /// Returns all spellings of an option.
    pub(super) fn of(option: &'static MountOption) -> impl Iterator<Item = Self> {
        option.spellings.iter().map(move |(text, meaning)| Self {
            text,
            meaning,
            option,
        })
    }

    fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().flat_map(Self::of)
    }

    /// Returns the text before a value.
    fn key(self) -> &'static str {
        self.text.split('=').next().unwrap_or(self.text)
    }

    fn prefix(self) -> Option<&'static str> {
        self.text.strip_suffix('*')
    }

    fn is_refused(self) -> bool {
        self.option.layer == Layer::Refused
    }

    /// Returns whether `word` is this, or this with a value in place of the capitals.
    fn fits(self, word: &str, key: &str) -> bool {
        let takes_value = self
            .text
            .split_once('=')
            .is_some_and(|(_, value)| value.starts_with(char::is_uppercase));
        self.text == word || takes_value && self.key() == key && word.len() > key.len()
    }
}

/// Returns the words that options may be, each up to its value if that is to be chosen.
pub fn starts() -> impl Iterator<Item = &'static str> {
    let offered =
        Spelling::all().filter(|spelling| !spelling.is_refused() && spelling.prefix().is_none());
    offered.map(|spelling| match spelling.text.split_once('=') {
        Some((key, value)) if value.starts_with(char::is_uppercase) => &spelling.text[..=key.len()],
        _ => spelling.text,
    })
}

/// Returns the option that a word spells, and its meaning.
///
/// # Errors
/// The reason why the word is refused.
pub(super) fn find(word: &str) -> Result<(&'static MountOption, &'static Meaning), String> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let of_key: Vec<_> = Spelling::all()
        .filter(|spelling| spelling.key() == key)
        .collect();
    // A key that is refused with one value is refused with any unknown one.
    let found = of_key
        .iter()
        .find(|spelling| spelling.fits(word, key))
        .or_else(|| of_key.iter().find(|spelling| spelling.is_refused()));
    match found {
        Some(spelling) if spelling.is_refused() => Err(format!(
            "'{word}' is not supported: {}",
            spelling.option.help
        )),
        Some(spelling)
            if spelling
                .meaning
                .apply(&mut Options::default(), value)
                .is_some() =>
        {
            Ok((spelling.option, spelling.meaning))
        }
        None if of_key.is_empty() => by_prefix(word).ok_or_else(|| unknown(word, key)),
        _ => Err(format!("'{word}': it is written {}", any_of(&of_key))),
    }
}

fn by_prefix(word: &str) -> Option<(&'static MountOption, &'static Meaning)> {
    let found = Spelling::all().find(|spelling| {
        spelling
            .prefix()
            .is_some_and(|prefix| word.starts_with(prefix))
    });
    found.map(|spelling| (spelling.option, spelling.meaning))
}

fn unknown(word: &str, key: &str) -> String {
    match nearest(key) {
        Some(near) => format!("'{word}' is not known; did you mean '{near}'?"),
        None => format!("'{word}' is not known; extern4 mount --help lists the options"),
    }
}

/// Returns the key that is spelled most like `wrong`, if one is close.
fn nearest(wrong: &str) -> Option<&'static str> {
    let known =
        Spelling::all().filter(|spelling| !spelling.is_refused() && spelling.prefix().is_none());
    let (likeness, near) = known
        .map(|spelling| (strsim::jaro_winkler(wrong, spelling.key()), spelling.key()))
        .max_by(|one, other| one.0.total_cmp(&other.0))?;
    (likeness > 0.8).then_some(near)
}

/// Joins spellings for a message: `a, b or c`.
fn any_of(spellings: &[Spelling]) -> String {
    let texts: Vec<_> = spellings.iter().map(|spelling| spelling.text).collect();
    match texts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => texts.concat(),
    }
}
