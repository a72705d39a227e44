//! `extern4 export`: writes a tree of a volume to a tar archive, a directory of the host, or an
//! image of a container.
//!
//! `args` calls [`run`]. A file that the output cannot hold is reported.

mod pace;

use std::ffi::{OsStr, OsString};
use std::fs::File as HostFile;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use extern4::build::{Platform, Unreadable, split_reference};
use extern4::export::{
    ExportError, LayerCompression, LayoutOptions, export_archive, export_archive_file,
    export_layout,
};
use extern4::tar::Compression;

use crate::app::{App, Target, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::oci_image::platform;
use crate::volume_tree::{at, path_below, report_unreadable};

pub(super) use self::pace::Pace;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to write; the whole volume if an image is named alone
    #[arg(value_name = "IMAGE:/PATH", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// Where to: a tar archive, compressed if its name ends in .zst or .tzst; - for an archive on
    /// standard output; a directory that exists, or DIR/; or oci:DIR[:NAME] for an OCI layout
    #[arg(short, long, value_name = "OUTPUT", value_parser = Output::parser())]
    output: Output,
    /// Compress an archive or a layer with zstd, whatever the name says
    #[arg(long)]
    zstd: bool,
    /// The platform that an OCI layout names (default: that of this machine)
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", value_parser = platform)]
    platform: Option<Platform>,
    /// Replace files that are there
    #[arg(short = 'F', long)]
    force: bool,
}

/// Where an export goes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Output {
    Stdout,
    Archive(PathBuf),
    Directory(PathBuf),
    /// An OCI layout, and the name of the image in it.
    Layout(PathBuf, String),
}

/// The name of an image that is given none.
const LATEST: &str = "latest";

impl Output {
    fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().map(|text| Self::parse(&text, Path::is_dir))
    }

    /// `is_directory` says what exists.
    fn parse(text: &OsStr, is_directory: impl Fn(&Path) -> bool) -> Self {
        let bytes = text.as_bytes();
        let path = Path::new(text);
        if bytes == b"-" {
            return Self::Stdout;
        }
        if let Some(layout) = bytes.strip_prefix(b"oci:") {
            return Self::layout(layout);
        }
        if bytes.ends_with(b"/") || is_directory(path) {
            return Self::Directory(path.to_owned());
        }
        Self::Archive(path.to_owned())
    }

    /// `DIR` or `DIR:NAME`. Behind a directory that exists, all is the image's name, and so is what
    /// begins with a registry.
    fn layout(text: &[u8]) -> Self {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        if let (directory, Some(tag)) = split_reference(OsStr::from_bytes(text))
            && (directory.is_dir() || has_registry(tag))
            && !tag.is_empty()
        {
            return Self::Layout(directory.to_owned(), tag.to_owned());
        }
        let colon = text.iter().rposition(|byte| *byte == b':');
        let tag = colon.and_then(|at| std::str::from_utf8(&text[at + 1..]).ok());
        match (
            colon,
            tag.filter(|tag| !tag.is_empty() && !tag.contains('/')),
        ) {
            (Some(at), Some(tag)) => Self::Layout(path(&text[..at]), tag.to_owned()),
            _ => Self::Layout(path(text), LATEST.to_owned()),
        }
    }

    /// Returns the path for messages.
    fn path(&self) -> &Path {
        match self {
            Self::Stdout => Path::new("standard output"),
            Self::Archive(path) | Self::Directory(path) | Self::Layout(path, _) => path,
        }
    }
}

/// Returns whether an image's name begins with a registry: the name of a host and a slash.
///
/// Source: the reference documentation of Docker, "docker image tag".
fn has_registry(name: &str) -> bool {
    let host = name.split_once('/').map(|(host, _)| host);
    host.is_some_and(|host| host.trim_matches('.').contains('.') || host == "localhost")
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if let Some((option, reason)) = args.useless_option() {
        app.fail(
            ExitStatus::Usage,
            format_args!("{option} has no effect here: {reason}"),
        );
        return Ok(());
    }
    app.stop_on_signals();
    let Some(target) = app.target(&args.image_path) else {
        return Ok(());
    };
    if let Output::Directory(path) = &args.output {
        match make_directory(path, args.force) {
            Ok(()) => super::cp::export(&target, path, app),
            Err(reason) => app.fail_at(ExitStatus::Failed, path.display(), reason),
        }
        return Ok(());
    }
    let mut pace = Pace::begin("exported", app);
    match export(args, &target, &mut pace) {
        Ok(()) => {
            for (path, reason) in pace.left_out {
                let image_path = target.volume.image_path(&path_below(target.path(), &path));
                app.fail_at(
                    ExitStatus::Failed,
                    image_path,
                    format_args!("{reason}; left out"),
                );
            }
        }
        Err(ExportError::Volume(unreadable)) => report_unreadable(&unreadable, &target, app),
        Err(ExportError::Interrupted) => match &args.output {
            Output::Stdout => app.report_stop("the archive is not whole"),
            output => app.report_stop(format_args!("'{}' is not made", output.path().display())),
        },
        Err(error) => app.fail_at(
            ExitStatus::Failed,
            args.output.path().display(),
            reason(&error),
        ),
    }
    Ok(())
}

/// Returns the reason of an export whose output cannot be written.
pub(super) fn reason(error: &ExportError) -> String {
    match error {
        ExportError::Output(error) => host_reason(error),
        ExportError::Exists => format!("{error} (--force replaces it)"),
        error => error.to_string(),
    }
}

/// Writes the archive or the layout.
fn export(args: &Args, target: &Target, pace: &mut Pace) -> Result<(), ExportError> {
    let top = at(target.session(), target.path().as_os_str().as_bytes());
    let top = top.map_err(|error| Unreadable {
        path: Vec::new(),
        error,
    })?;
    let compression = args.is_compressed().then_some(Compression::Zstd);
    match &args.output {
        Output::Stdout => {
            let out = HostFile::from(rustix::io::dup(io::stdout()).map_err(io::Error::from)?);
            export_archive(&top, out, compression, pace).map(drop)
        }
        Output::Archive(path) => export_archive_file(&top, path, compression, args.force, pace),
        Output::Layout(path, name) => {
            let mut options = LayoutOptions {
                name: name.clone(),
                replace: args.force,
                ..LayoutOptions::default()
            };
            if args.zstd {
                options.compression = LayerCompression::Zstd;
            }
            options.platform = args.platform.clone().unwrap_or(options.platform);
            export_layout(&top, path, &options, pace)
        }
        // It is a copy.
        Output::Directory(_) => Ok(()),
    }
}

/// Makes a directory, unless there is an empty one.
fn make_directory(path: &Path, may_hold_files: bool) -> Result<(), String> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(|error| host_reason(&error)),
    }
    let mut files = std::fs::read_dir(path).map_err(|error| host_reason(&error))?;
    if !may_hold_files && files.next().is_some() {
        let reason =
            "Directory not empty (--force writes to it and replaces files of the same names)";
        return Err(reason.to_owned());
    }
    Ok(())
}

impl Args {
    /// Returns an option that has no effect on the output, and why.
    fn useless_option(&self) -> Option<(&'static str, &'static str)> {
        match self.output {
            Output::Layout(..) => None,
            _ if self.platform.is_some() => Some(("--platform", "only an OCI layout names one")),
            Output::Directory(_) if self.zstd => Some(("--zstd", "a directory is not compressed")),
            _ => None,
        }
    }

    /// Returns whether an archive is compressed.
    fn is_compressed(&self) -> bool {
        let suffix = self.output.path().extension();
        self.zstd || suffix.is_some_and(|suffix| suffix == "zst" || suffix == "tzst")
    }
}

#[cfg(test)]
mod tests {
    use super::Output;

    #[test]
    fn outputs_are_told_apart() {
        let check = |text: &str, expected: Output| {
            assert_eq!(
                Output::parse(text.as_ref(), |path| path.ends_with("here")),
                expected,
                "{text}"
            );
        };
        let layout = |dir: &str, tag: &str| Output::Layout(dir.into(), tag.into());
        check("-", Output::Stdout);
        check("a.tar", Output::Archive("a.tar".into()));
        check("out", Output::Archive("out".into()));
        check("out/", Output::Directory("out/".into()));
        check("x/here", Output::Directory("x/here".into()));
        check("oci:out", layout("out", "latest"));
        check("oci:out:1.2", layout("out", "1.2"));
        check("oci:a:b/out", layout("a:b/out", "latest"));
        check("oci:out:", layout("out:", "latest"));
        check(
            "oci:out:docker.io/library/web:1",
            layout("out", "docker.io/library/web:1"),
        );
        check("oci:../a:../b", layout("../a:../b", "latest"));
    }
}
