//! The progress of a command: a bar on a terminal, lines elsewhere on demand, and a line on
//! SIGUSR1.
//!
//! A command begins a [`Task`] and counts what it has done. A command of a script begins its task
//! above the script's own; only the last task is shown, and the line on SIGUSR1 tells of all. `app`
//! takes the bar out of the way of messages, so nothing else may write to the terminal meanwhile.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{BinaryBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::text::{counted, message_of};

/// When to show the progress.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    /// If standard error is a terminal
    #[default]
    Auto,
    /// Always; as lines if standard error is no terminal
    Always,
    /// Never
    Never,
}

/// Steps of lines, in per cent.
const STEP: u64 = 10;

/// The things that a task counts, and the verb for a counted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The noun for one and for more; `None` for bytes.
    noun: Option<(&'static str, &'static str)>,
    verb: &'static str,
}

impl Unit {
    pub(crate) const fn bytes(verb: &'static str) -> Self {
        Self { noun: None, verb }
    }

    pub(crate) const fn things(one: &'static str, many: &'static str, verb: &'static str) -> Self {
        Self { noun: Some((one, many)), verb }
    }

    fn amount(self, amount: u64) -> String {
        match self.noun {
            None => BinaryBytes(amount).to_string(),
            Some((one, many)) => counted(amount, one, many),
        }
    }

    /// Returns how much of the total is done.
    fn share(self, done: u64, total: u64) -> String {
        match self.noun {
            None => format!("{} % of {}", percent(done, total), self.amount(total)),
            Some(_) => format!("{done} of {}", self.amount(total)),
        }
    }

    fn style(self, has_total: bool) -> ProgressStyle {
        let Self { noun, verb } = self;
        match (noun, has_total) {
            (None, true) => style("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {msg}eta {eta}"),
            (None, false) => style(&format!("{{spinner}} {{bytes}} {verb}")),
            (Some((_, many)), true) => {
                style(&format!("{{bar:30}} {{pos}}/{{len}} {many} {{rate}} eta {{eta}}"))
            }
            (Some((_, many)), false) => style(&format!("{{spinner}} {{pos}} {many} {verb}")),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("a template that is there");
    style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        // `out` is a string, which takes everything.
        let _ = write!(out, "{:.0}/s", state.per_sec());
    })
}

/// Returns the share of `total` that is done, in per cent; 0 for an unknown total.
fn percent(done: u64, total: u64) -> u64 {
    done.min(total).saturating_mul(100).checked_div(total).unwrap_or(0)
}

/// The progress of a process.
#[derive(Clone)]
pub(crate) struct Progress {
    command: &'static str,
    when: When,
    /// The tasks that have begun and not ended.
    tasks: Arc<Mutex<Vec<Arc<Counts>>>>,
}

impl Progress {
    pub(crate) fn new(command: &'static str, when: When) -> Self {
        Self { command, when, tasks: Arc::default() }
    }

    /// Begins a task, which is shown in the place of the one before it, unless it is to be quiet.
    pub(crate) fn begin(&self, unit: Unit, quiet: bool) -> Task {
        let form = match self.when {
            _ if quiet => Form::Nothing,
            When::Auto | When::Always if io::stderr().is_terminal() => Form::Bar,
            When::Always => Form::Lines,
            When::Auto | When::Never => Form::Nothing,
        };
        let counts = Arc::new(Counts::new(self.command, unit, form));
        let mut tasks = self.tasks();
        tasks.last().into_iter().for_each(|before| before.hide());
        tasks.push(Arc::clone(&counts));
        drop(tasks);
        Task { progress: self.clone(), counts }
    }

    /// Runs `write`, which writes to the terminal, while the bar is out of its way.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match self.last() {
            Some(counts) => counts.bar.suspend(write),
            None => write(),
        }
    }

    /// Runs `run`, which may write to the terminal and take long, without a bar.
    pub(crate) fn hidden<T>(&self, run: impl FnOnce() -> T) -> T {
        let last = self.last();
        last.iter().for_each(|counts| counts.hide());
        let done = run();
        last.iter().for_each(|counts| counts.show());
        done
    }

    /// Prints a line that tells how far each task is.
    pub(crate) fn tell(&self) {
        let texts: Vec<_> = self.tasks().iter().map(|counts| counts.text()).collect();
        let text = if texts.is_empty() { "nothing is counted yet".to_owned() } else { texts.join("; ") };
        self.suspend(|| print(self.command, text));
    }

    fn last(&self) -> Option<Arc<Counts>> {
        self.tasks().last().cloned()
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Arc<Counts>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn print(command: &str, text: impl Display) {
    // A line that cannot be written has nowhere else to go.
    let _ = writeln!(io::stderr().lock(), "{}", message_of(command, text));
}

/// A task, until it is dropped. Its bar goes then, and the task before it is shown again.
pub(crate) struct Task {
    progress: Progress,
    counts: Arc<Counts>,
}

impl Task {
    /// Returns the counts, for another thread.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl Deref for Task {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.counts.bar.finish_and_clear();
        let mut tasks = self.progress.tasks();
        tasks.retain(|counts| !Arc::ptr_eq(counts, &self.counts));
        tasks.last().into_iter().for_each(|before| before.show());
    }
}

/// How a task is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Nothing,
    Bar,
    Lines,
}

/// How far a task is.
pub(crate) struct Counts {
    command: &'static str,
    unit: Mutex<Unit>,
    form: Form,
    /// The units that are done, their total, and the time that they took. It may be hidden.
    bar: ProgressBar,
    /// Files, where these are not the unit.
    files: AtomicU64,
    /// The last step that a line told of.
    told: AtomicU64,
}

impl Counts {
    fn new(command: &'static str, unit: Unit, form: Form) -> Self {
        let target = match form {
            Form::Bar => ProgressDrawTarget::stderr_with_hz(8),
            Form::Nothing | Form::Lines => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        bar.set_style(unit.style(false));
        if form == Form::Bar {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        let (files, told) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { command, unit: Mutex::new(unit), form, bar, files, told }
    }

    /// Returns whether the task is shown, so that its total is worth a walk.
    pub(crate) fn is_shown(&self) -> bool {
        self.form != Form::Nothing
    }

    /// Adds to the total.
    pub(crate) fn expect(&self, units: u64) {
        let is_first = self.total() == 0;
        self.bar.inc_length(units);
        if is_first {
            self.bar.set_style(self.style());
        }
        // Relaxed: the number guards no other data.
        self.told.store(self.step(), Ordering::Relaxed);
    }

    /// Counts units that are done.
    pub(crate) fn advance(&self, units: u64) {
        self.bar.inc(units);
        self.tell();
    }

    /// Sets how far the task is, and what it counts from now on.
    pub(crate) fn set(&self, unit: Unit, done: u64, total: u64) {
        let mut current = self.unit();
        if *current != unit || self.bar.length() != Some(total) {
            *current = unit;
            self.bar.set_length(total);
            self.bar.set_style(unit.style(total > 0));
            self.bar.reset();
            // Relaxed: the number guards no other data.
            self.told.store(0, Ordering::Relaxed);
        }
        drop(current);
        self.bar.set_position(done);
        self.tell();
    }

    /// Counts one more file.
    pub(crate) fn file(&self) {
        // Relaxed: the number guards no other data.
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        if self.form == Form::Bar {
            self.bar.set_message(counted(files, "file", "files") + " ");
        }
    }

    /// Returns how many files were counted.
    pub(crate) fn files(&self) -> u64 {
        // Relaxed: as in `file`.
        self.files.load(Ordering::Relaxed)
    }

    /// Returns how many units are done.
    pub(crate) fn done(&self) -> u64 {
        self.bar.position()
    }

    fn total(&self) -> u64 {
        self.bar.length().unwrap_or(0)
    }

    fn step(&self) -> u64 {
        percent(self.done(), self.total()) / STEP
    }

    /// Prints a line for each step.
    fn tell(&self) {
        if self.form != Form::Lines {
            return;
        }
        let step = self.step();
        // Relaxed: the number guards no other data.
        if self.told.fetch_max(step, Ordering::Relaxed) < step {
            print(self.command, self.text());
        }
    }

    /// Returns how far the task is, its rate, and about the time that it still takes.
    fn text(&self) -> String {
        let (unit, done, total, files) = (*self.unit(), self.done(), self.total(), self.files());
        let share = if total > 0 { unit.share(done, total) } else { unit.amount(done) };
        let mut text = format!("{share} {}", unit.verb);
        if files > 0 {
            text += &format!(", {}", counted(files, "file", "files"));
        }
        let rate = self.bar.per_sec();
        if done > 0 && rate >= 1.0 {
            // OK: a rate of this size is exact enough, and none is negative.
            let amount = match unit.noun {
                None => BinaryBytes(rate as u64).to_string(),
                Some(_) => format!("{rate:.0}"),
            };
            text += &format!(", {amount}/s");
            if total > done {
                text += &format!(", {:#} left", HumanDuration(self.bar.eta()));
            }
        }
        text
    }

    fn unit(&self) -> MutexGuard<'_, Unit> {
        self.unit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn style(&self) -> ProgressStyle {
        self.unit().style(self.total() > 0)
    }

    fn hide(&self) {
        if self.form == Form::Bar {
            self.bar.set_style(style(""));
            self.bar.force_draw();
        }
    }

    fn show(&self) {
        if self.form == Form::Bar {
            self.bar.set_style(self.style());
            self.bar.force_draw();
        }
    }
}
