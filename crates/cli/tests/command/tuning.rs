//! What is changed of a volume as a whole: `tune`.

use extern4_testkit::image::{Image, ImageSpec};

use crate::run::{extern4, failed, tool};
use crate::writing::{quietly, sound, untouched};

/// What `dumpe2fs` says of the superblock in a block, without what each opening changes.
fn header(image: &Image, superblock: &[&str]) -> Vec<String> {
    let mut args = vec!["-h"];
    args.extend(superblock);
    args.push(image.path.to_str().expect("a path"));
    let text = tool(image.scratch(), "dumpe2fs", args);
    let changing =
        ["Last mount time", "Last write time", "Mount count", "Lifetime writes", "Checksum:", "Journal"];
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !changing.iter().any(|start| line.starts_with(start)));
    lines.map(ToOwned::to_owned).collect()
}

#[test]
fn volumes_are_tuned_as_tune2fs_does() {
    const UUID: &str = "11111111-2222-3333-4444-555555555555";
    let image = ImageSpec::new(
        "disk",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,metadata_csum_seed", "-L", "old"],
    )
    .build();
    for (ours, theirs) in [
        (&["--label", "new label"][..], &["-L", "new label"][..]),
        (&["--label", ""], &["-L", ""]),
        (&["--uuid", UUID], &["-U", UUID]),
        (&["--uuid", "clear"], &["-U", "clear"]),
        (&["--errors", "continue"], &["-e", "continue"]),
        (&["--errors", "remount-ro"], &["-e", "remount-ro"]),
        (&["--errors", "panic"], &["-e", "panic"]),
        (&["--reserved-blocks", "1234"], &["-r", "1234"]),
        (&["--reserved-percent", "3.7"], &["-m", "3.7"]),
        (&["--reserved-blocks", "0"], &["-r", "0"]),
        (&["--label", "both", "--errors", "panic"], &["-L", "both", "-e", "panic"]),
    ] {
        let oracle = image.copy();
        let tuned = image.copy();
        tool(oracle.scratch(), "tune2fs", [theirs, &["disk.img"]].concat());
        quietly(&tuned, &[&["tune", "disk.img"], ours].concat());
        assert_eq!(header(&tuned, &[]), header(&oracle, &[]), "{ours:?}");
        let backup = ["-o", "superblock=8193", "-o", "blocksize=1024"];
        let label = |image: &Image| {
            let of_backup = header(image, &backup).into_iter();
            of_backup.filter(|line| line.starts_with("Filesystem volume name")).collect::<Vec<_>>()
        };
        assert_eq!(label(&tuned), label(&oracle), "{ours:?}");
        sound(&tuned);
    }
    quietly(&image, &["tune", "disk.img", "--uuid", "random"]);
    sound(&image);
    untouched(&image, || {
        failed(&extern4(&image, ["tune", "disk.img"]), 2);
        failed(&extern4(&image, ["tune", "disk.img", "--label", "seventeen bytes n"]), 2);
        failed(&extern4(&image, ["tune", "disk.img", "--uuid", "1"]), 2);
        failed(&extern4(&image, ["tune", "disk.img", "--reserved-percent", "51"]), 2);
    });
    let errors = failed(&extern4(&image, ["tune", "disk.img", "--reserved-blocks", "20000"]), 1);
    assert!(errors.contains("half of them can, "), "{errors}");
    sound(&image);
}

#[test]
fn a_uuid_that_checksums_hang_on_stays() {
    let image =
        ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-O", "metadata_csum,^metadata_csum_seed"]).build();
    let before = header(&image, &[]);
    let errors = failed(&extern4(&image, ["tune", "disk.img", "--uuid", "random", "--label", "x"]), 3);
    assert!(errors.contains("metadata_csum"), "{errors}");
    assert_eq!(header(&image, &[]), before);
    sound(&image);
}
