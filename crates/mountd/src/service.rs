//! Reports the state of the mount to the service manager that has started it, if one has, as in
//! sd_notify(3).
//!
//! `serve` calls it when the mount is ready and when it ends. Without a manager it does nothing; a
//! message that cannot be sent is dropped.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::{env, io};

use extern4::block::os_reason;

/// The environment variable that names the manager's socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Sends `state` to the manager, if there is one.
pub(crate) fn tell(state: &str) {
    let Some(socket) = env::var_os(SOCKET) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        tracing::warn!("cannot tell the service manager: {}", os_reason(&error));
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}
