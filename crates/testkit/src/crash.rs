//! Images whose journal still has to be replayed.
//!
//! A workload runs on a mounted image; then the power goes. An ioctl may shut down the file system
//! first. In any case this copies the image under the mount, with metadata in the journal that is
//! not in its place yet. The kernel then gives the expected contents: it mounts a copy and replays
//! the journal, and this crate reads the mount.
//!
//! The tests of `ext4` and `extern4` open these images. If the machine cannot make one, the test is
//! skipped and says so.

mod workload;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;

use crate::image::{Image, ImageSpec};
use crate::tools::{self, Need, perl, run};
use crate::tree::{self, Kind, Time, Tree};

/// A workload on the mounted volume before the crash. The files that it returns stay open until
/// after the crash.
pub type Workload = fn(&Path) -> io::Result<Vec<File>>;

/// How the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The journal's running transaction is committed, then nothing is written any more.
    ShutdownAfterCommit,
    /// Nothing is written any more, and uncommitted changes are lost.
    Shutdown,
    /// The image is copied while mounted.
    CopyWhileMounted,
}

/// How a crashed image comes to be.
#[derive(Clone, Copy)]
pub struct CrashSpec {
    /// A name for messages.
    pub name: &'static str,
    mke2fs: &'static [&'static str],
    options: &'static str,
    workload: Workload,
    crash: Crash,
}

const fn crash(
    name: &'static str,
    mke2fs: &'static [&'static str],
    options: &'static str,
    workload: Workload,
    crash: Crash,
) -> CrashSpec {
    CrashSpec {
        name,
        mke2fs,
        options,
        workload,
        crash,
    }
}

use Crash::{CopyWhileMounted, Shutdown, ShutdownAfterCommit};
use workload::{churn, escapes, fast_commits, orphans, revokes, wrap};

/// With these options, nothing leaves the journal on its own while a workload runs. Commits come
/// from fsync and sync only.
const QUIET: &str = "noatime,commit=300";

/// The most images that are made, if Linux cannot replay them.
const TRIES: usize = 10;

/// Room for all fast commits of a workload: with the usual 15 blocks, a full commit would soon make
/// them void.
const FAST: &str = "fast_commit_size=1024";

/// All crashed images.
pub const SPECS: &[CrashSpec] = &[
    crash(
        "ordered",
        &["-t", "ext4", "-b", "4096"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "ordered_lost",
        &["-t", "ext4", "-b", "4096"],
        QUIET,
        churn,
        Shutdown,
    ),
    crash(
        "ordered_copied",
        &["-t", "ext4", "-b", "4096"],
        QUIET,
        churn,
        CopyWhileMounted,
    ),
    crash(
        "ordered_1k",
        &["-t", "ext4", "-b", "1024"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "ordered_2k_copied",
        &["-t", "ext4", "-b", "2048"],
        QUIET,
        churn,
        CopyWhileMounted,
    ),
    crash(
        "no_csum",
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "no_64bit",
        &["-t", "ext4", "-b", "4096", "-O", "^64bit"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "no_csum_no_64bit",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"],
        QUIET,
        churn,
        CopyWhileMounted,
    ),
    crash(
        "csum_seed",
        &["-t", "ext4", "-b", "4096", "-O", "metadata_csum_seed"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "ext3",
        &["-t", "ext3", "-b", "4096"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "ext3_1k_copied",
        &["-t", "ext3", "-b", "1024"],
        QUIET,
        churn,
        CopyWhileMounted,
    ),
    crash(
        "checksum_v1",
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
        "noatime,commit=300,journal_checksum",
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "async_commit",
        &["-t", "ext4", "-b", "4096"],
        "noatime,commit=300,data=writeback,journal_async_commit",
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "async_commit_v1",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        "noatime,commit=300,data=writeback,journal_async_commit",
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "data_journal",
        &["-t", "ext4", "-b", "4096"],
        "noatime,commit=300,data=journal",
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "data_journal_escapes",
        &["-t", "ext4", "-b", "4096"],
        "noatime,commit=300,data=journal",
        escapes,
        ShutdownAfterCommit,
    ),
    crash(
        "data_journal_escapes_1k",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        "noatime,commit=300,data=journal",
        escapes,
        CopyWhileMounted,
    ),
    crash(
        "data_writeback",
        &["-t", "ext4", "-b", "1024"],
        "noatime,commit=300,data=writeback",
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "revokes",
        &["-t", "ext4", "-b", "1024"],
        QUIET,
        revokes,
        ShutdownAfterCommit,
    ),
    crash(
        "revokes_no_csum",
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"],
        QUIET,
        revokes,
        ShutdownAfterCommit,
    ),
    crash(
        "revokes_data_journal",
        &["-t", "ext4", "-b", "1024"],
        "noatime,commit=300,data=journal",
        revokes,
        CopyWhileMounted,
    ),
    crash(
        "wrapped",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        QUIET,
        wrap,
        ShutdownAfterCommit,
    ),
    crash(
        "wrapped_4k",
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
        QUIET,
        wrap,
        CopyWhileMounted,
    ),
    crash(
        "orphan_list",
        &["-t", "ext4", "-b", "4096"],
        QUIET,
        orphans,
        ShutdownAfterCommit,
    ),
    crash(
        "orphan_list_copied",
        &["-t", "ext4", "-b", "1024"],
        QUIET,
        orphans,
        CopyWhileMounted,
    ),
    crash(
        "orphan_file",
        &["-t", "ext4", "-b", "4096", "-O", "orphan_file"],
        QUIET,
        orphans,
        ShutdownAfterCommit,
    ),
    crash(
        "orphan_file_1k",
        &["-t", "ext4", "-b", "1024", "-O", "orphan_file"],
        QUIET,
        orphans,
        CopyWhileMounted,
    ),
    crash(
        "inline_data",
        &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "bigalloc",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
    crash(
        "fast_commit",
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit", "-J", FAST],
        QUIET,
        fast_commits,
        Shutdown,
    ),
    crash(
        "fast_commit_copied",
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit", "-J", FAST],
        QUIET,
        fast_commits,
        CopyWhileMounted,
    ),
    crash(
        "fast_commit_1k",
        &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-J", FAST],
        QUIET,
        fast_commits,
        CopyWhileMounted,
    ),
    crash(
        "fast_commit_no_csum",
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "fast_commit,^metadata_csum",
            "-J",
            FAST,
        ],
        QUIET,
        fast_commits,
        Shutdown,
    ),
    crash(
        "fast_commit_inline",
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "fast_commit,inline_data",
            "-J",
            FAST,
        ],
        QUIET,
        fast_commits,
        Shutdown,
    ),
    // No fast commits on a volume without extents: replaying them, Linux 6.18 runs into a BUG in
    // its block maps. The mount that dies there keeps its superblock locked, and sync(2) hangs on
    // the whole machine until it is restarted.
    crash(
        "fast_commit_churn",
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit", "-J", FAST],
        QUIET,
        churn,
        ShutdownAfterCommit,
    ),
];

/// Returns the spec with this name.
///
/// # Panics
/// When there is none.
pub fn spec(name: &str) -> &'static CrashSpec {
    SPECS
        .iter()
        .find(|spec| spec.name == name)
        .unwrap_or_else(|| panic!("no crashed image is named {name}"))
}

impl CrashSpec {
    /// Returns whether this machine can build and judge the image; says so loudly if not.
    pub fn can_run(&self) -> bool {
        let needs: &[Need] = if self.is_fast() {
            &[Need::KernelFeature("fast_commit")]
        } else {
            &[]
        };
        ImageSpec::new(self.name, 0, &[]).needing(needs).can_run()
    }

    /// Returns whether the journal may hold fast commits.
    fn is_fast(&self) -> bool {
        self.mke2fs.iter().any(|word| word.contains("fast_commit"))
    }

    /// Makes the image, up to the crash.
    ///
    /// Linux 6.18 cannot always replay its own fast commits if the number of a deleted file is used
    /// again. It refuses to mount about one image in twenty. No oracle can then say what the image
    /// holds, so this makes another one.
    ///
    /// # Panics
    /// When any step fails, or the journal turns out to be empty.
    pub fn build(&self) -> Image {
        let mut images = std::iter::repeat_with(|| self.build_once()).take(TRIES);
        let judged = images.find(|image| self.is_replayed(image) && self.journal_matters(image));
        judged.unwrap_or_else(|| {
            panic!(
                "{}: Linux replays none of {TRIES} images to any effect",
                self.name
            )
        })
    }

    fn is_replayed(&self, image: &Image) -> bool {
        !self.is_fast() || image.copy().try_mount("rw,noatime").is_ok()
    }

    /// Returns whether the replay changes what the volume holds. If a program on this machine calls
    /// `sync` before the image is copied, all blocks are in their places. The journal would then
    /// prove nothing about the code that replays it.
    fn journal_matters(&self, image: &Image) -> bool {
        let before = self.tree_without_journal(&image.copy());
        before.is_none_or(|before| tree::diff(&before, &self.oracle_tree(image), 1).is_some())
    }

    fn build_once(&self) -> Image {
        let image = ImageSpec::new(self.name, 64 << 20, self.mke2fs)
            .mounted(&[])
            .build();
        let mount = image.mount(self.options);
        let open =
            (self.workload)(&mount.path).unwrap_or_else(|e| panic!("{}: workload: {e}", self.name));
        if self.crash != Crash::CopyWhileMounted {
            shut_down(&mount.path, self.crash);
        }
        // Unmounting writes even the committed changes of a shut-down file system to their final
        // places. The journal would then not be needed. So the crashed image is a copy in every
        // case.
        let crashed = image.copy();
        drop(open);
        mount.unmount();
        assert!(
            needs_recovery(&crashed),
            "{}: the journal has nothing to replay",
            self.name
        );
        crashed
    }

    /// Returns what the volume holds after the kernel has replayed the journal, which it does in a
    /// copy.
    ///
    /// When the kernel replays fast commits, it gives directories the time of the replay. It also
    /// miscounts the links and blocks of directories that it makes on the way. The tree leaves out
    /// such times, and counts with which e2fsck disagrees.
    pub fn oracle_tree(&self, image: &Image) -> Tree {
        let copy = image.copy();
        // For a read-only mount, mount(8) would make the loop device read-only, too. Replay would
        // then be impossible.
        let mount = copy.mount("rw,noatime");
        let mut tree = tree::from_mount(&mount.path);
        mount.unmount();
        if self.is_fast() {
            let crashed_at = modified(&image.path);
            let checked = checked(&copy);
            let directories = tree
                .entries
                .iter_mut()
                .filter(|(_, entry)| entry.kind == Kind::Directory);
            for (entry, checked) in directories.map(|(path, entry)| (entry, &checked.entries[path]))
            {
                entry.nlink = entry.nlink.filter(|_| entry.nlink == checked.nlink);
                entry.blocks = entry.blocks.filter(|_| entry.blocks == checked.blocks);
                entry.mtime = entry.mtime.filter(|time| *time <= crashed_at);
                entry.ctime = entry.ctime.filter(|time| *time <= crashed_at);
            }
        }
        tree
    }

    /// Returns what the volume holds without its journal.
    pub fn tree_without_journal(&self, image: &Image) -> Option<Tree> {
        let mount = image.try_mount("ro,noatime,noload").ok()?;
        // Half-written structures may well be unreadable, which is the point of the journal.
        std::panic::catch_unwind(|| tree::from_mount(&mount.path)).ok()
    }
}

/// Stops all writing with `EXT4_IOC_SHUTDOWN`, which is `_IOR('X', 125, u32)`: 1 commits the
/// journal before, 2 does not.
///
/// # Panics
/// When the kernel refuses.
pub fn shut_down(root: &Path, how: Crash) {
    let flag = if how == Crash::ShutdownAfterCommit {
        "1"
    } else {
        "2"
    };
    let script = r#"open(F, "<", $ARGV[0]) or die $!; my $how = pack("L", $ARGV[1]); ioctl(F, 0x8004587d, $how) or die $!"#;
    perl(script, [root.as_os_str().to_owned(), OsString::from(flag)]);
}

/// Returns the tree after e2fsck has corrected the faults it finds.
fn checked(image: &Image) -> Tree {
    let args = ["-fy", "-E", "no_optimize_extents"].map(OsStr::new);
    // Its status says that it has corrected something, which is no failure here.
    let _ = tools::try_run(
        "e2fsck",
        args.iter().copied().chain([image.path.as_os_str()]),
    );
    tree::from_mount(&image.mount("ro,noatime").path)
}

/// Returns the time of the last write to a file of this machine.
fn modified(path: &Path) -> Time {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).expect("the image is there");
    Time {
        sec: meta.mtime(),
        nsec: u32::try_from(meta.mtime_nsec()).expect("nanoseconds of a second"),
    }
}

fn needs_recovery(image: &Image) -> bool {
    let said = run(
        "dumpe2fs",
        [OsString::from("-h"), image.path.clone().into()],
    );
    String::from_utf8_lossy(&said).contains("needs_recovery")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::diff;

    /// A journal whose replay changes nothing would prove nothing about the code that replays it.
    #[test]
    fn every_journal_matters() {
        for spec in SPECS {
            if !spec.can_run() {
                return;
            }
            let start = std::time::Instant::now();
            let image = spec.build();
            let built = start.elapsed();
            let replayed = spec.oracle_tree(&image);
            println!(
                "{:24} {:5} entries, built in {built:.1?}, read in {:.1?}",
                spec.name,
                replayed.len(),
                start.elapsed() - built
            );
            if let Some(before) = spec.tree_without_journal(&image) {
                assert!(
                    diff(&before, &replayed, 1).is_some(),
                    "{}: the journal changes nothing",
                    spec.name
                );
            }
        }
    }
}
