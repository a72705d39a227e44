//! Permission checks, by brute force against a model written from `inode(7)`, `acl(5)` and
//! `capabilities(7)`.

use extern4_vfs::setattr::SetTime;
use extern4_vfs::*;

use crate::fixture::{errno, get, put, sb, user, volume, volume_on};
use crate::restless::Restless;

const OWNER: u32 = 1;
const GROUP: u32 = 50;

/// The rules of the manual pages, in plain code.
fn model(cred: &Cred, mode: u16, acl: Option<&Acl>, is_dir: bool, want: u8) -> bool {
    let bits = |shift: u16| u8::try_from((mode >> shift) & 7).unwrap();
    let in_group = cred.gid() == GROUP || cred.groups().contains(&GROUP);
    let granted = if cred.uid() == OWNER {
        bits(6) & want == want
    } else if let Some(acl) = acl.filter(|_| mode & 0o070 != 0) {
        by_acl(cred, acl, in_group, want)
    } else if in_group {
        bits(3) & want == want
    } else {
        bits(0) & want == want
    };
    let read_search =
        cred.has(Caps::DAC_READ_SEARCH) && if is_dir { want & 2 == 0 } else { want == 4 };
    let override_ = cred.has(Caps::DAC_OVERRIDE) && (is_dir || want & 1 == 0 || mode & 0o111 != 0);
    granted || read_search || override_
}

fn by_acl(cred: &Cred, acl: &Acl, in_group: bool, want: u8) -> bool {
    let perm = |is: &dyn Fn(AclTag) -> bool| -> Vec<u8> {
        acl.entries()
            .iter()
            .filter(|entry| is(entry.tag))
            .map(|entry| entry.perm)
            .collect()
    };
    let mask = perm(&|tag| tag == AclTag::Mask)
        .first()
        .copied()
        .unwrap_or(7);
    if let Some(user) = perm(&|tag| tag == AclTag::User(cred.uid())).first() {
        return user & mask & want == want;
    }
    let groups = perm(&|tag| match tag {
        AclTag::GroupObj => in_group,
        AclTag::Group(gid) => cred.in_group(gid),
        _ => false,
    });
    if !groups.is_empty() {
        return groups.iter().any(|group| group & mask & want == want);
    }
    perm(&|tag| tag == AclTag::Other)[0] & want == want
}

fn creds() -> Vec<Cred> {
    let plain = [
        Cred::new(OWNER, 9, &[]),
        Cred::new(OWNER, GROUP, &[]),
        Cred::new(2, GROUP, &[]),
        Cred::new(2, 9, &[60, GROUP]),
        Cred::new(2, 9, &[60]),
        Cred::new(2, 60, &[]),
        Cred::new(10, 9, &[]),
        Cred::new(10, GROUP, &[60]),
        Cred::new(2, 9, &[]),
    ];
    let caps = [
        Caps::empty(),
        Caps::DAC_READ_SEARCH,
        Caps::DAC_OVERRIDE,
        Caps::FOWNER | Caps::CHOWN,
    ];
    let mut all = vec![Cred::root()];
    all.extend(
        plain
            .iter()
            .flat_map(|cred| caps.iter().map(|&caps| cred.clone().with_caps(caps))),
    );
    all
}

/// ACLs whose owner, mask and other entries `chmod` will set.
const ACLS: [Option<&str>; 4] = [
    None,
    Some("u::rwx,u:10:rw-,g::r-x,m::rwx,o::---"),
    Some("u::rwx,g::-w-,g:60:r-x,m::rwx,o::rwx"),
    Some("u::---,u:10:---,u:11:rwx,g::---,g:50:r--,g:60:-wx,m::rwx,o::r-x"),
];

#[test]
fn every_mode_acl_and_caller_gets_what_the_manual_says() {
    let root = volume();
    let careful = volume_on(Restless::with_fast_may_exec(false), SuperOptions::default());
    for root in [&root, &careful] {
        root.chmod("/tmp", 0o755, LookupFlags::FOLLOW).unwrap();
        put(root, "/tmp/f", b"");
        root.mkdir("/tmp/d", 0o755).unwrap();
        put(root, "/tmp/d/inside", b"");
        for path in ["/tmp/f", "/tmp/d"] {
            root.chown(path, Some(OWNER), Some(GROUP), LookupFlags::FOLLOW)
                .unwrap();
        }
    }
    let sessions_of = |root: &Session| -> Vec<_> {
        creds()
            .into_iter()
            .map(|cred| root.with_cred(cred))
            .collect()
    };
    let sessions = sessions_of(&root);
    let careful_sessions = sessions_of(&careful);
    for text in ACLS {
        for (path, is_dir) in [("/tmp/f", false), ("/tmp/d", true)] {
            let acl = text.map(|text| text.parse::<Acl>().unwrap());
            let set = acl.clone().unwrap_or(Acl::from_mode(0o777));
            for root in [&root, &careful] {
                root.set_acl(
                    path,
                    AclKind::Access,
                    Some(set.clone()),
                    LookupFlags::FOLLOW,
                )
                .unwrap();
            }
            for mode in 0..0o1000 {
                for root in [&root, &careful] {
                    root.chmod(path, mode, LookupFlags::FOLLOW).unwrap();
                }
                let acl = root
                    .acl(path, AclKind::Access, LookupFlags::FOLLOW)
                    .unwrap();
                assert_eq!(acl.is_some(), text.is_some());
                for session in &sessions {
                    for want in 1..8 {
                        let right = model(session.cred(), mode, acl.as_deref(), is_dir, want);
                        let got = session.access(
                            path,
                            Access::from_bits_retain(want),
                            LookupFlags::FOLLOW,
                        );
                        let want_errno = if right { Ok(()) } else { Err(Errno::EACCES) };
                        assert_eq!(
                            errno(got),
                            want_errno,
                            "{path} {mode:o} {acl:?} {:?} {want}",
                            session.cred()
                        );
                    }
                }
                if is_dir {
                    check_search(&sessions, mode, acl.as_deref());
                    check_search(&careful_sessions, mode, acl.as_deref());
                }
            }
        }
    }
    let [fast, full] = [&root, &careful].map(|root| sb(root).stats());
    assert!(fast.fast_searches > 0 && full.fast_searches == 0 && full.full_searches > 0);
}

/// The search check of a path walk agrees with `access`.
fn check_search(sessions: &[Session], mode: u16, acl: Option<&Acl>) {
    for session in sessions {
        let right = if model(session.cred(), mode, acl, true, 1) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        };
        let got = errno(session.stat("/tmp/d/inside", LookupFlags::FOLLOW));
        assert_eq!(got, right, "{mode:o} {acl:?} {:?}", session.cred());
    }
}

#[test]
fn chmod_is_for_owners_and_setgid_for_members() {
    let root = volume();
    let one = user(&root, 1);
    let two = user(&root, 2);
    put(&one, "/tmp/f", b"");
    assert_eq!(
        errno(two.chmod("/tmp/f", 0o777, LookupFlags::FOLLOW)),
        Err(Errno::EPERM)
    );
    one.chmod("/tmp/f", 0o6777, LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
        0o6777
    );
    root.chown("/tmp/f", None, Some(77), LookupFlags::FOLLOW)
        .unwrap();
    one.chmod("/tmp/f", 0o6777, LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
        0o4777
    );
    root.symlink("f", "/tmp/s").unwrap();
    assert_eq!(
        errno(root.chmod("/tmp/s", 0o777, LookupFlags::NOFOLLOW)),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn chown_is_for_the_superuser_and_chgrp_for_members() {
    let root = volume();
    let one = root.with_cred(Cred::new(1, 1, &[5]));
    put(&one, "/tmp/f", b"");
    let chown =
        |session: &Session, uid, gid| errno(session.chown("/tmp/f", uid, gid, LookupFlags::FOLLOW));
    assert_eq!(chown(&one, Some(2), None), Err(Errno::EPERM));
    assert_eq!(chown(&one, None, Some(6)), Err(Errno::EPERM));
    assert_eq!(chown(&one, Some(1), Some(5)), Ok(()));
    assert_eq!(chown(&one, None, None), Ok(()));
    assert_eq!(chown(&user(&root, 2), None, Some(2)), Err(Errno::EPERM));
    root.chmod("/tmp/f", 0o6755, LookupFlags::FOLLOW).unwrap();
    assert_eq!(
        chown(&user(&root, 2), None, None),
        Err(Errno::EPERM),
        "it would take the set-id bits off"
    );
    assert_eq!(chown(&root, Some(3), Some(4)), Ok(()));
    let attr = root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (3, 4, 0o755));
    // Without group execution the set-group-id bit is no privilege.
    root.chmod("/tmp/f", 0o2644, LookupFlags::FOLLOW).unwrap();
    assert_eq!(chown(&root, Some(1), None), Ok(()));
    assert_eq!(
        root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
        0o2644
    );
    root.chmod("/tmp", 0o2777, LookupFlags::FOLLOW).unwrap();
    root.chown("/tmp", Some(1), None, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(root.stat("/tmp", LookupFlags::FOLLOW).unwrap().mode, 0o2777);
}

#[test]
fn a_new_group_keeps_no_setgid_bit_of_a_mode_that_is_set_with_it() {
    let root = volume();
    put(&root, "/f", b"x");
    let owner = root.with_cred(Cred::new(1, 1, &[]).with_caps(Caps::CHOWN));
    for (mode, gid, after) in [
        (0o6644, 2, 0o644),
        (0o6644, 1, 0o2644),
        (0o2644, 2, 0o2644),
        (0o6754, 1, 0o754),
    ] {
        root.chown("/f", Some(1), Some(1), LookupFlags::FOLLOW)
            .unwrap();
        root.chmod("/f", mode, LookupFlags::FOLLOW).unwrap();
        owner
            .chown("/f", None, Some(gid), LookupFlags::FOLLOW)
            .unwrap();
        assert_eq!(
            root.stat("/f", LookupFlags::FOLLOW).unwrap().mode,
            after,
            "{mode:o} for {gid}"
        );
    }
}

#[test]
fn attributes_are_set_together_or_not_at_all() {
    let root = volume();
    let one = root.with_cred(Cred::new(1, 1, &[5]));
    put(&one, "/tmp/f", b"");
    let stat = || root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap();
    let set =
        |session: &Session, new| errno(session.set_attributes("/tmp/f", &new, LookupFlags::FOLLOW));
    let time = Timespec { sec: 7, nsec: 9 };
    let all = Attributes {
        mode: Some(0o6751),
        uid: Some(3),
        gid: Some(4),
        atime: Some(time),
        mtime: Some(Timespec { sec: -7, nsec: 0 }),
        ctime: Some(Timespec { sec: 5, nsec: 1 }),
    };
    // The set-id bits belong to the new owner.
    assert_eq!(set(&root, all), Ok(()));
    let found = stat();
    assert_eq!((found.uid, found.gid, found.mode & 0o7777), (3, 4, 0o6751));
    assert_eq!(
        (found.atime, found.mtime),
        (time, Timespec { sec: -7, nsec: 0 })
    );
    assert_eq!(found.ctime, Timespec { sec: 5, nsec: 1 });
    // A change of the owner alone takes them off; no change at all leaves everything.
    assert_eq!(
        set(
            &root,
            Attributes {
                uid: Some(1),
                ..Attributes::default()
            }
        ),
        Ok(())
    );
    assert_eq!((stat().uid, stat().mode & 0o7777), (1, 0o751));
    assert_eq!(set(&one, Attributes::default()), Ok(()));
    // If one of the changes is forbidden, none of them is made.
    let before = stat();
    for (session, new, error) in [
        (
            &one,
            Attributes {
                uid: Some(2),
                mode: Some(0o600),
                ..Attributes::default()
            },
            Errno::EPERM,
        ),
        (
            &one,
            Attributes {
                mode: Some(0o600),
                gid: Some(6),
                ..Attributes::default()
            },
            Errno::EPERM,
        ),
        (
            &user(&root, 2),
            Attributes {
                mode: Some(0o600),
                ..Attributes::default()
            },
            Errno::EPERM,
        ),
        (
            &user(&root, 2),
            Attributes {
                mtime: Some(time),
                ..Attributes::default()
            },
            Errno::EPERM,
        ),
        (
            &one,
            Attributes {
                ctime: Some(time),
                ..Attributes::default()
            },
            Errno::EPERM,
        ),
        (
            &root.with_cred(Cred::new(1, 1, &[]).with_caps(Caps::CHOWN)),
            Attributes {
                uid: Some(2),
                mode: Some(0o600),
                ..Attributes::default()
            },
            Errno::EPERM,
        ),
        (
            &root,
            Attributes {
                uid: Some(2),
                mtime: Some(Timespec {
                    sec: 0,
                    nsec: 1_000_000_000,
                }),
                ..all
            },
            Errno::EINVAL,
        ),
    ] {
        assert_eq!(set(session, new), Err(error), "{new:?}");
        assert_eq!(stat(), before, "{new:?}");
    }
    // Members keep the set-group-id bit for one of their groups, and lose it for another.
    let group = |gid| Attributes {
        gid: Some(gid),
        mode: Some(0o2755),
        ..Attributes::default()
    };
    assert_eq!(set(&one, group(5)), Ok(()));
    assert_eq!(stat().mode & 0o7777, 0o2755);
    root.symlink("f", "/tmp/link").unwrap();
    let link = |new| errno(root.set_attributes("/tmp/link", &new, LookupFlags::NOFOLLOW));
    assert_eq!(link(all), Err(Errno::EOPNOTSUPP));
    assert_eq!(link(Attributes { mode: None, ..all }), Ok(()));
    assert_eq!(
        root.stat("/tmp/link", LookupFlags::NOFOLLOW)
            .unwrap()
            .mtime
            .sec,
        -7
    );
}

#[test]
fn set_id_bits_are_taken_off_as_by_a_write() {
    let root = volume();
    put(&root, "/tmp/f", b"");
    for (mode, after) in [(0o6777, 0o777), (0o2666, 0o666), (0o755, 0o755)] {
        root.chmod("/tmp/f", mode, LookupFlags::FOLLOW).unwrap();
        root.drop_set_id_bits("/tmp/f", LookupFlags::FOLLOW)
            .unwrap();
        assert_eq!(
            root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
            mode,
            "the superuser may keep them"
        );
        user(&root, 9)
            .drop_set_id_bits("/tmp/f", LookupFlags::FOLLOW)
            .unwrap();
        assert_eq!(
            root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
            after,
            "{mode:o}"
        );
    }
}

#[test]
fn writing_takes_set_id_bits_off() {
    let root = volume();
    put(&root, "/tmp/f", b"x");
    let user = user(&root, 9);
    let member = root.with_cred(Cred::new(8, 8, &[0]));
    for (mode, after, by_member) in [
        (0o6777, 0o777, 0o777),
        (0o2666, 0o666, 0o2666),
        (0o4666, 0o666, 0o666),
    ] {
        root.chmod("/tmp/f", mode, LookupFlags::FOLLOW).unwrap();
        member
            .open("/tmp/f", OpenFlags::WRITE)
            .unwrap()
            .write_at(b"y", 0)
            .unwrap();
        assert_eq!(
            root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
            by_member
        );
        root.chmod("/tmp/f", mode, LookupFlags::FOLLOW).unwrap();
        root.open("/tmp/f", OpenFlags::WRITE)
            .unwrap()
            .write_at(b"y", 0)
            .unwrap();
        assert_eq!(root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode, mode);
        user.open("/tmp/f", OpenFlags::WRITE)
            .unwrap()
            .write_at(b"y", 0)
            .unwrap();
        assert_eq!(
            root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
            after
        );
        root.chmod("/tmp/f", mode, LookupFlags::FOLLOW).unwrap();
        user.truncate("/tmp/f", 0, LookupFlags::FOLLOW).unwrap();
        assert_eq!(
            root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().mode,
            after
        );
    }
}

/// A name, and how the caller changes a file.
type Way<'a> = (&'a str, &'a dyn Fn(&Session));

#[test]
fn changes_remove_capabilities_for_every_caller() {
    let root = volume();
    put(&root, "/tmp/f", b"x");
    root.chmod("/tmp/f", 0o777, LookupFlags::FOLLOW).unwrap();
    let open = |session: &Session, flags| session.open("/tmp/f", OpenFlags::WRITE | flags).unwrap();
    let new = Attributes {
        uid: Some(0),
        ..Attributes::default()
    };
    let ways: [Way<'_>; 9] = [
        ("write", &|session| {
            assert_eq!(
                open(session, OpenFlags::empty()).write_at(b"y", 0).unwrap(),
                1
            )
        }),
        ("ftruncate", &|session| {
            open(session, OpenFlags::empty()).set_len(9).unwrap()
        }),
        ("fallocate", &|session| {
            open(session, OpenFlags::empty())
                .fallocate(FallocateMode::empty(), 0, 10)
                .unwrap();
        }),
        ("truncate", &|session| {
            session.truncate("/tmp/f", 0, LookupFlags::FOLLOW).unwrap()
        }),
        ("O_TRUNC", &|session| drop(open(session, OpenFlags::TRUNC))),
        ("as by a write", &|session| {
            session
                .drop_set_id_bits("/tmp/f", LookupFlags::FOLLOW)
                .unwrap()
        }),
        ("chown of nothing", &|_| {
            root.chown("/tmp/f", None, None, LookupFlags::FOLLOW)
                .unwrap()
        }),
        ("chown", &|_| {
            root.chown("/tmp/f", Some(0), Some(0), LookupFlags::FOLLOW)
                .unwrap()
        }),
        ("attributes", &|_| {
            root.set_attributes("/tmp/f", &new, LookupFlags::FOLLOW)
                .unwrap()
        }),
    ];
    for (way, change) in ways {
        for session in [&user(&root, 9), &root] {
            give_capabilities(&root, "/tmp/f");
            change(session);
            assert!(
                !has_capabilities(&root, "/tmp/f"),
                "{way} by {}",
                session.cred().uid()
            );
        }
    }
}

#[test]
fn capabilities_stay_where_the_contents_do() {
    let root = volume();
    put(&root, "/tmp/f", b"x");
    let file = root.open("/tmp/f", OpenFlags::WRITE).unwrap();
    give_capabilities(&root, "/tmp/f");
    root.chmod("/tmp/f", 0o755, LookupFlags::FOLLOW).unwrap();
    root.utimens("/tmp/f", SetTime::Now, SetTime::Now, LookupFlags::FOLLOW)
        .unwrap();
    root.set_attributes(
        "/tmp/f",
        &Attributes {
            mode: Some(0o711),
            ..Attributes::default()
        },
        LookupFlags::FOLLOW,
    )
    .unwrap();
    // Contents that were written before the capabilities were set.
    file.write_back(b"y", 0).unwrap();
    let refused = user(&root, 9).chown("/tmp/f", Some(9), None, LookupFlags::FOLLOW);
    assert_eq!(errno(refused), Err(Errno::EPERM));
    assert!(has_capabilities(&root, "/tmp/f"));
    // Found again also by who has forgotten the file.
    drop(file);
    sb(&root).drop_caches();
    put(&root, "/tmp/f", b"z");
    assert!(!has_capabilities(&root, "/tmp/f"));
}

fn give_capabilities(root: &Session, path: &str) {
    // Those to bind to low ports, permitted and effective.
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    root.set_xattr(
        path,
        "security.capability",
        &value,
        XattrFlags::empty(),
        LookupFlags::FOLLOW,
    )
    .unwrap();
}

fn has_capabilities(root: &Session, path: &str) -> bool {
    let value = root.get_xattr(path, "security.capability", LookupFlags::FOLLOW);
    match value.map_err(|error| error.errno()) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, Errno::ENODATA);
            false
        }
    }
}

#[test]
fn times_to_now_are_for_writers_and_others_for_owners() {
    let root = volume();
    put(&root, "/tmp/f", b"");
    root.chmod("/tmp/f", 0o666, LookupFlags::FOLLOW).unwrap();
    let user = user(&root, 9);
    let now = SetTime::Now;
    let omit = SetTime::Omit;
    let then = SetTime::At(Timespec { sec: -5, nsec: 1 });
    let utimens = |a, m| errno(user.utimens("/tmp/f", a, m, LookupFlags::FOLLOW));
    assert_eq!(utimens(now, now), Ok(()));
    assert_eq!(utimens(now, omit), Err(Errno::EPERM));
    assert_eq!(utimens(then, then), Err(Errno::EPERM));
    assert_eq!(utimens(omit, omit), Ok(()));
    root.chmod("/tmp/f", 0o644, LookupFlags::FOLLOW).unwrap();
    assert_eq!(utimens(now, now), Err(Errno::EACCES));
    root.utimens("/tmp/f", then, omit, LookupFlags::FOLLOW)
        .unwrap();
    assert_eq!(
        root.stat("/tmp/f", LookupFlags::FOLLOW).unwrap().atime,
        Timespec { sec: -5, nsec: 1 }
    );
    let bad = SetTime::At(Timespec {
        sec: 0,
        nsec: 1_000_000_000,
    });
    assert_eq!(
        errno(root.utimens("/tmp/f", bad, omit, LookupFlags::FOLLOW)),
        Err(Errno::EINVAL)
    );
}

/// No user reads files, and user 7 finds nothing.
struct NobodyReads;

impl SecurityHook for NobodyReads {
    fn permission(&self, cred: &Cred, inode: &Inode, want: Access) -> Result<()> {
        let reads = inode.kind() == FileType::Regular && want.contains(Access::READ);
        let searches = inode.is_dir() && want.contains(Access::EXEC) && cred.uid() == 7;
        let forbidden = reads || searches;
        if forbidden {
            Err(Errno::EACCES.into())
        } else {
            Ok(())
        }
    }
}

#[test]
fn a_security_hook_has_the_last_word() {
    let options = SuperOptions {
        security: Some(std::sync::Arc::new(NobodyReads)),
        ..Default::default()
    };
    let root = crate::fixture::volume_with(MemLimits::default(), options);
    put(&root, "/f", b"");
    assert_eq!(errno(root.open("/f", OpenFlags::READ)), Err(Errno::EACCES));
    assert!(root.open("/f", OpenFlags::WRITE).is_ok());
    assert!(root.stat("/f", LookupFlags::FOLLOW).is_ok() && sb(&root).stats().fast_searches > 0);
    let stopped = root
        .with_cred(Cred::new(7, 7, &[]))
        .stat("/f", LookupFlags::FOLLOW);
    assert_eq!(
        errno(stopped),
        Err(Errno::EACCES),
        "the hook is asked for fast searches, too"
    );
}

#[test]
fn an_acl_that_lets_all_search_is_not_read() {
    let root = volume();
    root.mkdir("/tmp/d", 0o755).unwrap();
    put(&root, "/tmp/d/f", b"");
    let user = user(&root, 9);
    // How many of the search checks were answered in full, where none refuses.
    let full = || {
        let stat = || user.stat("/tmp/d/f", LookupFlags::FOLLOW).map(drop);
        let _ = errno(stat());
        let before = sb(&root).stats().full_searches;
        (errno(stat()), sb(&root).stats().full_searches - before)
    };
    for (text, answer, asked) in [
        ("u::rwx,u:9:--x,g::r-x,g:5:rwx,m::rwx,o::r-x", Ok(()), 0),
        ("u::rwx,u:9:--x,g::r-x,g:5:rw-,m::rwx,o::r-x", Ok(()), 1),
        ("u::rwx,u:8:rw-,g::r-x,m::rwx,o::r-x", Ok(()), 1),
        ("u::rwx,u:9:rw-,g::r-x,m::rwx,o::r-x", Err(Errno::EACCES), 0),
        ("u::rwx,u:9:rwx,g::r--,m::rwx,o::r-x", Ok(()), 1),
        ("u::rwx,u:9:rwx,g::r-x,m::r-x,o::--x", Ok(()), 0),
    ] {
        root.set_acl(
            "/tmp/d",
            AclKind::Access,
            Some(text.parse().unwrap()),
            LookupFlags::FOLLOW,
        )
        .unwrap();
        assert_eq!(full(), (answer, asked), "{text}");
    }
    for (mode, answer, asked) in [
        (0o750, Ok(()), 1),
        (0o741, Err(Errno::EACCES), 0),
        (0o711, Ok(()), 0),
    ] {
        root.chmod("/tmp/d", mode, LookupFlags::FOLLOW).unwrap();
        assert_eq!(full(), (answer, asked), "{mode:o}");
    }
}

/// A way through directories that share an ACL, which gives other rights to the caller where the
/// directory's group is another, or he owns it.
#[test]
fn one_acl_lets_a_caller_into_some_directories_and_not_into_others() {
    let (one, other): (Acl, Acl) = (
        "u::rwx,u:8:r-x,g::r-x,m::r-x,o::---".parse().unwrap(),
        "u::---,u:8:r-x,g::---,g:6:r-x,m::r-x,o::---"
            .parse()
            .unwrap(),
    );
    let root = volume();
    let groups = |groups: &[u32]| root.with_cred(Cred::new(9, groups[0], groups));
    let dirs = ["/tmp/a", "/tmp/a/b", "/tmp/a/b/c", "/tmp/a/b/c/d"];
    dirs.iter()
        .for_each(|dir| drop(root.mkdir(dir, 0o700).unwrap()));
    put(&root, "/tmp/a/b/c/d/f", b"");
    // Often enough for the walk that takes no lock.
    let way = |caller: &Session| {
        let [first, _, last] =
            [(); 3].map(|()| errno(caller.stat("/tmp/a/b/c/d/f", LookupFlags::FOLLOW).map(drop)));
        assert_eq!(first, last);
        last
    };
    let set = |dir: usize, acl: &Acl, uid: u32, gid: u32| {
        root.set_acl(
            dirs[dir],
            AclKind::Access,
            Some(acl.clone()),
            LookupFlags::FOLLOW,
        )
        .unwrap();
        root.chown(dirs[dir], Some(uid), Some(gid), LookupFlags::FOLLOW)
            .unwrap();
    };
    (0..4).for_each(|dir| set(dir, &one, 1, 5));
    assert_eq!(way(&groups(&[5])), Ok(()));
    assert_eq!(way(&groups(&[6])), Err(Errno::EACCES));
    let full = sb(&root).stats().full_searches;
    assert_eq!(way(&groups(&[5])), Ok(()));
    assert!(
        sb(&root).stats().full_searches >= full + 12,
        "the ACLs are asked"
    );
    // The third is of another group.
    set(2, &one, 1, 6);
    assert_eq!(way(&groups(&[5])), Err(Errno::EACCES));
    assert_eq!(way(&groups(&[5, 6])), Ok(()));
    // Or has another ACL.
    set(2, &other, 1, 5);
    assert_eq!(way(&groups(&[5])), Err(Errno::EACCES));
    assert_eq!(way(&groups(&[5, 6])), Ok(()));
    // Or the caller owns it, whom the ACL does not let in.
    set(2, &other, 9, 5);
    assert_eq!(way(&groups(&[5, 6])), Err(Errno::EACCES));
    set(2, &one, 9, 6);
    assert_eq!(way(&groups(&[5])), Ok(()));
}

#[test]
fn reading_needs_only_what_it_uses() {
    let root = volume();
    let user = user(&root, 9);
    user.mkdir("/tmp/x", 0o311).unwrap();
    put(&user, "/tmp/x/f", b"reach");
    assert_eq!(get(&user, "/tmp/x/f"), b"reach");
    assert_eq!(
        errno(user.open("/tmp/x", OpenFlags::READ)),
        Err(Errno::EACCES)
    );
    user.chmod("/tmp/x", 0o400, LookupFlags::FOLLOW).unwrap();
    let dir = user.open("/tmp/x", OpenFlags::READ).unwrap();
    let mut batch = DirBatch::new();
    dir.read_dir(0, 10, &mut batch).unwrap();
    assert_eq!(batch.len(), 3);
    assert_eq!(
        errno(dir.read_dir_plus(0, 10, &mut batch)),
        Err(Errno::EACCES)
    );
}
