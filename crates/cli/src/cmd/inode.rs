//! `extern4 inode`: shows an inode as the volume stores it, and the map of its blocks.
//!
//! `args` calls [`run`]. It shows also inodes that no path leads to, and changes nothing. A damaged
//! map is an error that names the place.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use extern4::Timespec;
use extern4::info::{FileKind, MapPiece, StoredInode, Timestamp, Use};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, Target};
use crate::image_path::ImagePath;
use crate::json::{self, Rfc3339};
use crate::output::{flush, out};
use crate::text::{full_time, octal_mode};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Files whose inodes to show; with --number only their volumes count
    #[arg(value_name = "IMAGE:/PATH", required = true, value_parser = ImagePath::parser())]
    image_paths: Vec<ImagePath>,
    /// Show the inode of this number, also if it is reserved, deleted or one of the volume's own
    #[arg(short, long, value_name = "INODE")]
    number: Option<u32>,
    /// Write one JSON object a line for each inode
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let mut out = out();
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let Some(ino) = number(args, &target, app) else {
            continue;
        };
        let stored = match extern4::info::inode(&target.volume.volume, ino) {
            Ok(stored) => stored,
            Err(error) => {
                flush(&mut out)?;
                app.error(&image_path.image, &error);
                continue;
            }
        };
        let text = if args.json {
            json_line(&target, &stored)
        } else {
            people(&stored)
        };
        out.write_all(text.as_bytes())?;
        if let Some(error) = &stored.map_fault {
            flush(&mut out)?;
            app.error(image_path, error);
        }
    }
    flush(&mut out)
}

fn number(args: &Args, target: &Target, app: &mut App) -> Option<u32> {
    if args.number.is_some() {
        return args.number;
    }
    match target.session().symlink_metadata(target.path()) {
        Ok(found) => u32::try_from(found.ino()).ok(),
        Err(error) => {
            app.error(&target.image_path, &error);
            None
        }
    }
}

const fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::None => "none",
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "character device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block device",
        FileKind::Regular => "regular file",
        FileKind::Symlink => "symbolic link",
        FileKind::Socket => "socket",
    }
}

fn people(stored: &StoredInode) -> String {
    let inode = &stored.inode;
    let mut lines: Vec<(&str, String)> = vec![("Inode", inode.ino().to_string())];
    if let Some((block, offset)) = stored.position {
        lines.push(("Record", format!("block {block}, offset {offset}")));
    }
    let flags: Vec<_> = inode.flags().named().map(|(_, name)| name).collect();
    let time = |time: Timestamp| full_time(timespec(time));
    lines.extend([
        ("Type", kind_name(inode.kind()).to_owned()),
        ("Mode", octal_mode(inode.mode().into())),
        ("Links", inode.links().to_string()),
        ("User", inode.uid().to_string()),
        ("Group", inode.gid().to_string()),
        ("Project", inode.project().to_string()),
        ("Size", inode.size().to_string()),
        ("Sectors", inode.sectors().to_string()),
        (
            "Flags",
            format!(
                "{:#x} {} {}",
                inode.flags().bits(),
                inode.flags().letters(),
                flags.join(" ")
            ),
        ),
        ("Generation", inode.generation().to_string()),
        ("Version", inode.version().to_string()),
        ("Accessed", time(inode.atime())),
        ("Modified", time(inode.mtime())),
        ("Changed", time(inode.ctime())),
        ("Made", inode.crtime().map_or_else(|| "-".to_owned(), time)),
        (
            "Deleted",
            match inode.dtime() {
                0 => "-".to_owned(),
                seconds => crate::text::iso_time(seconds.into()),
            },
        ),
        ("Extra size", inode.extra_isize().to_string()),
        (
            "Attributes",
            inode
                .xattr_block()
                .map_or_else(|| "-".to_owned(), |block| format!("block {block}")),
        ),
    ]);
    if let Some(device) = inode.device() {
        lines.push(("Device", format!("{}, {}", device.major, device.minor)));
    }
    let mut text = String::new();
    for (name, value) in lines {
        writeln!(text, "{:<12}{}", format!("{name}:"), value.trim_end())
            .expect("a string takes everything");
    }
    if !stored.map.is_empty() {
        text.push_str("Blocks:\n");
        stored
            .map
            .iter()
            .for_each(|piece| text.push_str(&line(piece)));
    }
    text.push('\n');
    text
}

/// Returns the line for a piece of the map, indented by its depth.
fn line(piece: &MapPiece) -> String {
    let range = |first: u64, len: u64| {
        if len == 1 {
            first.to_string()
        } else {
            format!("{first}-{}", first.saturating_add(len) - 1)
        }
    };
    let indent = "  ".repeat(piece.depth as usize + 1);
    let physical = range(piece.physical, piece.len_blocks);
    match piece.used {
        Use::Data { logical, unwritten } => {
            let unwritten = if unwritten { " unwritten" } else { "" };
            format!(
                "{indent}{}: {physical}{unwritten}\n",
                range(logical, piece.len_blocks)
            )
        }
        Use::Map { level, logical } => {
            format!("{indent}from {logical}: map in {physical}, level {level}\n")
        }
        Use::Xattr => format!("{indent}attributes in {physical}\n"),
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec {
        sec: time.seconds,
        nsec: time.nanos,
    }
}

/// An inode.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Line {
    /// The image, as the command line names it.
    image: String,
    /// The inode number.
    ino: u32,
    /// The block that the inode is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    record_block: Option<u64>,
    /// The byte of that block at which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    record_offset: Option<u32>,
    /// The type.
    #[schemars(extend("enum" = [
        "none", "fifo", "character device", "directory", "block device", "regular file",
        "symbolic link", "socket"
    ]))]
    kind: &'static str,
    /// The permission bits in octal.
    #[schemars(extend("pattern" = "^[0-7]{4}$"))]
    mode: String,
    /// Names that the file has.
    links: u32,
    /// The owner.
    uid: u32,
    /// The group.
    gid: u32,
    /// The project.
    project: u32,
    /// Bytes of contents.
    size: u64,
    /// Units of 512 bytes that the file takes.
    sectors: u64,
    /// The flags of the inode.
    flags: u32,
    /// Their names.
    flag_names: Vec<&'static str>,
    /// The generation of the inode.
    generation: u32,
    /// The number of changes.
    version: u64,
    /// The last access.
    atime_rfc3339: Rfc3339,
    /// The last change of contents.
    mtime_rfc3339: Rfc3339,
    /// The last change of attributes.
    ctime_rfc3339: Rfc3339,
    /// When the file was made, if the volume notes it.
    crtime_rfc3339: Rfc3339,
    /// When the file was deleted, in seconds since 1970, or the next orphan; 0 for neither.
    dtime: u32,
    /// When the file was deleted.
    dtime_rfc3339: Rfc3339,
    /// Bytes behind the first 128 that the inode uses.
    extra_isize: u32,
    /// The block of its extended attributes.
    xattr_block: Option<u64>,
    /// Its blocks.
    blocks: Vec<Run>,
}

/// A run of blocks.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "use", rename_all = "lowercase")]
#[schemars(inline, deny_unknown_fields, transform = json::describe_tags)]
enum Run {
    /// Contents.
    Data {
        /// The first block of the file.
        logical: u64,
        /// Whether it reads as zeroes.
        unwritten: bool,
        /// The first block of the volume.
        physical: u64,
        /// Blocks.
        len: u64,
    },
    /// A part of the map of blocks.
    Map {
        /// The first block of the file that it maps.
        logical: u64,
        /// Levels of the map below it.
        level: u32,
        /// The block of the volume.
        physical: u64,
        /// Blocks.
        len: u64,
    },
    /// Extended attributes.
    Xattr {
        /// The block of the volume.
        physical: u64,
        /// Blocks.
        len: u64,
    },
}

impl From<&MapPiece> for Run {
    fn from(piece: &MapPiece) -> Self {
        let physical = piece.physical;
        let len = piece.len_blocks;
        match piece.used {
            Use::Data { logical, unwritten } => Self::Data {
                logical,
                unwritten,
                physical,
                len,
            },
            Use::Map { level, logical } => Self::Map {
                logical,
                level,
                physical,
                len,
            },
            Use::Xattr => Self::Xattr { physical, len },
        }
    }
}

fn json_line(target: &Target, stored: &StoredInode) -> String {
    let inode = &stored.inode;
    let deleted = Some(inode.dtime()).filter(|seconds| *seconds != 0);
    json::to_line(&Line {
        image: target.image_path.image.to_string(),
        ino: inode.ino(),
        record_block: stored.position.map(|(block, _)| block),
        record_offset: stored.position.map(|(_, offset)| offset),
        kind: kind_name(inode.kind()),
        mode: octal_mode(inode.mode().into()),
        links: inode.links().into(),
        uid: inode.uid(),
        gid: inode.gid(),
        project: inode.project(),
        size: inode.size(),
        sectors: inode.sectors(),
        flags: inode.flags().bits(),
        flag_names: inode.flags().named().map(|(_, name)| name).collect(),
        generation: inode.generation(),
        version: inode.version(),
        atime_rfc3339: timespec(inode.atime()).into(),
        mtime_rfc3339: timespec(inode.mtime()).into(),
        ctime_rfc3339: timespec(inode.ctime()).into(),
        crtime_rfc3339: inode.crtime().map(timespec).into(),
        dtime: inode.dtime(),
        dtime_rfc3339: deleted
            .map(|seconds| json::at_seconds(seconds.into()))
            .into(),
        extra_isize: inode.extra_isize().into(),
        xattr_block: inode.xattr_block(),
        blocks: stored.map.iter().map(Run::from).collect(),
    })
}
