//! The zeroes of a warm path walk, all the way from the library's front door to an ext4 volume. The
//! walk makes no allocation, takes no lock, executes no locked instruction, and stores to no line
//! that a walk of another thread uses.
//!
//! `cargo test -p extern4 --features audit --test footprint -- --nocapture` prints the figures.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use extern4::{Access, Atime, Cred, File, Session, Volume, VolumeOptions, XattrFlags};
use extern4_sync::allocations;
use extern4_sync::audit::{Conflict, conflicts, locked_instructions, record, side_by_side};
use extern4_testkit::image::{Image, ImageSpec};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const CALLS: u64 = 100;
const FILE: &str = "/usr/include/linux/fs.h";
const LINK: &str = "/usr/include/fs.h";
const ABSENT: &str = "/usr/include/linux/none.h";

type Act<'a> = (&'static str, Box<dyn Fn() + Sync + 'a>);

fn questions(session: &Session) -> Vec<Act<'_>> {
    let metadata = |path| {
        black_box(session.metadata(black_box(path)).unwrap());
    };
    vec![
        ("metadata", Box::new(move || metadata(FILE))),
        ("metadata, through a link", Box::new(move || metadata(LINK))),
        (
            "symlink_metadata",
            Box::new(|| {
                black_box(session.symlink_metadata(black_box(LINK)).unwrap());
            }),
        ),
        (
            "access",
            Box::new(|| session.access(black_box(FILE), Access::READ).unwrap()),
        ),
        (
            "exists",
            Box::new(|| assert!(session.exists(black_box(FILE)).unwrap())),
        ),
        (
            "exists, name not there",
            Box::new(|| assert!(!session.exists(black_box(ABSENT)).unwrap())),
        ),
    ]
}

#[test]
fn a_warm_walk_on_ext4_leaves_no_trace_in_shared_memory() {
    let sample = extern4_testkit::sample::image();
    let volume = Volume::open(&sample.path).unwrap();
    let session = volume.session(Cred::new(1000, 1000, &[]));
    let (_, cold) = record(|| session.metadata(FILE).unwrap());
    println!("{:<28} {cold}", "metadata, nothing cached");
    assert!(cold.total().rmws > 10, "{cold:?}");

    let questions = questions(&session);
    for (name, ask) in &questions {
        (0..3).for_each(|_| ask());
        let before = allocations::of_this_thread();
        (0..CALLS).for_each(|_| ask());
        assert_eq!(allocations::of_this_thread() - before, 0, "{name}");
        let (_, footprint) = record(ask);
        println!("{name:<28} {footprint}");
        assert_eq!(
            (footprint.total().rmws, footprint.full_fences()),
            (0, 0),
            "{name}: {footprint:?}"
        );
        // The thread's record of its pin, and its slot of the counter of walks.
        assert!(footprint.written().count() <= 2, "{name}: {footprint:?}");
        if let Some((_, locked)) = locked_instructions(ask) {
            assert_eq!(locked, 0, "{name}");
        }
    }
    for (one_name, one) in &questions {
        for (other_name, other) in &questions {
            let [one, other] = side_by_side(one, other);
            let found = conflicts(&one, &other);
            assert!(found.is_empty(), "{one_name} and {other_name}: {found:?}");
        }
    }
}

/// Returns an empty volume open for writing, where one can be made.
fn empty_volume() -> Option<(Image, Volume)> {
    empty_volume_with(Volume::options().write(true))
}

fn empty_volume_with(options: &VolumeOptions) -> Option<(Image, Volume)> {
    let spec = ImageSpec::new("ext4", 64 << 20, &["-t", "ext4", "-b", "1024"]);
    spec.can_run().then(|| {
        let image = spec.build();
        let volume = options.open(&image.path).unwrap();
        (image, volume)
    })
}

/// Two threads read a file that was changed a while ago, and has been read often since.
#[test]
fn threads_that_read_one_file_share_no_line() {
    /// More reads than it takes until a lock and an inode are read as unchanged ones.
    const READS: usize = 40;
    /// For this long after a change, the changed object does not count as unchanged.
    const MOMENT: Duration = Duration::from_millis(20);
    let Some((_image, volume)) = empty_volume() else {
        return;
    };
    let session = volume.superuser();
    let files = [(); 2].map(|()| {
        session
            .open_with("/file", File::options().read(true).write(true).create(true))
            .unwrap()
    });
    files[0].write_at(&[7; 5000], 0).unwrap();
    let read = |who: usize| {
        let mut bytes = [0; 64];
        assert_eq!(
            (files[who].read_at(&mut bytes, 4090).unwrap(), bytes),
            (64, [7; 64])
        );
    };
    let meet = || {
        let [one, other] = side_by_side(|| read(0), || read(1));
        println!("read, by two threads         {one}");
        conflicts(&one, &other)
    };
    assert!(!meet().is_empty(), "nothing has been read often");
    // The first read may note its time, which is a change.
    for reads in [1, READS] {
        std::thread::sleep(MOMENT);
        (0..reads).for_each(|_| read(0));
    }
    let found = meet();
    assert!(found.is_empty(), "{found:?}");
}

/// A thread reads a file, and another changes what belongs to the file but not to its contents.
/// (With times of access, a read would have to find out when the file was changed last.)
#[test]
fn a_reader_shares_no_line_with_a_change_of_attributes() {
    let options = &mut Volume::options();
    let Some((_image, volume)) = empty_volume_with(options.write(true).atime(Atime::Never)) else {
        return;
    };
    let session = volume.superuser();
    let file = session
        .open_with("/file", File::options().read(true).write(true).create(true))
        .unwrap();
    file.write_at(&[7; 5000], 0).unwrap();
    let read = || {
        let mut bytes = [0; 64];
        assert_eq!(
            (file.read_at(&mut bytes, 4090).unwrap(), bytes),
            (64, [7; 64])
        );
    };
    (0..40).for_each(|_| read());
    let chmod = || session.set_permissions("/file", 0o600).unwrap();
    // Not as long as the one before, or the file system could overwrite that in place.
    let attribute = "user.attribute";
    let sets = AtomicUsize::new(0);
    let setxattr = || {
        let len = 4 + 4 * (sets.fetch_add(1, Ordering::Relaxed) % 2);
        session
            .setxattr("/file", attribute, &[1; 8][..len], XattrFlags::empty())
            .unwrap();
    };
    let changes: [Act<'_>; 6] = [
        ("chmod", Box::new(chmod)),
        ("setxattr", Box::new(setxattr)),
        (
            "setxattr and removexattr",
            Box::new(|| {
                session
                    .setxattr("/file", "user.other", b"value", XattrFlags::CREATE)
                    .unwrap();
                session.removexattr("/file", "user.other").unwrap();
            }),
        ),
        (
            "rename",
            Box::new(|| {
                session.rename("/file", "/other").unwrap();
                session.rename("/other", "/file").unwrap();
            }),
        ),
        (
            "link and unlink",
            Box::new(|| {
                session.hard_link("/file", "/other").unwrap();
                session.remove_file("/other").unwrap();
            }),
        ),
        (
            "write",
            Box::new(|| assert_eq!(file.write_at(&[7; 100], 100).unwrap(), 100)),
        ),
    ];
    for (name, change) in &changes {
        // In the second run, one thread reads changed attributes, but need not look at the inode
        // again.
        for [one, other] in [side_by_side(read, change), side_by_side(change, read)] {
            let found = conflicts(&one, &other);
            // The reader finds the inode by the dentry, whose name a rename changes.
            let most = usize::from(*name == "rename");
            assert!(found.len() <= most, "{name}: {found:?}");
        }
    }
}

/// Two threads write over blocks of one file. The first write in each tick of the clock has the
/// file to itself, so they get many chances to come within one.
#[test]
fn threads_that_write_over_blocks_of_one_file_share_no_line() {
    let Some((_image, volume)) = empty_volume() else {
        return;
    };
    let session = volume.superuser();
    let files = [(); 2].map(|()| {
        session
            .open_with("/file", File::options().read(true).write(true).create(true))
            .unwrap()
    });
    files[0].write_at(&[7; 4 * 4096], 0).unwrap();
    let write = |who: usize| {
        assert_eq!(
            files[who]
                .write_at(&[8; 4096], who as u64 * 2 * 4096)
                .unwrap(),
            4096
        );
    };
    let meet = || {
        let [one, other] = side_by_side(|| write(0), || write(1));
        println!("write, by two threads        {one}");
        conflicts(&one, &other)
    };
    assert!(!meet().is_empty(), "nothing has been written often");
    let mut found = Vec::new();
    for _ in 0..100 {
        // For a moment, a lock that a thread has held exclusively does not count as shared.
        std::thread::sleep(Duration::from_millis(1));
        (0..20).for_each(|_| [0, 1].into_iter().for_each(write));
        found = meet();
        if found.is_empty() {
            return;
        }
    }
    panic!("they meet: {found:?}");
}

/// Makes and removes an empty file.
fn come_and_go(session: &Session, dir: &str, name: u32) {
    let path = format!("{dir}/{name}");
    drop(
        session
            .open_with(&path, File::options().write(true).create(true))
            .unwrap(),
    );
    session.remove_file(&path).unwrap();
}

/// Checks the lines shared by two threads that make and remove files, in these directories, under
/// their own names. The threads may meet by chance, in a stripe of a cache, or because a commit
/// comes between. So they get several chances to share no more than `most` lines.
///
/// Threads that meet in a block group move apart, and they have to meet for that; on a busy machine
/// two threads may alternate for a while. So at first each chance is twice as long as the one
/// before. The number of files is no multiple of a thread's batch of frees. Otherwise each record
/// might coincide with the moment when the thread looks for readers.
fn share_at_most(most: usize, session: &Session, dirs: [&str; 2]) {
    const TRIES: u32 = 12;
    /// The number of files that each thread makes and removes before the first try.
    const FILES: u32 = 2000;
    let mut met = Vec::new();
    for name in 0..TRIES {
        let files = (FILES << name.min(4)) + 37 * name;
        let other_session = session.clone();
        let one = || come_and_go(session, dirs[0], 2 * name);
        let other = || come_and_go(&other_session, dirs[1], 2 * name + 1);
        let both = Barrier::new(2);
        let many = |act: &dyn Fn()| {
            both.wait();
            (0..files).for_each(|_| act());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| many(&other));
            many(&one);
        });
        let [one, other] = side_by_side(one, other);
        let found = conflicts(&one, &other);
        println!(
            "a file made and removed      {one}, {} in conflict",
            found.len()
        );
        if found.len() <= most {
            return;
        }
        let places = |conflict: &Conflict| {
            let sites =
                [&one, &other].map(|side| side.accesses(conflict.line).map(|access| access.site));
            sites
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect::<BTreeSet<_>>()
        };
        met = found.iter().map(places).collect::<Vec<_>>();
    }
    panic!("they always meet: {met:#?}");
}

/// Threads that make and remove files in their own directories share the count of blocks that
/// are not reserved, and nothing else.
#[test]
fn threads_that_change_directories_of_their_own_share_one_counter() {
    let Some((_image, volume)) = empty_volume() else {
        return;
    };
    let session = volume.superuser();
    ["/one", "/other"]
        .iter()
        .for_each(|dir| session.create_dir(dir).unwrap());
    share_at_most(1, &session, ["/one", "/other"]);
}

/// A thread makes files and another removes them, as threads of a mount do. The memory that they
/// need circulates between them.
#[test]
fn files_that_one_thread_makes_and_another_removes_take_no_new_memory() {
    const FILES: u64 = 4096;
    const ROUNDS: usize = 8;
    let Some((_image, volume)) = empty_volume() else {
        return;
    };
    let session = volume.superuser();
    let paths: Vec<_> = (0..FILES).map(|name| format!("/{name}")).collect();
    let make = |path| {
        drop(
            session
                .open_with(path, File::options().write(true).create(true))
                .unwrap(),
        )
    };
    let remove = |path| session.remove_file(path).unwrap();
    let both = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                both.wait();
                paths.iter().for_each(remove);
                both.wait();
            }
        });
        let made = || {
            let before = allocations::of_this_thread();
            paths.iter().for_each(make);
            let taken = allocations::of_this_thread() - before;
            both.wait();
            both.wait();
            taken
        };
        let rounds = [(); ROUNDS].map(|()| made());
        println!("{FILES} files that another thread removes: {rounds:?} allocations");
        // The least figure is of a round in which the memory of the round before was freed in time.
        // Then each file costs one allocation, for the result of its path walk. A concurrent
        // reader, in another test too, may keep some memory for a while. The objects that the other
        // thread still holds are allocated once more.
        let least = rounds[1..].iter().min();
        assert!(
            rounds[0] > 3 * FILES && least.is_some_and(|least| *least <= FILES + FILES / 16),
            "{rounds:?}"
        );
    });
}

/// In one directory they share the block with the names, its lock, the state of the directory, and
/// the count of its dentry, which each name in use has a part of.
#[test]
fn threads_that_change_one_directory_share_its_block_two_locks_and_two_counters() {
    let Some((_image, volume)) = empty_volume() else {
        return;
    };
    let session = volume.superuser();
    session.create_dir("/one").unwrap();
    share_at_most(5, &session.at("/one").unwrap(), [".", "."]);
}
