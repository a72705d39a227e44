//! A volume in a process that forks: the child has a copy of it, and the volume stays the parent's.
//!
//! A separate test binary, for it may contain `unsafe`.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use extern4::Volume;
use extern4_testkit::image::ImageSpec;
use extern4_testkit::tools;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

const SPEC: ImageSpec = ImageSpec::new("forked", 16 << 20, &["-t", "ext4", "-O", "mmp"]);

/// Runs `work` in a child, and waits until that has ended.
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child calls `work`, which must also work without the other threads, and then ends
    // without returning from here.
    let child = match unsafe { fork() }.expect("a child") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            work();
            // SAFETY: it ends the process at once.
            unsafe { nix::libc::_exit(7) }
        }
    };
    let start = Instant::now();
    let status = loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("a child") {
            WaitStatus::StillAlive if start.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            WaitStatus::StillAlive => {
                let _ = nix::sys::signal::kill(child, nix::sys::signal::SIGKILL);
                let _ = waitpid(child, None);
                panic!("the child hangs");
            }
            status => break status,
        }
    };
    assert_eq!(status, WaitStatus::Exited(child, 7));
}

#[test]
fn a_drop_in_a_forked_child_writes_nothing_and_leaves_the_locks() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let mut options = Volume::options();
    options
        .write(true)
        .lazytime(true)
        .commit_interval(Duration::from_secs(1000));
    let volume = options.open(&image.path).expect("it opens");
    let session = volume.superuser();
    session.write_file("/synced", "synced").expect("a file");
    volume.sync().expect("it is synced");
    session
        .create("/file")
        .expect("a file")
        .write_all(b"kept")
        .expect("it is written");
    let open = session.create("/gone").expect("a file");
    session.remove_file("/gone").expect("it is removed");
    // The volume's mount-protection thread writes its own block every few seconds, so the test
    // compares the rest.
    let superblock =
        |at: usize| std::fs::read(&image.path).expect("the image")[1024..2048][at..at + 4].to_vec();
    let before = superblock(0x30);
    let mut handles = Some((open, session, volume));
    in_child(|| drop(handles.take()));
    assert_eq!(
        superblock(0x30),
        before,
        "the child has written the superblock"
    );
    let error = options
        .open(&image.path)
        .map(drop)
        .expect_err("it is the parent's");
    assert!(error.to_string().contains("has it open"), "{error}");
    let (open, session, volume) = handles.expect("the parent's own");
    session
        .write_file("/later", "later")
        .expect("it can be changed");
    drop((session, open, volume));
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
    let volume = Volume::open(&image.path).expect("it opens");
    for (path, contents) in [
        ("/synced", "synced"),
        ("/file", "kept"),
        ("/later", "later"),
    ] {
        assert_eq!(
            volume.superuser().read(path).expect(path),
            contents.as_bytes()
        );
    }
}

#[test]
fn a_child_drops_handles_and_uses_another_volume_although_threads_were_busy() {
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let dir = tempfile::tempdir().expect("a directory");
    let mut options = Volume::options();
    options.write(true);
    let volume = options.open(&image.path).expect("it opens");
    let session = volume.superuser();
    session.write_file("/file", "kept").expect("a file");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let session = &session;
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for name in 0..5 {
                        let path = format!("/{thread}-{name}");
                        session.write_file(&path, "text").expect("a file");
                        session.read("/file").expect("its contents");
                        session.remove_file(&path).expect("it is removed");
                    }
                }
            });
        }
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..20 {
                let path = format!("/open-{round}");
                let mut open = session.create(&path).expect("a file");
                open.write_all(b"kept").expect("it is written");
                session.remove_file(&path).expect("it is removed");
                let mut handles = Some((open, session.open("/file").expect("a file")));
                let other = dir.path().join(format!("{round}.img"));
                in_child(|| {
                    drop(handles.take());
                    let volume = Volume::create_new(&other, 4 << 20).expect("a volume");
                    let session = volume.superuser();
                    session.write_file("/file", "new").expect("a file");
                    drop(session);
                    volume.close().expect("it is closed");
                });
                let volume = Volume::open(&other).expect("the child's volume");
                let contents = volume.superuser().read("/file").expect("its file");
                assert_eq!(contents, b"new");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = rounds {
            std::panic::resume_unwind(panic);
        }
    });
    drop((session, volume));
    tools::e2fsck(&image.path).unwrap_or_else(|e| panic!("{e}"));
}
