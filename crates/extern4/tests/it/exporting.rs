//! Archives and layouts that are written from volumes, and members that are chosen of them.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use extern4::build::{Entry, Error, Kind, Rule, Sink, Source, SourceError, Unreadable};
use extern4::export::{
    ExportError, ExportObserver, LayoutOptions, export_archive, export_archive_file, export_layout,
};
use extern4::tar::{ChosenMembers, Compression, Members, TarBuilder, TarSource};
use extern4::{Cred, NewKind, Session, Volume};
use extern4_testkit::tools::temporary;

/// Makes a volume with a small tree in `/srv`.
fn volume(at: &Path) -> (Volume, Session) {
    let volume = Volume::create_new(at.join("disk.img"), 16 << 20).expect("a volume");
    let session = volume.superuser();
    session.create_dir_all("/srv/www").expect("directories");
    session.write("/srv/www/a", "text\n").expect("a file");
    session
        .hard_link("/srv/www/a", "/srv/www/b")
        .expect("a link");
    session
        .make_node("/srv/www/socket", NewKind::Socket, 0o600)
        .expect("a socket");
    (volume, session)
}

/// The members of an archive: each path, with the target of a hard link.
fn members(archive: &[u8], at: &Path) -> Vec<String> {
    let path = at.join("members.tar");
    std::fs::write(&path, archive).expect("an archive");
    let mut listed = Listed::default();
    let source = TarSource::open(&path, at).expect("an archive");
    source.scan(&mut listed).expect("a list");
    listed.0
}

#[derive(Default)]
struct Listed(Vec<String>);

impl Sink for Listed {
    fn entry(&mut self, entry: Entry) -> Result<(), SourceError> {
        let mut line = String::from_utf8_lossy(&entry.path).into_owned();
        if let Kind::HardLink(target) = entry.kind {
            line += &format!(" = {}", String::from_utf8_lossy(&target));
        }
        self.0.push(line);
        Ok(())
    }

    fn remove(&mut self, _: &[u8]) -> Result<(), SourceError> {
        Ok(())
    }

    fn clear(&mut self, _: &[u8]) -> Result<(), SourceError> {
        Ok(())
    }

    fn warn(&mut self, message: String) {
        panic!("{message}");
    }
}

/// Remembers everything, and stops an export when it has begun `files` files.
#[derive(Default)]
struct Observer {
    files: Option<u64>,
    left_out: Vec<String>,
    added: Vec<String>,
    failed: Vec<String>,
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

impl ExportObserver for Observer {
    fn advance(&mut self, files: u64, _: u64) -> ControlFlow<()> {
        match &mut self.files {
            Some(0) => return ControlFlow::Break(()),
            Some(left) => *left -= files,
            None => {}
        }
        ControlFlow::Continue(())
    }

    fn left_out(&mut self, path: &[u8], reason: &'static str) {
        self.left_out.push(format!("{}: {reason}", text(path)));
    }

    fn added(&mut self, member: &Entry) {
        self.added.push(text(&member.path));
    }

    fn failed(&mut self, unreadable: &Unreadable) {
        self.failed.push(text(&unreadable.path));
    }
}

/// An output without room.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_small_archive_tells_of_a_full_output() {
    let dir = temporary("extern4-export-");
    let (volume, session) = volume(dir.path());
    let top = session.at("/srv").expect("a directory");
    let all = [
        Compression::Gzip,
        Compression::Bzip2,
        Compression::Xz,
        Compression::Zstd,
    ];
    for compression in all.into_iter().map(Some).chain([None]) {
        let exported = export_archive(&top, Full, compression, &mut ());
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        assert!(
            matches!(&exported, Err(ExportError::Output(error)) if is_full(error)),
            "{compression:?}"
        );
        let mut tar = TarBuilder::new(Full, compression).expect("an archive");
        let added = tar.add(&volume, &session, Path::new("/srv"), b"", &mut ());
        assert!(added.is_ok(), "{added:?}");
        assert!(is_full(&tar.finish().err().expect("no room")));
    }
}

#[test]
fn an_archive_has_everything_but_sockets() {
    let dir = temporary("extern4-export-");
    let (_volume, session) = volume(dir.path());
    let top = session.at("/srv/www").expect("a directory");
    let mut observer = Observer::default();
    let archive = export_archive(&top, Vec::new(), None, &mut observer).expect("an archive");
    assert_eq!(members(&archive, dir.path()), ["", "a", "b = a"]);
    assert_eq!(
        observer.left_out,
        ["socket: an archive cannot have sockets"]
    );
}

#[test]
fn an_export_that_ends_leaves_nothing() {
    let dir = temporary("extern4-export-");
    let (volume, session) = volume(dir.path());
    let top = session.at("/srv").expect("a directory");
    let stopped = || Observer {
        files: Some(2),
        ..Observer::default()
    };
    let archive = dir.path().join("a.tar");
    let layout = dir.path().join("made/layout");
    let ended = export_archive_file(&top, &archive, None, false, &mut stopped());
    assert!(matches!(ended, Err(ExportError::Interrupted)), "{ended:?}");
    let ended = export_layout(&top, &layout, &LayoutOptions::default(), &mut stopped());
    assert!(matches!(ended, Err(ExportError::Interrupted)), "{ended:?}");
    session.set_permissions("/srv/www/a", 0).expect("a mode");
    let mine = volume.session(Cred::new(1000, 1000, &[]));
    let top = mine.at("/srv").expect("a directory");
    let ended = export_layout(&top, &layout, &LayoutOptions::default(), &mut ());
    assert!(
        matches!(&ended, Err(ExportError::Volume(unreadable)) if unreadable.path == b"www/a"),
        "{ended:?}"
    );
    assert!(!archive.exists() && !dir.path().join("made").exists());
}

#[test]
fn files_that_are_there_are_replaced_if_that_is_wanted() {
    let dir = temporary("extern4-export-");
    let (_volume, session) = volume(dir.path());
    let top = session.at("/srv").expect("a directory");
    let archive = dir.path().join("a.tar");
    let layout = dir.path().join("layout");
    std::fs::write(&archive, "old").expect("a file");
    let ended = export_archive_file(&top, &archive, None, false, &mut ());
    assert!(matches!(ended, Err(ExportError::Exists)), "{ended:?}");
    assert_eq!(std::fs::read(&archive).expect("a file"), b"old");
    export_archive_file(&top, &archive, None, true, &mut ()).expect("an archive");
    let bytes = std::fs::read(&archive).expect("an archive");
    assert_eq!(members(&bytes, dir.path()).len(), 4);

    let mut options = LayoutOptions::default();
    export_layout(&top, &layout, &options, &mut ()).expect("a layout");
    let index = || std::fs::read(layout.join("index.json")).expect("an index");
    let first = index();
    let ended = export_layout(&top, &layout, &options, &mut ());
    assert!(matches!(ended, Err(ExportError::Exists)), "{ended:?}");
    options.replace = true;
    options.name = "second".to_owned();
    export_layout(&top, &layout, &options, &mut ()).expect("a layout");
    assert_ne!(index(), first);
}

#[test]
fn a_file_added_twice_is_stored_once() {
    let dir = temporary("extern4-tar-");
    let (volume, session) = volume(dir.path());
    std::fs::create_dir(dir.path().join("other")).expect("a directory");
    let (other, others) = self::volume(&dir.path().join("other"));
    let mut tar = TarBuilder::new(Vec::new(), None)
        .expect("an archive")
        .filter([Rule::exclude(b"two/b")].into_iter().collect());
    let mut observer = Observer::default();
    for (volume, session, path, name) in [
        (&volume, &session, "/srv/www/b", "one"),
        (&volume, &session, "/srv/www/", "two"),
        // Another file, though its inode has the same number.
        (&other, &others, "/srv/www/a", "three"),
    ] {
        let added = tar.add(
            volume,
            session,
            Path::new(path),
            name.as_bytes(),
            &mut observer,
        );
        assert!(added.is_ok(), "{added:?}");
    }
    let gone = tar.add(&volume, &session, Path::new("/gone"), b"x", &mut observer);
    assert!(matches!(gone, Err(ExportError::Volume(_))), "{gone:?}");
    let archive = tar.finish().expect("an archive");
    let expected = ["one", "two", "two/a = one", "three"];
    assert_eq!(members(&archive, dir.path()), expected);
    assert_eq!(observer.added, ["one", "two", "two/a", "three"]);
    assert_eq!(
        observer.left_out,
        ["socket: an archive cannot have sockets"]
    );
}

#[test]
fn a_name_that_cannot_be_read_is_not_the_first() {
    let dir = temporary("extern4-tar-");
    let (volume, session) = volume(dir.path());
    session.create_dir("/srv/www/c").expect("a directory");
    session.set_permissions("/srv/www/c", 0).expect("a mode");
    session.set_permissions("/srv/www/a", 0).expect("a mode");
    let mine = volume.session(Cred::new(1000, 1000, &[]));
    let mut tar = TarBuilder::new(Vec::new(), None).expect("an archive");
    let mut observer = Observer::default();
    let path = Path::new("/srv/www");
    let added = tar.add(&volume, &mine, path, b"", &mut observer);
    assert!(added.is_ok(), "{added:?}");
    assert_eq!(observer.failed, ["a", "b", "c"]);
    session
        .set_permissions("/srv/www/a", 0o644)
        .expect("a mode");
    let added = tar.add(
        &volume,
        &session,
        Path::new("/srv/www/b"),
        b"b",
        &mut observer,
    );
    assert!(added.is_ok(), "{added:?}");
    let archive = tar.finish().expect("an archive");
    assert_eq!(members(&archive, dir.path()), ["", "c", "b"]);
}

#[test]
fn members_are_chosen_by_names_and_rules() -> Result<(), Error> {
    let dir = temporary("extern4-tar-");
    let (volume, session) = volume(dir.path());
    session.write("/srv/other", "").expect("a file");
    let mut tar = TarBuilder::new(Vec::new(), None).expect("an archive");
    let added = tar.add(&volume, &session, Path::new("/srv"), b"srv", &mut ());
    assert!(added.is_ok(), "{added:?}");
    let path = dir.path().join("a.tar");
    std::fs::write(&path, tar.finish().expect("an archive")).expect("a file");
    let rules = [Rule::exclude(b"*/b")].into_iter().collect();
    let members = Arc::new(Members::new(["./srv/www/", "gone"], rules));
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    let archive = TarSource::open(&path, dir.path())?;
    let source = ChosenMembers::new(archive, Arc::clone(&members))
        .strip_components(2)
        .on_member(move |member| teller.lock().expect("a lock").push(text(&member.path)));
    let mut listed = Listed::default();
    source.scan(&mut listed)?;
    assert_eq!(listed.0, ["a"]);
    assert_eq!(*told.lock().expect("a lock"), ["srv/www/a"]);
    assert_eq!(members.missing().collect::<Vec<_>>(), [b"gone"]);
    Ok(())
}
