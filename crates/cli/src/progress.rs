//! The progress of a command: a bar on a terminal, lines elsewhere on demand, and a line on
//! SIGUSR1.
//!
//! A command begins a [`Task`] and counts what it has done. A command of a script begins its task
//! above the script's own. The line on SIGUSR1 tells of all tasks. The bar is that of the last task
//! that has lasted for [`DELAY`], so a command that is soon done shows none. `app` takes the bar
//! out of the way of messages, so nothing else may write to the terminal meanwhile.

use std::fmt::{self, Display};
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::{
    BinaryBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
};

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

/// How long a task lasts before its bar appears.
const DELAY: Duration = Duration::from_millis(500);

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
        Self {
            noun: Some((one, many)),
            verb,
        }
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
            (None, true) => style(
                "{bar:25} {percent:>3} % {bytes}/{total_bytes} {binary_bytes_per_sec} {msg}eta {eta}",
            ),
            (None, false) => style(&format!("{{spinner}} {{bytes}} {verb}")),
            (Some((_, many)), true) => style(&format!(
                "{{bar:25}} {{percent:>3}} % {{pos}}/{{len}} {many} {{rate}} eta {{eta}}"
            )),
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
    done.min(total)
        .saturating_mul(100)
        .checked_div(total)
        .unwrap_or(0)
}

/// The progress of a process.
#[derive(Clone)]
pub(crate) struct Progress {
    command: &'static str,
    when: When,
    tasks: Arc<Mutex<Tasks>>,
}

/// The tasks that have begun and not ended.
#[derive(Default)]
struct Tasks {
    all: Vec<Arc<Counts>>,
    /// Whether no bar is shown, since something else is on the terminal.
    hidden: bool,
}

impl Tasks {
    /// Returns the task whose bar is shown.
    fn shown(&self) -> Option<&Arc<Counts>> {
        // Relaxed: the flag is written and read under the lock of the tasks.
        let is_due = |counts: &&Arc<Counts>| counts.is_due.load(Ordering::Relaxed);
        self.all.iter().rfind(is_due).filter(|_| !self.hidden)
    }

    /// Makes a change, and shows the bar that there is to be then in place of the one before.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.shown().cloned();
        change(self);
        let after = self.shown();
        if before.as_ref().map(Arc::as_ptr) != after.map(Arc::as_ptr) {
            before.iter().for_each(|counts| counts.hide());
            after.into_iter().for_each(|counts| counts.show());
        }
    }
}

impl Progress {
    pub(crate) fn new(command: &'static str, when: When) -> Self {
        Self {
            command,
            when,
            tasks: Arc::default(),
        }
    }

    /// Begins a task. If it lasts, it is shown in the place of the one before it, unless it is to
    /// be quiet.
    pub(crate) fn begin(&self, unit: Unit, quiet: bool) -> Task {
        let form = match self.when {
            _ if quiet => Form::Nothing,
            When::Auto | When::Always if io::stderr().is_terminal() => Form::Bar,
            When::Always => Form::Lines,
            When::Auto | When::Never => Form::Nothing,
        };
        let counts = Arc::new(Counts::new(self.command, unit, form));
        self.tasks().all.push(Arc::clone(&counts));
        let lasts = (form == Form::Bar).then(|| self.show_later(&counts));
        Task {
            progress: self.clone(),
            counts,
            _lasts: lasts,
        }
    }

    /// Shows the bar of a task after [`DELAY`], unless the returned value is dropped before.
    fn show_later(&self, counts: &Arc<Counts>) -> Sender<()> {
        let (lasts, ended) = channel();
        let progress = self.clone();
        let counts = Arc::clone(counts);
        let show = move || {
            if ended.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                progress.make_due(&counts);
            }
        };
        // Without the thread there is no bar, and all else is done.
        let _ = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(show);
        lasts
    }

    /// Shows the bar of a task, if it has not ended.
    fn make_due(&self, counts: &Counts) {
        // Relaxed: as in `Tasks::shown`.
        self.tasks()
            .change(|_| counts.is_due.store(true, Ordering::Relaxed));
    }

    /// Runs `write`, which writes to the terminal, while the bar is out of its way.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        // The lock is free again while `write` waits for its reader.
        let shown = self.tasks().shown().cloned();
        match shown {
            Some(counts) => counts.bar.suspend(write),
            None => write(),
        }
    }

    /// Runs `run`, which may write to the terminal and take long, without a bar.
    pub(crate) fn hidden<T>(&self, run: impl FnOnce() -> T) -> T {
        self.tasks().change(|tasks| tasks.hidden = true);
        let done = run();
        self.tasks().change(|tasks| tasks.hidden = false);
        done
    }

    /// Prints a line that tells how far each task is.
    pub(crate) fn tell(&self) {
        let texts: Vec<_> = self
            .tasks()
            .all
            .iter()
            .map(|counts| counts.text())
            .collect();
        let text = if texts.is_empty() {
            "nothing is counted yet".to_owned()
        } else {
            texts.join("; ")
        };
        self.suspend(|| print(self.command, text));
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
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
    /// The thread that is to show the bar ends when this is dropped.
    _lasts: Option<Sender<()>>,
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
        let mut tasks = self.progress.tasks();
        tasks.change(|tasks| {
            tasks
                .all
                .retain(|counts| !Arc::ptr_eq(counts, &self.counts))
        });
        self.counts.bar.finish_and_clear();
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
    /// Whether the task has lasted so long that its bar is shown.
    is_due: AtomicBool,
}

impl Counts {
    fn new(command: &'static str, unit: Unit, form: Form) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        bar.set_style(unit.style(false));
        let files = AtomicU64::new(0);
        let told = AtomicU64::new(0);
        let is_due = AtomicBool::new(false);
        Self {
            command,
            unit: Mutex::new(unit),
            form,
            bar,
            files,
            told,
            is_due,
        }
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
        let unit = *self.unit();
        let done = self.done();
        let total = self.total();
        let files = self.files();
        let share = if total > 0 {
            unit.share(done, total)
        } else {
            unit.amount(done)
        };
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
            self.bar.disable_steady_tick();
            self.bar.set_style(style(""));
            self.bar.force_draw();
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
        }
    }

    fn show(&self) {
        if self.form == Form::Bar {
            self.bar.set_style(self.style());
            self.bar
                .set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            self.bar.enable_steady_tick(Duration::from_millis(250));
            self.bar.force_draw();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Progress, Task, Unit, When};

    fn shows(progress: &Progress, task: Option<&Task>) -> bool {
        progress.tasks().shown().map(Arc::as_ptr) == task.map(|task| Arc::as_ptr(&task.counts))
    }

    #[test]
    fn the_bar_is_that_of_the_last_task_that_lasts() {
        let progress = Progress::new("script", When::Never);
        let begin = || progress.begin(Unit::bytes("copied"), false);
        let script = begin();
        let copy = begin();
        assert!(shows(&progress, None));
        progress.make_due(&script.counts);
        assert!(shows(&progress, Some(&script)));
        progress.make_due(&copy.counts);
        assert!(shows(&progress, Some(&copy)));
        progress.hidden(|| assert!(shows(&progress, None)));
        assert!(shows(&progress, Some(&copy)));
        let next = begin();
        assert!(shows(&progress, Some(&copy)));
        drop((copy, next));
        assert!(shows(&progress, Some(&script)));
        drop(script);
        assert!(shows(&progress, None));
    }
}
