//! Forms of statements that hide what they do, and that neither rustfmt nor clippy refuses.

use super::finding::Finding;

/// The forms whose text alone shows them, and what a reader expects in their place.
const FORMS: &[(&str, &str)] = &[
    ("match () {", "a chain of `if` and `else if`"),
    ("map_or(Ok(()),", "`if let`, or `match`"),
];

/// The breaches in the code of one file, where the text of literals and comments is left out.
pub(crate) fn of_file(path: &str, code: &str) -> Vec<Finding> {
    let forms = FORMS.iter().flat_map(|(form, instead)| {
        let says = format!("`{form}`: write {instead}");
        code.match_indices(form)
            .map(move |(at, _)| (at, says.clone()))
    });
    let pairs = words(code, "let")
        .filter(|at| binds_a_pair(code, *at))
        .map(|at| {
            (
                at,
                "a tuple that is taken apart at once: write two statements".to_owned(),
            )
        });
    let flags = words(code, "match")
        .filter(|at| matches_a_flag(&code[*at..]))
        .map(|at| (at, "a match of a flag: write `if`".to_owned()));
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    forms
        .chain(pairs)
        .chain(flags)
        .map(|(at, says)| Finding::new("idiom", path, line(at), says))
        .collect()
}

/// Where `word` begins in `code`, as a whole word and the first of its statement or expression.
fn words<'c>(code: &'c str, word: &'c str) -> impl Iterator<Item = usize> + 'c {
    code.match_indices(word).filter_map(move |(at, _)| {
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let begins = !code[..at].ends_with(is_of_word);
        let ends = !code[at + word.len()..].starts_with(is_of_word);
        (begins && ends).then_some(at)
    })
}

/// The statement at `at` is `let (a, b) = (x, y);`, where `x` and `y` use neither `a` nor `b`.
///
/// A statement whose values use the old `a` or `b` is a swap, or needs both at once.
fn binds_a_pair(code: &str, at: usize) -> bool {
    let before = code[..at].trim_end();
    if ["if", "while", "&&", "||"]
        .iter()
        .any(|word| before.ends_with(word))
    {
        return false;
    }
    let Some((pattern, rest)) = group(code[at + "let".len()..].trim_start()) else {
        return false;
    };
    let Some(rest) = rest.trim_start().strip_prefix('=') else {
        return false;
    };
    let Some((values, rest)) = group(rest.trim_start()) else {
        return false;
    };
    let names = |text: &'_ str| -> Vec<String> {
        let split = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let names = split.filter(|name| !["", "_", "mut", "ref"].contains(name));
        names.map(str::to_owned).collect()
    };
    let used = names(values);
    rest.trim_start().starts_with(';') && !names(pattern).iter().any(|name| used.contains(name))
}

/// The text between the parentheses that `text` begins with, and the text after them.
fn group(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => return Some((&text[1..at], &text[at + 1..])),
            ')' => depth -= 1,
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The first arm of the `match` that `text` begins with is `true` or `false`.
fn matches_a_flag(text: &str) -> bool {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => {
                let arm = text[at + 1..].trim_start();
                return ["true", "false"].iter().any(|flag| {
                    arm.strip_prefix(flag)
                        .is_some_and(|rest| rest.trim_start().starts_with("=>"))
                });
            }
            ';' if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::of_file;

    fn faults(code: &str) -> usize {
        of_file("a.rs", code).len()
    }

    #[test]
    fn a_tuple_that_is_taken_apart_at_once_is_a_fault() {
        assert_eq!(faults("let (a, b) = (f(1), g);"), 1);
        assert_eq!(faults("let (mut a, (b, c)) = (\n    f(),\n    g(),\n);"), 1);
        assert_eq!(faults("let (a, b) = f(x, y);"), 0);
        assert_eq!(faults("let (a, b) = (b, a);"), 0);
        assert_eq!(faults("if let (Some(a), Some(b)) = (x, y) {}"), 0);
        assert_eq!(
            faults("let (Some(a), Some(b)) = (x, y) else { return };"),
            0
        );
    }

    #[test]
    fn a_match_of_a_flag_is_a_fault() {
        assert_eq!(faults("match a.b(c) { true => 1, false => 2 }"), 1);
        assert_eq!(faults("match (a, b) { (true, _) => 1, _ => 2 }"), 0);
        assert_eq!(faults("matches.sort(); S { true_name: 1 }"), 0);
    }

    #[test]
    fn a_form_that_hides_a_branch_is_a_fault() {
        assert_eq!(faults("match () { () if a => 1, () => 2 }"), 1);
        assert_eq!(faults("fault.map_or(Ok(()), Err)"), 1);
        assert_eq!(faults("fault.map_or(Ok(1), Err)"), 0);
    }
}
