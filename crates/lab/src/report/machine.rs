//! The machine and the build that were measured.
//!
//! `lib` collects the facts before the measurements and once more after them, and the report prints
//! both. So a reader sees whether the machine was busy or a cache line slow in between.

use std::process::Command;

use extern4_measure::machine::Machine as About;

use crate::ping_pong::nanos_of_round;

/// The conditions of a figure.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Processor, kernel, and load before and after.
    pub about: About,
    /// The commit of the build, if the sources are available.
    pub commit: String,
    /// Nanoseconds in which a cache line travels from one CPU to another and back: before each
    /// chapter, and at the end.
    pub line: Vec<f64>,
    /// Whether the build is optimised.
    pub build: &'static str,
}

impl Machine {
    /// Collects the facts.
    pub fn look() -> Self {
        Self {
            about: About::this(),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            line: Vec::new(),
            build: if cfg!(debug_assertions) { "without optimisation" } else { "optimised" },
        }
    }

    /// Times a cache line back and forth.
    pub fn time_a_line(&mut self) {
        self.line.push(nanos_of_round());
    }

    /// Collects once more the facts that change, after all measurements.
    pub fn look_again(&mut self) {
        self.about.look_again();
        self.time_a_line();
    }
}

fn commit() -> Option<String> {
    let args = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_looked_at_twice() {
        let mut machine = Machine::look();
        machine.look_again();
        assert!(machine.about.load.len() == 2 && machine.line.len() == 1, "{machine:?}");
    }
}
