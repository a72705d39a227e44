//! Messages to the service manager about a mount: `NOTIFY_SOCKET`, as in sd_notify(3).

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use extern4_testkit::image::Image;

use crate::mounting::{EMPTY, as_user, can_mount, copy_command, sound, users_can_mount};
use crate::run::{command, extern4, ok};

/// Returns the next message.
#[track_caller]
fn next(manager: &UnixDatagram) -> String {
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time");
    let mut space = [0; 1024];
    let len = manager.recv(&mut space).expect("a message");
    String::from_utf8_lossy(&space[..len]).into_owned()
}

/// Mounts for the manager, and unmounts.
fn check(image: &Image, manager: &UnixDatagram, name: &str) {
    let mut mount = command();
    mount
        .env("NOTIFY_SOCKET", name)
        .current_dir(image.scratch())
        .args(["mount", "disk.img", "mnt"]);
    ok(mount.output().expect("the command runs"));
    let said = next(manager);
    let dir = image.scratch().join("mnt").canonicalize().expect("a path");
    assert!(said.lines().any(|line| line == "READY=1"), "{said}");
    let pid = said
        .lines()
        .find_map(|line| line.strip_prefix("MAINPID="))
        .expect("a process");
    let served = fs::read(format!("/proc/{pid}/cmdline")).expect("it lives");
    assert!(String::from_utf8_lossy(&served).contains("--detach"));
    let status = format!("STATUS=disk.img on {}", dir.display());
    assert!(said.lines().any(|line| line == status), "{said}");
    ok(extern4(image, ["umount", "mnt"]));
    assert_eq!(next(manager).trim_end(), "STOPPING=1");
}

#[test]
fn the_service_manager_gets_the_state() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    fs::create_dir(image.scratch().join("mnt")).expect("a directory");
    let path = image.scratch().join("manager");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    check(&image, &manager, path.to_str().expect("UTF-8"));
    let name = format!("extern4-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    check(
        &image,
        &UnixDatagram::bind_addr(&address).expect("a socket"),
        &format!("@{name}"),
    );
    sound(&image);
}

#[test]
fn only_the_server_speaks_to_the_service_manager() {
    if !users_can_mount() {
        return;
    }
    let image = EMPTY.build();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    chown(&image.path, Some(1000), None).expect("its owner");
    let manager = UnixDatagram::bind(scratch.join("manager")).expect("a socket");
    fs::set_permissions(scratch.join("manager"), fs::Permissions::from_mode(0o777))
        .expect("its mode");
    // A wrapper in the program's place that records its environment.
    let script = "mkdir mnt bin; real=$(command -v fusermount3)
        printf '#!/bin/sh\\nenv >> environment\\nexec %s \"$@\"\\n' $real > bin/fusermount3; chmod +x bin/fusermount3
        export PATH=$PWD/bin:$PATH NOTIFY_SOCKET=$PWD/manager
        ./extern4 mount disk.img mnt 2> said; ./extern4 umount mnt";
    ok(as_user(1000, scratch, script).output().expect("setpriv"));
    assert!(next(&manager).contains("READY=1"));
    assert_eq!(next(&manager).trim_end(), "STOPPING=1");
    let told = fs::read_to_string(scratch.join("environment")).expect("what it was told");
    // The unmounting command is no server. It has the variable from the shell, but does not pass it
    // on.
    assert!(
        told.contains("PATH=") && !told.contains("NOTIFY_SOCKET"),
        "{told}"
    );
}
