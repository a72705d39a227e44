//! Sizes for people.
//!
//! `ls`, `df`, `du` and reports show sizes with it. They are rounded up, so nothing looks smaller
//! than it is.

/// Returns `bytes` with a binary unit as `ls -h` writes it: rounded up, one decimal below ten.
pub(crate) fn human(bytes: u64) -> String {
    human_in(bytes, 1024, "KMGTPE")
}

/// Returns `bytes` with a decimal unit as `ls --si` writes it.
pub(super) fn human_decimal(bytes: u64) -> String {
    human_in(bytes, 1000, "kMGTPE")
}

fn human_in(bytes: u64, base: u128, units: &str) -> String {
    let bytes = u128::from(bytes);
    if bytes < base {
        return bytes.to_string();
    }
    let mut size = 1;
    for unit in units.chars() {
        size *= base;
        let tenths = (bytes * 10).div_ceil(size);
        if tenths < 100 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(size);
        if whole < base {
            return format!("{whole}{unit}");
        }
    }
    format!("{}E", bytes.div_ceil(size))
}

/// Returns `bytes` in units of `unit`, rounded up as `du` and `df` do.
pub(crate) fn units(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit)
}

#[cfg(test)]
mod tests {
    use super::{human, human_decimal};

    #[test]
    fn human_sizes_are_as_ls_writes_them() {
        let check = |bytes: u64, shown: &str| assert_eq!(human(bytes), shown, "{bytes}");
        check(0, "0");
        check(1023, "1023");
        check(1024, "1.0K");
        check(1025, "1.1K");
        check(10 * 1024 - 1, "10K");
        check(10 * 1024, "10K");
        check(10 * 1024 + 1, "11K");
        check(1024 * 1024 - 1, "1.0M");
        check(1 << 40, "1.0T");
        check(u64::MAX, "16E");
    }

    #[test]
    fn decimal_sizes_are_as_ls_writes_them() {
        let check = |bytes: u64, shown: &str| assert_eq!(human_decimal(bytes), shown, "{bytes}");
        check(999, "999");
        check(1000, "1.0k");
        check(4096, "4.1k");
        check(9951, "10k");
        check(999_001, "1.0M");
        check(u64::MAX, "19E");
    }
}
