//! Encrypted inodes: checks that every reader of contents, names and link targets passes.
//!
//! extern4 has no keys. So it refuses to read, map or change the contents of an encrypted file. It
//! shows names and link targets in the encoded form of
//! [`fscrypt_name`](crate::fscrypt_name). `ops` gets the inode of each answer from here,
//! as a [`ReadableFile`], [`ReadableDir`] or [`ReadableLink`], with its lock held. Internal files
//! of the volume are not checked: no caller sees them.
//!
//! An attribute of the inode, the encryption context, holds a policy, which names the key, and a
//! nonce. As in Linux, the error is `ENOKEY` with a valid context, `EINVAL` with one that is not
//! understood, and `ENODATA` without one. In an encrypted directory every entry has the directory's
//! policy; an entry that has not gives `EPERM`.
//!
//! Source: `Documentation/filesystems/fscrypt.rst`, `linux/fscrypt.h`, and mounted volumes whose
//! flags and contexts were changed.

use std::ops::Deref;

use extern4_disk::inode::FileKind;
use extern4_disk::xattr::NameIndex;
use extern4_sync::biased_rwlock::BiasedReadGuard;
use extern4_sync::lock_order::Ordered;
use extern4_vfs::{Errno, Inode};

use crate::error::{Error, Result};
use crate::fs::Ext4;
use crate::inode::cached::CachedInode;
use crate::inode::info::InodeInfo;

/// The name of the attribute that holds the encryption context.
const CONTEXT: &[u8] = b"c";
/// Bytes of the nonce at the end of a context.
const NONCE_BYTES: usize = 16;
/// A policy of version 1, without its nonce: the version, two modes, flags, 8 bytes that name the
/// key.
const POLICY_V1_BYTES: usize = 12;
/// One of version 2: the version, two modes, flags, 4 bytes more, 16 bytes that name the key.
const POLICY_V2_BYTES: usize = 24;

/// A regular file whose contents may be read. Its map is locked for reading.
pub(crate) struct ReadableFile<'n> {
    info: InodeInfo,
    _map: BiasedReadGuard<'n>,
}

/// A directory whose names may be read. They are locked for reading.
pub(crate) struct ReadableDir<'n> {
    info: InodeInfo,
    _names: Ordered<BiasedReadGuard<'n>>,
}

/// A symbolic link whose target may be read, in its encoded form if it is encrypted.
pub(crate) struct ReadableLink {
    info: InodeInfo,
}

impl Deref for ReadableFile<'_> {
    type Target = InodeInfo;

    fn deref(&self) -> &InodeInfo {
        &self.info
    }
}

impl Deref for ReadableDir<'_> {
    type Target = InodeInfo;

    fn deref(&self) -> &InodeInfo {
        &self.info
    }
}

impl Deref for ReadableLink {
    type Target = InodeInfo;

    fn deref(&self) -> &InodeInfo {
        &self.info
    }
}

/// Locks the map of a regular file, for a reader of its contents or of the map.
pub(crate) fn readable_file<'n>(fs: &Ext4, cached: &'n CachedInode) -> Result<ReadableFile<'n>> {
    let map = cached.read_map();
    let info = cached.snapshot();
    if info.is_encrypted() {
        // The context has a separate lock, and no reader holds both.
        drop(map);
        return Err(no_key(fs, cached));
    }
    Ok(ReadableFile { info, _map: map })
}

/// Locks a directory to list it or to look names up; `ENOTDIR` for another inode.
pub(crate) fn readable_dir<'n>(fs: &Ext4, cached: &'n CachedInode) -> Result<ReadableDir<'n>> {
    let lock = || {
        let names = cached.read_names();
        ReadableDir {
            info: cached.snapshot(),
            _names: names,
        }
    };
    let dir = lock();
    if !dir.is_directory() {
        return Err(Errno::ENOTDIR.into());
    }
    if !dir.is_encrypted() {
        return Ok(dir);
    }
    drop(dir);
    // Names are shown in encoded form, also if the policy is not understood.
    match policy(fs, cached)? {
        Some(_) => Ok(lock()),
        None => Err(Error::NoPolicy {
            ino: cached.snapshot().ino(),
        }),
    }
}

/// Returns the inode of a symbolic link, to read its target.
pub(crate) fn readable_link(fs: &Ext4, cached: &CachedInode) -> Result<ReadableLink> {
    let info = cached.snapshot();
    if info.is_encrypted() {
        match no_key(fs, cached) {
            Error::Encrypted { .. } => {}
            error => return Err(error),
        }
    }
    Ok(ReadableLink { info })
}

/// Checks that a regular file may be opened or changed.
pub(crate) fn check_key(fs: &Ext4, cached: &CachedInode) -> Result<()> {
    if cached.snapshot().is_encrypted() {
        Err(no_key(fs, cached))
    } else {
        Ok(())
    }
}

/// Checks that `found` may be in the encrypted directory `dir`: directories and links must have its
/// policy. Regular files are checked when they are opened, so that a caller can remove files of
/// another policy.
pub(crate) fn check_policy(fs: &Ext4, dir: &CachedInode, found: &Inode) -> Result<()> {
    let found = found.private::<CachedInode>();
    let info = found.snapshot();
    if !matches!(
        info.fields().kind(),
        FileKind::Directory | FileKind::Symlink
    ) {
        return Ok(());
    }
    let policy = |cached: &CachedInode| {
        Ok::<_, Error>(policy(fs, cached)?.filter(|context| is_understood(context)))
    };
    let of_dir = policy(dir)?;
    let same = info.is_encrypted() && of_dir.is_some() && policy(found)? == of_dir;
    if same {
        Ok(())
    } else {
        Err(Errno::EPERM.into())
    }
}

/// Returns the reason why encrypted contents cannot be read.
fn no_key(fs: &Ext4, cached: &CachedInode) -> Error {
    let ino = cached.snapshot().ino();
    match policy(fs, cached) {
        Ok(Some(policy)) if is_understood(&policy) => Error::Encrypted { ino },
        Ok(Some(_)) => Error::BadPolicy { ino },
        Ok(None) => Error::NoPolicy { ino },
        Err(error) => error,
    }
}

/// Returns the policy that the context of an inode holds; `None` if it has no context.
fn policy(fs: &Ext4, cached: &CachedInode) -> Result<Option<Vec<u8>>> {
    let _attributes = cached.read_attributes();
    let mut context = cached
        .snapshot()
        .attribute(fs, NameIndex::ENCRYPTION, CONTEXT)?;
    if let Some(context) = &mut context {
        context.truncate(context.len().saturating_sub(NONCE_BYTES));
    }
    Ok(context)
}

/// Whether a policy has a known version, the right length, and a supported pair of modes.
fn is_understood(policy: &[u8]) -> bool {
    let fits = match policy.first() {
        Some(1) => policy.len() == POLICY_V1_BYTES,
        Some(2) => policy.len() == POLICY_V2_BYTES,
        _ => false,
    };
    // AES-256-XTS with CTS or HCTR2, AES-128-CBC with CTS, SM4-XTS with CTS, Adiantum.
    fits && matches!(
        (policy[1], policy[2]),
        (1, 4 | 10) | (5, 6) | (7, 8) | (9, 9)
    )
}
