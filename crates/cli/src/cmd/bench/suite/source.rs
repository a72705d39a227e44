//! The volume that is measured: a writable copy, or the image itself.
//!
//! `run` calls it once. Where a copy cannot be made, it returns the reason, and the suite measures
//! only reading, on the image.

use std::fs::File;
use std::io;

use extern4::Volume;
use rustix::process::{getegid, geteuid};

use super::progress::Progress;
use super::scratch::Scratch;
use super::side::Source;
use super::stop::Stop;
use super::subjects::{Subjects, write_bytes};
use super::{Result, SuiteError};
use crate::app::{Opening, host_reason, open};
use crate::cmd::bench::copy;
use crate::image_path::{Image, Part};
use crate::text::human;

/// Bytes that the copy changes apart from the measured writes: journal, directories, attributes.
const SLACK_BYTES: u64 = 64 << 20;

/// A copy and how many bytes of the volume are in it.
pub(super) struct Copied {
    pub(super) source: Source,
    pub(super) bytes: u64,
}

/// Makes a copy with the files to measure in it, for `threads` threads. An error is the reason why
/// nothing can be written.
pub(super) fn copy_volume(
    image: &Image,
    volume: &Volume,
    scratch: &Scratch,
    subjects: &mut Subjects,
    threads: u32,
    (progress, stop): (&Progress, &Stop),
) -> Result<Copied> {
    let lost = |error: &io::Error| {
        SuiteError::Because(format!("it cannot be copied: {}", host_reason(error)))
    };
    let from = File::open(&image.file).map_err(|error| lost(&error))?;
    let bytes = volume
        .bytes()
        .ok_or(SuiteError::Because("it is not in a file".to_owned()))?;
    let data = copy::data_bytes(&from, &bytes);
    let room = scratch.free_bytes().map_err(|error| lost(&error))?;
    let to = scratch.create_copy().map_err(|error| lost(&error))?;
    // The suite may make a large file and write another one.
    let needed = data + 2 * write_bytes(volume)? + SLACK_BYTES;
    if room < needed {
        return Err(SuiteError::Because(format!(
            "a copy takes {}, and there are {} in {}; TMPDIR may name another directory",
            human(needed),
            human(room),
            scratch.dir().display()
        )));
    }
    progress.begin_copy(data);
    let copied = copy::copy(&from, &bytes, &to, |piece| {
        progress.done(piece);
        if stop.is_told() {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    });
    stop.check()?;
    copied.map_err(|error| lost(&error))?;
    drop(to);
    let source = Source {
        image: Image::of(scratch.copy(), Part::Whole),
        bytes: 0..bytes.end - bytes.start,
        writing: true,
    };
    let volume = open(&source.image, true, &Opening::default())?;
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let made = subjects.make(&volume, owner, threads);
    let closed = volume.close();
    made?;
    closed?;
    Ok(Copied {
        source,
        bytes: data,
    })
}
