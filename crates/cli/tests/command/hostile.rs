//! Images from strangers, mounted by users: their files give no rights, and damage costs an error,
//! never the daemon.

use std::fs;
use std::io::Result;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::{plan, tools};

use crate::mounting::{Served, as_user, copy_command, users_can_mount};
use crate::run::tool;

const USER: u32 = 1000;
const OTHER: u32 = 2000;

/// Makes a set-id program of root, and a device that all users may open.
fn armed(root: &Path) -> Result<()> {
    let program = root.join("id");
    fs::copy(tools::find("id").expect("a program"), &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    tool(root, "mknod", ["-m", "666", "zero", "c", "1", "5"]);
    fs::write(root.join("file"), "text")
}

#[test]
fn files_on_the_image_of_a_user_give_no_rights() {
    if !users_can_mount() {
        return;
    }
    let image = ImageSpec::new("disk", 16 << 20, &["-t", "ext4"])
        .from_directory(&[armed])
        .build();
    let scratch = prepare(&image);
    let said = |uid: u32, script: &str| {
        let run = as_user(uid, scratch, script).output().expect("setpriv");
        String::from_utf8_lossy(&run.stdout).trim().to_owned()
    };
    const READ: &str = "head -c 4 mnt/zero | wc -c";
    // In a mount by root, they work.
    let served = Served::new(&image, &[]);
    assert_eq!(
        (said(USER, "mnt/id -u"), said(USER, READ)),
        ("0".to_owned(), "4".to_owned())
    );
    assert_eq!(said(OTHER, "cat mnt/file"), "text");
    served.umount();
    // Users mount on their own directories.
    chown(scratch.join("mnt"), Some(USER), None).expect("its owner");
    for options in ["ro", "rw,suid,dev"] {
        said(USER, &format!("./extern4 mount disk.img mnt -o {options}"));
        assert_eq!(
            (said(USER, "mnt/id -u"), said(USER, READ)),
            (USER.to_string(), "0".to_owned())
        );
        assert_eq!(said(USER, "cat mnt/file"), "text");
        // A mount is its owner's, unless the administrator lets users open theirs to others.
        assert_eq!(said(OTHER, "cat mnt/file"), "");
        said(USER, "./extern4 umount mnt");
    }
}

/// Gives users access to the command and to the image, which the first user owns.
fn prepare(image: &Image) -> &Path {
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    chown(&image.path, Some(USER), None).expect("its owner");
    scratch
}

/// Makes links, in an inode and in a block. The user owns everything and may change it.
fn own(root: &Path) -> Result<()> {
    symlink("target", root.join("fast"))?;
    symlink("target/".repeat(20), root.join("slow"))?;
    tool(root, "chown", ["-R", &USER.to_string(), "."]);
    Ok(())
}

const TREE: &[extern4_testkit::image::Plan] = &[
    plan::small_files,
    plan::holes,
    plan::xattrs,
    plan::access_lists,
    plan::small_directories,
    plan::deep,
    plan::fragmented,
    own,
];

/// Without checksums damage comes further; with a journal it meets recovery.
const SPECS: &[ImageSpec] = &[
    ImageSpec::new(
        "disk",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^uninit_bg,^has_journal",
        ],
    )
    .from_directory(TREE),
    ImageSpec::new(
        "disk",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum",
            "-J",
            "size=1",
        ],
    )
    .from_directory(TREE),
    ImageSpec::new(
        "disk",
        16 << 20,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "metadata_csum,inline_data",
        ],
    )
    .from_directory(TREE),
];

/// Every request and every change; refusals do not matter.
const WORK: &str = "cd mnt || exit 0
    find . -ls; find . -type f -exec head -qc 1M {} +; getfattr -Rdm- .; getfacl -R .; stat -f .
    mkdir new; cp -a * new; for file in *; do echo more >> $file; ln $file new/; mv $file $file.other; done
    setfattr -n user.more -v more *; truncate -s 100000 *; sync -f .; rm -r new *; touch a b c; true";
/// The seconds for this work, since a file may claim to have no end; and for an answer on a busy
/// machine.
const WORK_SECONDS: u64 = 10;
const ANSWER_SECONDS: u64 = 60;
/// The limit on the daemon's memory, in KiB. The images have 16 MiB.
const MEMORY: u64 = 128 << 10;

/// Changes some bytes that are not zero.
fn damage(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |below: usize| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 16).expect("64 bits") % below
    };
    // All structures are at the start of these images or begin a block.
    let used: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at] != 0 && at % 1024 < 512)
        .collect();
    for _ in 0..1 << random(6) {
        let at = used[random(used.len())];
        bytes[at] = match random(4) {
            0 => 0xff,
            1 => 0,
            2 => bytes[at] ^ 1 << random(8),
            _ => bytes[used[random(used.len())]],
        };
    }
}

/// Starts the daemon of a user; no other user may ask where it has mounted the volume.
fn serve(scratch: &Path) -> Child {
    let mut daemon = as_user(
        USER,
        scratch,
        "exec ./extern4 mount -f hostile.img mnt 2> said",
    );
    let mut daemon = daemon.stderr(Stdio::null()).spawn().expect("setpriv");
    let dir = scratch.join("mnt");
    let start = Instant::now();
    while !fs::read_to_string("/proc/mounts")
        .expect("mounts")
        .contains(dir.to_str().expect("UTF-8"))
        && daemon.try_wait().expect("a child").is_none()
    {
        assert!(
            start.elapsed() < Duration::from_secs(ANSWER_SECONDS),
            "it neither serves nor ends"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    daemon
}

/// Returns the most memory that a process has had, in KiB.
fn peak_memory(process: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()
    })
}

#[test]
fn damage_costs_an_error_and_not_the_daemon() {
    if !users_can_mount() {
        return;
    }
    let seeds: u64 = std::env::var("EXTERN4_HOSTILE")
        .map_or(2, |text| text.parse().expect("EXTERN4_HOSTILE is a number"));
    let mut served = 0;
    let mut refused = 0;
    for (kind, spec) in SPECS.iter().enumerate() {
        let image = spec.build();
        let scratch = prepare(&image);
        let good = fs::read(&image.path).expect("the image");
        fs::create_dir(scratch.join("mnt")).expect("a directory");
        chown(scratch.join("mnt"), Some(USER), None).expect("its owner");
        for seed in 0..seeds {
            let mut bytes = good.clone();
            damage(&mut bytes, seed);
            fs::write(scratch.join("hostile.img"), bytes).expect("an image");
            chown(scratch.join("hostile.img"), Some(USER), None).expect("its owner");
            let mut daemon = serve(scratch);
            if daemon.try_wait().expect("a child").is_none() {
                let within = |seconds: u64, script: &str| {
                    let run = format!("timeout -s KILL {seconds} sh -c \"$SCRIPT\"");
                    as_user(USER, scratch, &run)
                        .env("SCRIPT", script)
                        .output()
                        .expect("setpriv")
                        .status
                };
                within(WORK_SECONDS, WORK);
                assert!(
                    within(ANSWER_SECONDS, "stat -f mnt").success(),
                    "{kind}, {seed}: it hangs"
                );
                let memory = peak_memory(&daemon);
                assert!(
                    memory.is_some_and(|kib| kib < MEMORY),
                    "{kind}, {seed}: {memory:?} KiB"
                );
                let ended = as_user(USER, scratch, "./extern4 umount mnt")
                    .status()
                    .expect("setpriv");
                assert!(ended.success(), "{kind}, {seed}: it cannot be unmounted");
                served += 1;
            } else {
                refused += 1;
            }
            let code = daemon.wait().expect("it ends").code();
            let said = fs::read_to_string(scratch.join("said")).expect("what it said");
            // Success, or a reported fault; never a signal or a panic.
            let is_answer =
                matches!(code, Some(0)) || matches!(code, Some(1 | 3)) && !said.is_empty();
            assert!(
                is_answer && !said.contains("fault in the program"),
                "{kind}, {seed}: {code:?}: {said}"
            );
        }
    }
    assert!(
        served > refused,
        "{served} were served and {refused} refused"
    );
}
