//! Where and of what was measured.

use std::fs;
use std::process::Command;

use crate::ping_pong::nanos_of_round;

/// What a figure has to be read with.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The processor, as it calls itself.
    pub processor: String,
    /// CPUs that threads may run on.
    pub cpus: usize,
    /// The release of the kernel.
    pub kernel: String,
    /// The commit that was built, if the sources lie here.
    pub commit: String,
    /// Threads that wanted to run in the minute before, on the average; and at the end.
    pub load: [String; 2],
    /// Nanoseconds that a cache line takes from one CPU to the other and back: before each chapter, and at the end.
    pub line: Vec<f64>,
    /// Optimised, or not.
    pub build: &'static str,
}

impl Machine {
    /// Looks around.
    pub fn look() -> Self {
        let model = |text: String| {
            let line = text.lines().find(|line| line.starts_with("model name"))?.to_owned();
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        Self {
            processor: model(read("/proc/cpuinfo")).unwrap_or_else(unknown),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: commit().unwrap_or_else(unknown),
            load: [load(), String::new()],
            line: Vec::new(),
            build: if cfg!(debug_assertions) { "without optimisation" } else { "optimised" },
        }
    }

    /// Sends a cache line to and fro.
    pub fn time_a_line(&mut self) {
        self.line.push(nanos_of_round());
    }

    /// Looks once more at what changes, when everything has been measured.
    pub fn look_again(&mut self) {
        self.load[1] = load();
        self.time_a_line();
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn load() -> String {
    read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned()
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
    fn a_machine_has_a_processor_and_a_kernel() {
        let mut machine = Machine::look();
        machine.look_again();
        assert!(
            machine.cpus > 0
                && !machine.kernel.is_empty()
                && !machine.load[1].is_empty()
                && machine.line.len() == 1,
            "{machine:?}"
        );
    }
}
