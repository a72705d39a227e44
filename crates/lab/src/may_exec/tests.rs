//! What all three sides have to do.

use extern4_vfs::{Acl, Errno};

use super::*;
use crate::volume::PATH_BY_NAME;
use crate::volume::tests::{a_change_counts_at_once, walks_as_it_should};

/// What mode and ACL say to the user, on and off, is what `acl(5)` and `inode(7)` say.
fn every_mode_decides<M: Mechanism>() {
    let mut files = headers();
    files.push(File { uid: 1000, ..File::directory("/own") });
    files.push(File::regular("/own/f"));
    let volume = M::new(&files);
    for mode in 0..0o1000 {
        volume.chmod("/usr", mode);
        volume.chmod("/own", mode);
        for on in [true, false] {
            volume.set_fast(on);
            let passes = |path| match volume.stat(path) {
                Ok(_) => true,
                Err(errno) => {
                    assert_eq!(errno, Errno::EACCES);
                    false
                }
            };
            assert_eq!(
                (passes(PATH), passes("/own/f")),
                (mode & 1 != 0, mode & 0o100 != 0),
                "{mode:o}, {on}"
            );
        }
    }
}

/// An ACL takes the short way away from all; with New, one that refuses somebody does.
fn an_acl_takes_the_short_way_away<M: Mechanism>(side: Side) {
    let volume = M::new(&headers());
    let paths = [PATH_BY_NAME.to_owned()];
    let acl = |text: &str| text.parse::<Acl>().expect("an ACL");
    // With the second check that `.` asks of the root.
    let all = if side == Side::Before { [0, 5] } else { [5, 0] };
    assert_eq!(volume.searches(&paths), all);
    volume.set_acl("/usr", &acl("u::rwx,u:1000:r-x,g::r-x,m::r-x,o::r-x"));
    let one_full = if side == Side::Before { [0, 5] } else { [4, 1] };
    assert_eq!(volume.searches(&paths), if side == Side::New { all } else { one_full });
    volume.set_acl("/usr", &acl("u::rwx,u:1000:r-x,g::r-x,m::r-x,o::---"));
    assert_eq!(volume.searches(&paths), one_full);
    assert!(volume.stat(PATH).is_ok());
    volume.set_acl("/usr", &acl("u::rwx,u:1000:---,g::r-x,m::r-x,o::r-x"));
    assert_eq!(volume.stat(PATH).map(drop), Err(Errno::EACCES));
    volume.set_acl("/usr", &acl("u::rwx,g::r-x,o::r-x"));
    assert_eq!((volume.stat(PATH).is_ok(), volume.searches(&paths)), (true, all));
    volume.set_fast(false);
    assert_eq!((volume.stat(PATH).is_ok(), volume.searches(&paths)), (true, [0, 5]));
    volume.set_fast(true);
    assert_eq!(volume.searches(&paths), all);
}

fn a_build_finds_what_is_there<M: Mechanism>() {
    let volume = M::new(&build::files());
    let paths = build::paths();
    let found = paths.iter().filter(|path| volume.stat(path).is_ok()).count();
    let absent = paths.iter().filter(|path| volume.stat(path).map(drop) == Err(Errno::ENOENT)).count();
    let headers = paths.iter().filter(|path| path.starts_with("/usr/include")).count();
    // Each header of the system's is looked for in vain twice, and so is a list of what an object depends on.
    assert_eq!((found + absent, absent), (paths.len(), 2 * headers + 60));
}

fn all<M: Mechanism>(side: Side) {
    walks_as_it_should::<M>(side);
    every_mode_decides::<M>();
    an_acl_takes_the_short_way_away::<M>(side);
    a_build_finds_what_is_there::<M>();
    let volume = M::new(&headers());
    a_change_counts_at_once(&volume, |may_pass| volume.chmod("/usr", if may_pass { 0o755 } else { 0o700 }));
}

#[test]
fn before() {
    all::<Before>(Side::Before);
}

#[test]
fn seed() {
    all::<Seed>(Side::Seed);
}

#[test]
fn new() {
    all::<New>(Side::New);
}

#[test]
fn what_instructions_are_counted_of_can_be_repeated() {
    for operation in REPEATED {
        Side::ALL.iter().for_each(|side| repeat(operation, *side, 2).unwrap());
    }
    assert!(repeat("nothing", Side::New, 1).is_err());
}
