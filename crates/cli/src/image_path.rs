//! Image paths: how a command line names a file inside a volume.
//!
//! ```text
//! disk.img:/etc/passwd      a path in the volume that fills disk.img
//! disk.img                  its root
//! disk.img#2:/etc           in partition 2, counted as Linux counts them
//! disk.img#root:/etc        in the partition with that name in the GPT, label or UUID
//! disk.img@1M:/etc          in the volume that starts 1 MiB into disk.img
//! ```
//!
//! An image's own name may hold `:`, `#` and `@`. Of all the ways to read an image path, the parser
//! takes the one with the longest image that exists. Where no image exists, the first `:/` ends its
//! name, and opening it reports the error.
//!
//! `args` parses every operand with it, and messages print it, so that a user can copy a path from
//! a message.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
pub(crate) use extern4::part::Part;
use extern4::part::parse_bytes;
use extern4::{Partition, Volume};
use extern4_mountd::Source;

use crate::text::{always_quoted, escape, operand, unescaped};

/// A file inside a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImagePath {
    /// The image that the volume is in.
    pub(crate) image: Image,
    /// The path inside the volume; it starts with `/`.
    pub(crate) path: PathBuf,
}

/// Where a volume is: an image file or device, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The image file or block special file.
    pub(crate) file: PathBuf,
    /// The part of the file that the volume fills.
    pub(crate) part: Part,
    /// The name that messages have for the file; `None` if that is its path.
    name: Option<PathBuf>,
}

impl ImagePath {
    /// Reads an image path as the command line gives it.
    pub(crate) fn parse(text: &OsStr) -> Self {
        Self::parse_with(text, |file| {
            std::fs::metadata(file).is_ok_and(|found| !found.is_dir())
        })
    }

    /// Reads an image path. `exists` says whether a file exists.
    fn parse_with(text: &OsStr, exists: impl Fn(&Path) -> bool) -> Self {
        let bytes = text.as_bytes();
        let colons = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b':')
            .map(|(at, _)| at);
        for end in std::iter::once(bytes.len()).chain(colons.rev()) {
            if let Some(image) = Image::existing(&bytes[..end], &exists) {
                return Self::new(image, bytes.get(end + 1..).unwrap_or_default());
            }
        }
        let end = bytes.windows(2).position(|pair| pair == b":/");
        let end = end
            .or_else(|| bytes.iter().position(|byte| *byte == b':'))
            .unwrap_or(bytes.len());
        Self::new(
            Image::guess(&bytes[..end]),
            bytes.get(end + 1..).unwrap_or_default(),
        )
    }

    /// Returns the image path of path `text` in `image`.
    pub(crate) fn inside(image: Image, text: &OsStr) -> Self {
        Self::new(image, text.as_bytes())
    }

    /// Returns the image path that `text` is where this is the current directory.
    pub(crate) fn join(&self, text: &OsStr) -> Self {
        // The current directory has no name.
        let text = if text.is_empty() {
            OsStr::new(".")
        } else {
            text
        };
        Self {
            image: self.image.clone(),
            path: self.path.join(text),
        }
    }

    /// Returns the directory that `text` leads to from this one, as a shell goes there: by names,
    /// so that `..` leads back even from a symbolic link.
    pub(crate) fn directory(&self, text: &OsStr) -> Self {
        let mut path = PathBuf::from("/");
        for part in self.path.join(text).components() {
            match part {
                Component::Normal(name) => path.push(name),
                Component::ParentDir => drop(path.pop()),
                _ => {}
            }
        }
        Self {
            image: self.image.clone(),
            path,
        }
    }

    fn new(image: Image, path: &[u8]) -> Self {
        let mut absolute = Vec::with_capacity(path.len() + 1);
        if path.first() != Some(&b'/') {
            absolute.push(b'/');
        }
        absolute.extend_from_slice(path);
        Self {
            image,
            path: PathBuf::from(OsString::from_vec(absolute)),
        }
    }

    /// Returns a clap parser for image paths.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|text| Self::parse(&text))
    }

    /// Returns a clap parser for an image that may be made. The name of a new file may have colons.
    pub(crate) fn output_parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|text| Self::parse_output(&text))
    }

    /// Reads an image path of an image that exists, and any other text as an image that is to be
    /// made.
    fn parse_output(text: &OsStr) -> Self {
        let parsed = Self::parse(text);
        let behind = text
            .as_bytes()
            .strip_prefix(parsed.image.file.as_os_str().as_bytes());
        // Behind an image, a path begins with a slash.
        let has_path =
            behind.is_some_and(|behind| matches!(behind, b"" | b":") || behind.starts_with(b":/"));
        let is_in_image = has_path && !parsed.image.file.is_dir() && parsed.image.file.exists();
        // `new.img:/dir` can be no file, unless there is a directory `new.img:`.
        let is_nowhere = behind.is_some_and(|behind| behind.starts_with(b":/"))
            && Path::new(text)
                .parent()
                .is_some_and(|parent| !parent.exists());
        if parsed.image.part != Part::Whole || is_in_image || is_nowhere {
            return parsed;
        }
        Self::new(Image::of(PathBuf::from(text), Part::Whole), b"")
    }

    /// Returns the path in quotes, in a form that a shell and this command read back.
    pub(crate) fn quoted(&self) -> String {
        always_quoted(
            &[
                &self.image.prefix(),
                &operand(self.path.as_os_str().as_bytes())[..],
            ]
            .concat(),
        )
    }

    /// Returns whether `text` is an image path with a part or a path, of an image that exists. A
    /// file of the host whose whole name is `text` is none.
    pub(crate) fn is_one(text: &OsStr) -> bool {
        let image_path = Self::parse(text);
        image_path.image.file.as_os_str() != text && image_path.image.file.exists()
    }
}

impl Image {
    /// Returns the image that is this part of a file.
    pub(crate) fn of(file: PathBuf, part: Part) -> Self {
        Self {
            file,
            part,
            name: None,
        }
    }

    /// Returns the image so that it is found from any directory of the host. Messages name it as
    /// before.
    pub(crate) fn anywhere(self) -> Self {
        match std::path::absolute(&self.file) {
            Ok(file) if file != self.file => Self {
                name: Some(self.name.unwrap_or(self.file)),
                file,
                ..self
            },
            _ => self,
        }
    }

    /// Returns the file as the user named it.
    pub(crate) fn name(&self) -> &Path {
        self.name.as_deref().unwrap_or(&self.file)
    }

    /// Returns the image for its mount.
    pub(crate) fn source(&self) -> Source {
        Source {
            file: self.file.clone(),
            part: self.part,
        }
    }

    /// Returns whether both are the same volume, by any names of their file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.part == other.part && (self.file == other.file || same_file(&self.file, &other.file))
    }

    /// Returns the text before every path of this volume.
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let part = self.part.to_string();
        [self.name().as_os_str().as_bytes(), part.as_bytes(), b":"].concat()
    }

    /// Returns the image that `text` names if its file exists: a whole file first, then a part of
    /// one. Where there is none as it is written, escapes are read as in a path.
    fn existing(text: &[u8], exists: &impl Fn(&Path) -> bool) -> Option<Self> {
        let read = |text: &[u8]| {
            let whole = Self::of(path(text), Part::Whole);
            if exists(&whole.file) {
                return Some(whole);
            }
            Self::split(text).filter(|image| exists(&image.file))
        };
        let escaped = || Some(unescaped(text)).filter(|name| name != text);
        read(text).or_else(|| read(&escaped()?))
    }

    /// If there is no such file, returns the part of another image that its name means: for
    /// `disk.img#1#2`, partition 1 of `disk.img`.
    pub(crate) fn outer(&self) -> Option<Self> {
        let outer = Self::split(self.file.as_os_str().as_bytes())?;
        (!self.file.exists() && outer.file.exists()).then_some(outer)
    }

    fn guess(text: &[u8]) -> Self {
        Self::split(text).unwrap_or_else(|| Self::of(path(text), Part::Whole))
    }

    /// Returns the partitions that a name behind a `#` stands for, if there is no such file and
    /// several partitions have that name.
    pub(crate) fn namesakes(&self) -> Option<Vec<Self>> {
        let text = self.file.as_os_str().as_bytes();
        let mark = text
            .iter()
            .rposition(|byte| *byte == b'#')
            .filter(|_| !self.file.exists())?;
        let disk = path(&text[..mark]);
        let name = std::str::from_utf8(&text[mark + 1..]).ok()?;
        let numbers = Some(partitions_named(&disk, name)).filter(|numbers| numbers.len() > 1)?;
        let image = |number| Self::of(disk.clone(), Part::Partition(number));
        Some(numbers.into_iter().map(image).collect())
    }

    /// Splits off a trailing `#N`, `#NAME` or `@OFFSET`.
    pub(crate) fn split(text: &[u8]) -> Option<Self> {
        let mark = text.iter().rposition(|byte| matches!(byte, b'#' | b'@'))?;
        let number = std::str::from_utf8(&text[mark + 1..]).ok()?;
        let part = match text[mark] {
            b'#' if is_digits(number) => Part::Partition(number.parse().ok()?),
            b'#' => Part::Partition(partition_named(&path(&text[..mark]), number)?),
            _ => Part::Offset(parse_bytes(number)?),
        };
        Some(Self::of(path(&text[..mark]), part))
    }
}

/// Returns whether two paths of the host lead to the same file.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| {
        std::fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    id(one).is_some_and(|found| Some(found) == id(other))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Returns the number of the partition that has this name alone.
fn partition_named(disk: &Path, name: &str) -> Option<u32> {
    match partitions_named(disk, name)[..] {
        [number] => Some(number),
        _ => None,
    }
}

/// Returns the numbers of the partitions with this name in the GPT. Where there are none, returns
/// the partitions whose volumes have it as their label or UUID.
fn partitions_named(disk: &Path, name: &str) -> Vec<u32> {
    if name.is_empty() || !may_hold_volumes(disk) {
        return Vec::new();
    }
    let partitions = Volume::partitions(disk)
        .ok()
        .flatten()
        .map_or(Vec::new(), |table| table.partitions);
    let numbers = |has: &dyn Fn(&Partition) -> bool| -> Vec<u32> {
        partitions
            .iter()
            .filter(|partition| has(partition))
            .map(|partition| partition.number)
            .collect()
    };
    let named = numbers(&|partition| partition.name.as_deref() == Some(name));
    if named.is_empty() {
        numbers(&|partition| has_name(disk, partition.number, name))
    } else {
        named
    }
}

/// Returns whether a file may hold volumes. Opening others could wait for a writer.
pub(crate) fn may_hold_volumes(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
}

/// Returns whether the volume in a partition has this label or UUID, even while it is in use.
fn has_name(disk: &Path, partition: u32, name: &str) -> bool {
    let Ok(volume) = Volume::options()
        .partition(partition)
        .shared(true)
        .open(disk)
    else {
        return false;
    };
    volume.label() == name || crate::text::uuid(volume.uuid()).eq_ignore_ascii_case(name)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(self.name().as_os_str().as_bytes()))?;
        write!(f, "{}", self.part)
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}",
            self.image,
            escape(self.path.as_os_str().as_bytes())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{ImagePath, Part};
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn the_name_of_an_output_may_have_colons() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("old"), "").expect("a file");
        std::fs::create_dir(dir.path().join("a:")).expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for (text, file, path) in [
            ("new", "new", "/"),
            ("a:b.img", "a:b.img", "/"),
            ("a:/b", "a:/b", "/"),
            ("none:/b", "none", "/b"),
            ("old", "old", "/"),
            ("old:", "old", "/"),
            ("old:/x", "old", "/x"),
            ("old:x", "old:x", "/"),
        ] {
            let found = ImagePath::parse_output(at(text).as_os_str());
            assert_eq!(
                (found.image.file, found.path),
                (at(file), path.into()),
                "{text}"
            );
        }
        assert_eq!(
            ImagePath::parse_output(at("old@1M").as_os_str()).image.part,
            Part::Offset(1 << 20)
        );
    }

    fn check(text: &str, files: &[&str], file: &str, part: Part, path: &str) {
        let image_path = ImagePath::parse_with(OsStr::new(text), |name| {
            files.iter().any(|file| Path::new(file) == name)
        });
        assert_eq!(
            (
                image_path.image.file.to_str(),
                image_path.image.part,
                image_path.path.to_str()
            ),
            (Some(file), part, Some(path)),
            "{text}"
        );
    }

    #[test]
    fn image_and_path_are_told_apart() {
        let files = ["disk.img"];
        check("disk.img", &files, "disk.img", Part::Whole, "/");
        check("disk.img:", &files, "disk.img", Part::Whole, "/");
        check(
            "disk.img:/etc/passwd",
            &files,
            "disk.img",
            Part::Whole,
            "/etc/passwd",
        );
        check("disk.img:etc", &files, "disk.img", Part::Whole, "/etc");
        check("disk.img:/a:b", &files, "disk.img", Part::Whole, "/a:b");
        check("disk.img:/a:/b", &files, "disk.img", Part::Whole, "/a:/b");
    }

    #[test]
    fn parts_are_read() {
        let files = ["disk.img"];
        check("disk.img#2", &files, "disk.img", Part::Partition(2), "/");
        check(
            "disk.img#2:/x",
            &files,
            "disk.img",
            Part::Partition(2),
            "/x",
        );
        check(
            "disk.img#12:/x#3",
            &files,
            "disk.img",
            Part::Partition(12),
            "/x#3",
        );
        check(
            "disk.img@1M:/x",
            &files,
            "disk.img",
            Part::Offset(1 << 20),
            "/x",
        );
        check(
            "disk.img@1MiB:/x",
            &files,
            "disk.img",
            Part::Offset(1 << 20),
            "/x",
        );
        check("disk.img@512", &files, "disk.img", Part::Offset(512), "/");
    }

    #[test]
    fn longest_existing_image_wins() {
        let files = ["a", "a:/b", "a#2", "c:d"];
        check("a:/b:/c", &files, "a:/b", Part::Whole, "/c");
        check("a:/b", &files, "a:/b", Part::Whole, "/");
        check("a:/x", &files, "a", Part::Whole, "/x");
        check("a#2:/x", &files, "a#2", Part::Whole, "/x");
        check("a#2#1:/x", &files, "a#2", Part::Partition(1), "/x");
        check("c:d:/x", &files, "c:d", Part::Whole, "/x");
        check("\\143:d:/\\141", &files, "c:d", Part::Whole, "/\\141");
    }

    #[test]
    fn missing_image_is_still_split() {
        check("gone.img:/a", &[], "gone.img", Part::Whole, "/a");
        check("gone#1:/a", &[], "gone", Part::Partition(1), "/a");
        check("x:y:/a", &[], "x:y", Part::Whole, "/a");
        check("gone", &[], "gone", Part::Whole, "/");
        check("a#b", &[], "a#b", Part::Whole, "/");
        check("a#+1", &[], "a#+1", Part::Whole, "/");
        check(
            "a@99999999999999999999",
            &[],
            "a@99999999999999999999",
            Part::Whole,
            "/",
        );
    }
}
