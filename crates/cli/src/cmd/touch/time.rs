//! Times as `touch` takes them.
//!
//! `touch` parses its options with it. A text that is no time is a usage error.

use extern4::Timespec;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Returns the present.
pub(super) fn now() -> Timespec {
    timespec(Timestamp::now())
}

/// Reads a date in the words of GNU's tools, relative to `base`. One without an offset is in the
/// time zone of the user who writes it.
pub(super) fn parse(text: &str, base: Timespec) -> Result<Timespec, String> {
    let refused = || {
        format!("{text:?} is no date, such as 2024-02-29T12:00:00Z, @1709208000.5 or '2 days ago'")
    };
    // Seconds since 1970 reach beyond the years of a calendar.
    if let Some(seconds) = text.strip_prefix('@') {
        return self::seconds(seconds).ok_or_else(refused);
    }
    if let Some(time) = calendar(text) {
        return Ok(time);
    }
    // As with GNU's tools, no words are the day's beginning.
    let text = if text.trim().is_empty() {
        "00:00"
    } else {
        text
    };
    let nanosecond = i32::try_from(base.nsec).unwrap_or(0);
    let base = Timestamp::new(base.sec, nanosecond).map_err(|_| refused())?;
    let base = Zoned::new(base, TimeZone::system());
    match parse_datetime::parse_datetime_at_date(base, text) {
        Ok(parse_datetime::ParsedDateTime::InRange(zoned)) => Ok(timespec(zoned.timestamp())),
        _ => Err(refused()),
    }
}

/// Reads seconds with up to nine digits behind a point.
fn seconds(text: &str) -> Option<Timespec> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty()
        || fraction.len() > 9
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let (sec, nsec): (i64, u32) = (whole.parse().ok()?, format!("{fraction:0<9}").parse().ok()?);
    // The fraction leads away from zero: -0.5 is half a second before.
    if whole.starts_with('-') && nsec > 0 {
        return Some(Timespec {
            sec: sec.checked_sub(1)?,
            nsec: 1_000_000_000 - nsec,
        });
    }
    Some(Timespec { sec, nsec })
}

/// Reads a time in the form of RFC 3339, with or without an offset.
fn calendar(text: &str) -> Option<Timespec> {
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let time: jiff::civil::DateTime = text.parse().ok()?;
        Some(time.to_zoned(TimeZone::system()).ok()?.timestamp())
    })?;
    Some(timespec(time))
}

/// Reads `[[CC]YY]MMDDhhmm[.ss]`, in the time zone of the user.
pub(super) fn stamp(text: &str) -> Result<Timespec, String> {
    civil(text)
        .and_then(|time| time.to_zoned(TimeZone::system()).ok())
        .map(|time| timespec(time.timestamp()))
        .ok_or_else(|| "write it as [[CC]YY]MMDDhhmm[.ss]".to_owned())
}

fn civil(text: &str) -> Option<jiff::civil::DateTime> {
    let (digits, second) = text.split_once('.').unwrap_or((text, "00"));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if second.len() != 2 || !is_digits(second) || !is_digits(digits) {
        return None;
    }
    let (year, rest) = digits.split_at_checked(digits.len().checked_sub(8)?)?;
    let year = match (year.len(), year.parse::<i16>().ok()) {
        (0, _) => Zoned::now().year(),
        // The rule of POSIX.
        (2, Some(year)) => year + if year < 69 { 2000 } else { 1900 },
        (4, Some(year)) => year,
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2)?.parse::<i8>().ok();
    // A leap second is the first second after it.
    let (second, leap) = match second.parse::<i8>().ok()? {
        60 => (59, 1),
        second => (second, 0),
    };
    let time =
        jiff::civil::DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, second, 0).ok()?;
    time.checked_add(jiff::SignedDuration::from_secs(leap)).ok()
}

fn timespec(time: Timestamp) -> Timespec {
    let nanoseconds = time.as_nanosecond();
    let sec = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
    Timespec {
        sec,
        nsec: u32::try_from(nanoseconds.rem_euclid(1_000_000_000)).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::{civil, parse};
    use extern4::Timespec;

    #[test]
    fn dates_are_read() {
        let base = Timespec {
            sec: 1_709_208_000,
            nsec: 500_000_000,
        };
        let check = |text: &str, sec, nsec| {
            assert_eq!(parse(text, base), Ok(Timespec { sec, nsec }), "{text}")
        };
        check("@0", 0, 0);
        check("@1709208000.5", 1_709_208_000, 500_000_000);
        check("@-1", -1, 0);
        check("@-0.25", -1, 750_000_000);
        check("@15032385535.999999999", 15_032_385_535, 999_999_999);
        check("2024-02-29T12:00:00Z", 1_709_208_000, 0);
        check("2024-02-29 12:00:00+01:00", 1_709_204_400, 0);
        check("1969-12-31T23:59:59.5Z", -1, 500_000_000);
        check("2 hours ago", 1_709_208_000 - 7200, 500_000_000);
        check("29 Feb 2024 12:00:00 UTC", 1_709_208_000, 0);
        assert_eq!(parse("", base), parse("00:00", base));
        for text in [
            "@",
            "@x",
            "@1.",
            "@1.1234567890",
            "2024-02-30T00:00:00Z",
            "someday",
            "2 moons ago",
        ] {
            assert!(parse(text, base).is_err(), "{text}");
        }
    }

    #[test]
    fn stamps_are_read() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                civil(text),
                expected.map(|text| text.parse().expect("a time")),
                "{text}"
            );
        };
        check("202402291200", Some("2024-02-29T12:00:00"));
        check("202402291200.59", Some("2024-02-29T12:00:59"));
        check("202402291200.60", Some("2024-02-29T12:01:00"));
        check("6901010000", Some("1969-01-01T00:00:00"));
        check("6801010000", Some("2068-01-01T00:00:00"));
        for text in [
            "",
            "1",
            "0229120",
            "20240230120000",
            "202402301200",
            "202402291260",
            "2024022912000",
            "+202291200",
            "202402291200.6",
        ] {
            check(text, None);
        }
    }
}
