//! A hunt for deadlocks. Eight threads move, exchange, make and remove everything in a small tree
//! of directories, above, below and next to each other, and look at it meanwhile. If a thread
//! stops, a watchdog says what each was doing. When all have ended, the caches have to show what
//! the file system has, and that has to be a tree.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use extern4_block::MemoryDevice;
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tree::{Kind, assert_same, join};
use extern4_vfs::memfs::{MemFs, MemLimits};
use extern4_vfs::*;

use crate::model::{Op, Random, open, run, session};
use crate::threads::check;
use crate::watchdog::{Progress, watch};
use crate::{memory, walk};

const THREADS: u64 = 8;

/// How often each thing was done with success.
type Done = BTreeMap<&'static str, u64>;

/// A thread's next operation.
#[derive(Debug)]
enum Step {
    Change(Op),
    Stat(String),
    List(String),
    /// Works from that directory on, wherever it goes.
    Enter(String),
    /// Removes it with all that is in it.
    Clear(String),
    DropCaches,
    Sync,
}

/// A path of three names; at times on the way it goes up again.
fn path(random: &mut Random) -> String {
    let mut path = String::new();
    let depth = 1 + random.below(3);
    for level in 1..=depth {
        path.push('/');
        path.push(*random.pick(&['a', 'b', 'c']));
        if level < depth && random.one_in(8) {
            path.push_str("/..");
        }
    }
    path
}

fn step(random: &mut Random) -> (&'static str, Step) {
    let change = |what, op| (what, Step::Change(op));
    match random.below(100) {
        0..=11 => change("mkdir", Op::Mkdir(path(random), 0o755)),
        12..=21 => change("create", Op::Create(path(random), 0o644)),
        22..=35 => change("unlink", Op::Unlink(path(random))),
        36..=47 => change("rmdir", Op::Rmdir(path(random))),
        48..=55 => change("link", Op::Link(path(random), path(random))),
        56..=67 => change(
            "rename",
            Op::Rename(path(random), path(random), RenameFlags::empty()),
        ),
        68..=69 => change(
            "noreplace",
            Op::Rename(path(random), path(random), RenameFlags::NOREPLACE),
        ),
        70..=77 => change(
            "exchange",
            Op::Rename(path(random), path(random), RenameFlags::EXCHANGE),
        ),
        78 => change(
            "whiteout",
            Op::Rename(path(random), path(random), RenameFlags::WHITEOUT),
        ),
        79..=80 => change(
            "chmod",
            Op::Chmod(path(random), *random.pick(&[0o700, 0o755])),
        ),
        81..=90 => ("stat", Step::Stat(path(random))),
        91..=96 => ("list", Step::List(path(random))),
        97 => ("enter", Step::Enter(path(random))),
        98 => ("clear", Step::Clear(path(random))),
        _ if random.one_in(8) => ("sync", Step::Sync),
        _ => ("drop caches", Step::DropCaches),
    }
}

/// One thread: the root, where it works, and what it has done.
struct Member {
    root: Session,
    here: Session,
    random: Random,
    progress: Arc<Progress>,
    done: Done,
}

impl Member {
    fn work(mut self, steps: u64, all_done: &Mutex<Done>) {
        for at in 0..steps {
            let (name, step) = step(&mut self.random);
            let shown = format!("{at}: {step:?}");
            self.progress.begin(shown.clone());
            let result = self.take(step);
            if result.is_ok() {
                *self.done.entry(name).or_default() += 1;
            }
            check(&shown, result);
            self.progress.end();
        }
        self.progress.end_all();
        let mut all = all_done.lock().expect("no thread panics with it");
        self.done
            .iter()
            .for_each(|(name, times)| *all.entry(name).or_default() += times);
    }

    fn take(&mut self, step: Step) -> Result<()> {
        // From the root, or from a directory that others have moved since.
        let session = if self.random.one_in(4) {
            &self.here
        } else {
            &self.root
        };
        match step {
            Step::Change(Op::Rename(from, to, flags)) if self.random.one_in(4) => {
                self.here.rename_to(from, &self.root, to, flags)
            }
            Step::Change(op) => run(session, &op),
            Step::Stat(path) => session.stat(path, LookupFlags::NOFOLLOW).map(drop),
            Step::List(path) => list(session, &path).map(drop),
            Step::Enter(path) => {
                let mut inside = session.clone();
                inside.chroot(path)?;
                self.here = inside;
                Ok(())
            }
            Step::Clear(path) => clear(session, &path),
            Step::DropCaches => {
                self.root.root().superblock().drop_caches();
                Ok(())
            }
            Step::Sync => self.root.root().superblock().sync(),
        }
    }
}

/// Removes a tree as far as others let it go.
fn clear(session: &Session, path: &str) -> Result<()> {
    for (name, attr) in list(session, path)? {
        let child = format!("{path}/{}", name.escape_ascii());
        let is_dir = attr.is_some_and(|attr| attr.kind == FileType::Directory);
        check(
            &child,
            if is_dir {
                clear(session, &child)
            } else {
                session.unlink(&child)
            },
        );
    }
    session.rmdir(path)
}

/// The entries of a directory: names with the attributes of each.
fn list(session: &Session, path: &str) -> Result<Vec<(Vec<u8>, Option<Attr>)>> {
    let dir = open(session, path, OpenFlags::READ | OpenFlags::DIRECTORY, 0)?;
    let mut batch = DirBatch::new();
    let mut cookie = 0;
    let mut names = Vec::new();
    loop {
        dir.read_dir_plus(cookie, 2, &mut batch)?;
        let Some(next) = batch.next_cookie() else {
            return Ok(names);
        };
        cookie = next;
        let real = batch
            .iter()
            .filter(|entry| entry.name != b"." && entry.name != b"..");
        names.extend(real.map(|entry| (entry.name.to_vec(), entry.attr.copied())));
    }
}

/// The inode at each path: number, type and links.
type Shown = BTreeMap<Vec<u8>, (u64, FileType, u64)>;

/// The tree as a session shows it, in which each directory leads back up.
fn shown(what: &str, session: &Session) -> Shown {
    let mut shown = Shown::new();
    let mut todo = vec![b"/".to_vec()];
    while let Some(path) = todo.pop() {
        let text = path.escape_ascii().to_string();
        let attr = session
            .stat(&path, LookupFlags::NOFOLLOW)
            .unwrap_or_else(|e| panic!("{what}: {text}: {e}"));
        if attr.kind == FileType::Directory {
            let as_text = String::from_utf8(path.clone()).expect("names are ASCII");
            for (name, listed) in
                list(session, &as_text).unwrap_or_else(|e| panic!("{what}: {text}: {e}"))
            {
                let child = join(&path, &name);
                let found = session.stat(&child, LookupFlags::NOFOLLOW).ok();
                let ino = |attr: Option<Attr>| attr.map(|attr| attr.ino);
                assert_eq!(
                    ino(found),
                    ino(listed),
                    "{what}: {text}: {}",
                    name.escape_ascii()
                );
                if found.is_some_and(|attr| attr.kind == FileType::Directory) {
                    let up = session
                        .stat(join(&child, b".."), LookupFlags::FOLLOW)
                        .expect("the way up");
                    assert_eq!(
                        up.ino,
                        attr.ino,
                        "{what}: {text}: {}/..",
                        name.escape_ascii()
                    );
                }
                todo.push(child);
            }
        }
        shown.insert(path, (attr.ino, attr.kind, u64::from(attr.nlink)));
    }
    shown
}

/// Each inode has as many links as names lead to it.
fn assert_links(what: &str, shown: &Shown) {
    let mut names: BTreeMap<u64, u64> = BTreeMap::new();
    for (path, (ino, kind, _)) in shown {
        *names.entry(*ino).or_default() += if *kind == FileType::Directory { 2 } else { 1 };
        if *kind == FileType::Directory && path != b"/" {
            let end = path
                .iter()
                .rposition(|byte| *byte == b'/')
                .expect("an absolute path");
            let parent = &shown[&path[..end.max(1)]];
            *names.entry(parent.0).or_default() += 1;
        }
    }
    for (path, (ino, _, links)) in shown {
        assert_eq!(names[ino], *links, "{what}: {}", path.escape_ascii());
    }
}

/// Runs the threads; afterwards all views agree about what is left. Returns what was done.
fn hunt(
    what: &str,
    fs: &Arc<impl FileSystem>,
    options: SuperOptions,
    seed: u64,
    steps: u64,
) -> Done {
    let sb = SuperBlock::new(Arc::clone(fs) as Arc<dyn FileSystem>, options)
        .expect("the root can be read");
    let root = Session::new(&Namespace::new(sb), Cred::root());
    let all_done = Arc::new(Mutex::new(Done::new()));
    let crowd = (0..THREADS).map(|number| {
        let progress = Arc::<Progress>::default();
        let all_done = Arc::clone(&all_done);
        let member = Member {
            root: root.clone(),
            here: root.clone(),
            random: Random::new(seed * 100 + number),
            progress: Arc::clone(&progress),
            done: Done::new(),
        };
        (
            progress,
            std::thread::spawn(move || member.work(steps, &all_done)),
        )
    });
    watch(what, crowd.collect());
    let warm = shown(what, &root);
    assert_links(what, &warm);
    root.root().superblock().drop_caches();
    assert!(
        warm == shown(what, &root),
        "{what}: the cached tree differs from the real one"
    );
    drop(root);
    let there: Shown = walk::tree(&**fs)
        .entries
        .into_iter()
        .map(|(path, entry)| {
            (
                path,
                (entry.ino, kind(entry.kind), entry.nlink.unwrap_or(0)),
            )
        })
        .collect();
    assert!(
        warm == there,
        "{what}: the shown tree differs from the real one"
    );
    let done = all_done.lock().expect("no thread panics with it");
    done.clone()
}

fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File => FileType::Regular,
        // A whiteout is a character device.
        Kind::CharDevice => FileType::CharDevice,
        other => panic!("no operation made {other:?}"),
    }
}

/// Returns caches that hold nearly everything, or caches so small that they evict names and inodes
/// all the time.
fn caches(seed: u64) -> SuperOptions {
    let most = if seed.is_multiple_of(2) { 1024 } else { 32 };
    SuperOptions {
        budget: CacheBudget::new(most << 10),
        ..SuperOptions::default()
    }
}

/// A hunt in which nothing was done finds nothing.
fn assert_done(what: &str, done: &Done) {
    for name in [
        "mkdir", "create", "unlink", "rmdir", "link", "rename", "exchange", "whiteout", "stat",
        "list", "enter", "clear",
    ] {
        assert!(
            done.contains_key(name),
            "{what}: {name} was never done: {done:?}"
        );
    }
}

#[test]
fn no_deadlock_in_memory() {
    for seed in 0..memory::number("EXTERN4_HUNTS", 4) {
        let what = format!("memfs, seed {seed}");
        let done = hunt(
            &what,
            &MemFs::new(MemLimits::default()),
            caches(seed),
            seed,
            40_000,
        );
        assert_done(&what, &done);
    }
}

#[test]
fn no_deadlock_on_ext4() {
    let spec = ImageSpec::new(
        "ext4",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-N", "16384", "-J", "size=4"],
    );
    if !spec.can_run() {
        return;
    }
    for seed in 0..memory::number("EXTERN4_HUNTS", 4) {
        let what = format!("ext4, seed {seed}");
        let image = spec.build();
        let device = Arc::new(MemoryDevice::new(
            std::fs::read(&image.path).expect("the image is read"),
        ));
        let fs = memory::open(&what, &device);
        let done = hunt(&what, &fs, caches(seed), seed, 20_000);
        assert_done(&what, &done);
        let live = walk::tree(&*fs);
        fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        drop(fs);
        assert_same(&what, &live, &memory::judge_in(&what, &device, &image));
    }
}

/// Lets threads loose that do `each` with growing numbers, as long as the first has not done it
/// `times`.
fn loose(what: &str, times: u64, each: Vec<Box<dyn Fn(u64) + Send>>) {
    let ended = Arc::new(AtomicBool::new(false));
    let crowd = each.into_iter().enumerate().map(|(thread, each)| {
        let progress = Arc::<Progress>::default();
        let ended = Arc::clone(&ended);
        let work = {
            let progress = Arc::clone(&progress);
            move || {
                let _ends_all = EndsAll(Arc::clone(&ended));
                let mut at = 0;
                while !ended.load(Ordering::Relaxed) && (thread > 0 || at < times) {
                    progress.begin(format!("{at}"));
                    each(at);
                    progress.end();
                    at += 1;
                }
                progress.end_all();
            }
        };
        (progress, std::thread::spawn(work))
    });
    watch(what, crowd.collect());
}

/// Ends the work of all, also when one fails.
struct EndsAll(Arc<AtomicBool>);

impl Drop for EndsAll {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Three threads that each wait for the next. The first exchanges two directories of one parent and
/// holds the first directory. The second moves a file into the first directory from a directory
/// below the second, and holds that lower one. The third removes the lower one and holds the second
/// directory.
#[test]
fn an_exchange_during_a_move_between_other_directories() {
    let sb =
        SuperBlock::new(MemFs::new(MemLimits::default()), SuperOptions::default()).expect("a root");
    let root = Session::new(&Namespace::new(sb), Cred::root());
    // Where neither lies above the other, the order is that of their numbers.
    for dir in ["/low", "/first", "/second"] {
        root.mkdir(dir, 0o755).expect("a directory");
    }
    root.rename("/low", "/second/low", RenameFlags::empty())
        .expect("it moves");
    for path in ["/first/file", "/second/low/stays"] {
        open(&root, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)
            .map(drop)
            .expect("a file");
    }
    // Wherever the exchange has put them.
    let names = [("/first", "/second"), ("/second", "/first")];
    let [exchanges, moves, removes] = [(); 3].map(|()| root.clone());
    loose(
        "an exchange during a move",
        40_000,
        vec![
            Box::new(move |_| {
                exchanges
                    .rename("/first", "/second", RenameFlags::EXCHANGE)
                    .expect("both are there")
            }),
            Box::new(move |at| {
                let (one, other) = names[at as usize / 2 % 2];
                let here = format!("{one}/file");
                let there = format!("{other}/low/file");
                let (from, to) = if at % 2 == 0 {
                    (here, there)
                } else {
                    (there, here)
                };
                check("move", moves.rename(from, to, RenameFlags::empty()));
            }),
            Box::new(move |at| {
                // It is never empty.
                let (_, other) = names[at as usize % 2];
                check("remove", removes.rmdir(format!("{other}/low")));
            }),
        ],
    );
}

/// A file is freed with its last name, and a whiteout gets its number before every cache has
/// forgotten it.
#[test]
fn a_whiteout_is_not_the_file_that_had_its_number() {
    let spec = ImageSpec::new(
        "ext4",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-N", "16384", "-J", "size=4"],
    );
    if !spec.can_run() {
        return;
    }
    let what = "whiteouts";
    let image = spec.build();
    let device = Arc::new(MemoryDevice::new(
        std::fs::read(&image.path).expect("the image is read"),
    ));
    let fs = memory::open(what, &device);
    let root = session(fs.clone());
    let create = |session: &Session, path: &str| {
        open(session, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)
            .map(drop)
            .expect("a file");
    };
    let files = root.clone();
    let whiteouts = root.clone();
    let more = root.clone();
    loose(
        what,
        memory::number("EXTERN4_WHITEOUTS", 20_000),
        vec![
            Box::new(move |_| {
                create(&whiteouts, "/from");
                whiteouts
                    .rename("/from", "/to", RenameFlags::WHITEOUT)
                    .expect("it moves");
                let left = whiteouts
                    .stat("/from", LookupFlags::NOFOLLOW)
                    .expect("something is left");
                assert_eq!((left.kind, left.nlink), (FileType::CharDevice, 1));
                whiteouts.unlink("/from").expect("it goes");
            }),
            Box::new(move |_| {
                create(&files, "/file");
                files.unlink("/file").expect("it goes");
            }),
            Box::new(move |_| {
                create(&more, "/other");
                more.unlink("/other").expect("it goes");
            }),
        ],
    );
    drop(root);
    fs.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    memory::judge_in(what, &device, &image);
}
