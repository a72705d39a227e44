//! A number with its noun.
//!
//! Messages for people use it. The noun is singular for 1 only.

/// Returns a number with its noun: `1 file`, `2 files`.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        let check = |count: usize, shown: &str| {
            assert_eq!(counted(count, "directory", "directories"), shown)
        };
        check(0, "0 directories");
        check(1, "1 directory");
        check(2, "2 directories");
    }
}
