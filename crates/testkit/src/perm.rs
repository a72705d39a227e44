//! Permissions of callers on objects, as the kernel decides them.
//!
//! [`populate`] makes an object of each of the 512 modes, times a row of access lists, times files,
//! directories and pipes. [`ask`] takes on the credentials of a caller in a new thread
//! (Linux keeps credentials by thread). It has the kernel answer `faccessat2` with `AT_EACCESS` for
//! every combination of read, write and execute. On a read-only mount, the kernel refuses to write
//! files and directories before it looks at permissions. It does not do so for pipes, so they are
//! included.
//!
//! The tests of `ext4` compare each answer with that of extern4's own check.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, XattrFlags, accessat, lsetxattr, mknodat};
use rustix::thread::{CapabilitySet, CapabilitySets};
use rustix::thread::{
    set_capabilities, set_keep_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::acl::{Ace, encode};
use crate::plan;

const OWNER: u32 = 1000;
const GROUP: u32 = 2000;
const NAMED_USER: u32 = 1001;
const NAMED_GROUP: u32 = 2001;

/// The access lists. The mode's group bits become the mask where there is one.
const LISTS: [(&str, &[Ace]); 8] = [
    ("none", &[]),
    (
        "user",
        &[
            Ace::Owner(7),
            Ace::User(NAMED_USER, 7),
            Ace::OwningGroup(7),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
    (
        "user-denied",
        &[
            Ace::Owner(7),
            Ace::User(NAMED_USER, 0),
            Ace::OwningGroup(7),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
    (
        "user-read",
        &[
            Ace::Owner(7),
            Ace::User(NAMED_USER, 4),
            Ace::OwningGroup(1),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
    (
        "group",
        &[
            Ace::Owner(7),
            Ace::OwningGroup(2),
            Ace::Group(NAMED_GROUP, 5),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
    (
        "group-denied",
        &[
            Ace::Owner(7),
            Ace::OwningGroup(7),
            Ace::Group(NAMED_GROUP, 0),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
    (
        "two-groups",
        &[
            Ace::Owner(7),
            Ace::OwningGroup(4),
            Ace::Group(NAMED_GROUP, 2),
            Ace::Group(2002, 1),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
    (
        "owner-named",
        &[
            Ace::Owner(7),
            Ace::User(OWNER, 0),
            Ace::User(0, 1),
            Ace::OwningGroup(6),
            Ace::Group(GROUP, 1),
            Ace::Mask(7),
            Ace::Other(7),
        ],
    ),
];

/// A user whose permissions are checked.
#[derive(Clone, Debug)]
pub struct Caller {
    /// A name for messages.
    pub name: String,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Effective capabilities, as the bits of capabilities(7).
    pub caps: u64,
    /// A stranger whose only capability has no effect on permissions: a sample of the objects is
    /// enough.
    pub sample: bool,
}

fn caller(name: &str, uid: u32, gid: u32, groups: &[u32], caps: u64) -> Caller {
    Caller {
        name: name.to_owned(),
        uid,
        gid,
        groups: groups.to_vec(),
        caps,
        sample: false,
    }
}

/// Returns a caller for each rule: owner, groups, named ones, others, and the superuser with and
/// without capabilities. Adds a stranger with each capability that this process can lend.
pub fn callers() -> Vec<Caller> {
    let lendable = rustix::thread::capabilities(None).map_or(0, |sets| sets.permitted.bits());
    let mut callers = vec![
        caller("owner", OWNER, 1, &[], 0),
        caller("owner in the group", OWNER, GROUP, &[], 0),
        caller("owner in a named group", OWNER, NAMED_GROUP, &[], 0),
        caller("group", 5, GROUP, &[], 0),
        caller("supplementary group", 5, 6, &[1, GROUP, 9], 0),
        caller("named user", NAMED_USER, 6, &[], 0),
        caller("named user in the group", NAMED_USER, GROUP, &[], 0),
        caller("named group", 5, NAMED_GROUP, &[], 0),
        caller("supplementary named group", 5, 6, &[NAMED_GROUP], 0),
        caller("group and named group", 5, GROUP, &[NAMED_GROUP], 0),
        caller("two named groups", 5, 2002, &[NAMED_GROUP], 0),
        caller("other", 5, 6, &[], 0),
        caller("root", 0, 0, &[], lendable),
        caller("root without capabilities", 0, 0, &[], 0),
    ];
    let dac = CapabilitySet::DAC_OVERRIDE.bits();
    let search = CapabilitySet::DAC_READ_SEARCH.bits();
    let says = dac | search | CapabilitySet::FOWNER.bits();
    for cap in (0..64)
        .map(|bit| 1 << bit)
        .filter(|cap| lendable & cap != 0)
    {
        let stranger = caller(
            &format!("other with capability {}", cap.trailing_zeros()),
            5,
            6,
            &[],
            cap,
        );
        callers.push(Caller {
            sample: says & cap == 0,
            ..stranger
        });
    }
    callers.push(caller(
        "other with both overrides",
        5,
        6,
        &[],
        (dac | search) & lendable,
    ));
    callers.push(caller(
        "owner with read-search",
        OWNER,
        1,
        &[],
        search & lendable,
    ));
    callers
}

/// Something whose permissions are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Path from the top of the volume.
    pub path: Vec<u8>,
}

/// Makes the objects below `/permissions`: 512 modes x access lists x files, directories and pipes.
/// Adds a file inside each directory, to be reached through it.
pub fn populate(root: &Path) -> io::Result<()> {
    let top = root.join("permissions");
    std::fs::create_dir(&top)?;
    for (list_name, list) in LISTS {
        for kind in ["file", "dir", "pipe"] {
            let dir = top.join(format!("{list_name}-{kind}"));
            std::fs::create_dir(&dir)?;
            for mode in 0..512 {
                object(&dir.join(format!("{mode:03o}")), kind, list, mode)?;
            }
        }
    }
    Ok(())
}

fn object(path: &Path, kind: &str, list: &[Ace], mode: u32) -> io::Result<()> {
    let special = |kind| mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), 0);
    match kind {
        "file" => special(FileType::RegularFile)?,
        "pipe" => special(FileType::Fifo)?,
        _ => {
            std::fs::create_dir(path)?;
            let inside = path.join("inside");
            mknodat(
                CWD,
                &inside,
                FileType::RegularFile,
                Mode::from_raw_mode(0o600),
                0,
            )?;
            std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o666))?;
        }
    }
    if !list.is_empty() {
        lsetxattr(
            path,
            "system.posix_acl_access",
            &encode(list),
            XattrFlags::empty(),
        )?;
    }
    chown(path, Some(OWNER), Some(GROUP))?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))
}

/// The plan of [`populate`] and of objects with flags that permissions cannot override.
pub const PLANS: &[crate::image::Plan] = &[populate, plan::inode_flags];

/// Returns all objects below the top of a volume, sorted by path.
pub fn objects(tree: &crate::tree::Tree) -> Vec<Object> {
    tree.entries
        .keys()
        .map(|path| Object { path: path.clone() })
        .collect()
}

/// Returns the kernel's answers to `caller` for each object of the volume mounted at `root`. For
/// each mask of read (4), write (2) and execute (1) there is the error number, or 0 if the access
/// is allowed.
///
/// # Panics
/// When this process cannot take on the caller's credentials.
pub fn ask(root: &Path, caller: &Caller, objects: &[Object]) -> Vec<[i32; 8]> {
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            become_caller(caller).unwrap_or_else(|e| panic!("cannot become {caller:?}: {e}"));
            objects.iter().map(|object| answer(root, object)).collect()
        });
        asking.join()
    });
    answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Takes on the caller's credentials for the rest of this thread.
fn become_caller(caller: &Caller) -> io::Result<()> {
    use rustix::fs::{Gid, Uid};
    let groups: Vec<Gid> = caller
        .groups
        .iter()
        .map(|gid| Gid::from_raw(*gid))
        .collect();
    let uid = Uid::from_raw(caller.uid);
    let gid = Gid::from_raw(caller.gid);
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;
    let caps = CapabilitySet::from_bits_retain(caller.caps);
    let sets = CapabilitySets {
        effective: caps,
        permitted: caps,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

fn answer(root: &Path, object: &Object) -> [i32; 8] {
    let mut real = root.as_os_str().as_bytes().to_vec();
    real.extend(&object.path);
    let real = OsString::from_vec(real);
    std::array::from_fn(|mask| {
        let wanted = Access::from_bits_retain(mask as u32);
        accessat(CWD, &real, wanted, AtFlags::EACCESS).map_or_else(|e| e.raw_os_error(), |()| 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageSpec;

    #[test]
    fn the_kernel_answers_by_caller() {
        let spec = ImageSpec::new(
            "permissions",
            32 << 20,
            &["-t", "ext4", "-b", "1024", "-N", "20000"],
        )
        .mounted(&[populate]);
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let mount = image.mount("noatime");
        let of = |path: &str| [Object { path: path.into() }];
        let file = of("/permissions/none-file/640");
        let by_name = |name: &str| {
            callers()
                .into_iter()
                .find(|caller| caller.name == name)
                .expect("a caller")
        };
        let may = |name: &str, object: &[Object]| {
            ask(&mount.path, &by_name(name), object)[0].map(|errno| errno == 0)
        };
        assert_eq!(
            may("owner", &file),
            [true, false, true, false, true, false, true, false]
        );
        assert_eq!(
            may("supplementary group", &file),
            [true, false, false, false, true, false, false, false]
        );
        assert_eq!(
            may("other", &file),
            [true, false, false, false, false, false, false, false]
        );
        assert_eq!(
            may("root", &file),
            [true, false, true, false, true, false, true, false]
        );
        assert_eq!(may("root without capabilities", &file), may("other", &file));
        let through = of("/permissions/none-dir/770/inside");
        assert_eq!(may("other", &through), [false; 8]);
    }
}
