//! Names of accessed fields, found by the place of the access in the source.
//!
//! The audit knows the place of each call of a method of an atomic or a lock. The text before the
//! call names the field: in `self.head.load(Relaxed)` it is `head`. The type is that of the last
//! `impl` before the call.
//!
//! `run` names the offending fields so. The name is a guess from the text and for readers only; no
//! figure depends on it.

use std::collections::HashMap;
use std::fs;
use std::panic::Location;
use std::path::Path;

/// A cache of names and of source files.
#[derive(Default)]
pub(super) struct Fields {
    names: HashMap<(&'static str, u32, u32), String>,
    files: HashMap<&'static str, Vec<String>>,
}

impl Fields {
    /// Returns `Type.field (file)`, or the file and the line if the source is not available.
    pub(super) fn name(&mut self, site: &'static Location<'static>) -> String {
        let key = (site.file(), site.line(), site.column());
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let lines = self.files.entry(site.file()).or_insert_with(|| read(site.file()));
        let file = site.file().trim_start_matches("crates/").replace("/src/", "/");
        let name = match name_at(lines, site.line() as usize, site.column() as usize) {
            Some(name) => format!("{name} ({file})"),
            None => format!("{file}:{}", site.line()),
        };
        self.names.insert(key, name.clone());
        name
    }
}

/// Returns the lines of a source file of this workspace.
fn read(file: &str) -> Vec<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(workspace.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns the name of the field that the call at this place accesses. Line and column count from
/// one.
fn name_at(lines: &[String], line: usize, column: usize) -> Option<String> {
    let text = lines.get(line.checked_sub(1)?)?;
    let (before, from) = text.split_at_checked(column.checked_sub(1)?)?;
    let field = match before.trim_end().strip_suffix('.') {
        Some("") => last_name(&before_chain(lines, line - 1)?),
        Some(place) if place.trim().is_empty() => last_name(&before_chain(lines, line - 1)?),
        Some(place) => last_name(place),
        // A function that takes the lock as an argument.
        None => last_name(arguments(from)?),
    }?;
    Some(match type_around(&lines[..line]) {
        Some(of) => format!("{of}.{field}"),
        None => field,
    })
}

/// Returns the last line that is not a comment before a line that begins with the dot of a method.
fn before_chain(lines: &[String], index: usize) -> Option<String> {
    let before = lines[..index].iter().rev().find(|line| !line.trim_start().starts_with("//"))?;
    Some(before.trim_end().to_owned())
}

/// Returns the text within the first parentheses.
fn arguments(call: &str) -> Option<&str> {
    let (_, rest) = call.split_once('(')?;
    let mut depth = 1;
    let end = rest.char_indices().find(|(_, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    Some(end.map_or(rest, |(end, _)| &rest[..end]))
}

/// Returns the last name in a path of fields, calls and indices: `count` of
/// `self.slots[index].count`.
fn last_name(place: &str) -> Option<String> {
    let mut depth = 0;
    let mut name = String::new();
    for c in place.trim_end().chars().rev() {
        match c {
            ')' | ']' => depth += 1,
            '(' | '[' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            c if c.is_alphanumeric() || c == '_' => name.insert(0, c),
            _ if name.is_empty() && c == '?' => {}
            _ => break,
        }
    }
    (!name.is_empty()).then_some(name)
}

/// Returns the type of the last `impl`.
fn type_around(lines: &[String]) -> Option<String> {
    let head = lines.iter().rev().find(|line| line.starts_with("impl"))?;
    let head = head.split_once(" for ").map_or_else(|| skip_generics(&head[4..]), |(_, of)| of);
    let end = head.find(['<', ' ', '{']).unwrap_or(head.len());
    let name = head[..end].rsplit("::").next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the text after the parameters of an `impl`.
fn skip_generics(head: &str) -> &str {
    let mut depth = 0;
    let end = head.char_indices().find(|(_, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or(head, |(end, c)| head[end + c.len_utf8()..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the name of the field accessed by `call`, which is in the last of these lines.
    #[track_caller]
    fn check(source: &str, call: &str, expected: &str) {
        let lines: Vec<_> = source.lines().map(str::to_owned).collect();
        let column = lines.last().and_then(|line| line.find(call)).expect("it is there") + 1;
        assert_eq!(name_at(&lines, lines.len(), column).as_deref(), Some(expected));
    }

    #[test]
    fn a_call_tells_the_field() {
        check("impl Dentry {\n  self.count.fetch_add(1)", "fetch_add", "Dentry.count");
        check("impl<T: Send> Drop for Pool<T> {\n  self.slots[i % 2].free.load(x)", "load", "Pool.free");
        check("impl<T: A<u8>> Cell<T> {\n  self.0.store(1)", "store", "Cell.0");
        check("impl fs::Node {\n  lock::read(&self.names).get(x)", "lock::read", "Node.names");
        check("impl A {\n  self.head\n    .load(x)", "load", "A.head");
        check("impl A {\n  self.slot(x.y()).swap(x)", "swap", "A.slot");
        check("fn f() {\n  word.load(x)", "load", "word");
    }

    #[test]
    fn a_place_in_this_workspace_has_a_name() {
        let word = extern4_sync::primitive::AtomicU64::new(0);
        let (_, footprint) =
            extern4_sync::audit::record(|| word.load(extern4_sync::primitive::Ordering::Relaxed));
        let name = Fields::default().name(footprint.trace()[0].site);
        assert_eq!(name, "Fields.word (lab/conflicts/field.rs)");
    }
}
