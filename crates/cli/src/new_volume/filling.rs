//! A volume that is being filled from sources, with its progress and the signals that end it.
//!
//! `build`, `mkfs -d` and `tar -x` run it. A signal ends it, and nothing is left of a new file.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use extern4::build::{BuildOptions, Builder, ImageConfig, Planned, Progress, Summary, Watch};
use extern4_mkfs::Plan;

use super::error::NewVolumeError;
use super::source::{Argument, OpenSource, SourceOptions};
use crate::app::App;
use crate::image_path::Image;
use crate::json::Object;
use crate::progress::{Counts, Task, Unit};
use crate::stop::Stop;
use crate::text::uuid as uuid_text;
use extern4::info::type_name;

const READING: Unit = Unit::things("entry", "entries", "read");
const COMPARING: Unit = Unit::things("entry", "entries", "compared");
const WRITING: Unit = Unit::bytes("written");
const HASHING: Unit = Unit::bytes("hashed");

/// A volume that is being filled from sources.
pub(crate) struct Filling {
    stop: Stop,
    task: Task,
    /// The file that the volume goes to.
    out: PathBuf,
}

impl Filling {
    /// Runs `fill`, which fills the volume in `image` until a signal comes.
    pub(crate) fn run<T>(
        image: &Image,
        quiet: bool,
        app: &mut App,
        fill: impl FnOnce(&Self, &mut App) -> Result<T, NewVolumeError>,
    ) -> Result<T, NewVolumeError> {
        let stop = app.stop_on_signals();
        let task = app.begin_task(READING, quiet);
        let filled = fill(
            &Self {
                stop,
                task,
                out: image.file.clone(),
            },
            app,
        );
        match filled {
            // The sources, or the watch, ended the work with an error.
            Err(
                NewVolumeError::Usage(_) | NewVolumeError::Failed(_) | NewVolumeError::Target(_),
            ) if app.is_stopped() => Err(NewVolumeError::Stopped),
            filled => filled,
        }
    }

    /// Returns a builder without sources that shows its progress.
    pub(crate) fn builder(&self, options: BuildOptions) -> Builder {
        let mut builder = Builder::new(options);
        builder.watch(self.watch());
        builder
    }

    /// Returns what shows the progress, and ends the work after a signal.
    pub(crate) fn watch(&self) -> Watch {
        let stop = self.stop.clone();
        let counts = self.task.counts();
        Arc::new(move |progress| {
            show(&counts, progress);
            stop.check()
        })
    }

    /// Adds a source. Returns its configuration, if it is an image of a container.
    pub(crate) fn add(
        &self,
        builder: &mut Builder,
        argument: &Argument,
        options: SourceOptions<'_>,
        app: &mut App,
    ) -> Result<Option<ImageConfig>, NewVolumeError> {
        let opened = argument.open(options, &self.out, app);
        let OpenSource {
            source,
            prefix,
            config,
        } = opened.map_err(|failure| argument.explain(failure, app))?;
        let added = builder.add(source, &prefix).map_err(NewVolumeError::from);
        added
            .map(|()| config)
            .map_err(|failure| argument.explain(failure, app))
    }

    /// Plans the volume, and tells of all that is left out.
    pub(crate) fn plan(&self, builder: Builder, app: &App) -> Result<Planned, NewVolumeError> {
        let volume = builder.plan()?;
        volume
            .warnings()
            .iter()
            .for_each(|warning| app.note(warning));
        Ok(volume)
    }
}

/// Shows how far a build is.
fn show(counts: &Counts, progress: Progress) {
    match progress {
        Progress::Reading { entries } => counts.set(READING, entries, 0),
        Progress::Comparing { entries } => counts.set(COMPARING, entries, 0),
        Progress::Writing { bytes, total } => counts.set(WRITING, bytes, total),
        Progress::Hashing { bytes, total } => counts.set(HASHING, bytes, total),
        _ => {}
    }
}

/// Returns how many threads fill a volume: one for each CPU unless `wanted` says otherwise.
pub(crate) fn threads(wanted: Option<NonZero<usize>>) -> usize {
    wanted
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZero::get)
}

/// Writes the members about a volume. Its UUID is known when it is written.
pub(crate) fn json_numbers(
    object: &mut Object<'_>,
    image: &Image,
    plan: &Plan,
    uuid: Option<[u8; 16]>,
) {
    let superblock = plan.superblock();
    let block_size = u64::from(superblock.block_size());
    object.text("image", &image.to_string());
    object.text("type", type_name(superblock.features()));
    object.bytes("label", superblock.label());
    object.text_or_null("uuid", uuid.map(uuid_text).as_deref());
    object.raw("size_bytes", plan.size_bytes());
    object.raw("block_size", block_size);
    object.raw("blocks", superblock.blocks_count());
    object.raw("inodes", superblock.inodes_count());
    object.raw("journal_bytes", plan.journal_blocks() * block_size);
    object.numbers("backup_superblocks", plan.backup_blocks());
}

/// Writes the members about the files of a volume.
pub(crate) fn json_contents(object: &mut Object<'_>, summary: &Summary) {
    object.raw("files", summary.files);
    object.raw("directories", summary.directories);
    object.raw("others", summary.others);
    object.raw("content_bytes", summary.bytes);
    object.raw("extents", summary.extents);
    object.raw("used_bytes", summary.used);
    object.raw("free_bytes", summary.free);
}

/// Writes how the container of an image runs.
pub(crate) fn json_container(object: &mut Object<'_>, config: &ImageConfig) {
    let texts = [
        ("user", &config.user),
        ("working_dir", &config.working_dir),
        ("stop_signal", &config.stop_signal),
    ];
    let lists = [
        ("env", &config.env),
        ("entrypoint", &config.entrypoint),
        ("cmd", &config.cmd),
        ("exposed_ports", &config.exposed_ports),
        ("volumes", &config.volumes),
    ];
    object.object("container", |object| {
        object.text_or_null(
            "platform",
            config.platform.as_ref().map(ToString::to_string).as_deref(),
        );
        texts
            .iter()
            .for_each(|(key, text)| object.text_or_null(key, text.as_deref()));
        lists
            .iter()
            .for_each(|(key, list)| object.texts(key, *list));
        object.objects("labels", &config.labels, |(name, value), label| {
            label.text("name", name);
            label.text("value", value);
        });
    });
}

/// Describes the files of a volume.
pub(crate) fn contents_line(summary: &Summary) -> String {
    let count = |count: u64, one: &str, many: &str| {
        format!("{count} {}", if count == 1 { one } else { many })
    };
    format!(
        "{}, {}, {}, {} bytes of contents in {}",
        count(summary.files, "file", "files"),
        count(summary.directories, "directory", "directories"),
        count(summary.others, "other", "others"),
        summary.bytes,
        count(summary.extents, "extent", "extents"),
    )
}
