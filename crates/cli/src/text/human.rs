//! Sizes for people.
//!
//! `ls`, `df`, `du` and reports show sizes with it. They are rounded up, so nothing looks smaller
//! than it is.

/// Returns `bytes` with a binary unit as `ls -h` writes it: rounded up, one decimal below ten.
pub(crate) fn human(bytes: u64) -> String {
    human_wide(u128::from(bytes))
}

fn human_wide(bytes: u128) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let units = ["K", "M", "G", "T", "P", "E"];
    for (index, unit) in units.iter().enumerate() {
        let size = 1_u128 << (10 * (index + 1));
        let tenths = (bytes * 10).div_ceil(size);
        if tenths < 100 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(size);
        if whole < 1024 {
            return format!("{whole}{unit}");
        }
    }
    format!("{}E", bytes.div_ceil(1 << 60))
}

/// Returns `bytes` in units of `unit`, rounded up as `du` and `df` do.
pub(crate) fn units(bytes: u64, unit: u64) -> u64 {
    bytes.div_ceil(unit)
}

#[cfg(test)]
mod tests {
    use super::human;

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
}
