//! Matrices as text in a file, for the build that writes the report.
//!
//! `access_counts` writes and reads them with its other figures. A text that has anything else in
//! it is refused as a whole.

use std::collections::BTreeSet;

use super::{Matrix, On, Test};
use crate::spec::{Kind, Nearness};

/// The second field of a line that describes a kind of call and not a pair.
const UNSEEN: &str = "unseen";

impl Matrix {
    /// Returns a line for each test, and one for each kind of call.
    pub fn to_text(&self) -> String {
        let line = |test: &Test| {
            let [one, other] = test.kinds.map(Kind::name);
            let fields: Vec<_> = test.fields.iter().map(String::as_str).collect();
            let (on, near) = (self.on.name(), test.nearness.name());
            format!("{on}\t{one}\t{other}\t{near}\t{}\t{}\n", test.at_first, fields.join("; "))
        };
        let unseen = self
            .unseen
            .iter()
            .map(|(kind, unseen)| format!("{}\t{UNSEEN}\t{}\t{unseen}\n", self.on.name(), kind.name()));
        self.tests.iter().map(line).chain(unseen).collect()
    }

    /// Returns the matrices in a text; `None` if it contains anything else.
    pub fn of_text(text: &str) -> Option<Vec<Self>> {
        let mut matrices = On::ALL.map(|on| Self { on, tests: Vec::new(), unseen: Vec::new() });
        for line in text.lines() {
            let (on, rest) = line.split_once('\t')?;
            let on = On::of_name(on)?;
            let matrix = matrices.iter_mut().find(|matrix| matrix.on == on)?;
            match rest.split('\t').collect::<Vec<_>>()[..] {
                [UNSEEN, kind, unseen] => {
                    matrix.unseen.push((Kind::of_name(kind)?, unseen.parse().ok()?));
                }
                [one, other, near, at_first, fields] => {
                    matrix.tests.push(test([one, other], near, at_first, fields)?);
                }
                _ => return None,
            }
        }
        Some(matrices.into_iter().filter(|matrix| !matrix.tests.is_empty()).collect())
    }
}

fn test(kinds: [&str; 2], near: &str, at_first: &str, fields: &str) -> Option<Test> {
    let fields: BTreeSet<_> = fields.split("; ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let kinds = [Kind::of_name(kinds[0])?, Kind::of_name(kinds[1])?];
    let (nearness, at_first) = (Nearness::of_name(near)?, at_first.parse().ok()?);
    Some(Test { kinds, nearness, at_first, fields })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let test = |fields: &[&str]| Test {
            kinds: [Kind::Miss, Kind::Rename],
            nearness: Nearness::Directory,
            at_first: fields.is_empty(),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        };
        let ext4 = Matrix {
            on: On::Ext4,
            tests: vec![test(&[]), test(&["A.b (c.rs) + D.e", "F.g"])],
            unseen: vec![(Kind::Miss, 0.0), (Kind::Write, 2.6)],
        };
        let memory = Matrix { on: On::Memory, tests: vec![test(&["A.b"])], unseen: Vec::new() };
        assert_eq!(Matrix::of_text(&(memory.to_text() + &ext4.to_text())), Some(vec![ext4, memory]));
        assert_eq!(Matrix::of_text(""), Some(Vec::new()));
        assert_eq!(Matrix::of_text("ext4\tstat\tfly\tapart\ttrue\t\n"), None);
    }
}
