//! Blocks that a volume keeps for some users: which users may fill them, and where others find the
//! volume full. The kernel has to give the same answers.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use extern4_ext4::OpenOptions;
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::tools::{self, Need};
use extern4_vfs::*;

use crate::model::{
    ALL_QUOTAS, LOG_CONTENTS, Op, Random, data, judge, open, open_for_writing,
    open_for_writing_with, run, session,
};

const USER: (u32, u32) = (1000, 1000);
const ROOT: (u32, u32) = (0, 0);
const PIECE: usize = 64 << 10;
/// The bytes that the map of a file and its directory may take, in the kernel and in the library.
const MARGIN: u64 = 64 << 10;

fn image(name: &'static str, mke2fs: &'static [&'static str]) -> Option<Image> {
    image_for(
        name,
        mke2fs,
        &[Step::Tune2fs(&["-r", "4000", "-u", "1001", "-g", "1002"])],
    )
}

fn image_for(
    name: &'static str,
    mke2fs: &'static [&'static str],
    reserve: &'static [Step],
) -> Option<Image> {
    let spec = ImageSpec::new(name, 16 << 20, mke2fs)
        .then(reserve)
        .mounted(&[|root| {
            std::fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o777))
        }]);
    spec.can_run().then(|| spec.build())
}

/// Writes to a new file until there is no room; returns how many bytes could be written.
fn fill(session: &Session, path: &str) -> u64 {
    let file = match open(session, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644) {
        Err(error) if error == Errno::ENOSPC => return 0,
        file => file.expect("a new file"),
    };
    let mut size = 0;
    loop {
        match file.write_at(&[7; PIECE], size) {
            Ok(written) => size += written as u64,
            Err(error) => {
                assert_eq!(error.errno(), Errno::ENOSPC, "{error}");
                return size;
            }
        }
    }
}

/// Writes through the kernel until there is no room; returns how many bytes could be written.
fn fill_by_kernel(root: &Path, (uid, gid): (u32, u32), name: &str) -> u64 {
    let path = root.join(name);
    let mut dd = Command::new("dd");
    dd.arg("if=/dev/zero")
        .arg(format!("of={}", path.display()))
        .args(["bs=64k", "conv=fsync"]);
    let output = dd.uid(uid).gid(gid).output().expect("dd runs");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("No space left"),
        "{output:?}"
    );
    path.metadata().map_or(0, |it| it.len())
}

/// Users one after the other, each of which fills the volume.
const TURNS: [((u32, u32), &str); 5] = [
    (USER, "a"),
    ((1000, 0), "b"),
    ((1000, 1002), "c"),
    ((1001, 5), "d"),
    (ROOT, "e"),
];

fn as_user(root: &Session, (uid, gid): (u32, u32)) -> Session {
    root.with_cred(Cred::new(uid, gid, &[]))
}

fn free(root: &Session) -> StatFs {
    root.statfs("/", LookupFlags::FOLLOW).expect("totals")
}

fn available(root: &Session) -> u64 {
    let found = free(root);
    found.blocks_available * u64::from(found.block_size)
}

/// Free blocks of a volume that the kernel has mounted.
fn free_by_kernel(root: &Path) -> u64 {
    let printed = tools::run(
        "stat",
        ["-f", "-c", "%f", root.to_str().expect("a plain name")],
    );
    String::from_utf8_lossy(&printed)
        .trim()
        .parse()
        .expect("a number")
}

fn full_where_the_kernel_is(image: &Image, options: &OpenOptions) {
    let (theirs, left): (Vec<u64>, u64) = {
        let copy = image.copy();
        // Named again: kernels have taken the user for the group.
        let mount = copy.mount("noatime,resuid=1001,resgid=1002");
        let theirs = TURNS
            .iter()
            .map(|(user, name)| fill_by_kernel(&mount.path, *user, name))
            .collect();
        (theirs, free_by_kernel(&mount.path))
    };
    let fs = Arc::new(open_for_writing_with(&image.path, options).expect("a volume"));
    let root = session(fs.clone() as _);
    for ((user, name), theirs) in TURNS.iter().zip(&theirs) {
        let ours = fill(&as_user(&root, *user), &format!("/{name}"));
        assert!(
            ours.abs_diff(*theirs) <= MARGIN,
            "{name}: {ours} bytes here, {theirs} there, {theirs:?}"
        );
        assert!(available(&root) < MARGIN, "{name}: {}", available(&root));
    }
    // The last piece that `dd` wrote may have had no room.
    let kept = free(&root).blocks_free.abs_diff(left);
    assert!(
        kept <= PIECE as u64 >> 10,
        "{kept} blocks more or less than the kernel keeps from the superuser"
    );
    let sizes = theirs;
    assert!(
        sizes[0] > 8 << 20 && sizes[2] > 3 << 20,
        "there was something to fill: {sizes:?}"
    );
    drop(root);
    fs.close().expect("close");
    drop(fs);
    judge("reserve", image);
}

#[test]
fn ordinary_users_leave_the_reserve() {
    // Of a volume with extents, the kernel keeps one block of fifty for itself, from the superuser
    // too.
    for (name, mke2fs) in [
        (
            "reserve-ext4",
            &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
        ),
        ("reserve-ext2", &["-t", "ext2", "-b", "1024"]),
    ] {
        if let Some(image) = image(name, mke2fs) {
            full_where_the_kernel_is(&image, &OpenOptions::default());
        }
    }
}

/// Not the user and the group that the superblock names, which may use what is reserved no more.
#[test]
fn options_name_the_user_of_the_reserve() {
    let others: &[Step] = &[Step::Tune2fs(&["-r", "4000", "-u", "1000", "-g", "5"])];
    let Some(image) = image_for("reserve-named", &["-t", "ext2", "-b", "1024"], others) else {
        return;
    };
    let named = OpenOptions {
        reserved_uid: Some(1001),
        reserved_gid: Some(1002),
        ..OpenOptions::default()
    };
    full_where_the_kernel_is(&image, &named);
}

#[test]
fn every_kind_of_change_leaves_the_reserve() {
    let Some(image) = image(
        "reserve-kinds",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    ) else {
        return;
    };
    let fs = open_for_writing(&image.path);
    let root = session(fs.clone() as _);
    let user = as_user(&root, USER);
    let create = OpenFlags::WRITE | OpenFlags::CREATE;
    let write = OpenFlags::WRITE;
    let file = open(&user, "/room", create, 0o644).expect("a file");
    file.fallocate(FallocateMode::empty(), 0, 40 << 10)
        .expect("there is room");
    let names = open(&user, "/names", create, 0o644).expect("a file");
    fill(&user, "/big");
    // Names that fit into blocks that are there go on until a block is full.
    let mut count = 0;
    let refused = loop {
        count += 1;
        let name = format!("/{}{count}", "n".repeat(200));
        match user.link("/names", LookupFlags::FOLLOW, name) {
            Ok(()) => assert!(count < 20, "a new block was taken for names"),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Errno::ENOSPC);
    let long = XattrFlags::empty();
    let target = "t".repeat(300);
    for (what, result) in [
        ("mkdir", user.mkdir("/dir", 0o755).map(drop)),
        ("symlink", user.symlink(&target, "/link").map(drop)),
        (
            "set_xattr",
            user.set_xattr("/names", "user.long", &[1; 600], long, LookupFlags::FOLLOW),
        ),
        (
            "fallocate",
            names.fallocate(FallocateMode::empty(), 0, 4096),
        ),
        ("write", names.write_at(&[1; 1000], 0).map(drop)),
    ] {
        assert_eq!(result.expect_err(what), Errno::ENOSPC, "{what}");
    }
    // The user with allocated room uses it, in pieces that take blocks for their map, and gives it
    // back.
    for at in (0..40).step_by(2) {
        file.write_at(&[2; 1024], at << 10)
            .expect("the room is there");
    }
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    file.fallocate(punch, 2 << 10, 1024)
        .expect("room can be given back");
    user.truncate("/big", 1 << 20, LookupFlags::FOLLOW)
        .expect("room can be given back");
    fs.sync().expect("sync");
    names.write_at(&[1; 1000], 0).expect("there is room again");
    open(&root, "/big", write, 0).expect("open");
    drop((file, names, user, root));
    fs.close().expect("close");
    drop(fs);
    judge("reserve-kinds", &image);
}

const PUNCH: FallocateMode = FallocateMode::PUNCH_HOLE.union(FallocateMode::KEEP_SIZE);

/// Files of four pieces, which fill the map in the inode, room that nothing has been written to,
/// and nothing else free.
const FURNISH: &str = r#"
    for f in punch zero collapse insert cut cut-more; do
        for i in 0 20 40 60; do
            dd if=/dev/urandom of=$f bs=1k seek=$i count=8 conv=notrunc,fsync status=none
            dd if=/dev/urandom of=between bs=1k count=1 oflag=append conv=notrunc,fsync status=none
        done
    done
    for f in one comb; do fallocate -l 400k $f; done
    fallocate -o 400k -l 400k behind; truncate -s 400k behind; fallocate -n -o 400k -l 100k behind
    setfattr -n user.a -v aaa punch; echo 1 >victim; echo 2 >newer; mkdir empty
    sync
    dd if=/dev/zero of=big bs=64k conv=fsync status=none; dd if=/dev/zero of=small bs=1k conv=fsync status=none
    sync; test $(stat -f -c %a .) = 0
"#;

fn shell(root: &Path, script: &str) -> bool {
    let mut sh = Command::new("sh");
    sh.arg("-c")
        .arg(script)
        .current_dir(root)
        .stderr(std::process::Stdio::null());
    sh.status().expect("sh runs").success()
}

/// Operations on a volume that the superuser has filled, as commands and as we have them.
fn on_a_full_volume() -> Vec<(&'static str, Op)> {
    let s = str::to_owned;
    let on =
        |path: &str, mode, at: u64, len: u64| Op::Fallocate(s(path), mode, at << 10, len << 10);
    let none = RenameFlags::empty();
    let set = XattrFlags::empty();
    vec![
        ("fallocate -p -o 2k -l 1k punch", on("/punch", PUNCH, 2, 1)),
        (
            "fallocate -z -o 2k -l 1k zero",
            on("/zero", FallocateMode::ZERO_RANGE, 2, 1),
        ),
        (
            "fallocate -c -o 2k -l 1k collapse",
            on("/collapse", FallocateMode::COLLAPSE_RANGE, 2, 1),
        ),
        (
            "fallocate -i -o 2k -l 1k insert",
            on("/insert", FallocateMode::INSERT_RANGE, 2, 1),
        ),
        (
            "dd if=/dev/zero of=one bs=1k seek=100 count=1 conv=notrunc,fsync",
            Op::Write(s("/one"), 100 << 10, 1024),
        ),
        (
            "dd if=/dev/zero of=behind bs=1k seek=450 count=1 conv=notrunc,fsync",
            Op::Write(s("/behind"), 450 << 10, 1024),
        ),
        (
            "dd if=/dev/zero of=punch bs=1k seek=12 count=1 conv=notrunc,fsync",
            Op::Write(s("/punch"), 12 << 10, 1024),
        ),
        (
            "dd if=/dev/zero of=zero bs=1k count=8 conv=notrunc,fsync",
            Op::Write(s("/zero"), 0, 8 << 10),
        ),
        (
            "fallocate -o 12k -l 1k zero",
            on("/zero", FallocateMode::empty(), 12, 1),
        ),
        ("truncate -s 100k cut", Op::Truncate(s("/cut"), 100 << 10)),
        (
            "setfattr -n user.a -v bbb punch",
            Op::SetXattr(s("/punch"), s("user.a"), 3, set),
        ),
        (
            "setfattr -n user.b -v $(printf %0600d 0) punch",
            Op::SetXattr(s("/punch"), s("user.b"), 600, set),
        ),
        ("chmod 600 punch", Op::Chmod(s("/punch"), 0o600)),
        ("chown 1:2 punch", Op::Chown(s("/punch"), 1, 2)),
        ("touch -d @5 punch", Op::Utimens(s("/punch"), 5)),
        ("mkdir new", Op::Mkdir(s("/new"), 0o755)),
        ("mkfifo fifo", Op::Mknod(s("/fifo"), NewKind::Fifo)),
        (
            "ln -s $(printf %0200d 0) link",
            Op::Symlink("t".repeat(200), s("/link")),
        ),
        ("ln punch linked", Op::Link(s("/punch"), s("/linked"))),
        (
            "mv -T newer victim",
            Op::Rename(s("/newer"), s("/victim"), none),
        ),
        ("rmdir empty", Op::Rmdir(s("/empty"))),
        (
            "truncate -s 30k cut-more",
            Op::Truncate(s("/cut-more"), 30 << 10),
        ),
        ("rm between", Op::Unlink(s("/between"))),
    ]
}

#[test]
fn a_full_volume_allows_the_same_changes_as_linux() {
    if !tools::can_run(&[Need::Tool("fallocate"), Need::Tool("setfattr")]) {
        return;
    }
    let specs: [(_, &'static [&'static str], &[Step]); 3] = [
        (
            "must-succeed",
            &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"],
            &[],
        ),
        (
            "must-succeed-nojournal",
            &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"],
            &[],
        ),
        (
            "must-succeed-contents",
            &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"],
            LOG_CONTENTS,
        ),
    ];
    for (name, mke2fs, steps) in specs {
        let spec = ImageSpec::new(name, 8 << 20, mke2fs)
            .mounted(&[|root| {
                assert!(shell(root, FURNISH), "the volume is filled");
                Ok(())
            }])
            .then(steps);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let copy = image.copy();
        let ops = on_a_full_volume();
        let mount = copy.mount("noatime");
        let fs = open_for_writing(&image.path);
        let root = session(fs.clone() as _);
        assert_eq!(
            free(&root).blocks_free,
            free_by_kernel(&mount.path),
            "{name}"
        );
        assert_eq!(free(&root).blocks_available, 0, "{name}");
        for (command, op) in &ops {
            let theirs = shell(&mount.path, command);
            let ours = run(&root, op);
            assert_eq!(ours.is_ok(), theirs, "{name}, {command}: {ours:?}");
        }
        // A tree of extents that becomes deep.
        for at in (1..400).step_by(2) {
            run(&root, &Op::Write("/comb".to_owned(), at << 10, 1024)).expect("the room is there");
        }
        drop((root, mount));
        fs.close().expect("close");
        drop(fs);
        judge(name, &image);
    }
}

/// Room for 64 files, which are written to in the middle when nothing is free any more.
fn write_into_allocated_room(
    name: &'static str,
    size: u64,
    options: &OpenOptions,
    steps: &'static [Step],
) {
    const FILES: u64 = 64;
    let mke2fs = &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"];
    let spec = ImageSpec::new(name, size, mke2fs).then(steps);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = Arc::new(open_for_writing_with(&image.path, options).expect("a volume"));
    let root = session(fs.clone() as _);
    let blocks = 20 + free(&root).blocks_available / 3 / FILES;
    let room = blocks << 10;
    let open_it = |at| {
        open(
            &root,
            &format!("/{at}"),
            OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE,
            0o644,
        )
        .expect("it opens")
    };
    for at in 0..FILES {
        // Some files keep their size, so the second half of their blocks is after the end.
        let mode = FallocateMode::KEEP_SIZE;
        open_it(at).fallocate(mode, 0, room).expect("there is room");
        open_it(at)
            .set_len(if at % 4 == 0 { room / 2 } else { room })
            .expect("it can be longer");
    }
    for at in 0.. {
        let size = fill(&root, &format!("/fill{at}"));
        let before = free(&root).blocks_available;
        fs.sync().expect("sync");
        if size == 0 && before == 0 {
            break;
        }
    }
    let mut random = Random::new(3);
    let mut model = vec![vec![0; room as usize]; FILES as usize];
    for round in 0..12 {
        for at in 0..FILES {
            let from = random.below(room / 2 - 5000);
            let len = 1 + random.below(4000) as usize;
            let bytes = data(from + round, len);
            let written = open_it(at).write_at(&bytes, from);
            assert_eq!(
                written.expect("the room is there"),
                len,
                "{name}, {at}, round {round}"
            );
            model[at as usize][from as usize..from as usize + len].copy_from_slice(&bytes);
        }
    }
    for (at, wanted) in (0..FILES).zip(&model) {
        let file = open_it(at);
        let mut found = vec![1; file.size() as usize];
        assert_eq!(
            file.read_at(&mut found, 0).expect("it is read"),
            found.len()
        );
        assert!(found == wanted[..found.len()], "{name}, {at}");
    }
    drop(root);
    fs.close().expect("close");
    drop(fs);
    judge(name, &image);
}

#[test]
fn room_that_is_allocated_can_be_written_on_a_full_volume() {
    write_into_allocated_room("allocated", 32 << 20, &OpenOptions::default(), &[]);
    write_into_allocated_room(
        "allocated-contents",
        32 << 20,
        &OpenOptions::default(),
        LOG_CONTENTS,
    );
}

/// Without a block for the map of extents, what else an extent has room for becomes zeroes.
#[test]
fn room_that_is_allocated_can_be_written_when_not_a_block_is_left() {
    let options = OpenOptions {
        reserved_clusters: Some(0),
        ..OpenOptions::default()
    };
    write_into_allocated_room("allocated-last", 12 << 20, &options, &[]);
    write_into_allocated_room("allocated-last-contents", 12 << 20, &options, LOG_CONTENTS);
}

/// A new owner needs an entry in each quota file, which may need blocks.
#[test]
fn owners_change_on_a_full_volume_with_quotas() {
    let mke2fs: &'static [&'static str] = &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-m",
        "0",
        "-O",
        "quota,project",
        "-E",
        ALL_QUOTAS,
    ];
    let spec = ImageSpec::new("reserve-quota", 16 << 20, mke2fs);
    if !spec.can_run() {
        return;
    }
    let image = spec.build();
    let fs = open_for_writing(&image.path);
    let root = session(fs.clone() as _);
    let paths: Vec<String> = (0..20).map(|at| format!("/{at}")).collect();
    paths
        .iter()
        .for_each(|path| run(&root, &Op::Create(path.clone(), 0o644)).expect("a file"));
    while free(&root).blocks_available > 0 {
        fill(&root, &format!("/fill{}", free(&root).blocks_available));
        fs.sync().expect("sync");
    }
    for (path, at) in paths.iter().zip(1..) {
        root.chown(
            path,
            Some(at * 1_000_000),
            Some(at * 2_000_000),
            LookupFlags::FOLLOW,
        )
        .expect("it can be given away");
    }
    drop(root);
    fs.close().expect("close");
    drop(fs);
    tools::e2fsck(&image.path).expect("e2fsck has nothing to say of it");
}

/// Files with room in advance, and which blocks of each are allocated.
const ROOMS: usize = 30;
const ROOM_BLOCKS: u64 = 300;

/// A change that needs no room, at random; `rooms` are the blocks that are allocated.
fn must_succeed(
    root: &Session,
    random: &mut Random,
    rooms: &mut [Vec<bool>],
) -> (String, Result<()>) {
    let at = random.below(ROOMS as u64) as usize;
    let path = format!("/{at}");
    let room = &mut rooms[at];
    let from = random.below(room.len() as u64);
    let len = (1 + random.below(12)).min(room.len() as u64 - from);
    let blocks = from as usize..(from + len) as usize;
    let (op, result);
    if random.one_in(200) {
        let size = room.len() as u64 * 9 / 10;
        room.truncate(size as usize);
        op = Op::Truncate(path, size << 10);
    } else if random.one_in(12) {
        op = Op::Fallocate(path, PUNCH, from << 10, len << 10);
        room[blocks].fill(false);
    } else if random.one_in(40) && (from + len) < room.len() as u64 {
        op = Op::Fallocate(path, FallocateMode::COLLAPSE_RANGE, from << 10, len << 10);
        room.drain(blocks);
    } else if random.one_in(40) {
        op = Op::Fallocate(path, FallocateMode::INSERT_RANGE, from << 10, len << 10);
        room.splice(
            from as usize..from as usize,
            std::iter::repeat_n(false, len as usize),
        );
    } else {
        let end = blocks
            .clone()
            .find(|&block| !room[block])
            .unwrap_or(blocks.end) as u64;
        op = Op::Write(path, from << 10, ((end - from) << 10) as usize);
    }
    result = run(root, &op);
    (format!("{op:?}"), result)
}

#[test]
fn changes_that_need_no_room_succeed_at_random_on_a_full_volume() {
    for (seed, reserved_clusters) in [(1, None), (2, None), (3, Some(0))] {
        let mke2fs = &["-t", "ext4", "-b", "1024", "-m", "0", "-J", "size=1"];
        let spec = ImageSpec::new("must-succeed-random", 16 << 20, mke2fs);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let options = OpenOptions {
            reserved_clusters,
            ..OpenOptions::default()
        };
        let fs = Arc::new(open_for_writing_with(&image.path, &options).expect("a volume"));
        let root = session(fs.clone() as _);
        let mut rooms = vec![vec![true; ROOM_BLOCKS as usize]; ROOMS];
        for at in 0..ROOMS {
            let file = open(
                &root,
                &format!("/{at}"),
                OpenFlags::WRITE | OpenFlags::CREATE,
                0o644,
            );
            file.expect("a file")
                .fallocate(FallocateMode::empty(), 0, ROOM_BLOCKS << 10)
                .expect("room");
        }
        let random = &mut Random::new(seed);
        for step in 0..3000 {
            if step % 50 == 0 {
                fs.sync().expect("sync");
                fill(&root, &format!("/fill{step}"));
            }
            let (op, result) = must_succeed(&root, random, &mut rooms);
            // Without a block that is kept, only writes have another way.
            if reserved_clusters.is_none() || op.starts_with("Write") {
                result.unwrap_or_else(|e| panic!("seed {seed}, step {step}, {op}: {e:?}"));
            } else if result.is_err() {
                break;
            }
        }
        drop(root);
        fs.close().expect("close");
        drop(fs);
        judge("must-succeed-random", &image);
    }
}
