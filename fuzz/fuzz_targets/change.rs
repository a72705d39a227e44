//! Changing a damaged volume: no panic, no end that does not come, whatever the changes meet.
#![no_main]

use std::sync::Arc;

use extern4::{
    Acl, AclEntry, AclKind, AclTag, FallocateMode, File, OpenFlags, RenameFlags, Session, Volume,
    XattrFlags,
};
use extern4_block::OverlayDevice;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

/// Names that are changed at most.
const MAX_NAMES: usize = 12;

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    extern4_fuzz::mutate(data, size, max_size, seed)
});

fuzz_target!(|data: &[u8]| {
    let Some(image) = extern4_fuzz::image(extern4_fuzz::volumes(), data) else {
        return;
    };
    // The overlay takes all writes and goes with them.
    let image = Arc::new(OverlayDevice::new(image, 512).expect("a size that sectors have"));
    let Ok(volume) = Volume::options()
        .cache_size(1 << 20)
        .write(true)
        .open_device(image)
    else {
        return;
    };
    let session = volume.superuser();
    let names: Vec<_> = session
        .walk("/")
        .take(200)
        .filter_map(|entry| Some(entry.ok()?.path().to_owned()))
        .step_by(7)
        .take(MAX_NAMES)
        .collect();
    let _ = session.create_dir("/made");
    for (at, name) in names.iter().enumerate() {
        change(&session, name, at);
    }
    let _ = volume.sync();
    for name in names.iter().rev() {
        let _ = session.remove_file(name);
        let _ = session.remove_dir(name);
    }
    let _ = session.remove_dir_all("/made");
    drop(session);
    let _ = volume.close();
});

/// Does a little of everything to one file.
fn change(session: &Session, name: &std::path::Path, at: usize) {
    let beside = format!("/made/{at}");
    let _ = session.set_permissions(name, 0o750);
    let _ = session.setxattr(name, "user.fuzz", &[7; 300], XattrFlags::empty());
    let _ = session.removexattr(name, "user.a");
    let _ = session.set_acl(name, AclKind::Access, acl());
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .custom_flags(OpenFlags::NOFOLLOW);
    if let Ok(file) = session.open_with(name, &options) {
        let _ = file.write_at(&[1; 5000], 3000);
        let _ = file.write_at(&[2; 100], 1 << 20);
        let _ = file.allocate(
            FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
            1000,
            9000,
        );
        let _ = file.allocate(FallocateMode::empty(), 0, 40_000);
        let _ = file.set_len(2000);
        let _ = file.sync_all();
    }
    let _ = session.create(name.join("new"));
    let _ = session.hard_link(name, &beside);
    let _ = session.symlink("target", name.join("link"));
    let _ = session.rename_with(name, &beside, RenameFlags::EXCHANGE);
    let _ = session.rename(&beside, name.with_extension("renamed"));
}

fn acl() -> Option<Acl> {
    let entry = |tag, perm| AclEntry { tag, perm };
    let entries = [
        (AclTag::UserObj, 7),
        (AclTag::User(5), 6),
        (AclTag::GroupObj, 5),
        (AclTag::Mask, 7),
        (AclTag::Other, 4),
    ];
    Acl::new(entries.map(|(tag, perm)| entry(tag, perm)).to_vec()).ok()
}
