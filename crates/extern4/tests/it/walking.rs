//! Walks over trees: their events, and trees that are deep, wide or changed meanwhile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use extern4::{Cred, Errno, ErrorKind, Session, Volume, Walk, WalkEvent};
use tempfile::TempDir;

/// Returns a session of root in an empty volume.
fn session() -> (Session, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let volume = Volume::create_new(dir.path().join("disk.img"), 64 << 20).expect("a volume");
    let session = volume.superuser();
    session.remove_dir("/lost+found").expect("it is empty");
    (session, dir)
}

/// Returns the rest of a walk, a letter for each event.
fn events(walk: &mut Walk) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(event) = walk.next_event() {
        found.push(match event {
            Ok(WalkEvent::Enter(entry)) => format!("+{}", entry.path().display()),
            Ok(WalkEvent::File(entry)) => format!(" {}", entry.path().display()),
            Ok(WalkEvent::Leave(entry)) => format!("-{}", entry.path().display()),
            Err(error) => format!("!{}", error.path().unwrap_or(Path::new("?")).display()),
        });
    }
    found
}

fn next(walk: &mut Walk) -> WalkEvent {
    walk.next_event().expect("an event").expect("no error")
}

/// Makes directories inside each other, and a file next to each.
fn make_deep(session: &Session, depth: usize) {
    let mut inside = session.clone();
    for _ in 0..depth {
        inside.write("a", "").expect("a file");
        inside.create_dir("d").expect("a directory");
        inside = inside.at("d").expect("it is there");
    }
}

#[test]
fn a_directory_comes_before_and_after_its_entries() {
    let (session, _dir) = session();
    session.create_dir_all("/top/b/c").expect("directories");
    session.write("/top/b/c/file", "").expect("a file");
    session.write("/top/a", "").expect("a file");
    session.symlink("b", "/top/link").expect("a link");
    let mut walk = session.walk("/top").sorted();
    let all = [
        "+/top",
        " /top/a",
        "+/top/b",
        "+/top/b/c",
        " /top/b/c/file",
        "-/top/b/c",
        "-/top/b",
        " /top/link",
        "-/top",
    ];
    assert_eq!(events(&mut walk), all);
    assert_eq!(walk.visited(), 6);
    let mut unsorted = events(&mut session.walk("/top").with_metadata());
    unsorted.sort();
    let mut sorted = all;
    sorted.sort();
    assert_eq!(unsorted, sorted);
    assert_eq!(events(&mut session.walk("/top/a")), [" /top/a"]);
    assert_eq!(events(&mut session.walk("/absent")), ["!/absent"]);
    assert_eq!(session.walk("/top").count(), 6);
}

#[test]
fn a_skipped_directory_is_not_left() {
    let (session, _dir) = session();
    session.create_dir_all("/top/a").expect("a directory");
    session.create_dir_all("/top/b").expect("a directory");
    session.write("/top/a/file", "").expect("a file");
    for entered in [false, true] {
        let mut walk = session.walk("/top").sorted();
        next(&mut walk);
        assert!(matches!(next(&mut walk), WalkEvent::Enter(entry) if entry.file_name() == "a"));
        if entered {
            walk.enter().expect("it can be read");
        }
        walk.skip_subtree();
        assert_eq!(events(&mut walk), ["+/top/b", "-/top/b", "-/top"]);
    }
}

#[test]
fn an_unreadable_directory_is_left_after_the_error() {
    let (session, dir) = session();
    session.create_dir_all("/top/a").expect("a directory");
    session.set_permissions("/top/a", 0).expect("a mode");
    session.write("/top/b", "").expect("a file");
    drop(session);
    let volume = Volume::open(dir.path().join("disk.img")).expect("it opens");
    let user = volume.session(Cred::new(1000, 1000, &[]));
    let mut walk = user.walk("/top").sorted();
    let all = ["+/top", "+/top/a", "!/top/a", "-/top/a", " /top/b", "-/top"];
    assert_eq!(events(&mut walk), all);

    let mut walk = user.walk("/top").sorted();
    next(&mut walk);
    next(&mut walk);
    assert_eq!(walk.enter().expect_err("no rights").errno(), Errno::EACCES);
    assert_eq!(events(&mut walk), [" /top/b", "-/top"]);
}

#[test]
fn a_link_is_entered_by_the_caller_alone() {
    let (session, _dir) = session();
    session.create_dir_all("/top/a").expect("a directory");
    session.create_dir_all("/other/b").expect("a directory");
    session.write("/other/b/file", "").expect("a file");
    session.symlink("/other", "/top/a/link").expect("a link");
    session.symlink("/top", "/top/a/loop").expect("a link");
    session.symlink("nowhere", "/top/a/none").expect("a link");
    let mut walk = session.walk("/top").sorted();
    next(&mut walk);
    next(&mut walk);
    next(&mut walk);
    walk.enter().expect("a link to a directory");
    assert!(matches!(next(&mut walk), WalkEvent::Enter(entry)
        if entry.path() == Path::new("/top/a/link/b") && entry.depth() == 3));
    assert!(matches!(next(&mut walk), WalkEvent::File(entry)
        if entry.parent().read("file").is_ok()));
    next(&mut walk);
    assert!(matches!(next(&mut walk), WalkEvent::Leave(entry)
        if entry.metadata().expect("attributes").is_symlink()));
    next(&mut walk);
    assert_eq!(walk.enter().expect_err("a loop").errno(), Errno::ELOOP);
    next(&mut walk);
    assert_eq!(walk.enter().expect_err("dangling").errno(), Errno::ENOENT);
    assert_eq!(events(&mut walk), ["-/top/a", "-/top"]);
}

/// The walk is inside of more directories than it keeps open.
#[test]
fn a_walk_continues_where_it_was_in_directories_far_above() {
    const DEPTH: usize = 200;
    let (session, _dir) = session();
    make_deep(&session, DEPTH);
    for sorted in [false, true] {
        let mut walk = session.walk("/");
        if sorted {
            walk = walk.sorted();
        }
        let found = events(&mut walk);
        assert_eq!(found.len(), DEPTH * 3 + 2);
        let names: BTreeSet<_> = found.iter().collect();
        assert_eq!(names.len(), found.len(), "each event comes once");
    }
}

#[test]
fn a_tree_of_5000_levels_is_walked_and_removed() {
    const DEPTH: usize = 5000;
    let (session, _dir) = session();
    session.create_dir("/top").expect("a directory");
    make_deep(&session.at("/top").expect("it is there"), DEPTH);
    let mut walk = session.walk("/top").with_metadata();
    let mut deepest = 0;
    while let Some(event) = walk.next_event() {
        if let WalkEvent::File(entry) = event.expect("no error") {
            assert!(entry.metadata().expect("attributes").is_file());
            deepest = deepest.max(entry.depth());
        }
    }
    assert_eq!((deepest, walk.visited()), (DEPTH, 2 * DEPTH as u64 + 1));
    session.remove_dir_all("/top").expect("it goes");
    assert_eq!(session.walk("/").count(), 1);
}

/// Removing, adding and renaming in a directory of many batches, in the middle of the walk.
#[test]
fn a_directory_that_changes_shows_all_that_stays_once() {
    const NAMES: usize = 5000;
    let (session, _dir) = session();
    session.create_dir("/top").expect("a directory");
    let inside = session.at("/top").expect("it is there");
    for name in 0..NAMES {
        inside.write(format!("stays-{name}"), "").expect("a file");
        inside.write(format!("goes-{name}"), "").expect("a file");
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    for (number, entry) in session.walk("/top").enumerate() {
        let entry = entry.expect("no error");
        if entry.path().to_string_lossy().contains("stays") {
            seen.push(entry.into_path());
        }
        if number < NAMES {
            inside
                .remove_file(format!("goes-{number}"))
                .expect("it goes");
            inside.write(format!("comes-{number}"), "").expect("room");
        }
        if number == NAMES {
            session.rename("/top", "/moved").expect("it moves");
            session.create_dir("/top").expect("another directory");
            session.write("/top/stays-elsewhere", "").expect("a file");
        }
    }
    let unique: BTreeSet<_> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len());
    assert_eq!(seen.len(), NAMES);
    assert!(!unique.contains(&PathBuf::from("/top/stays-elsewhere")));
}

/// The rename takes place while the walk is so deep that it has closed the directory.
#[test]
fn a_directory_that_is_moved_is_the_one_that_is_left() {
    let (session, _dir) = session();
    session.create_dir("/top").expect("a directory");
    make_deep(&session.at("/top").expect("it is there"), 100);
    let mut walk = session.walk("/top");
    while !matches!(next(&mut walk), WalkEvent::Enter(entry) if entry.depth() == 100) {}
    session.rename("/top", "/moved").expect("it moves");
    session.create_dir_all("/top/d/d").expect("another tree");
    let mut removed = 0;
    while let Some(event) = walk.next_event() {
        match event.expect("no error") {
            WalkEvent::Leave(entry) if entry.depth() > 0 => {
                for file in session_of(&entry).read_dir(".").expect("a list") {
                    file.expect("an entry").remove().expect("it goes");
                }
                entry.remove().expect("it goes");
                removed += 1;
            }
            _ => {}
        }
    }
    assert_eq!(removed, 100);
    assert!(session.exists("/top/d/d").expect("an answer"));
}

fn session_of(entry: &extern4::DirEntry) -> Session {
    entry.parent().at(entry.file_name()).expect("it is there")
}

#[test]
fn a_file_cannot_be_entered() {
    let (session, _dir) = session();
    session.write("/file", "").expect("a file");
    let mut walk = session.walk("/file");
    next(&mut walk);
    let error = walk.enter().expect_err("no directory");
    assert_eq!(error.kind(), ErrorKind::Os(Errno::ENOTDIR));
}
