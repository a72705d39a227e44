//! Matrices in a file, for the build that writes the report: a test a line.

use std::collections::BTreeSet;

use super::{Matrix, On, Test};
use crate::spec::Kind;

impl Matrix {
    /// The tests, a line each.
    pub fn to_text(&self) -> String {
        let line = |test: &Test| {
            let [one, other] = test.kinds.map(Kind::name);
            let fields: Vec<_> = test.fields.iter().map(String::as_str).collect();
            format!("{}\t{one}\t{other}\t{}\t{}\n", self.on.name(), test.at_first, fields.join("; "))
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
    let [on, one, other, at_first, fields] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
    let fields: BTreeSet<_> = fields.split("; ").filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let kinds = [Kind::of_name(one)?, Kind::of_name(other)?];
    Some((On::of_name(on)?, Test { kinds, at_first: at_first.parse().ok()?, fields }))
}
