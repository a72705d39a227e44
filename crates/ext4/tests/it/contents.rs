//! Contents of files that change at random, compared with an array of bytes that changes in the
//! same way. Then our own check, `e2fsck`, `debugfs` and, where it can be mounted, the kernel judge
//! the volume.

use std::sync::Arc;

use extern4_block::{FileDevice, FileOptions};
use extern4_ext4::{Ext4, OpenOptions};
use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::tools;
use extern4_vfs::{
    ChangeContext, Errno, FallocateMode, FileOps, FileSystem, Inode, Lent, SpaceRights, Timespec,
};

use crate::model::Random;
use crate::walk;

const NOW: Timespec = Timespec {
    sec: 1_700_000_000,
    nsec: 123_456_789,
};
/// No limit binds the caller.
const CONTEXT: ChangeContext = ChangeContext {
    now: NOW,
    rights: SpaceRights::ALL,
};
const FILES: usize = 3;

/// An image with a few empty files.
fn image(name: &'static str, size: u64, mke2fs: &'static [&'static str]) -> Image {
    let spec = ImageSpec::new(name, size, mke2fs).from_directory(&[|root| {
        (0..FILES).try_for_each(|at| std::fs::write(root.join(format!("f{at}")), b""))
    }]);
    spec.build()
}

fn open(image: &Image) -> Ext4 {
    let options = FileOptions {
        write: true,
        ..FileOptions::default()
    };
    let device = FileDevice::open_with(&image.path, &options).expect("the image opens as a device");
    Ext4::open_for_writing(Arc::new(device), &OpenOptions::default()).unwrap()
}

/// A file and what it should hold.
struct Pair {
    inode: Inode,
    model: Vec<u8>,
}

impl Pair {
    fn write(&mut self, fs: &Ext4, data: &[u8], at: usize) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            let part = fs
                .write_at(&self.inode, &data[done..], (at + done) as u64, CONTEXT)
                .map_err(|e| e.errno())?;
            assert!(part > 0);
            let end = at + done + part;
            if self.model.len() < end {
                self.model.resize(end, 0);
            }
            self.model[at + done..end].copy_from_slice(&data[done..done + part]);
            done += part;
        }
        Ok(())
    }

    fn fallocate(
        &mut self,
        fs: &Ext4,
        mode: FallocateMode,
        at: usize,
        len: usize,
    ) -> Result<(), Errno> {
        fs.fallocate(&self.inode, mode, at as u64, len as u64, CONTEXT)
            .map_err(|e| e.errno())?;
        let end = at + len;
        let size = self.model.len();
        if mode.contains(FallocateMode::INSERT_RANGE) {
            self.model.splice(at..at, vec![0; len]);
        } else if mode.contains(FallocateMode::COLLAPSE_RANGE) {
            self.model.drain(at..end);
        } else if mode.intersects(FallocateMode::PUNCH_HOLE | FallocateMode::ZERO_RANGE) {
            self.model[at.min(size)..end.min(size)].fill(0);
        }
        let grows = mode.is_empty() || mode == FallocateMode::ZERO_RANGE;
        if grows && size < end {
            self.model.resize(end, 0);
        }
        Ok(())
    }

    fn compare(&self, fs: &Ext4, what: &str) {
        let attr = self.inode.attr();
        assert_eq!(attr.size, self.model.len() as u64, "{what}");
        let mut bytes = vec![0xee; self.model.len() + 1];
        let read = fs.read_at(&self.inode, &mut bytes, 0).unwrap();
        assert_eq!(read, self.model.len());
        if let Some(at) = (0..read).find(|&at| bytes[at] != self.model[at]) {
            panic!(
                "{what}: byte {at} is {} and not {}",
                bytes[at], self.model[at]
            );
        }
        if let Some(lent) = walk::lent(fs, &self.inode, 0, self.model.len() + 1).unwrap() {
            assert!(lent == self.model, "{what}: lent bytes");
        }
    }
}

/// One random change of a file. Some cannot be made: then nothing must have changed.
fn change(fs: &Ext4, pair: &mut Pair, random: &mut Random, most: u64, bs: u64) {
    let at = random.below(most);
    let len = match random.below(4) {
        0 => 1 + random.below(bs),
        1 => bs * (1 + random.below(8)),
        2 => 1 + random.below(most.min(64 << 10)),
        _ => 1 + random.below(most / 8),
    };
    let at = if random.below(2) == 0 {
        at / bs * bs
    } else {
        at
    };
    let start = at as usize;
    let span = len as usize;
    let mode = match random.below(20) {
        0..=8 => {
            let fill = 1 + random.below(255) as u8;
            let data: Vec<u8> = (0..span).map(|at| fill ^ (at / 512) as u8).collect();
            return allowed(pair.write(fs, &data, start), &[Errno::ENOSPC]);
        }
        9 => {
            let len = pair.model.len();
            return allowed(
                pair.write(fs, &vec![0x5a; span.min(5000)], len),
                &[Errno::ENOSPC],
            );
        }
        10 | 11 => {
            fs.truncate(&pair.inode, at, CONTEXT).unwrap();
            return pair.model.resize(start, 0);
        }
        12 => FallocateMode::empty(),
        13 => FallocateMode::KEEP_SIZE,
        14 | 15 => FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
        16 => FallocateMode::ZERO_RANGE,
        17 => FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE,
        18 => FallocateMode::COLLAPSE_RANGE,
        _ => FallocateMode::INSERT_RANGE,
    };
    let (start, span) = match mode {
        FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE => (
            start / bs as usize * bs as usize,
            span.next_multiple_of(bs as usize),
        ),
        _ => (start, span),
    };
    let result = pair.fallocate(fs, mode, start, span);
    allowed(result, &[Errno::ENOSPC, Errno::EOPNOTSUPP, Errno::EINVAL]);
}

fn allowed(result: Result<(), Errno>, errors: &[Errno]) {
    if let Err(errno) = result {
        assert!(errors.contains(&errno), "{errno:?}");
    }
}

fn sync(fs: &Ext4) {
    fs.sync().unwrap();
}

fn judge(image: &Image, models: &[Vec<u8>], what: &str) {
    let device = FileDevice::open(&image.path).expect("the image opens as a device");
    let fs = Ext4::open(Arc::new(device), &OpenOptions::default()).unwrap();
    let mut faults = Vec::new();
    extern4_check::check(&fs, &extern4_check::Options::default(), &mut |fault| {
        faults.push(fault.to_string())
    })
    .unwrap();
    assert!(
        faults.is_empty(),
        "{what}: {:?}",
        &faults[..faults.len().min(9)]
    );
    if let Err(said) = tools::try_run("e2fsck", ["-fn".as_ref(), image.path.as_os_str()]) {
        let out = std::process::Command::new("e2fsck")
            .arg("-fn")
            .arg(&image.path)
            .output()
            .unwrap();
        panic!("{what}: {said} {}", String::from_utf8_lossy(&out.stdout));
    }
    for (at, model) in models.iter().enumerate() {
        let inode = walk::resolve(&fs, &format!("/f{at}")).unwrap();
        Pair {
            inode,
            model: model.clone(),
        }
        .compare(&fs, what);
        let out = tools::debugfs_bytes(&image.path, false, &format!("cat /f{at}"));
        // debugfs repeats the command.
        assert!(out.ends_with(model), "{what}: debugfs reads another f{at}");
    }
    if tools::can_run(&[tools::Need::Mount]) {
        let mount = image.mount("ro,noload");
        for (at, model) in models.iter().enumerate() {
            let read = std::fs::read(mount.path.join(format!("f{at}"))).unwrap();
            assert!(read == *model, "{what}: the kernel reads another f{at}");
        }
        mount.unmount();
    }
}

struct Case {
    name: &'static str,
    mke2fs: &'static [&'static str],
    block: u64,
    size: u64,
    most: u64,
}

const CASES: [Case; 7] = [
    Case {
        name: "ext4-1k",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        block: 1024,
        size: 24 << 20,
        most: 3 << 20,
    },
    Case {
        name: "ext4-4k",
        mke2fs: &["-t", "ext4", "-b", "4096"],
        block: 4096,
        size: 48 << 20,
        most: 6 << 20,
    },
    Case {
        name: "ext4-1k-journal",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "^flex_bg,^64bit"],
        block: 1024,
        size: 24 << 20,
        most: 8 << 20,
    },
    Case {
        name: "ext2-1k",
        mke2fs: &["-t", "ext2", "-b", "1024"],
        block: 1024,
        size: 12 << 20,
        most: 3 << 20,
    },
    Case {
        name: "ext3-4k",
        mke2fs: &["-t", "ext3", "-b", "4096"],
        block: 4096,
        size: 48 << 20,
        most: 8 << 20,
    },
    Case {
        name: "ext4-inline",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "inline_data", "-I", "512"],
        block: 4096,
        size: 16 << 20,
        most: 1 << 20,
    },
    Case {
        name: "ext4-nocsum",
        mke2fs: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "512",
            "-O",
            "^metadata_csum,uninit_bg",
        ],
        block: 1024,
        size: 24 << 20,
        most: 3 << 20,
    },
];

fn run(case: &Case, seed: u64, steps: u32) {
    let what = format!("{} seed {seed}", case.name);
    let image = image(case.name, case.size, case.mke2fs);
    let fs = open(&image);
    sync(&fs);
    let free = fs.statfs().unwrap().blocks_free;
    let mut random = Random::new(seed);
    let mut pairs: Vec<Pair> = (0..FILES)
        .map(|at| Pair {
            inode: walk::resolve(&fs, &format!("/f{at}")).unwrap(),
            model: Vec::new(),
        })
        .collect();
    for step in 0..steps {
        let at = random.below(FILES as u64) as usize;
        // As long as they are small, contents may live in inodes.
        let most = if step < 40 { 200 } else { case.most };
        change(&fs, &mut pairs[at], &mut random, most, case.block);
        if step % 8 == 0 {
            pairs[at].compare(&fs, &format!("{what} step {step}"));
        }
        if step % 50 == 0 {
            fs.sync_file(&pairs[at].inode, false).unwrap();
        }
    }
    let models: Vec<Vec<u8>> = pairs.into_iter().map(|pair| pair.model).collect();
    fs.close().unwrap();
    drop(fs);
    judge(&image, &models, &what);

    let fs = open(&image);
    for at in 0..FILES {
        let inode = walk::resolve(&fs, &format!("/f{at}")).unwrap();
        fs.truncate(&inode, 0, CONTEXT).unwrap();
        assert_eq!((inode.attr().size, inode.attr().blocks), (0, 0), "{what}");
    }
    sync(&fs);
    assert_eq!(
        fs.statfs().unwrap().blocks_free,
        free,
        "{what}: blocks are lost"
    );
    fs.close().unwrap();
    drop(fs);
    judge(&image, &[Vec::new(), Vec::new(), Vec::new()], &what);
}

#[test]
fn contents_change_as_an_array_of_bytes_does() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|it| it.parse().ok())
            .unwrap_or(default)
    };
    let first = number("EXTERN4_SEED", 1);
    let seeds = number("EXTERN4_SEEDS", 2);
    let steps = number("EXTERN4_STEPS", 200);
    std::thread::scope(|scope| {
        for cases in CASES.chunks(CASES.len() / 2) {
            scope.spawn(move || {
                for case in cases {
                    (first..first + seeds).for_each(|seed| run(case, seed, steps as u32));
                }
            });
        }
    });
}

/// Writes files in random order, so that no two of their blocks are adjacent. Their extent trees
/// have several levels, whose nodes split anywhere.
fn fragment(name: &'static str, mke2fs: &'static [&'static str], seed: u64) {
    let image = image(name, 40 << 20, mke2fs);
    let fs = open(&image);
    sync(&fs);
    let free = fs.statfs().unwrap().blocks_free;
    let mut random = Random::new(seed);
    let mut pairs: Vec<Pair> = (0..FILES)
        .map(|at| Pair {
            inode: walk::resolve(&fs, &format!("/f{at}")).unwrap(),
            model: Vec::new(),
        })
        .collect();
    let mut places: Vec<usize> = (0..3000).collect();
    for at in (1..places.len()).rev() {
        places.swap(at, random.below(at as u64 + 1) as usize);
    }
    for (nth, place) in places.iter().enumerate() {
        for pair in &mut pairs[..2] {
            pair.write(&fs, &[nth as u8 | 1; 1024], place * 2048)
                .unwrap();
        }
    }
    let depth = |ino: u64| {
        let map = *fs.raw_inode(ino as u32).unwrap().map();
        u16::from_le_bytes([map[6], map[7]])
    };
    if name.starts_with("ext4") {
        assert_eq!(depth(pairs[0].inode.ino()), 2);
    }
    pairs.iter().for_each(|pair| pair.compare(&fs, name));
    for step in 0..150 {
        let at = random.below(2) as usize;
        change(&fs, &mut pairs[at], &mut random, 6 << 20, 1024);
        if step % 10 == 0 {
            pairs[at].compare(&fs, &format!("{name} step {step}"));
        }
    }
    let models: Vec<Vec<u8>> = pairs.iter().map(|pair| pair.model.clone()).collect();
    drop(pairs);
    fs.close().unwrap();
    drop(fs);
    judge(&image, &models, name);

    let fs = open(&image);
    for (at, model) in models.iter().enumerate() {
        let inode = walk::resolve(&fs, &format!("/f{at}")).unwrap();
        fs.truncate(&inode, model.len() as u64 / 2, CONTEXT)
            .unwrap();
        fs.truncate(&inode, 0, CONTEXT).unwrap();
    }
    sync(&fs);
    assert_eq!(fs.statfs().unwrap().blocks_free, free, "blocks are lost");
    fs.close().unwrap();
    drop(fs);
    judge(&image, &[Vec::new(), Vec::new(), Vec::new()], name);
}

#[test]
fn deep_trees_grow_and_shrink() {
    fragment("ext4-deep", &["-t", "ext4", "-b", "1024"], 1);
    fragment("ext2-deep", &["-t", "ext2", "-b", "1024"], 2);
}

/// A reader of a file whose tree changes sees every byte that was there before and stays.
#[test]
fn readers_see_unchanged_contents_while_the_map_changes() {
    let image = image("ext4-readers", 40 << 20, &["-t", "ext4", "-b", "1024"]);
    let fs = open(&image);
    let inode = walk::resolve(&fs, "/f0").unwrap();
    let mut pair = Pair {
        inode,
        model: Vec::new(),
    };
    // Every fourth block is there from the beginning.
    for at in 0..1000 {
        pair.write(&fs, &[at as u8 | 1; 1024], at * 4096).unwrap();
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(7);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let at = random.below(1000);
                let mut byte = [0];
                assert_eq!(
                    fs.read_at(&pair.inode, &mut byte, at * 4096 + 5).unwrap(),
                    1
                );
                assert_eq!(byte[0], at as u8 | 1, "block {at}");
            }
        });
        for round in 0..3u64 {
            for at in 0..1000 {
                fs.write_at(
                    &pair.inode,
                    &[9; 1024],
                    at * 4096 + 1024 * (1 + (round + at) % 3),
                    CONTEXT,
                )
                .unwrap();
            }
            let keep = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            for at in (0..1000).step_by(2) {
                fs.fallocate(&pair.inode, keep, at * 4096 + 1024, 3072, CONTEXT)
                    .unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    fs.close().unwrap();
}

/// Not a test of anything: prints how fast a file is written. Run it alone, with `--release` and
/// `--ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn speed_of_writing() {
    let size = std::env::var("EXTERN4_BENCH_MIB")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(2048u64);
    let image = image("bench", (size + 512) << 20, &["-t", "ext4", "-b", "4096"]);
    let raw = image.scratch().join("raw");
    let file = std::fs::File::create(&raw).unwrap();
    let data = vec![7u8; 1 << 20];
    let timed = |what: &str, bytes: u64, run: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        run();
        let time = start.elapsed();
        println!(
            "{what}: {:.0} MiB/s",
            bytes as f64 / 1048576.0 / time.as_secs_f64()
        );
        time
    };
    for _ in 0..2 {
        timed("pwrite, 1 MiB", size << 20, &mut || {
            for at in 0..size {
                std::os::unix::fs::FileExt::write_all_at(&file, &data, at << 20).unwrap();
            }
        });
        file.set_len(0).unwrap();
    }
    drop(file);
    std::fs::remove_file(&raw).unwrap();
    let fs = open(&image);
    let inode = walk::resolve(&fs, "/f0").unwrap();
    for what in ["write, 1 MiB, new device pages", "write, 1 MiB, again"] {
        timed(what, size << 20, &mut || {
            for at in 0..size {
                assert_eq!(
                    fs.write_at(&inode, &data, at << 20, CONTEXT).unwrap(),
                    1 << 20
                );
            }
        });
        timed("overwrite, 1 MiB", size << 20, &mut || {
            for at in 0..size {
                assert_eq!(
                    fs.write_at(&inode, &data, at << 20, CONTEXT).unwrap(),
                    1 << 20
                );
            }
        });
        timed("truncate", size << 20, &mut || {
            fs.truncate(&inode, 0, CONTEXT).unwrap()
        });
        fs.sync().unwrap();
    }
    let count = 100_000;
    let time = timed("append, 4 KiB", count * 4096, &mut || {
        for at in 0..count {
            assert_eq!(
                fs.write_at(&inode, &data[..4096], at * 4096, CONTEXT)
                    .unwrap(),
                4096
            );
        }
    });
    println!("{:.2} us each", time.as_secs_f64() * 1e6 / count as f64);
    let time = timed("overwrite, 4 KiB", count * 4096, &mut || {
        for at in 0..count {
            assert_eq!(
                fs.write_at(&inode, &data[..4096], at * 4096, CONTEXT)
                    .unwrap(),
                4096
            );
        }
    });
    println!("{:.2} us each", time.as_secs_f64() * 1e6 / count as f64);
    println!("{} extents", extents(&fs, &inode));
    fs.truncate(&inode, 0, CONTEXT).unwrap();
    fs.close().unwrap();
}

#[test]
fn lent_contents_stay_until_they_are_taken() {
    let image = image("lent", 16 << 20, &["-t", "ext4", "-b", "4096"]);
    let fs = open(&image);
    let mut pair = Pair {
        inode: walk::resolve(&fs, "/f0").unwrap(),
        model: Vec::new(),
    };
    pair.write(&fs, &[b'a'; 3 * 4096 + 5], 4096).unwrap();
    let want = pair.model[10..].to_vec();
    assert_eq!(
        walk::lent(&fs, &pair.inode, 10, 1 << 20).unwrap(),
        Some(want)
    );
    assert_eq!(
        walk::lent(&fs, &pair.inode, 1 << 20, 1 << 20).unwrap(),
        Some(Vec::new()),
        "behind the end"
    );
    let is_cut = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taken = fs.lend(&pair.inode, 0, 1 << 20, &mut |pieces| {
            assert!(
                matches!(pieces, [Lent::Zeroes(4096), Lent::Host { len: 12293, .. }]),
                "{pieces:?}"
            );
            scope.spawn(|| {
                fs.truncate(&pair.inode, 0, CONTEXT).unwrap();
                is_cut.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(
                !is_cut.load(std::sync::atomic::Ordering::Relaxed),
                "blocks go while they are lent"
            );
            false
        });
        assert!(!taken.unwrap());
    });
    assert_eq!(pair.inode.attr().size, 0);
    fs.close().unwrap();
}

fn extents(fs: &Ext4, inode: &Inode) -> u32 {
    let mut at = 0;
    let mut count = 0;
    while let Some(span) = fs.span_at(inode, at).unwrap() {
        at = span.offset + span.len;
        count += 1;
    }
    count
}
