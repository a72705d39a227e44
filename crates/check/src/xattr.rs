//! Extended attributes, the blocks that inodes share for them, and the inodes that hold large
//! values.
//!
//! The pass over inodes calls it for each inode, and `check` compares the stored counts after that.
//! A shared block is read once, however many inodes name it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use extern4_disk::acl;
use extern4_disk::blocks::Blocks;
use extern4_disk::feature::Incompat;
use extern4_disk::geometry::Geometry;
use extern4_disk::inode::{Inode, InodeFlags};
use extern4_disk::xattr::{self, Attr, Attrs, NameIndex, VALUE_SIZE_MAX, Value, hash};
use extern4_disk::{CorruptKind, Place, Structure, checksum};

use crate::Checker;
use crate::claims::ClusterMap;
use crate::fault::{Fault, Wrong};
use crate::report::{Report, Sink};
use crate::to_usize;

/// How many blocks of the map of a value the check follows at most.
const NODES: u32 = 1 << 10;

/// The blocks and inodes that several inodes may share.
pub(crate) struct Shared {
    /// The attribute blocks that have been looked at.
    seen: ClusterMap,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Of attribute blocks that several inodes have, or should have: the stored count of inodes,
    /// and how many the check found behind the first.
    blocks: HashMap<u64, (u32, u32)>,
    /// Of inodes that hold values: how many attributes lead there.
    values: HashMap<u32, u64>,
    /// The counts that those inodes store themselves.
    stored: HashMap<u32, u64>,
}

impl Shared {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            seen: ClusterMap::new(geometry),
            counts: Mutex::default(),
        }
    }

    fn with<R>(&self, change: impl FnOnce(&mut Counts) -> R) -> R {
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Checker<'_> {
    /// Checks the attribute block of `inode`, once however many inodes share it. Returns the
    /// clusters that it and the values it names count for.
    pub(crate) fn check_xattr_block(&self, block: u64, inode: &Inode, sink: &mut Sink) -> u64 {
        let place = Place::new(Structure::Xattr).ino(inode.ino()).block(block);
        if let Err(corrupt) = Blocks::from(self.geometry).check("i_file_acl", block, 1, place) {
            sink.push(corrupt);
            return 0;
        }
        if !self.shared.seen.first_visit(block) {
            self.shared
                .with(|counts| counts.blocks.entry(block).or_insert((1, 0)).1 += 1);
            return 1 + self.values_of_block(block, inode);
        }
        if self.claims.claim(block, 1, &self.twice) > 0 && !self.may_share() {
            return 1;
        }
        let mut bytes = Vec::new();
        if let Err(error) = self.read(block, 1, &mut bytes) {
            sink.push(Fault::of_error(place, error));
            return 1;
        }
        if let Some(Err(corrupt)) = self
            .seed
            .map(|seed| xattr::verify_checksum(&bytes, block, seed, place))
        {
            sink.push(corrupt);
        }
        match Attrs::in_block(&bytes, place) {
            Ok((header, attrs)) => {
                if header.refcount != 1 {
                    self.shared.with(|counts| {
                        counts.blocks.entry(block).or_insert((1, 0)).0 = header.refcount;
                    });
                }
                if let Err(corrupt) = attrs.check_order(place) {
                    sink.push(corrupt);
                }
                self.check_attributes(&attrs, inode, place, sink);
                1 + self.value_clusters(&attrs, inode)
            }
            Err(corrupt) => {
                sink.push(corrupt);
                1
            }
        }
    }

    /// Returns the clusters of the values that the attribute block `block` names, which has been
    /// checked.
    fn values_of_block(&self, block: u64, owner: &Inode) -> u64 {
        let mut bytes = Vec::new();
        if !self.sb.features().incompat.contains(Incompat::EA_INODE)
            || self.read(block, 1, &mut bytes).is_err()
        {
            return 0;
        }
        let attrs = Attrs::in_block(&bytes, Place::new(Structure::Xattr));
        attrs.map_or(0, |(_, attrs)| self.value_clusters(&attrs, owner))
    }

    /// Returns the clusters of the values that fill inodes: they count for each
    /// inode that has the attribute.
    pub(crate) fn value_clusters(&self, attrs: &Attrs<'_>, owner: &Inode) -> u64 {
        let cluster = self.sb.cluster_size();
        attrs
            .iter()
            .map(|attr| match attr.value {
                Value::EaInode { ino, .. } if self.is_old_value(&attr, ino, owner) => 0,
                Value::EaInode { size, .. } => u64::from(size).div_ceil(cluster),
                Value::Here(_) => 0,
            })
            .sum()
    }

    /// Returns how many values of an inode's attributes, of which it has some itself, are in
    /// separate inodes.
    pub(crate) fn value_inodes(&self, own: Option<&Attrs<'_>>, inode: &Inode) -> u64 {
        if !self.sb.features().incompat.contains(Incompat::EA_INODE) {
            return 0;
        }
        let count = |attrs: &Attrs<'_>| {
            let counted = |attr: &Attr<'_>| match attr.value {
                Value::EaInode { ino, .. } => !self.is_old_value(attr, ino, inode),
                Value::Here(_) => false,
            };
            attrs.iter().filter(counted).count() as u64
        };
        let mut bytes = Vec::new();
        let block = inode
            .xattr_block()
            .filter(|&block| self.read(block, 1, &mut bytes).is_ok());
        let attrs = block.and_then(|_| Attrs::in_block(&bytes, Place::new(Structure::Xattr)).ok());
        own.map_or(0, count) + attrs.map_or(0, |(_, attrs)| count(&attrs))
    }

    /// Checks the attributes that stand at `place`.
    pub(crate) fn check_attributes(
        &self,
        attrs: &Attrs<'_>,
        inode: &Inode,
        place: Place,
        sink: &mut Sink,
    ) {
        for attr in attrs.iter() {
            match attr.value {
                Value::Here(value) => {
                    if let Err(corrupt) = hash::verify_entry(&attr, None, place) {
                        sink.push(corrupt);
                    }
                    self.check_acl(&attr, value, place, sink);
                }
                Value::EaInode { ino, size } => {
                    if let Err(fault) = self.check_value(&attr, ino, size, inode, place) {
                        sink.push(fault);
                    }
                }
            }
        }
    }

    fn check_acl(&self, attr: &Attr<'_>, value: &[u8], place: Place, sink: &mut Sink) {
        let is_acl = matches!(
            attr.index,
            NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT
        );
        if is_acl
            && let Err(corrupt) = acl::decode(
                value,
                Place {
                    structure: Structure::Acl,
                    ..place
                },
            )
        {
            sink.push(corrupt);
        }
    }

    /// Checks that an attribute's value is where it says.
    fn check_value(
        &self,
        attr: &Attr<'_>,
        ino: u32,
        size: u32,
        owner: &Inode,
        place: Place,
    ) -> Result<(), Fault> {
        if ino > self.sb.inodes_count() || self.sb.is_hidden(ino) {
            return Err(place
                .corrupt(CorruptKind::InodeOutOfRange {
                    field: "e_value_inum",
                    ino: ino.into(),
                })
                .into());
        }
        self.shared
            .with(|counts| *counts.values.entry(ino).or_default() += 1);
        let value = self.inode(ino)?;
        if !value.flags().contains(InodeFlags::EA_INODE) || value.links() == 0 {
            return Err(Fault::mismatch(
                place,
                "the inode of a value is not marked as one",
            ));
        }
        if value.size() != u64::from(size) {
            return Err(Fault::field(place, "e_value_size", size.into()));
        }
        if !value.may_be_old_value_of(owner) {
            hash::verify_entry(attr, Some(value.ea_hash()), place)?;
        }
        Ok(())
    }

    /// Returns whether inode `ino` holds the value of an attribute of `owner` in the old form,
    /// without a hash and a count. Its owner does not have it counted.
    fn is_old_value(&self, attr: &Attr<'_>, ino: u32, owner: &Inode) -> bool {
        let place = Place::new(Structure::Xattr).ino(owner.ino());
        self.inode(ino).is_ok_and(|value| {
            value.may_be_old_value_of(owner)
                && hash::verify_entry(attr, Some(value.ea_hash()), place).is_err()
        })
    }

    /// Checks an inode that holds a value: its contents against their hash.
    pub(crate) fn check_value_inode(&self, inode: &Inode, place: Place, sink: &mut Sink) {
        self.shared
            .with(|counts| counts.stored.insert(inode.ino(), inode.ea_refcount()));
        let Some(size) = u32::try_from(inode.size())
            .ok()
            .filter(|size| *size <= VALUE_SIZE_MAX)
        else {
            return sink.push(Fault::field(place, "i_size", inode.size()));
        };
        let bits = self.geometry.block_bits();
        let blocks = u64::from(size).div_ceil(1 << bits);
        let runs = self.runs_of(inode, NODES);
        // Blocks that are another's as well have been found, and are not read over and over.
        if runs
            .iter()
            .any(|run| self.twice.touches(run.physical, run.len))
        {
            return;
        }
        let mut value = vec![0; to_usize(size)];
        for run in runs
            .iter()
            .filter(|run| run.written && run.logical < blocks)
        {
            let from = to_usize((run.logical << bits) as u32);
            let len = (run.len << bits).min((value.len() - from) as u64);
            // OK: the run is inside the volume, and no longer than the value.
            let target = &mut value[from..from + len as usize];
            if let Err(error) = self.fs.read_from_device(run.physical, target) {
                return sink.push(Fault::of_error(place, error));
            }
        }
        let computed = hash::ea_value(&value, self.sb.checksum_seed());
        if let Err(corrupt) = checksum::verify(inode.ea_hash(), computed, place) {
            // OK: the number of an inode has 32 bits.
            let owner = self.inode(inode.raw().0.i_mtime.get());
            if owner.is_ok_and(|owner| inode.may_be_old_value_of(&owner)) {
                self.shared
                    .with(|counts| _ = counts.stored.insert(inode.ino(), 1))
            } else {
                sink.push(corrupt)
            }
        }
    }

    /// Compares the stored counts of sharing inodes with the counted ones, after the pass over all
    /// inodes.
    pub(crate) fn check_shared(&self, report: &mut Report<'_>) {
        self.shared.with(|counts| {
            for (&block, &(stored, more)) in &counts.blocks {
                let counted = u64::from(more) + 1;
                if u64::from(stored) != counted {
                    let place = Place::new(Structure::Xattr).block(block);
                    let wrong = Wrong::Count {
                        field: "h_refcount",
                        stored: stored.into(),
                        counted,
                    };
                    report.push(Fault::new(place, wrong));
                }
            }
            for (&ino, &stored) in &counts.stored {
                let counted = counts.values.get(&ino).copied().unwrap_or(0);
                if stored != counted {
                    let place = Place::new(Structure::Inode).ino(ino);
                    let wrong = Wrong::Count {
                        field: "reference count",
                        stored,
                        counted,
                    };
                    report.push(Fault::new(place, wrong));
                }
            }
        });
    }
}
