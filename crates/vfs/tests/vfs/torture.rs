//! Walks through a tree whose names never stand still, where every answer is known in advance.
//!
//! `EXTERN4_TORTURE_SECONDS` says how long each test lasts; by default all together take two
//! seconds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use extern4_vfs::*;

use crate::fixture::{errno, put, sb, user, volume, volume_with};

const NONE: RenameFlags = RenameFlags::empty();

/// Runs each of `work` over and over in its own thread, for the time that is asked for or this
/// part of two seconds.
fn torture(part: f64, work: &[&(dyn Fn(u64) + Sync)]) {
    let seconds =
        std::env::var("EXTERN4_TORTURE_SECONDS").map(|text| text.parse::<f64>().expect("a number"));
    let end = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(2.0 * part));
    thread::scope(|scope| {
        for act in work {
            scope.spawn(move || {
                for round in (0..).take_while(|_| Instant::now() < end) {
                    act(round);
                }
            });
        }
    });
}

fn stat(session: &Session, path: impl AsRef<[u8]>) -> std::result::Result<Attr, Errno> {
    session
        .stat(path, LookupFlags::NOFOLLOW)
        .map_err(|error| error.errno())
}

/// Something that moves between two names, always by one thread. `moves` is odd while a move is
/// under way or done one way, so that who reads it twice knows what may have happened in between.
struct Mover {
    names: [&'static str; 2],
    /// The file to look for: what moves, or a path below it.
    below: &'static str,
    moves: AtomicU64,
}

impl Mover {
    const fn new(names: [&'static str; 2], below: &'static str) -> Self {
        Self {
            names,
            below,
            moves: AtomicU64::new(0),
        }
    }

    /// The path of the file when what moves has this name.
    fn path(&self, name: usize) -> String {
        format!("{}{}", self.names[name], self.below)
    }

    fn step(&self, session: &Session) {
        // SeqCst: who sees the names of this move also sees that it has begun.
        let from = usize::from(!self.moves.fetch_add(1, Ordering::SeqCst).is_multiple_of(2));
        session
            .rename(self.names[from], self.names[1 - from], NONE)
            .expect("no other thread moves it");
    }

    /// Looks under the old name of the present move and then the new, or the other way round.
    /// `None` if another move began meanwhile.
    fn look(
        &self,
        session: &Session,
        new_first: bool,
    ) -> Option<[std::result::Result<Attr, Errno>; 2]> {
        let before = self.moves.load(Ordering::SeqCst);
        // Of the move that began last: an odd number leads from the first name to the second.
        let new = usize::from(!before.is_multiple_of(2));
        let order = if new_first {
            [new, 1 - new]
        } else {
            [1 - new, new]
        };
        let seen = order.map(|name| stat(session, self.path(name)));
        (self.moves.load(Ordering::SeqCst) == before).then_some(seen)
    }
}

/// The identity of a file: number, mode and size.
type Identity = (u64, u16, u64);

fn identity(attr: &Attr) -> Identity {
    (attr.ino, attr.mode, attr.size)
}

/// Moves a file within a directory, one between two, and a directory with a file below it, while
/// others look for each file under both names, and gives what they found, under the first name they
/// looked at and then the other.
fn watch_movers(new_first: bool, judge: fn([bool; 2])) {
    let root = volume();
    for dir in ["/d", "/e", "/d/sub", "/d/sub/deep"] {
        root.mkdir(dir, 0o755).unwrap();
    }
    let movers = [
        Mover::new(["/d/a", "/d/b"], ""),
        Mover::new(["/d/f", "/e/g"], ""),
        Mover::new(["/d/sub", "/e/other"], "/deep/f"),
    ];
    let inos = movers.each_ref().map(|mover| {
        put(&root, &mover.path(0), b"x");
        stat(&root, mover.path(0)).unwrap().ino
    });
    let index = |round: u64| usize::try_from(round).unwrap() % movers.len();
    let step = |round: u64| movers[index(round)].step(&root);
    let look = |round: u64| {
        let index = index(round);
        let Some(seen) = movers[index].look(&root, new_first) else {
            return;
        };
        judge(seen.map(|seen| {
            assert!(
                matches!(seen.map(|attr| attr.ino), Err(Errno::ENOENT))
                    || seen.unwrap().ino == inos[index]
            );
            seen.is_ok()
        }));
    };
    torture(0.2, &[&step, &look, &look]);
}

#[test]
fn a_file_gone_from_its_old_name_is_at_the_new() {
    watch_movers(false, |seen| assert_ne!(seen, [false, false]));
}

#[test]
fn a_file_seen_at_its_new_name_is_gone_from_the_old() {
    watch_movers(true, |seen| assert_ne!(seen, [true, true]));
}

/// Files in directories that move, each with a neighbour that stays.
const HOMES: usize = 4;

/// A tree in which each `/home<n>` has a file `stays` and a directory that moves between
/// `/home<n>/in` and `/away/out<n>`, with a file below it; both files say by mode and size whose
/// they are.
fn homes(options: SuperOptions) -> (Session, Vec<[Identity; 2]>) {
    let root = volume_with(MemLimits::default(), options);
    root.mkdir("/away", 0o755).unwrap();
    let mut identities = Vec::new();
    for n in 0..HOMES {
        let paths = [format!("/home{n}/stays"), format!("/home{n}/in/deep/file")];
        for dir in [
            format!("/home{n}"),
            format!("/home{n}/in"),
            format!("/home{n}/in/deep"),
        ] {
            root.mkdir(dir, 0o755).unwrap();
        }
        identities.push([0, 1].map(|i| {
            put(&root, &paths[i], &vec![b'x'; 1 + 2 * n + i]);
            root.chmod(
                &paths[i],
                0o600 + u16::try_from(2 * n + i).unwrap(),
                LookupFlags::FOLLOW,
            )
            .unwrap();
            identity(&stat(&root, &paths[i]).unwrap())
        }));
    }
    (root, identities)
}

#[test]
fn paths_through_moving_directories_lead_to_the_right_files_or_nowhere() {
    let (root, identities) = homes(SuperOptions {
        budget: CacheBudget::new(256 << 10),
        ..Default::default()
    });
    let flip = |from: String, to: String| {
        // One thread moves each directory: it is at one of the two.
        if root.rename(&from, &to, NONE).is_err() {
            root.rename(&to, &from, NONE).unwrap();
        }
    };
    let churn = |round: u64| {
        let n = round % HOMES as u64;
        flip(format!("/home{n}/in"), format!("/away/out{n}"));
        if round.is_multiple_of(64) {
            sb(&root).drop_caches();
        }
    };
    // Children of a directory that moves can move, too.
    let deep = |round: u64| {
        let n = round % HOMES as u64;
        for base in [format!("/home{n}/in"), format!("/away/out{n}")] {
            let _ = root.rename(
                format!("{base}/deep/file"),
                format!("{base}/deep/file2"),
                NONE,
            );
            let _ = root.rename(
                format!("{base}/deep/file2"),
                format!("{base}/deep/file"),
                NONE,
            );
        }
    };
    let look = |round: u64| {
        let n = usize::try_from(round).unwrap() % HOMES;
        let [stays, moves] = identities[n];
        for path in [
            format!("/home{n}/stays"),
            format!("/away/../home{n}/stays"),
            format!("/home{n}/../home{n}/./stays"),
        ] {
            let attr = stat(&root, &path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
            assert_eq!(identity(&attr), stays, "{path}");
        }
        for base in [format!("/home{n}/in"), format!("/away/out{n}")] {
            for name in ["file", "file2"] {
                match stat(&root, format!("{base}/deep/{name}")) {
                    Ok(attr) => assert_eq!(identity(&attr), moves, "{base}"),
                    Err(errno) => assert_eq!(errno, Errno::ENOENT, "{base}"),
                }
            }
            // Up and down again from wherever the directory is.
            match stat(&root, format!("{base}/deep/../..")) {
                Ok(attr) => assert_eq!(attr.kind, FileType::Directory),
                Err(errno) => assert_eq!(errno, Errno::ENOENT),
            }
        }
    };
    torture(0.2, &[&churn, &deep, &look, &look]);
}

#[test]
fn below_an_open_directory_that_moves_nothing_is_ever_missing() {
    let (root, identities) = homes(SuperOptions::default());
    let bases: Vec<Session> = (0..HOMES)
        .map(|n| {
            root.at(&root
                .locate(format!("/home{n}/in"), LookupFlags::FOLLOW)
                .unwrap())
        })
        .collect();
    let churn = |round: u64| {
        let n = round / 2 % HOMES as u64;
        let ends = [format!("/home{n}/in"), format!("/away/out{n}")];
        let from = usize::from(round % 2 == 1);
        root.rename(&ends[from], &ends[1 - from], NONE).unwrap();
    };
    let drop_caches = |_| sb(&root).drop_caches();
    let look = |round: u64| {
        let n = usize::try_from(round).unwrap() % HOMES;
        for path in ["deep/file", "deep/../deep/file", "./deep/./file"] {
            let attr = stat(&bases[n], path).unwrap_or_else(|errno| panic!("{path}: {errno}"));
            assert_eq!(identity(&attr), identities[n][1], "{path}");
        }
        assert_eq!(stat(&bases[n], "deep/none").map(drop), Err(Errno::ENOENT));
        // A parent it has at any time, never none.
        assert!(stat(&bases[n], "..").is_ok());
        assert!(stat(&bases[n], "deep/../..").is_ok());
    };
    torture(0.2, &[&churn, &look, &look, &drop_caches]);
}

#[test]
fn rights_that_were_given_or_taken_count_for_the_next_check() {
    let root = volume();
    for dir in ["/own0", "/own1", "/own2"] {
        root.mkdir(dir, 0o755).unwrap();
        put(&root, &format!("{dir}/f"), b"");
    }
    let users = [9, 10].map(|uid| user(&root, uid));
    let acl = |text: &str| Some(text.parse::<Acl>().unwrap());
    let shut = acl("u::rwx,u:9:---,g::r-x,m::r-x,o::r-x");
    let open = acl("u::rwx,u:9:r-x,g::---,m::r-x,o::---");
    let yes = Ok(());
    let no = Err(Errno::EACCES);
    // Each directory has one thread that changes its rights and sees at once what they are.
    let change = |dir: &str, round: u64| {
        let set_acl = |acl| {
            root.set_acl(dir, AclKind::Access, acl, LookupFlags::FOLLOW)
                .unwrap()
        };
        let chmod = |mode| root.chmod(dir, mode, LookupFlags::FOLLOW).unwrap();
        let want = match round % 6 {
            0 => (set_acl(shut.clone()), [no, yes]),
            1 => (chmod(0o711), [no, yes]),
            2 => (set_acl(open.clone()), [yes, no]),
            3 => (chmod(0o700), [no, no]),
            4 => (set_acl(None), [no, no]),
            _ => (chmod(0o755), [yes, yes]),
        };
        for (user, want) in users.iter().zip(want.1) {
            assert_eq!(
                errno(user.stat(format!("{dir}/f"), LookupFlags::FOLLOW)),
                want,
                "{dir}, state {}",
                round % 6
            );
            assert_eq!(
                errno(user.access(dir, Access::EXEC, LookupFlags::FOLLOW)),
                want,
                "{dir}, state {}",
                round % 6
            );
        }
    };
    let look = |round: u64| {
        let path = format!("/own{}/f", round % 3);
        for user in &users {
            assert!(matches!(
                errno(user.stat(&path, LookupFlags::FOLLOW)),
                Ok(()) | Err(Errno::EACCES)
            ));
        }
        if round.is_multiple_of(256) {
            sb(&root).drop_caches();
        }
    };
    torture(
        0.2,
        &[
            &|round| change("/own0", round),
            &|round| change("/own1", round),
            &look,
        ],
    );
}
