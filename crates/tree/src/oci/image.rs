//! Finds the layers of the wanted image: by `index.json` of an OCI layout, or `manifest.json` of
//! `docker save`.
//!
//! `OciSource::open` calls [`layers`] with the user's reference and platform. If they do not choose
//! exactly one image, the error lists what there is. Nested indexes and the number of layers are
//! limited. The result has each layer's path, size and digest; nothing of the layers is read yet.

use serde_json::Value;

use super::digest::Digest;
use super::files::Files;
use super::{Platform, Reason};

/// How deep indexes may be nested.
const DEEPEST: usize = 4;

/// The most layers of an image.
const MAX_LAYERS: usize = 4096;

/// The annotations that name an image in an index.
const NAMES: [&str; 2] = ["org.opencontainers.image.ref.name", "io.containerd.image.name"];

/// A layer of an image.
#[derive(Debug)]
pub(super) struct Layer {
    /// The layer's name for messages.
    pub(super) name: String,
    /// The path of its blob.
    pub(super) path: String,
    /// The blob's size, if it is known.
    pub(super) size: Option<u64>,
    pub(super) digest: LayerDigest,
}

/// A layer's digest, and the bytes that it is of.
#[derive(Debug)]
pub(super) enum LayerDigest {
    /// The blob.
    Blob(Digest),
    /// The tar archive, after decompression.
    Archive(Digest),
}

/// Finds the layers of the image that a reference and a platform choose.
pub(super) fn layers(
    files: &Files,
    reference: Option<&str>,
    platform: Option<&Platform>,
) -> Result<Vec<Layer>, Reason> {
    let layers = if files.has("index.json") {
        let index = files.json("index.json", None)?;
        let manifest = manifest(files, &index, reference, platform, 0)?;
        of_manifest(&manifest)?
    } else if files.has("manifest.json") {
        of_docker(files, reference)?
    } else {
        return Err("it is no image: it has neither 'index.json' nor 'manifest.json'".to_owned().into());
    };
    if layers.len() > MAX_LAYERS {
        return Err(format!("it has {} layers", layers.len()).into());
    }
    Ok(layers)
}

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], Reason> {
    let list = value.get(key).and_then(Value::as_array);
    list.map(Vec::as_slice).ok_or_else(|| format!("its JSON lacks the list '{key}'").into())
}

fn digest(descriptor: &Value) -> Result<Digest, Reason> {
    let digest = text(descriptor, "digest").ok_or_else(|| "a descriptor lacks its digest".to_owned())?;
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
        return Err("its indexes stand in each other too deeply".to_owned().into());
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
    let images = all.iter().filter(|descriptor| !is_attestation(descriptor));
    let named: Vec<&Value> =
        images.filter(|descriptor| reference.is_none_or(|name| is_named(descriptor, name))).collect();
    let fits = |platform: &Platform| {
        let mut fitting = named.iter().filter(|descriptor| is_for(descriptor, platform)).copied();
        (fitting.next(), fitting.next())
    };
    match (named.as_slice(), platform) {
        ([], _) => {
            let names: Vec<_> = all.iter().flat_map(names).collect();
            let names = if names.is_empty() { String::new() } else { format!(", but {}", names.join(", ")) };
            let reference = reference.map_or("no image".to_owned(), |name| format!("no image '{name}'"));
            Err(format!("it has {reference}{names}").into())
        }
        // A descriptor need not say its platform.
        ([one], None) => Ok(one),
        ([one], Some(_)) if one.get("platform").is_none() => Ok(one),
        (several, Some(wanted)) => fits(wanted).0.ok_or_else(|| lacks(several, wanted)),
        (several, None) => match fits(&Platform::of_this_machine()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => Err(ambiguous(several)),
            (None, _) if several.iter().all(|one| one.get("platform").is_some()) => {
                Err(lacks(several, &Platform::of_this_machine()))
            }
            (None, _) => Err(ambiguous(several)),
        },
    }
}

fn names(descriptor: &Value) -> impl Iterator<Item = &str> {
    let annotations = descriptor.get("annotations");
    NAMES.iter().filter_map(move |key| annotations.and_then(|annotations| text(annotations, key)))
}

fn is_named(descriptor: &Value, name: &str) -> bool {
    let digest = name.strip_prefix('@').unwrap_or(name);
    text(descriptor, "digest") == Some(digest)
        || names(descriptor).any(|known| known == name || known.ends_with(&format!("/{name}")))
}

/// Whether a descriptor is of an attestation about an image, which Docker's tools put into the
/// index.
fn is_attestation(descriptor: &Value) -> bool {
    let platform = descriptor.get("platform");
    platform.is_some_and(|platform| text(platform, "os") == Some("unknown"))
}

fn is_for(descriptor: &Value, wanted: &Platform) -> bool {
    descriptor.get("platform").is_some_and(|platform| {
        text(platform, "os") == Some(&wanted.os)
            && text(platform, "architecture") == Some(&wanted.architecture)
            && wanted.variant.as_ref().is_none_or(|variant| text(platform, "variant") == Some(variant))
    })
}

fn lacks(images: &[&Value], wanted: &Platform) -> Reason {
    let has: Vec<_> = images
        .iter()
        .filter_map(|descriptor| {
            let platform = descriptor.get("platform")?;
            let parts = ["os", "architecture", "variant"].iter().filter_map(|key| text(platform, key));
            Some(parts.collect::<Vec<_>>().join("/"))
        })
        .collect();
    let wanted = format!("{}/{}", wanted.os, wanted.architecture);
    format!("it has no image for {wanted}, but for {}", has.join(", ")).into()
}

fn ambiguous(images: &[&Value]) -> Reason {
    let names: Vec<_> =
        images.iter().filter_map(|image| names(image).next().or_else(|| text(image, "digest"))).collect();
    format!("it has several images; name one of {}", names.join(", ")).into()
}

/// Returns the layers of an OCI manifest.
fn of_manifest(manifest: &Value) -> Result<Vec<Layer>, Reason> {
    let layers = list(manifest, "layers")?.iter().map(|descriptor| {
        let digest = digest(descriptor)?;
        let media = text(descriptor, "mediaType").unwrap_or("tar");
        if !media.contains("tar") || media.contains("encrypted") {
            return Err(format!("the type '{media}' of its layer {digest} is not supported").into());
        }
        Ok(Layer {
            name: digest.to_string(),
            path: digest.path(),
            size: descriptor.get("size").and_then(Value::as_u64),
            digest: LayerDigest::Blob(digest),
        })
    });
    layers.collect()
}

/// Returns the layers of an image in an archive of `docker save`.
fn of_docker(files: &Files, reference: Option<&str>) -> Result<Vec<Layer>, Reason> {
    let manifest = files.json("manifest.json", None)?;
    let damaged = |what: &str| Reason::from(format!("its 'manifest.json' lacks {what}"));
    let images = manifest.as_array().ok_or_else(|| damaged("its list"))?;
    let tags = |image: &Value| -> Vec<String> {
        let tags = image.get("RepoTags").and_then(Value::as_array).into_iter().flatten();
        tags.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let is_named = |image: &Value, name: &str| {
        let digest = name.strip_prefix("sha256:");
        let by_tag = tags(image).iter().any(|tag| {
            tag == name || tag.ends_with(&format!("/{name}")) || tag.ends_with(&format!(":{name}"))
        });
        by_tag || digest.is_some_and(|hex| text(image, "Config").is_some_and(|config| config.contains(hex)))
    };
    let named: Vec<&Value> =
        images.iter().filter(|image| reference.is_none_or(|name| is_named(image, name))).collect();
    let image = match named[..] {
        [image] => image,
        [] => return Err(format!("it has no image '{}'", reference.unwrap_or_default()).into()),
        _ => {
            let tags: Vec<_> = named.iter().flat_map(|image| tags(image)).collect();
            return Err(format!("it has several images; name one of {}", tags.join(", ")).into());
        }
    };
    let clean = |name: &str| {
        let cleaned = crate::path::clean(name.as_bytes());
        let path = cleaned.map_err(|reason| format!("its file '{name}': {reason}"))?.path;
        String::from_utf8(path).map_err(|_| format!("its file '{name}' has a damaged name"))
    };
    let config = clean(text(image, "Config").ok_or_else(|| damaged("a configuration"))?)?;
    let config = files.json(&config, None)?;
    let rootfs = config.get("rootfs").ok_or_else(|| "its configuration lacks 'rootfs'".to_owned())?;
    let digests = list(rootfs, "diff_ids")?;
    let layers = list(image, "Layers")?;
    if layers.len() != digests.len() {
        return Err("it has another number of layers than of digests".to_owned().into());
    }
    let layers = layers.iter().zip(digests).map(|(layer, digest)| {
        let name = layer.as_str().ok_or_else(|| damaged("names of layers"))?;
        let digest = Digest::parse(digest.as_str().unwrap_or_default())?;
        let path = clean(name)?;
        Ok(Layer { name: name.to_owned(), path, size: None, digest: LayerDigest::Archive(digest) })
    });
    layers.collect()
}
