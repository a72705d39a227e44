//! The schema of `--json`, generated from the structs of the lines.
//!
//! `docs/json.schema.json` is checked in for users. If a struct changes, the test fails and says
//! where the new schema is. Commands whose lines are no structs yet stand in the file alone.

use std::fs;
use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::cmd;
use crate::json::{Hex, Rfc3339};

/// Generates the schemas of structs.
struct Generator(SchemaGenerator);

impl Generator {
    /// Returns the schema of a struct, in the form of the file.
    fn of<T: JsonSchema>(&mut self) -> Value {
        let schema = self.0.root_schema_for::<T>();
        plain(schema.to_value())
    }
}

/// Removes what says nothing to a reader of JSON: the names and the sizes of Rust's types. Sorts
/// the required keys.
fn plain(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        // A key of an output may have such a name, too; its value is an object.
        object.retain(|key, value| match key.as_str() {
            "$schema" | "title" | "format" => !value.is_string(),
            "$defs" => false,
            _ => true,
        });
        if let Some(Value::Array(required)) = object.get_mut("required") {
            required.sort_by_key(ToString::to_string);
        }
        for value in object.values_mut() {
            *value = plain(value.take());
        }
    } else if let Some(array) = value.as_array_mut() {
        for value in array {
            *value = plain(value.take());
        }
    }
    value
}

/// Returns the definitions that structs make.
fn definitions() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = Generator(settings.into_generator());
    let definitions = [
        ("type-hex", generator.of::<Hex>()),
        ("type-rfc3339", generator.of::<Rfc3339>()),
        (
            "check",
            json!({
                "description": "A fault, and last of a volume its summary.",
                "oneOf": [
                    generator.of::<cmd::check::FaultLine>(),
                    generator.of::<cmd::check::SummaryLine>(),
                ],
            }),
        ),
        ("df", generator.of::<cmd::df::Line>()),
        ("lsattr", generator.of::<cmd::lsattr::Line>()),
        (
            "stat",
            json!({
                "description": "A file, or with --file-system the volume that it is in.",
                "oneOf": [
                    {"$ref": "#/$defs/type-file", "unevaluatedProperties": false},
                    generator.of::<cmd::stat::FileSystemLine>(),
                ],
            }),
        ),
        (
            "quota",
            json!({
                "description": "The grace times of each kind of quota, and then its owners.",
                "oneOf": [
                    generator.of::<cmd::quota::report::KindLine>(),
                    generator.of::<cmd::quota::report::OwnerLine>(),
                ],
            }),
        ),
        (
            "quota-check",
            json!({
                "description": "A fault of the quotas, and last the summary.",
                "oneOf": [
                    {"$ref": "#/$defs/check/oneOf/0"},
                    generator.of::<cmd::quota::check::SummaryLine>(),
                ],
            }),
        ),
        ("recover", generator.of::<cmd::recover::Line>()),
        ("inode", generator.of::<cmd::inode::Line>()),
        ("block", generator.of::<cmd::block::Line>()),
    ];
    definitions
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

#[test]
fn the_schema_in_the_documents_is_that_of_the_structs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read(root.join("docs/json.schema.json")).expect("the schema");
    let mut schema: Value = serde_json::from_slice(&text).expect("JSON");
    let mut differing = Vec::new();
    for (name, generated) in definitions() {
        let written = &mut schema["$defs"][&name];
        if plain(written.clone()) != generated {
            *written = generated;
            differing.push(name);
        }
    }
    if !differing.is_empty() {
        let new = root.join("target/json.schema.json");
        let text = serde_json::to_string_pretty(&schema).expect("JSON");
        fs::write(&new, text + "\n").expect("the new schema");
        panic!(
            "{differing:?} differ from their structs: take over {}",
            new.display()
        );
    }
}
