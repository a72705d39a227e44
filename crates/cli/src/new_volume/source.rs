//! The sources that a command line names.
//!
//! `mkfs -d` and `build` open each source with it. A source that cannot be opened ends the build
//! before the target changes.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use extern4::build::{
    DirectorySource, FileSource, ImageConfig, Platform, Source, TarSource, VolumeSource, is_volume,
};

use super::error::NewVolumeError;
use crate::app::App;
use crate::image_hint::{self, partitions};
use crate::image_path::{Image, ImagePath, Part};
use crate::interruptible::archive;
use crate::oci_image;
use crate::text::quoted;

/// Suffixes of archives' names. A file with one of them is never taken as a file alone.
const ARCHIVE_SUFFIXES: &[&str] = &["tar", "tgz", "taz", "tzst", "txz", "tbz", "tbz2", "tz2"];

/// A source as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    kind: Kind,
    /// The place in the volume that its root gets, without a slash in front.
    place: Vec<u8>,
    /// Whether the place ended with a slash, so it is a directory.
    is_directory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A directory, an archive, a volume or another file of the host.
    Host(PathBuf),
    /// The volume in a part of a disk.
    Part(Image),
    /// An archive on standard input.
    Input,
    /// An image of a container, chosen by its reference: `PATH[:REFERENCE]`.
    Image(OsString),
}

/// How sources are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceOptions<'a> {
    /// Whether what is on other file systems is left out.
    pub(crate) one_file_system: bool,
    /// Whether extended attributes and ACLs are left out.
    pub(crate) without_xattrs: bool,
    /// The platform of images, if it is not that of this machine.
    pub(crate) platform: Option<&'a Platform>,
}

/// A source that is open.
pub(super) struct OpenSource {
    pub(super) source: Box<dyn Source>,
    /// The directory of the volume that its root becomes, without a slash in front.
    pub(super) prefix: Vec<u8>,
    /// The configuration, if it is an image of a container.
    pub(super) config: Option<ImageConfig>,
}

impl Argument {
    /// A clap parser for sources.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| Self::parse(&text))
    }

    /// `SOURCE` or `SOURCE:/PATH`; a file that has such a name is meant as a whole.
    fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let colon = bytes
            .windows(2)
            .rposition(|pair| pair == b":/")
            .filter(|at| *at > 0);
        let (source, place) = match colon {
            Some(at) if !Path::new(text).exists() && bytes[..at] != *b"oci" => {
                (&bytes[..at], &bytes[at + 1..])
            }
            _ => (bytes, &b""[..]),
        };
        let parts: Vec<&[u8]> = place
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .collect();
        if parts.iter().any(|part| matches!(*part, b"." | b"..")) {
            return Err(format!(
                "'{}' has '.' or '..' in it",
                String::from_utf8_lossy(place)
            ));
        }
        let kind = match source {
            b"-" => Kind::Input,
            _ => match source.strip_prefix(b"oci:") {
                Some(image) => Kind::Image(OsString::from_vec(image.to_vec())),
                None => host(source),
            },
        };
        Ok(Self {
            kind,
            place: parts.join(&b'/'),
            is_directory: place.ends_with(b"/"),
        })
    }

    /// Returns whether it is an image of a container.
    pub(crate) fn is_image(&self) -> bool {
        matches!(self.kind, Kind::Image(_))
    }

    /// Reports an error of a volume at its place. Returns any other failure.
    pub(crate) fn explain(&self, failure: NewVolumeError, app: &mut App) -> NewVolumeError {
        let image = match &self.kind {
            Kind::Host(path) => Image::of(path.clone(), Part::Whole),
            Kind::Part(image) => image.clone(),
            Kind::Input | Kind::Image(..) => return failure,
        };
        let error = match failure {
            NewVolumeError::Volume(error) => error,
            // The file is no archive.
            NewVolumeError::Failed(reason) => {
                let disk = || {
                    let names = partitions(&image.file)?;
                    Some(format!(
                        "this is a disk with partitions; name one of them: {names}"
                    ))
                };
                let hint = image_hint::missing(&image).or_else(disk);
                return NewVolumeError::Failed(match hint {
                    Some(hint) => format!("{}: {hint}", quoted(&image)),
                    None => reason,
                });
            }
            failure => return failure,
        };
        let path = error
            .path()
            .unwrap_or(Path::new("/"))
            .as_os_str()
            .to_owned();
        app.error(ImagePath::inside(image, &path), &error);
        NewVolumeError::Reported
    }

    /// Opens the source. Contents that can be read only once go to files without names next to
    /// `out`, or among temporary files if that is `-` for standard output. The output is left out
    /// of a directory that it is in.
    pub(super) fn open(
        &self,
        options: SourceOptions<'_>,
        out: &Path,
        app: &mut App,
    ) -> Result<OpenSource, NewVolumeError> {
        let is_stream = out.as_os_str() == "-";
        let beside = out
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let spool = &*if is_stream {
            Cow::Owned(std::env::temp_dir())
        } else {
            Cow::Borrowed(beside)
        };
        // A shell can send the stream to a file in the source.
        let out = if is_stream {
            Path::new("/dev/stdout")
        } else {
            out
        };
        let source: Box<dyn Source> = match &self.kind {
            Kind::Host(path) if path.is_dir() => Box::new(
                DirectorySource::new(path)?
                    .one_file_system(options.one_file_system)
                    .without_xattrs(options.without_xattrs)
                    .leave_out(out),
            ),
            Kind::Host(path) if is_volume(path) => {
                volume(&Image::of(path.clone(), Part::Whole), app)?
            }
            Kind::Host(path) => match self.file_place(path) {
                Some((prefix, name)) => {
                    let source = Box::new(FileSource::new(path, &name, options.without_xattrs)?);
                    return Ok(OpenSource {
                        source,
                        prefix,
                        config: None,
                    });
                }
                None => Box::new(archive(path, path, spool, app.stop())?),
            },
            Kind::Part(image) => volume(image, app)?,
            Kind::Input => Box::new(archive(
                Path::new("-"),
                Path::new("standard input"),
                spool,
                app.stop(),
            )?),
            Kind::Image(text) => {
                let image = oci_image::open(text, options.platform, spool, app.stop())?;
                let config = image.config().cloned();
                let prefix = self.place.clone();
                return Ok(OpenSource {
                    source: Box::new(image),
                    prefix,
                    config,
                });
            }
        };
        Ok(OpenSource {
            source,
            prefix: self.place.clone(),
            config: None,
        })
    }

    /// Returns the directory and the name that a file gets in the volume, if the source is a file
    /// with a place that is neither an archive nor a disk, by its contents and its name.
    fn file_place(&self, path: &Path) -> Option<(Vec<u8>, Vec<u8>)> {
        let stem = path.file_stem().map(Path::new);
        let has_suffix = [Some(path), stem].into_iter().flatten().any(|name| {
            name.extension()
                .is_some_and(|end| ARCHIVE_SUFFIXES.iter().any(|suffix| end == *suffix))
        });
        let is_plain = !has_suffix
            && std::fs::metadata(path).is_ok_and(|found| found.is_file())
            && File::open(path)
                .and_then(|file| TarSource::is_archive(&file))
                .is_ok_and(|is| !is)
            && partitions(path).is_none();
        if !is_plain {
            return None;
        }
        if self.is_directory {
            return Some((self.place.clone(), path.file_name()?.as_bytes().to_vec()));
        }
        let mut names = self.place.rsplitn(2, |byte| *byte == b'/');
        let name = names.next().filter(|name| !name.is_empty())?.to_vec();
        Some((names.next().unwrap_or_default().to_vec(), name))
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

#[cfg(test)]
mod tests {
    use super::{Argument, Kind};

    fn parse(text: &str) -> (Kind, String) {
        let Argument { kind, place, .. } = Argument::parse(text.as_ref()).expect("a source");
        (kind, String::from_utf8(place).expect("UTF-8"))
    }

    #[test]
    fn sources_are_told_apart() {
        let image = |text: &str| Kind::Image(text.into());
        assert_eq!(
            parse("root.tar"),
            (Kind::Host("root.tar".into()), String::new())
        );
        assert_eq!(parse("etc:/etc/"), (Kind::Host("etc".into()), "etc".into()));
        assert_eq!(parse("-:/a//b"), (Kind::Input, "a/b".into()));
        assert_eq!(parse("oci:alpine"), (image("alpine"), String::new()));
        assert_eq!(
            parse("oci:/x/alpine:3.20"),
            (image("/x/alpine:3.20"), String::new())
        );
        assert_eq!(
            parse("oci:alpine:3:/sub"),
            (image("alpine:3"), "sub".into())
        );
        assert_eq!(
            parse("oci:a.tar:docker.io/b:1:/sub"),
            (image("a.tar:docker.io/b:1"), "sub".into())
        );
        assert_eq!(parse("oci:-:/sub"), (image("-"), "sub".into()));
        assert!(Argument::parse("a:/../b".as_ref()).is_err());
    }
}
