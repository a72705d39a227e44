//! Benchmarks against rivals: each goal is one row, ours and the rival's measured in turn in the
//! same run.
//!
//! A row is printed as a ratio and written to `target/bench/NAME.json`. Rows can be chosen by parts
//! of their names. Times are of whole processes, from start to exit; the page cache of the
//! operating system is warm, every other cache cold, unless a row says otherwise: the rows of walks
//! and of the buffer cache are of calls in one process, all caches warm. The rows of changes say
//! what they are of.

mod buffer;
mod build;
mod floor;
mod growth;
mod image;
mod metadata;
mod mount;
mod open;
mod overwrite;
mod paths;
mod plant;
mod process;
mod proof;
mod readme;
mod real_tree;
mod rival;
mod row;
mod search;
mod threads;
mod tree;
mod visit;
mod walk;
mod write;
mod xattr;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use growth::run as growth;

use extern4_measure::verdict::Outcome;

use build::{Builder, Tree};
use image::{RealTree, Rival};
use metadata::Change;
use mount::{Memory, Transport, Work};
use overwrite::Overwrite;
use paths::Order;
use real_tree::Volume;
use row::Row;
use visit::Caches;
use walk::Call;
use xattr::Cell;

/// Interleaved runs of each row, after one run that is not counted.
const RUNS: usize = 7;

/// An error as a sentence.
pub(crate) type Result<T, E = String> = std::result::Result<T, E>;

/// A row: its name, what it cannot do without, and how it is measured.
type Spec = (&'static str, &'static [Need], fn(&Bench) -> Result<Row>);

/// A need of a row that the machine may not meet.
#[derive(Clone, Copy)]
enum Need {
    /// The superuser, and loop devices.
    Mounts,
    /// A program.
    Program(&'static str),
    /// FUSE.
    Fuse,
    /// A way for requests.
    Transport(Transport),
    /// A rival.
    Rival(Rival),
    /// Work in a mount.
    Work(Work),
}

/// Whether requests may come through rings.
const RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// The rows of the mount, requests coming by this way.
macro_rules! mount_rows {
    ($transport:ident, $prefix:literal) => {
        mount_rows! { $transport, $prefix,
            "asked-stat-vs-fuse2fs" 4.0 AskedStat(1) Fuse2fs,
            "asked-stat-2-threads-vs-fuse2fs" 6.0 AskedStat(2) Fuse2fs,
            "asked-open-close-vs-fuse2fs" 4.0 AskedOpenClose(1) Fuse2fs,
            "asked-open-close-2-threads-vs-fuse2fs" 6.0 AskedOpenClose(2) Fuse2fs,
            "create-unlink-vs-fuse2fs" 6.0 CreateUnlink(1) Fuse2fs,
            "create-unlink-2-threads-vs-fuse2fs" 15.0 CreateUnlink(2) Fuse2fs,
            "tar-include-vs-kernel" 0.4 Tar("include") Kernel,
            "tar-include-vs-fuse2fs" 4.0 Tar("include") Fuse2fs,
            "tar-share-vs-kernel" 0.4 Tar("share") Kernel,
            "tar-share-vs-fuse2fs" 4.0 Tar("share") Fuse2fs,
            "find-vs-kernel" 0.5 Find Kernel,
            "find-vs-fuse2fs" 8.0 Find Fuse2fs,
            "write-1gib-vs-kernel" 0.85 Write Kernel,
            "write-1gib-vs-fuse2fs" 4.0 Write Fuse2fs,
            "read-1gib-vs-kernel" 0.85 Read Kernel,
            "read-1gib-vs-fuse2fs" 4.0 Read Fuse2fs,
            "random-read-16-threads-vs-kernel" 0.6 RandomRead Kernel,
            "dbench-8-clients-vs-fuse2fs" 5.0 Dbench(8) Fuse2fs,
            "dbench-16-clients-vs-kernel" 0.4 Dbench(16) Kernel,
            "dbench-16-clients-vs-fuse2fs" 5.0 Dbench(16) Fuse2fs,
        }
    };
    ($transport:ident, $prefix:literal,
        $($name:literal $goal:literal $work:ident $(($what:literal))? $rival:ident,)*) => {
        &[
            $((
                concat!($prefix, $name),
                &[
                    Need::Mounts,
                    Need::Fuse,
                    Need::Transport(Transport::$transport),
                    Need::Rival(Rival::$rival),
                    Need::Work(Work::$work $(($what))?),
                ],
                |bench: &Bench| {
                    let row = (concat!($prefix, $name), $goal);
                    bench.mount(row, Transport::$transport, Work::$work $(($what))?, Rival::$rival)
                },
            ),)*
            mount_requests!($transport, concat!($prefix, "cached-stat-requests"), Stat),
            mount_requests!($transport, concat!($prefix, "cached-open-close-requests"), OpenClose),
            mount_memory!($transport, concat!($prefix, "memory-of-1000000-files"), Memory::USUAL),
            mount_memory!($transport, concat!($prefix, "memory-of-1000000-files-bounded"), Memory::BOUNDED),
        ]
    };
}

/// The row of the requests that a cached file takes, which come by this way.
macro_rules! mount_requests {
    ($transport:ident, $name:expr, $work:ident) => {
        (
            $name,
            &[
                Need::Mounts,
                Need::Fuse,
                Need::Transport(Transport::$transport),
            ],
            |bench: &Bench| bench.mount_requests($name, Transport::$transport, Work::$work),
        )
    };
}

/// The row of the memory that a mount takes, requests coming by this way.
macro_rules! mount_memory {
    ($transport:ident, $name:expr, $memory:expr) => {
        (
            $name,
            &[
                Need::Mounts,
                Need::Fuse,
                Need::Transport(Transport::$transport),
            ],
            |bench: &Bench| bench.mount_memory($name, Transport::$transport, $memory),
        )
    };
}

/// The row of one cell of `xattr-bench`.
macro_rules! xattr_cell {
    ($name:literal, $threads:literal, $files:literal, $values:literal) => {
        (
            $name,
            &[Need::Mounts, Need::Program("mke2fs")],
            |bench: &Bench| {
                bench.xattr(
                    $name,
                    Cell {
                        threads: $threads,
                        files: $files,
                        values: $values,
                    },
                )
            },
        )
    };
}

/// The row of an image that is built.
macro_rules! build {
    ($name:literal, $goal:literal, $tree:expr, $rival:ident) => {
        (
            $name,
            &[Need::Mounts, Need::Program("mke2fs")],
            |bench: &Bench| bench.build($name, $goal, $tree, Builder::$rival),
        )
    };
}

/// The row of a change of names or attributes.
macro_rules! change {
    ($name:literal, $change:ident) => {
        (
            $name,
            &[Need::Mounts, Need::Program("mke2fs")],
            |bench: &Bench| bench.change($name, Change::$change),
        )
    };
}

/// The row of a visit of a real tree.
macro_rules! visit {
    ($name:literal, $goal:literal, $volume:ident, $order:ident, $caches:ident) => {
        (
            $name,
            &[Need::Mounts, Need::Program("mke2fs")],
            |bench: &Bench| {
                bench.visit(
                    ($name, $goal),
                    Volume::$volume,
                    Order::$order,
                    Caches::$caches,
                )
            },
        )
    };
}

/// All rows.
const ROWS: &[&[Spec]] = &[
    TREE_ROWS,
    PROOF_ROWS,
    LIBRARY_ROWS,
    BUILD_ROWS,
    mount_rows!(Ring, "mount-ring-"),
    mount_rows!(Device, "mount-device-"),
];

/// The rows of a real tree.
const TREE_ROWS: &[Spec] = &[
    visit!("tree-stat-vs-kernel", 2.0, Built, Tree, Warm),
    visit!("tree-stat-shuffled-vs-kernel", 2.0, Built, Shuffled, Warm),
    visit!("tree-stat-cold-vs-kernel", 2.0, Built, Tree, Cold),
    visit!(
        "tree-stat-cold-shuffled-vs-kernel",
        2.0,
        Built,
        Shuffled,
        Cold
    ),
    visit!("tree-absent-vs-kernel", 2.0, Built, Absent, Warm),
    visit!("tree-linear-stat-vs-kernel", 2.0, Linear, Tree, Warm),
    visit!(
        "tree-linear-stat-shuffled-vs-kernel",
        2.0,
        Linear,
        Shuffled,
        Warm
    ),
    visit!("tree-linear-stat-cold-vs-kernel", 2.0, Linear, Tree, Cold),
    visit!(
        "tree-linear-stat-cold-shuffled-vs-kernel",
        2.0,
        Linear,
        Shuffled,
        Cold
    ),
    visit!("tree-linear-absent-vs-kernel", 2.0, Linear, Absent, Warm),
    (
        "tree-linear-stat-cold-shuffled-vs-hashed",
        &[Need::Program("mke2fs")],
        |bench| bench.visit_linear("tree-linear-stat-cold-shuffled-vs-hashed"),
    ),
    (
        "tree-find-cold-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        |bench| bench.find_tree(("tree-find-cold-vs-kernel", 6.0), Volume::Built),
    ),
    (
        "tree-linear-find-cold-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        |bench| bench.find_tree(("tree-linear-find-cold-vs-kernel", 6.0), Volume::Linear),
    ),
    ("tree-close-percent", &[Need::Program("mke2fs")], |bench| {
        bench.close_share("tree-close-percent")
    }),
    ("tree-close-memory", &[Need::Program("mke2fs")], |bench| {
        bench.close_memory("tree-close-memory")
    }),
    ("tree-bytes-a-path", &[Need::Program("mke2fs")], |bench| {
        bench.cached_bytes("tree-bytes-a-path")
    }),
    ("tree-stat-instructions", COUNTED, |bench| {
        bench.visit_instructions("tree-stat-instructions", Order::Shuffled, 1280.0)
    }),
    ("tree-stat-misses", COUNTED, |bench| {
        bench.visit_misses("tree-stat-misses", Order::Shuffled, 6.5)
    }),
    ("tree-absent-instructions", COUNTED, |bench| {
        bench.visit_instructions("tree-absent-instructions", Order::Absent, 2000.0)
    }),
    (
        "tree-mount-stat-vs-kernel",
        &[Need::Mounts, Need::Fuse, Need::Program("mke2fs")],
        |bench| bench.visit_mount(("tree-mount-stat-vs-kernel", 0.9), "ro,allow_other"),
    ),
    (
        "tree-create-remove-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        |bench| bench.plant(("tree-create-remove-vs-kernel", 5.0)),
    ),
    (
        "mount-of-100000-files-stat-vs-kernel",
        &[Need::Mounts, Need::Fuse],
        |bench| bench.visit_repository(("mount-of-100000-files-stat-vs-kernel", 0.9)),
    ),
    (
        "tree-mount-stat-memory-16m-vs-kernel",
        &[Need::Mounts, Need::Fuse, Need::Program("mke2fs")],
        |bench| {
            bench.visit_mount(
                ("tree-mount-stat-memory-16m-vs-kernel", 0.1),
                "ro,allow_other,memory=16M",
            )
        },
    ),
];

/// The rows that prove that costs stay flat.
const PROOF_ROWS: &[Spec] = &[
    ("proof-reopened-1000-times", &[], |bench| {
        bench.reopen("proof-reopened-1000-times")
    }),
    ("proof-1024-threads-vs-2", &[], |bench| {
        bench.crowd("proof-1024-threads-vs-2")
    }),
];

/// The needs of a row of a real tree that callgrind counts for.
const COUNTED: &[Need] = &[Need::Program("mke2fs"), Need::Program("valgrind")];

/// The rows of the library, and of the command but for its mount.
const LIBRARY_ROWS: &[Spec] = &[
    ("find-vs-kernel", &[Need::Mounts], |bench| {
        bench.find(Rival::Kernel)
    }),
    (
        "find-vs-fuse2fs",
        &[Need::Mounts, Need::Program("fuse2fs")],
        |bench| bench.find(Rival::Fuse2fs),
    ),
    ("cat-1gib-vs-kernel", &[Need::Mounts], Bench::cat),
    ("open-20gb-time", &[Need::Mounts], Bench::open),
    ("open-20gb-device-reads", &[Need::Mounts], Bench::open_reads),
    (
        "check-vs-e2fsck",
        &[Need::Mounts, Need::Program("e2fsck")],
        Bench::check,
    ),
    (
        "walk-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        Bench::walk,
    ),
    (
        "walk-missing-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        Bench::walk_missing,
    ),
    (
        "walk-2-threads-vs-1",
        &[Need::Program("mke2fs")],
        Bench::walk_threads,
    ),
    (
        "walk-2-threads-vs-rust-fs-ext4",
        &[Need::Program("mke2fs")],
        Bench::walk_rust_fs_ext4,
    ),
    (
        "walk-allocations",
        &[Need::Program("mke2fs")],
        Bench::walk_allocations,
    ),
    ("walk-restarts-percent", &[], Bench::walk_restarts),
    (
        "walk-12-fast-search-instructions",
        &[Need::Program("valgrind")],
        Bench::search_instructions,
    ),
    ("walk-12-acls-vs-none", &[], Bench::search_acls),
    (
        "walk-12-acls-that-refuse-vs-none",
        &[],
        Bench::search_asked_acls,
    ),
    (
        "open-close-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        Bench::open_close,
    ),
    (
        "open-close-2-threads-vs-1",
        &[Need::Program("mke2fs")],
        Bench::open_close_threads,
    ),
    (
        "open-close-shared-locked-instructions",
        &[],
        Bench::open_close_locked,
    ),
    ("buffer-hit-allocations", &[], Bench::buffer_allocations),
    ("buffer-hit-2-threads-vs-1", &[], Bench::buffer_threads),
    (
        "create-unlink-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        Bench::create_unlink,
    ),
    (
        "create-unlink-vs-rust-fs-ext4",
        &[Need::Program("mke2fs")],
        Bench::create_unlink_rust_fs_ext4,
    ),
    (
        "create-unlink-2-threads",
        &[Need::Program("mke2fs")],
        Bench::create_unlink_threads,
    ),
    (
        "create-unlink-shared-2-threads",
        &[Need::Program("mke2fs")],
        Bench::create_unlink_shared_threads,
    ),
    change!("rename-vs-kernel", Rename),
    change!("move-vs-kernel", Move),
    change!("chmod-vs-kernel", Chmod),
    change!("setxattr-vs-kernel", SetXattr),
    change!("link-unlink-vs-kernel", LinkUnlink),
    ("move-2-threads-vs-1", &[Need::Program("mke2fs")], |bench| {
        bench.change_threads("move-2-threads-vs-1", Change::Move, 1.0)
    }),
    (
        "chmod-2-threads-vs-1",
        &[Need::Program("mke2fs")],
        |bench| bench.change_threads("chmod-2-threads-vs-1", Change::Chmod, 1.7),
    ),
    (
        "setxattr-2-threads-vs-1",
        &[Need::Program("mke2fs")],
        |bench| bench.change_threads("setxattr-2-threads-vs-1", Change::SetXattr, 1.7),
    ),
    (
        "create-200000-end-vs-start",
        &[Need::Program("mke2fs")],
        Bench::large_directory,
    ),
    xattr_cell!("xattr-p1-f10-v10-vs-kernel", 1, 10, 10),
    xattr_cell!("xattr-p1-f10-v1000-vs-kernel", 1, 10, 1000),
    xattr_cell!("xattr-p1-f10-v100000-vs-kernel", 1, 10, 100_000),
    xattr_cell!("xattr-p1-f100-v10-vs-kernel", 1, 100, 10),
    xattr_cell!("xattr-p1-f100-v1000-vs-kernel", 1, 100, 1000),
    xattr_cell!("xattr-p1-f100-v100000-vs-kernel", 1, 100, 100_000),
    xattr_cell!("xattr-p1-f1000-v10-vs-kernel", 1, 1000, 10),
    xattr_cell!("xattr-p1-f1000-v1000-vs-kernel", 1, 1000, 1000),
    xattr_cell!("xattr-p1-f1000-v100000-vs-kernel", 1, 1000, 100_000),
    xattr_cell!("xattr-p2-f10-v10-vs-kernel", 2, 10, 10),
    xattr_cell!("xattr-p2-f10-v1000-vs-kernel", 2, 10, 1000),
    xattr_cell!("xattr-p2-f10-v100000-vs-kernel", 2, 10, 100_000),
    xattr_cell!("xattr-p2-f100-v10-vs-kernel", 2, 100, 10),
    xattr_cell!("xattr-p2-f100-v1000-vs-kernel", 2, 100, 1000),
    xattr_cell!("xattr-p2-f100-v100000-vs-kernel", 2, 100, 100_000),
    xattr_cell!("xattr-p2-f1000-v10-vs-kernel", 2, 1000, 10),
    xattr_cell!("xattr-p2-f1000-v1000-vs-kernel", 2, 1000, 1000),
    xattr_cell!("xattr-p2-f1000-v100000-vs-kernel", 2, 1000, 100_000),
    xattr_cell!("xattr-p8-f10-v10-vs-kernel", 8, 10, 10),
    xattr_cell!("xattr-p8-f10-v1000-vs-kernel", 8, 10, 1000),
    xattr_cell!("xattr-p8-f10-v100000-vs-kernel", 8, 10, 100_000),
    xattr_cell!("xattr-p8-f100-v10-vs-kernel", 8, 100, 10),
    xattr_cell!("xattr-p8-f100-v1000-vs-kernel", 8, 100, 1000),
    xattr_cell!("xattr-p8-f100-v100000-vs-kernel", 8, 100, 100_000),
    xattr_cell!("xattr-p8-f1000-v10-vs-kernel", 8, 1000, 10),
    xattr_cell!("xattr-p8-f1000-v1000-vs-kernel", 8, 1000, 1000),
    xattr_cell!("xattr-p8-f1000-v100000-vs-kernel", 8, 1000, 100_000),
    xattr_cell!("xattr-p16-f1000-v10-vs-kernel", 16, 1000, 10),
    xattr_cell!("xattr-p16-f1000-v1000-vs-kernel", 16, 1000, 1000),
    xattr_cell!("xattr-p16-f1000-v100000-vs-kernel", 16, 1000, 100_000),
    xattr_cell!("xattr-p64-f100-v10-vs-kernel", 64, 100, 10),
    xattr_cell!("xattr-p64-f100-v1000-vs-kernel", 64, 100, 1000),
    xattr_cell!("xattr-p64-f100-v100000-vs-kernel", 64, 100, 100_000),
    (
        "xattr-100000-values-vs-10",
        &[Need::Program("mke2fs")],
        Bench::xattr_many_values,
    ),
    ("mbcache-bytes-an-entry", &[], Bench::mbcache_bytes),
    (
        "mbcache-200000-entries-in-4mib",
        &[],
        Bench::mbcache_entries,
    ),
    (
        "flushes-per-commit",
        &[Need::Program("mke2fs")],
        Bench::flushes,
    ),
    (
        "fsync-64-threads-per-commit",
        &[Need::Program("mke2fs")],
        Bench::fsyncs_per_commit,
    ),
    (
        "fsync-64-threads-flushes",
        &[Need::Program("mke2fs")],
        Bench::fsync_flushes,
    ),
    (
        "fsync-64-threads-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        Bench::fsync_threads,
    ),
    (
        "overwrite-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        |bench| bench.overwrite("overwrite-vs-kernel", Overwrite::WRITTEN),
    ),
    (
        "overwrite-fdatasync-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        |bench| bench.overwrite("overwrite-fdatasync-vs-kernel", Overwrite::SYNCED),
    ),
    (
        "overwrite-beside-chmod-vs-apart",
        &[Need::Program("mke2fs")],
        |bench| bench.overwrite_beside("overwrite-beside-chmod-vs-apart", Change::Chmod),
    ),
    (
        "overwrite-beside-setxattr-vs-apart",
        &[Need::Program("mke2fs")],
        |bench| bench.overwrite_beside("overwrite-beside-setxattr-vs-apart", Change::SetXattr),
    ),
    (
        "overwrite-beside-link-unlink-vs-apart",
        &[Need::Program("mke2fs")],
        |bench| bench.overwrite_beside("overwrite-beside-link-unlink-vs-apart", Change::LinkUnlink),
    ),
    (
        "write-4gib-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        Bench::write_large,
    ),
    (
        "cp-share-vs-kernel",
        &[Need::Mounts, Need::Program("mke2fs")],
        |bench| bench.copy_tree(Rival::Kernel),
    ),
    (
        "cp-share-vs-fuse2fs",
        &[
            Need::Mounts,
            Need::Program("mke2fs"),
            Need::Program("fuse2fs"),
        ],
        |bench| bench.copy_tree(Rival::Fuse2fs),
    ),
];

/// The rows of images that are built from a tree, and exported.
const BUILD_ROWS: &[Spec] = &[
    build!("build-share-vs-tar", 0.83, Tree::Share, Tar),
    build!("build-share-vs-mke2fs", 10.0, Tree::Share, Mke2fs),
    build!("build-share-vs-kernel", 5.0, Tree::Share, Kernel),
    build!("build-tar-vs-kernel", 3.0, Tree::Tar("tar"), Kernel),
    build!("build-tar-zst-vs-kernel", 2.0, Tree::Tar("tar.zst"), Kernel),
    build!("build-100000-files-vs-tar", 0.83, Tree::Small, Tar),
    build!("build-100000-files-vs-mke2fs", 10.0, Tree::Small, Mke2fs),
    build!("build-100000-files-vs-kernel", 4.0, Tree::Small, Kernel),
    (
        "build-share-vs-reading-and-writing",
        &[],
        Bench::build_floor,
    ),
    (
        "build-share-verity-vs-veritysetup",
        &[Need::Program("veritysetup")],
        Bench::build_verity,
    ),
    ("build-share-memory", &[], Bench::build_memory),
    (
        "build-empty-20gb-vs-mke2fs",
        &[Need::Program("mke2fs")],
        Bench::mkfs,
    ),
    ("build-export-tar-vs-kernel", &[Need::Mounts], Bench::export),
];

/// Runs the rows with one of `parts` in their names, or all rows if there are no parts. `--readme`
/// stands for the rows of README. Returns whether every goal was met.
pub(crate) fn run(root: &Path, parts: &[String]) -> Result<bool> {
    let for_readme = parts.iter().any(|part| part == "--readme");
    let chosen = |name: &str| {
        if for_readme {
            readme::has(name)
        } else {
            parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
        }
    };
    let bench = Bench::new(root)?;
    println!("{}", Row::header());
    let mut measured = Vec::new();
    for (name, needs, measure) in ROWS
        .iter()
        .copied()
        .flatten()
        .filter(|(name, ..)| chosen(name))
    {
        if let Some(missing) = needs.iter().find_map(|need| need.missing()) {
            println!("{name}: skipped, for it needs {missing}");
            continue;
        }
        let row = measure(&bench)?;
        println!("{row}");
        row.write(&bench.folder)?;
        measured.push(row);
    }
    if for_readme {
        println!("\n{}", readme::table(&measured));
    }
    Ok(measured.iter().all(|row| row.outcome() == Outcome::Met))
}

/// Runs a hidden subcommand, for a loop that a row measures in a separate process. `None` if
/// there is none of this name.
pub(crate) fn subcommand(name: &str, args: &[String]) -> Option<Result<()>> {
    Some(match name {
        "stat-loop" => walk::call_loop(Call::Stat, args),
        "open-loop" => walk::call_loop(Call::Open, args),
        "search-loop" => search::search_loop(args),
        "write-loop" => write::write_loop(args),
        "visit" => visit::visit(args),
        "plant" => plant::plant(args),
        "names" => growth::names(args),
        "reopen" => proof::reopen(args),
        "crowd" => proof::crowd(args),
        _ => return None,
    })
}

/// Where everything is.
struct Bench {
    target: PathBuf,
    folder: PathBuf,
    share: OnceCell<PathBuf>,
    include: OnceCell<PathBuf>,
    tree: OnceCell<RealTree>,
}

impl Bench {
    fn new(root: &Path) -> Result<Self> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let folder = target.join("bench");
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let share = OnceCell::new();
        let include = OnceCell::new();
        let tree = OnceCell::new();
        Ok(Self {
            target,
            folder,
            share,
            include,
            tree,
        })
    }

    /// The command.
    fn extern4(&self) -> Result<PathBuf> {
        let extern4 = self.target.join("release/extern4");
        if extern4.exists() {
            Ok(extern4)
        } else {
            Err(format!(
                "{} is missing: run `make bench`",
                extern4.display()
            ))
        }
    }

    /// The large image; it is made when a row asks for it.
    fn share(&self) -> Result<&Path> {
        kept(&self.share, || image::prepare_share(&self.folder)).map(PathBuf::as_path)
    }

    /// The image with `/usr/include`.
    fn include(&self) -> Result<&Path> {
        kept(&self.include, || image::prepare_include(&self.folder)).map(PathBuf::as_path)
    }

    /// The volumes with `/usr/include` and `/usr/share`.
    fn real_tree(&self) -> Result<&RealTree> {
        kept(&self.tree, || {
            RealTree::prepare(&self.folder, &self.extern4()?)
        })
    }
}

fn kept<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if cell.get().is_none() {
        let _ = cell.set(make()?);
    }
    Ok(cell.get().expect("it was just set"))
}

impl Need {
    /// The missing part, if there is one.
    fn missing(self) -> Option<String> {
        let there = match self {
            Self::Work(Work::Dbench(_)) => return Self::Program("dbench").missing(),
            Self::Mounts => {
                rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
            }
            Self::Fuse => Path::new("/dev/fuse").exists(),
            Self::Transport(Transport::Device) | Self::Rival(Rival::Kernel) | Self::Work(_) => true,
            Self::Transport(Transport::Ring) => {
                std::fs::read_to_string(RINGS).is_ok_and(|switch| switch.trim() == "Y")
            }
            Self::Rival(Rival::Fuse2fs) => return Self::Program("fuse2fs").missing(),
            Self::Program(name) => {
                let mut version = Command::new(name);
                version.arg(if name == "valgrind" {
                    "--version"
                } else {
                    "-V"
                });
                version
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .is_ok()
            }
        };
        if there {
            return None;
        }
        Some(match self {
            Self::Mounts => "the superuser and loop mounts".to_owned(),
            Self::Program(name) => format!("the program {name}"),
            Self::Fuse | Self::Rival(_) | Self::Work(_) => "/dev/fuse".to_owned(),
            Self::Transport(_) => format!("{RINGS} to say Y"),
        })
    }
}
