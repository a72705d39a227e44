//! Tests of container images: layouts and archives, references and platforms, whiteouts, digests.
//!
//! Most images are made here byte by byte, and damaged ones must be errors. Where `umoci` is
//! installed, it must unpack the same tree.

use std::fs;
use std::path::{Path, PathBuf};

use extern4_testkit::tools::{Need, can_run};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{OciSource, Platform, split_reference};
use crate::testing::{Collected, Plain, Raw, archive, is_root, plain, read, run};
use crate::{DirectorySource, Kind, LayerCompression, LayerWriter, Source};

/// A layout that is being made.
struct Layout(tempfile::TempDir);

impl Layout {
    fn new() -> Self {
        let layout = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(layout.path("blobs/sha256")).unwrap();
        fs::write(
            layout.path("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        )
        .unwrap();
        layout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Adds a blob and returns its descriptor.
    fn blob(&self, media: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        fs::write(self.path("blobs/sha256").join(&digest[7..]), bytes).unwrap();
        json!({ "mediaType": media, "digest": digest, "size": bytes.len() })
    }

    fn json(&self, value: &Value) -> Value {
        self.blob(
            "application/vnd.oci.image.manifest.v1+json",
            value.to_string().as_bytes(),
        )
    }

    /// Adds a manifest of plain layers and returns its descriptor.
    fn image(&self, layers: &[Vec<u8>]) -> Value {
        let layers: Vec<_> = layers
            .iter()
            .map(|layer| self.blob("application/vnd.oci.image.layer.v1.tar", layer))
            .collect();
        self.json(&json!({ "schemaVersion": 2, "layers": layers }))
    }

    fn index(&self, manifests: &[Value]) {
        fs::write(
            self.path("index.json"),
            json!({ "manifests": manifests }).to_string(),
        )
        .unwrap();
    }

    fn open(&self, reference: Option<&str>, platform: Option<&str>) -> crate::Result<OciSource> {
        let platform = platform.map(|text| Platform::parse(text).unwrap());
        OciSource::open(
            self.0.path(),
            reference,
            platform.as_ref(),
            std::env::temp_dir(),
        )
    }

    #[track_caller]
    fn error(&self, reference: Option<&str>, platform: Option<&str>) -> String {
        let tried = self
            .open(reference, platform)
            .and_then(|image| image.scan(&mut Collected::default()));
        tried.unwrap_err().to_string()
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

fn file(name: &str) -> Raw {
    Raw::new(b'0', name, name.as_bytes())
}

/// Three layers with whiteouts of both kinds, in orders that a writer may choose.
fn layers() -> Vec<Vec<u8>> {
    vec![
        archive(&[
            Raw::new(b'5', "./", b""),
            Raw::new(b'5', "dir/", b""),
            file("dir/gone"),
            file("dir/kept"),
            Raw::new(b'5', "opaque/", b""),
            file("opaque/old"),
            file("opaque/both"),
            Raw::new(b'5', "tree/", b""),
            file("tree/leaf"),
            file("replaced"),
        ]),
        archive(&[
            Raw::new(b'1', "link", b"").link("dir/kept"),
            // The opaque marker follows names of the same layer.
            Raw::new(b'0', "opaque/new", b"new"),
            Raw::new(b'0', "opaque/both", b"later"),
            file("opaque/.wh..wh..opq"),
            file("dir/.wh.gone"),
            file(".wh.tree"),
            Raw::new(b'0', "replaced", b"new"),
            file(".wh.replaced"),
            file(".wh..wh.plnk"),
        ]),
        archive(&[
            Raw::new(b'5', "dir/", b"").field(100, b"0000700"),
            file("tree"),
        ]),
    ]
}

#[track_caller]
fn check(image: &OciSource) {
    let found = plain(image);
    let paths: Vec<_> = found.keys().map(String::as_str).collect();
    let expected = [
        ".",
        "dir",
        "dir/kept",
        "link",
        "opaque",
        "opaque/both",
        "opaque/new",
        "replaced",
        "tree",
    ];
    assert_eq!(paths, expected);
    let bytes = |path: &str| found[path].bytes.clone().unwrap();
    assert_eq!(bytes("link"), b"dir/kept");
    assert_eq!(found["link"].kind, Kind::HardLink(b"dir/kept".to_vec()));
    assert_eq!(bytes("opaque/both"), b"later");
    assert_eq!(bytes("replaced"), b"new");
    assert_eq!(bytes("tree"), b"tree");
    assert_eq!(found["dir"].mode, 0o700);
}

#[test]
fn layers_overlay_each_other() {
    let layout = Layout::new();
    layout.index(&[layout.image(&layers())]);
    check(&layout.open(None, None).unwrap());
    // The same as an archive, which may be compressed.
    run(
        layout.0.path(),
        "tar",
        &["-cf", "layout.tar", "oci-layout", "index.json", "blobs"],
    );
    let spool = std::env::temp_dir();
    check(&OciSource::open(layout.path("layout.tar"), None, None, &spool).unwrap());
    run(layout.0.path(), "gzip", &["layout.tar"]);
    check(&OciSource::open(layout.path("layout.tar.gz"), None, None, &spool).unwrap());
}

#[test]
fn compressed_layers_are_read() {
    let layout = Layout::new();
    let mut descriptors = Vec::new();
    for (layer, tool) in layers().iter().zip(["gzip", "zstd", "cat"]) {
        fs::write(layout.path("layer"), layer).unwrap();
        run(
            layout.0.path(),
            "sh",
            &["-c", &format!("{tool} < layer > packed")],
        );
        let packed = fs::read(layout.path("packed")).unwrap();
        let media = format!("application/vnd.oci.image.layer.v1.tar+{tool}");
        descriptors.push(layout.blob(&media, &packed));
    }
    layout.index(&[layout.json(&json!({ "layers": descriptors }))]);
    check(&layout.open(None, None).unwrap());
}

/// Makes an archive as `docker save` does: each layer a file, or a link to an equal one.
fn docker(layers: &[Vec<u8>], tag: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let digests: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
    let config = json!({ "rootfs": { "type": "layers", "diff_ids": digests } }).to_string();
    let name = format!("{}.json", &digest(config.as_bytes())[7..]);
    fs::write(dir.path().join(&name), config).unwrap();
    let mut names = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        fs::create_dir(dir.path().join(format!("l{number}"))).unwrap();
        fs::write(dir.path().join(format!("real{number}")), layer).unwrap();
        names.push(format!("l{number}/layer.tar"));
        let target = format!("../real{number}");
        std::os::unix::fs::symlink(target, dir.path().join(&names[number])).unwrap();
    }
    let manifest = json!([{ "Config": name, "RepoTags": [tag], "Layers": names }]);
    fs::write(dir.path().join("manifest.json"), manifest.to_string()).unwrap();
    run(
        dir.path(),
        "sh",
        &["-c", "tar -cf saved.tar manifest.json *.json l* real*"],
    );
    dir
}

#[test]
fn archives_of_docker_save_are_read() {
    let dir = docker(&layers(), "registry.example/alpine:latest");
    let open =
        |reference| OciSource::open(dir.path().join("saved.tar"), reference, None, dir.path());
    for reference in [
        None,
        Some("registry.example/alpine:latest"),
        Some("alpine:latest"),
        Some("latest"),
    ] {
        check(&open(reference).unwrap());
    }
    let error = open(Some("other")).err().unwrap().to_string();
    assert!(
        error.contains("saved.tar") && error.contains("'other', but registry.example/"),
        "{error}"
    );
    // The configuration has its digest as its name.
    let config = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let config = config.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let config = config
        .into_iter()
        .find(|path| !path.ends_with("manifest.json"))
        .unwrap();
    let whole = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{whole} ")).unwrap();
    run(
        dir.path(),
        "tar",
        &[
            "-rf",
            "saved.tar",
            config.file_name().unwrap().to_str().unwrap(),
        ],
    );
    let error = open(None).err().unwrap().to_string();
    assert!(error.contains("digest"), "{error}");
    fs::write(&config, whole).unwrap();
    run(
        dir.path(),
        "tar",
        &[
            "-rf",
            "saved.tar",
            config.file_name().unwrap().to_str().unwrap(),
        ],
    );
    // A layer whose digest differs from that in the configuration.
    let mut wrong = layers();
    wrong[2][600] ^= 1;
    fs::write(dir.path().join("real2"), &wrong[2]).unwrap();
    run(dir.path(), "tar", &["-rf", "saved.tar", "real2"]);
    let error = open(None)
        .unwrap()
        .scan(&mut Collected::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("l2/layer.tar") && error.contains("digest"),
        "{error}"
    );
}

#[test]
fn images_are_chosen_by_name_and_platform() {
    let layout = Layout::new();
    let image = |name: &str| layout.image(&[archive(&[file(name)])]);
    let named = |mut image: Value, name: &str| {
        image["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        image
    };
    let built = |mut image: Value, os: &str, architecture: &str, variant: Option<&str>| {
        image["platform"] = json!({ "os": os, "architecture": architecture, "variant": variant });
        image
    };
    let nested = layout.json(&json!({ "manifests": [
        built(image("mips"), "linux", "mips", None),
        built(image("armv6"), "linux", "arm", Some("v6")),
        built(image("armv7"), "linux", "arm", Some("v7")),
        built(image("proof"), "unknown", "unknown", None),
    ]}));
    let digest = image("one")["digest"].as_str().unwrap().to_owned();
    layout.index(&[named(image("one"), "v1"), named(nested, "v2")]);
    let chosen = |reference: Option<&str>, platform: Option<&str>| {
        let found = Collected::of(&layout.open(reference, platform).unwrap());
        found.paths().concat()
    };
    assert_eq!(chosen(Some("v1"), None), "one");
    assert_eq!(chosen(Some("v1"), Some("linux/arm")), "one");
    assert_eq!(chosen(Some(&digest), None), "one");
    assert_eq!(chosen(Some(&format!("@{digest}")), None), "one");
    assert_eq!(chosen(Some("v2"), Some("linux/mips")), "mips");
    assert_eq!(chosen(Some("v2"), Some("linux/arm/v7")), "armv7");
    assert_eq!(chosen(Some("v2"), Some("linux/arm")), "armv6");
    let error = layout.error(None, None);
    assert!(error.contains("v1, v2"), "{error}");
    let error = layout.error(Some("v3"), None);
    assert!(
        error.contains("'v3'") && error.contains("v1, v2"),
        "{error}"
    );
    let error = layout.error(Some("v2"), Some("plan9/mips"));
    assert!(
        error.contains("plan9/mips") && error.contains("linux/arm/v7"),
        "{error}"
    );
    // An image for another platform is taken only where that is asked for.
    let error = layout.error(Some("v2"), None);
    assert!(
        error.contains("linux/mips, linux/arm/v6, linux/arm/v7"),
        "{error}"
    );
    layout.index(&[built(image("mips"), "linux", "mips", None)]);
    let error = layout.error(None, None);
    assert!(error.contains("but for linux/mips"), "{error}");
    assert_eq!(chosen(None, Some("linux/mips")), "mips");
    layout.index(&[built(image("arm64"), "linux", "arm64", None)]);
    assert_eq!(chosen(None, Some("linux/arm64/v8")), "arm64");
    // Of two images, none is taken because it is the first.
    let arm = |name: &str| named(built(image(name), "linux", "arm", None), name);
    layout.index(&[arm("a"), arm("b")]);
    let error = layout.error(None, Some("linux/arm"));
    assert!(error.contains("a, b"), "{error}");
    // This machine's platform is chosen where none is named.
    let own = Platform::of_this_machine();
    layout.index(&[
        built(image("other"), "linux", "mips", None),
        built(image("own"), &own.os, &own.architecture, None),
    ]);
    assert_eq!(chosen(None, None), "own");
}

/// Makes a layout with images of these names, each of a file of that name.
fn named_images(names: &[&str]) -> Layout {
    let layout = Layout::new();
    let image = |name: &&str| {
        let mut image = layout.image(&[archive(&[file(&name.replace('/', "_"))])]);
        let tag = name.rsplit(':').next();
        image["annotations"] =
            json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag });
        image
    };
    layout.index(&names.iter().map(image).collect::<Vec<_>>());
    layout
}

#[test]
fn images_are_chosen_by_whole_names() {
    let names = [
        "docker.io/library/one:latest",
        "docker.io/library/two:latest",
        "quay.io/two:latest",
    ];
    let layout = named_images(&names);
    let chosen = |reference: &str| {
        Collected::of(&layout.open(Some(reference), None).unwrap())
            .paths()
            .concat()
    };
    for name in names {
        assert_eq!(chosen(name), name.replace('/', "_"));
    }
    // The name itself goes before names that end so.
    assert_eq!(chosen("two:latest"), names[1].replace('/', "_"));
    assert_eq!(chosen("two"), names[1].replace('/', "_"));
    let error = layout.error(Some("latest"), None);
    assert!(names.iter().all(|name| error.contains(name)), "{error}");
    // One image with two names is one image.
    let twice = named_images(&names[..1]);
    let index: Value =
        serde_json::from_slice(&fs::read(twice.path("index.json")).unwrap()).unwrap();
    let one = index["manifests"][0].clone();
    let mut other = index["manifests"][0].clone();
    other["annotations"] = json!({ "org.opencontainers.image.ref.name": "other" });
    twice.index(&[one, other]);
    twice.open(None, None).unwrap();
}

/// Adds an image of one gzip layer whose configuration is this one, and returns its descriptor.
fn configured(layout: &Layout, config: &Value) -> Value {
    fs::write(layout.path("layer"), archive(&[file("f")])).unwrap();
    run(layout.0.path(), "gzip", &["-fn", "layer"]);
    let layer = layout.blob(
        "application/vnd.oci.image.layer.v1.tar+gzip",
        &fs::read(layout.path("layer.gz")).unwrap(),
    );
    let config = layout.blob(
        "application/vnd.oci.image.config.v1+json",
        config.to_string().as_bytes(),
    );
    layout.json(&json!({ "schemaVersion": 2, "config": config, "layers": [layer] }))
}

#[test]
fn configurations_are_verified_and_read() {
    let layout = Layout::new();
    let diff_id = digest(&archive(&[file("f")]));
    let rootfs = |digest: &str| json!({ "type": "layers", "diff_ids": [digest] });
    let config = json!({
        "os": "linux", "architecture": "arm", "variant": "v7", "rootfs": rootfs(&diff_id),
        "config": {
            "User": "web:www", "Env": ["A=1", "B="], "Entrypoint": ["/init"], "Cmd": null, "WorkingDir": "",
            "ExposedPorts": { "80/tcp": {} }, "Volumes": { "/data": {} }, "Labels": { "a": "b" },
            "StopSignal": "SIGINT",
        },
    });
    layout.index(&[configured(&layout, &config)]);
    let source = layout.open(None, None).unwrap();
    let read = source.config().unwrap();
    assert_eq!(read.platform, Platform::parse("linux/arm/v7"));
    assert_eq!(
        (read.user.as_deref(), read.working_dir.as_deref()),
        (Some("web:www"), None)
    );
    assert_eq!(
        (&*read.env, &*read.entrypoint, read.cmd.len()),
        (
            &["A=1", "B="].map(String::from)[..],
            &["/init".into()][..],
            0
        )
    );
    assert_eq!(
        (&*read.exposed_ports, &*read.volumes),
        (&["80/tcp".into()][..], &["/data".into()][..])
    );
    assert_eq!(
        (&*read.labels, read.stop_signal.as_deref()),
        (&[("a".into(), "b".into())][..], Some("SIGINT"))
    );
    assert_eq!(Collected::of(&source).paths(), ["f"]);
    let error = layout.error(None, Some("linux/arm64"));
    assert!(
        error.contains("linux/arm64") && error.contains("linux/arm/v7"),
        "{error}"
    );
    // Digests that are not the layers' digests, and values of other types.
    for (wrong, reason) in [
        (
            json!({ "rootfs": rootfs(&digest(b"other")) }),
            "layer sha256:",
        ),
        (
            json!({ "rootfs": { "diff_ids": [] } }),
            "another number of layers",
        ),
        (json!({}), "rootfs"),
        (
            json!({ "rootfs": rootfs(&diff_id), "config": { "Env": "A=1" } }),
            "'Env'",
        ),
        (
            json!({ "rootfs": rootfs(&diff_id), "config": { "Labels": { "a": 1 } } }),
            "'Labels'",
        ),
    ] {
        layout.index(&[configured(&layout, &wrong)]);
        let error = layout.error(None, None);
        assert!(error.contains(reason), "{reason}: {error}");
    }
    // A configuration with other bytes.
    layout.index(&[configured(&layout, &config)]);
    let blob = layout
        .path("blobs/sha256")
        .join(&digest(config.to_string().as_bytes())[7..]);
    fs::write(&blob, config.to_string().replace("web", "dev")).unwrap();
    let error = layout.error(None, None);
    assert!(error.contains("digest"), "{error}");
    // Other manifests have configurations of other types.
    let empty = layout.blob("application/vnd.oci.empty.v1+json", b"{}");
    layout.index(&[layout.json(&json!({ "config": empty, "layers": [] }))]);
    assert!(layout.open(None, None).unwrap().config().is_none());
}

#[test]
fn platforms_are_parsed() {
    let platform = Platform::parse("linux/arm64/v8").unwrap();
    assert_eq!(
        (platform.os.as_str(), platform.architecture.as_str()),
        ("linux", "arm64")
    );
    assert_eq!(platform.variant.as_deref(), Some("v8"));
    for wrong in ["", "linux", "/", "linux/arm/v7/x"] {
        assert_eq!(Platform::parse(wrong), None);
    }
}

#[test]
fn references_follow_paths() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a:b")).unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (text, name, reference) in [
        ("a:b", "a:b", None),
        ("a:b:v1", "a:b", Some("v1")),
        ("a:b:sha256:00", "a:b", Some("sha256:00")),
        ("none:v1:x", "none", Some("v1:x")),
        ("none", "none", None),
    ] {
        let text = path(text);
        assert_eq!(
            split_reference(text.as_str()),
            (Path::new(&path(name)), reference),
            "{text}"
        );
    }
}

#[test]
fn damaged_images_are_named() {
    let layout = Layout::new();
    let error = layout.error(None, None);
    assert!(error.contains("index.json"), "{error}");
    let descriptor = layout.image(&layers());
    layout.index(std::slice::from_ref(&descriptor));
    let blob = |descriptor: &Value| {
        layout
            .path("blobs/sha256")
            .join(&descriptor["digest"].as_str().unwrap()[7..])
    };
    // A layer with other bytes, of the same and of another size.
    let manifest: Value = serde_json::from_slice(&fs::read(blob(&descriptor)).unwrap()).unwrap();
    let last = blob(&manifest["layers"][2]);
    let whole = fs::read(&last).unwrap();
    let mut changed = whole.clone();
    changed[700] ^= 1;
    for (bytes, reason) in [(&changed[..], "digest"), (&whole[1..], "bytes")] {
        fs::write(&last, bytes).unwrap();
        let error = layout.error(None, None);
        assert!(
            error.contains(reason) && error.contains("layer sha256:"),
            "{error}"
        );
    }
    fs::remove_file(&last).unwrap();
    let error = layout.error(None, None);
    assert!(error.contains("No such file"), "{error}");
    // A manifest with other bytes, and what is no image.
    fs::write(blob(&descriptor), "{}").unwrap();
    assert!(layout.error(None, None).contains("digest"));
    for (manifest, reason) in [
        (json!({}), "layers"),
        (
            json!({ "layers": [{ "digest": "sha256:../../x" }] }),
            "damaged",
        ),
        (
            json!({ "layers": [layout.blob("application/vnd.helm.chart", b"x")] }),
            "helm",
        ),
        (
            json!({ "layers": [layout.blob("application/tar+encrypted", b"x")] }),
            "encrypted",
        ),
        (
            json!({ "layers": [layout.blob("application/tar", b"no archive")] }),
            "ends in the middle",
        ),
    ] {
        layout.index(&[layout.json(&manifest)]);
        let error = layout.error(None, None);
        assert!(error.contains(reason), "{reason}: {error}");
    }
    // An index that names itself cannot be made, but a chain of them can.
    let mut chain = layout.image(&layers());
    for _ in 0..10 {
        chain = layout.json(&json!({ "manifests": [chain] }));
    }
    layout.index(&[chain]);
    assert!(layout.error(None, None).contains("too deeply"));
    fs::write(layout.path("index.json"), "{").unwrap();
    assert!(layout.error(None, None).contains("index.json"));
}

#[test]
fn nothing_of_a_layer_with_a_wrong_digest_is_given() {
    let layout = Layout::new();
    let good = archive(&[file("good")]);
    layout.index(&[layout.image(std::slice::from_ref(&good))]);
    let blob = layout.path("blobs/sha256").join(&digest(&good)[7..]);
    fs::write(blob, archive(&[file("evil")])).unwrap();
    let mut found = Collected::default();
    layout
        .open(None, None)
        .unwrap()
        .scan(&mut found)
        .unwrap_err();
    assert!(found.entries.is_empty());
}

/// Gives each directory a time that unpacking does not set.
fn without_times(
    mut tree: std::collections::BTreeMap<String, Plain>,
) -> impl PartialEq + std::fmt::Debug {
    for plain in tree
        .values_mut()
        .filter(|plain| plain.kind == Kind::Directory)
    {
        plain.mtime = crate::Time::default();
    }
    tree
}

#[test]
#[ignore = "needs umoci, which soak installs"]
fn umoci_unpacks_the_same() {
    if !can_run(&[Need::Tool("umoci")]) || !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let shell = |script: &str| run(dir.path(), "sh", &["-ec", script]);
    shell(
        "umoci init --layout l; umoci new --image l:t; umoci unpack --image l:t b; cd b/rootfs
         mkdir -p a/b c/d; echo 1 >a/b/f; echo 2 >c/d/f; ln c/d/f c/hard; ln -s ../x c/sym; mkfifo p
         mknod n c 1 3; chown 12:34 a/b/f; chmod 4755 c/d/f; setfattr -n user.x -v y a/b/f
         cd ../..; umoci repack --refresh-bundle --image l:t b",
    );
    shell(
        "rm -r b/rootfs/a; rm b/rootfs/c/sym; ln b/rootfs/c/hard b/rootfs/h
         umoci repack --refresh-bundle --image l:t b",
    );
    shell(
        "mkdir b/rootfs/a; echo 3 >b/rootfs/a/f; rm -r b/rootfs/c/d; echo 4 >b/rootfs/c/d
         umoci repack --refresh-bundle --image l:t b",
    );
    shell("umoci unpack --image l:t u");
    let image = OciSource::open(dir.path().join("l"), Some("t"), None, dir.path()).unwrap();
    let unpacked = DirectorySource::new(dir.path().join("u/rootfs")).unwrap();
    let mut ours = plain(&image);
    let mut theirs = plain(&unpacked);
    // The root is in no layer, and umoci sets whole seconds only.
    ours.remove(".");
    theirs.remove(".");
    for plain in ours.values_mut().chain(theirs.values_mut()) {
        plain.mtime.nanos = 0;
    }
    assert_eq!(
        format!("{:#?}", without_times(ours)),
        format!("{:#?}", without_times(theirs))
    );
    assert_eq!(read(&image, Collected::of(&image).get("a/f")), b"3\n");
    assert!(Path::new(&dir.path().join("l/index.json")).exists());
}

#[test]
fn a_written_layer_is_read_again() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("dir")).unwrap();
    fs::write(tree.path().join("dir/file"), "text").unwrap();
    fs::write(tree.path().join("dir/.wh.file"), "").unwrap();
    let source = DirectorySource::new(tree.path()).unwrap();
    let entries = Collected::of(&source).entries;
    for compression in [LayerCompression::Gzip, LayerCompression::Zstd] {
        let write = || {
            let mut writer = LayerWriter::new(Vec::new(), compression).unwrap();
            let mut left_out = Vec::new();
            for entry in &entries {
                let bytes = if entry.path == b"dir/file" {
                    &b"text"[..]
                } else {
                    b""
                };
                let mut read = |_: u64, buf: &mut [u8]| {
                    buf.copy_from_slice(bytes);
                    Ok(())
                };
                let reason = writer.append(entry, &mut read).unwrap();
                left_out.extend(reason.map(|_| entry.path.clone()));
            }
            assert_eq!(left_out, [b"dir/.wh.file".to_vec()]);
            writer.finish().unwrap()
        };
        let (bytes, layer) = write();
        assert_eq!(write(), (bytes.clone(), layer.clone()));
        let layout = Layout::new();
        let platform = Platform::parse("linux/arm/v7").unwrap();
        fs::write(layout.path(&layer.path()), bytes).unwrap();
        for (path, contents) in layer.documents("new", &platform) {
            fs::write(layout.path(&path), contents).unwrap();
        }
        let image = layout.open(Some("new"), None).unwrap();
        let found = Collected::of(&image);
        assert_eq!(found.paths(), [".", "dir", "dir/file"]);
        assert_eq!(read(&image, found.get("dir/file")), b"text");
        assert!(layout.error(Some("old"), None).contains("old"));
    }
}
