//! The machine of a measurement, and how busy it was.
//!
//! Every report names it. A fact that the system does not tell is missing; that changes no figure.

use std::fs;

use crate::json::Object;

/// A machine, as far as it describes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The processor.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// The release of the kernel.
    pub kernel: String,
    /// The architecture.
    pub architecture: String,
    /// Threads that wanted to run in the last minute, on average: before the measurement, and after
    /// it once [`Machine::look_again`] was called.
    pub load: Vec<f64>,
}

/// The load for each CPU above which other threads disturb a measurement.
const MOST_BUSY: f64 = 0.5;

impl Machine {
    /// Returns this machine.
    pub fn this() -> Self {
        let about = rustix::system::uname();
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            cpu: cpu.map(|(_, name)| name.trim().to_owned()),
            cpus: cpu_count(),
            kernel: about.release().to_string_lossy().into_owned(),
            architecture: about.machine().to_string_lossy().into_owned(),
            load: load().into_iter().collect(),
        }
    }

    /// Notes the load again, after a measurement.
    pub fn look_again(&mut self) {
        self.load.extend(load());
    }

    /// Returns a sentence about a machine that was busy before the measurement.
    pub fn was_busy(&self) -> Option<String> {
        let load = self.load.first().filter(|load| **load > MOST_BUSY * f64::from(self.cpus))?;
        Some(format!("the machine was busy already: its load was {load} on {} CPUs", self.cpus))
    }

    /// Returns processor, CPUs, kernel and load, in a line.
    pub fn line(&self) -> String {
        let cpu = self.cpu.as_ref().map_or(String::new(), |cpu| format!(" ({cpu})"));
        let cpus = if self.cpus == 1 { "CPU" } else { "CPUs" };
        let load: Vec<_> = self.load.iter().map(f64::to_string).collect();
        let load = if load.is_empty() { String::new() } else { format!(", load {}", load.join(" then ")) };
        format!("Linux {}, {}, {} {cpus}{cpu}{load}", self.kernel, self.architecture, self.cpus)
    }

    /// Writes the members to an object.
    pub fn write(&self, object: &mut Object<'_>) {
        object.text_or_null("cpu", self.cpu.as_deref());
        object.raw("cpus", self.cpus);
        object.text("kernel", &self.kernel);
        object.text("architecture", &self.architecture);
        object.numbers("load", &self.load);
    }
}

/// Returns the number of CPUs that this process may use.
pub fn cpu_count() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get().try_into().unwrap_or(u32::MAX))
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cpus_a_kernel_and_a_load() {
        let mut machine = Machine::this();
        machine.look_again();
        assert!(machine.cpus > 0 && !machine.kernel.is_empty() && machine.load.len() == 2, "{machine:?}");
        assert!(machine.line().contains(" then "), "{}", machine.line());
        machine.load = vec![f64::from(machine.cpus)];
        assert!(machine.was_busy().is_some());
        machine.load = vec![0.0];
        assert_eq!(machine.was_busy(), None);
    }
}
