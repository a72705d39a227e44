//! Volumes of containers' images with many layers.

use std::fs;
use std::path::Path;

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run, e2fsck, temporary};
use extern4_testkit::{plan, tree};

use crate::run::{extern4_in, ok, tool};

const LAYERS: u64 = 20;

/// Numbers that look as if by chance, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Fills the directory of a layer, and does to `result` what the layer says: removals first.
fn make_layer(number: u64, layer: &Path, result: &Path, numbers: &mut Numbers) {
    for directory in 0..6 {
        let name = format!("d{directory}");
        let here = layer.join(&name);
        let there = result.join(&name);
        let mark = |path: &Path| fs::write(path, "").expect("a whiteout");
        match numbers.below(8) {
            // Left as it is.
            0..2 => continue,
            // Gone.
            2 if there.exists() => {
                mark(&layer.join(format!(".wh.{name}")));
                fs::remove_dir_all(&there).expect("a directory");
                continue;
            }
            // Only what this layer has.
            3 => {
                fs::create_dir(&here).expect("a directory");
                mark(&here.join(".wh..wh..opq"));
                let _ = fs::remove_dir_all(&there);
            }
            _ => fs::create_dir(&here).expect("a directory"),
        }
        fs::create_dir_all(there.join("deep")).expect("a directory");
        fs::create_dir(here.join("deep")).expect("a directory");
        for file in 0..12 {
            let name = if file % 2 == 0 {
                format!("f{file}")
            } else {
                format!("deep/f{file}")
            };
            let from = here.join(&name);
            let to = there.join(&name);
            match numbers.below(4) {
                0 if to.exists() => {
                    let file_name = name.rsplit('/').next().expect("a name");
                    mark(&from.with_file_name(format!(".wh.{file_name}")));
                    fs::remove_file(&to).expect("a file");
                }
                1 => {
                    let bytes = plan::pattern(number, 0, numbers.below(20_000) as usize);
                    fs::write(&from, bytes).expect("a file");
                    let _ = fs::remove_file(&to);
                    fs::copy(&from, &to).expect("a file");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn twenty_layers_with_whiteouts_are_built() {
    if !can_run(&[
        Need::Mount,
        Need::Tool("e2fsck"),
        Need::Tool("tar"),
        Need::Tool("sha256sum"),
    ]) {
        return;
    }
    let dir = temporary("extern4-layers-");
    let at = dir.path();
    fs::create_dir(at.join("result")).expect("a directory");
    let mut numbers = Numbers(48);
    let mut whiteouts = 0;
    let mut names = Vec::new();
    let mut digests = Vec::new();
    for number in 0..LAYERS {
        let layer = format!("layer{number}");
        fs::create_dir(at.join(&layer)).expect("a directory");
        make_layer(number, &at.join(&layer), &at.join("result"), &mut numbers);
        whiteouts += String::from_utf8_lossy(&tool(at, "find", [&*layer, "-name", ".wh.*"]))
            .lines()
            .count();
        let archive = format!("{number}.tar");
        tool(at, "tar", ["-cf", &archive, "-C", &layer, "."]);
        let sum = String::from_utf8(tool(at, "sha256sum", [&archive])).expect("UTF-8");
        digests.push(format!("\"sha256:{}\"", &sum[..64]));
        names.push(format!("\"{archive}\""));
    }
    assert!(whiteouts > 30, "{whiteouts}");
    let config = format!(
        "{{\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[{}]}}}}",
        digests.join(",")
    );
    fs::write(at.join("config.json"), config).expect("a file");
    let layers = names.join(",");
    let manifest =
        format!("[{{\"Config\":\"config.json\",\"RepoTags\":[\"many:1\"],\"Layers\":[{layers}]}}]");
    fs::write(at.join("manifest.json"), manifest).expect("a file");
    tool(
        at,
        "sh",
        [
            "-c",
            "tar -cf saved.tar manifest.json config.json [0-9]*.tar",
        ],
    );
    ok(extern4_in(at, ["build", "-q", "out.img", "oci:saved.tar"]));
    e2fsck(&at.join("out.img")).expect("a sound volume");
    let result = at.join("result");
    let image = Image::in_directory(dir, "out.img");
    let mount = image.mount("ro");
    // The times are the times of the last layer, which the copies do not have.
    let found = [&mount.path, &result].map(|top| {
        let mut tree = tree::from_mount(top).as_built();
        tree.entries
            .values_mut()
            .for_each(|entry| entry.mtime = None);
        // The root is in each layer.
        tree.entries.remove(&b"/"[..]);
        tree
    });
    mount.unmount();
    tree::assert_same("twenty layers", &found[0], &found[1]);
}
