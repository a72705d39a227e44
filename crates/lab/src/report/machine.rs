//! The machine and the build that were measured.
//!
//! `lib` collects the facts before the measurements, and the load once more after them.

use std::process::Command;

use extern4_measure::machine::Machine as About;

/// The conditions of a figure.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Processor, kernel, and load before and after.
    pub about: About,
    /// The commit of the build, if the sources are available.
    pub commit: String,
    /// Whether the build is optimised.
    pub build: &'static str,
}

impl Machine {
    /// Collects the facts.
    pub fn look() -> Self {
        Self {
            about: About::this(),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            build: if cfg!(debug_assertions) {
                "without optimisation"
            } else {
                "optimised"
            },
        }
    }
}

fn commit() -> Option<String> {
    let args = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git")
        .args(args)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
