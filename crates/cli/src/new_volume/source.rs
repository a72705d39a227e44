//! The sources that a command line names.
//!
//! `mkfs -d` and `build` open each source with it. A source that cannot be opened ends the build
//! before the target changes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use extern4::build::{DirectorySource, OciSource, Source, VolumeSource, is_volume};

use super::error::NewVolumeError;
use crate::app::{App, partitions};
use crate::image_path::{Image, ImagePath, Part};
use crate::interruptible::archive;

/// A source as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    kind: Kind,
    /// The directory of the volume that its root becomes, without a slash in front.
    prefix: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A directory, an archive or a volume of the host.
    Host(PathBuf),
    /// The volume in a part of a disk.
    Part(Image),
    /// An archive on standard input.
    Input,
    /// An image of a container, and which one of those that are there.
    Image(PathBuf, Option<String>),
}

impl Argument {
    /// A clap parser for sources.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| Self::parse(&text))
    }

    /// `SOURCE` or `SOURCE:/PATH`; a file that has such a name is meant as a whole.
    fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let colon = bytes.windows(2).rposition(|pair| pair == b":/").filter(|at| *at > 0);
        let (source, prefix) = match colon {
            Some(at) if !Path::new(text).exists() && bytes[..at] != *b"oci" => {
                (&bytes[..at], &bytes[at + 1..])
            }
            _ => (bytes, &b""[..]),
        };
        let parts: Vec<&[u8]> = prefix.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| matches!(*part, b"." | b"..")) {
            return Err(format!("'{}' has '.' or '..' in it", String::from_utf8_lossy(prefix)));
        }
        let kind = match source {
            b"-" => Kind::Input,
            _ => match source.strip_prefix(b"oci:") {
                Some(image) => image_of(image),
                None => host(source),
            },
        };
        Ok(Self { kind, prefix: parts.join(&b'/') })
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Reports an error of a volume at its place. Returns any other failure.
    pub(crate) fn explain(&self, failure: NewVolumeError, app: &mut App) -> NewVolumeError {
        let image = match &self.kind {
            Kind::Host(path) => Image { file: path.clone(), part: Part::Whole },
            Kind::Part(image) => image.clone(),
            Kind::Input | Kind::Image(..) => return failure,
        };
        let error = match failure {
            NewVolumeError::Volume(error) => error,
            // The file is no archive.
            NewVolumeError::Failed(reason) => {
                return NewVolumeError::Failed(match partitions(&image) {
                    Some(names) => {
                        format!("'{image}': this is a disk with partitions; name one of them: {names}")
                    }
                    None => reason,
                });
            }
            failure => return failure,
        };
        let path = error.path().unwrap_or(Path::new("/")).as_os_str().to_owned();
        app.error(ImagePath::inside(image, &path), &error);
        NewVolumeError::Reported
    }

    /// Opens the source. Contents that can be read only once go to files without names next to
    /// `out`.
    pub(crate) fn open(
        &self,
        one_file_system: bool,
        out: &Path,
        app: &mut App,
    ) -> Result<Box<dyn Source>, NewVolumeError> {
        let spool = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(match &self.kind {
            Kind::Host(path) if path.is_dir() => {
                Box::new(DirectorySource::new(path)?.one_file_system(one_file_system))
            }
            Kind::Host(path) if is_volume(path) => {
                volume(&Image { file: path.clone(), part: Part::Whole }, app)?
            }
            Kind::Host(path) => Box::new(archive(path, path, spool, app.stop())?),
            Kind::Part(image) => volume(image, app)?,
            Kind::Input => Box::new(archive(Path::new("-"), Path::new("standard input"), spool, app.stop())?),
            Kind::Image(path, reference) => {
                Box::new(OciSource::open(path, reference.as_deref(), None, spool)?)
            }
        })
    }
}

/// The root of a volume, as the caller may see it. A failure is reported.
fn volume(image: &Image, app: &mut App) -> Result<Box<dyn Source>, NewVolumeError> {
    let opened = app.volume(image).ok_or(NewVolumeError::Reported)?;
    Ok(Box::new(VolumeSource::new(opened.session.clone())))
}

/// `PATH`, or `PATH#N` and `PATH@OFFSET` for a part of a disk; a path that is there is meant as a
/// whole.
fn host(text: &[u8]) -> Kind {
    let whole = path(text);
    match Image::split(text).filter(|image| !whole.exists() && image.file.exists()) {
        Some(image) => Kind::Part(image),
        None => Kind::Host(whole),
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// `PATH` or `PATH:REFERENCE`; a path that is there is meant as a whole.
fn image_of(text: &[u8]) -> Kind {
    let whole = path(text);
    let colon = text.iter().rposition(|byte| *byte == b':').filter(|_| !whole.exists());
    match colon.and_then(|at| Some((path(&text[..at]), std::str::from_utf8(&text[at + 1..]).ok()?))) {
        Some((path, reference)) if !reference.is_empty() => Kind::Image(path, Some(reference.to_owned())),
        _ => Kind::Image(whole, None),
    }
}

#[cfg(test)]
mod tests {
    use super::{Argument, Kind};

    fn parse(text: &str) -> (Kind, String) {
        let Argument { kind, prefix } = Argument::parse(text.as_ref()).expect("a source");
        (kind, String::from_utf8(prefix).expect("UTF-8"))
    }

    #[test]
    fn sources_are_told_apart() {
        assert_eq!(parse("root.tar"), (Kind::Host("root.tar".into()), String::new()));
        assert_eq!(parse("etc:/etc/"), (Kind::Host("etc".into()), "etc".into()));
        assert_eq!(parse("-:/a//b"), (Kind::Input, "a/b".into()));
        assert_eq!(parse("oci:alpine"), (Kind::Image("alpine".into(), None), String::new()));
        assert_eq!(
            parse("oci:/x/alpine:3.20"),
            (Kind::Image("/x/alpine".into(), Some("3.20".into())), String::new())
        );
        assert_eq!(
            parse("oci:alpine:3:/sub"),
            (Kind::Image("alpine".into(), Some("3".into())), "sub".into())
        );
        assert!(Argument::parse("a:/../b".as_ref()).is_err());
    }
}
