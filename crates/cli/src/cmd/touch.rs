//! `extern4 touch`: makes files, or sets their times.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use extern4::{Errno, File, Session, SetTime, Timespec};
use jiff::tz::TimeZone;

use crate::app::App;
use crate::targets::{followed, written_paths};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files to touch
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Do not make files that are not there
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time instead of the present: as in RFC 3339, such as 2024-02-29T12:00:00Z, or @SECONDS
    /// since 1970
    #[arg(short, long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    date: Option<Timespec>,
    /// The times of this file instead of the present
    #[arg(short, long, value_name = "PATH", conflicts_with = "date")]
    reference: Option<OsString>,
    /// Set only the time of the last reading
    #[arg(short = 'a')]
    access: bool,
    /// Set only the time of the last change
    #[arg(short = 'm')]
    modification: bool,
}

/// Reads a time. One without an offset is in the time zone of the user who writes it.
fn time(text: &str) -> Result<Timespec, String> {
    seconds(text)
        .or_else(|| calendar(text))
        .ok_or_else(|| "write it as 2024-02-29T12:00:00Z or @1709208000.5".to_owned())
}

/// Reads `@SECONDS`, with up to nine digits behind a point.
fn seconds(text: &str) -> Option<Timespec> {
    let text = text.strip_prefix('@')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (sec, nsec): (i64, u32) = (whole.parse().ok()?, format!("{fraction:0<9}").parse().ok()?);
    // The fraction leads away from zero: -0.5 is half a second before.
    if whole.starts_with('-') && nsec > 0 {
        return Some(Timespec { sec: sec.checked_sub(1)?, nsec: 1_000_000_000 - nsec });
    }
    Some(Timespec { sec, nsec })
}

fn calendar(text: &str) -> Option<Timespec> {
    let time = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let time: jiff::civil::DateTime = text.parse().ok()?;
        Some(time.to_zoned(TimeZone::system()).ok()?.timestamp())
    })?;
    let nanoseconds = time.as_nanosecond();
    let sec = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
    Some(Timespec { sec, nsec: u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).ok()? })
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let image_paths = written_paths(&args.image_paths, app);
    let mut times = match args.date {
        Some(time) => (SetTime::At(time), SetTime::At(time)),
        None => (SetTime::Now, SetTime::Now),
    };
    if let Some(reference) = &args.reference {
        let image_path = app.image_path(reference);
        let Some(target) = app.target(&image_path) else { return Ok(()) };
        match target.session().metadata(target.path()) {
            Ok(found) => times = (SetTime::At(found.atime()), SetTime::At(found.mtime())),
            Err(error) => {
                app.error(&image_path, &error);
                return Ok(());
            }
        }
    }
    if args.access != args.modification {
        let omitted = if args.access { &mut times.1 } else { &mut times.0 };
        *omitted = SetTime::Omit;
    }
    for image_path in &image_paths {
        let Some(target) = app.target(image_path) else { continue };
        if let Err(error) = touch(target.session(), target.path(), args.no_create, times) {
            app.error(image_path, &error);
        }
    }
    Ok(())
}

fn touch(
    session: &Session,
    path: &Path,
    no_create: bool,
    (access, modification): (SetTime, SetTime),
) -> extern4::Result<()> {
    match session.metadata(path) {
        Ok(_) => {}
        Err(error) if error.errno() == Errno::ENOENT => {
            if no_create {
                return Ok(());
            }
            session.open_with(path, File::options().write(true).create(true))?;
        }
        Err(error) => return Err(error),
    }
    session.lset_times(followed(session, path)?, access, modification)
}

#[cfg(test)]
mod tests {
    use super::time;
    use extern4::Timespec;

    #[test]
    fn times_are_read() {
        let check = |text: &str, sec, nsec| assert_eq!(time(text), Ok(Timespec { sec, nsec }), "{text}");
        check("@0", 0, 0);
        check("@1709208000.5", 1_709_208_000, 500_000_000);
        check("@-1", -1, 0);
        check("@-0.25", -1, 750_000_000);
        check("@15032385535.999999999", 15_032_385_535, 999_999_999);
        check("2024-02-29T12:00:00Z", 1_709_208_000, 0);
        check("2024-02-29 12:00:00+01:00", 1_709_204_400, 0);
        check("1969-12-31T23:59:59.5Z", -1, 500_000_000);
        for text in ["", "@", "@x", "@1.", "@1.1234567890", "12", "2024-02-30T00:00:00Z", "yesterday"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
