//! The socket: where it is, and which users can connect.
//!
//! The sockets of root are in `/run/extern4`. The sockets of another user are in `extern4` in the
//! directory that the system keeps for the user's sessions (`$XDG_RUNTIME_DIR`, `/run/user/UID`).
//! Where there is none, as after su(1) or in a container, they are in `/tmp/extern4-UID`. Each of
//! these directories is for its owner only: the program uses no link, and no directory that another
//! user made or may enter. Root of a user namespace, as where users run containers, cannot use the
//! directory of root, and takes one of the others.
//!
//! The same user has different numbers in different user namespaces, and different users may have
//! the same. So a name in `/tmp` may be taken by another user, and then gets a random end. Whose
//! directory it is says its owner, as the kernel shows it to the reader, and not its name.
//!
//! The name of a socket is the device number of its mount, which no other mount has at that time.
//! So a socket that has this name already was left behind, and is replaced.
//!
//! `control` opens the socket, and the clients connect to it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, lstat, open};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;

use super::mounts::{Device, Mount};
use super::responder::{Listener, Stream};

/// The directory for the directories of users that have none elsewhere.
const TMP: &str = "/tmp";

/// The start of the names of directories there. A number of their user follows, and perhaps a dot
/// and a random end.
const PREFIX: &str = "extern4-";

/// A socket that exists as long as this value.
pub(super) struct Socket {
    path: PathBuf,
    /// The socket as a file: as long as this is open, no other file gets its inode number.
    file: OwnedFd,
}

impl Socket {
    /// Makes the socket of the mount with this device number, and listens on it.
    pub(super) fn open(device: Device) -> io::Result<(Self, UnixListener)> {
        let user = geteuid().as_raw();
        let dirs = directories(user, user);
        let mut usable = dirs
            .iter()
            .filter(|dir| dir.parent().is_some_and(Path::is_dir));
        usable
            .find_map(|dir| Self::open_in(dir, device).ok())
            .map_or_else(|| Self::open_in_tmp(Path::new(TMP), user, device), Ok)
    }

    /// Makes the socket in a directory of the user in `tmp`. Makes the directory if there is none.
    fn open_in_tmp(tmp: &Path, user: u32, device: Device) -> io::Result<(Self, UnixListener)> {
        let named = tmp.join(format!("{PREFIX}{user}"));
        let mut dirs = private_directories(tmp, user).into_iter().chain([named]);
        if let Some(opened) = dirs.find_map(|dir| Self::open_in(&dir, device).ok()) {
            return Ok(opened);
        }
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{user}."))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(tmp)?;
        Self::open_in(&dir.keep(), device)
    }

    fn open_in(dir: &Path, device: Device) -> io::Result<(Self, UnixListener)> {
        let _lock = lock(private_directory(dir)?)?;
        let path = dir.join(name(device));
        // The socket gets its name only when no other user can open it.
        let made = dir.join(format!(".{}", std::process::id()));
        let _ = fs::remove_file(&made);
        let listener = UnixListener::bind(&made)?;
        fs::set_permissions(&made, Permissions::from_mode(0o600))?;
        let file = open(
            &made,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        fs::rename(&made, &path)?;
        Ok((Self { path, file }, listener))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another mount may have the device number by now, and a socket of this name. A process
        // that makes one holds the lock.
        let dir = self.path.parent().map(File::open);
        if let Some(Ok(dir)) = dir
            && let Ok(_lock) = lock(dir)
            && let (Ok(found), Ok(own)) = (lstat(&self.path), fstat(&self.file))
            && (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
        {
            // A socket that is left behind does no harm: the next one of this name replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Locks a directory as long as the returned file is open. Other processes of this program change
/// nothing in it meanwhile, and hold the lock for a moment only. Fails if the lock is not free
/// within two seconds.
fn lock(dir: File) -> io::Result<File> {
    let mut result = Ok(());
    for _ in 0..40 {
        result = flock(&dir, FlockOperation::NonBlockingLockExclusive);
        if result != Err(Errno::WOULDBLOCK) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(result.map(|()| dir)?)
}

/// Makes a directory that only its owner can use, if there is none, and opens it.
fn private_directory(dir: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_private(dir, geteuid().as_raw()) {
        return Err(io::Error::other(format!(
            "{} is not for its owner only",
            dir.display()
        )));
    }
    File::open(dir)
}

fn name(device: Device) -> String {
    format!("{}:{}", device.major, device.minor)
}

/// Returns whether `dir` is a directory, no link, that only `owner` and root can change or enter.
fn is_private(dir: &Path, owner: u32) -> bool {
    fs::symlink_metadata(dir)
        .is_ok_and(|found| found.is_dir() && found.uid() == owner && found.mode() & 0o077 == 0)
}

/// Returns the directories in `tmp` that are for sockets of `owner`.
fn private_directories(tmp: &Path, owner: u32) -> Vec<PathBuf> {
    let is_ours = |name: &OsStr| {
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('.').next());
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let entries = fs::read_dir(tmp).into_iter().flatten().flatten();
    let ours = entries
        .filter(|entry| is_ours(&entry.file_name()))
        .map(|entry| entry.path());
    let mut found: Vec<_> = ours.filter(|dir| is_private(dir, owner)).collect();
    found.sort_unstable();
    found
}

/// Returns the directories other than those in [`TMP`] where the sockets of `owner` may be, as far
/// as `user` can tell.
fn directories(owner: u32, user: u32) -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute());
    // A user who became root, as with su(1), may still have the variable of the user before.
    let is_his = |dir: &PathBuf| fs::metadata(dir).is_ok_and(|found| found.uid() == user);
    let own = own
        .filter(|dir| owner == user && is_his(dir))
        .map(|dir| dir.join("extern4"));
    let system = match owner {
        0 => PathBuf::from("/run/extern4"),
        owner => PathBuf::from(format!("/run/user/{owner}/extern4")),
    };
    if owner == 0 {
        [system].into_iter().chain(own).collect()
    } else {
        own.into_iter().chain([system]).collect()
    }
}

/// Connects to the process that serves a mount, without waiting for it: `WouldBlock` where its
/// queue of connections is full.
pub(super) fn connect(mount: &Mount) -> io::Result<UnixStream> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    let dirs = directories(mount.owner, geteuid().as_raw());
    for dir in dirs
        .into_iter()
        .chain(private_directories(Path::new(TMP), mount.owner))
    {
        match connect_at_once(&dir.join(name(mount.device))) {
            // The socket may be in another directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => result = Err(error),
            Ok(stream) => {
                result = Ok(stream);
                break;
            }
        }
    }
    let stream = result?;
    // The directory belongs to the other user: the name may be a link to another service's socket.
    if getsockopt(&stream, sockopt::PeerCredentials)?.uid() != mount.owner {
        return Err(io::Error::other(format!(
            "its socket is not one of user {}",
            mount.owner
        )));
    }
    Ok(stream)
}

fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Returns whether the process that connected may ask.
fn may_ask(stream: &UnixStream) -> bool {
    let peer = getsockopt(stream, sockopt::PeerCredentials);
    peer.is_ok_and(|peer| is_admitted(peer.uid(), geteuid().as_raw()))
}

/// Returns whether a process of user `peer` may ask one of user `own`: only that user and root may.
/// The mode of the socket has the kernel refuse all others. This check holds also where the mode of
/// the socket or of its directory was changed.
fn is_admitted(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

impl Listener for UnixListener {
    fn admit(&self) -> io::Result<Option<Box<dyn Stream>>> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(may_ask(&stream).then(|| Box::new(stream) as _))
    }

    fn never_wait(&self) -> io::Result<()> {
        self.set_nonblocking(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device {
        major: 0,
        minor: 51,
    };

    #[test]
    fn only_the_owner_and_root_may_ask() {
        assert!(is_admitted(1000, 1000) && is_admitted(0, 1000) && is_admitted(0, 0));
        assert!(!is_admitted(1001, 1000) && !is_admitted(1000, 0));
        let (one, _other) = UnixStream::pair().expect("sockets");
        assert!(may_ask(&one));
    }

    #[test]
    fn sockets_are_looked_for_where_their_owner_has_them() {
        assert_eq!(
            directories(0, 0).first().map(PathBuf::as_path),
            Some(Path::new("/run/extern4"))
        );
        assert_eq!(directories(0, 1000), [Path::new("/run/extern4")]);
        let user = [Path::new("/run/user/1000/extern4")];
        assert_eq!(directories(1000, 0), user);
        assert!(directories(1000, 1000).ends_with(&user.map(Path::to_owned)));
    }

    /// A name may be that of another user of this number, in another user namespace.
    #[test]
    fn a_name_that_is_taken_gets_a_random_end() {
        let tmp = tempfile::tempdir().expect("a directory");
        let user = geteuid().as_raw();
        let make = |name: &str, mode: u32| {
            let dir = tmp.path().join(name);
            DirBuilder::new().create(&dir).expect("a directory");
            fs::set_permissions(&dir, Permissions::from_mode(mode)).expect("a mode");
        };
        make(&format!("extern4-{user}"), 0o755);
        make("extern4-test", 0o700);
        make("extern4-1x", 0o700);
        std::os::unix::fs::symlink("extern4-test", tmp.path().join("extern4-1")).expect("a link");
        assert_eq!(private_directories(tmp.path(), user), Vec::<PathBuf>::new());
        let open = || Socket::open_in_tmp(tmp.path(), user, DEVICE).expect("a socket");
        let opened = open();
        let dirs = private_directories(tmp.path(), user);
        let path = dirs.first().expect("a directory").join("0:51");
        assert!(UnixStream::connect(path).is_ok());
        drop(opened);
        // The next one takes the same.
        let _opened = open();
        assert_eq!(private_directories(tmp.path(), user), dirs);
        // The number in its name says nothing: it is the directory of its owner.
        make("extern4-4000000000", 0o700);
        assert_eq!(private_directories(tmp.path(), user).len(), 2);
        assert_eq!(
            private_directories(tmp.path(), user + 1),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn a_socket_replaces_what_was_left_and_removes_only_itself() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("extern4");
        let path = dir.join("0:51");
        let (first, listener) = Socket::open_in(&dir, DEVICE).expect("a socket");
        assert_eq!(
            fs::metadata(&dir).expect("a directory").mode() & 0o7777,
            0o700
        );
        assert_eq!(
            fs::metadata(&path).expect("a socket").mode() & 0o7777,
            0o600
        );
        drop(listener);
        assert!(UnixStream::connect(&path).is_err());
        let (second, _listener) = Socket::open_in(&dir, DEVICE).expect("a socket");
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        assert!(UnixStream::connect(&path).is_ok());
        drop(second);
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 0);
    }

    /// Where inode numbers are reused at once, as in ext4.
    #[test]
    fn a_socket_that_was_replaced_leaves_a_later_one_alone() {
        let parent = tempfile::tempdir().expect("a directory");
        let open = || Socket::open_in(&parent.path().join("extern4"), DEVICE).expect("a socket");
        let (first, listener) = open();
        drop(listener);
        drop(open());
        let (_third, _listener) = open();
        drop(first);
        assert!(UnixStream::connect(parent.path().join("extern4/0:51")).is_ok());
    }

    #[test]
    fn a_directory_of_others_is_not_used() {
        let parent = tempfile::tempdir().expect("a directory");
        let open = |dir: &Path| Socket::open_in(dir, DEVICE).map(drop);
        let dir = parent.path().join("open");
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .expect("a directory");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).expect("a mode");
        assert!(open(&dir).is_err());
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).expect("a mode");
        assert!(open(&dir).is_ok());
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).expect("a link");
        assert!(open(&link).is_err());
        assert!(open(&parent.path().join("not/there")).is_err());
    }
}
