//! JSON for scripts: one object a line.
//!
//! A name in a volume need not be UTF-8. Its member then holds the readable form, with U+FFFD for
//! bytes that are no text. A second member of the same name with `_hex` appended holds the exact
//! bytes in hexadecimal.
//!
//! The command's JSON forms, the lab and the benchmarks write it. An object is always complete and
//! on one line; a number that JSON cannot hold becomes `null`.

use std::fmt::{Display, Write as _};

/// An object that is being written.
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut String,
    empty: bool,
}

/// Returns one object as a line of its own.
pub fn line(fill: impl FnOnce(&mut Object<'_>)) -> String {
    let mut out = String::new();
    object(&mut out, fill);
    out.push('\n');
    out
}

fn object(out: &mut String, fill: impl FnOnce(&mut Object<'_>)) {
    out.push('{');
    fill(&mut Object { out, empty: true });
    out.push('}');
}

impl Object<'_> {
    fn key(&mut self, key: &str) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(',');
        }
        string(self.out, key);
        self.out.push(':');
    }

    /// Adds a number, `true`, `false` or another value whose `Display` is JSON.
    pub fn raw(&mut self, key: &str, value: impl Display) {
        self.key(key);
        write!(self.out, "{value}").expect("a string takes everything");
    }

    /// Adds a number, or `null`.
    pub fn maybe(&mut self, key: &str, value: Option<impl Display>) {
        match value {
            Some(value) => self.raw(key, value),
            None => self.raw(key, "null"),
        }
    }

    /// Adds a measured number, or `null` for one that is not finite.
    pub fn number(&mut self, key: &str, value: f64) {
        self.maybe(key, value.is_finite().then_some(value));
    }

    /// Adds text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        string(self.out, value);
    }

    /// Adds text, or `null`.
    pub fn text_or_null(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.raw(key, "null"),
        }
    }

    /// Adds bytes that are text as a rule, such as a name.
    pub fn bytes(&mut self, key: &str, value: &[u8]) {
        self.text(key, &String::from_utf8_lossy(value));
        if std::str::from_utf8(value).is_err() {
            self.hex(&format!("{key}_hex"), value);
        }
    }

    /// Adds bytes in hexadecimal.
    pub fn hex(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        self.out.push('"');
        value.iter().for_each(|byte| write!(self.out, "{byte:02x}").expect("a string takes everything"));
        self.out.push('"');
    }

    /// Adds an object, which `fill` fills.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        object(self.out, fill);
    }

    /// Adds an array of text.
    pub fn texts(&mut self, key: &str, values: impl IntoIterator<Item = impl AsRef<str>>) {
        self.array(key, values, |value, out| string(out, value.as_ref()));
    }

    /// Adds an array of numbers.
    pub fn numbers(&mut self, key: &str, values: impl IntoIterator<Item = impl Display>) {
        self.array(key, values, |value, out| write!(out, "{value}").expect("a string takes everything"));
    }

    /// Adds an array of objects.
    pub fn objects<T>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(T, &mut Object<'_>),
    ) {
        self.array(key, values, |value, out| object(out, |item| fill(value, item)));
    }

    fn array<T>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut String),
    ) {
        self.key(key);
        self.out.push('[');
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            write(value, self.out);
        }
        self.out.push(']');
    }
}

/// Returns whether a character may reach a terminal: no control characters, none that change the
/// direction of the text or stay invisible.
pub fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn string(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            // The terminal would obey this character or not show it. A character beyond the first
            // plane takes two units of UTF-16.
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                write!(out, "\\u{unit:04x}").expect("a string takes everything");
            }),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn members_of_every_kind() {
        let text = line(|object| {
            object.raw("n", 1);
            object.text("t", "a\"\\\n\u{1}\u{7f}ü");
            object.bytes("name", b"x\xff");
            object.maybe("none", None::<u8>);
            object.texts("list", ["a", "b"]);
            object.objects("objects", [1, 2], |value, item| item.raw("v", value));
            object.numbers("empty", [0_u8; 0]);
            object.object("object", |item| item.raw("v", 3));
        });
        assert_eq!(
            text,
            concat!(
                r#"{"n":1,"t":"a\"\\\n\u0001\u007fü","name":"x"#,
                "\u{fffd}",
                r#"","name_hex":"78ff","none":null,"#,
                r#""list":["a","b"],"objects":[{"v":1},{"v":2}],"empty":[],"object":{"v":3}}"#,
                "\n"
            )
        );
    }
}
