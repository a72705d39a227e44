//! Hints at what a user meant by the name of an image that cannot be opened.
//!
//! `app` adds it to the message of every command that opens volumes. It looks at files of the host
//! and at partition tables only.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::{ErrorKind, Partition, Volume};

use crate::container_format;
use crate::image_path::{Image, ImagePath, Part, may_hold_volumes};
use crate::text::{escape, quoted};

/// Names of file systems and partitions, as mount(8) takes them, and the directories that udev
/// keeps with links of these names.
const TAGS: [(&str, &str); 5] = [
    ("LABEL=", "by-label"),
    ("UUID=", "by-uuid"),
    ("PARTLABEL=", "by-partlabel"),
    ("PARTUUID=", "by-partuuid"),
    ("ID=", "by-id"),
];

/// Returns the hint about an image that is not there.
pub(crate) fn missing(image: &Image) -> Option<String> {
    if image.file.symlink_metadata().is_ok() {
        return None;
    }
    namesakes(image)
        .or_else(|| outer(image))
        .or_else(|| tag(&image.file))
        .or_else(|| below_an_image(&image.file))
        .or_else(|| part(image))
}

/// Returns what is in an image in the place of an ext volume.
pub(crate) fn other_contents(image: &Image) -> Option<String> {
    let disk = || partitions(&image.file);
    match image.part {
        Part::Whole => disk()
            .map(|names| format!("this is a disk with partitions; name one of them: {names}"))
            .or_else(|| container_format::advice(image)),
        Part::Offset(start) => container_format::advice(image).or_else(|| {
            let names = disk()?;
            Some(format!(
                "no ext2, ext3 or ext4 file system starts at byte {start}; the partitions: {names}"
            ))
        }),
        Part::Partition(_) => container_format::advice(image),
    }
}

/// Returns the partitions of a disk, in the form in which a command line names them, with their
/// names in the GPT.
pub(crate) fn partitions(disk: &Path) -> Option<String> {
    let table = may_hold_volumes(disk)
        .then(|| Volume::partitions(disk).ok())
        .flatten()
        .flatten()?;
    let name = |partition: &Partition| {
        let image = Image::of(disk.to_owned(), Part::Partition(partition.number));
        match partition.name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => format!("{image} ({})", escape(name.as_bytes())),
            None => image.to_string(),
        }
    };
    let names: Vec<_> = table.partitions.iter().map(name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the hint at several partitions with one name.
fn namesakes(image: &Image) -> Option<String> {
    let names: Vec<_> = image.namesakes()?.iter().map(Image::to_string).collect();
    Some(format!(
        "several partitions have this name: {}",
        names.join(", ")
    ))
}

/// Returns the hint at a part of a part.
fn outer(image: &Image) -> Option<String> {
    let outer = image.outer()?;
    let file = escape(outer.file.as_os_str().as_bytes());
    Some(format!(
        "{outer} is a part of an image and has no parts itself; {file}@OFFSET names any byte"
    ))
}

/// Returns the hint at a device by the label or UUID that a name stands for.
fn tag(file: &Path) -> Option<String> {
    let text = file.to_str()?;
    let (tag, directory) = TAGS.iter().find(|(tag, _)| text.starts_with(tag))?;
    let name = text[tag.len()..].trim_matches('"');
    let link = quoted(escape(format!("/dev/disk/{directory}/{name}").as_bytes()));
    Some(format!(
        "labels and UUIDs are not looked up; name the device: {link}, or what blkid(8) prints"
    ))
}

/// Returns the hint at the colon that is missing in `disk.img/etc/x`.
pub(crate) fn below_an_image(file: &Path) -> Option<String> {
    let image = file
        .ancestors()
        .skip(1)
        .find(|path| may_hold_volumes(path))
        .filter(|path| is_image(path))?;
    let path = file.strip_prefix(image).ok()?;
    let meant = quoted(format_args!(
        "{}:/{}",
        escape(image.as_os_str().as_bytes()),
        escape(path.as_os_str().as_bytes())
    ));
    Some(format!("a path in an image stands behind a colon: {meant}"))
}

/// Returns the hint at the root of the image that stands where a copy is to go, with sources that
/// are no images.
pub(crate) fn root_of(destination: &Path, sources: &[ImagePath]) -> Option<String> {
    let is_plain =
        |source: &ImagePath| source.path == Path::new("/") && !is_image(&source.image.file);
    let is_meant = sources.iter().all(is_plain) && is_image(destination);
    let root = format_args!("{}:/", escape(destination.as_os_str().as_bytes()));
    is_meant.then(|| format!("this is an image; its root is {}", quoted(root)))
}

/// Returns whether a file holds an ext volume or partitions. A volume that is in use does, too.
fn is_image(file: &Path) -> bool {
    if !may_hold_volumes(file) {
        return false;
    }
    let is_volume = !matches!(Volume::open(file), Err(error) if error.kind() == ErrorKind::NotExt);
    is_volume || partitions(file).is_some()
}

/// Returns the hint at the parts of a disk, of which the name has none.
fn part(image: &Image) -> Option<String> {
    let text = image.file.as_os_str().as_bytes();
    let mark = text.iter().rposition(|byte| matches!(byte, b'#' | b'@'))?;
    let disk = Path::new(OsStr::from_bytes(&text[..mark]));
    if !may_hold_volumes(disk) {
        return None;
    }
    let name = quoted(escape(&text[mark + 1..]));
    let partitions =
        partitions(disk).map_or_else(String::new, |names| format!("; the partitions: {names}"));
    Some(match text[mark] {
        b'#' => format!("no partition has the name, label or UUID {name}{partitions}"),
        _ => format!(
            "{name} is no offset: write a number of bytes, or one with K, M, G or T{partitions}"
        ),
    })
}
