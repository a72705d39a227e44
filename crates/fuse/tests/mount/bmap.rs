//! The locations of a file's blocks: `FIBMAP` in mounts of block devices, and `swapon(2)`, which
//! trusts it.

use std::fs;
use std::path::Path;

use extern4_testkit::image::{Image, ImageSpec};
use extern4_testkit::mounts::{EMPTY, can_mount, sound, transports};
use extern4_testkit::tools::run_in as tool;
use extern4_testkit::tools::{Need, can_run};

use crate::served::Served;

const SMALL_BLOCKS: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext4", "-b", "1024"]);
const INDIRECT: ImageSpec = ImageSpec::new("disk", 64 << 20, &["-t", "ext2", "-b", "4096"]);

/// `perl -e FIBMAP FILE COUNT`: prints the block size, and where `COUNT` blocks are. The numbers
/// are FIGETBSZ and FIBMAP.
const FIBMAP: &str = r#"
    sysopen(my $file, $ARGV[0], 0) or die "open: $!";
    my $size = pack("i", 0);
    ioctl($file, 2, $size) or die "FIGETBSZ: $!";
    my @blocks = map { my $block = pack("i", $_); ioctl($file, 1, $block) or die "FIBMAP: $!"; unpack("i", $block) }
        0 .. $ARGV[1] - 1;
    print join(" ", unpack("i", $size), @blocks), "\n";
"#;

fn fibmap(dir: &Path, name: &str, count: usize) -> Vec<u64> {
    let said = tool(dir, "perl", ["-e", FIBMAP, name, &count.to_string()]);
    let said = String::from_utf8(said).expect("numbers");
    said.split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect()
}

/// Makes files with holes, with unwritten extents, inside an inode, and whole ones.
fn make(dir: &Path) {
    let script = "head -c 100000 /dev/urandom > whole; sync whole
        head -c 4096 /dev/urandom > holes; head -c 5000 /dev/urandom | dd of=holes bs=1 seek=20480 conv=notrunc status=none
        fallocate -l 32768 room 2> /dev/null || head -c 32768 /dev/zero > room; echo text > short; sync .";
    tool(dir, "sh", ["-ec", script]);
}

fn positions(dir: &Path) -> Vec<Vec<u64>> {
    ["whole", "holes", "room", "short"]
        .map(|name| fibmap(dir, name, 30))
        .to_vec()
}

#[test]
fn blocks_of_files_are_where_linux_shows_them() {
    if !can_mount() || !can_run(&[Need::Mount, Need::Tool("perl"), Need::Tool("fallocate")]) {
        return;
    }
    for transport in transports() {
        for spec in [EMPTY, INDIRECT] {
            let image = spec.build();
            let served = Served::new(&image, &["-o", transport]);
            make(&served.dir);
            let ours = positions(&served.dir);
            served.umount();
            sound(&image);
            let theirs = image.mount("ro");
            assert_eq!(ours, positions(&theirs.path), "{transport}");
            assert!(ours[0][0] == 4096 && ours[0][1..].iter().filter(|at| **at != 0).count() == 25);
            theirs.unmount();
            // Without a block device there are no blocks.
            let served = Served::new(&image, &["-o", transport, "-o", "nofuseblk"]);
            assert_eq!(positions(&served.dir).concat().iter().max(), Some(&4096));
            served.umount();
        }
    }
}

#[test]
fn contents_that_go_through_the_journal_have_no_place() {
    if !can_mount() || !can_run(&[Need::Mount, Need::Tool("perl")]) {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &["-o", "data=journal"]);
    fs::write(served.path("file"), vec![b'x'; 32768]).expect("a file");
    assert_eq!(
        fibmap(&served.dir, "file", 8),
        [4096, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    served.umount();
    sound(&image);
}

/// `perl -e SWAP FILE` swaps pages out to a file and in again. The numbers come from swapon(2),
/// swapoff(2), and of madvise(2) with `MADV_PAGEOUT`. Prints how much of the file was used.
const SWAP: &str = r#"
    use POSIX;
    my $arm = (POSIX::uname())[4] eq "aarch64";
    my ($on, $off, $advise) = $arm ? (224, 225, 233) : (167, 168, 28);
    my $path = $ARGV[0];
    # With priority 32767, so that it is the first to be used.
    syscall($on, $path, 0xffff) == 0 or die "swapon: $!\n";
    my $data = join("", map { pack("Q", $_) x 512 } 1 .. 2048);
    my $start = (unpack("Q", pack("P", $data)) + 4095) & ~4095;
    my $advised = syscall($advise, $start, 2047 * 4096, 21);
    my ($used) = grep { /\Q$path\E/ } do { open(my $swaps, "<", "/proc/swaps"); <$swaps> };
    for my $page (1 .. 2048) {
        substr($data, ($page - 1) * 4096, 4096) eq pack("Q", $page) x 512 or die "page $page is not what it was\n";
    }
    my $removed = unlink($path) ? "removed" : $! + 0;
    my $cut = truncate($path, 0) ? "cut" : $! + 0;
    syscall($off, $path) == 0 or die "swapoff: $!\n";
    $advised == 0 or die "madvise failed\n";
    print((split(" ", $used))[3], " $removed $cut\n");
"#;

fn make_swap(image: &Image, served: &Served) -> String {
    let script = "head -c 16M /dev/zero > swap; chmod 600 swap; mkswap swap > /dev/null; sync swap";
    tool(&served.dir, "sh", ["-ec", script]);
    image
        .scratch()
        .join("mnt/swap")
        .to_str()
        .expect("a plain name")
        .to_owned()
}

#[test]
fn a_file_of_a_mount_is_swapped_to_where_that_is_safe() {
    let needs = [Need::Mount, Need::Tool("perl"), Need::Tool("mkswap")];
    if !can_mount() || !can_run(&needs) || !Path::new("/proc/swaps").exists() {
        return;
    }
    // The mount refuses it where pages are larger, a volume's blocks are smaller, there is no block
    // device, or blocks move.
    let is_usual = rustix::param::page_size() == 4096;
    let cases = [
        (EMPTY, "rw", is_usual),
        (SMALL_BLOCKS, "rw", false),
        (EMPTY, "nofuseblk", false),
        (EMPTY, "data=journal", false),
    ];
    for transport in transports() {
        for (spec, options, works) in cases {
            let image = spec.build();
            let served = Served::new(&image, &["-o", transport, "-o", options]);
            let path = make_swap(&image, &served);
            fs::write(served.path("file"), vec![b'x'; 1 << 20]).expect("a file");
            let perl = std::process::Command::new("perl")
                .args(["-e", SWAP, &path])
                .output()
                .expect("perl");
            let said = String::from_utf8_lossy(&perl.stderr);
            assert_eq!(
                perl.status.success(),
                works,
                "{transport} {options}: {said}"
            );
            if works {
                let told = String::from_utf8_lossy(&perl.stdout);
                let words: Vec<_> = told.split_whitespace().collect();
                assert!(
                    words[0].parse::<u64>().is_ok_and(|kib| kib > 1024),
                    "it was not used: {told}"
                );
                // EPERM and ETXTBSY.
                assert_eq!(words[1..], ["1", "26"], "{told}");
            } else {
                assert!(said.contains("swapon: Invalid argument"), "{said}");
            }
            assert!(
                fs::read(served.path("file"))
                    .expect("it is read")
                    .iter()
                    .all(|byte| *byte == b'x')
            );
            served.umount();
            sound(&image);
        }
    }
}
