//! The run of the suite, from the image to the report.
//!
//! `suite` calls it. It ends its mounts and removes its copy however it ends, unless a signal kills
//! the process.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use extern4::{Cred, Volume};
use extern4_check::{Options, check};
use extern4_measure::machine::Machine;
use extern4_measure::rounds::order;
use rustix::process::{getegid, geteuid, getgroups};

use super::measure::{Load, Measure};
use super::progress::Progress;
use super::report::{Cell, Column, Facts, Report, Row, threads};
use super::scratch::Scratch;
use super::side::{Open, Side, Source};
use super::source::{Copied, copy_volume};
use super::stop::Stop;
use super::subjects::Subjects;
use super::{Args, Result, SuiteError};
use crate::app::{Opening, host_reason, open};
use crate::cmd::bench::copy;
use crate::exit_status::ExitStatus;
use crate::image_path::{Image, Part};
use crate::text::{counted, human};

/// The share of each figure's time that is spent on the same operation beforehand, to fill caches.
const WARM_UP: f64 = 0.2;

/// A run.
pub(super) struct Suite<'a> {
    args: &'a Args,
    /// The image, with a path that holds in any working directory.
    image: Image,
    shown: String,
    cred: Cred,
    stop: Stop,
    progress: Option<Progress>,
    failures: Vec<(ExitStatus, String)>,
}

impl<'a> Suite<'a> {
    pub(super) fn new(args: &'a Args, image: &Image) -> io::Result<Self> {
        let groups: Vec<_> = getgroups()?
            .into_iter()
            .map(|group| group.as_raw())
            .collect();
        Ok(Self {
            args,
            image: Image::of(image.file.canonicalize()?, image.part),
            shown: image.to_string(),
            // The user of the mounts.
            cred: Cred::new(geteuid().as_raw(), getegid().as_raw(), &groups),
            stop: Stop::listen()?,
            progress: Some(Progress::new()),
            failures: Vec::new(),
        })
    }

    /// Ends the run; returns the failures.
    pub(super) fn end(mut self) -> Vec<(ExitStatus, String)> {
        // Before anything is printed on the terminal.
        self.progress = None;
        std::mem::take(&mut self.failures)
    }

    fn fail(&mut self, status: ExitStatus, what: String) {
        self.failures.push((status, what));
    }

    fn progress(&self) -> &Progress {
        self.progress.as_ref().expect("it is there until the end")
    }

    /// Measures everything.
    pub(super) fn run(&mut self, volume: Volume) -> Result<Report> {
        let lost = |error: io::Error| {
            SuiteError::Because(format!("no working directory: {}", host_reason(&error)))
        };
        let machine = Machine::this();
        let mut notes = first_notes(&machine);
        let faults = self.check(&volume)?;
        if faults > 0 {
            self.fail(ExitStatus::Corrupt, damaged(faults));
        }
        let mut subjects = Subjects::choose(&volume.session(self.cred.clone()), &self.stop)?;
        let file = std::fs::File::open(&self.image.file).map_err(lost)?;
        let parent = copy::directory(&self.image.file, &file).map_err(lost)?;
        let scratch = Scratch::new(&parent).map_err(lost)?;
        let (source, copied) = match self.copy(&volume, &scratch, &mut subjects, faults) {
            Ok(Copied { source, bytes }) => {
                (source, Some((scratch.dir().display().to_string(), bytes)))
            }
            Err(SuiteError::Stopped) => return Err(SuiteError::Stopped),
            Err(SuiteError::Because(why)) => {
                notes.push(format!("nothing is written: {why}"));
                subjects = Subjects::choose(&volume.session(self.cred.clone()), &self.stop)?;
                (self.image_itself(&volume)?, None)
            }
        };
        let facts = facts(&volume, &subjects);
        // Its memory must not affect the figures.
        drop(volume);
        let columns = self.columns(faults, &facts, source.writing);
        let mut report = Report {
            image: self.shown.clone(),
            volume: facts,
            machine,
            rounds: self.args.rounds,
            seconds: self.args.seconds,
            threads: self.args.threads(),
            copy: copied,
            rows: self.rows(&subjects, columns.len()),
            columns,
            notes,
            faults: None,
        };
        self.rounds(&mut report, &source, &scratch, &subjects)?;
        if source.writing {
            self.check_copy(&source, &mut report)?;
        }
        if report
            .columns
            .iter()
            .any(|column| column.side == Side::Kernel && column.lacks.is_none())
        {
            let loops =
                "the kernel's mount is of a loop device, which reads and writes the same file";
            report.notes.push(loops.to_owned());
        }
        report.machine.look_again();
        report.note_figures();
        Ok(report)
    }

    fn copy(
        &self,
        volume: &Volume,
        scratch: &Scratch,
        subjects: &mut Subjects,
        faults: u64,
    ) -> Result<Copied> {
        if faults > 0 {
            return Err(SuiteError::Because(damaged(faults)));
        }
        let threads = self.args.threads().into_iter().max().unwrap_or(1);
        copy_volume(
            &self.image,
            volume,
            scratch,
            subjects,
            threads,
            (self.progress(), &self.stop),
        )
    }

    fn image_itself(&self, volume: &Volume) -> Result<Source> {
        let bytes = volume
            .bytes()
            .ok_or(SuiteError::Because("it is not in a file".to_owned()))?;
        let part = if bytes.start == 0 {
            Part::Whole
        } else {
            Part::Offset(bytes.start)
        };
        Ok(Source {
            image: Image::of(self.image.file.clone(), part),
            bytes,
            writing: false,
        })
    }

    fn columns(&self, faults: u64, facts: &Facts, writing: bool) -> Vec<Column> {
        let is_dirty = facts
            .features
            .iter()
            .any(|feature| feature == "needs_recovery");
        let column = |side: Side| {
            let lacks = match side {
                // Damage may be crafted to attack the kernel.
                Side::Kernel if faults > 0 => {
                    Some(format!("the kernel is not given it: {}", damaged(faults)))
                }
                Side::Kernel if is_dirty && !writing => Some(
                    "the journal has to be replayed, which the kernel does only where it may write"
                        .to_owned(),
                ),
                _ => side.lacks(),
            };
            Column { side, lacks }
        };
        self.args.sides().into_iter().map(column).collect()
    }

    fn rows(&self, subjects: &Subjects, columns: usize) -> Vec<Row> {
        let threads = self.args.threads();
        let row = |measure: Measure, threads| Row {
            measure,
            label: label(measure, subjects),
            threads,
            lacks: measure.lacks(subjects),
            cells: vec![Cell::default(); columns],
        };
        let rows = Measure::ALL
            .into_iter()
            .flat_map(|measure| threads.iter().map(move |count| (measure, *count)));
        rows.map(|(measure, threads)| row(measure, threads))
            .collect()
    }

    fn rounds(
        &mut self,
        report: &mut Report,
        source: &Source,
        scratch: &Scratch,
        subjects: &Subjects,
    ) -> Result<()> {
        let sides = report.columns.len();
        let there = report
            .columns
            .iter()
            .filter(|column| column.lacks.is_none())
            .count();
        let rows = report.rows.iter().filter(|row| row.lacks.is_none()).count();
        self.progress()
            .begin_measuring(u64::from(self.args.rounds) * there as u64 * rows as u64);
        for round in 0..self.args.rounds as usize {
            for at in order(round, sides) {
                if report.columns[at].lacks.is_some() {
                    continue;
                }
                let side = report.columns[at].side;
                let done = match side.open(source, scratch, &self.cred, &self.stop) {
                    Ok(opened) => {
                        let measured = self.turn(report, at, &opened, subjects);
                        opened.end().and(measured)
                    }
                    Err(SuiteError::Because(why)) if side == Side::Kernel => {
                        // An image that this side refuses is no failure of ours.
                        report.columns[at].lacks = Some(why);
                        continue;
                    }
                    Err(failure) => Err(failure),
                };
                if let Err(SuiteError::Because(why)) = done {
                    self.fail(ExitStatus::Failed, format!("{}: {why}", side.title()));
                    report.columns[at].lacks = Some(why);
                }
                self.stop.check()?;
            }
        }
        Ok(())
    }

    /// Measures everything on one side.
    fn turn(
        &mut self,
        report: &mut Report,
        at: usize,
        opened: &Open,
        subjects: &Subjects,
    ) -> Result<()> {
        let title = report.columns[at].side.title();
        for row in report.rows.iter_mut().filter(|row| row.lacks.is_none()) {
            self.progress()
                .doing(|| format!("{title}: {}, {}", row.label, threads(row.threads)));
            if row.cells[at].failure.is_none() {
                match self.figure(row, opened, subjects) {
                    Ok(figure) => row.cells[at].figures.0.push(figure),
                    Err(SuiteError::Stopped) => return Err(SuiteError::Stopped),
                    Err(SuiteError::Because(why)) => {
                        let what =
                            format!("{title}: {}, {}: {why}", row.label, threads(row.threads));
                        self.fail(ExitStatus::Failed, what);
                        row.cells[at].failure = Some(why);
                    }
                }
            }
            self.progress().done(1);
        }
        Ok(())
    }

    fn figure(&self, row: &Row, opened: &Open, subjects: &Subjects) -> Result<f64> {
        let rate = |seconds| {
            let load = Load {
                threads: row.threads,
                duration: Duration::from_secs_f64(seconds),
            };
            opened.rate(row.measure, subjects, load, &self.stop)
        };
        if row.measure != Measure::Write {
            rate(self.args.seconds * WARM_UP)?;
        }
        rate(self.args.seconds)
    }

    /// Returns how many faults a volume has.
    fn check(&self, volume: &Volume) -> Result<u64> {
        match check(volume.ext4(), &Options::default(), &mut |_| {}) {
            Ok(summary) => Ok(summary.faults),
            Err(error) => Err(SuiteError::Because(format!(
                "it cannot be checked: {error}"
            ))),
        }
    }

    /// Checks the copy that all sides have written to.
    fn check_copy(&mut self, source: &Source, report: &mut Report) -> Result<()> {
        let faults = self.check(&open(&source.image, false, &Opening::default())?)?;
        report.faults = Some(faults);
        report.notes.push(match faults {
            0 => "the copy was checked afterwards: nothing is wrong with it".to_owned(),
            faults => format!("the copy is damaged afterwards: {}", count(faults)),
        });
        if faults > 0 {
            self.fail(
                ExitStatus::Corrupt,
                format!("the copy is damaged afterwards: {}", count(faults)),
            );
        }
        Ok(())
    }
}

/// Returns the notes that hold whatever is measured.
fn first_notes(machine: &Machine) -> Vec<String> {
    let mut notes = vec![
        "caches are warm: each figure comes after a while of the same; what is read has been dropped from the mounts' own page caches, \
         while the image is in the system's"
            .to_owned(),
        "in process there is no system call, and nothing between the program and the library; mounts are used by system calls of this \
         process"
            .to_owned(),
    ];
    if cfg!(debug_assertions) {
        notes.push(
            "extern4 was built without optimisation: the figures of its own columns mean nothing"
                .to_owned(),
        );
    }
    notes.extend(machine.was_busy());
    notes
}

fn damaged(faults: u64) -> String {
    format!(
        "the volume is damaged ({}; see extern4 check)",
        count(faults)
    )
}

fn count(faults: u64) -> String {
    counted(faults, "fault", "faults")
}

/// Returns the name of a measure of these subjects, for people.
fn label(measure: Measure, subjects: &Subjects) -> String {
    let sized = |what: &str, bytes: u64| match bytes {
        0 => what.to_owned(),
        bytes => format!("{what} {}", human(bytes)),
    };
    match measure {
        Measure::Stat => "stat".to_owned(),
        Measure::OpenClose => "open + close".to_owned(),
        Measure::Missing => "missing name".to_owned(),
        Measure::ReadDir => format!("readdir, {}", counted(subjects.dir_names, "name", "names")),
        Measure::Walk => "walk + stat".to_owned(),
        Measure::Read => sized(
            "read",
            subjects.large.as_ref().map_or(0, |(_, bytes)| *bytes),
        ),
        Measure::CreateUnlink => "create + unlink".to_owned(),
        Measure::Rename => "rename".to_owned(),
        Measure::Chmod => "chmod".to_owned(),
        Measure::SetXattr => "setxattr".to_owned(),
        Measure::Write => sized("write", subjects.write_bytes) + " + fsync",
    }
}

fn facts(volume: &Volume, subjects: &Subjects) -> Facts {
    let superblock = volume.ext4().superblock();
    let bytes = volume.bytes().map_or(0, |bytes| bytes.end - bytes.start);
    let path = |path: Option<&std::path::PathBuf>| {
        path.map_or(Vec::new(), |path| path.as_os_str().as_bytes().to_vec())
    };
    Facts {
        kind: extern4::info::type_name(superblock.features()),
        bytes,
        block_size: superblock.block_size(),
        features: superblock
            .features()
            .iter()
            .map(|feature| feature.to_string())
            .collect(),
        paths: [
            ("file", path(subjects.file.as_ref())),
            ("directory", path(Some(&subjects.dir))),
            (
                "large_file",
                path(subjects.large.as_ref().map(|(path, _)| path)),
            ),
        ],
    }
}
