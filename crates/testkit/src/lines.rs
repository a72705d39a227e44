//! Output of programs by lines, and the differences between two of them.

/// Returns the lines of `output`, sorted.
pub fn sorted(output: &[u8]) -> Vec<String> {
    sorted_by(output, b'\n')
}

/// Returns the parts of `output` between `separator`s, sorted; bytes that are not text are escaped.
pub fn sorted_by(output: &[u8], separator: u8) -> Vec<String> {
    let parts = output
        .split(|byte| *byte == separator)
        .filter(|part| !part.is_empty());
    let mut parts: Vec<_> = parts.map(|part| part.escape_ascii().to_string()).collect();
    parts.sort();
    parts
}

/// Asserts that two lists are the same, or shows their differences.
#[track_caller]
pub fn assert_same(what: &str, ours: &[String], theirs: &[String]) {
    let only = |a: &[String], b: &[String]| {
        a.iter()
            .filter(|line| !b.contains(line))
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(
        ours == theirs,
        "{what}\nonly ours:\n{}\nonly theirs:\n{}",
        only(ours, theirs),
        only(theirs, ours)
    );
}
