//! Tests that all sides of the chapter on search permission have to pass: they give the same
//! answers.

use extern4_vfs::{Acl, Errno};

use super::*;
use crate::volume::PATH_BY_NAME;
use crate::volume::tests::{a_change_counts_at_once, walks_as_it_should};

/// The user may search the directories that `inode(7)` allows.
fn every_mode_decides(check: Check) {
    let mut files = headers();
    files.push(File {
        uid: 1000,
        ..File::directory("/own")
    });
    files.push(File::regular("/own/f"));
    let volume = Production::new(check, &files);
    for mode in 0..0o1000 {
        volume.chmod("/usr", mode);
        volume.chmod("/own", mode);
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
            "{check:?} {mode:o}"
        );
    }
}

/// An ACL disables the short way, unless it refuses no user. Then a computed bit keeps it, and no
/// other short way.
fn an_acl_takes_the_short_way_away(side: Side) {
    let volume = Production::new(check_of(side), &headers());
    let paths = [PATH_BY_NAME.to_owned()];
    let acl = |text: &str| text.parse::<Acl>().expect("an ACL");
    let searches = || volume.searches(&paths);
    // The count includes the second check of the root, for `.`.
    let all = if side == Side::Baseline {
        [0, 5]
    } else {
        [5, 0]
    };
    assert_eq!(searches(), all);
    volume.set_acl("/usr", &acl("u::rwx,u:1000:r-x,g::r-x,m::r-x,o::r-x"));
    let one_full = if side == Side::Baseline {
        [0, 5]
    } else {
        [4, 1]
    };
    assert_eq!(
        searches(),
        if side == Side::Merged { one_full } else { all }
    );
    volume.set_acl("/usr", &acl("u::rwx,u:1000:r-x,g::r-x,m::r-x,o::---"));
    assert_eq!(searches(), one_full);
    assert!(volume.stat(PATH).is_ok());
    volume.set_acl("/usr", &acl("u::rwx,u:1000:---,g::r-x,m::r-x,o::r-x"));
    assert_eq!(volume.stat(PATH).map(drop), Err(Errno::EACCES));
    volume.set_acl("/usr", &acl("u::rwx,g::r-x,o::r-x"));
    assert_eq!((volume.stat(PATH).is_ok(), searches()), (true, all));
}

/// A check without a short way makes every search check in full.
fn takes_no_short_way(side: Side) {
    let volume = Production::new(full_check_of(side), &headers());
    assert_eq!(volume.searches(&[PATH_BY_NAME.to_owned()]), [0, 5]);
}

#[test]
fn every_check_gives_the_same_answers() {
    for side in Side::EVERY {
        walks_as_it_should(|files| Production::new(check_of(side), files));
        every_mode_decides(check_of(side));
        every_mode_decides(full_check_of(side));
        takes_no_short_way(side);
        an_acl_takes_the_short_way_away(side);
        let volume = Production::new(check_of(side), &headers());
        a_change_counts_at_once(&volume, |may_pass| {
            volume.chmod("/usr", if may_pass { 0o755 } else { 0o700 });
        });
    }
}

#[test]
fn every_counted_operation_can_be_repeated() {
    for operation in REPEATED {
        for side in Side::EVERY {
            let one = repeat(operation, side, 1);
            assert!(
                one > Some(0) && repeat(operation, side, 3) == one.map(|one| 3 * one),
                "{operation}"
            );
        }
    }
    assert_eq!(repeat("nothing", Side::Extern4, 1), None);
}

/// A bit answers for most directories, but not for the closed home.
#[test]
fn a_recorded_build_takes_the_short_way_but_in_the_home() {
    let shares = shares();
    assert_eq!(shares[Side::Baseline as usize], 0.0, "{shares:?}");
    for side in [Side::Patch, Side::Extern4] {
        assert!((50.0..100.0).contains(&shares[side as usize]), "{shares:?}");
    }
}
