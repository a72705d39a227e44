//! [`ImageConfig`]: the configuration of an image, which says how its container runs.
//!
//! `image` reads it from JSON whose digest it has verified. A volume has no place for it, so the
//! caller passes it on. A value of another type than the specification says is an error.
//!
//! Source: the OCI Image Format Specification 1.1, "Image Configuration", "Properties".

use serde_json::{Map, Value};

use super::{Platform, Reason};

/// How the container of an image runs. Members that the image does not have are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageConfig {
    /// The platform of the programs in it.
    pub platform: Option<Platform>,
    /// The user, and perhaps the group, by names or numbers of the image: `USER[:GROUP]`.
    pub user: Option<String>,
    /// The environment: `NAME=VALUE`.
    pub env: Vec<String>,
    /// The program with its first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments of the entrypoint, or the program itself without one.
    pub cmd: Vec<String>,
    /// The directory in which the program starts.
    pub working_dir: Option<String>,
    /// The ports on which it listens: `PORT[/PROTOCOL]`.
    pub exposed_ports: Vec<String>,
    /// The directories that are to be volumes of the container.
    pub volumes: Vec<String>,
    /// The labels, by their names.
    pub labels: Vec<(String, String)>,
    /// The signal that stops the container.
    pub stop_signal: Option<String>,
}

impl ImageConfig {
    /// Returns the platform.
    pub(super) fn platform(&self) -> Option<&Platform> {
        self.platform.as_ref()
    }

    /// Reads a configuration.
    pub(super) fn read(json: &Value) -> Result<Self, Reason> {
        let empty = Value::Null;
        let config = json.get("config").unwrap_or(&empty);
        let text = |key| text(config, key);
        Ok(Self {
            platform: Platform::read(json),
            user: text("User")?,
            env: texts(config, "Env")?,
            entrypoint: texts(config, "Entrypoint")?,
            cmd: texts(config, "Cmd")?,
            working_dir: text("WorkingDir")?,
            exposed_ports: keys(config, "ExposedPorts")?,
            volumes: keys(config, "Volumes")?,
            labels: labels(config)?,
            stop_signal: text("StopSignal")?,
        })
    }
}

fn wrong(key: &str) -> Reason {
    format!("'{key}' in its configuration is not of its type").into()
}

/// Returns a member, if it is there and not null.
fn member<'v>(config: &'v Value, key: &str) -> Option<&'v Value> {
    config.get(key).filter(|value| !value.is_null())
}

/// Returns a text; an empty one stands for none.
fn text(config: &Value, key: &str) -> Result<Option<String>, Reason> {
    let Some(value) = member(config, key) else {
        return Ok(None);
    };
    let text = value.as_str().ok_or_else(|| wrong(key))?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn texts(config: &Value, key: &str) -> Result<Vec<String>, Reason> {
    let Some(value) = member(config, key) else {
        return Ok(Vec::new());
    };
    let texts = value.as_array().ok_or_else(|| wrong(key))?.iter();
    texts
        .map(|text| text.as_str().map(str::to_owned).ok_or_else(|| wrong(key)))
        .collect()
}

fn object<'v>(config: &'v Value, key: &str) -> Result<Option<&'v Map<String, Value>>, Reason> {
    let Some(value) = member(config, key) else {
        return Ok(None);
    };
    value.as_object().map(Some).ok_or_else(|| wrong(key))
}

fn keys(config: &Value, key: &str) -> Result<Vec<String>, Reason> {
    Ok(object(config, key)?
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone())
        .collect())
}

fn labels(config: &Value) -> Result<Vec<(String, String)>, Reason> {
    const LABELS: &str = "Labels";
    let labels = object(config, LABELS)?.into_iter().flatten();
    let label = |(name, value): (&String, &Value)| {
        Ok((
            name.clone(),
            value.as_str().ok_or_else(|| wrong(LABELS))?.to_owned(),
        ))
    };
    labels.map(label).collect()
}
