//! `extern4 inode`: shows an inode as the volume stores it, and the map of its blocks.
//!
//! `args` calls [`run`]. It shows also inodes that no path leads to. It changes nothing. A damaged map is an error that names the place.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use extern4::Timespec;
use extern4::info::{FileKind, MapPiece, StoredInode, Timestamp, Use};

use crate::app::{App, Target};
use crate::image_path::ImagePath;
use crate::json::{self, Object};
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

fn json_line(target: &Target, stored: &StoredInode) -> String {
    let inode = &stored.inode;
    json::line(|object| {
        object.text("image", &target.image_path.image.to_string());
        object.raw("ino", inode.ino());
        if let Some((block, offset)) = stored.position {
            object.raw("record_block", block);
            object.raw("record_offset", offset);
        }
        object.text("kind", kind_name(inode.kind()));
        object.text("mode", &octal_mode(inode.mode().into()));
        object.raw("links", inode.links());
        object.raw("uid", inode.uid());
        object.raw("gid", inode.gid());
        object.raw("project", inode.project());
        object.raw("size", inode.size());
        object.raw("sectors", inode.sectors());
        object.raw("flags", inode.flags().bits());
        object.texts("flag_names", inode.flags().named().map(|(_, name)| name));
        object.raw("generation", inode.generation());
        object.raw("version", inode.version());
        for (key, time) in [
            ("atime", Some(inode.atime())),
            ("mtime", Some(inode.mtime())),
            ("ctime", Some(inode.ctime())),
            ("crtime", inode.crtime()),
        ] {
            json::time(object, key, time.map(timespec));
        }
        object.raw("dtime", inode.dtime());
        let deleted = Some(inode.dtime()).filter(|seconds| *seconds != 0);
        json::time(
            object,
            "dtime",
            deleted.map(|seconds| Timespec {
                sec: seconds.into(),
                nsec: 0,
            }),
        );
        object.raw("extra_isize", inode.extra_isize());
        object.maybe("xattr_block", inode.xattr_block());
        object.objects("blocks", &stored.map, json_piece);
    })
}

fn json_piece(piece: &MapPiece, object: &mut Object<'_>) {
    match piece.used {
        Use::Data { logical, unwritten } => {
            object.text("use", "data");
            object.raw("logical", logical);
            object.raw("unwritten", unwritten);
        }
        Use::Map { level, logical } => {
            object.text("use", "map");
            object.raw("logical", logical);
            object.raw("level", level);
        }
        Use::Xattr => object.text("use", "xattr"),
    }
    object.raw("physical", piece.physical);
    object.raw("len", piece.len_blocks);
}
