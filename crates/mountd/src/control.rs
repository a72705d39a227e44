//! Looking into a mount while it is served.
//!
//! The process that serves a mount listens on a socket that only its user and root can open
//! (`socket`). With `--metrics` it also listens on a port of this machine (`metrics`).
//! `extern4 stats DIR` and `extern4 top DIR` find the socket by the directory's device number and
//! ask there.
//!
//! ```text
//! extern4 top -- "extern4/1 report\n" -> socket -> responder (one thread)
//!             <- one line of JSON ------           -> Report of Server and Volume
//! ```
//!
//! `extern4 umount DIR` asks there how the mount ends (`waiting`). `mount -o remount,rw` asks
//! there for a volume that is open read-only to be opened for writing (`writing`).
//!
//! A connection is for one request and one answer. The request names the version of the protocol;
//! members may be added to an answer without a new version. The answer to a request that fails has
//! a member `error`.
//!
//! `serve` starts it. A remount, an unmount, and `stats` and `top` of the command are clients.

pub mod client;
pub mod holders;
mod http;
mod journaling;
mod metrics;
pub mod mounts;
pub mod report;
mod responder;
mod socket;
pub(crate) mod waiting;
pub(crate) mod writing;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use extern4::Volume;
use extern4_fuse::Server;

pub use self::journaling::Journaling;
pub(crate) use self::journaling::data_name;
use self::report::{Report, error_line};
use self::responder::{Responder, Service};
use self::socket::Socket;
use self::waiting::Waiting;
use crate::source::Source;

/// The name and version of the protocol, with which a request begins.
const PROTOCOL: &str = "extern4/1";
/// The request for a [`Report`].
const REPORT: &str = "extern4/1 report";
/// The limit for the length of a request.
const MAX_REQUEST_BYTES: usize = 256;

/// A mounted volume, the server that answers for it, and the facts about the mount.
pub(crate) struct Served {
    /// The server, which answers the kernel.
    pub(crate) server: Arc<Server>,
    pub(crate) volume: Volume,
    /// The name of the image, for people.
    pub(crate) image: String,
    /// The settings of the mount.
    pub(crate) setting: Setting,
    /// The time at which serving began.
    pub(crate) start: Instant,
    /// The address at which metrics are served.
    pub(crate) metrics: Option<SocketAddr>,
}

/// The settings that are fixed when a volume is mounted.
pub(crate) struct Setting {
    /// The options as words, as the command line gave them.
    pub(crate) options: String,
    /// How the journal is used, if the volume has one.
    pub(crate) journaling: Option<Journaling>,
}

/// Answers questions about a mount until it is dropped.
pub(crate) struct Control {
    // Fields drop in this order: the responder stops answering before the socket is removed.
    _responder: Responder,
    _socket: Option<Socket>,
    waiting: Arc<Waiting>,
}

impl Control {
    /// Starts answering for the mount on `dir`. It passes failures to `note`, because the mount
    /// works without it.
    pub(crate) fn start(
        dir: &Path,
        server: &Arc<Server>,
        volume: &Volume,
        source: &Source,
        setting: Setting,
        metrics: Option<TcpListener>,
        mut note: impl FnMut(io::Error),
    ) -> Option<Self> {
        let served = Arc::new(Served {
            server: Arc::clone(server),
            volume: volume.clone(),
            image: source.resolved().to_string(),
            setting,
            start: Instant::now(),
            metrics: metrics
                .as_ref()
                .and_then(|listener| listener.local_addr().ok()),
        });
        let mut services = Vec::new();
        let waiting: Arc<Waiting> = Arc::default();
        let socket = match mounts::device_of(dir).and_then(Socket::open) {
            Ok((socket, listener)) => {
                let served = Arc::clone(&served);
                let waiting = Arc::clone(&waiting);
                let answer = move |request: &[u8], from: BorrowedFd<'_>| {
                    let answered = waiting.answer(request, from);
                    let answered =
                        answered.or_else(|| writing::begin(&served.volume, request, from));
                    answered
                        .unwrap_or_else(|| answer(&served, request))
                        .into_bytes()
                };
                services.push(Service::new(listener, b"\n", MAX_REQUEST_BYTES, answer));
                Some(socket)
            }
            Err(error) => {
                note(error);
                None
            }
        };
        if let Some(listener) = metrics {
            let answer = move |request: &[u8], _: BorrowedFd<'_>| {
                http::answer(request, || metrics::text(&Report::of(&served)))
            };
            services.push(Service::new(
                listener,
                http::END,
                http::MAX_REQUEST_BYTES,
                answer,
            ));
        }
        match Responder::open(services) {
            Ok(responder) => Some(Self {
                _responder: responder,
                _socket: socket,
                waiting,
            }),
            Err(error) => {
                note(error);
                None
            }
        }
    }
}

impl Control {
    /// Ends answering, except for the clients that wait for the end of the mount.
    pub(crate) fn end(self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }
}

/// Returns the line that answers a line.
fn answer(served: &Served, request: &[u8]) -> String {
    let Some(request) = request.strip_suffix(b"\n") else {
        return error_line("this is no request");
    };
    match std::str::from_utf8(request).map(|text| text.trim_ascii_end()) {
        Ok(REPORT) => Report::of(served).json(),
        Ok(other) if other.split(' ').next() == Some(PROTOCOL) => {
            error_line("this request is not known")
        }
        _ => error_line("this protocol is not spoken here"),
    }
}
