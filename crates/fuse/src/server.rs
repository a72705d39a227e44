//! The server: answers requests by calls of the VFS.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extern4_sync::biased_rwlock::BiasedRwLock;
use extern4_sync::primitive::{AtomicBool, OnceLock, Ordering};
use extern4_vfs::{Attr, Cred, Errno, Error, Location, Namespace, Result, Session, SuperBlock};

use crate::abi::{Features, MINOR_PRUNE, Opcode};
use crate::caller::Idle;
use crate::handles::Handles;
use crate::meter::{Meter, Operation};
use crate::nodes::Nodes;
use crate::reply::{Answer, Body, Outlet};
use crate::request::Request;

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Through rings, where the kernel offers them, otherwise through the device.
    #[default]
    Auto,
    /// One read and one write of `/dev/fuse` a request.
    Device,
    /// `io_uring`, with a queue a CPU: who asks and who answers are on the same CPU.
    Ring,
}

impl Transport {
    /// What requests come through, as people know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "io_uring or /dev/fuse",
            Self::Device => "/dev/fuse",
            Self::Ring => "io_uring",
        }
    }
}

/// How to serve.
pub struct Config {
    /// How long the kernel may remember attributes, and names that lead somewhere or nowhere. As long as only the kernel changes
    /// what is served, that may be for ever. Where it is nothing, the kernel asks for each name that it comes to; the attributes that it
    /// is told with the name, and those of directories, it believes for a moment (`Server::moment`).
    pub lifetime: Duration,
    /// Let the kernel map users for mounts of this mount (`mount_setattr(2)`). It then says who acts only where files are made; elsewhere
    /// `/proc` tells, where that matters.
    pub idmap: bool,
    /// How many files the kernel may remember, each of which is kept in memory here: as it comes to know more, it is asked to forget
    /// what nobody uses. Kernels before 6.18 cannot be asked.
    pub max_known: usize,
    /// Memory that requests may take that come through rings, in bytes: where there are many CPUs, each of which has eight, they carry less
    /// for it, down to 128 KiB each.
    pub max_ring_bytes: usize,
    /// Show every file as this user's and this group's. What belongs to whom on the volume stays as it is, and so does what is made: it
    /// belongs to who makes it.
    pub owner: (Option<u32>, Option<u32>),
    /// Serve only this user and root (`allow_root`): others get `EACCES`. The kernel must ask for that, so it goes with a
    /// `lifetime` of nothing and with [`opens`](Self::opens).
    pub only: Option<u32>,
    /// The user and the group who mount, to act as root on the volume (`fakeroot`): no permission is missing. It is for mounts that
    /// serve this user only, whose permissions the kernel does not check, and goes with a `lifetime` of nothing. See
    /// `Server::attr_for_kernel`.
    pub fakeroot: Option<(u32, u32)>,
    /// Let the kernel keep what is written, and hand it over later in larger pieces; until then it alone knows sizes and times of files.
    /// Where there is no room any more, only `fsync(2)` and `close(2)` tell. Goes with [`opens`](Self::opens).
    pub writeback: bool,
    /// Have the kernel tell of every file that is opened. Otherwise it opens files alone, which is faster; then flags that keep files
    /// from being written to count when somebody writes, not when he opens.
    pub opens: bool,
    /// How requests come.
    pub transport: Transport,
    /// What is done before the kernel is told that the last of the mount is over, which it waits for; nothing is asked afterwards. Only
    /// mounts of block devices have it.
    pub destroy: Box<dyn Fn(&Server) + Send + Sync>,
    /// What is told to whoever looks after the mount.
    pub log: Box<dyn Fn(&str) + Send + Sync>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(365 * 24 * 60 * 60),
            idmap: false,
            max_known: usize::MAX,
            max_ring_bytes: usize::MAX,
            owner: (None, None),
            only: None,
            fakeroot: None,
            writeback: false,
            opens: false,
            transport: Transport::default(),
            destroy: Box::new(|_| {}),
            log: Box::new(|_| {}),
        }
    }
}

/// Reads what the kernel says that it has forgotten, and has it forgotten here.
pub(crate) type Hearing = Box<dyn Fn(Hear) + Send + Sync>;

/// Tells the kernel that the attributes it knows of a node are out of date.
pub(crate) type Telling = Box<dyn Fn(&Server, u64) + Send + Sync>;

/// How much of what the kernel has to say is heard at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hear {
    /// All that there is: whoever asks for something meanwhile may have to wait longer.
    All,
    /// Up to the first who asks for something: before that comes, as a rule, all that has been forgotten.
    UntilAsked,
}

/// Answers the kernel's requests for one mount. Any number of threads may have it answer at the same time.
pub struct Server {
    config: Config,
    pub(crate) base: Session,
    pub(crate) idle: Idle,
    pub(crate) nodes: Nodes,
    pub(crate) handles: Handles,
    meter: Meter,
    agreed: OnceLock<Features>,
    /// The kernel can be asked to forget.
    prunes: OnceLock<bool>,
    /// What a request carries by the rings that there are, to be used if the kernel will.
    rings: OnceLock<Option<usize>>,
    /// Reads what the kernel has forgotten, once requests come.
    hearing: OnceLock<Hearing>,
    /// Tells the kernel what it would not find out by itself, once requests come.
    telling: OnceLock<Telling>,
    /// Held shared from before a word of what the kernel has forgotten is read until that is forgotten here.
    pub(crate) forgetting: BiasedRwLock<()>,
    /// A request met a fault in the program: nothing is changed any more.
    broken: AtomicBool,
    /// The kernel has lost something that programs had written.
    lost: AtomicBool,
    warned_of_opens: AtomicBool,
}

impl Server {
    /// Serves what stands at the root of `namespace`.
    pub fn new(namespace: &Arc<Namespace>, config: Config) -> Self {
        Self {
            base: Session::new(namespace, Cred::root()).with_umask(0),
            idle: Idle::new(),
            nodes: Nodes::new(namespace, config.max_known),
            handles: Handles::new(),
            meter: Meter::new(),
            agreed: OnceLock::new(),
            prunes: OnceLock::new(),
            rings: OnceLock::new(),
            hearing: OnceLock::new(),
            telling: OnceLock::new(),
            forgetting: BiasedRwLock::new(()),
            broken: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            warned_of_opens: AtomicBool::new(false),
            config,
        }
    }

    /// How it serves.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A request met a fault in the program, and since then nothing is changed.
    pub fn is_broken(&self) -> bool {
        // Relaxed: what was changed before is not asked through this.
        self.broken.load(Ordering::Relaxed)
    }

    /// Notes that what the kernel has kept for programs could not be written: their calls had succeeded. That a volume is full is
    /// told to programs when they sync or close, and says nothing about the volume.
    #[cold]
    pub(crate) fn lose(&self, error: &Error) {
        if [Errno::ENOSPC, Errno::EDQUOT].contains(&error.errno()) {
            return;
        }
        // Relaxed: see `has_lost`.
        if !self.lost.swap(true, Ordering::Relaxed) {
            self.log(&format!("what was written to a file is lost: {error}"));
        }
    }

    /// Something that programs had written could not be written to the volume.
    pub fn has_lost(&self) -> bool {
        // Relaxed: it is asked when all has been served.
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether this was asked before: that flags do not keep files from being opened is said once.
    pub(crate) fn has_warned_of_opens(&self) -> bool {
        // Relaxed: it is about nothing else.
        self.warned_of_opens.swap(true, Ordering::Relaxed)
    }

    /// How requests come, once that was agreed on.
    pub fn transport(&self) -> Transport {
        if self.has(Features::OVER_IO_URING) { Transport::Ring } else { Transport::Device }
    }

    /// How long the kernel may remember attributes at least, where it has come to a name or a directory to go on from there: until it
    /// has done what it came for. It would ask for the same once more otherwise. The shortest time that the protocol knows, which
    /// Linux makes a tick of its clock.
    pub(crate) fn moment(&self) -> Duration {
        if self.config.only.is_some() || self.config.fakeroot.is_some() {
            Duration::ZERO
        } else {
            self.config.lifetime.max(Duration::from_nanos(1))
        }
    }

    /// The attributes as the kernel is told of them.
    pub(crate) fn attr(&self, location: &Location) -> Attr {
        let (uid, gid) = self.config.owner;
        let attr = location.attr();
        Attr { uid: uid.unwrap_or(attr.uid), gid: gid.unwrap_or(attr.gid), ..attr }
    }

    /// The attributes with a name, or after a change. With `fakeroot` these say that the file is the caller's: without
    /// capabilities the kernel lets only an owner set ACLs or link set-id files, by the attributes that it was told last. It asks
    /// for them once more before it shows them, and is then told the owner on the volume.
    pub(crate) fn attr_for_kernel(&self, location: &Location) -> Attr {
        let attr = self.attr(location);
        self.config.fakeroot.map_or(attr, |(uid, gid)| Attr { uid, gid, ..attr })
    }

    /// Lets go of every file that the kernel knew or had open, which it no longer does. When this returns, no
    /// other thread is still freeing one that the kernel has forgotten.
    pub fn forget_all(&self) {
        self.handles.clear();
        self.nodes.clear();
        // A thread that has read a FORGET holds this until the file is freed. The volume is closed next, and what is not
        // freed then stays an orphan.
        drop(self.forgetting.write());
    }

    pub(crate) fn log(&self, message: &str) {
        (self.config.log)(message);
    }

    pub(crate) fn superblock(&self) -> &Arc<SuperBlock> {
        self.base.namespace().superblock()
    }

    /// Notes what was agreed on; the first time counts.
    pub(crate) fn agree(&self, features: Features) -> Features {
        *self.agreed.get_or_init(|| features)
    }

    /// Notes the kernel's minor version.
    pub(crate) fn note_minor(&self, minor: u32) {
        let prunes = *self.prunes.get_or_init(|| minor >= MINOR_PRUNE);
        if !prunes && self.config.max_known != usize::MAX {
            self.log("this kernel cannot be asked to forget files, so memory for those that it knows is not bounded");
        }
    }

    /// Notes what a request carries by rings, if there are any, before anything is agreed on.
    pub(crate) fn note_rings(&self, rings: Option<usize>) {
        // It is served once.
        let _ = self.rings.set(rings);
    }

    /// What a request carries by rings, if there are any to be used.
    pub(crate) fn rings(&self) -> Option<usize> {
        self.rings.get().copied().flatten()
    }

    /// Whether the kernel can be asked to forget nodes.
    pub(crate) fn prunes(&self) -> bool {
        self.prunes.get().copied().unwrap_or(false)
    }

    /// Whether that was agreed on.
    pub(crate) fn has(&self, feature: Features) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.contains(feature))
    }

    /// Notes how to hear what the kernel has forgotten.
    pub(crate) fn hear_by(&self, hearing: Hearing) {
        // There is one for a mount.
        let _ = self.hearing.set(hearing);
    }

    /// Notes how to tell the kernel that attributes are out of date.
    pub(crate) fn tell_by(&self, telling: Telling) {
        // There is one for a mount.
        let _ = self.telling.set(telling);
    }

    /// Has the kernel ask for the attributes of a node before it uses them again: a request has changed some of which the kernel does not
    /// know that it changes them. To be called before that is answered, so that who has asked sees them.
    pub(crate) fn attributes_changed(&self, nodeid: u64) {
        if let Some(tell) = self.telling.get() {
            tell(self, nodeid);
        }
    }

    /// Has forgotten whatever the kernel has until now. It says so in a word that nobody waits for, and only then is the room of a file free
    /// that has been removed.
    pub(crate) fn forget_now(&self, how: Hear) {
        if let Some(hear) = self.hearing.get() {
            hear(how);
        }
        // What another thread has read before.
        drop(self.forgetting.write());
    }

    /// What was asked for so far, and how long it took.
    pub fn operations(&self) -> Vec<Operation> {
        self.meter.sum()
    }

    /// Answers a request; the body of the answer goes to `space`, or where it is lent, with all of the answer through `outlet`. What finds no
    /// room is tried once more for a caller who is known by then, when all is forgotten that the kernel has forgotten: none of what takes room comes to something else if it is
    /// begun again.
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
        let request = request.by(self.caller(&request.header));
        let outlet = outlet.map(|outlet| -> &mut dyn Outlet { outlet });
        let mut answer = self.try_answer(opcode, &request, Body::new(&mut *space, outlet));
        if matches!(answer, Answer::Error(Errno::ENOSPC | Errno::EDQUOT)) {
            self.forget_now(Hear::All);
            // Now it matters whether the caller may use what is kept back.
            let request = request.by(self.identified(&request.caller));
            answer = self.try_answer(opcode, &request, Body::new(space, None));
        }
        let failed = matches!(&answer, Answer::Error(error) if !is_normal(opcode, *error));
        self.meter.note(opcode, start.elapsed(), failed);
        answer
    }

    fn try_answer(&self, opcode: Opcode, request: &Request<'_>, mut body: Body<'_>) -> Answer {
        let done = catch_unwind(AssertUnwindSafe(|| self.dispatch(opcode, request, &mut body)));
        let len = body.len();
        match done {
            Ok(Ok(())) if has_no_reply(opcode) || body.is_sent() => Answer::None,
            Ok(Ok(())) => Answer::Body(len),
            Ok(Err(_)) if has_no_reply(opcode) => Answer::None,
            Ok(Err(error)) => self.refuse(opcode, &error),
            Err(panic) => self.broke(opcode, &*panic),
        }
    }

    /// An error, which is told where it says more than its number.
    fn refuse(&self, opcode: Opcode, error: &extern4_vfs::Error) -> Answer {
        if matches!(error.errno(), Errno::EIO | Errno::EUCLEAN) && error.cause().is_some() {
            self.log(&format!("{opcode:?}: {error}"));
        }
        Answer::Error(error.errno())
    }

    /// A fault in the program. What the request has half done must not become durable: the volume is left as in a crash, and only
    /// read from now on.
    #[cold]
    fn broke(&self, opcode: Opcode, panic: &(dyn std::any::Any + Send)) -> Answer {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        // Relaxed: see `is_broken`.
        if !self.broken.swap(true, Ordering::Relaxed) {
            // It may panic as well.
            let halted = catch_unwind(AssertUnwindSafe(|| {
                self.superblock().fs().halt(&format!("a fault in the program: {text}"))
            }));
            let how = if halted.is_ok() { "nothing is changed any more" } else { "and so did stopping it" };
            self.log(&format!("{opcode:?} met a fault in the program ({text}); {how}"));
        }
        if has_no_reply(opcode) { Answer::None } else { Answer::Error(Errno::EIO) }
    }

    fn dispatch(&self, opcode: Opcode, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        use Opcode as Op;
        if self.is_broken() && changes(opcode) {
            return Err(Errno::EROFS.into());
        }
        if self.config.only.is_some() && !self.serves(opcode, self.itself(&request.caller).uid) {
            return Err(Errno::EACCES.into());
        }
        match opcode {
            Op::Init => self.init(request, body),
            // Nothing waits that could be cut short.
            Op::Interrupt => Ok(()),
            Op::Destroy => {
                (self.config.destroy)(self);
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
            // Data is written when it comes; a kernel that is told so does not ask again.
            Op::Flush => Err(Errno::ENOSYS.into()),
            Op::Fallocate => self.fallocate(request),
            // What the kernel keeps would look like a hole. By itself it takes files for whole.
            Op::Lseek if self.has(Features::WRITEBACK_CACHE) => Err(Errno::ENOSYS.into()),
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

/// Whether an error number is a usual answer to a question, and not a failure: what was asked for is not there, or this request
/// is not served, which the kernel learns once.
fn is_normal(opcode: Opcode, error: Errno) -> bool {
    match opcode {
        _ if error == Errno::ENOSYS => true,
        Opcode::Lookup => error == Errno::ENOENT,
        // No such attribute; no attributes of that kind; more bytes than the caller has room for, who asks again.
        Opcode::Getxattr => matches!(error, Errno::ENODATA | Errno::EOPNOTSUPP | Errno::ERANGE),
        Opcode::Listxattr => matches!(error, Errno::EOPNOTSUPP | Errno::ERANGE),
        // A name that was never there need not be removed.
        Opcode::Removexattr => error == Errno::ENODATA,
        // There are no more data, or holes.
        Opcode::Lseek => error == Errno::ENXIO,
        // A program asks whether the file is a terminal.
        Opcode::Ioctl => error == Errno::ENOTTY,
        // The question was whether it may.
        Opcode::Access => matches!(error, Errno::EACCES | Errno::EROFS),
        _ => false,
    }
}

impl Server {
    /// Whether this user is served. What comes of an open file has been allowed before, and the kernel itself may ask for it.
    fn serves(&self, opcode: Opcode, uid: u32) -> bool {
        use Opcode as Op;
        let only = self.config.only.unwrap_or(uid);
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

/// The kernel does not wait for an answer.
pub(crate) fn has_no_reply(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt)
}

/// It is asked to change something.
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
