//! Bytes as `getfacl` and `getfattr` write them, for their siblings that set to read back.

/// Appends `bytes` with everything that is not printable ASCII or UTF-8, and each of `special`, as `\ooo`.
pub(crate) fn push_octal(out: &mut Vec<u8>, bytes: &[u8], special: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut utf8 = [0; 4];
            let utf8 = c.encode_utf8(&mut utf8).as_bytes();
            if super::name::is_printable(c) && !special.contains(&utf8[0]) {
                out.extend_from_slice(utf8);
            } else {
                utf8.iter().for_each(|byte| out.extend_from_slice(format!("\\{byte:03o}").as_bytes()));
            }
        }
        chunk.invalid().iter().for_each(|byte| out.extend_from_slice(format!("\\{byte:03o}").as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::push_octal;

    #[test]
    fn unprintable_bytes_are_octal() {
        let check = |bytes: &[u8], shown: &str| {
            let mut out = Vec::new();
            push_octal(&mut out, bytes, b"\\=");
            assert_eq!(String::from_utf8(out).as_deref(), Ok(shown));
        };
        check(b"a b", "a b");
        check(b"a\nb", "a\\012b");
        check(b"a\\=", "a\\134\\075");
        check("ü\u{ff}".as_bytes(), "üÿ");
        check(b"\xff", "\\377");
    }
}
