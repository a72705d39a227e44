//! Rows of a real tree, `/usr/include` and `/usr/share`: all its paths are visited, not one path
//! over and over.
//!
//! The volume is built by us, with hash trees, or filled by `mke2fs -d`, without. The rival is the
//! kernel's loop mount of the same volume, and an ordinary user asks both. Figures are CPU time of
//! all threads of the process that asks, with the daemon's where there is one.

use std::path::Path;
use std::process::Command;

use super::growth::Generated;
use super::image::{Mount, RealTree, Rival};
use super::paths::Order;
use super::plant;
use super::process::cpu_milliseconds;
use super::row::{Row, Unit};
use super::visit::{self, Caches, Side, Visited};
use super::write::{LONG_RUNS, Mounted, remove};
use super::{Bench, Result};

/// A volume with the tree.
#[derive(Clone, Copy)]
pub(super) enum Volume {
    /// Built by us.
    Built,
    /// Filled by `mke2fs -d`.
    Linear,
}

/// Interleaved runs of a row: each visits the whole tree.
const TREE_RUNS: usize = 5;

/// Files of a large repository.
const REPOSITORY_FILES: u64 = 100_000;

/// A second-level cache, for the simulation: its bytes, its ways and the bytes of its lines.
const SECOND_LEVEL: &str = "--LL=1048576,16,64";

impl Bench {
    fn volume(&self, volume: Volume) -> Result<(&Path, &Path)> {
        let RealTree {
            built,
            linear,
            list,
        } = self.real_tree()?;
        Ok((
            if matches!(volume, Volume::Built) {
                built
            } else {
                linear
            },
            list,
        ))
    }

    /// A visit of all paths.
    pub(super) fn visit(
        &self,
        (name, goal): (&'static str, f64),
        volume: Volume,
        order: Order,
        caches: Caches,
    ) -> Result<Row> {
        let (image, list) = self.volume(volume)?;
        let mut row = Row::faster(name, Unit::Nanoseconds, goal);
        let mut found = 0.0;
        row.rounds(TREE_RUNS, || {
            let ours = Visited::of(Side::Library(image), list, order, caches)?;
            // Mounted again each time, so that its caches are as cold as ours.
            let mount = Mount::new(Rival::Kernel, image, &self.folder.join("mnt"))?;
            let theirs = Visited::of(Side::System(mount.path()), list, order, caches)?;
            if ours.found != theirs.found {
                return Err(format!(
                    "{name}: {} paths, and the kernel has {}",
                    ours.found, theirs.found
                ));
            }
            found = ours.found;
            Ok((ours.nanos, theirs.nanos))
        })?;
        row.set_note(format!("CPU time for a path; {found} are there"));
        Ok(row)
    }

    /// Cold visits at random of linear directories, compared with visits of hashed ones.
    pub(super) fn visit_linear(&self, name: &'static str) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, 0.5);
        let cold = |volume| {
            let (image, list) = self.volume(volume)?;
            Ok::<_, String>(
                Visited::of(Side::Library(image), list, Order::Shuffled, Caches::Cold)?.nanos,
            )
        };
        row.rounds(TREE_RUNS, || {
            Ok((cold(Volume::Linear)?, cold(Volume::Built)?))
        })?;
        row.set_note("CPU time for a path; the rival: ours with hash trees".to_owned());
        Ok(row)
    }

    /// The CPU time to close the volume after a cold visit of all paths, as a share of the visit's.
    pub(super) fn close_share(&self, name: &'static str) -> Result<Row> {
        let (image, list) = self.volume(Volume::Built)?;
        let mut row = Row::below(name, Unit::Percent, 10.0);
        let mut nanos = (0.0, 0.0);
        row.rounds(TREE_RUNS, || {
            let visited = Visited::of(Side::Library(image), list, Order::Tree, Caches::Cold)?;
            nanos = (visited.close_nanos, visited.nanos);
            Ok((visited.close_nanos * 100.0 / visited.nanos, 10.0))
        })?;
        row.set_note(format!(
            "CPU time; {:.0} ns a path after {:.0} ns for its stat",
            nanos.0, nanos.1
        ));
        Ok(row)
    }

    /// Memory that a process keeps after it has read the tree and closed the volume.
    pub(super) fn close_memory(&self, name: &'static str) -> Result<Row> {
        let (image, list) = self.volume(Volume::Built)?;
        let mut row = Row::below(name, Unit::Mebibytes, 4.0);
        let mut kept = 0.0;
        row.rounds(3, || {
            kept = Visited::of(Side::Library(image), list, Order::Tree, Caches::Counted)?.kept;
            Ok((
                Visited::of(Side::Library(image), list, Order::Tree, Caches::Cold)?.resident,
                4.0,
            ))
        })?;
        row.set_note(format!(
            "resident after closing less before opening; {kept:.0} bytes are allocated"
        ));
        Ok(row)
    }

    /// Bytes that the allocator gives for each cached path, without the blocks of the volume.
    pub(super) fn cached_bytes(&self, name: &'static str) -> Result<Row> {
        let (image, list) = self.volume(Volume::Built)?;
        let mut row = Row::below(name, Unit::Bytes, 700.0);
        let visited = Visited::of(Side::Library(image), list, Order::Tree, Caches::Counted)?;
        row.add((visited.cached - visited.blocks) / visited.found, 700.0);
        row.set_note(format!(
            "{:.0} more are blocks; {} paths are there",
            visited.blocks / visited.found,
            visited.found
        ));
        Ok(row)
    }

    /// Instructions of a warm `stat` of one of all paths, at random.
    pub(super) fn visit_instructions(
        &self,
        name: &'static str,
        order: Order,
        goal: f64,
    ) -> Result<Row> {
        self.counted(name, Unit::Instructions, order, goal, |counts| {
            counts.instructions
        })
    }

    /// Misses of a second-level cache for such a `stat`.
    pub(super) fn visit_misses(&self, name: &'static str, order: Order, goal: f64) -> Result<Row> {
        self.counted(name, Unit::Count, order, goal, |counts| counts.misses)
    }

    fn counted(
        &self,
        name: &'static str,
        unit: Unit,
        order: Order,
        goal: f64,
        of: fn(&Counts) -> f64,
    ) -> Result<Row> {
        let (image, list) = self.volume(Volume::Built)?;
        let mut row = Row::below(name, unit, goal);
        let counts = Counts::of(image, list, order)?;
        row.add(of(&counts), goal);
        row.set_note(format!(
            "by callgrind, a path: {:.0} instructions, {:.1} first-level misses, {:.1} of 1 MiB behind it",
            counts.instructions, counts.first_misses, counts.misses
        ));
        Ok(row)
    }

    /// A cold `find` of the tree.
    pub(super) fn find_tree(
        &self,
        (name, goal): (&'static str, f64),
        volume: Volume,
    ) -> Result<Row> {
        let (image, _) = self.volume(volume)?;
        let place = format!("{}:/", image.display());
        let mut row = Row::faster(name, Unit::Milliseconds, goal);
        row.rounds(TREE_RUNS, || {
            let ours = cpu_milliseconds(Command::new(self.extern4()?).arg("find").arg(&place))?;
            let mount = Mount::new(Rival::Kernel, image, &self.folder.join("mnt"))?;
            let theirs = cpu_milliseconds(Command::new("find").arg(mount.path()))?;
            Ok((ours, theirs))
        })?;
        row.set_note("CPU time of the whole process".to_owned());
        Ok(row)
    }

    /// All paths of the tree made as empty files and directories, and removed.
    pub(super) fn plant(&self, (name, goal): (&'static str, f64)) -> Result<Row> {
        let list = &self.real_tree()?.list;
        let mut row = Row::faster(name, Unit::Nanoseconds, goal);
        row.rounds(LONG_RUNS, || {
            let image = self.fresh("plant.img", "1G", 200_000)?;
            let ours = plant::run("library", &image, list)?;
            let mount = Mounted::new(Rival::Kernel, &image, &self.folder.join("mnt"))?;
            let theirs = plant::run("system", &mount.path, list)?;
            mount.end()?;
            remove([image])?;
            Ok((ours, theirs))
        })?;
        row.set_note(
            "CPU time for a path made and removed, without the kernel's own threads".to_owned(),
        );
        Ok(row)
    }

    /// `stat` of all paths through a mount of ours that has answered for each before, compared with
    /// the kernel's mount.
    pub(super) fn visit_mount(&self, row: (&'static str, f64), options: &str) -> Result<Row> {
        let (image, list) = self.volume(Volume::Built)?;
        self.visit_mount_of(row, image, list, options)
    }

    /// Such a visit in a mount of a generated tree of 100,000 files.
    pub(super) fn visit_repository(&self, row: (&'static str, f64)) -> Result<Row> {
        let [image, list] =
            ["repository.img", "repository.paths"].map(|name| self.folder.join(name));
        Generated::build(REPOSITORY_FILES, &image, &list)?;
        let row = self.visit_mount_of(row, &image, &list, "ro,allow_other");
        remove([image, list])?;
        row
    }

    fn visit_mount_of(
        &self,
        (name, goal): (&'static str, f64),
        image: &Path,
        list: &Path,
        options: &str,
    ) -> Result<Row> {
        let mut row = Row::faster(name, Unit::Nanoseconds, goal);
        let mount = self.folder.join("mnt");
        row.rounds(LONG_RUNS, || {
            let mounted = Mounted::by_us(&self.extern4()?, options, image, &mount)?;
            let side = Side::Served(&mounted.path, mounted.server_id()?);
            let ours = Visited::of(side, list, Order::Tree, Caches::Warm)?.nanos;
            mounted.end()?;
            let mounted = Mount::new(Rival::Kernel, image, &mount)?;
            let theirs = Visited::of(
                Side::System(mounted.path()),
                list,
                Order::Tree,
                Caches::Warm,
            )?
            .nanos;
            Ok((ours, theirs))
        })?;
        row.set_note(format!(
            "CPU time of the caller and of the daemon, mounted with {options}"
        ));
        Ok(row)
    }
}

/// Events that callgrind counts for one path.
struct Counts {
    instructions: f64,
    first_misses: f64,
    misses: f64,
}

impl Counts {
    /// Counts a warm visit.
    fn of(image: &Path, list: &Path, order: Order) -> Result<Self> {
        let this = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("valgrind");
        command.args([
            "--tool=callgrind",
            "--cache-sim=yes",
            SECOND_LEVEL,
            "--callgrind-out-file=/dev/null",
        ]);
        command.arg(format!("--toggle-collect={}", visit::COUNTED));
        command.arg(this).arg("visit").args(visit::arguments(
            Side::Library(image),
            list,
            order,
            Caches::Warm,
        ));
        let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        let says = String::from_utf8_lossy(&output.stderr);
        let events = says.lines().find_map(|line| line.split_once("Collected :"));
        let events: Vec<f64> = events.map_or(Vec::new(), |(_, events)| {
            events.split_whitespace().flat_map(str::parse).collect()
        });
        // Reads and writes of data: the second and third third of the line.
        let [
            instructions,
            _,
            _,
            _,
            read_first,
            write_first,
            _,
            read_last,
            write_last,
        ] = events[..]
        else {
            return Err(format!("{command:?}: {says}"));
        };
        let paths = super::paths::read(list)?.len();
        let stats = (paths * visit::rounds(order, Caches::Warm, paths)) as f64;
        Ok(Self {
            instructions: instructions / stats,
            first_misses: (read_first + write_first) / stats,
            misses: (read_last + write_last) / stats,
        })
    }
}
