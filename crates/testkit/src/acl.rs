//! POSIX.1e access control lists in the form the `system.posix_acl_*` attributes carry.
//!
//! The form is a 32-bit version, 2, then eight bytes for each entry: tag, permissions, and the user
//! or group id. The id is all ones if the tag needs none. acl(5) has the tags and their order. The
//! kernel checks and canonicalises a list when it is set. So a test may write any shape and read
//! back the kernel's form of it.
//!
//! Plans, the crash workloads and the question of permissions set lists of this form. It is written
//! apart from `extern4-acl`, so that a mistake there does not hide here.

/// One entry of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ace {
    /// The owner.
    Owner(u16),
    /// A named user: id, permissions.
    User(u32, u16),
    /// The owning group.
    OwningGroup(u16),
    /// A named group: id, permissions.
    Group(u32, u16),
    /// The most that named users and any group may have.
    Mask(u16),
    /// All other users.
    Other(u16),
}

impl Ace {
    fn fields(self) -> (u16, u16, u32) {
        const NO_ID: u32 = u32::MAX;
        match self {
            Ace::Owner(perm) => (0x01, perm, NO_ID),
            Ace::User(id, perm) => (0x02, perm, id),
            Ace::OwningGroup(perm) => (0x04, perm, NO_ID),
            Ace::Group(id, perm) => (0x08, perm, id),
            Ace::Mask(perm) => (0x10, perm, NO_ID),
            Ace::Other(perm) => (0x20, perm, NO_ID),
        }
    }
}

/// Returns the attribute value of a list.
pub fn encode(entries: &[Ace]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, perm, id) = entry.fields();
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Returns a value with all ones for the id of every entry that needs none, as the kernel writes
/// it; debugfs writes 0.
///
/// # Panics
/// When the value is not whole entries behind a version.
pub fn canonical(mut value: Vec<u8>) -> Vec<u8> {
    assert_eq!(
        value.len() % 8,
        4,
        "an access list of {} bytes",
        value.len()
    );
    for entry in value[4..].chunks_exact_mut(8) {
        let has_id = matches!(entry[0], 0x02 | 0x08);
        if !has_id {
            entry[4..].fill(0xff);
        }
    }
    value
}
