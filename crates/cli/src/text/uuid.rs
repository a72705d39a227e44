//! UUIDs in their usual form.
//!
//! `info`, `mkfs` and messages print UUIDs with it.

/// Returns a UUID as it is usually written.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
