//! The words of a line, quoted as in a shell.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Splits a line into words. `'` keeps everything as it is, `"` all but `\`, and `\` keeps the byte
/// after it.
pub(super) fn words(line: &[u8]) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\r' => words.extend(word.take()),
            b'#' if word.is_none() => break,
            b'\'' | b'"' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or("a quote is not closed")? {
                        end if end == byte => break,
                        b'\\' if byte == b'"' => {
                            let next = bytes.next().ok_or("a quote is not closed")?;
                            if !matches!(next, b'"' | b'\\') {
                                word.push(b'\\');
                            }
                            word.push(next);
                        }
                        inner => word.push(inner),
                    }
                }
            }
            b'\\' => {
                let next = bytes.next().ok_or("there is nothing behind the last backslash")?;
                word.get_or_insert_default().push(next);
            }
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::words;
    use std::ffi::OsString;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        let check = |line: &str, expected: &[&str]| {
            let expected: Vec<OsString> = expected.iter().map(OsString::from).collect();
            assert_eq!(words(line.as_bytes()), Ok(expected), "{line}");
        };
        check("", &[]);
        check("  a  b\tc ", &["a", "b", "c"]);
        check("a 'b c' \"d e\"f", &["a", "b c", "d ef"]);
        check("a\\ b '\\' \"\\\"\\\\\\n\"", &["a b", "\\", "\"\\\\n"]);
        check("'' x", &["", "x"]);
        check("a#b #c", &["a#b"]);
        check("# all", &[]);
        for bad in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(words(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
