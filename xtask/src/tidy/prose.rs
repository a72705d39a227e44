//! Sentences of comments and documents, and the checks of how they are written.

use super::finding::Finding;
use super::source::Comment;

/// No statement has one of these as its subject.
const SUBJECTS: &[&str] = &["who", "whoever", "what", "whatever"];

/// Words and phrases that do not occur.
const WORDS: &[&str] = &[
    "anew",
    "beside",
    "by turns",
    "everybody",
    "heed",
    "heeded",
    "heeding",
    "heeds",
    "is taken into use",
    "lest",
    "nobody",
    "of its own",
    "of their own",
    "so many",
    "somebody",
    "those of",
    "those that",
    "those which",
    "to and fro",
    "what came of",
];

/// First words of a doc comment that says nothing by itself.
const EMPTY_STARTS: &[&str] = &[
    "As above",
    "Ditto",
    "See above",
    "See the module",
    "The same",
];

/// Columns that a comment may have.
const WIDTH: usize = 100;

/// Lines of text that belong together, with their numbers.
type Block<'t> = Vec<(usize, &'t str)>;

/// A sentence and the line in which it begins.
#[derive(Debug, PartialEq, Eq)]
struct Sentence {
    line: usize,
    text: String,
}

/// Findings of all checks of prose in the comments of a source file.
pub(crate) fn of_comments(path: &str, comments: &[Comment]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for block in blocks(comments) {
        findings.extend(of_sentences(path, &sentences(&block)));
    }
    for comment in comments.iter().filter(|comment| comment.is_alone) {
        findings.extend(of_first_line(path, comment, comments));
    }
    findings
}

/// Findings of the checks of sentences in a document.
pub(crate) fn of_document(path: &str, text: &str) -> Vec<Finding> {
    let lines: Block<'_> = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line))
        .collect();
    of_sentences(path, &sentences(&lines))
}

/// Findings of comment lines that are too long. `text` is the whole file.
pub(crate) fn of_width(path: &str, text: &str, comments: &[Comment]) -> Vec<Finding> {
    let lines: Vec<_> = text.lines().collect();
    let is_long = |comment: &&Comment| {
        comment.is_alone
            && lines
                .get(comment.line - 1)
                .is_some_and(|line| line.chars().count() > WIDTH)
    };
    let found = |comment: &Comment| {
        Finding::new(
            "comment-width",
            path,
            comment.line,
            format!("over {WIDTH} columns"),
        )
    };
    comments.iter().filter(is_long).map(found).collect()
}

/// Comments of the same kind in adjacent lines, without their slashes.
fn blocks(comments: &[Comment]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut last = (0, "");
    for comment in comments {
        let kind = kind(&comment.text);
        if !comment.is_alone || last != (comment.line - 1, kind) {
            blocks.push(Vec::new());
        }
        let text = &comment.text[kind.len()..];
        blocks
            .last_mut()
            .expect("one was begun")
            .push((comment.line, text.strip_prefix(' ').unwrap_or(text)));
        last = (comment.line, kind);
    }
    blocks
}

fn kind(comment: &str) -> &str {
    let length = if comment.starts_with("///") || comment.starts_with("//!") {
        3
    } else {
        2
    };
    &comment[..length]
}

/// The sentences of Markdown. Headings, tables and code are none.
fn sentences(lines: &[(usize, &str)]) -> Vec<Sentence> {
    let mut paragraphs = vec![Block::new()];
    let mut is_code = false;
    for (number, line) in lines {
        let text = line.trim();
        is_code ^= text.starts_with("```");
        let is_apart =
            is_code || text.is_empty() || text.starts_with(['#', '|']) || text.starts_with("```");
        let item = text.trim_start_matches(|c: char| c.is_ascii_digit() || "-*.> ".contains(c));
        let begins_item = item.len() < text.len() && !text.starts_with("**");
        if is_apart || begins_item {
            paragraphs.push(Block::new());
        }
        if !is_apart {
            let text = if begins_item { item } else { text };
            paragraphs
                .last_mut()
                .expect("there is one")
                .push((*number, text));
        }
    }
    paragraphs
        .iter()
        .flat_map(|paragraph| sentences_of(paragraph))
        .collect()
}

fn sentences_of(paragraph: &[(usize, &str)]) -> Vec<Sentence> {
    let text = paragraph
        .iter()
        .map(|(_, line)| *line)
        .collect::<Vec<_>>()
        .join("\n");
    // Every second piece stands between backticks.
    let pieces = text.split('`').enumerate();
    let text: String = pieces
        .map(|(at, piece)| if at % 2 == 0 { piece } else { "x" })
        .collect();
    let mut sentences = Vec::new();
    let mut from = 0;
    let mut at_line = 0;
    let ends = text
        .match_indices(['.', '?', '!', ';'])
        .map(|(at, _)| at + 1);
    let ends = ends.filter(|end| text[*end..].starts_with(|c: char| c.is_whitespace()));
    for end in ends.chain([text.len()]) {
        let sentence = &text[from..end];
        let begin = sentence.len() - sentence.trim_start().len();
        let line = at_line + sentence[..begin].matches('\n').count();
        at_line += sentence.matches('\n').count();
        from = end;
        if let Some((number, _)) = paragraph.get(line).filter(|_| !sentence.trim().is_empty()) {
            let text = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
            sentences.push(Sentence {
                line: *number,
                text,
            });
        }
    }
    sentences
}

fn of_sentences(path: &str, sentences: &[Sentence]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Sentence { line, text } in sentences {
        let plain = text.trim_start_matches(|c: char| !c.is_alphanumeric());
        let first = plain
            .split(|c: char| !c.is_alphanumeric())
            .next()
            .unwrap_or_default()
            .to_lowercase();
        if SUBJECTS.contains(&first.as_str()) && !text.ends_with('?') {
            findings.push(Finding::new(
                "subject",
                path,
                *line,
                format!("the subject is `{first}`: {text}"),
            ));
        }
        let words = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty());
        let words = format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase());
        for word in WORDS
            .iter()
            .filter(|word| words.contains(&format!(" {word} ")))
        {
            findings.push(Finding::new(
                "word",
                path,
                *line,
                format!("`{word}`: {text}"),
            ));
        }
    }
    findings
}

/// Reports a doc comment that begins with one of [`EMPTY_STARTS`].
fn of_first_line(path: &str, comment: &Comment, all: &[Comment]) -> Option<Finding> {
    let doc = comment.text.strip_prefix("///")?.trim_start();
    let is_before =
        |other: &Comment| other.line + 1 == comment.line && other.text.starts_with("///");
    let start = EMPTY_STARTS.iter().find(|start| doc.starts_with(*start))?;
    let says = format!("begins with `{start}`");
    (!all.iter().any(is_before)).then(|| Finding::new("first-line", path, comment.line, says))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::parts;

    fn found(text: &str) -> Vec<(&'static str, usize)> {
        let comments = parts(text).comments;
        let mut findings = of_comments("x.rs", &comments);
        findings.extend(of_width("x.rs", text, &comments));
        findings
            .iter()
            .map(|finding| (finding.check, finding.line))
            .collect()
    }

    #[test]
    fn a_statement_about_who_is_found() {
        assert_eq!(
            found("// It is open. Who asks\n// waits.\n"),
            [("subject", 1)]
        );
        assert_eq!(
            found("/// - It is open;\n///   what waits is told\n"),
            [("subject", 2)]
        );
        assert_eq!(
            found("// Who asks? A reader, who waits. `what` is a field.\n//\n// # What\n"),
            []
        );
        let document = of_document(
            "x.md",
            "# What\n\n| what |\n\n```\nWhat\n```\n1. **Whoever** asks, waits.\n",
        );
        assert_eq!(
            document
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>(),
            [8]
        );
    }

    #[test]
    fn a_forbidden_word_is_found() {
        assert_eq!(
            found("// It waits for nobody, and\n// stands beside it.\n"),
            [("word", 1), ("word", 1)]
        );
        assert_eq!(found("// It goes to and\n// fro.\n"), [("word", 1)]);
        assert_eq!(
            found("// Besides, `nobody` is a user.\nlet a = \"beside\";\n"),
            []
        );
    }

    #[test]
    fn a_long_comment_line_is_found() {
        let line = |length: usize| format!("// {}\n", "a".repeat(length - 3));
        assert_eq!(found(&(line(100) + &line(101))), [("comment-width", 2)]);
    }

    #[test]
    fn a_doc_comment_that_says_nothing_is_found() {
        let text = "/// The same for writers.\nfn f() {}\n/// Reads.\n/// The same is true of writers.\nfn g() {}\n";
        assert_eq!(found(text), [("first-line", 1)]);
        assert_eq!(found("/// See the module.\n"), [("first-line", 1)]);
    }
}
