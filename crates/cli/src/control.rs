//! Looking into a mount while it is served.
//!
//! Who serves a mount listens on a socket that only he and root can open ([`socket`]), and with `--metrics` on a port of this machine
//! ([`metrics`]). `extern4 stats DIR` and `extern4 top DIR` find the socket by the directory's device number and ask there.
//!
//! ```text
//! extern4 top -- "extern4/1 report\n" -> socket -> responder (one thread) -> Report of Server and Volume
//!             <- one line of JSON ------
//! ```
//!
//! `extern4 umount DIR` asks there to be told how the mount ends ([`waiting`]). `mount -o remount,rw` asks there for a volume that is only
//! read to be opened for writing ([`writing`]).
//!
//! A connection is for one request and one answer. The request names the version of the protocol; members may be added to an
//! answer without a new one. What cannot be answered is told in a member `error`.

pub(crate) mod client;
pub(crate) mod holders;
mod http;
mod journaling;
mod metrics;
pub(crate) mod mounts;
pub(crate) mod report;
mod responder;
mod socket;
pub(crate) mod table;
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

pub(crate) use self::journaling::{Journaling, data_name};
use self::report::{Report, error_line};
use self::responder::{Responder, Service};
use self::socket::Socket;
use self::waiting::Waiting;
use crate::place::Image;

/// What a request begins with.
const PROTOCOL: &str = "extern4/1";
/// The request for a [`Report`].
const REPORT: &str = "extern4/1 report";
/// No request is longer than this.
const MAX_REQUEST_BYTES: usize = 256;

/// What is served, and what of.
pub(crate) struct Served {
    /// Answers the kernel.
    pub(crate) server: Arc<Server>,
    /// The volume.
    pub(crate) volume: Volume,
    /// Its place, for people.
    pub(crate) image: String,
    /// What was decided when it was mounted.
    pub(crate) setting: Setting,
    /// Since when.
    pub(crate) start: Instant,
    /// Where metrics are served.
    pub(crate) metrics: Option<SocketAddr>,
}

/// What is decided when a volume is mounted.
pub(crate) struct Setting {
    /// The options as words, as they were given.
    pub(crate) options: String,
    /// How the journal is used, if the volume has one.
    pub(crate) journaling: Option<Journaling>,
}

/// Answers questions about a mount until it is dropped.
pub(crate) struct Control {
    // In this order: nobody is answered any more when the socket goes.
    _responder: Responder,
    _socket: Option<Socket>,
    waiting: Arc<Waiting>,
}

impl Control {
    /// Starts answering for the mount on `dir`. What cannot be done is told to `note`: the mount works without.
    pub(crate) fn start(
        dir: &Path,
        server: &Arc<Server>,
        volume: &Volume,
        image: &Image,
        setting: Setting,
        metrics: Option<TcpListener>,
        note: impl Fn(&str, &io::Error),
    ) -> Option<Self> {
        let served = Arc::new(Served {
            server: Arc::clone(server),
            volume: volume.clone(),
            image: full_name(image),
            setting,
            start: Instant::now(),
            metrics: metrics.as_ref().and_then(|listener| listener.local_addr().ok()),
        });
        let mut services = Vec::new();
        let waiting: Arc<Waiting> = Arc::default();
        let socket = match mounts::device_of(dir).and_then(Socket::open) {
            Ok((socket, listener)) => {
                let served = Arc::clone(&served);
                let waiting = Arc::clone(&waiting);
                let answer = move |request: &[u8], from: BorrowedFd<'_>| {
                    let answered = waiting.answer(request, from);
                    let answered = answered.or_else(|| writing::begin(&served.volume, request, from));
                    answered.unwrap_or_else(|| answer(&served, request)).into_bytes()
                };
                services.push(Service::new(listener, b"\n", MAX_REQUEST_BYTES, answer));
                Some(socket)
            }
            Err(error) => {
                note("the mount cannot be looked into", &error);
                None
            }
        };
        if let Some(listener) = metrics {
            let answer = move |request: &[u8], _: BorrowedFd<'_>| {
                http::answer(request, || metrics::text(&Report::of(&served)))
            };
            services.push(Service::new(listener, http::END, http::MAX_REQUEST_BYTES, answer));
        }
        match Responder::open(services) {
            Ok(responder) => Some(Self { _responder: responder, _socket: socket, waiting }),
            Err(error) => {
                note("the mount cannot be looked into", &error);
                None
            }
        }
    }
}

impl Control {
    /// Ends answering, but for those who wait for the end of the mount.
    pub(crate) fn end(self) -> Arc<Waiting> {
        Arc::clone(&self.waiting)
    }
}

/// The name by which whoever reads it finds the image.
fn full_name(image: &Image) -> String {
    let file = image.file.canonicalize().unwrap_or_else(|_| image.file.clone());
    Image { file, part: image.part }.to_string()
}

/// The answer to a line, as a line.
fn answer(served: &Served, request: &[u8]) -> String {
    let Some(request) = request.strip_suffix(b"\n") else {
        return error_line("this is no request");
    };
    match std::str::from_utf8(request).map(|text| text.trim_ascii_end()) {
        Ok(REPORT) => Report::of(served).json(),
        Ok(other) if other.split(' ').next() == Some(PROTOCOL) => error_line("this request is not known"),
        _ => error_line("this protocol is not spoken here"),
    }
}
