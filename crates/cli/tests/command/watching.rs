//! Observing a mount while it is served: `extern4 stats DIR`, `extern4 top` and `mount --metrics`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use extern4_testkit::image::Image;
use extern4_testkit::tools::{Need, can_run};
use serde_json::Value;

use crate::mounting::{
    EMPTY, Served, as_user, can_mount, can_mount_as_root, copy_command, in_foreground, patiently,
    sound, transports, users_can_mount,
};
use crate::run::{command, extern4, failed, ok};

/// Returns the socket of a mount that root serves.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    let device = fs::metadata(dir).expect("attributes").dev();
    let major = rustix::fs::major(device);
    let minor = rustix::fs::minor(device);
    PathBuf::from(format!("/run/extern4/{major}:{minor}"))
}

/// Returns an identity that no other file has at any time.
fn identity(found: &fs::Metadata) -> (u64, i64, i64) {
    (found.ino(), found.ctime(), found.ctime_nsec())
}

fn object(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("an object")
}

#[track_caller]
fn stats(image: &Image) -> Value {
    object(&ok(extern4(image, ["stats", "--json", "mnt"])))
}

fn operation<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut all = report["operations"].as_array().expect("operations").iter();
    all.find(|operation| operation["name"] == name)
        .unwrap_or(&Value::Null)
}

/// Sends one question over a connection and returns the answer.
fn ask(mut stream: impl std::io::Read + std::io::Write, question: &[u8]) -> String {
    // The server may close the connection half way.
    let _ = stream.write_all(question);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends `question` to the socket and returns the answer.
fn tell(path: &Path, question: &[u8]) -> String {
    let stream = UnixStream::connect(path).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time");
    ask(stream, question)
}

/// Without a lifetime, each look-up is exactly one request. The kernel need not ask again for
/// attributes that came with a name, nor for the permission to search, unless its clock has ticked
/// meanwhile. It has a thousand ticks a second at most.
#[test]
fn without_a_lifetime_each_look_is_asked_for() {
    if !can_mount_as_root() {
        return;
    }
    const LOOKS: u64 = 1000;
    for (options, is_asked) in [("defaults", false), ("lifetime=0", true)] {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", options]);
        fs::write(served.path("file"), "text").expect("a file");
        let start = Instant::now();
        for _ in 0..LOOKS {
            fs::metadata(served.path("file")).expect("attributes");
        }
        let ticks = start.elapsed().as_millis() + 1;
        let report = stats(&image);
        let count = |name| operation(&report, name)["count"].as_u64().unwrap_or(0);
        // A kernel that is short of memory may ask once more.
        let asked = count("lookup");
        let again = count("getattr");
        assert_eq!(asked >= LOOKS, is_asked, "{options}: asked {asked} times");
        // For the directory and the file, and some requests from the file's creation.
        assert!(
            u128::from(again) <= 2 * ticks + 8,
            "{options}: asked again {again} times in {ticks} ticks"
        );
        served.umount();
    }
}

/// Removing a file does not wake the server for that file alone, where FORGET requests come by
/// themselves: the thread that reads them sleeps for half a millisecond each time. (Where a file
/// takes longer than that, this test shows little.)
#[test]
fn forgets_come_in_batches_next_to_rings() {
    const FILES: u64 = 500;
    if !can_mount() || !transports().contains(&"transport=ring") {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &["-o", "transport=ring"]);
    let start = Instant::now();
    for _ in 0..FILES {
        File::create_new(served.path("file")).expect("a file");
        fs::remove_file(served.path("file")).expect("it is removed");
    }
    let told = || {
        let report = stats(&image);
        let count = |name| operation(&report, name)["count"].as_u64().unwrap_or(0);
        count("forget") + count("batch_forget")
    };
    let is_told = || {
        std::thread::sleep(Duration::from_millis(10));
        told() > 0
    };
    assert!((0..500).any(|_| is_told()), "never told");
    let told = told();
    let naps = start.elapsed().as_micros() / 500;
    assert!(
        u128::from(told) <= naps + 1,
        "told {told} times in the time of {naps} naps"
    );
    served.umount();
}

#[test]
fn a_mount_tells_what_it_has_done() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    for at in 0..20 {
        fs::write(served.path(&format!("file{at}")), "text").expect("a file");
    }
    assert!(fs::metadata(served.path("missing")).is_err());
    let kept = File::open(served.path("file7")).expect("it opens");
    kept.sync_all().expect("it is synced");
    let report = stats(&image);
    assert_eq!(
        (
            &operation(&report, "mknod")["count"],
            &operation(&report, "write")["count"]
        ),
        (&20.into(), &20.into())
    );
    let made = operation(&report, "mknod");
    let times =
        ["p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|name| made[name].as_u64().expect("a time"));
    assert!(
        times[0] > 0 && times.is_sorted() && times[3] < 60_000_000_000,
        "{times:?}"
    );
    assert_eq!(operation(&report, "read"), &Value::Null);
    assert!(
        report["transactions"].as_u64() > Some(0) && report["block_hits"].as_u64() > Some(0),
        "{report}"
    );
    assert_eq!(report["metrics"], Value::Null);
    // This process has opened the file; a process that another test starts may have it for a
    // moment, too.
    let mut processes = report["processes"].as_array().expect("processes").iter();
    let own = processes
        .find(|process| process["pid"] == std::process::id())
        .expect("this process");
    assert!(
        own["open_files"] == 1 && own["command"].is_string(),
        "{own}"
    );
    assert!(report["open_files"].as_u64() >= Some(1));
    assert_eq!(
        report["image"].as_str(),
        image.path.canonicalize().expect("a path").to_str()
    );
    // For people, and of any directory in the mount.
    fs::create_dir(served.path("dir")).expect("a directory");
    let text = String::from_utf8(ok(extern4(&image, ["stats", "mnt/dir"]))).expect("text");
    for part in [
        " block_hits\n",
        " handles per commit\n",
        "\noperation ",
        "\nmknod ",
        " open: 1 by ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // With meanings, and how often a second.
    let text = String::from_utf8(ok(extern4(&image, ["stats", "--explain", "mnt"]))).expect("text");
    let explained = |line: &str| {
        line.trim_start()
            .split_once(" block_hits: ")
            .is_some_and(|(count, meaning)| {
                count.parse::<u64>().is_ok_and(|count| count > 0) && meaning.ends_with('.')
            })
    };
    assert!(text.lines().any(explained), "{text}");
    for option in ["--rates", "--interval=0.01"] {
        let text = String::from_utf8(ok(extern4(&image, ["stats", option, "mnt"]))).expect("text");
        let (_, rates) = text.split_once("\nper second, in ").expect("rates");
        assert!(
            rates.contains(" block_hits\n") && !rates.contains(" dentries\n"),
            "{text}"
        );
    }
    let since = object(&ok(extern4(&image, ["stats", "--rates", "--json", "mnt"])));
    let rates = since["rates"].as_array().expect("rates");
    let hits = rates
        .iter()
        .find(|rate| rate["name"] == "block_hits")
        .expect("a rate");
    let seconds = since["period_ms"].as_f64().expect("a number") / 1000.0;
    let expected = since["block_hits"].as_f64().expect("a number") / seconds;
    let shown = hits["per_second"].as_f64().expect("a number");
    assert!(
        (shown - expected).abs() <= expected * 0.01 + 0.01,
        "{shown} and {expected}"
    );
    let said = failed(
        &extern4(&image, ["stats", "--interval", "1", "disk.img:/"]),
        2,
    );
    assert!(said.contains("--interval reads a mount twice"), "{said}");
    assert!(failed(&extern4(&image, ["stats"]), 2).contains("a path is missing"));
    drop(kept);
    let path = socket(&served.dir);
    let found = fs::symlink_metadata(&path).expect("a socket");
    assert!(found.file_type().is_socket() && found.mode() & 0o777 == 0o600);
    assert_eq!(
        fs::metadata("/run/extern4").expect("a directory").mode() & 0o777,
        0o700
    );
    served.umount();
    // By now another test's mount may have the number.
    assert!(fs::symlink_metadata(&path).map_or(true, |other| identity(&other) != identity(&found)));
    sound(&image);
}

#[test]
fn top_shows_what_happens_and_ends_with_the_mount() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    fs::write(served.path("before"), "x").expect("a file");
    let mut top = command();
    let top = top
        .args(["top", "--count", "2", "--interval", "0.3", "--json"])
        .arg(&served.dir);
    let top = top
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    // The mount changes until the command has ended.
    let done = std::thread::scope(|scope| {
        let output = scope.spawn(|| top.wait_with_output().expect("it ends"));
        while !output.is_finished() {
            fs::create_dir(served.path("dir")).expect("a directory");
            fs::remove_dir(served.path("dir")).expect("it is there");
        }
        ok(output.join().expect("no panic"))
    });
    let lines: Vec<_> = done
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(object)
        .collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        let mkdir = operation(line, "mkdir");
        assert!(
            mkdir["count"].as_u64() > Some(0) && mkdir["p50_ns"].as_u64() > Some(0),
            "{line}"
        );
        assert!(
            mkdir["per_second"].as_f64() > Some(0.0)
                && line["operations_per_second"].as_f64() > Some(0.0)
        );
        assert_eq!(operation(line, "create"), &Value::Null, "that was before");
    }
    assert!(lines[0]["uptime_ms"].as_u64() < lines[1]["uptime_ms"].as_u64());
    let text = String::from_utf8(ok(extern4(&image, ["top", "-n", "1", "-i", "0.05", "mnt"])))
        .expect("text");
    assert!(
        text.contains(" operations/s; served for 0:00:") && text.contains("\njournal  "),
        "{text}"
    );
    let mut top = command();
    let top = top
        .args(["top", "-i", "0.05"])
        .arg(&served.dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut top = top.spawn().expect("the command runs");
    let mut first = [0; 1];
    top.stdout
        .as_mut()
        .expect("its output")
        .read_exact(&mut first)
        .expect("it has looked");
    served.umount();
    let output = top.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("no longer mounted"),
        "{said}"
    );
    sound(&image);
}

#[test]
fn metrics_are_served_on_this_machine_only() {
    let image = EMPTY.build();
    for address in [
        "0.0.0.0:9464",
        "192.0.2.1:80",
        "[::]:80",
        "[::ffff:127.0.0.1]:80",
        "localhost",
        "127.0.0.1",
    ] {
        failed(
            &extern4(&image, ["mount", "--metrics", address, "disk.img", "."]),
            2,
        );
    }
    if !can_mount() {
        return;
    }
    // Where another program listens on the address, nothing is mounted.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let said = failed(
        &extern4(&image, ["mount", "--metrics", &address, "disk.img", "."]),
        1,
    );
    assert!(said.contains("in use"), "{said}");
    let served = Served::new(&image, &["--metrics", "127.0.0.1:0"]);
    fs::write(served.path("file"), "x").expect("a file");
    let address = stats(&image)["metrics"]
        .as_str()
        .expect("an address")
        .to_owned();
    let get = |request: &str| {
        ask(
            TcpStream::connect(&address).expect("it listens"),
            request.as_bytes(),
        )
    };
    let said = get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
    let (head, body) = said.split_once("\r\n\r\n").expect("a body");
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())),
        "{head}"
    );
    assert!(
        body.contains("extern4_operation_duration_seconds_count{operation=\"create\"} 1\n"),
        "{body}"
    );
    assert!(get("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(get("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    // The server cuts off a request that is far too long, and the client may miss the answer.
    let said = get(&"x".repeat(100_000));
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 431 "),
        "{said}"
    );
    // Silent clients do not block others.
    let idle: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(&address).expect("it listens"))
        .collect();
    assert!(get("HEAD /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    served.umount();
    assert!(TcpStream::connect(&address).is_err());
    drop(idle);
    sound(&image);
}

#[test]
fn whatever_is_said_to_the_socket_does_no_harm() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    let path = socket(&served.dir);
    assert!(object(tell(&path, b"extern4/1 report\n").as_bytes())["error"].is_null());
    let long = vec![b'x'; 1 << 20];
    for garbage in [
        &b"\n"[..],
        b"extern4/2 report\n",
        b"extern4/1 shutdown\n",
        b"\0\xff\xfe\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &long,
    ] {
        let said = tell(&path, garbage);
        // The server cuts off a question that is far too long, and the client may miss the answer.
        assert!(
            garbage.len() > 1000 || object(said.as_bytes())["error"].is_string(),
            "{said}"
        );
    }
    let connect = || UnixStream::connect(&path).expect("it listens");
    let mut idle: Vec<_> = (0..200).map(|_| connect()).collect();
    idle.iter_mut()
        .for_each(|stream| drop(stream.write_all(b"extern4/1 rep")));
    // These clients ask, and do not read the answer.
    let deaf: Vec<_> = (0..200).map(|_| connect()).collect();
    deaf.iter()
        .for_each(|mut stream| drop(stream.write_all(b"extern4/1 report\n")));
    fs::write(served.path("file"), "x").expect("the mount works");
    assert_eq!(operation(&stats(&image), "create")["count"], 1);
    served.umount();
    drop((idle, deaf));
    sound(&image);
}

#[test]
fn a_user_that_may_not_look_gets_the_reason() {
    let image = EMPTY.build();
    let said = failed(&extern4(&image, ["stats", "."]), 3);
    assert!(
        said.contains("no volume is mounted here by extern4"),
        "{said}"
    );
    failed(&extern4(&image, ["top", "."]), 3);
    failed(&extern4(&image, ["top", "missing"]), 1);
    failed(&extern4(&image, ["top", "--interval", "0", "."]), 2);
    if !can_mount_as_root() || !can_run(&[Need::Tool("setpriv")]) {
        return;
    }
    // Other users reach the program only if they may search the directories above and read it.
    fs::set_permissions(image.scratch(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let program = image.scratch().join("extern4");
    copy_command(image.scratch());
    let served = Served::new(&image, &[]);
    for subcommand in ["stats", "top"] {
        let mut other = Command::new("setpriv");
        other
            .args(["--reuid=1000", "--regid=1000", "--clear-groups"])
            .arg(&program)
            .arg(subcommand);
        let said = failed(&other.arg(&served.dir).output().expect("setpriv"), 1);
        assert!(said.contains("user 0 serves this mount"), "{said}");
    }
    // A user that ignores the command's refusal finds the socket closed.
    let mut other = Command::new("setpriv");
    other
        .args(["--reuid=1000", "--regid=1000", "--clear-groups", "ls"])
        .arg(socket(&served.dir));
    assert!(!other.output().expect("setpriv").status.success());
    served.umount();
    sound(&image);
}

#[test]
fn users_look_into_their_own_mounts() {
    if !users_can_mount() {
        return;
    }
    let image = EMPTY.build();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    std::os::unix::fs::chown(&image.path, Some(1000), None).expect("its owner");
    let user = |uid: u32, runtime: &Path, script: &str| {
        as_user(uid, scratch, script)
            .env("XDG_RUNTIME_DIR", runtime)
            .output()
            .expect("setpriv")
    };
    let runtime = scratch.join("run");
    ok(user(
        1000,
        &runtime,
        "mkdir mnt run; ./extern4 mount disk.img mnt",
    ));
    let report = object(&ok(user(
        1000,
        &runtime,
        "cd mnt; ls -d . > /dev/null; ../extern4 stats --json .",
    )));
    assert_eq!(operation(&report, "init")["count"], 1);
    // The shell's working directory is in the mount, but that is no open file.
    assert_eq!(report["open_files"], 0);
    let said = failed(&user(2000, &runtime, "./extern4 stats mnt"), 1);
    assert!(said.contains("user 1000 serves this mount"), "{said}");
    // Root sees the mount's owner, but looks for the socket where the system has it.
    let said = failed(&extern4(&image, ["stats", "mnt"]), 1);
    assert!(said.contains("has ended, or listens nowhere"), "{said}");
    ok(user(
        1000,
        &runtime,
        "./extern4 umount mnt; test -z \"$(ls run/extern4)\"",
    ));
    // As root in a new user namespace, if users may have any: /run/extern4 does not belong
    // to it there.
    if user(1000, &runtime, "unshare -Urm true").status.success() {
        let script =
            "./extern4 mount disk.img mnt; ./extern4 stats mnt > /dev/null; ./extern4 umount mnt";
        ok(user(
            1000,
            &runtime,
            &format!("unshare -Urm sh -ec '{script}'; test -z \"$(ls run/extern4)\""),
        ));
    }
    // Without such a directory there is another place.
    let nowhere = scratch.join("nowhere");
    let script =
        "./extern4 mount disk.img mnt; ./extern4 stats mnt > /dev/null; ./extern4 umount mnt";
    ok(user(1000, &nowhere, script));
    sound(&image);
}

/// Both are user 0 in their user namespaces, and no directory but /tmp is theirs.
#[test]
fn two_roots_of_namespaces_look_into_their_own_mounts() {
    if !users_can_mount() {
        return;
    }
    let image = EMPTY.build();
    let scratch = image.scratch();
    fs::set_permissions(scratch, fs::Permissions::from_mode(0o777)).expect("its mode");
    copy_command(scratch);
    let user = |uid: u32, script: &str| {
        as_user(uid, scratch, script)
            .env_remove("XDG_RUNTIME_DIR")
            .output()
            .expect("setpriv")
    };
    if !user(5001, "unshare -Urm true").status.success() {
        return;
    }
    let script = "./extern4 mount $0.img $0; ./extern4 stats --json $0; ./extern4 umount $0";
    for uid in [5001, 5002] {
        let prepared = format!(
            "mkdir {uid}; cp disk.img {uid}.img; exec unshare -Urm sh -ec '{script}' {uid}"
        );
        let report = object(&ok(user(uid, &prepared)));
        assert_eq!(operation(&report, "init")["count"], 1, "{report}");
    }
}

#[test]
fn a_socket_that_was_left_behind_is_replaced() {
    if !can_mount_as_root() {
        return;
    }
    let image = EMPTY.build();
    let dir = image.scratch().join("mnt");
    let mut child = in_foreground(&image, &dir, "transport=auto");
    let path = socket(&dir);
    // The socket appears soon after the mount.
    while !path.exists() {
        assert!(child.try_wait().expect("a child").is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("it is killed");
    let said = failed(&extern4(&image, ["stats", "mnt"]), 1);
    assert!(said.contains("has ended, or listens nowhere"), "{said}");
    patiently(&["umount"], &dir);
    // As a rule the next mount gets the same number.
    let served = Served::new(&image, &[]);
    assert_eq!(operation(&stats(&image), "init")["count"], 1);
    served.umount();
    sound(&image);
}

#[test]
fn a_mount_tells_what_its_requests_come_through() {
    if !can_mount() {
        return;
    }
    for option in transports() {
        let image = EMPTY.build();
        let served = Served::new(&image, &["-o", option, "--metrics", "127.0.0.1:0"]);
        let name = if option == "transport=ring" {
            "io_uring"
        } else {
            "/dev/fuse"
        };
        let report = stats(&image);
        assert_eq!(report["transport"], name);
        let text = |args: &[&str]| String::from_utf8(ok(extern4(&image, args))).expect("text");
        assert!(text(&["stats", "mnt"]).contains(&format!(" {name} transport\n")));
        assert!(text(&["top", "-n1", "-i0.01", "mnt"]).contains(&format!(" through {name}\n")));
        assert_eq!(
            object(text(&["top", "-n1", "-i0.01", "--json", "mnt"]).as_bytes())["transport"],
            name
        );
        let address = report["metrics"].as_str().expect("an address");
        let said = ask(
            TcpStream::connect(address).expect("it listens"),
            b"GET /metrics HTTP/1.1\r\n\r\n",
        );
        assert!(
            said.contains(&format!("transport=\"{name}\"}} 1\n")),
            "{said}"
        );
        for help in said
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP extern4_"))
        {
            let (name, help) = help.split_once(' ').expect("a text");
            let words = name.trim_end_matches("_total").replace('_', " ");
            assert!(
                help.ends_with('.') && !help.to_lowercase().starts_with(&format!("{words}.")),
                "{name}: {help}"
            );
        }
        served.umount();
    }
}

#[test]
fn a_question_about_what_is_not_there_is_no_error() {
    if !can_mount() {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &["-o", "lifetime=0"]);
    let file = served.path("file");
    fs::write(&file, "text").expect("a file");
    let mut space = [0; 64];
    for name in [
        "user.missing",
        "security.capability",
        "system.posix_acl_access",
        "trusted.missing",
    ] {
        assert!(
            rustix::fs::getxattr(&file, name, &mut space).is_err(),
            "{name}"
        );
    }
    assert!(fs::metadata(served.path("missing")).is_err());
    let opened = File::open(&file).expect("it opens");
    assert!(rustix::fs::seek(&opened, rustix::fs::SeekFrom::Data(100)).is_err());
    assert!(!rustix::termios::isatty(&opened));
    drop(opened);
    fs::create_dir_all(served.path("dir/sub")).expect("directories");
    assert!(rustix::fs::rmdir(served.path("dir")).is_err());
    let report = stats(&image);
    for operation in report["operations"].as_array().expect("operations") {
        assert_eq!(
            operation["errors"],
            u64::from(operation["name"] == "rmdir"),
            "{operation}"
        );
    }
    assert!(
        operation(&report, "getxattr")["count"].as_u64() >= Some(2),
        "{report}"
    );
    served.umount();
}

/// The key ends it at once, although the next update would be in an hour, and leaves the terminal
/// as it was.
#[test]
fn q_ends_top_on_a_terminal() {
    if !can_mount() || !can_run(&[Need::Tool("script")]) {
        return;
    }
    let image = EMPTY.build();
    let served = Served::new(&image, &[]);
    for (key, code) in [("q", "0"), ("\u{3}", "130")] {
        let line = format!(
            "trap : INT; stty -echo; touch ready; '{}' top -i 3600 mnt; echo code=$?; stty -a",
            env!("CARGO_BIN_EXE_extern4")
        );
        let mut script = Command::new("script");
        script
            .current_dir(image.scratch())
            .args(["-q", "-e", "-c", &line, "/dev/null"]);
        let mut script = script
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a terminal");
        let mut keys = script.stdin.take().expect("its keys");
        let start = Instant::now();
        let ready = image.scratch().join("ready");
        while script.try_wait().expect("a child").is_none() {
            // An interrupt ends a shell that has not set its trap yet. A key may come before the
            // command listens.
            if ready.exists() {
                let _ = keys.write_all(key.as_bytes());
            }
            std::thread::sleep(Duration::from_millis(300));
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "{key:?} does not end it"
            );
        }
        fs::remove_file(ready).expect("it was ready");
        let output = script.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains(&format!("code={code}\r\n")) && text.contains(" icanon "),
            "{text}"
        );
    }
    served.umount();
}
