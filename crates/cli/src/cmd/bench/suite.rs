//! `bench IMAGE`: a short suite that runs in this process, in our mount and in the kernel's, for
//! comparison.
//!
//! All three work on one copy of the image, in turn. In each round each of them opens the copy,
//! runs everything, and closes it again; the order changes from round to round. So they find the
//! same contents, a short disturbance of the machine affects all of them, and the space of one copy
//! is enough. Figures are compared within a round.
//!
//! ```text
//! image --choose, check--> Subjects --copy--> Scratch --make--> rounds x Side x Measure
//!       --> Figures --> Report
//! ```
//!
//! Where there can be no copy, or the volume cannot be written, the suite runs only reading
//! measures, on the image itself, opened for reading.
//!
//! `bench` calls [`run`]. The image is never written.

mod kernel;
mod measure;
mod progress;
mod report;
mod run;
mod scratch;
mod served;
mod side;
mod source;
mod stop;
mod subjects;
mod table;
mod tree;

use std::io::{self, Write as _};

use clap::ValueEnum as _;

use self::report::Report;
use self::run::Suite;
use self::side::Side;
use crate::app::{App, Opening, host_reason, open};
use crate::color::When;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::text::escape;

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// The volume to measure; a copy of it is changed, never the image itself
    ///
    /// The copy is in a new directory where TMPDIR says, else next to the image. It takes as much
    /// room as the data of the image, and some 200 MiB for the writing measures. Where there is no
    /// room for it, only reading is measured. An image that is called walk or ops is written
    /// ./walk.
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser(), required = true)]
    image_path: Option<ImagePath>,
    /// Seconds for each figure, of which there are up to 66 in a round
    #[arg(long, default_value_t = 0.1, value_parser = super::seconds)]
    seconds: f64,
    /// How often everything is measured
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Threads that do it at once, one or more numbers with commas between them (default: 1, and
    /// the number of CPUs)
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Where to measure (default: everywhere that it can be)
    #[arg(long, value_name = "SIDE[,SIDE...]", value_delimiter = ',')]
    on: Vec<Side>,
    /// Write a JSON object with all figures
    #[arg(long)]
    json: bool,
    /// Colour the bars
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always",
        num_args = 0..=1, require_equals = true)]
    color: When,
}

/// The reason why something was not measured.
enum SuiteError {
    /// The user asked for the end.
    Stopped,
    /// Another reason, fit for a terminal.
    Because(String),
}

type Result<T> = std::result::Result<T, SuiteError>;

impl From<extern4::Error> for SuiteError {
    fn from(error: extern4::Error) -> Self {
        Self::Because(escape(error.to_string().as_bytes()).into_owned())
    }
}

impl Args {
    /// Returns the numbers of threads, in ascending order.
    fn threads(&self) -> Vec<u32> {
        let mut threads = if self.threads.is_empty() {
            vec![1, extern4_measure::machine::cpu_count().min(256)]
        } else {
            self.threads.clone()
        };
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// Returns the sides, in the order of the columns.
    fn sides(&self) -> Vec<Side> {
        let wanted = |side: &&Side| self.on.is_empty() || self.on.contains(side);
        Side::value_variants()
            .iter()
            .filter(wanted)
            .copied()
            .collect()
    }
}

pub(super) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(image_path) = &args.image_path else {
        app.fail(ExitStatus::Usage, "name an image");
        return Ok(());
    };
    if image_path.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, image_path, "name the image alone");
        return Ok(());
    }
    if !app.is_superuser() {
        app.fail(
            ExitStatus::Usage,
            "the suite uses mounts as the calling user: --as is only for walk and ops",
        );
        return Ok(());
    }
    if app.refuses_opening("a copy of the image is measured") {
        return Ok(());
    }
    let image = &image_path.image;
    let volume = match open(image, false, &Opening::default()) {
        Ok(volume) => volume,
        Err(error) => {
            app.refused(image, &error);
            return Ok(());
        }
    };
    let mut suite = match Suite::new(args, image) {
        Ok(suite) => suite,
        Err(error) => {
            app.fail_at(ExitStatus::Failed, image, host_reason(&error));
            return Ok(());
        }
    };
    let done = suite.run(volume);
    let failures = suite.end();
    for (status, failure) in failures {
        app.fail_at(status, image, &failure);
    }
    match done {
        Ok(report) => write(&report, args),
        Err(SuiteError::Stopped) => {
            app.fail_at(ExitStatus::Failed, image, "ended before all was measured");
            Ok(())
        }
        Err(SuiteError::Because(why)) => {
            app.fail_at(ExitStatus::Failed, image, &why);
            Ok(())
        }
    }
}

fn write(report: &Report, args: &Args) -> io::Result<()> {
    let text = if args.json {
        report.json()
    } else {
        report.text(args.color.is_wanted())
    };
    io::stdout().write_all(text.as_bytes())
}
