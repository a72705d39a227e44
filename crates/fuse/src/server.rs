//! The server: answers the kernel's requests by calls of the VFS.
//!
//! A transport calls it with each request, from many threads at once, and sends its answer. Each
//! request gets exactly one answer, FORGETs excepted. If a handler panics, its request fails with
//! `EIO`, the file system stops changes, and every later request that changes something fails. At
//! the end of the mount the server drops all files that the kernel knew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extern4_sync::primitive::{AtomicBool, OnceLock, Ordering};
use extern4_vfs::{Attr, Errno, Error, Location, Namespace, Result, SuperBlock};

use crate::abi::{Features, Opcode};
use crate::credentials::Credentials;
use crate::forgets::{Drain, Forgets};
use crate::handles::Handles;
use crate::meter::{Meter, Operation};
use crate::nodes::Nodes;
use crate::protocol::Protocol;
use crate::reply::{Answer, Body, Outlet};
use crate::request::Request;

/// The way in which requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Through rings, where the kernel offers them, otherwise through the device.
    #[default]
    Auto,
    /// One read and one write of `/dev/fuse` a request.
    Device,
    /// `io_uring`, with a queue a CPU: a request is answered on the CPU of its caller.
    Ring,
}

impl Transport {
    /// Returns the name of the transport for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "io_uring or /dev/fuse",
            Self::Device => "/dev/fuse",
            Self::Ring => "io_uring",
        }
    }
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long the kernel may remember attributes and lookups, failed ones included. As long as
    /// only the kernel changes a volume, that may be for ever. With a lifetime of zero, the kernel
    /// asks for each name that it comes to. It still uses the attributes sent with a name, and
    /// the names of directories, for a moment (`Config::moment`).
    pub lifetime: Duration,
    /// Lets the kernel map users for mounts of this mount (`mount_setattr(2)`). It then names the
    /// caller only where a request makes a file; elsewhere the server reads `/proc`, where that
    /// matters.
    pub idmap: bool,
    /// The most memory for requests that come through rings, in bytes. Each CPU has eight requests.
    /// Where there are many CPUs, each request carries less, down to 128 KiB.
    pub max_ring_bytes: usize,
    /// Shows every file as this user's and this group's. The owners on the volume stay as they are,
    /// and a new file belongs to its maker.
    pub owner: (Option<u32>, Option<u32>),
    /// Serves only this user and root (`allow_root`): others get `EACCES`. For that, the kernel has
    /// to ask each time, so it needs a `lifetime` of zero and [`opens`](Self::opens).
    pub only: Option<u32>,
    /// The user and the group of the process that mounts, to act as root on the volume
    /// (`fakeroot`): every permission check succeeds. For mounts that serve this user only, and
    /// whose permissions the kernel does not check. Needs a `lifetime` of zero. See
    /// `Config::attr_for_kernel`.
    pub fakeroot: Option<(u32, u32)>,
    /// Lets the kernel keep written data, and send it later in larger pieces. Until then only the
    /// kernel knows sizes and times of files. When the volume is full, only `fsync(2)` and
    /// `close(2)` report it. Needs [`opens`](Self::opens).
    pub writeback: bool,
    /// Makes the kernel report every open. Otherwise the kernel opens files by itself, which is
    /// faster. Flags that forbid writing then make a write fail, not the open.
    pub opens: bool,
    /// The transport of requests.
    pub transport: Transport,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(365 * 24 * 60 * 60),
            idmap: false,
            max_ring_bytes: usize::MAX,
            owner: (None, None),
            only: None,
            fakeroot: None,
            writeback: false,
            opens: false,
            transport: Transport::default(),
        }
    }
}

impl Config {
    /// Returns the least time for which the kernel may remember attributes, while it walks over a
    /// name or a directory. The kernel would otherwise ask for the same attributes again before it
    /// has finished that walk. This is the shortest time of the protocol, which Linux rounds up to
    /// a tick of its clock.
    pub(crate) fn moment(&self) -> Duration {
        if self.only.is_some() || self.fakeroot.is_some() {
            Duration::ZERO
        } else {
            self.lifetime.max(Duration::from_nanos(1))
        }
    }

    /// Returns the attributes as the kernel is to see them.
    pub(crate) fn attr(&self, location: &Location) -> Attr {
        let (uid, gid) = self.owner;
        let attr = location.attr();
        Attr {
            uid: uid.unwrap_or(attr.uid),
            gid: gid.unwrap_or(attr.gid),
            ..attr
        }
    }

    /// Returns the attributes with a name, or after a change. With `fakeroot` these say that the
    /// file is the caller's. Without capabilities, the kernel lets only an owner set ACLs or link
    /// set-id files, by the attributes that it has last received. Before it shows attributes, the
    /// kernel asks for them again, and then gets the owner on the volume.
    pub(crate) fn attr_for_kernel(&self, location: &Location) -> Attr {
        let attr = self.attr(location);
        self.fakeroot
            .map_or(attr, |(uid, gid)| Attr { uid, gid, ..attr })
    }

    /// Returns whether the server serves this user. A request on an open file was allowed at its
    /// open, and the kernel itself may send it.
    fn serves(&self, opcode: Opcode, uid: u32) -> bool {
        use Opcode as Op;
        let only = self.only.unwrap_or(uid);
        uid == 0
            || uid == only
            || has_no_reply(opcode)
            || matches!(
                opcode,
                Op::Init
                    | Op::Destroy
                    | Op::Read
                    | Op::Write
                    | Op::Flush
                    | Op::Fsync
                    | Op::Release
                    | Op::Releasedir
            )
    }
}

/// The functions that a server calls.
pub struct Callbacks {
    /// Called at the end of the mount, before the kernel learns that its last request is done,
    /// which it waits for. No request follows. Only mounts of block devices have this end.
    pub destroy: Box<dyn Fn(&Server) + Send + Sync>,
    /// Receives messages for the administrator of the mount.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            destroy: Box::new(|_| {}),
            log: Box::new(|_| {}),
        }
    }
}

/// Tells the kernel that the attributes it knows of a node are out of date.
type Invalidate = Box<dyn Fn(&Server, u64) + Send + Sync>;

/// Answers the kernel's requests for one mount. Any number of threads may call it at the same time.
pub struct Server {
    config: Config,
    callbacks: Callbacks,
    pub(crate) credentials: Credentials,
    pub(crate) protocol: Arc<Protocol>,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    meter: Meter,
    pub(crate) forgets: Forgets,
    /// Invalidates attributes in the kernel after changes that the kernel does not know; set once
    /// requests come.
    pub(crate) invalidate: OnceLock<Invalidate>,
    /// Whether a request has hit a fault in the program; the server then changes nothing any more.
    broken: AtomicBool,
    /// Whether the kernel has lost data that programs had written.
    lost: AtomicBool,
    /// Whether the server has warned that flags do not keep files from being opened.
    pub(crate) warned_of_opens: AtomicBool,
}

impl Server {
    /// Creates a server for the tree at the root of `namespace`.
    pub fn new(namespace: &Arc<Namespace>, config: Config, callbacks: Callbacks) -> Self {
        let protocol = Arc::new(Protocol::new());
        Self {
            credentials: Credentials::new(namespace, config.fakeroot.is_some(), &protocol),
            protocol,
            nodes: Nodes::new(namespace),
            handles: Handles::new(),
            meter: Meter::new(),
            forgets: Forgets::new(),
            invalidate: OnceLock::new(),
            broken: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            warned_of_opens: AtomicBool::new(false),
            config,
            callbacks,
        }
    }

    /// Returns the options.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether a request has hit a fault in the program; since then nothing is changed.
    pub fn is_broken(&self) -> bool {
        // Relaxed: no reader uses this flag to learn of earlier changes.
        self.broken.load(Ordering::Relaxed)
    }

    /// Records that data which the kernel had kept for programs could not be written: their calls
    /// had succeeded. A full volume does not count: programs get that error when they sync or
    /// close, and it says nothing about the volume.
    #[cold]
    pub(crate) fn note_data_loss(&self, error: &Error) {
        if [Errno::ENOSPC, Errno::EDQUOT].contains(&error.errno()) {
            return;
        }
        // Relaxed: see `has_lost`.
        if !self.lost.swap(true, Ordering::Relaxed) {
            self.log(&format!("data written to a file is lost: {error}"));
        }
    }

    /// Returns whether data that programs had written could not be written to the volume.
    pub fn has_lost(&self) -> bool {
        // Relaxed: the caller reads it after all requests have been served.
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the transport in use, once kernel and server have agreed on it.
    pub fn transport(&self) -> Transport {
        if self.protocol.has(Features::OVER_IO_URING) {
            Transport::Ring
        } else {
            Transport::Device
        }
    }

    /// Drops every file that the kernel knew or had open, for use after the end of the mount. On
    /// return, no other thread is still freeing a file that the kernel has forgotten.
    pub fn forget_all(&self) {
        self.handles.clear();
        self.nodes.clear();
        // The caller closes the volume next, and a file not freed by then stays an orphan.
        self.forgets.wait();
    }

    pub(crate) fn log(&self, message: &str) {
        (self.callbacks.log)(message);
    }

    pub(crate) fn superblock(&self) -> &Arc<SuperBlock> {
        self.credentials.superblock()
    }

    /// Makes the kernel ask for the attributes of a node before it uses them again: a request has
    /// changed some without the kernel's knowledge. Call this before the answer to the request, so
    /// that its caller sees the new ones.
    pub(crate) fn attributes_changed(&self, nodeid: u64) {
        if let Some(invalidate) = self.invalidate.get() {
            invalidate(self, nodeid);
        }
    }

    /// Returns the requests so far, and how long they took.
    pub fn operations(&self) -> Vec<Operation> {
        self.meter.sum()
    }

    /// Answers a request; the body of the answer goes to `space`. A lent body goes with the whole
    /// answer through `outlet`.
    ///
    /// On `ENOSPC` or `EDQUOT`, the server handles all waiting FORGETs, identifies the caller, and
    /// tries the request once more. Requests that take space can be repeated from the start with
    /// the same result.
    pub(crate) fn answer<'a>(
        &self,
        request: &Request<'_>,
        space: &'a mut [u8],
        outlet: Option<&'a mut dyn Outlet>,
    ) -> Answer {
        let Some(opcode) = Opcode::from_raw(request.header.opcode) else {
            return Answer::Error(Errno::ENOSYS);
        };
        let start = Instant::now();
        let request = request.by(self.credentials.caller(&request.header));
        let outlet = outlet.map(|outlet| -> &mut dyn Outlet { outlet });
        let mut answer = self.try_answer(opcode, &request, Body::new(&mut *space, outlet));
        if matches!(answer, Answer::Error(Errno::ENOSPC | Errno::EDQUOT)) {
            self.forgets.drain(Drain::All);
            // Now it matters whether the caller may use reserved blocks.
            let request = request.by(self.credentials.identified(&request.caller));
            answer = self.try_answer(opcode, &request, Body::new(space, None));
        }
        let failed = matches!(&answer, Answer::Error(error) if !is_normal(opcode, *error));
        self.meter.note(opcode, start.elapsed(), failed);
        answer
    }

    fn try_answer(&self, opcode: Opcode, request: &Request<'_>, mut body: Body<'_>) -> Answer {
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.dispatch(opcode, request, &mut body)
        }));
        let len = body.len();
        match done {
            Ok(Ok(())) if has_no_reply(opcode) || body.is_sent() => Answer::None,
            Ok(Ok(())) => Answer::Body(len),
            Ok(Err(_)) if has_no_reply(opcode) => Answer::None,
            Ok(Err(error)) => self.refuse(opcode, &error),
            Err(panic) => self.handle_panic(opcode, &*panic),
        }
    }

    /// Returns an error as an answer, and logs an error that says more than its number.
    fn refuse(&self, opcode: Opcode, error: &extern4_vfs::Error) -> Answer {
        if matches!(error.errno(), Errno::EIO | Errno::EUCLEAN) && error.cause().is_some() {
            self.log(&format!("{opcode:?}: {error}"));
        }
        Answer::Error(error.errno())
    }

    /// Reacts to a fault in the program. The half-done work of the request must not become durable:
    /// the volume is left as in a crash, and from now on it is read-only.
    #[cold]
    fn handle_panic(&self, opcode: Opcode, panic: &(dyn std::any::Any + Send)) -> Answer {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        // Relaxed: see `is_broken`.
        if !self.broken.swap(true, Ordering::Relaxed) {
            // This may panic as well.
            let aborted = catch_unwind(AssertUnwindSafe(|| {
                self.superblock()
                    .fs()
                    .abort(&format!("a fault in the program: {text}"))
            }));
            let how = if aborted.is_ok() {
                "nothing is changed any more"
            } else {
                "and so did stopping it"
            };
            self.log(&format!(
                "{opcode:?} met a fault in the program ({text}); {how}"
            ));
        }
        if has_no_reply(opcode) {
            Answer::None
        } else {
            Answer::Error(Errno::EIO)
        }
    }

    fn dispatch(&self, opcode: Opcode, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        use Opcode as Op;
        if self.is_broken() && changes(opcode) {
            return Err(Errno::EROFS.into());
        }
        if self.config.only.is_some()
            && !self
                .config
                .serves(opcode, self.credentials.itself(&request.caller).uid)
        {
            return Err(Errno::EACCES.into());
        }
        match opcode {
            Op::Init => self.init(request, body),
            // No request waits in a way that an interrupt could cut short.
            Op::Interrupt => Ok(()),
            Op::Destroy => {
                (self.callbacks.destroy)(self);
                Ok(())
            }
            Op::Lookup => self.lookup(request, body),
            Op::Forget => self.forget(request),
            Op::BatchForget => self.batch_forget(request),
            Op::Getattr => self.getattr(request, body),
            Op::Statx => self.statx(request, body),
            Op::Setattr => self.setattr(request, body),
            Op::Access => self.access(request),
            Op::Readlink => self.readlink(request, body),
            Op::Symlink => self.symlink(request, body),
            Op::Mknod => self.mknod(request, body),
            Op::Mkdir => self.mkdir(request, body),
            Op::Unlink => self.unlink(request),
            Op::Rmdir => self.rmdir(request),
            Op::Rename => self.rename(request),
            Op::Rename2 => self.rename2(request),
            Op::Link => self.link(request, body),
            Op::Open => self.open(request, body),
            Op::Create => self.create(request, body),
            Op::Tmpfile => self.tmpfile(request, body),
            Op::Read => self.read(request, body),
            Op::Write => self.write(request, body),
            Op::Release | Op::Releasedir => self.release(request),
            Op::Fsync | Op::Fsyncdir => self.fsync(request),
            // The server writes data when it comes. After this answer, the kernel does not send
            // FLUSH again.
            Op::Flush => Err(Errno::ENOSYS.into()),
            Op::Fallocate => self.fallocate(request),
            // Data that the kernel still keeps would look like a hole. Without an answer, the
            // kernel treats files as having no holes.
            Op::Lseek if self.protocol.has(Features::WRITEBACK_CACHE) => Err(Errno::ENOSYS.into()),
            Op::Lseek => self.lseek(request, body),
            Op::CopyFileRange => self.copy_file_range(request, body, false),
            Op::CopyFileRange64 => self.copy_file_range(request, body, true),
            Op::Opendir => self.opendir(request, body),
            Op::Readdir => self.readdir(request, body),
            Op::Readdirplus => self.readdirplus(request, body),
            Op::Setxattr => self.setxattr(request),
            Op::Getxattr => self.getxattr(request, body),
            Op::Listxattr => self.listxattr(request, body),
            Op::Removexattr => self.removexattr(request),
            Op::Statfs => self.statfs(request, body),
            Op::Bmap => self.bmap(request, body),
            Op::Syncfs => self.superblock().sync(),
            Op::Ioctl => self.ioctl(request, body),
        }
    }
}

/// Returns whether an error number is a usual answer to a question, and not a failure. Either the
/// object of the question does not exist, or the server does not handle this request, which the
/// kernel learns once.
fn is_normal(opcode: Opcode, error: Errno) -> bool {
    match opcode {
        _ if error == Errno::ENOSYS => true,
        Opcode::Lookup => error == Errno::ENOENT,
        // No such attribute; no attributes of that kind; a value larger than the room of the
        // caller, which asks again.
        Opcode::Getxattr => matches!(error, Errno::ENODATA | Errno::EOPNOTSUPP | Errno::ERANGE),
        Opcode::Listxattr => matches!(error, Errno::EOPNOTSUPP | Errno::ERANGE),
        // An attribute that was never there need not be removed.
        Opcode::Removexattr => error == Errno::ENODATA,
        // There are no more data, or holes.
        Opcode::Lseek => error == Errno::ENXIO,
        // A program asks whether the file is a terminal.
        Opcode::Ioctl => error == Errno::ENOTTY,
        // The question was whether the caller may.
        Opcode::Access => matches!(error, Errno::EACCES | Errno::EROFS),
        _ => false,
    }
}

/// Returns whether the kernel does not wait for an answer.
pub(crate) fn has_no_reply(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt
    )
}

/// Returns whether the request changes something.
fn changes(opcode: Opcode) -> bool {
    use Opcode as Op;
    matches!(
        opcode,
        Op::Setattr
            | Op::Symlink
            | Op::Mknod
            | Op::Mkdir
            | Op::Unlink
            | Op::Rmdir
            | Op::Rename
            | Op::Rename2
            | Op::Link
            | Op::Create
            | Op::Tmpfile
            | Op::Write
            | Op::Fallocate
            | Op::CopyFileRange
            | Op::CopyFileRange64
            | Op::Setxattr
            | Op::Removexattr
    )
}
