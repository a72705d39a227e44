//! `extern4 stat`: shows everything about files, as GNU `stat` does.
//!
//! `args` calls [`run`], and other subcommands take their JSON members and words from here.

mod format;

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::{FileType, Metadata, Timespec};
use schemars::JsonSchema;
use serde::Serialize;

use super::df::Space;
use crate::app::{App, Opened, Shown, Target};
use crate::image_path::ImagePath;
use crate::json::{self, FileName, Object};
use crate::output::flush;
use crate::text::{ModeText, escape, full_time, octal_mode, type_name};

use format::Format;

/// The directives of -t.
const TERSE: &str = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o";
const TERSE_FILE_SYSTEM: &str = "%n %i %l %t %s %S %b %f %a %c %d";

/// The format of `-f`.
const FILE_SYSTEM: &str = "  File: \"%n\"\n    ID: %-8i Namelen: %-7l Type: %T\n\
    Block size: %-10s Fundamental block size: %S\n\
    Blocks: Total: %-10b Free: %-10f Available: %a\nInodes: Total: %-10c Free: %d\n";

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct Args {
    /// Files to show
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Show the volumes that the files are in
    #[arg(short, long)]
    file_system: bool,
    /// Show this instead, with GNU stat's %-directives: %a %A %b %B %C %f %F %g %G %h %i %m %n %N
    /// %o %r %R %s %t %T %u %U and %w %x %y %z (times) and %W %X %Y %Z (in seconds); with -f, %a %b
    /// %c %d %f %i %l %n %s %S %t %T
    #[arg(short = 'c', long, value_name = "FORMAT")]
    format: Option<String>,
    /// Like --format, with escapes such as \n, and without a line feed at the end
    #[arg(long, value_name = "FORMAT", conflicts_with = "format")]
    printf: Option<String>,
    /// No effect: attributes of a volume are always those on it
    #[arg(long, value_name = "MODE")]
    cached: Option<String>,
    /// Show everything in one line
    #[arg(short, long, conflicts_with_all = ["format", "printf"])]
    terse: bool,
    /// Write one JSON object a line for each file
    #[arg(long, conflicts_with_all = ["format", "printf", "terse"])]
    json: bool,
}

impl Args {
    /// Returns the format that the options ask for.
    fn format(&self) -> Option<Format<'_>> {
        let plain = |text| Format {
            text,
            escapes: false,
        };
        let terse = if self.file_system {
            TERSE_FILE_SYSTEM
        } else {
            TERSE
        };
        let people = self.file_system.then_some(Format {
            text: FILE_SYSTEM,
            escapes: true,
        });
        self.format
            .as_deref()
            .map(plain)
            .or_else(|| {
                self.printf.as_deref().map(|text| Format {
                    text,
                    escapes: true,
                })
            })
            .or_else(|| self.terse.then(|| plain(terse)))
            .or(people)
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let shown = app.shown_for(&args.image_paths);
    let mut out = app.out(shown.is_complete());
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let session = target.session();
        let found = if args.dereference || args.file_system {
            session.metadata(target.path())
        } else {
            session.symlink_metadata(target.path())
        };
        let text = found.and_then(|metadata| {
            if args.file_system {
                file_system(args, &target, shown)
            } else {
                Ok(render(args, &target, shown, &metadata))
            }
        });
        match text {
            Ok(text) => out.write_all(&text)?,
            Err(error) => {
                flush(&mut out)?;
                app.error(image_path, &error);
            }
        }
    }
    app.end_output(&mut out)
}

/// A volume.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FileSystemLine {
    #[serde(flatten)]
    file: FileName,
    #[serde(flatten)]
    space: Space,
    /// Bytes of the longest name.
    name_max: u32,
    /// The number of the type of file system.
    magic: u32,
    /// The number of the volume, in hexadecimal.
    fsid: String,
}

/// Returns what there is to say about the volume of a file.
fn file_system(args: &Args, target: &Target, shown: Shown) -> extern4::Result<Vec<u8>> {
    let found = target.volume.volume.stat_fs()?;
    if args.json {
        let line = json::to_line(&FileSystemLine {
            file: FileName::of(&target.volume.image, target.path()),
            space: (&found).into(),
            name_max: found.name_max,
            magic: found.magic,
            fsid: format::id(&found),
        });
        return Ok(line.into_bytes());
    }
    let name = shown.path(&target.image_path.image, target.path());
    let format = args.format().unwrap_or(Format {
        text: FILE_SYSTEM,
        escapes: true,
    });
    Ok(format.fill(|_, letter| format::of_file_system(&name, &found, letter)))
}

fn render(args: &Args, target: &Target, shown: Shown, metadata: &Metadata) -> Vec<u8> {
    if args.json {
        let line = json::line(|object| members(object, &target.volume, target.path(), metadata));
        return line.into_bytes();
    }
    let file = format::File {
        name: shown.path(&target.image_path.image, target.path()),
        link: link_target(&target.volume, target.path(), metadata),
        image: target.image_path.image.to_string(),
        context: context(target),
        names: target.volume.names(),
        metadata,
    };
    match args.format() {
        Some(format) => format.fill(|part, letter| file.value(part, letter)),
        None => people(&file, target),
    }
}

/// Returns the security context (SELinux) of a file.
fn context(target: &Target) -> Option<Vec<u8>> {
    let context = target
        .session()
        .lgetxattr(target.path(), "security.selinux")
        .ok()??;
    let end = context
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(context.len());
    Some(escape(&context[..end]).into_owned().into_bytes())
}

fn link_target(volume: &Opened, path: &Path, metadata: &Metadata) -> Option<Vec<u8>> {
    if !metadata.is_symlink() {
        return None;
    }
    Some(
        volume
            .session
            .read_link(path)
            .ok()?
            .as_os_str()
            .as_bytes()
            .to_vec(),
    )
}

fn people(file: &format::File<'_>, target: &Target) -> Vec<u8> {
    let metadata = file.metadata;
    let kind = metadata.file_type();
    let mut text = b"  File: ".to_vec();
    text.extend_from_slice(&file.name);
    if let Some(link) = &file.link {
        text.extend_from_slice(b" -> ");
        text.extend_from_slice(escape(link).as_bytes());
    }
    let device = match kind {
        FileType::CharDevice | FileType::BlockDevice => {
            format!(
                "     Device type: {},{}",
                metadata.rdev().major,
                metadata.rdev().minor
            )
        }
        _ => String::new(),
    };
    let birth = metadata.btime().map_or_else(|| "-".to_owned(), full_time);
    let rest = format!(
        "\n  Size: {:<10}\tBlocks: {:<10} IO Block: {:<6} {}\n\
         Device: {}\tInode: {:<11} Links: {}{device}\n\
         Access: ({}/{})  Uid: ({:>5}/{:>8})   Gid: ({:>5}/{:>8})\n\
         Access: {}\nModify: {}\nChange: {}\n Birth: {birth}\n",
        metadata.len(),
        metadata.blocks(),
        metadata.blksize(),
        type_name(kind, metadata.len()),
        target.image_path.image,
        metadata.ino(),
        metadata.nlink(),
        octal_mode(metadata.mode()),
        ModeText {
            kind,
            mode: metadata.mode()
        },
        metadata.uid(),
        file.names.user(metadata.uid()),
        metadata.gid(),
        file.names.group(metadata.gid()),
        full_time(metadata.atime()),
        full_time(metadata.mtime()),
        full_time(metadata.ctime()),
    );
    text.extend_from_slice(rest.as_bytes());
    text
}

/// Writes the members that describe a file in JSON, the same in every subcommand.
pub(crate) fn members(object: &mut Object<'_>, volume: &Opened, path: &Path, metadata: &Metadata) {
    json::file(object, &volume.image, path);
    object.text("type", type_word(metadata.file_type()));
    object.raw("ino", metadata.ino());
    object.text("mode", &octal_mode(metadata.mode()));
    object.raw("nlink", metadata.nlink());
    object.raw("uid", metadata.uid());
    object.raw("gid", metadata.gid());
    object.raw("size", metadata.len());
    object.raw("blocks", metadata.blocks());
    for (key, time) in [
        ("atime", Some(metadata.atime())),
        ("mtime", Some(metadata.mtime())),
        ("ctime", Some(metadata.ctime())),
        ("btime", metadata.btime()),
    ] {
        object.text_or_null(key, time.map(seconds).as_deref());
        json::time(object, key, time);
    }
    object.raw("flags", metadata.flags().bits());
    object.raw("project", metadata.project());
    object.raw("generation", metadata.generation());
    if matches!(
        metadata.file_type(),
        FileType::CharDevice | FileType::BlockDevice
    ) {
        object.numbers("rdev", [metadata.rdev().major, metadata.rdev().minor]);
    }
    if let Some(link) = link_target(volume, path, metadata) {
        object.bytes("target", &link);
    }
}

/// Returns the type as one word for scripts.
pub(crate) const fn type_word(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char",
        FileType::BlockDevice => "block",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Returns the seconds since 1970 as an exact decimal number.
pub(crate) fn seconds(time: Timespec) -> String {
    // Nanoseconds count forward, also before 1970.
    if time.sec < 0 && time.nsec > 0 {
        return format!(
            "-{}.{:09}",
            (time.sec + 1).unsigned_abs(),
            1_000_000_000 - time.nsec
        );
    }
    format!("{}.{:09}", time.sec, time.nsec)
}

#[cfg(test)]
mod tests {
    use super::seconds;
    use extern4::Timespec;

    #[test]
    fn seconds_are_exact() {
        let check = |sec, nsec, shown: &str| assert_eq!(seconds(Timespec { sec, nsec }), shown);
        check(0, 0, "0.000000000");
        check(1, 5, "1.000000005");
        check(-1, 500_000_000, "-0.500000000");
        check(-2, 0, "-2.000000000");
        check(-2, 1, "-1.999999999");
    }
}
