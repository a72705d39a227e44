//! Options without a dash, as `tar` took them first: `tar xzf a.tgz`.

use std::borrow::Cow;
use std::ffi::OsString;

use crate::args::Args;

/// The letters that may stand in a first word without a dash, and letters that take a word.
const LETTERS: &str = "cxtfCvzjJakpo";
const WITH_WORDS: &str = "fC";
/// The letters of which there is one.
const MODES: &str = "cxt";

/// Returns the command line with the first word behind `tar` as options with dashes, if it is of
/// letters alone. The words that they take follow it in the order of the letters.
pub(crate) fn with_dashes(line: &[OsString]) -> Cow<'_, [OsString]> {
    let is_command = |word: &&OsString| Args::subcommand(word).is_some();
    let tar = line
        .iter()
        .skip(1)
        .find(is_command)
        .filter(|word| *word == "tar");
    let at = tar.and_then(|tar| line.iter().position(|word| std::ptr::eq(word, tar)));
    let Some(at) = at.map(|at| at + 1).filter(|at| *at < line.len()) else {
        return Cow::Borrowed(line);
    };
    let Some(letters) = line[at].to_str().filter(|word| are_letters(word)) else {
        return Cow::Borrowed(line);
    };
    let mut expanded = line[..at].to_vec();
    let mut words = line[at + 1..].iter().cloned();
    for letter in letters.chars() {
        expanded.push(format!("-{letter}").into());
        if WITH_WORDS.contains(letter) {
            expanded.extend(words.next());
        }
    }
    expanded.extend(words);
    Cow::Owned(expanded)
}

fn are_letters(word: &str) -> bool {
    word.chars().all(|letter| LETTERS.contains(letter))
        && word.contains(|letter| MODES.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::with_dashes;
    use std::ffi::OsString;

    #[test]
    fn letters_become_options() {
        let check = |line: &str, expected: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let found: Vec<_> = with_dashes(&words)
                .iter()
                .map(|word| word.to_str().map(str::to_owned))
                .collect();
            let expected: Vec<_> = expected
                .split(' ')
                .map(|word| Some(word.to_owned()))
                .collect();
            assert_eq!(found, expected, "{line}");
        };
        check("extern4 tar c a.img:/etc", "extern4 tar -c a.img:/etc");
        check("extern4 tar cf - a.img", "extern4 tar -c -f - a.img");
        check(
            "extern4 --as 5 tar xvCf a.img b.tar x",
            "extern4 --as 5 tar -x -v -C a.img -f b.tar x",
        );
        for same in [
            "extern4 tar -cf - a",
            "extern4 tar copy",
            "extern4 tar vf",
            "extern4 cp tar c",
            "extern4 tar",
        ] {
            check(same, same);
        }
    }
}
