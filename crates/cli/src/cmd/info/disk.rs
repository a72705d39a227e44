//! A disk with partitions, as `info` describes it.
//!
//! `info` calls it for an image that is no volume itself. Each partition with an ext volume has a
//! line with the image path that names it. A damaged table is shown as far as it can be read.

use std::fmt::Write as _;

use extern4::block::partition::DiskId;
use extern4::{ErrorKind, PartitionTable, Volume};

use crate::image_path::{Image, Part};
use crate::json;
use crate::text::{escape, human};

/// A disk that is not itself a volume, and the contents of its partitions.
pub(super) struct Disk {
    image: Image,
    table: PartitionTable,
    /// The type and label of the volume in each partition; `None` where no volume can be read.
    volumes: Vec<Option<(&'static str, String)>>,
}

impl Disk {
    /// Returns the disk at `image`, which as a volume fails to open with `kind`; `None` if it has
    /// no partitions either.
    pub(super) fn of(image: &Image, kind: ErrorKind) -> Option<Self> {
        if kind != ErrorKind::NotExt || image.part != Part::Whole {
            return None;
        }
        let table = Volume::partitions(&image.file).ok()??;
        if table.partitions.is_empty() {
            return None;
        }
        let volumes = table.partitions.iter().map(|partition| {
            let volume = Volume::options()
                .partition(partition.number)
                .open(&image.file)
                .ok()?;
            let superblock = volume.ext4().superblock();
            Some((
                extern4::info::type_name(superblock.features()),
                escape(superblock.label()).into_owned(),
            ))
        });
        let volumes = volumes.collect();
        Some(Self {
            image: image.clone(),
            table,
            volumes,
        })
    }

    fn kind(&self) -> &'static str {
        match self.table.id {
            DiskId::Mbr(_) => "MBR",
            DiskId::Gpt(_) => "GPT",
        }
    }

    /// Returns a table of the partitions, each as an image path names it. Partitions of
    /// an MBR have no names.
    pub(super) fn people(&self) -> String {
        let mut text = format!(
            "{}: disk with a partition table ({})\n\n",
            self.image,
            self.kind()
        );
        let has_names = matches!(self.table.id, DiskId::Gpt(_));
        let head = [
            "Partition",
            "Start",
            "Size",
            "Kind",
            "Name",
            "Volume",
            "Label",
        ]
        .map(str::to_owned);
        let mut rows = vec![head];
        rows.extend(
            self.table
                .partitions
                .iter()
                .zip(&self.volumes)
                .map(|(partition, volume)| {
                    let image = Image::of(
                        self.image.name().to_owned(),
                        Part::Partition(partition.number),
                    );
                    let (kind, label) = match volume {
                        _ if partition.is_cut_off() => ("cut off", String::new()),
                        Some((kind, label)) => (*kind, label.clone()),
                        None => ("-", String::new()),
                    };
                    let name = partition
                        .name
                        .as_deref()
                        .filter(|name| !name.is_empty())
                        .unwrap_or("-");
                    [
                        image.to_string(),
                        partition.start_bytes.to_string(),
                        human(partition.len_bytes),
                        partition.kind.to_string(),
                        escape(name.as_bytes()).into_owned(),
                        kind.to_owned(),
                        label,
                    ]
                }),
        );
        let width = |column: usize| {
            rows.iter()
                .map(|row| crate::text::width(&row[column]))
                .max()
                .unwrap_or(0)
        };
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(width);
        for [image, start, size, kind, name, volume, label] in &rows {
            let name = if has_names {
                format!("{name:e$}  ")
            } else {
                String::new()
            };
            let line = format!(
                "{image:a$}  {start:>b$}  {size:>c$}  {kind:d$}  {name}{volume:f$}  {label}"
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
        for fault in &self.table.faults {
            writeln!(text, "warning: {fault}").expect("a string takes everything");
        }
        text
    }

    pub(super) fn json(&self) -> String {
        json::line(|object| {
            object.text("image", &self.image.to_string());
            object.text("partition_table", &self.kind().to_lowercase());
            let partitions = self.table.partitions.iter().zip(&self.volumes);
            object.objects("partitions", partitions, |(partition, volume), item| {
                item.raw("number", partition.number);
                item.raw("start_bytes", partition.start_bytes);
                item.raw("len_bytes", partition.len_bytes);
                item.raw("cut_off", partition.is_cut_off());
                item.text("kind", &partition.kind.to_string());
                item.text_or_null("name", partition.name.as_deref());
                item.text_or_null("volume", volume.as_ref().map(|(kind, _)| *kind));
                item.text_or_null("label", volume.as_ref().map(|(_, label)| label.as_str()));
            });
            object.texts("faults", self.table.faults.iter().map(ToString::to_string));
        })
    }
}
