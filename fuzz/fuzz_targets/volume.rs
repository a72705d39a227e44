//! A whole volume: opens a damaged image, walks all of it, reads everything.
#![no_main]

use std::collections::HashSet;

use extern4::{AclKind, Cred, Session, Volume};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

/// Entries visited at most: more names than any of the images has room for.
const MAX_ENTRIES: usize = 20_000;
/// Bytes of a file read at most, at its start and at its end.
const MAX_READ: usize = 32 << 10;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    extern4_fuzz::mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    let Some(image) = extern4_fuzz::image(extern4_fuzz::volumes(), data) else {
        return;
    };
    let bytes = image.size_bytes();
    let Ok(volume) = Volume::options().cache_size(1 << 20).open_device(image) else {
        return;
    };
    let _ = volume.stat_fs();
    let superuser = volume.superuser();
    let somebody = volume.session(Cred::new(1000, 1000, &[]));
    let mut entries = 0;
    let mut seen = HashSet::new();
    for entry in superuser.walk("/") {
        entries += 1;
        assert!(
            entries <= MAX_ENTRIES,
            "a walk without end over {bytes} bytes"
        );
        let Ok(entry) = entry else { continue };
        // One name of many, so that the time goes to different inodes.
        if entry
            .metadata()
            .is_ok_and(|metadata| !seen.insert(metadata.ino()))
        {
            continue;
        }
        visit(&entry.parent(), entry.file_name());
        let _ = somebody.metadata(entry.path());
    }
});

/// Asks everything there is to ask of one file.
fn visit(session: &Session, name: &std::ffi::OsStr) {
    let Ok(metadata) = session.symlink_metadata(name) else {
        return;
    };
    for xattr in session.llistxattr(name).unwrap_or_default() {
        let _ = session.lgetxattr(name, &xattr);
    }
    if metadata.is_symlink() {
        let _ = session.read_link(name);
        let _ = session.metadata(name);
        return;
    }
    let _ = session.acl(name, AclKind::Access);
    if metadata.is_file()
        && let Ok(file) = session.open(name)
    {
        let mut buf = vec![0; MAX_READ];
        let _ = file.read_at(&mut buf, 0);
        let _ = file.read_at(&mut buf, metadata.len().saturating_sub(4096));
        let mut offset = 0;
        let mut spans = 0;
        while let Ok(Some(span)) = file.span_at(offset) {
            assert!(span.len > 0, "an empty span at {offset}");
            offset = span.offset + span.len;
            spans += 1;
            if spans > 10_000 {
                break;
            }
        }
    }
}
