//! Mounting without privilege: the privileged program `fusermount3` mounts for the server and hands
//! the device over.
//!
//! `mount` calls it for users other than root. The helper decides whether the user may mount there,
//! and prints the reason if not; the caller then gets an error without a mount. If the helper is
//! not installed, that is the error.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::mount::open_device;

/// The name of the program, a part of libfuse 3.
const PROGRAM: &str = "fusermount3";

/// Mounts on `dir` with these options; returns the device.
pub(crate) fn mount(dir: &Path, options: &str) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::empty(),
        None,
    )?;
    fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
    let mut child = program()
        .args(["-o", options, "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .spawn()
        .map_err(missing)?;
    drop(theirs);
    let device = receive(&ours)?;
    let status = child.wait()?;
    if device.is_none() {
        // The program opens it as this user, too.
        open_device()?;
    }
    // The program has printed the reason.
    device
        .filter(|_| status.success())
        .ok_or_else(|| io::Error::other(format!("{PROGRAM} did not mount")))
}

/// Takes the mount on `dir` away. With `lazy`, a mount that is in use goes away as soon as its last
/// user ends.
pub(crate) fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let how = if lazy { "-uz" } else { "-u" };
    let run = program().args([how, "--"]).arg(dir).output();
    let run = run.map_err(missing)?;
    if run.status.success() {
        return Ok(());
    }
    // The program is made for people: its message is the only information.
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("busy") {
        return Err(rustix::io::Errno::BUSY.into());
    }
    Err(io::Error::other(said.trim_end().to_owned()))
}

fn program() -> Command {
    let mut program = Command::new(PROGRAM);
    // Only the server speaks to the service manager.
    program.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    program
}

fn missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            format!("{PROGRAM} is not installed, and only root mounts without it"),
        ),
        _ => error,
    }
}

/// Receives the file that comes with a message; `None` if the other side ends without one.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let files = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(files)
}
