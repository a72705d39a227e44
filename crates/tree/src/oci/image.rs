//! Finds the wanted image: by `index.json` of an OCI layout, or `manifest.json` of `docker save`.
//!
//! `OciSource` calls [`find`] with the user's reference and platform. If they do not choose exactly
//! one image, the error lists what there is. Nested indexes and the number of layers are limited.
//! The digests of the manifest and of the configuration are verified. The result has each layer's
//! path, size and digests; nothing of the layers is read yet.

use serde_json::Value;

use super::config::ImageConfig;
use super::digest::Digest;
use super::files::Files;
use super::reference::{self, Match};
use super::{Platform, Reason};

/// How deep indexes may be nested.
const DEEPEST: usize = 4;

/// The most layers of an image.
const MAX_LAYERS: usize = 4096;

/// The annotations that name an image in an index, the longer name first.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// The digits of a digest in the name of a configuration that `docker save` writes.
const CONFIG_DIGITS: usize = 64;

/// An image.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) layers: Vec<Layer>,
    /// Its configuration, if it has one.
    pub(super) config: Option<ImageConfig>,
}

/// A layer of an image.
#[derive(Debug)]
pub(super) struct Layer {
    /// The layer's name for messages.
    pub(super) name: String,
    /// The path of its blob.
    pub(super) path: String,
    /// The blob's size, if it is known.
    pub(super) size: Option<u64>,
    /// The digest of the blob, if it is known.
    pub(super) blob: Option<Digest>,
    /// The digest of the tar archive, after decompression, if it is known.
    pub(super) archive: Option<Digest>,
}

/// Finds the image that a reference and a platform choose.
pub(super) fn find(
    files: &Files,
    reference: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Image, Reason> {
    let image = if files.has("index.json") {
        let index = files.json("index.json", None)?;
        let manifest = manifest(files, &index, reference, platform, 0)?;
        of_manifest(files, &manifest)?
    } else if files.has("manifest.json") {
        of_docker(files, reference)?
    } else {
        return Err(
            "it is no image: it has neither 'index.json' nor 'manifest.json'"
                .to_owned()
                .into(),
        );
    };
    if image.layers.len() > MAX_LAYERS {
        return Err(format!("it has {} layers", image.layers.len()).into());
    }
    if let (Some(wanted), Some(has)) = (
        platform,
        image.config.as_ref().and_then(ImageConfig::platform),
    ) && !has.suits(wanted)
    {
        return Err(format!("it has no image for {wanted}, but for {has}").into());
    }
    Ok(image)
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], Reason> {
    let list = value.get(key).and_then(Value::as_array);
    list.map(Vec::as_slice)
        .ok_or_else(|| format!("its JSON lacks the list '{key}'").into())
}

fn digest(descriptor: &Value) -> Result<Digest, Reason> {
    let digest =
        text(descriptor, "digest").ok_or_else(|| "a descriptor lacks its digest".to_owned())?;
    Ok(Digest::parse(digest)?)
}

/// Follows indexes to a manifest.
fn manifest(
    files: &Files,
    index: &Value,
    reference: Option<&str>,
    platform: Option<&Platform>,
    depth: usize,
) -> Result<Value, Reason> {
    if depth > DEEPEST {
        return Err("its indexes stand in each other too deeply"
            .to_owned()
            .into());
    }
    let descriptor = choose(list(index, "manifests")?, reference, platform)?;
    let digest = digest(descriptor)?;
    let found = files.json(&digest.path(), Some(&digest))?;
    if found.get("manifests").is_some() {
        // The reference chose the index, so it is not needed for the images in it.
        return manifest(files, &found, None, platform, depth + 1);
    }
    Ok(found)
}

/// Chooses from the descriptors of an index.
fn choose<'v>(
    all: &'v [Value],
    reference: Option<&str>,
    platform: Option<&Platform>,
) -> Result<&'v Value, Reason> {
    let images = || all.iter().filter(|descriptor| !is_attestation(descriptor));
    let mut named: Vec<&Value> = match reference {
        None => images().collect(),
        Some(reference) => best(images(), |descriptor| named_by(descriptor, reference)),
    };
    // An image with several names has a descriptor for each.
    let mut digests = std::collections::BTreeSet::new();
    named.retain(|descriptor| {
        text(descriptor, "digest").is_none_or(|digest| digests.insert(digest))
    });
    if named.is_empty() {
        let names: Vec<_> = all.iter().flat_map(names).collect();
        return Err(lacks_name(reference, &names));
    }
    // A descriptor need not say its platform.
    if let ([one], None) = (&named[..], platform_of(named[0])) {
        return Ok(one);
    }
    let own = Platform::of_this_machine();
    let wanted = platform.unwrap_or(&own);
    let suits = |descriptor: &&&Value| platform_of(descriptor).is_some_and(|has| has.suits(wanted));
    let fitting: Vec<&Value> = named.iter().filter(suits).copied().collect();
    match fitting[..] {
        [] if named.iter().all(|one| platform_of(one).is_some()) => {
            Err(lacks_platform(&named, wanted))
        }
        [] => Err(ambiguous(&named)),
        [one] => Ok(one),
        // The variants of an architecture have no names. The first one is the index's choice.
        [first, ..]
            if platform.is_some() && fitting.iter().all(|one| names(one).next().is_none()) =>
        {
            Ok(first)
        }
        _ => Err(ambiguous(&fitting)),
    }
}

/// Returns the images that have the wanted name; if there are none, the images whose name ends so.
fn best<'v>(
    images: impl Iterator<Item = &'v Value>,
    named: impl Fn(&Value) -> Match,
) -> Vec<&'v Value> {
    let matches: Vec<(&Value, Match)> = images.map(|image| (image, named(image))).collect();
    let best = matches
        .iter()
        .map(|(_, found)| *found)
        .max()
        .filter(|found| *found != Match::No);
    matches
        .iter()
        .filter(|(_, found)| Some(*found) == best)
        .map(|(image, _)| *image)
        .collect()
}

fn names(descriptor: &Value) -> impl Iterator<Item = &str> {
    let annotations = descriptor.get("annotations");
    NAMES
        .iter()
        .filter_map(move |key| annotations.and_then(|annotations| text(annotations, key)))
}

fn named_by(descriptor: &Value, reference: &str) -> Match {
    reference::matches(names(descriptor), text(descriptor, "digest"), reference)
}

/// Whether a descriptor is of an attestation about an image, which Docker's tools put into the
/// index.
fn is_attestation(descriptor: &Value) -> bool {
    let platform = descriptor.get("platform");
    platform.is_some_and(|platform| text(platform, "os") == Some("unknown"))
}

fn platform_of(descriptor: &Value) -> Option<Platform> {
    Platform::read(descriptor.get("platform")?)
}

fn lacks_name(reference: Option<&str>, names: &[&str]) -> Reason {
    let names = if names.is_empty() {
        String::new()
    } else {
        format!(", but {}", names.join(", "))
    };
    let reference = reference.map_or("no image".to_owned(), |name| format!("no image '{name}'"));
    format!("it has {reference}{names}").into()
}

fn lacks_platform(images: &[&Value], wanted: &Platform) -> Reason {
    let has: Vec<_> = images
        .iter()
        .filter_map(|image| Some(platform_of(image)?.to_string()))
        .collect();
    let has = if has.is_empty() {
        String::new()
    } else {
        format!(", but for {}", has.join(", "))
    };
    format!("it has no image for {wanted}{has}").into()
}

fn ambiguous(images: &[&Value]) -> Reason {
    let names: Vec<_> = images
        .iter()
        .filter_map(|image| names(image).next().or_else(|| text(image, "digest")))
        .collect();
    format!("it has several images; name one of {}", names.join(", ")).into()
}

/// Returns the image of an OCI manifest.
fn of_manifest(files: &Files, manifest: &Value) -> Result<Image, Reason> {
    let layers = list(manifest, "layers")?.iter().map(|descriptor| {
        let digest = digest(descriptor)?;
        let media = text(descriptor, "mediaType").unwrap_or("tar");
        if !media.contains("tar") || media.contains("encrypted") {
            return Err(
                format!("the type '{media}' of its layer {digest} is not supported").into(),
            );
        }
        let name = digest.to_string();
        let path = digest.path();
        let size = descriptor.get("size").and_then(Value::as_u64);
        Ok(Layer {
            name,
            path,
            size,
            blob: Some(digest),
            archive: None,
        })
    });
    let mut layers = layers.collect::<Result<Vec<_>, Reason>>()?;
    let Some(config) = manifest.get("config") else {
        return Ok(Image {
            layers,
            config: None,
        });
    };
    // Other manifests, of artifacts, have configurations of other types.
    if text(config, "mediaType").is_some_and(|media| !is_config(media)) {
        return Ok(Image {
            layers,
            config: None,
        });
    }
    let digest = digest(config)?;
    let config = files.json(&digest.path(), Some(&digest))?;
    let digests = diff_ids(&config, layers.len())?;
    for (layer, digest) in layers.iter_mut().zip(digests) {
        layer.archive = Some(digest);
    }
    Ok(Image {
        layers,
        config: Some(ImageConfig::read(&config)?),
    })
}

/// Whether a media type is that of an image's configuration.
fn is_config(media: &str) -> bool {
    media.ends_with(".image.config.v1+json") || media.ends_with(".container.image.v1+json")
}

/// Returns the digests of the layers' archives, which a configuration has.
fn diff_ids(config: &Value, layers: usize) -> Result<Vec<Digest>, Reason> {
    let rootfs = config
        .get("rootfs")
        .ok_or_else(|| "its configuration lacks 'rootfs'".to_owned())?;
    let digests = list(rootfs, "diff_ids")?;
    if layers != digests.len() {
        return Err("it has another number of layers than of digests"
            .to_owned()
            .into());
    }
    digests
        .iter()
        .map(|digest| Ok(Digest::parse(digest.as_str().unwrap_or_default())?))
        .collect()
}

/// Returns the image in an archive of `docker save`.
fn of_docker(files: &Files, reference: Option<&str>) -> Result<Image, Reason> {
    let manifest = files.json("manifest.json", None)?;
    let damaged = |what: &str| Reason::from(format!("its 'manifest.json' lacks {what}"));
    let images = manifest.as_array().ok_or_else(|| damaged("its list"))?;
    let named: Vec<&Value> = match reference {
        None => images.iter().collect(),
        Some(reference) => best(images.iter(), |image| {
            let digest = text(image, "Config")
                .and_then(config_digits)
                .map(|hex| format!("sha256:{hex}"));
            reference::matches(tags(image), digest.as_deref(), reference)
        }),
    };
    let image = match named[..] {
        [image] => image,
        [] => {
            return Err(lacks_name(
                reference,
                &images.iter().flat_map(tags).collect::<Vec<_>>(),
            ));
        }
        _ => {
            let tags: Vec<_> = named.iter().flat_map(|image| tags(image)).collect();
            return Err(format!("it has several images; name one of {}", tags.join(", ")).into());
        }
    };
    let clean = |name: &str| {
        let cleaned = crate::path::clean(name.as_bytes());
        let path = cleaned
            .map_err(|reason| format!("its file '{name}': {reason}"))?
            .path;
        String::from_utf8(path).map_err(|_| format!("its file '{name}' has a damaged name"))
    };
    let name = text(image, "Config").ok_or_else(|| damaged("a configuration"))?;
    let digest = config_digits(name)
        .map(|hex| Digest::parse(&format!("sha256:{hex}")))
        .transpose()?;
    let config = files.json(&clean(name)?, digest.as_ref())?;
    let layers = list(image, "Layers")?;
    let layers = layers
        .iter()
        .zip(diff_ids(&config, layers.len())?)
        .map(|(layer, digest)| {
            let name = layer.as_str().ok_or_else(|| damaged("names of layers"))?;
            Ok(Layer {
                name: name.to_owned(),
                path: clean(name)?,
                size: None,
                blob: None,
                archive: Some(digest),
            })
        });
    let layers = layers.collect::<Result<Vec<_>, Reason>>()?;
    Ok(Image {
        layers,
        config: Some(ImageConfig::read(&config)?),
    })
}

/// Returns the names of an image in an archive of `docker save`.
fn tags(image: &Value) -> impl Iterator<Item = &str> {
    let tags = image
        .get("RepoTags")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    tags.filter_map(Value::as_str)
}

/// Returns the digits of the digest that the name of a configuration has, as `docker save` names
/// it: `HEX.json`, or `blobs/sha256/HEX`.
fn config_digits(name: &str) -> Option<&str> {
    let digits = name.rsplit('/').next()?;
    let digits = digits.strip_suffix(".json").unwrap_or(digits);
    let is_hex = digits
        .bytes()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (digits.len() == CONFIG_DIGITS && is_hex).then_some(digits)
}
