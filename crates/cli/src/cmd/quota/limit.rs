//! Limits and times, as setquota(8) reads limits and as people write times.

/// Reads a limit of space: a number of KiB, or with K, M, G or T of that unit. Returns bytes.
pub(super) fn space(text: &str) -> Result<u64, String> {
    let factor = |unit: &str| match unit {
        "" | "K" => Some(1 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        "T" => Some(1 << 40),
        _ => None,
    };
    number(
        text,
        factor,
        "write it as 10240, 10M or 1G; a number alone is in KiB",
    )
}

/// Reads a limit of inodes: a number, or with k, m, g or t of thousands, millions and so on.
pub(super) fn inodes(text: &str) -> Result<u64, String> {
    let factor = |unit: &str| match unit {
        "" => Some(1),
        "k" => Some(1000),
        "m" => Some(1_000_000),
        "g" => Some(1_000_000_000),
        "t" => Some(1_000_000_000_000),
        _ => None,
    };
    number(text, factor, "write it as 1000 or 1k")
}

/// Reads a time: a number of seconds, or with m, h, d or w of minutes, hours, days or weeks.
pub(super) fn seconds(text: &str) -> Result<u32, String> {
    let factor = |unit: &str| match unit {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(86_400),
        "w" => Some(7 * 86_400),
        _ => None,
    };
    let form = "write it as 604800, 90m, 12h, 7d or 1w";
    u32::try_from(number(text, factor, form)?).map_err(|_| format!("{text} is too long a time"))
}

fn number(text: &str, factor: impl Fn(&str) -> Option<u64>, form: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let number = digits.parse::<u64>().ok().zip(factor(unit));
    let product = number.and_then(|(number, factor)| number.checked_mul(factor));
    product
        .filter(|product| *product <= i64::MAX.unsigned_abs())
        .ok_or_else(|| form.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{inodes, seconds, space};

    #[test]
    fn limits_are_read_as_setquota_does() {
        assert_eq!(
            (space("0"), space("3"), space("2M")),
            (Ok(0), Ok(3 << 10), Ok(2 << 20))
        );
        assert_eq!(
            (inodes("7"), inodes("2k"), inodes("1m")),
            (Ok(7), Ok(2000), Ok(1_000_000))
        );
        assert_eq!(
            (seconds("90"), seconds("2h"), seconds("1w")),
            (Ok(90), Ok(7200), Ok(604_800))
        );
        for bad in ["", "-1", "1x", "M", "9999999999T", "18446744073709551616"] {
            assert!(
                space(bad).is_err() && inodes(bad).is_err() && seconds(bad).is_err(),
                "{bad}"
            );
        }
        assert!(seconds("4294967296").is_err() && space("1k").is_err() && inodes("1K").is_err());
    }
}
