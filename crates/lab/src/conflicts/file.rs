//! Matrices in a file, for the build that writes the report: a test a line.

use std::collections::BTreeSet;

use super::{Matrix, On, Test};
use crate::spec::{Kind, Nearness};

impl Matrix {
    /// The tests, a line each.
    pub fn to_text(&self) -> String {
        let line = |test: &Test| {
            let [one, other] = test.kinds.map(Kind::name);
            let fields: Vec<_> = test.fields.iter().map(String::as_str).collect();
            let (on, near) = (self.on.name(), test.nearness.name());
            format!("{on}\t{one}\t{other}\t{near}\t{}\t{}\n", test.at_first, fields.join("; "))
        };
        self.tests.iter().map(line).collect()
    }

    /// The matrices in a text; `None` if there is something else in it.
    pub fn of_text(text: &str) -> Option<Vec<Self>> {
        let mut matrices = On::ALL.map(|on| Self { on, tests: Vec::new() });
        for line in text.lines() {
            let (on, test) = test(line)?;
            matrices.iter_mut().find(|matrix| matrix.on == on)?.tests.push(test);
        }
        Some(matrices.into_iter().filter(|matrix| !matrix.tests.is_empty()).collect())
    }
}

fn test(line: &str) -> Option<(On, Test)> {
    let [on, one, other, near, at_first, fields] = line.split('\t').collect::<Vec<_>>()[..] else {
        return None;
    };
    let fields: BTreeSet<_> = fields.split("; ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let kinds = [Kind::of_name(one)?, Kind::of_name(other)?];
    let (nearness, at_first) = (Nearness::of_name(near)?, at_first.parse().ok()?);
    Some((On::of_name(on)?, Test { kinds, nearness, at_first, fields }))
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
        let ext4 = Matrix { on: On::Ext4, tests: vec![test(&[]), test(&["A.b (c.rs) + D.e", "F.g"])] };
        let memory = Matrix { on: On::Memory, tests: vec![test(&["A.b"])] };
        assert_eq!(Matrix::of_text(&(memory.to_text() + &ext4.to_text())), Some(vec![ext4, memory]));
        assert_eq!(Matrix::of_text(""), Some(Vec::new()));
        assert_eq!(Matrix::of_text("ext4\tstat\tfly\tapart\ttrue\t\n"), None);
    }
}
