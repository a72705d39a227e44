//! A Rust file taken apart: its code without comments, literals and tests, and its comments.

/// A comment that begins with two slashes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// Its text with the slashes.
    pub(crate) text: String,
    /// Nothing but blanks stands before it in its line.
    pub(crate) is_alone: bool,
}

/// The two parts of a file.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The code, line by line as in the file. Comments and the text of literals are left out.
    pub(crate) code: String,
    pub(crate) comments: Vec<Comment>,
}

/// Takes `text` apart.
pub(crate) fn parts(text: &str) -> Parts {
    let mut parts = Parts::default();
    let mut at = 0;
    let mut line = 1;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = length_of_token(rest, &parts.code);
        let token = &rest[..length];
        if token.starts_with("//") {
            let line_so_far = parts.code.rsplit('\n').next().unwrap_or_default();
            let is_alone = line_so_far.trim().is_empty();
            parts.comments.push(Comment {
                line,
                text: token.to_owned(),
                is_alone,
            });
        } else if length == first.len_utf8() || token.chars().all(is_of_word) {
            parts.code.push_str(token);
        } else {
            // A literal or a long comment: its lines stay.
            parts.code.extend(token.chars().filter(|c| *c == '\n'));
            parts.code.push(' ');
        }
        line += token.matches('\n').count();
        at += length;
    }
    parts
}

/// The length of the token that `rest` begins with, where `before` is the code up to here.
fn length_of_token(rest: &str, before: &str) -> usize {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at);
    let first = rest.chars().next().unwrap_or(' ');
    if rest.starts_with("//") {
        return until("\n", 0);
    }
    if rest.starts_with("/*") {
        return (until("*/", 2) + 2).min(rest.len());
    }
    let is_in_word = before.ends_with(is_of_word);
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r');
    if let Some(raw) = raw.filter(|_| !is_in_word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = rest.len() - raw.len() + hashes + 1;
            return (until(&end, from) + end.len()).min(rest.len());
        }
    }
    match first {
        '"' => length_of_quoted(rest, '"').unwrap_or(rest.len()),
        // A lifetime has no second quote behind its first character.
        '\'' if rest[1..].starts_with('\\') || rest[1..].chars().nth(1) == Some('\'') => {
            length_of_quoted(rest, '\'').unwrap_or(1)
        }
        c if is_of_word(c) => rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()),
        c => c.len_utf8(),
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of a literal with its quotes.
fn length_of_quoted(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if !is_escaped && c == quote {
            return Some(at + 1);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    None
}

/// The code without the inline modules that are compiled for tests only.
pub(crate) fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(") {
        let (before, attribute) = rest.split_at(at);
        kept.push_str(before);
        let Some(end) = attribute.find(']') else {
            break;
        };
        let (attribute, item) = attribute.split_at(end + 1);
        let body = is_for_tests(attribute)
            .then(|| inline_module(item))
            .flatten();
        if body.is_none() {
            kept.push_str(attribute);
        }
        rest = &item[body.unwrap_or(0)..];
    }
    kept + rest
}

/// Names of the modules that `code` declares for tests only.
pub(crate) fn test_modules(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("#[cfg(") {
        let Some((attribute, item)) = code[at..].split_once(']') else {
            continue;
        };
        let Some((declared, _)) = item.split_once(';') else {
            continue;
        };
        let name = declared
            .trim()
            .rsplit_once("mod ")
            .map(|(_, name)| name.trim());
        let is_name = |name: &&str| name.chars().all(is_of_word);
        if let Some(name) = name.filter(is_name).filter(|_| is_for_tests(attribute)) {
            names.push(name.to_owned());
        }
    }
    names
}

fn is_for_tests(attribute: &str) -> bool {
    let mut words = attribute.split(|c: char| !c.is_alphanumeric());
    words.any(|word| word == "test") && !attribute.contains("not(test")
}

/// The length of the module with a body that `item` begins with, if it does.
fn inline_module(item: &str) -> Option<usize> {
    let open = item.find('{')?;
    let head = &item[..open];
    let is_module = head.split_whitespace().any(|word| word == "mod") && !head.contains(';');
    let mut depth = 0;
    for (at, c) in item.char_indices().filter(|_| is_module) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == '}' && depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let text = "//! Top\nlet a = \"// no\\\" {\"; // yes\nlet b = r#\"{ \" {\"#; let c = '{'; fn d<'e>() {}\n";
        let parts = parts(text);
        let comments: Vec<_> = parts
            .comments
            .iter()
            .map(|c| (c.line, c.text.as_str(), c.is_alone))
            .collect();
        assert_eq!(comments, [(1, "//! Top", true), (2, "// yes", false)]);
        assert_eq!(parts.code.matches('{').count(), 1, "{}", parts.code);
        assert!(parts.code.contains("fn d<'e>()") && parts.code.lines().count() == 3);
    }

    #[test]
    fn tests_are_left_out() {
        let code = "use a;\n#[cfg(test)]\nmod tests { fn f() { } }\nuse b;\n#[cfg(all(test, loom))]\npub mod models;\n";
        assert_eq!(without_tests(code).matches("use").count(), 2);
        assert!(!without_tests(code).contains("fn f"));
        assert_eq!(test_modules(code), ["models"]);
    }
}
