//! Extended attributes: equal sets are kept once, and get a place in the inode, in a block, or in
//! both.
//!
//! `tree` interns the set of each file, `layout` counts the blocks that sets need, and `record` and
//! `write` encode them. A set that does not fit is an error, and so is a name that Linux has and
//! ext4 has no prefix for. A name of another system is left out and listed for a warning.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use extern4_acl::Acl;
use extern4_disk::acl;
use extern4_disk::feature::Incompat;
use extern4_disk::superblock::Superblock;
use extern4_disk::xattr::{self, Attr, Header, NameIndex, Value, hash};
use extern4_disk::{Place, Structure};
use hashbrown::HashTable;

/// The namespaces of Linux. A file of another system, such as one of macOS, can have attributes in
/// none of them, which no file of Linux can have.
const NAMESPACES: [&[u8]; 5] = [b"user.", b"trusted.", b"security.", b"system.", b"btrfs."];
/// The longest name behind its prefix in bytes.
const NAME_MAX: usize = 255;

/// A set of attributes by its number; 0 is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

impl Attribute {
    /// The attribute with its value next to it, and with a hash of both.
    fn here(&self) -> Attr<'_> {
        let hash = hash::entry(&self.name, hash::Contents::Value(&self.value));
        Attr {
            index: self.index,
            name: &self.name,
            value: Value::Here(&self.value),
            hash,
        }
    }
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
    pub(crate) fn intern(
        &mut self,
        attrs: &[(Vec<u8>, Vec<u8>)],
        mode: u16,
    ) -> Result<(Set, u16), String> {
        if attrs.is_empty() {
            return Ok((Set(0), mode));
        }
        let mut set = Vec::new();
        let mut mode = mode;
        for (name, value) in attrs {
            let shown = String::from_utf8_lossy(name);
            let split = NameIndex::split(name).filter(|(index, _)| has_place(*index));
            let Some((index, rest)) = split else {
                if NAMESPACES.iter().any(|prefix| name.starts_with(prefix)) {
                    return Err(format!(
                        "ext4 has no place for its extended attribute '{shown}'"
                    ));
                }
                self.left_out.insert(shown.into_owned());
                continue;
            };
            if rest.len() > NAME_MAX || rest.is_empty() != index.is_whole_name() {
                return Err(format!(
                    "the extended attribute '{shown}' has no valid name"
                ));
            }
            let value = match index {
                NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT => {
                    let acl =
                        Acl::from_xattr(value).map_err(|error| format!("'{shown}': {error}"))?;
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
            set.push(Attribute {
                index,
                name: rest.to_vec(),
                value,
            });
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
        let sets = &self.sets;
        let hasher = &self.hasher;
        self.index
            .insert_unique(hash, at, |at| hasher.hash_one(&sets[*at as usize]));
        Set(at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// The attributes of a set, with their numbers and names without prefix.
    pub(crate) fn attributes(&self, set: Set) -> impl Iterator<Item = (u8, &[u8], &[u8])> {
        let set = self
            .sets
            .get(set.index())
            .map(Vec::as_slice)
            .unwrap_or_default();
        set.iter()
            .map(|attr| (attr.index.0, attr.name.as_slice(), attr.value.as_slice()))
    }

    /// Messages about attributes that are left out.
    pub(crate) fn left_out_warnings(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|name| {
            format!("Linux has no place for the extended attribute '{name}', which is left out")
        })
    }

    /// The attributes of a set as `getxattr` gives them.
    pub(crate) fn with_full_names(&self, set: Set) -> Vec<(Vec<u8>, Vec<u8>)> {
        let place = Place::new(Structure::Xattr);
        let set = self
            .sets
            .get(set.index())
            .map(Vec::as_slice)
            .unwrap_or_default();
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

    /// The value of an attribute of a set.
    pub(crate) fn value(&self, set: Set, attribute: usize) -> &[u8] {
        &self.sets[set.index()][attribute].value
    }

    /// Divides a set between an inode with `room` bytes for attributes and a block. `data` bytes of
    /// the room hold an attribute with contents, with what all attributes need in common. With
    /// `ea_inode`, the largest values of the block go to EA inodes until it has room for
    /// the rest.
    pub(crate) fn divide(
        &self,
        set: Set,
        room: usize,
        data: usize,
        sb: &Superblock,
    ) -> Result<Division, String> {
        let attrs = self
            .sets
            .get(set.index())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut division = Division::default();
        let common = xattr::size_in_inode(&[]);
        for at in 0..attrs.len() {
            division.inside.push(at);
            let inside = xattr::size_in_inode(&division.inside(attrs));
            if inside + data.saturating_sub(common) > room {
                division.inside.pop();
                division.outside.push(at);
            }
        }
        let size = sb.block_size() as usize;
        loop {
            let need = xattr::size_in_block(&division.outside(attrs, &|_| 1));
            if need <= size || division.outside.is_empty() {
                return Ok(division);
            }
            let is_here = |at: &&usize| !division.values.iter().any(|(far, _)| far == *at);
            let largest = division
                .outside
                .iter()
                .filter(is_here)
                .max_by_key(|at| attrs[**at].value.len());
            let may_move = sb.features().incompat.contains(Incompat::EA_INODE);
            match largest.filter(|at| may_move && !attrs[**at].value.is_empty()) {
                Some(&at) => division.values.push((at, 0)),
                None => {
                    let hint = if may_move {
                        ""
                    } else {
                        "; inodes of the feature ea_inode hold larger values"
                    };
                    return Err(format!(
                        "its extended attributes need a block of {need} bytes, and the volume's blocks have \
                         {size}{hint}"
                    ));
                }
            }
        }
    }

    /// Writes the part of a set that is in the inode into the inode's area for attributes, behind
    /// the attribute with contents, if there is one.
    pub(crate) fn encode_inside(
        &self,
        set: Set,
        division: Option<&Division>,
        data: Option<Attr<'_>>,
        area: &mut [u8],
    ) {
        let attrs = self
            .sets
            .get(set.index())
            .map(Vec::as_slice)
            .unwrap_or_default();
        let inside = division
            .map(|division| division.inside(attrs))
            .unwrap_or_default();
        let all: Vec<Attr<'_>> = data.into_iter().chain(inside).collect();
        if !all.is_empty() {
            // It fits: `divide` has counted its bytes.
            let _ = xattr::encode_in_inode(&all, area);
        }
    }

    /// The block with the rest of a set, which `users` inodes share. `number_of` gives the number
    /// of the inode in the tree that has a value.
    pub(crate) fn encode_block(
        &self,
        set: Set,
        division: &Division,
        users: u32,
        number: u64,
        number_of: &dyn Fn(u32) -> u32,
        sb: &Superblock,
    ) -> Vec<u8> {
        let mut attrs = division.outside(&self.sets[set.index()], number_of);
        for attr in attrs
            .iter_mut()
            .filter(|attr| matches!(attr.value, Value::EaInode { .. }))
        {
            let find = |own: &&Attribute| own.index == attr.index && own.name == attr.name;
            let value = self.sets[set.index()]
                .iter()
                .find(find)
                .map_or(&[][..], |own| &own.value);
            let contents = hash::Contents::EaInode {
                hash: hash::ea_value(value, sb.checksum_seed()),
            };
            attr.hash = hash::entry(attr.name, contents);
        }
        let mut block = vec![0; sb.block_size() as usize];
        let hash = hash::entries(attrs.iter().map(|attr| attr.hash));
        let _ = xattr::encode_in_block(
            &Header {
                refcount: users,
                hash,
            },
            &attrs,
            &mut block,
        );
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
    /// The attributes outside whose values are in EA inodes, by index, with these inodes in the
    /// tree.
    values: Vec<(usize, u32)>,
}

impl Division {
    /// The values in EA inodes, as attributes and inodes in the tree.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut (usize, u32)> {
        self.values.iter_mut()
    }

    /// The inodes in the tree that have values.
    pub(crate) fn value_inodes(&self) -> impl Iterator<Item = u32> {
        self.values.iter().map(|(_, inode)| *inode)
    }

    /// Entries in an inode have no hash, as in Linux.
    fn inside<'a>(&self, attrs: &'a [Attribute]) -> Vec<Attr<'a>> {
        let attr = |at: &usize| Attr {
            hash: 0,
            ..attrs[*at].here()
        };
        self.inside.iter().map(attr).collect()
    }

    /// Entries in a block. Entries whose values are elsewhere have no hash yet.
    fn outside<'a>(&self, attrs: &'a [Attribute], number_of: &dyn Fn(u32) -> u32) -> Vec<Attr<'a>> {
        let attr = |at: &usize| match self.values.iter().find(|(far, _)| far == at) {
            None => attrs[*at].here(),
            Some((_, inode)) => {
                let Attribute { index, name, value } = &attrs[*at];
                // OK: a value is smaller than 4 GiB.
                let value = Value::EaInode {
                    ino: number_of(*inode),
                    size: value.len() as u32,
                };
                Attr {
                    index: *index,
                    name,
                    value,
                    hash: 0,
                }
            }
        };
        self.outside.iter().map(attr).collect()
    }

    pub(crate) fn needs_block(&self) -> bool {
        !self.outside.is_empty()
    }
}

/// Whether users can have attributes of this kind.
fn has_place(index: NameIndex) -> bool {
    !matches!(
        index,
        NameIndex::SYSTEM | NameIndex::RICHACL | NameIndex::ENCRYPTION | NameIndex::LUSTRE
    )
}
