//! JSON for scripts: one object a line.
//!
//! A name in a volume need not be UTF-8. Its member then holds the readable form, with U+FFFD for
//! bytes that are no text. A second member of the same name with `_hex` appended holds the exact
//! bytes in hexadecimal.
//!
//! The command's JSON forms, the lab and the benchmarks write it. `serde_json` writes every key and
//! value; this module adds the objects, whose members keep the order in which they were added. An
//! object is always complete and on one line. A number that JSON cannot hold becomes `null`.

use serde::{Serialize, Serializer as _};
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter as _};

/// An object that is being written.
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

/// Returns one object as one line.
pub fn line(fill: impl FnOnce(&mut Object<'_>)) -> String {
    let mut out = Vec::new();
    object(&mut out, fill);
    out.push(b'\n');
    String::from_utf8(out).expect("serde_json writes UTF-8")
}

fn object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
    written(CompactFormatter.begin_object(out));
    fill(&mut Object { out, empty: true });
    written(CompactFormatter.end_object(out));
}

fn serializer(out: &mut Vec<u8>) -> Serializer<&mut Vec<u8>, CompactFormatter> {
    Serializer::with_formatter(out, CompactFormatter)
}

fn written<E: std::fmt::Debug>(result: Result<(), E>) {
    result.expect("a vector takes every value that JSON has");
}

impl Object<'_> {
    /// Writes a key, and returns where its value is to be written.
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        let first = std::mem::take(&mut self.empty);
        written(CompactFormatter.begin_object_key(self.out, first));
        written(key.serialize(&mut serializer(self.out)));
        written(CompactFormatter.begin_object_value(self.out));
        self.out
    }

    /// Adds a number, `true`, `false` or another value.
    pub fn raw(&mut self, key: &str, value: impl Serialize) {
        written(value.serialize(&mut serializer(self.key(key))));
    }

    /// Adds a number, or `null`.
    pub fn maybe(&mut self, key: &str, value: Option<impl Serialize>) {
        self.raw(key, value);
    }

    /// Adds a measured number, or `null` for one that is not finite.
    pub fn number(&mut self, key: &str, value: f64) {
        self.raw(key, value);
    }

    /// Adds a measured number with as many decimals as mean something, or `null`.
    pub fn rounded(&mut self, key: &str, value: impl Into<Option<f64>>, decimals: i32) {
        self.maybe(key, value.into().map(|value| rounded(value, decimals)));
    }

    /// Adds text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.raw(key, value);
    }

    /// Adds text, or `null`.
    pub fn text_or_null(&mut self, key: &str, value: Option<&str>) {
        self.raw(key, value);
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
        let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.text(key, &digits);
    }

    /// Adds an object, which `fill` fills.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        object(self.key(key), fill);
    }

    /// Adds an array of text.
    pub fn texts(&mut self, key: &str, values: impl IntoIterator<Item = impl AsRef<str>>) {
        let texts: Vec<_> = values.into_iter().collect();
        written(serializer(self.key(key)).collect_seq(texts.iter().map(AsRef::as_ref)));
    }

    /// Adds an array of numbers.
    pub fn numbers(&mut self, key: &str, values: impl IntoIterator<Item = impl Serialize>) {
        written(serializer(self.key(key)).collect_seq(values));
    }

    /// Adds an array of objects.
    pub fn objects<T>(
        &mut self,
        key: &str,
        values: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(T, &mut Object<'_>),
    ) {
        let out = self.key(key);
        written(CompactFormatter.begin_array(out));
        for (index, value) in values.into_iter().enumerate() {
            written(CompactFormatter.begin_array_value(out, index == 0));
            object(out, |item| fill(value, item));
        }
        written(CompactFormatter.end_array(out));
    }
}

/// Returns a number with as many decimals as mean something.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn members_of_every_kind() {
        let text = line(|object| {
            object.raw("n", 1);
            object.text("t", "a\"\\\n\u{1}ü");
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
                r#"{"n":1,"t":"a\"\\\n\u0001ü","name":"x"#,
                "\u{fffd}",
                r#"","name_hex":"78ff","none":null,"#,
                r#""list":["a","b"],"objects":[{"v":1},{"v":2}],"empty":[],"object":{"v":3}}"#,
                "\n"
            )
        );
    }

    #[test]
    fn numbers_are_exact_or_null() {
        let text = line(|object| {
            object.raw("largest", u64::MAX);
            object.raw("least", i64::MIN);
            object.raw("milliseconds", std::time::Duration::MAX.as_millis());
            object.number("third", 1.0 / 3.0);
            object.number("whole", 1.0);
            object.number("nan", f64::NAN);
            object.maybe("infinite", Some(f64::INFINITY));
            object.numbers("list", [0.5, f64::NEG_INFINITY]);
            object.rounded("short", 2.0 / 3.0, 4);
            object.rounded("none", None, 4);
            object.rounded("undefined", f64::NAN, 4);
        });
        assert_eq!(
            text,
            concat!(
                r#"{"largest":18446744073709551615,"least":-9223372036854775808,"#,
                r#""milliseconds":18446744073709551615999,"third":0.3333333333333333,"whole":1.0,"#,
                r#""nan":null,"infinite":null,"list":[0.5,null],"short":0.6667,"none":null,"#,
                r#""undefined":null}"#,
                "\n"
            )
        );
    }
}
