//! Times in the time zone of the reader: `TZ`, or the system's.
//!
//! `ls`, `stat`, `find` and `info` print times with it. A time that the calendar does not have is
//! shown as seconds.

use extern4::Timespec;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Half of the mean Gregorian year: `ls` calls a file recent up to this age.
const RECENT_SECONDS: i64 = 31_556_952 / 2;

/// Writes times as `ls -l` does.
pub(crate) struct ListTime {
    zone: TimeZone,
    now: i64,
    old: String,
    recent: String,
}

impl ListTime {
    /// Returns a writer for which the present is now.
    pub(crate) fn new() -> Self {
        Self::with_patterns("%b %e  %Y", "%b %e %H:%M")
    }

    /// Returns a writer with patterns of strftime(3) for times that are not recent, and that are.
    pub(crate) fn with_patterns(old: &str, recent: &str) -> Self {
        let zone = TimeZone::system();
        let now = Timestamp::now().as_second();
        Self {
            zone,
            now,
            old: old.to_owned(),
            recent: recent.to_owned(),
        }
    }

    /// Returns the time, with the time of day if it is recent, else with the year.
    pub(crate) fn format(&self, time: Timespec) -> String {
        let recent = time.sec > self.now - RECENT_SECONDS && time.sec <= self.now;
        format(
            &self.zone,
            time,
            if recent { &self.recent } else { &self.old },
        )
    }
}

/// Returns the time in full, as `stat` writes it: `2024-02-29 12:00:00.123456789 +0100`.
pub(crate) fn full_time(time: Timespec) -> String {
    format(&TimeZone::system(), time, "%Y-%m-%d %H:%M:%S.%9f %z")
}

/// Returns the time to the second, for people: `2024-02-29 12:00:00 +0100`.
pub(crate) fn iso_time(seconds: i64) -> String {
    format(
        &TimeZone::system(),
        Timespec {
            sec: seconds,
            nsec: 0,
        },
        "%Y-%m-%d %H:%M:%S %z",
    )
}

/// Returns the time as RFC 3339 writes it, in UTC and with nanoseconds:
/// `2024-02-29T11:00:00.123456789Z`. It has years from 0 to 9999.
pub(crate) fn rfc3339(time: Timespec) -> Option<String> {
    let zoned = zoned(&TimeZone::UTC, time).filter(|zoned| zoned.year() >= 0)?;
    Some(zoned.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string())
}

/// Returns the parts of a time that a pattern of strftime(3) asks for.
pub(crate) fn format_time(time: Timespec, pattern: &str) -> String {
    format(&TimeZone::system(), time, pattern)
}

/// Formats a time. A time outside the calendar is written in seconds.
fn format(zone: &TimeZone, time: Timespec, pattern: &str) -> String {
    match zoned(zone, time) {
        // The library would round seconds before 1970 up.
        Some(zoned) if time.sec < 0 && pattern.contains("%s") && !pattern.contains("%%") => zoned
            .strftime(&pattern.replace("%s", &time.sec.to_string()))
            .to_string(),
        Some(zoned) => zoned.strftime(pattern).to_string(),
        None => format!("@{}.{:09}", time.sec, time.nsec),
    }
}

fn zoned(zone: &TimeZone, time: Timespec) -> Option<Zoned> {
    let whole = Timestamp::from_second(time.sec).ok()?;
    let nanoseconds = whole.as_nanosecond() + i128::from(time.nsec);
    Some(
        Timestamp::from_nanosecond(nanoseconds)
            .ok()?
            .to_zoned(zone.clone()),
    )
}

#[cfg(test)]
mod tests {
    use super::{ListTime, format, rfc3339};
    use extern4::Timespec;
    use jiff::tz::TimeZone;

    const FULL: &str = "%Y-%m-%d %H:%M:%S.%9f %z";

    #[test]
    fn times_of_all_years_are_written() {
        let check = |sec, nsec, shown: &str| {
            assert_eq!(format(&TimeZone::UTC, Timespec { sec, nsec }, FULL), shown);
        };
        check(0, 0, "1970-01-01 00:00:00.000000000 +0000");
        check(-1, 500_000_000, "1969-12-31 23:59:59.500000000 +0000");
        check(
            15_032_385_535,
            999_999_999,
            "2446-05-10 22:38:55.999999999 +0000",
        );
        check(-2_147_483_648, 0, "1901-12-13 20:45:52.000000000 +0000");
        check(i64::MAX, 1, "@9223372036854775807.000000001");
        assert_eq!(
            format(&TimeZone::UTC, Timespec { sec: -2, nsec: 5 }, "%s %F"),
            "-2 1969-12-31"
        );
    }

    #[test]
    fn times_for_scripts_are_in_utc_with_nanoseconds() {
        let check = |sec, nsec, shown: Option<&str>| {
            assert_eq!(rfc3339(Timespec { sec, nsec }).as_deref(), shown);
        };
        check(0, 0, Some("1970-01-01T00:00:00.000000000Z"));
        check(-1, 500_000_000, Some("1969-12-31T23:59:59.500000000Z"));
        check(
            15_032_385_535,
            999_999_999,
            Some("2446-05-10T22:38:55.999999999Z"),
        );
        check(-62_167_219_200, 0, Some("0000-01-01T00:00:00.000000000Z"));
        check(-62_167_219_201, 0, None);
        check(253_402_300_800, 0, None);
        check(i64::MAX, 0, None);
    }

    #[test]
    fn recent_times_have_a_time_of_day() {
        let list = ListTime {
            zone: TimeZone::UTC,
            now: 1_700_000_000,
            ..ListTime::new()
        };
        let check = |sec, shown: &str| assert_eq!(list.format(Timespec { sec, nsec: 0 }), shown);
        check(1_700_000_000, "Nov 14 22:13");
        check(1_700_000_001, "Nov 14  2023");
        check(1_680_000_000, "Mar 28  2023");
        check(1_699_000_000, "Nov  3 08:26");
    }
}
