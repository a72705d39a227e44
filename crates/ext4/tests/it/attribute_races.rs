//! A file that is overwritten while its attributes change and its names are added, removed and
//! moved.
//!
//! No change may be lost, in memory or on the volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use extern4_testkit::image::ImageSpec;
use extern4_vfs::*;

use crate::memory::{self, Volume, in_time};
use crate::model::{Random, acl, open};

/// Records with room for attributes and without, blocks of attributes that are shared and values in
/// separate inodes.
const VOLUMES: [ImageSpec; 4] = [
    ImageSpec::new(
        "race-ext4",
        32 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    ),
    ImageSpec::new(
        "race-i128",
        16 << 20,
        &["-t", "ext4", "-b", "1024", "-I", "128", "-J", "size=1"],
    ),
    ImageSpec::new(
        "race-ea",
        32 << 20,
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode", "-J", "size=4"],
    ),
    ImageSpec::new("race-ext2", 16 << 20, &["-t", "ext2", "-b", "1024"]),
];

const FILE: &str = "/file";
const BLOCK: usize = 4096;
/// Names that stay while others are added and removed.
const LASTING: u32 = 2;

/// A thread's changes to one property, which no other thread changes, with the expected state.
trait Changer {
    fn change(&mut self, session: &Session, random: &mut Random);
    fn check(&self, session: &Session);
}

fn stat(session: &Session) -> Attr {
    session.stat(FILE, LookupFlags::FOLLOW).expect("attributes")
}

/// Mode and ACL.
struct Rights {
    mode: u16,
    acl: Option<Acl>,
}

impl Changer for Rights {
    fn change(&mut self, session: &Session, random: &mut Random) {
        // Modes with set-id bits are not cleared by the writer: it is root, and root's writes keep
        // them.
        let mode =
            0o400 + random.below(0o300) as u16 + if random.below(8) == 0 { 0o4000 } else { 0 };
        match random.below(6) {
            0 => {
                let new = acl(random.below(8) as u8);
                session
                    .set_acl(
                        FILE,
                        AclKind::Access,
                        Some(new.clone()),
                        LookupFlags::FOLLOW,
                    )
                    .expect("an ACL");
                self.mode = self.mode & 0o7000 | new.equiv_mode().0 as u16;
                self.acl = Some(new);
            }
            1 => {
                session
                    .set_acl(FILE, AclKind::Access, None, LookupFlags::FOLLOW)
                    .expect("no ACL");
                self.acl = None;
            }
            _ => {
                session
                    .chmod(FILE, mode, LookupFlags::FOLLOW)
                    .expect("a mode");
                self.mode = mode;
                self.acl = self.acl.take().map(|acl| acl.with_mode(mode.into()));
            }
        }
    }

    fn check(&self, session: &Session) {
        assert_eq!(
            format!("{:o}", stat(session).mode),
            format!("{:o}", self.mode)
        );
        let found = session
            .get_xattr(FILE, "system.posix_acl_access", LookupFlags::FOLLOW)
            .ok();
        assert_eq!(found, self.acl.as_ref().map(Acl::to_xattr));
    }
}

/// One extended attribute.
struct Attribute {
    name: &'static str,
    most: u64,
    value: Option<Vec<u8>>,
}

impl Changer for Attribute {
    fn change(&mut self, session: &Session, random: &mut Random) {
        if self.value.is_some() && random.below(4) == 0 {
            session
                .remove_xattr(FILE, self.name, LookupFlags::FOLLOW)
                .expect("it goes");
            self.value = None;
            return;
        }
        let value = vec![random.below(256) as u8; random.below(self.most) as usize];
        session
            .set_xattr(
                FILE,
                self.name,
                &value,
                XattrFlags::empty(),
                LookupFlags::FOLLOW,
            )
            .expect("a value");
        self.value = Some(value);
    }

    fn check(&self, session: &Session) {
        assert_eq!(
            session.get_xattr(FILE, self.name, LookupFlags::FOLLOW).ok(),
            self.value,
            "{}",
            self.name
        );
    }
}

/// Adds, removes and replaces names.
struct Links {
    names: Vec<String>,
}

impl Changer for Links {
    fn change(&mut self, session: &Session, random: &mut Random) {
        let name = format!("/links/{}", random.below(12));
        match self.names.iter().position(|known| *known == name) {
            Some(at) if random.below(2) == 0 => {
                session.unlink(&name).expect("it goes");
                self.names.remove(at);
            }
            Some(at) => {
                // Another file takes its place.
                session
                    .mknod("/links/new", NewKind::Regular, 0o644)
                    .expect("a file");
                session
                    .rename("/links/new", &name, RenameFlags::empty())
                    .expect("it is replaced");
                session.unlink(&name).expect("that goes");
                self.names.remove(at);
            }
            None => {
                session
                    .link(FILE, LookupFlags::FOLLOW, &name)
                    .expect("a link");
                self.names.push(name);
            }
        }
    }

    fn check(&self, session: &Session) {
        assert_eq!(
            stat(session).nlink,
            LASTING + self.names.len() as u32,
            "{:?}",
            self.names
        );
    }
}

/// A name that moves.
struct Mover {
    at: String,
}

impl Changer for Mover {
    fn change(&mut self, session: &Session, random: &mut Random) {
        let to = format!(
            "/{}/moved{}",
            random.pick(&["links", "others"]),
            random.below(3)
        );
        session
            .rename(&self.at, &to, RenameFlags::empty())
            .expect("it moves");
        self.at = to;
    }

    fn check(&self, session: &Session) {
        assert_eq!(
            session
                .stat(&self.at, LookupFlags::FOLLOW)
                .map(|attr| attr.ino)
                .ok(),
            Some(stat(session).ino)
        );
    }
}

/// Overwrites the thread's own blocks until `stop` is set. Returns the byte that filled the last
/// one.
fn write(session: &Session, writer: usize, stop: &AtomicBool) -> u8 {
    let file = open(session, FILE, OpenFlags::READ | OpenFlags::WRITE, 0).expect("it opens");
    let mut mark = 0_u8;
    let offset = (2 * writer * BLOCK) as u64;
    let mut bytes = vec![0; 2 * BLOCK];
    while !stop.load(Ordering::Relaxed) {
        mark = mark.wrapping_add(1);
        bytes.fill(mark);
        assert_eq!(file.write_at(&bytes, offset).expect("a write"), bytes.len());
        let left = &mut [0; 2 * BLOCK];
        file.read_at(left, offset).expect("a read");
        assert!(
            left.iter().all(|byte| *byte == mark),
            "{writer}: the written bytes are not there"
        );
    }
    mark
}

fn race(spec: &ImageSpec, turns: usize, seed: u64) {
    let Some(volume) = Volume::new(spec) else {
        return;
    };
    let session = &volume.session;
    for dir in ["/links", "/others"] {
        session.mkdir(dir, 0o755).expect("a directory");
    }
    let how = OpenFlags::CREATE | OpenFlags::WRITE;
    let file = open(session, FILE, how, 0o644).expect("a file");
    file.write_at(&vec![0; 4 * BLOCK], 0).expect("contents");
    session
        .chmod(FILE, 0o644, LookupFlags::FOLLOW)
        .expect("its mode");
    session
        .link(FILE, LookupFlags::FOLLOW, "/links/moved0")
        .expect("a name that moves");
    let most = if spec.name == "race-ea" { 3000 } else { 300 };
    let mut changers: Vec<Box<dyn Changer + Send>> = vec![
        Box::new(Rights {
            mode: 0o644,
            acl: None,
        }),
        Box::new(Attribute {
            name: "user.a",
            most: 60,
            value: None,
        }),
        Box::new(Attribute {
            name: "user.b",
            most,
            value: None,
        }),
        Box::new(Links { names: Vec::new() }),
        Box::new(Mover {
            at: "/links/moved0".to_owned(),
        }),
    ];
    let stop = AtomicBool::new(false);
    let marks = thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            scope.spawn({
                let stop = &stop;
                move || write(session, writer, stop)
            })
        });
        let changers: Vec<_> = changers
            .iter_mut()
            .zip(seed..)
            .map(|(changer, seed)| {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..turns {
                        changer.check(session);
                        changer.change(session, &mut random);
                        changer.check(session);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = changers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Ordering::Relaxed);
        let marks = writers.map(|writer| writer.join().expect("a writer"));
        ended
            .into_iter()
            .for_each(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        marks
    });
    drop(file);
    let what = volume.what;
    let device = Arc::clone(&volume.device);
    volume.close();
    // As the volume has it.
    let fs = memory::open(what, &device);
    let session = crate::model::session(Arc::clone(&fs) as _);
    changers.iter().for_each(|changer| changer.check(&session));
    let file = open(&session, FILE, OpenFlags::READ, 0).expect("it opens");
    for (writer, mark) in marks.into_iter().enumerate() {
        let mut left = vec![0; 2 * BLOCK];
        file.read_at(&mut left, (2 * writer * BLOCK) as u64)
            .expect("a read");
        assert!(left.iter().all(|byte| *byte == mark), "{what}: {writer}");
    }
}

#[test]
fn attribute_changes_during_writes_are_kept() {
    let turns = memory::number("EXTERN4_BESIDE", 2000) as usize;
    for spec in &VOLUMES {
        in_time(spec.name, Duration::from_secs(300), move || {
            race(spec, turns, 1)
        });
    }
}
