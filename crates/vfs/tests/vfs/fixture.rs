//! Volumes and callers that tests start from.

use std::sync::Arc;

use extern4_vfs::*;

/// Returns the superuser's session on a volume in memory with a `/tmp` that every user may write
/// to.
pub(crate) fn volume() -> Session {
    volume_with(MemLimits::default(), SuperOptions::default())
}

pub(crate) fn volume_with(limits: MemLimits, options: SuperOptions) -> Session {
    volume_on(MemFs::new(limits), options)
}

/// Makes the same volume on an empty file system.
pub(crate) fn volume_on(fs: Arc<dyn FileSystem>, options: SuperOptions) -> Session {
    let sb = SuperBlock::new(fs, options).unwrap();
    let root = Session::new(&Namespace::new(sb), Cred::root());
    root.mkdir("/tmp", 0o777).unwrap();
    root.chmod("/tmp", 0o777, LookupFlags::FOLLOW).unwrap();
    root
}

/// Returns a session of a user, whose group has the same number, on the same volume.
pub(crate) fn user(session: &Session, uid: u32) -> Session {
    session.with_cred(Cred::new(uid, uid, &[]))
}

pub(crate) fn sb(session: &Session) -> Arc<SuperBlock> {
    Arc::clone(session.root().superblock())
}

/// Makes a regular file with these bytes.
pub(crate) fn put(session: &Session, path: &str, bytes: &[u8]) {
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
    let file = session
        .open(path, flags)
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
}

pub(crate) fn get(session: &Session, path: &str) -> Vec<u8> {
    let file = session
        .open(path, OpenFlags::READ)
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    let len = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

/// Names of a directory without `.` and `..`, sorted.
pub(crate) fn names(session: &Session, path: &str) -> Vec<String> {
    let dir = session
        .open(path, OpenFlags::READ | OpenFlags::DIRECTORY)
        .unwrap();
    let mut batch = DirBatch::new();
    let mut cookie = 0;
    let mut names = Vec::new();
    loop {
        dir.read_dir(cookie, 7, &mut batch).unwrap();
        let Some(next) = batch.next_cookie() else {
            break;
        };
        cookie = next;
        names.extend(
            batch
                .iter()
                .map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()),
        );
    }
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

/// The error number, for comparing with what Linux says.
pub(crate) fn errno<T>(result: Result<T>) -> std::result::Result<(), Errno> {
    result.map(drop).map_err(|error| error.errno())
}
