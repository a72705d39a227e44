//! Credentials of a caller: ids, groups and capabilities.
//!
//! Every permission check of this crate takes its rights from a [`Cred`] and never from the
//! process. A `Cred` does not change: `Session::with_cred` makes a session with another. The FUSE
//! server makes one for each request; an embedding program makes one for each user that it acts
//! for.

bitflags::bitflags! {
    /// The capabilities that file systems ask for; bit numbers are Linux's (`capabilities(7)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Caps: u64 {
        /// Change owners and groups at will.
        const CHOWN = 1 << 0;
        /// Pass read, write and execute checks.
        const DAC_OVERRIDE = 1 << 1;
        /// Pass read checks on files, and read and search checks on directories.
        const DAC_READ_SEARCH = 1 << 2;
        /// Pass checks for being the owner.
        const FOWNER = 1 << 3;
        /// Keep set-id bits when a file changes, set the set-group-id bit for any group.
        const FSETID = 1 << 4;
        /// Set and clear the immutable and append-only flags.
        const LINUX_IMMUTABLE = 1 << 9;
        /// Change the root of a session.
        const SYS_CHROOT = 1 << 18;
        /// Mount, and the `trusted.*` extended attributes.
        const SYS_ADMIN = 1 << 21;
        /// Use reserved space.
        const SYS_RESOURCE = 1 << 24;
        /// Make device nodes.
        const MKNOD = 1 << 27;
        /// Set the capabilities of files.
        const SETFCAP = 1 << 31;
    }
}

/// The credentials of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cred {
    uid: u32,
    gid: u32,
    /// Sorted, so that a search is a bisection.
    groups: Box<[u32]>,
    caps: Caps,
}

impl Cred {
    /// Returns the superuser: user 0, group 0, every capability.
    pub fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Box::default(),
            caps: Caps::all(),
        }
    }

    /// Returns a user with a group and supplementary groups. User 0 gets every capability, all
    /// others none.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        let caps = if uid == 0 { Caps::all() } else { Caps::empty() };
        Self {
            uid,
            gid,
            groups: groups.into(),
            caps,
        }
    }

    /// Replaces the capabilities.
    pub fn with_caps(self, caps: Caps) -> Self {
        Self { caps, ..self }
    }

    /// Returns the user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the group id.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the supplementary groups, sorted.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Returns the capabilities.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// Returns whether the caller has every capability of `caps`.
    pub fn has(&self, caps: Caps) -> bool {
        self.caps.contains(caps)
    }

    /// Returns whether the caller is a member of the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_in_any_order_given() {
        let cred = Cred::new(1000, 100, &[30, 10, 20, 10]);
        assert_eq!(cred.groups(), [10, 20, 30]);
        assert!([100, 10, 20, 30].iter().all(|&gid| cred.in_group(gid)));
        assert!(!cred.in_group(15));
    }

    #[test]
    fn only_user_zero_starts_with_capabilities() {
        assert!(Cred::new(0, 5, &[]).has(Caps::all()));
        assert_eq!(Cred::new(1, 0, &[]).caps(), Caps::empty());
    }
}
