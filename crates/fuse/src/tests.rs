//! Tests of the server: requests answered from a file system in memory, with no kernel in between.
//!
//! They build requests byte by byte, as the kernel would, and check the bytes of the answers. So
//! they also cover requests that no kernel sends: short ones, unknown ones, and one that makes the
//! file system panic.

use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::time::Duration;

use extern4_sync::cache_budget::CacheBudget;
use extern4_sync::primitive::{AtomicBool, Ordering};
use extern4_vfs::{
    Access, Cred, Errno, Inode, MemFs, MemLimits, Namespace, SecurityHook, SuperBlock, SuperOptions,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::abi::{
    AttrOut, CreateIn, EntryOut, Features, ForgetIn, InHeader, InitIn, InitInExt, InitOut, LinkIn,
    MkdirIn, MknodIn, Opcode, OpenOut, ROOT_ID, ReadIn, ReleaseIn, RenameIn, WriteIn,
};
use crate::reply::Answer;
use crate::request::Request;
use crate::server::{Callbacks, Config, Server};

/// A server, and the messages that it has logged.
struct Served {
    server: Server,
    said: Arc<Mutex<Vec<String>>>,
}

impl Served {
    fn new(options: SuperOptions) -> Self {
        Self::with(options, Config::default())
    }

    fn with(options: SuperOptions, config: Config) -> Self {
        let sb = SuperBlock::new(MemFs::new(MemLimits::default()), options).expect("a file system");
        let said = Arc::new(Mutex::new(Vec::new()));
        let log = {
            let said = Arc::clone(&said);
            Box::new(move |line: &str| said.lock().expect("a log").push(line.to_owned()))
        };
        Self {
            server: Server::new(
                &Namespace::new(sb),
                config,
                Callbacks {
                    log,
                    ..Callbacks::default()
                },
            ),
            said,
        }
    }

    fn ask(&self, opcode: Opcode, nodeid: u64, args: &[&[u8]]) -> Result<Vec<u8>, Errno> {
        self.ask_as(0, opcode, nodeid, args)
    }

    fn ask_as(
        &self,
        uid: u32,
        opcode: Opcode,
        nodeid: u64,
        args: &[&[u8]],
    ) -> Result<Vec<u8>, Errno> {
        let args = args.concat();
        let len = u32::try_from(size_of::<InHeader>() + args.len()).expect("a short request");
        let header = InHeader {
            len,
            opcode: opcode as u32,
            nodeid,
            uid,
            unique: 1,
            ..InHeader::default()
        };
        let bytes = [header.as_bytes(), &args].concat();
        let mut space = vec![0; 1 << 13];
        match self.server.answer(
            &Request::parse(&bytes).expect("a request"),
            &mut space,
            None,
        ) {
            Answer::None => Ok(Vec::new()),
            Answer::Error(errno) => Err(errno),
            Answer::Body(len) => Ok(space[..len].to_vec()),
        }
    }

    #[track_caller]
    fn get<T: FromBytes + IntoBytes + Immutable>(
        &self,
        opcode: Opcode,
        nodeid: u64,
        args: &[&[u8]],
    ) -> T {
        T::read_from_bytes(&self.ask(opcode, nodeid, args).expect("an answer"))
            .expect("its structure")
    }

    fn mkdir(&self, parent: u64, name: &[u8]) -> Result<EntryOut, Errno> {
        let args = MkdirIn {
            mode: 0o755,
            umask: 0,
        };
        let body = self.ask(Opcode::Mkdir, parent, &[args.as_bytes(), name, b"\0"])?;
        Ok(EntryOut::read_from_bytes(&body).expect("an entry"))
    }

    /// Makes a file; returns its node id.
    fn make(&self, name: &[u8]) -> u64 {
        let args = MknodIn {
            mode: 0o100_644,
            ..MknodIn::default()
        };
        self.get::<EntryOut>(Opcode::Mknod, ROOT_ID, &[args.as_bytes(), name, b"\0"])
            .nodeid
    }

    /// Makes a file and opens it; returns its node id and its handle.
    fn make_open(&self, opcode: Opcode, name: &[u8]) -> Result<(u64, u64), Errno> {
        let args = CreateIn {
            flags: 2,
            mode: 0o644,
            ..CreateIn::default()
        };
        let body = self.ask(opcode, ROOT_ID, &[args.as_bytes(), name, b"\0"])?;
        let (entry, rest) = EntryOut::read_from_prefix(&body).expect("an entry");
        Ok((
            entry.nodeid,
            OpenOut::read_from_bytes(rest).expect("a handle").fh,
        ))
    }

    fn open_files(&self) -> usize {
        self.server.superblock().open_files().len()
    }
}

/// The volume is closed after everything is forgotten: a thread that has read a FORGET must have
/// freed the file by then.
#[test]
fn forgetting_all_waits_for_threads_that_forget() {
    let served = &Served::new(SuperOptions::default());
    let is_free = &AtomicBool::new(false);
    let starts = &Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let forgetting = served.server.forgets.handle();
            starts.wait();
            // Long enough for a premature return of the other thread to show.
            std::thread::sleep(Duration::from_millis(50));
            is_free.store(true, Ordering::Relaxed);
            drop(forgetting);
        });
        starts.wait();
        served.server.forget_all();
        assert!(is_free.load(Ordering::Relaxed));
    });
}

#[test]
fn kernel_and_server_agree() {
    let served = Served::new(SuperOptions::default());
    let init = InitIn {
        major: 7,
        minor: 45,
        max_readahead: 1 << 17,
        flags: (1 << 5) | (1 << 22) | 0x8000_0000,
    };
    let agreed: InitOut = served.get(Opcode::Init, 0, &[init.as_bytes()]);
    assert_eq!(
        (
            agreed.major,
            agreed.minor,
            agreed.max_write,
            agreed.max_pages
        ),
        (7, 45, 1 << 20, 256)
    );
    assert_eq!((agreed.flags, agreed.flags2), ((1 << 5) | (1 << 22), 0));
    let newer = InitIn { major: 8, ..init };
    assert_eq!(
        served
            .get::<InitOut>(Opcode::Init, 0, &[newer.as_bytes()])
            .major,
        7
    );
    let older = InitIn { minor: 20, ..init };
    assert!(served.ask(Opcode::Init, 0, &[older.as_bytes()]).is_err());
}

#[test]
fn requests_through_rings_carry_what_there_is_memory_for() {
    let served = Served::new(SuperOptions::default());
    served.server.protocol.set_rings(Some(128 << 10));
    let offered = Features::INIT_EXT | Features::MAX_PAGES | Features::OVER_IO_URING;
    let [flags, flags2] = [offered.bits(), offered.bits() >> 32].map(|half| half as u32);
    let init = InitIn {
        major: 7,
        minor: 45,
        flags,
        ..InitIn::default()
    };
    let more = InitInExt {
        flags2,
        ..InitInExt::default()
    };
    let agreed: InitOut = served.get(Opcode::Init, 0, &[init.as_bytes(), more.as_bytes()]);
    assert_eq!(
        (agreed.flags2, agreed.max_write, agreed.max_pages),
        (flags2, 128 << 10, 32)
    );
    // A kernel that does not offer them uses the device.
    let served = Served::new(SuperOptions::default());
    served.server.protocol.set_rings(Some(128 << 10));
    let without = InitIn {
        flags: Features::MAX_PAGES.bits() as u32,
        ..init
    };
    let agreed: InitOut = served.get(Opcode::Init, 0, &[without.as_bytes()]);
    assert_eq!(
        (agreed.flags2, agreed.max_write, agreed.max_pages),
        (0, 1 << 20, 256)
    );
}

#[test]
fn nodes_are_known_as_long_as_the_kernel_knows_them() {
    let served = Served::new(SuperOptions::default());
    let made = served.mkdir(ROOT_ID, b"dir").expect("a directory");
    let found: EntryOut = served.get(Opcode::Lookup, ROOT_ID, &[b"dir\0"]);
    assert_eq!(
        (found.nodeid, found.generation),
        (made.nodeid, made.generation)
    );
    let attr: AttrOut = served.get(Opcode::Getattr, found.nodeid, &[]);
    assert_eq!(attr.attr.mode, 0o40755);
    let forget = |nlookup| {
        served.ask(
            Opcode::Forget,
            made.nodeid,
            &[ForgetIn { nlookup }.as_bytes()],
        )
    };
    assert_eq!(forget(1), Ok(Vec::new()));
    assert!(served.ask(Opcode::Getattr, made.nodeid, &[]).is_ok());
    assert_eq!(forget(1), Ok(Vec::new()));
    assert_eq!(
        served.ask(Opcode::Getattr, made.nodeid, &[]),
        Err(Errno::ESTALE)
    );
    // More often than the server has reported it to the kernel.
    assert_eq!(forget(7), Ok(Vec::new()));
    // The kernel may remember a failed lookup, too.
    let missing: EntryOut = served.get(Opcode::Lookup, ROOT_ID, &[b"missing\0"]);
    assert!(missing.nodeid == 0 && missing.entry_valid > 0);
}

#[test]
fn names_are_checked() {
    let served = Served::new(SuperOptions::default());
    let long = vec![b'n'; 256];
    assert_eq!(
        served.mkdir(ROOT_ID, &long).err(),
        Some(Errno::ENAMETOOLONG)
    );
    assert!(served.mkdir(ROOT_ID, &long[1..]).is_ok());
    for bad in [&b""[..], b"a/b", b"/"] {
        assert_eq!(served.mkdir(ROOT_ID, bad).err(), Some(Errno::EINVAL));
    }
    assert_eq!(
        served.ask(Opcode::Lookup, ROOT_ID, &[b"no end"]),
        Err(Errno::EINVAL)
    );
    // The kernel looks these up when the mount is exported (NFS).
    let dir = served.mkdir(ROOT_ID, b"dir").expect("a directory");
    let up: EntryOut = served.get(Opcode::Lookup, dir.nodeid, &[b"..\0"]);
    let here: EntryOut = served.get(Opcode::Lookup, dir.nodeid, &[b".\0"]);
    assert_eq!((up.nodeid, here.nodeid), (ROOT_ID, dir.nodeid));
}

#[test]
fn a_node_that_the_kernel_has_forgotten_is_found_by_its_handle() {
    let served = Served::new(SuperOptions::default());
    let dir = served.mkdir(ROOT_ID, b"dir").expect("a directory");
    let file = served.make(b"file");
    let forget = |node| served.ask(Opcode::Forget, node, &[ForgetIn { nlookup: 1 }.as_bytes()]);
    for node in [dir.nodeid, file] {
        assert_eq!(forget(node), Ok(Vec::new()));
        assert_eq!(served.ask(Opcode::Getattr, node, &[]), Err(Errno::ESTALE));
        let found: EntryOut = served.get(Opcode::Lookup, node, &[b".\0"]);
        assert_eq!((found.nodeid, found.attr.ino), (node, node));
        assert!(served.ask(Opcode::Getattr, node, &[]).is_ok());
    }
    assert_eq!(forget(dir.nodeid), Ok(Vec::new()));
    let up: EntryOut = served.get(Opcode::Lookup, dir.nodeid, &[b"..\0"]);
    assert_eq!(up.nodeid, ROOT_ID);
    served
        .ask(Opcode::Rmdir, ROOT_ID, &[b"dir\0"])
        .expect("it is empty");
    assert_eq!(
        served.ask(Opcode::Lookup, dir.nodeid, &[b".\0"]),
        Err(Errno::ESTALE)
    );
}

#[test]
fn known_files_are_found_again_by_number() {
    const FILES: usize = 3000;
    let budget = CacheBudget::new(1 << 20);
    let served = Served::new(SuperOptions {
        budget: Arc::clone(&budget),
        ..SuperOptions::default()
    });
    let dir = served.mkdir(ROOT_ID, b"dir").expect("a directory").nodeid;
    let inner = served.mkdir(dir, b"inner").expect("a directory").nodeid;
    let files: Vec<u64> = (0..FILES)
        .map(|at| served.make(format!("{at}").as_bytes()))
        .collect();
    let superblock = Arc::clone(served.server.superblock());
    assert!(
        superblock.stats().inodes < FILES / 2,
        "{:?}",
        superblock.stats()
    );
    assert!(budget.used() < budget.limit() * 5 / 4, "{budget:?}");
    for (at, &node) in files.iter().enumerate() {
        let attr: AttrOut = served.get(Opcode::Getattr, node, &[]);
        assert_eq!(attr.attr.ino, node);
        let found: EntryOut = served.get(Opcode::Lookup, ROOT_ID, &[format!("{at}\0").as_bytes()]);
        assert_eq!(found.nodeid, node);
    }
    // A directory is where it was.
    superblock.drop_caches();
    assert_eq!(superblock.stats().inodes, 1, "the root");
    let up: EntryOut = served.get(Opcode::Lookup, inner, &[b"..\0"]);
    assert_eq!(up.nodeid, dir);
    superblock.drop_caches();
    let rename = |from, to, name: &[u8]| {
        let args = RenameIn { newdir: to };
        served.ask(Opcode::Rename, from, &[args.as_bytes(), name, b"\0moved\0"])
    };
    assert_eq!(
        rename(ROOT_ID, inner, b"dir"),
        Err(Errno::EINVAL),
        "it would be below itself"
    );
    superblock.drop_caches();
    assert_eq!(rename(dir, ROOT_ID, b"inner"), Ok(Vec::new()));
    superblock.drop_caches();
    let up: EntryOut = served.get(Opcode::Lookup, inner, &[b"..\0"]);
    assert_eq!(up.nodeid, ROOT_ID);
}

#[test]
fn a_file_without_names_is_in_use_until_it_is_forgotten() {
    let served = Served::new(SuperOptions::default());
    let superblock = Arc::clone(served.server.superblock());
    let files_in_use = || {
        superblock
            .fs()
            .statfs()
            .map(|stat| stat.files - stat.files_free)
            .expect("figures")
    };
    let before = files_in_use();
    let removed = served.make(b"removed");
    served
        .ask(Opcode::Unlink, ROOT_ID, &[b"removed\0"])
        .expect("it is removed");
    let replaced = served.make(b"replaced");
    let other = served.make(b"other");
    let args = RenameIn { newdir: ROOT_ID };
    served
        .ask(
            Opcode::Rename,
            ROOT_ID,
            &[args.as_bytes(), b"other\0replaced\0"],
        )
        .expect("it moves");
    let linked = served.make(b"linked");
    let args = LinkIn { oldnodeid: linked };
    let _: EntryOut = served.get(Opcode::Link, ROOT_ID, &[args.as_bytes(), b"second\0"]);
    for name in [&b"linked\0"[..], b"second\0"] {
        served
            .ask(Opcode::Unlink, ROOT_ID, &[name])
            .expect("it is removed");
    }
    let dir = served.mkdir(ROOT_ID, b"dir").expect("a directory").nodeid;
    served
        .ask(Opcode::Rmdir, ROOT_ID, &[b"dir\0"])
        .expect("it is removed");
    let nameless = served.make_open(Opcode::Tmpfile, b"").expect("a file").0;
    let orphans = [
        (removed, 1),
        (replaced, 1),
        (linked, 2),
        (dir, 1),
        (nameless, 1),
    ];
    for (node, _) in orphans {
        superblock.drop_caches();
        let attr: AttrOut = served.get(Opcode::Getattr, node, &[]);
        assert_eq!((attr.attr.ino, attr.attr.nlink), (node, 0));
    }
    assert_eq!(files_in_use(), before + orphans.len() as u64 + 1);
    for (node, nlookup) in orphans {
        served
            .ask(Opcode::Forget, node, &[ForgetIn { nlookup }.as_bytes()])
            .expect("it is forgotten");
        assert_eq!(served.ask(Opcode::Getattr, node, &[]), Err(Errno::ESTALE));
    }
    assert_eq!(files_in_use(), before + 1);
    // A file that gets its first name need not stay in use.
    let named = served.make_open(Opcode::Tmpfile, b"").expect("a file").0;
    let args = LinkIn { oldnodeid: named };
    let _: EntryOut = served.get(Opcode::Link, ROOT_ID, &[args.as_bytes(), b"named\0"]);
    assert_eq!(served.open_files(), 1);
    served.server.nodes.forget(other, 1);
    for name in [&b"named\0"[..], b"replaced\0"] {
        served
            .ask(Opcode::Unlink, ROOT_ID, &[name])
            .expect("it is removed");
    }
    served.server.forget_all();
    assert_eq!(files_in_use(), before);
}

/// Ends the other threads of a test when one ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request names a known node while others take and give the names of its file.
#[test]
fn a_known_file_is_found_at_any_moment() {
    const ROUNDS: usize = 1000;
    let served = &Served::new(SuperOptions {
        budget: CacheBudget::new(1),
        ..SuperOptions::default()
    });
    let known = &RwLock::new(ROOT_ID);
    let ended = &AtomicBool::new(false);
    let ask = |opcode, args: &[&[u8]]| served.ask(opcode, ROOT_ID, args).expect("it is done");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _ends = Ends(ended);
                while !ended.load(Ordering::Relaxed) {
                    // The kernel forgets no node that a request names.
                    let node = known.read().expect("a node");
                    for _ in 0..10 {
                        served.get::<AttrOut>(Opcode::Getattr, *node, &[]);
                    }
                }
            });
        }
        let _ends = Ends(ended);
        for _ in 0..ROUNDS {
            let made = served.make(b"file");
            *known.write().expect("a node") = made;
            let link = LinkIn { oldnodeid: made };
            ask(Opcode::Link, &[link.as_bytes(), b"second\0"]);
            ask(Opcode::Unlink, &[b"file\0"]);
            let other = served.make(b"file");
            served.server.superblock().drop_caches();
            let rename = RenameIn { newdir: ROOT_ID };
            ask(Opcode::Rename, &[rename.as_bytes(), b"file\0second\0"]);
            *known.write().expect("a node") = other;
            ask(Opcode::Unlink, &[b"second\0"]);
            *known.write().expect("a node") = ROOT_ID;
            for (nodeid, nlookup) in [(made, 2), (other, 1)] {
                served
                    .ask(Opcode::Forget, nodeid, &[ForgetIn { nlookup }.as_bytes()])
                    .expect("it is done");
            }
            if ended.load(Ordering::Relaxed) {
                break;
            }
        }
    });
}

/// Without a report of each open, the server cannot know which files programs have open.
#[test]
fn few_files_stay_open_for_requests_that_name_none() {
    let served = Served::new(SuperOptions {
        budget: CacheBudget::new(1 << 20),
        ..SuperOptions::default()
    });
    let files: Vec<u64> = (0..1000)
        .map(|at| served.make(format!("{at}").as_bytes()))
        .collect();
    for round in 0..2_u8 {
        for &node in &files {
            let write = WriteIn {
                offset: round.into(),
                size: 1,
                ..WriteIn::default()
            };
            served
                .ask(Opcode::Write, node, &[write.as_bytes(), &[round]])
                .expect("it is written");
        }
        assert!(
            (1..=64).contains(&served.open_files()),
            "{}",
            served.open_files()
        );
    }
    for &node in &files {
        let read = ReadIn {
            size: 100,
            ..ReadIn::default()
        };
        assert_eq!(
            served
                .ask(Opcode::Read, node, &[read.as_bytes()])
                .expect("it is read"),
            [0, 1]
        );
        served
            .ask(Opcode::Forget, node, &[ForgetIn { nlookup: 1 }.as_bytes()])
            .expect("it is forgotten");
    }
    assert_eq!(served.open_files(), 0);
}

#[test]
fn written_data_is_read() {
    let served = Served::new(SuperOptions::default());
    let nodeid = served.make(b"file");
    let fh = 0;
    let write = WriteIn {
        fh,
        offset: 3,
        size: 4,
        ..WriteIn::default()
    };
    served
        .ask(Opcode::Write, nodeid, &[write.as_bytes(), b"text"])
        .expect("it is written");
    let short = served.ask(Opcode::Write, nodeid, &[write.as_bytes(), b"tex"]);
    assert_eq!(short, Err(Errno::EINVAL), "the data is not all there");
    let read = ReadIn {
        fh,
        size: 100,
        ..ReadIn::default()
    };
    assert_eq!(
        served
            .ask(Opcode::Read, nodeid, &[read.as_bytes()])
            .expect("it is read"),
        b"\0\0\0text"
    );
    let wrong = ReadIn { fh: fh + 1, ..read };
    assert_eq!(
        served.ask(Opcode::Read, nodeid, &[wrong.as_bytes()]),
        Err(Errno::EBADF)
    );
}

#[test]
fn a_file_that_is_made_is_open_from_the_first_write_until_it_is_forgotten() {
    let served = Served::new(SuperOptions::default());
    assert_eq!(
        served.make_open(Opcode::Create, b"file"),
        Err(Errno::ENOSYS),
        "the kernel opens files alone"
    );
    let named = |served: &Served| served.make(b"file");
    let without_a_name =
        |served: &Served| served.make_open(Opcode::Tmpfile, b"").expect("a file").0;
    for (make, open) in [(&named as &dyn Fn(&Served) -> u64, 0), (&without_a_name, 1)] {
        let nodeid = make(&served);
        assert_eq!(served.open_files(), open);
        let write = WriteIn {
            size: 4,
            ..WriteIn::default()
        };
        served
            .ask(Opcode::Write, nodeid, &[write.as_bytes(), b"text"])
            .expect("it is written");
        served
            .ask(Opcode::Release, nodeid, &[ReleaseIn::default().as_bytes()])
            .expect("nothing is to be done");
        assert_eq!(served.open_files(), 1);
        served
            .ask(
                Opcode::Forget,
                nodeid,
                &[ForgetIn { nlookup: 1 }.as_bytes()],
            )
            .expect("it is forgotten");
        assert_eq!(served.open_files(), 0);
    }
}

#[test]
fn a_kernel_that_tells_of_opens_makes_and_opens_at_once() {
    let served = Served::with(
        SuperOptions::default(),
        Config {
            opens: true,
            ..Config::default()
        },
    );
    let (nodeid, fh) = served.make_open(Opcode::Create, b"file").expect("a file");
    assert!(fh != 0 && served.open_files() == 1);
    let release = ReleaseIn {
        fh,
        ..ReleaseIn::default()
    };
    served
        .ask(Opcode::Release, nodeid, &[release.as_bytes()])
        .expect("it is closed");
    assert_eq!(served.open_files(), 0);
}

#[test]
fn requests_are_counted() {
    let served = Served::new(SuperOptions::default());
    let nodeid = served.make(b"file");
    let fh = 0;
    let read = ReadIn {
        fh,
        size: 100,
        ..ReadIn::default()
    };
    for _ in 0..3 {
        served
            .ask(Opcode::Read, nodeid, &[read.as_bytes()])
            .expect("it is read");
    }
    let wrong = ReadIn { fh: fh + 1, ..read };
    assert!(
        served
            .ask(Opcode::Read, nodeid, &[wrong.as_bytes()])
            .is_err()
    );
    let counted: Vec<_> = served
        .server
        .operations()
        .iter()
        .map(|o| (o.name.clone(), o.times.count(), o.errors))
        .collect();
    assert_eq!(
        counted,
        [("mknod".to_owned(), 1, 0), ("read".to_owned(), 4, 1)]
    );
}

#[test]
fn no_request_is_trusted() {
    let served = Served::new(SuperOptions::default());
    let nodeid = served.make(b"file");
    // A generator of Marsaglia's: any bytes will do.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut any = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..20_000 {
        let Some(opcode) = Opcode::from_raw(u32::try_from(any() % 54).expect("a small number"))
        else {
            continue;
        };
        // Small numbers are more often valid ones.
        let words: Vec<u64> = (0..any() % 9)
            .map(|_| if any() % 2 == 0 { any() % 8 } else { any() })
            .collect();
        let name =
            [b"file\0file2\0", &b"dir\0x\0"[..], b""][usize::try_from(round % 3).expect("small")];
        let node = [ROOT_ID, nodeid, any()][usize::try_from(any() % 3).expect("small")];
        let _ = served.ask(opcode, node, &[words.as_bytes(), name]);
    }
    assert!(
        !served.server.is_broken(),
        "{:?}",
        served.said.lock().expect("a log")
    );
}

/// A file system with a fault that shows at an access check for writing.
struct Faulty;

impl SecurityHook for Faulty {
    fn permission(&self, _: &Cred, _: &Inode, want: Access) -> extern4_vfs::Result<()> {
        assert!(!want.contains(Access::WRITE), "a planted fault");
        Ok(())
    }
}

#[test]
fn a_fault_in_the_program_costs_one_request_and_ends_all_change() {
    let served = Served::new(SuperOptions {
        security: Some(Arc::new(Faulty)),
        ..SuperOptions::default()
    });
    assert_eq!(served.mkdir(ROOT_ID, b"dir").err(), Some(Errno::EIO));
    assert_eq!(served.mkdir(ROOT_ID, b"dir").err(), Some(Errno::EROFS));
    let attr: AttrOut = served.get(Opcode::Getattr, ROOT_ID, &[]);
    assert_eq!(attr.attr.mode & 0o170_000, 0o40_000);
    assert!(served.server.is_broken());
    let said = served.said.lock().expect("a log");
    assert!(
        said.len() == 1 && said[0].contains("a planted fault"),
        "{said:?}"
    );
}

#[test]
fn one_user_and_root_are_served_where_that_is_asked_for() {
    let served = Served::with(
        SuperOptions::default(),
        Config {
            only: Some(7),
            ..Config::default()
        },
    );
    let ask = |uid, opcode, args: &[&[u8]]| served.ask_as(uid, opcode, ROOT_ID, args).map(drop);
    served.make(b"file");
    for uid in [0, 7] {
        assert_eq!(ask(uid, Opcode::Lookup, &[b"file\0"]), Ok(()), "{uid}");
        assert_eq!(ask(uid, Opcode::Getattr, &[&[0; 16]]), Ok(()), "{uid}");
    }
    for opcode in [
        Opcode::Lookup,
        Opcode::Getattr,
        Opcode::Readdir,
        Opcode::Mkdir,
        Opcode::Getxattr,
    ] {
        assert_eq!(
            ask(8, opcode, &[b"file\0"]),
            Err(Errno::EACCES),
            "{opcode:?}"
        );
    }
    // FORGET is served for any user, and the kernel has to ask for attributes each time.
    assert_eq!(ask(8, Opcode::Forget, &[&[0; 8]]), Ok(()));
    assert!(served.server.config().moment().is_zero());
}

/// With names and changes the server reports the caller as the owner of a file. When the kernel
/// asks for attributes, it gets the owner on the volume.
#[test]
fn with_fakeroot_the_caller_is_root_and_owner() {
    let config = Config {
        fakeroot: Some((7, 8)),
        lifetime: Duration::ZERO,
        ..Config::default()
    };
    let served = Served::with(SuperOptions::default(), config);
    served.make(b"root_s");
    let entry = served
        .ask_as(7, Opcode::Lookup, ROOT_ID, &[b"root_s\0"])
        .expect("an entry");
    let entry = EntryOut::read_from_bytes(&entry).expect("an entry");
    assert_eq!(
        (
            entry.attr.uid,
            entry.attr.gid,
            entry.attr_valid,
            entry.attr_valid_nsec
        ),
        (7, 8, 0, 0)
    );
    let attr: AttrOut = served.get(Opcode::Getattr, entry.nodeid, &[&[0; 16]]);
    assert_eq!(
        (
            attr.attr.uid,
            attr.attr.gid,
            attr.attr_valid,
            attr.attr_valid_nsec
        ),
        (0, 0, 0, 0)
    );
}
