//! The machine of a measurement, and how busy it was.
//!
//! Every report names it. A fact that the system does not tell is missing; that changes no figure.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::json::Object;

/// A machine, as far as it describes itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The name of the processor; `None` if the system does not tell it.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// The release of the kernel.
    pub kernel: String,
    /// The instruction set, such as `x86_64`.
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
        let cpu = info
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
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
        let load = self
            .load
            .first()
            .filter(|load| **load > MOST_BUSY * f64::from(self.cpus))?;
        Some(format!(
            "the machine was busy already: its load was {load} on {} CPUs",
            self.cpus
        ))
    }

    /// Returns processor, CPUs, kernel and load, in a line.
    pub fn line(&self) -> String {
        let cpu = self
            .cpu
            .as_ref()
            .map_or(String::new(), |cpu| format!(" ({cpu})"));
        let cpus = if self.cpus == 1 { "CPU" } else { "CPUs" };
        let load: Vec<_> = self.load.iter().map(f64::to_string).collect();
        let load = if load.is_empty() {
            String::new()
        } else {
            format!(", load {}", load.join(" then "))
        };
        format!(
            "Linux {}, {}, {} {cpus}{cpu}{load}",
            self.kernel, self.architecture, self.cpus
        )
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

/// The time between two looks at the load of a busy machine.
const PAUSE: Duration = Duration::from_secs(5);

/// Waits until fewer than `most` threads want to run, on average of the last minute. `say` is
/// called once with the load, if it is higher. A machine that tells no load is not waited for.
///
/// # Errors
///
/// The load, if it is still higher after `limit`.
pub fn wait_until_idle(most: f64, limit: Duration, say: impl FnOnce(f64)) -> Result<(), f64> {
    let begun = Instant::now();
    let mut say = Some(say);
    while let Some(busy) = load().filter(|load| *load >= most) {
        if let Some(say) = say.take() {
            say(busy);
        }
        if begun.elapsed() >= limit {
            return Err(busy);
        }
        thread::sleep(PAUSE.min(limit));
    }
    Ok(())
}

/// CPU time since the system started, in ticks: of all CPUs, while they worked, and of this process
/// with the children that have ended.
///
/// The load average counts the threads of a measurement, too; this tells them from other programs.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimes {
    all: f64,
    busy: f64,
    own: f64,
}

impl CpuTimes {
    /// Returns the times up to now, if the system tells them.
    pub fn now() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Self::of(&fs::read_to_string("/proc/stat").ok()?, &own)
    }

    /// Parses both files, described in proc_stat(5) and proc_pid_stat(5).
    fn of(stat: &str, own: &str) -> Option<Self> {
        let figures = |text: &str| {
            text.split_whitespace()
                .map_while(|word| word.parse().ok())
                .collect()
        };
        let times: Vec<f64> = figures(stat.lines().next()?.strip_prefix("cpu ")?);
        // Guests are part of the user's time.
        let all: f64 = times.iter().take(8).sum();
        let [idle, wait] = times.get(3..5)?.try_into().ok()?;
        // After the name, which may hold spaces, come the state and further fields. The times of
        // the user and the system are the fourteenth to the seventeenth field of all.
        let own: Vec<f64> = figures(own.rsplit_once(')')?.1.trim_start().split_once(' ')?.1);
        Some(Self {
            all,
            busy: all - idle - wait,
            own: own.get(10..14)?.iter().sum(),
        })
    }

    /// Returns how many of the machine's CPUs other programs used since `before`, on average.
    pub fn others_since(&self, before: &Self, cpus: u32) -> Option<f64> {
        let others = (self.busy - before.busy) - (self.own - before.own);
        let all = Some(self.all - before.all).filter(|all| *all > 0.0)?;
        Some((others / all * f64::from(cpus)).max(0.0))
    }
}

/// Returns the number of CPUs that the machine has.
pub fn all_cpus() -> u32 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // A line for all of them comes first.
    let lines = stat.lines().filter(|line| line.starts_with("cpu")).count();
    lines.saturating_sub(1).try_into().unwrap_or(u32::MAX)
}

/// Returns the number of CPUs that this process may use.
pub fn cpu_count() -> u32 {
    std::thread::available_parallelism()
        .map_or(1, |count| count.get().try_into().unwrap_or(u32::MAX))
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_waited_for() {
        assert_eq!(
            wait_until_idle(f64::INFINITY, Duration::ZERO, |_| ()),
            Ok(())
        );
        let mut heard = None;
        let waited = wait_until_idle(-1.0, Duration::ZERO, |load| heard = Some(load));
        assert_eq!(waited.err(), heard);
    }

    #[test]
    fn other_programs_are_told_from_this_one() {
        let own =
            |user: u32| format!("7 (a) b) S 1 7 7 0 -1 4 9 0 0 0 {user} 5 0 0 20 0 1 0 9 9 9");
        let stat = |user: u32, idle: u32| format!("cpu  {user} 0 5 {idle} 10 0 0 0 0 0\ncpu0 1\n");
        let times = |user, idle, mine| CpuTimes::of(&stat(user, idle), &own(mine)).unwrap();
        let before = times(100, 1000, 30);
        let after = times(150, 1050, 50);
        assert_eq!(
            (
                after.all - before.all,
                after.busy - before.busy,
                after.own - before.own
            ),
            (100.0, 50.0, 20.0)
        );
        assert_eq!(after.others_since(&before, 4), Some(4.0 * 0.3));
        assert_eq!(before.others_since(&before, 4), None);
        assert!(CpuTimes::now().is_none_or(|now| now.all >= now.busy && now.busy >= 0.0));
        assert!(CpuTimes::of("cpu  1 2", &own(1)).is_none() && CpuTimes::of("", "").is_none());
    }

    #[test]
    fn a_machine_has_cpus_a_kernel_and_a_load() {
        let mut machine = Machine::this();
        machine.look_again();
        assert!(
            machine.cpus > 0 && !machine.kernel.is_empty() && machine.load.len() == 2,
            "{machine:?}"
        );
        assert!(machine.line().contains(" then "), "{}", machine.line());
        machine.load = vec![f64::from(machine.cpus)];
        assert!(machine.was_busy().is_some());
        machine.load = vec![0.0];
        assert_eq!(machine.was_busy(), None);
    }
}
