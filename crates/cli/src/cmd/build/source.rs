//! The sources that a command line names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use extern4_tree::{DirectorySource, Result, Source};

/// A source as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument {
    kind: Kind,
    /// The directory of the volume that its root becomes, without a slash in front.
    prefix: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A directory or a file of the host.
    Host(PathBuf),
}

impl Argument {
    /// A clap parser for sources.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|text| Self::parse(&text))
    }

    /// `SOURCE` or `SOURCE:/PATH`; a file that has such a name is meant as a whole.
    fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let colon = bytes.windows(2).rposition(|pair| pair == b":/");
        let (host, prefix) = match colon {
            Some(at) if !Path::new(text).exists() => (&bytes[..at], &bytes[at + 1..]),
            _ => (bytes, &b""[..]),
        };
        let parts: Vec<&[u8]> = prefix.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let host = PathBuf::from(OsString::from_vec(host.to_vec()));
        Self { kind: Kind::Host(host), prefix: parts.join(&b'/') }
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Opens the source. What has to be kept until it is written goes to files without names next to `out`.
    pub(crate) fn open(&self, one_file_system: bool, _out: &Path) -> Result<Box<dyn Source>> {
        let Kind::Host(path) = &self.kind;
        Ok(Box::new(DirectorySource::new(path)?.one_file_system(one_file_system)))
    }
}
