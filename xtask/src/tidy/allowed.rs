//! The number of findings of each check that each crate may still have.
//!
//! The table only shrinks: more findings are a fault, and `xtask tidy --tighten` lowers the numbers
//! to what is left.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::finding::Finding;

/// The table, from the root of the workspace: lines of check, crate and number. A number that is
/// not there is 0.
pub(crate) const FILE: &str = "xtask/src/tidy/allowed.txt";

/// Numbers of findings, each by its check and crate.
pub(crate) type Numbers = BTreeMap<(String, String), usize>;

/// Reads the table. The lower of two numbers counts: a merge keeps the lines of both sides.
///
/// # Errors
/// A line that is none of a table.
pub(crate) fn parse(text: &str) -> Result<Numbers, String> {
    let mut numbers = Numbers::new();
    for line in text.lines() {
        let [check, unit, number] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("{FILE}: not a check, a crate and a number: {line}"));
        };
        let number: usize = number
            .parse()
            .map_err(|error| format!("{FILE}: {line}: {error}"))?;
        let least = numbers
            .entry((check.to_owned(), unit.to_owned()))
            .or_insert(number);
        *least = number.min(*least);
    }
    Ok(numbers)
}

/// The text of a table.
pub(crate) fn text(numbers: &Numbers) -> String {
    let mut text = String::new();
    for ((check, unit), number) in numbers.iter().filter(|(_, number)| **number > 0) {
        // Writing to a string never fails.
        let _ = writeln!(text, "{check} {unit} {number}");
    }
    text
}

/// The numbers of these findings.
pub(crate) fn count(findings: &[Finding]) -> Numbers {
    let mut numbers = Numbers::new();
    for finding in findings {
        *numbers
            .entry((finding.check.to_owned(), finding.unit().to_owned()))
            .or_default() += 1;
    }
    numbers
}

/// A fault for each number that is higher than allowed.
pub(crate) fn faults(findings: &[Finding], allowed: &Numbers) -> Vec<String> {
    let mut faults = Vec::new();
    for ((check, unit), number) in count(findings) {
        let most = allowed
            .get(&(check.clone(), unit.clone()))
            .copied()
            .unwrap_or(0);
        if number > most {
            faults.push(format!(
                "{check}: {number} in {unit}, allowed are {most}: `xtask tidy --list {check} {unit}` prints them"
            ));
        }
    }
    faults
}

/// The allowed numbers, none higher than the numbers of these findings.
pub(crate) fn tighten(findings: &[Finding], allowed: &Numbers) -> Numbers {
    let counted = count(findings);
    let left = |key, most: &usize| counted.get(key).copied().unwrap_or(0).min(*most);
    allowed
        .iter()
        .map(|(key, most)| (key.clone(), left(key, most)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(number: usize) -> Vec<Finding> {
        (0..number)
            .map(|line| Finding::new("word", "crates/vfs/src/a.rs", line, String::new()))
            .collect()
    }

    #[test]
    fn only_more_than_allowed_is_a_fault() {
        let allowed = parse("word vfs 2\n").expect("a table");
        assert_eq!(faults(&findings(2), &allowed), [""; 0]);
        assert_eq!(faults(&findings(1), &allowed), [""; 0]);
        assert_eq!(faults(&findings(3), &allowed).len(), 1);
        assert_eq!(faults(&findings(1), &Numbers::new()).len(), 1);
        assert_eq!(
            parse("word vfs 1\nword vfs 2\n"),
            parse("word vfs 2\nword vfs 1\n")
        );
        assert_eq!(
            text(&parse("word vfs 1\nword vfs 2\n").expect("a table")),
            "word vfs 1\n"
        );
        assert!(parse("word vfs\n").is_err() && parse("word vfs x\n").is_err());
    }

    #[test]
    fn the_table_only_shrinks() {
        let allowed = parse("first-line vfs 4\nword vfs 2\n").expect("a table");
        assert_eq!(text(&tighten(&findings(1), &allowed)), "word vfs 1\n");
        assert_eq!(text(&tighten(&findings(3), &allowed)), "word vfs 2\n");
    }
}
