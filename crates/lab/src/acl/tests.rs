//! Tests that all sides of the chapter on ACLs have to pass: they give the same answers.

use extern4_vfs::{Acl, Errno};

use super::*;
use crate::volume::PATH_BY_NAME;
use crate::volume::tests::{a_change_counts_at_once, walks_as_it_should};

fn acl(text: &str) -> Acl {
    text.parse().unwrap()
}

/// ACLs, whether they let the user search, and whether they let the user read.
const ACLS: [(&str, bool, bool); 7] = [
    (NAMED, true, true),
    ("u::rwx,g::r-x,o::r-x", true, true),
    ("u::rwx,g::r-x,o::---", false, false),
    ("u::rwx,u:1000:---,g::r-x,m::r-x,o::r-x", false, false),
    ("u::rwx,u:1000:rwx,g::r-x,m::r--,o::---", false, true),
    ("u::rwx,u:7:rwx,g::---,m::rwx,o::--x", true, false),
    ("u::rwx,g::---,g:1000:r-x,m::r-x,o::---", true, true),
];

fn an_acl_decides(side: Side) {
    let volume = volume(side, false);
    for (text, searches, reads) in ACLS {
        let answer = |may| if may { Ok(()) } else { Err(Errno::EACCES) };
        volume.set_acl("/usr/include", &acl(text));
        for path in [PATH, PATH_BY_NAME] {
            assert_eq!(volume.stat(path).map(drop), answer(searches), "{text}");
            assert_eq!(volume.open_and_close(path), answer(searches), "{text}");
        }
        volume.set_acl("/usr/include", &acl(NAMED));
        volume.set_acl(PATH, &acl(text));
        assert_eq!(volume.open_and_close(PATH), answer(reads), "{text}");
        assert_eq!(
            u32::from(volume.stat(PATH).unwrap().mode),
            acl(text).equiv_mode().0,
            "{text}"
        );
        volume.set_acl(PATH, &acl(NAMED));
    }
}

/// The group bits are the mask of an ACL.
fn a_mode_cuts_an_acl(side: Side) {
    let volume = volume(side, true);
    for (mode, passes) in [
        (0o755, true),
        (0o705, true),
        (0o700, false),
        (0o740, false),
        (0o710, true),
    ] {
        volume.chmod("/usr/include", mode);
        // Without group bits, Linux does not ask the ACL, and the bits of others decide.
        assert_eq!(volume.stat(PATH).is_ok(), passes, "{mode:o}");
    }
}

fn the_first_question_gets_the_right_answer(side: Side) {
    let production = volume(side, false);
    for (text, _, reads) in ACLS {
        production.set_acl(PATH, &acl(text));
        let ino = production.stat(PATH).unwrap().ino;
        assert_eq!(
            first::may_read(&production, &first::read(&production, ino)),
            reads,
            "{text}"
        );
    }
}

#[test]
fn every_check_gives_the_same_answers() {
    for side in Side::ALL {
        walks_as_it_should(|files| Production::new(check_of(side), files));
        an_acl_decides(side);
        a_mode_cuts_an_acl(side);
        the_first_question_gets_the_right_answer(side);
        let volume = volume(side, false);
        let set =
            |may_pass| volume.set_acl("/usr", &acl(if may_pass { ACLS[1].0 } else { ACLS[3].0 }));
        a_change_counts_at_once(&volume, set);
    }
}
