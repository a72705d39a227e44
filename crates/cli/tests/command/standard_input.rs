//! Standard input that cannot be read is an error, and not an empty one.

use extern4_testkit::image::ImageSpec;

use crate::run::{extern4, failed, ok, tool};

const SPEC: ImageSpec = ImageSpec::new("disk", 16 << 20, &["-t", "ext4"])
    .from_directory(&[|root| std::fs::write(root.join("file"), "old")]);

#[test]
fn a_standard_input_that_cannot_be_read_is_not_empty() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let before = std::fs::read(&image.path).expect("the image");
    for line in [
        "put disk.img:/new",
        "put disk.img:/file",
        "script disk.img",
        "script disk.img -",
        "setfacl --restore=- disk.img:/",
        "setfattr --restore=- disk.img:/",
        "du -X - disk.img:/",
        "tar -x disk.img:/",
        "tar -t",
        "build new.img -",
    ] {
        // Closed; open for writing only; a directory.
        for input in ["<&-", "0>/dev/null", "<."] {
            let script = format!("exec \"$0\" {line} {input}");
            let mut shell = std::process::Command::new("sh");
            let shell = shell.current_dir(image.scratch()).args([
                "-c",
                &script,
                env!("CARGO_BIN_EXE_extern4"),
            ]);
            let errors = failed(&shell.output().expect("a shell"), 1);
            let reason = if input == "<." {
                "Is a directory"
            } else {
                "Bad file descriptor"
            };
            assert!(errors.contains(reason), "{line} {input}: {errors}");
            assert!(
                std::fs::read(&image.path).expect("the image") == before,
                "{line} {input}"
            );
        }
        // An empty input is valid, but it is no archive.
        if line.starts_with("tar") || line.starts_with("build") {
            continue;
        }
        let script = format!("exec \"$0\" {line} </dev/null");
        tool(image.scratch(), "cp", ["disk.img", "copy.img"]);
        tool(
            image.scratch(),
            "sh",
            [
                "-c",
                &script.replace("disk.img", "copy.img"),
                env!("CARGO_BIN_EXE_extern4"),
            ],
        );
    }
    assert!(ok(extern4(&image, ["cat", "disk.img:/file"])) == b"old");
}
