//! Images of containers from recipes, with right digests.

use std::io::Write;
use std::os::fd::AsRawFd;

use extern4_tree::{OciSource, Platform, Source};
use sha2::{Digest, Sha256};

use crate::archive::{Recipe, add_file};
use crate::tree::{Entries, SPOOL, survives};

/// Reads an image whose layers and JSON come from a recipe: a layout, or an archive of
/// `docker save`. Returns whether all of it could be read.
pub fn is_read(data: &[u8]) -> bool {
    let mut recipe = Recipe(data);
    let form = recipe.byte();
    let layers: Vec<_> = (0..form % 4).map(|_| recipe.archive()).collect();
    let mut image = Vec::new();
    let make = if form & 16 == 0 { layout } else { docker };
    make(&mut image, &layers, &mut recipe);
    let mut file = tempfile::tempfile_in(SPOOL).expect("a temporary file");
    file.write_all(&image).expect("memory");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reference = (form & 32 != 0).then_some("tag");
    let platform = (form & 64 != 0).then(|| Platform::parse("linux/arm/v7").expect("a platform"));
    let Ok(source) = OciSource::open(path, reference, platform.as_ref(), SPOOL) else {
        return false;
    };
    let mut found = Entries::default();
    let whole = source.scan(&mut found).is_ok();
    survives(&source, &found.0);
    whole
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Changes a few bytes of a text.
fn changed(text: String, recipe: &mut Recipe<'_>) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for _ in 0..recipe.byte() % 4 {
        let at = (usize::from(recipe.byte()) << 8 | usize::from(recipe.byte())) % bytes.len();
        bytes[at] = recipe.byte();
    }
    bytes
}

fn blob(image: &mut Vec<u8>, bytes: &[u8], more: &str) -> String {
    let digest = digest(bytes);
    add_file(image, &format!("blobs/sha256/{digest}"), bytes);
    format!(
        r#"{{"digest":"sha256:{digest}","size":{}{more}}}"#,
        bytes.len()
    )
}

fn layout(image: &mut Vec<u8>, layers: &[Vec<u8>], recipe: &mut Recipe<'_>) {
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| blob(image, layer, r#","mediaType":"application/tar""#))
        .collect();
    let manifest = changed(format!(r#"{{"layers":[{}]}}"#, layers.join(",")), recipe);
    let platform = r#","platform":{"os":"linux","architecture":"arm","variant":"v7"}"#;
    let mut descriptor = blob(image, &manifest, platform);
    if recipe.byte() & 1 == 1 {
        let index = changed(format!(r#"{{"manifests":[{descriptor}]}}"#), recipe);
        let name = r#","annotations":{"org.opencontainers.image.ref.name":"tag"}"#;
        descriptor = blob(image, &index, name);
    }
    let index = changed(format!(r#"{{"manifests":[{descriptor}]}}"#), recipe);
    add_file(image, "index.json", &index);
    image.resize(image.len() + 1024, 0);
}

fn docker(image: &mut Vec<u8>, layers: &[Vec<u8>], recipe: &mut Recipe<'_>) {
    let mut names = Vec::new();
    let mut digests = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        add_file(image, &format!("{number}/layer.tar"), layer);
        names.push(format!(r#""{number}/layer.tar""#));
        digests.push(format!(r#""sha256:{}""#, digest(layer)));
    }
    let config = changed(
        format!(r#"{{"rootfs":{{"diff_ids":[{}]}}}}"#, digests.join(",")),
        recipe,
    );
    add_file(image, "config.json", &config);
    let names = names.join(",");
    let manifest =
        format!(r#"[{{"Config":"config.json","RepoTags":["x:tag"],"Layers":[{names}]}}]"#);
    add_file(image, "manifest.json", &changed(manifest, recipe));
    image.resize(image.len() + 1024, 0);
}

#[cfg(test)]
mod tests {
    use super::is_read;
    use crate::tree::random_inputs;

    #[test]
    fn random_recipes_give_images() {
        let read = random_inputs(5_000, 300)
            .filter(|bytes| is_read(bytes))
            .count();
        assert!(read > 50, "{read}");
    }
}
