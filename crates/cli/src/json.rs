//! JSON for scripts: one object a line.
//!
//! A line is a struct that its command defines and [`to_line`] writes. `docs/json.schema.json` is
//! generated from the structs (`schema`), so their comments describe the keys to users. Commands
//! whose lines are no structs yet build them member by member ([`line`]).
//!
//! A name in a volume need not be UTF-8. Its member then holds the readable form, with U+FFFD for
//! bytes that are no text. A second member of the same name with `_hex` appended holds the exact
//! bytes in hexadecimal. No character that a terminal would obey is written as it is.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::Timespec;
pub(crate) use extern4_measure::json::{Object, rounded};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Value;

use crate::image_path::Image;
use crate::text::{is_printable, rfc3339};

/// Returns an object as one line.
pub(crate) fn to_line(object: &impl Serialize) -> String {
    let text = serde_json::to_string(object).expect("a struct is an object with text as keys");
    for_terminals(text) + "\n"
}

/// Returns an object as one line, which `fill` fills member by member.
pub(crate) fn line(fill: impl FnOnce(&mut Object<'_>)) -> String {
    let mut text = extern4_measure::json::line(fill);
    text.pop();
    for_terminals(text) + "\n"
}

/// Escapes the characters that may not reach a terminal. They can only stand within strings.
fn for_terminals(json: String) -> String {
    // JSON itself escapes the control characters below the space.
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_printable(c) {
            escaped.push(c);
            continue;
        }
        // A character beyond the first plane takes two units of UTF-16.
        for unit in c.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped
}

/// Bytes in hexadecimal.
#[derive(Debug, Serialize)]
pub(crate) struct Hex(String);

impl Hex {
    /// Returns the exact bytes of a name that is not UTF-8; `None` for another.
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        if std::str::from_utf8(name).is_ok() {
            return None;
        }
        Some(Self(
            name.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }
}

impl JsonSchema for Hex {
    fn schema_name() -> Cow<'static, str> {
        "type-hex".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Bytes in hexadecimal.",
            "pattern": "^([0-9a-f]{2})*$",
        })
    }
}

/// A time as RFC 3339 writes it, or `null` for one that is unknown or that RFC 3339 cannot write.
#[derive(Debug, Serialize)]
pub(crate) struct Rfc3339(Option<String>);

impl From<Option<Timespec>> for Rfc3339 {
    fn from(time: Option<Timespec>) -> Self {
        Self(time.and_then(rfc3339))
    }
}

impl From<Timespec> for Rfc3339 {
    fn from(time: Timespec) -> Self {
        Some(time).into()
    }
}

impl JsonSchema for Rfc3339 {
    fn schema_name() -> Cow<'static, str> {
        "type-rfc3339".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = "A time as RFC 3339 writes it, in UTC and with nanoseconds. Null where there is \
            none, or where its year is not from 0 to 9999.";
        json_schema!({
            "type": ["string", "null"],
            "description": text,
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{9}Z$",
        })
    }
}

/// Moves the description of each variant in the schema of an enum to the key that tells the
/// variant.
pub(crate) fn describe_tags(schema: &mut Schema) {
    let variants = schema.get_mut("oneOf").and_then(Value::as_array_mut);
    for variant in variants.into_iter().flatten() {
        let description = variant
            .as_object_mut()
            .and_then(|variant| variant.remove("description"));
        let properties = variant["properties"].as_object_mut();
        let tag = properties
            .into_iter()
            .flat_map(|properties| properties.values_mut())
            .find(|property| property.get("const").is_some());
        if let (Some(tag), Some(description)) = (tag, description) {
            tag["description"] = description;
        }
    }
}

/// Returns the time that many seconds after 1970.
pub(crate) fn at_seconds(seconds: u64) -> Timespec {
    Timespec {
        sec: i64::try_from(seconds).unwrap_or(i64::MAX),
        nsec: 0,
    }
}

/// The members that name a file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FileName {
    /// The image, as the command line names it.
    image: String,
    /// The path in the volume.
    path: String,
    /// The exact bytes of `path`, where those are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hex")]
    path_hex: Option<Hex>,
}

impl FileName {
    pub(crate) fn of(image: &Image, path: &Path) -> Self {
        let path = path.as_os_str().as_bytes();
        Self {
            image: image.to_string(),
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex: Hex::of_name(path),
        }
    }
}

/// Writes the image and the path of a file.
pub(crate) fn file(object: &mut Object<'_>, image: &Image, path: &Path) {
    object.text("image", &image.to_string());
    object.bytes("path", path.as_os_str().as_bytes());
}

/// Writes a time under `key` with `_rfc3339` appended, or `null` for one that is unknown or that
/// RFC 3339 cannot write.
pub(crate) fn time(object: &mut Object<'_>, key: &str, time: Option<Timespec>) {
    object.text_or_null(&format!("{key}_rfc3339"), time.and_then(rfc3339).as_deref());
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::Value;

    use super::{Hex, line, to_line};
    use crate::text::is_printable;

    #[derive(Serialize)]
    struct Named<'a> {
        all: &'a str,
    }

    #[test]
    fn every_character_is_read_back_and_none_reaches_a_terminal_unescaped() {
        let all: String = ('\0'..=char::MAX).collect();
        for text in [
            line(|object| object.text("all", &all)),
            to_line(&Named { all: &all }),
        ] {
            assert!(text.trim_end().chars().all(is_printable));
            let value: Value = serde_json::from_str(&text).expect("JSON");
            // Not `assert_eq!`: megabytes explain nothing.
            assert!(value["all"] == *all);
        }
    }

    #[test]
    fn names_that_are_not_utf_8_have_their_exact_bytes() {
        let hex = |name: &[u8]| Hex::of_name(name).map(|Hex(digits)| digits);
        assert_eq!(hex(b"x\xff").as_deref(), Some("78ff"));
        assert_eq!(hex("ü".as_bytes()), None);
    }
}
