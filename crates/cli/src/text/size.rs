//! Numbers with GNU's units: `10`, `4K`, `2kB`, `1M`.
//!
//! Options that take a size parse with it. A number that does not fit into 64 bits is no size.

/// Returns the number that a text means: digits and perhaps a unit.
pub(crate) fn size(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(factor(unit)?)
}

fn factor(unit: &str) -> Option<u64> {
    let power = |letter: char| {
        "KMGTPE"
            .find(letter.to_ascii_uppercase())
            .map(|at| at as u32 + 1)
    };
    let mut letters = unit.chars();
    match (letters.next(), letters.as_str()) {
        (None, _) => Some(1),
        (Some('b'), "") => Some(512),
        // Only thousands have a small letter.
        (Some('k'), "B") => Some(1000),
        (Some(letter), "" | "iB") => 1024_u64.checked_pow(power(letter)?),
        (Some(letter), "B") => 1000_u64.checked_pow(power(letter)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn units_are_those_of_gnu() {
        for (text, bytes) in [
            ("0", 0),
            ("7", 7),
            ("2b", 1024),
            ("1kB", 1000),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("3M", 3 << 20),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1x", "1KB1", "16E", "1Kb"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
