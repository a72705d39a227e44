//! Extended attributes: equal sets are kept once, and get a place in the inode, in a block, or in
//! both.
//!
//! `tree` interns the set of each file, `layout` counts the blocks that sets need, and `record` and
//! `write` encode them. A set that does not fit is an error. A name that ext4 has no prefix for is
//! left out and listed for a warning.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use extern4_acl::Acl;
use extern4_disk::acl;
use extern4_disk::superblock::Superblock;
use extern4_disk::xattr::{self, Attr, Header, NameIndex, Value, hash};
use extern4_disk::{Place, Structure};
use hashbrown::HashTable;

/// The longest name behind its prefix in bytes.
const NAME_MAX: usize = 255;

/// A set of attributes by its number; 0 is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(u32);

impl Set {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// An attribute as the volume stores it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Attribute {
    index: NameIndex,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// All sets of attributes of a tree.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: Vec<Vec<Attribute>>,
    index: HashTable<u32>,
    hasher: RandomState,
    /// Names that have no place in ext4.
    left_out: BTreeSet<String>,
}

impl Sets {
    /// Finds or keeps a set of attributes with their full names, of a file with this mode. Gives
    /// the set and the mode that its ACL makes.
    pub(crate) fn intern(&mut self, attrs: &[(Vec<u8>, Vec<u8>)], mode: u16) -> Result<(Set, u16), String> {
        if attrs.is_empty() {
            return Ok((Set(0), mode));
        }
        let (mut set, mut mode) = (Vec::new(), mode);
        for (name, value) in attrs {
            let shown = String::from_utf8_lossy(name);
            let split = NameIndex::split(name).filter(|(index, _)| has_place(*index));
            let Some((index, rest)) = split else {
                self.left_out.insert(shown.into_owned());
                continue;
            };
            if rest.len() > NAME_MAX || rest.is_empty() != index.is_whole_name() {
                return Err(format!("the extended attribute '{shown}' has no valid name"));
            }
            let value = match index {
                NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT => {
                    let acl = Acl::from_xattr(value).map_err(|error| format!("'{shown}': {error}"))?;
                    let Some(acl) = acl else { continue };
                    if index == NameIndex::POSIX_ACL_ACCESS {
                        let (bits, is_whole) = acl.equiv_mode();
                        // OK: nine bits fit.
                        mode = mode & !0o777 | bits as u16;
                        if is_whole {
                            continue;
                        }
                    }
                    acl::encode(&acl)
                }
                _ => value.clone(),
            };
            set.push(Attribute { index, name: rest.to_vec(), value });
        }
        // The order that blocks of attributes have.
        set.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
        set.dedup_by(|later, earlier| (later.index, &later.name) == (earlier.index, &earlier.name));
        Ok((self.keep(set), mode))
    }

    fn keep(&mut self, set: Vec<Attribute>) -> Set {
        if set.is_empty() {
            return Set(0);
        }
        if self.sets.is_empty() {
            self.sets.push(Vec::new());
        }
        let hash = self.hasher.hash_one(&set);
        if let Some(&found) = self.index.find(hash, |at| self.sets[*at as usize] == set) {
            return Set(found);
        }
        let at = self.sets.len() as u32;
        self.sets.push(set);
        let (sets, hasher) = (&self.sets, &self.hasher);
        self.index.insert_unique(hash, at, |at| hasher.hash_one(&sets[*at as usize]));
        Set(at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// How many sets there are, the empty one included.
    pub(crate) fn len(&self) -> usize {
        self.sets.len().max(1)
    }

    /// The attributes of a set, with their numbers and names without prefix.
    pub(crate) fn attributes(&self, set: Set) -> impl Iterator<Item = (u8, &[u8], &[u8])> {
        let set = self.sets.get(set.index()).map(Vec::as_slice).unwrap_or_default();
        set.iter().map(|attr| (attr.index.0, attr.name.as_slice(), attr.value.as_slice()))
    }

    /// Messages about attributes that are left out.
    pub(crate) fn left_out_warnings(&self) -> impl Iterator<Item = String> {
        self.left_out
            .iter()
            .map(|name| format!("ext4 has no place for the extended attribute '{name}', which is left out"))
    }

    /// The attributes of a set as `getxattr` gives them.
    pub(crate) fn with_full_names(&self, set: Set) -> Vec<(Vec<u8>, Vec<u8>)> {
        let place = Place::new(Structure::Xattr);
        let set = self.sets.get(set.index()).map(Vec::as_slice).unwrap_or_default();
        let full = |attr: &Attribute| {
            let name = [attr.index.prefix()?, &attr.name].concat();
            let value = match attr.index {
                NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT => {
                    acl::decode(&attr.value, place).ok()?.to_xattr()
                }
                _ => attr.value.clone(),
            };
            Some((name, value))
        };
        set.iter().filter_map(full).collect()
    }

    /// Divides a set between an inode with `room` bytes for attributes and a block.
    pub(crate) fn divide(&self, set: Set, room: usize, sb: &Superblock) -> Result<Division, String> {
        let attrs = self.sets.get(set.index()).map(Vec::as_slice).unwrap_or_default();
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for (at, attr) in attrs.iter().enumerate() {
            inside.push(at);
            if xattr::size_in_inode(&borrowed(attrs, &inside, false)) > room {
                inside.pop();
                outside.push((at, attr));
            }
        }
        let outside: Vec<usize> = outside.into_iter().map(|(at, _)| at).collect();
        let need = xattr::size_in_block(&borrowed(attrs, &outside, true));
        let size = sb.block_size() as usize;
        if !outside.is_empty() && need > size {
            return Err(format!(
                "its extended attributes need a block of {need} bytes, and the volume's blocks have {size}"
            ));
        }
        Ok(Division { inside, outside })
    }

    /// Writes the part of a set that is in the inode into the inode's area for attributes.
    pub(crate) fn encode_inside(&self, set: Set, division: &Division, area: &mut [u8]) {
        let attrs = &self.sets[set.index()];
        if !division.inside.is_empty() {
            // It fits: `divide` has counted its bytes.
            let _ = xattr::encode_in_inode(&borrowed(attrs, &division.inside, false), area);
        }
    }

    /// The block with the rest of a set, which `users` inodes share.
    pub(crate) fn encode_block(
        &self,
        set: Set,
        division: &Division,
        users: u32,
        number: u64,
        sb: &Superblock,
    ) -> Vec<u8> {
        let attrs = borrowed(&self.sets[set.index()], &division.outside, true);
        let mut block = vec![0; sb.block_size() as usize];
        let hash = hash::entries(attrs.iter().map(|attr| attr.hash));
        let _ = xattr::encode_in_block(&Header { refcount: users, hash }, &attrs, &mut block);
        if let Some(seed) = sb.metadata_seed() {
            xattr::store_checksum(&mut block, number, seed);
        }
        block
    }
}

/// Which attributes of a set are in the inode and which in a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Division {
    inside: Vec<usize>,
    outside: Vec<usize>,
}

impl Division {
    pub(crate) fn needs_block(&self) -> bool {
        !self.outside.is_empty()
    }
}

/// Whether users can have attributes of this kind.
fn has_place(index: NameIndex) -> bool {
    !matches!(index, NameIndex::SYSTEM | NameIndex::RICHACL | NameIndex::ENCRYPTION | NameIndex::LUSTRE)
}

/// Entries in a block have a hash of their name and value; those in an inode have none, as in
/// Linux.
fn borrowed<'a>(attrs: &'a [Attribute], chosen: &[usize], is_block: bool) -> Vec<Attr<'a>> {
    let attr = |at: &usize| {
        let Attribute { index, name, value } = &attrs[*at];
        let hash = if is_block { hash::entry(name, hash::Contents::Value(value)) } else { 0 };
        Attr { index: *index, name, value: Value::Here(value), hash }
    };
    chosen.iter().map(attr).collect()
}
