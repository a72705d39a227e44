//! `O_DIRECT` in a mount: the page cache stays coherent, and a full volume reports that.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use extern4_testkit::image::ImageSpec;
use extern4_testkit::mounts::{EMPTY, can_mount, sound, transports};
use extern4_testkit::tools::run_in as tool;
use extern4_testkit::tools::{Need, can_run};

use crate::served::Served;

const O_DIRECT: i32 = 0o40000;

/// Writes a file asynchronously with `O_DIRECT` and meanwhile reads it through the page cache. When
/// a write has completed, a buffered read has to show it. The numbers come from io_setup(2),
/// io_submit(2), io_getevents(2), and of `struct iocb` and `io_event`.
const WRITE_ASYNCHRONOUSLY: &str = r#"
    use strict;
    use Fcntl;
    use POSIX;
    my ($setup, $submit, $events) = (POSIX::uname())[4] eq "aarch64" ? (0, 2, 4) : (206, 209, 208);
    my $size = 64 << 10;
    sub at { unpack("Q", pack("P", $_[0])) }
    my $context = pack("Q", 0);
    syscall($setup, 1, $context) == 0 or die "io_setup: $!";
    sysopen(my $direct, "file", O_RDWR | O_CREAT | 040000) or die "open: $!";
    sysopen(my $cached, "file", O_RDONLY) or die "open: $!";
    syswrite($direct, "-" x $size) == $size or die "write: $!";
    for my $round (1 .. 1000) {
        my $data = chr(97 + $round % 26) x $size;
        my $control = pack("QLlSsLQQqQLL", 0, 0, 0, 1, 0, fileno($direct), at($data), $size, 0, 0, 0, 0);
        my $list = pack("Q", at($control));
        syscall($submit, unpack("Q", $context), 1, $list) == 1 or die "io_submit: $!";
        my $found;
        sysseek($cached, 0, 0);
        sysread($cached, $found, $size);
        my $event = "\0" x 32;
        syscall($events, unpack("Q", $context), 1, 1, $event, 0) == 1 or die "io_getevents: $!";
        my $done = (unpack("QQqq", $event))[2];
        $done == $size or die "round $round: the write came to $done";
        sysseek($cached, 0, 0);
        sysread($cached, $found, $size) == $size or die "read: $!";
        $found eq $data or die "round $round: a buffered read shows old data";
    }
"#;

#[test]
fn a_buffered_reader_sees_what_was_written_directly() {
    if !can_mount() || !can_run(&[Need::Tool("perl")]) {
        return;
    }
    for transport in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", transport]);
        tool(&served.dir, "perl", ["-e", WRITE_ASYNCHRONOUSLY]);
        served.umount();
        sound(&image);
    }
}

#[test]
fn a_direct_write_to_a_full_volume_is_short_and_then_has_no_room() {
    const SMALL: ImageSpec = ImageSpec::new("disk", 16 << 20, &["-t", "ext4", "-b", "4096"]);
    const FREE: usize = 256 << 10;
    if !can_mount() {
        return;
    }
    for transport in transports() {
        let image = SMALL.build();
        let served = Served::new(&image, &["-o", transport]);
        fs::write(served.path("gap"), vec![b'x'; FREE]).expect("there is room");
        let mut filler = File::create(served.path("filler")).expect("a file");
        let full =
            std::iter::repeat_with(|| filler.write_all(&[b'x'; 64 << 10])).find_map(Result::err);
        assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::StorageFull));
        fs::remove_file(served.path("gap")).expect("it is removed");
        let mut open = File::options();
        let file = open
            .write(true)
            .create(true)
            .custom_flags(O_DIRECT)
            .open(served.path("file"));
        let mut file = file.expect("a file");
        let data = vec![b'y'; 1 << 20];
        let mut written = file.write(&data).expect("a part has room");
        assert!(
            written > 0 && written < data.len(),
            "{transport}: {written}"
        );
        let full = loop {
            match file.write(&data) {
                Ok(more) => written += more,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{transport}: {full}");
        drop((file, filler));
        let found = fs::read(served.path("file")).expect("it is read");
        assert!(
            found.len() == written && found.iter().all(|byte| *byte == b'y'),
            "{}",
            found.len()
        );
        assert!(written >= FREE / 2, "{transport}: {written}");
        served.umount();
        sound(&image);
    }
}
