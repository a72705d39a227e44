//! `extern4 block`: shows the use of a block of the volume, and its contents.
//!
//! `args` calls [`run`]. It reads metadata as it is stored, and changes nothing.

mod owner;

use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use extern4::info::{BlockOwner, BlockOwners, is_block_used, read_block};
use extern4::{Ext4, Volume};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::json::{self, Hex};
use crate::output::{Out, flush, out};
use crate::text::escape;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The volume
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image_path: ImagePath,
    /// Blocks to look at
    #[arg(value_name = "BLOCK", required = true)]
    blocks: Vec<u64>,
    /// Show the contents in hexadecimal
    #[arg(short = 'x', long)]
    hex: bool,
    /// Write the contents as they are, and nothing else
    #[arg(long, conflicts_with_all = ["hex", "json"])]
    raw: bool,
    /// Write one JSON object a line for each block
    #[arg(long, conflicts_with = "hex")]
    json: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let Some(volume) = app.volume(&args.image_path.image) else {
        return Ok(());
    };
    let ext4 = volume.volume.ext4();
    let shown = app.shown_for([&args.image_path]);
    let mut out = out();
    let blocks_count = ext4.superblock().blocks_count();
    let (blocks, outside): (Vec<u64>, Vec<u64>) =
        args.blocks.iter().partition(|block| **block < blocks_count);
    for block in outside {
        let image = &args.image_path.image;
        app.fail_at(
            ExitStatus::Failed,
            image,
            format_args!("there is no block {block}: it has {blocks_count}"),
        );
    }
    if args.raw {
        for block in blocks {
            contents(&volume.volume, block, args, app, |bytes| {
                out.write_all(bytes)
            })?;
        }
        return flush(&mut out);
    }
    let owners = BlockOwners::of(&volume.volume, &blocks);
    for error in owners.errors() {
        app.error(&args.image_path.image, error);
    }
    for block in blocks {
        let owner = owners.owner(block);
        let in_use = is_block_used(&volume.volume, block);
        if args.json {
            out.write_all(json_line(args, block, in_use, owner).as_bytes())?;
            continue;
        }
        let owner = owner::text(owner, |path| {
            if shown.is_complete() {
                String::from_utf8_lossy(&shown.path(&volume.image, path)).into_owned()
            } else {
                escaped(path)
            }
        });
        describe(ext4, block, in_use, &owner, &mut out)?;
        if args.hex {
            contents(&volume.volume, block, args, app, |bytes| {
                out.write_all(hex(bytes).as_bytes())
            })?;
        }
    }
    flush(&mut out)
}

fn contents(
    volume: &Volume,
    block: u64,
    args: &Args,
    app: &mut App,
    write: impl FnOnce(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    match read_block(volume, block) {
        Ok(contents) => write(&contents),
        Err(error) => {
            app.error(&args.image_path.image, &error);
            Ok(())
        }
    }
}

fn describe(
    ext4: &Ext4,
    block: u64,
    in_use: Option<bool>,
    owner: &str,
    out: &mut Out,
) -> io::Result<()> {
    let group = match ext4.superblock().geometry().group_of_block(block) {
        Some(group) => format!("group {group}"),
        None => "no group".to_owned(),
    };
    let used = match in_use {
        Some(true) => ", in use",
        Some(false) => ", free",
        None => "",
    };
    writeln!(out, "block {block}: {group}{used}: {owner}")
}

fn escaped(path: &Path) -> String {
    escape(path.as_os_str().as_bytes()).into_owned()
}

/// Returns the bytes in hexadecimal and as text, sixteen a line.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut last: Option<&[u8]> = None;
    let mut repeated = false;
    for (index, row) in bytes.chunks(16).enumerate() {
        if last == Some(row) {
            if !repeated {
                text.push_str("*\n");
            }
            repeated = true;
            continue;
        }
        (last, repeated) = (Some(row), false);
        let numbers: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
        let letters: String = row
            .iter()
            .map(|byte| {
                if (b' '..=b'~').contains(byte) {
                    char::from(*byte)
                } else {
                    '.'
                }
            })
            .collect();
        text.push_str(&format!("{:06x}  {numbers:48} {letters}\n", index * 16));
    }
    text.push_str(&format!("{:06x}\n", bytes.len()));
    text
}

/// A block.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Line {
    /// The image, as the command line names it.
    image: String,
    /// The block.
    block: u64,
    /// Whether it is in use; null where no bitmap tells.
    in_use: Option<bool>,
    /// Its purpose.
    #[schemars(extend("enum" = [
        "none", "descriptors", "block_bitmap", "inode_bitmap", "inode_table", "data", "map", "xattr"
    ]))]
    #[serde(rename = "use")]
    word: &'static str,
    /// The inode that it belongs to.
    ino: Option<u32>,
    /// The path of that inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    path: Option<String>,
    /// The exact bytes of `path`, where those are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Hex")]
    path_hex: Option<Hex>,
    /// Its purpose in words.
    description: String,
}

fn json_line(args: &Args, block: u64, in_use: Option<bool>, owner: &BlockOwner) -> String {
    let path = owner::path(owner);
    json::to_line(&Line {
        image: args.image_path.image.to_string(),
        block,
        in_use,
        word: owner::word(owner),
        ino: owner::ino(owner),
        path: path.map(|path| String::from_utf8_lossy(path).into_owned()),
        path_hex: path.and_then(Hex::of_name),
        description: owner::text(owner, escaped),
    })
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn repeated_lines_are_left_out() {
        let mut bytes = vec![0; 64];
        bytes[0] = b'A';
        let first = "000000  41 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  A...............\n";
        let second = "000010  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................\n";
        assert_eq!(hex(&bytes), format!("{first}{second}*\n000040\n"));
    }
}
