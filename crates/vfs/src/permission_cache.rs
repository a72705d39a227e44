//! The permission cache: all that a directory search check needs, in one load.
//!
//! `Inode` has one. Walks and permission checks load it; changes of mode, flags and ACLs publish a
//! new value under the attributes' lock.
//!
//! ```text
//! bit  0..16   mode, type bits included
//! bit 16..18   state of the access ACL: none, unknown, present
//! bit 18       EXEC_ALL: a directory that every user may search
//! bit 19..23   immutable, append-only, casefold, dead
//! bit 23       known to have no default ACL
//! bit 24       EXEC_ALL_PLAIN: EXEC_ALL, and not casefold
//! bit 25..28   the rights that the access ACL grants to every user: all without an ACL, none
//!              while it is unknown
//! bit 28       a file that may have several names
//! bit 29       encrypted
//! bit 32..64   generation, one more with every change
//! ```
//!
//! Every user has the rights that owner, group and others have by the mode and that each entry of
//! the access ACL has. So an ACL that gives some users more than the rest, as most do, does not
//! slow down path walks.
//!
//! EXEC_ALL and EXEC_ALL_PLAIN always agree with the fields that they are computed from.
//! [`PermissionCache::publish_if`] is the one function that changes the word, and it computes both
//! each time. A reader that starts after a change has returned sees the change; a concurrent reader
//! gets the old answer or the new one.

use extern4_acl::{Acl, AclKind};
use extern4_sync::primitive::{AtomicU64, Ordering};

use crate::attr::{FileFlags, FileType};
use crate::inode_attrs::Writer;

/// The state of an inode's access ACL, as far as it is known without reading the ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclState {
    None,
    Unknown,
    /// There is one, which grants these rights to every user.
    Present(u8),
}

impl AclState {
    /// Returns the state of an inode with this ACL.
    pub(crate) fn of(acl: Option<&Acl>) -> Self {
        acl.map_or(Self::None, |acl| Self::Present(acl.granted_by_all()))
    }

    /// Returns its bits in the word.
    fn bits(self) -> u64 {
        let (state, granted) = match self {
            Self::None => (0, 7),
            Self::Unknown => (1, 0),
            Self::Present(granted) => (2, granted),
        };
        state << ACL_SHIFT | u64::from(granted) << GRANTED_SHIFT
    }
}

/// The bits of a mode that say the type.
const TYPE_BITS: u16 = 0o170_000;
const ACL_SHIFT: u32 = 16;
const GRANTED_SHIFT: u32 = 25;
const GRANTED_MASK: u64 = 7 << GRANTED_SHIFT;
const ACL_MASK: u64 = 3 << ACL_SHIFT | GRANTED_MASK;
const EXEC_ALL: u64 = 1 << 18;
const IMMUTABLE: u64 = 1 << 19;
const APPEND: u64 = 1 << 20;
const CASEFOLD: u64 = 1 << 21;
const DEAD: u64 = 1 << 22;
const NO_DEFAULT_ACL: u64 = 1 << 23;
const EXEC_ALL_PLAIN: u64 = 1 << 24;
const SEVERAL_NAMES: u64 = 1 << 28;
const ENCRYPTED: u64 = 1 << 29;
const GENERATION_ONE: u64 = 1 << 32;

/// A value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PermBits(u64);

impl PermBits {
    pub(crate) fn new(mode: u16, flags: FileFlags, acl: AclState) -> Self {
        Self(0).with_mode(mode).with_flags(flags).with_acl(acl)
    }

    /// Returns the mode with its type bits.
    #[inline]
    pub(crate) fn mode(self) -> u16 {
        // OK: the lower 16 bits.
        self.0 as u16
    }

    /// Returns the type of the file.
    #[inline]
    pub(crate) fn kind(self) -> FileType {
        // A word is made of a type and never loses it.
        FileType::from_mode(self.mode()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn is_dir(self) -> bool {
        self.0 & u64::from(TYPE_BITS) == u64::from(FileType::Directory.mode_bits())
    }

    pub(crate) fn acl(self) -> AclState {
        match self.0 >> ACL_SHIFT & 3 {
            0 => AclState::None,
            1 => AclState::Unknown,
            // OK: three bits.
            _ => AclState::Present((self.0 >> GRANTED_SHIFT & 7) as u8),
        }
    }

    /// Returns whether every user may search this directory.
    #[inline]
    pub(crate) fn exec_all(self) -> bool {
        self.0 & EXEC_ALL != 0
    }

    /// Returns whether every user may search this directory, and names in it are compared byte by
    /// byte.
    #[inline]
    pub(crate) fn exec_all_plain(self) -> bool {
        self.0 & EXEC_ALL_PLAIN != 0
    }

    /// Returns whether every user has these rights, `rwx` as in a mode; false also where that is
    /// not known.
    #[inline]
    pub(crate) fn grants_all_classes(self, rights: u8) -> bool {
        let rights = u64::from(rights);
        let all = (0o111 * rights) | (rights << GRANTED_SHIFT);
        self.0 & all == all
    }

    pub(crate) fn immutable(self) -> bool {
        self.0 & IMMUTABLE != 0
    }

    pub(crate) fn append(self) -> bool {
        self.0 & APPEND != 0
    }

    /// Returns whether contents, names or target are encrypted.
    pub(crate) fn encrypted(self) -> bool {
        self.0 & ENCRYPTED != 0
    }

    /// Returns whether names in this directory are compared without regard to case.
    pub(crate) fn casefold(self) -> bool {
        self.0 & CASEFOLD != 0
    }

    /// Returns whether this is a directory that has been removed.
    pub(crate) fn dead(self) -> bool {
        self.0 & DEAD != 0
    }

    /// Returns whether the file has, or has had, several names. It is a hint, which is set before
    /// the second name can be found.
    pub(crate) fn several_names(self) -> bool {
        self.0 & SEVERAL_NAMES != 0
    }

    pub(crate) fn with_mode(self, mode: u16) -> Self {
        Self(self.0 & !0xffff | u64::from(mode))
    }

    pub(crate) fn with_acl(self, acl: AclState) -> Self {
        Self(self.0 & !ACL_MASK | acl.bits())
    }

    pub(crate) fn with_flags(self, flags: FileFlags) -> Self {
        let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
        let bits = bit(FileFlags::IMMUTABLE, IMMUTABLE)
            | bit(FileFlags::APPEND, APPEND)
            | bit(FileFlags::CASEFOLD, CASEFOLD)
            | bit(FileFlags::ENCRYPT, ENCRYPTED);
        Self(self.0 & !(IMMUTABLE | APPEND | CASEFOLD | ENCRYPTED) | bits)
    }

    /// Returns whether the inode is known to have no default ACL.
    fn no_default_acl(self) -> bool {
        self.0 & NO_DEFAULT_ACL != 0
    }

    /// Returns whether the inode is known to have no ACL of this kind.
    #[inline]
    pub(crate) fn has_no_acl(self, kind: AclKind) -> bool {
        match kind {
            AclKind::Access => self.acl() == AclState::None,
            AclKind::Default => self.no_default_acl(),
        }
    }

    pub(crate) fn with_no_default_acl(self, none: bool) -> Self {
        Self(self.0 & !NO_DEFAULT_ACL | if none { NO_DEFAULT_ACL } else { 0 })
    }

    pub(crate) fn with_several_names(self, several: bool) -> Self {
        Self(self.0 & !SEVERAL_NAMES | if several { SEVERAL_NAMES } else { 0 })
    }

    pub(crate) fn with_dead(self) -> Self {
        Self(self.0 | DEAD)
    }

    /// Sets EXEC_ALL and EXEC_ALL_PLAIN according to the other fields.
    fn with_exec_all(self) -> Self {
        let all = self.is_dir() && self.grants_all_classes(1);
        let bits = match (all, self.casefold()) {
            (false, _) => 0,
            (true, false) => EXEC_ALL | EXEC_ALL_PLAIN,
            (true, true) => EXEC_ALL,
        };
        Self(self.0 & !(EXEC_ALL | EXEC_ALL_PLAIN) | bits)
    }
}

/// The word itself.
///
/// | field | written by | read by | orderings |
/// |---|---|---|---|
/// | the word | `publish_if`, under the attributes' lock | `load` | Release store, Acquire load |
pub(crate) struct PermissionCache(AtomicU64);

impl PermissionCache {
    pub(crate) fn new(bits: PermBits) -> Self {
        Self(AtomicU64::new(bits.with_exec_all().0))
    }

    #[inline]
    pub(crate) fn load(&self) -> PermBits {
        // Acquire: pairs with the Release in `publish_if`: a reader of the new word sees its ACL.
        PermBits(self.0.load(Ordering::Acquire))
    }

    /// Stores the word that `change` makes of the present one, with EXEC_ALL and the generation
    /// recomputed. If `change` returns `None`, nothing changes. `writer` is the right to change the
    /// attributes of the word's inode.
    #[inline]
    pub(crate) fn publish_if(
        &self,
        writer: &Writer<'_>,
        change: impl FnOnce(PermBits) -> Option<PermBits>,
    ) {
        let _ = writer;
        // Relaxed: the last holder of the right stored it.
        let old = self.0.load(Ordering::Relaxed);
        if let Some(new) = change(PermBits(old)) {
            // Release: pairs with the Acquire in `load`.
            self.0.store(
                new.with_exec_all().0.wrapping_add(GENERATION_ONE),
                Ordering::Release,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Attr;
    use crate::inode::{Inode, NewInode};
    use crate::inode_attrs::InodeAttrs;

    const DIR: u16 = 0o040_000;
    const FILE: u16 = 0o100_000;

    #[test]
    fn exec_all_is_exactly_its_definition() {
        for acl in [
            AclState::None,
            AclState::Unknown,
            AclState::Present(6),
            AclState::Present(1),
        ] {
            for mode in 0..0o10000 {
                for (kind, flags) in [
                    (DIR, FileFlags::empty()),
                    (DIR, FileFlags::CASEFOLD),
                    (FILE, FileFlags::empty()),
                ] {
                    let bits = PermissionCache::new(PermBits::new(kind | mode, flags, acl)).load();
                    let granted = matches!(acl, AclState::None | AclState::Present(1));
                    let want = kind == DIR && mode & 0o111 == 0o111 && granted;
                    assert_eq!(bits.exec_all(), want, "{kind:o} {mode:o} {acl:?}");
                    assert_eq!(
                        bits.exec_all_plain(),
                        want && flags.is_empty(),
                        "{kind:o} {mode:o} {acl:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_right_that_every_class_has_and_no_acl_entry_refuses_is_granted_to_all() {
        let present = (0..8).map(AclState::Present);
        for acl in present.chain([AclState::None, AclState::Unknown]) {
            for (mode, rights) in
                (0..0o10000_u16).flat_map(|mode| (0..8_u8).map(move |rights| (mode, rights)))
            {
                let bits = PermBits::new(FILE | mode, FileFlags::APPEND, acl);
                let has = |class: u16| mode >> class & u16::from(rights) == u16::from(rights);
                let granted = match acl {
                    AclState::None => 7,
                    AclState::Unknown => 0,
                    AclState::Present(granted) => granted,
                };
                let want = granted & rights == rights && [6, 3, 0].into_iter().all(has);
                assert_eq!(bits.acl(), acl);
                assert_eq!(
                    bits.grants_all_classes(rights),
                    want,
                    "{mode:o} {acl:?} {rights}"
                );
            }
        }
    }

    #[test]
    fn every_change_recomputes_the_bits_and_counts() {
        let word = PermissionCache::new(PermBits::new(
            DIR | 0o755,
            FileFlags::empty(),
            AclState::Unknown,
        ));
        let attributes = InodeAttrs::new(&Attr::default(), word.load());
        let publish = |change: &dyn Fn(PermBits) -> PermBits| {
            word.publish_if(&attributes.lock(), |bits| Some(change(bits)));
        };
        assert!(!word.load().exec_all());
        publish(&|bits| bits.with_acl(AclState::None));
        assert!(word.load().exec_all() && word.load().exec_all_plain());
        publish(&|bits| bits.with_mode(DIR | 0o750));
        assert!(!word.load().exec_all() && !word.load().exec_all_plain());
        publish(&|bits| {
            bits.with_mode(DIR | 0o711)
                .with_flags(FileFlags::IMMUTABLE | FileFlags::CASEFOLD)
        });
        let bits = word.load();
        assert!(bits.exec_all() && !bits.exec_all_plain());
        assert!(bits.immutable() && bits.casefold() && !bits.append());
        word.publish_if(&attributes.lock(), |_| None);
        assert_eq!(word.load().0 >> 32, 3);
    }

    #[test]
    fn files_with_several_names_are_known_by_it_for_good() {
        let new = |kind, nlink| {
            let attr = Attr {
                kind,
                nlink,
                mode: 0o644,
                ..Attr::default()
            };
            Inode::detached(NewInode {
                attr,
                no_acl: true,
                no_caps: true,
                private: Box::new(()),
            })
        };
        let several = |inode: &Inode| inode.perm().several_names();
        assert!(several(&new(FileType::Regular, 2)) && !several(&new(FileType::Directory, 5)));
        let one = new(FileType::Regular, 1);
        assert!(!several(&one));
        one.mark_named();
        one.update(|attr| (attr.mode, attr.nlink) = (0o600, 1));
        assert!(several(&one) && one.perm().mode() == FILE | 0o600);
    }
}
