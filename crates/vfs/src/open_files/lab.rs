//! A registry that the lab supplies in the place of production's.
//!
//! The lab measures the slab registry against others, in production's open and close. [`InUse`]
//! holds either registry, and [`LabRegistry`] is [`Registry`] as an object behind a pointer, with
//! the same guarantees. This module exists in the lab's build only, where `open_files` uses it.

use std::sync::Arc;

use super::opened::Opened;
use super::registry::Registry;
use super::slab_registry::{self, SlabRegistry};

/// The ticket of a record in a registry of the lab's.
pub type Ticket = [usize; 3];

/// A [`Registry`] behind a pointer. Each method calls the function that it is given at most once a
/// record.
pub trait LabRegistry: Send + Sync {
    /// Inserts a record.
    fn add(&self, fill: &mut dyn FnMut(&Opened)) -> Option<Ticket>;

    /// Removes a record; returns false if it does not exist.
    fn remove(&self, ticket: Ticket, empty: &mut dyn FnMut(&Opened)) -> bool;

    /// Calls `look` with a record, if it is there.
    fn with(&self, ticket: Ticket, look: &mut dyn FnMut(&Opened));

    /// Calls `look` with each record.
    fn list(&self, look: &mut dyn FnMut(&Opened));
}

/// The registry of a file system.
#[expect(clippy::large_enum_variant, reason = "a file system has one of them")]
pub(crate) enum InUse {
    Production(SlabRegistry<Opened>),
    Lab(Arc<dyn LabRegistry>),
}

/// The ticket of a record in it.
pub(crate) enum EitherTicket {
    Production(slab_registry::Ticket),
    Lab(Ticket),
}

impl Default for InUse {
    fn default() -> Self {
        Self::Production(SlabRegistry::default())
    }
}

impl Registry<Opened> for InUse {
    type Ticket = EitherTicket;

    #[inline]
    fn add(&self, fill: impl FnOnce(&Opened)) -> Option<EitherTicket> {
        let registry = match self {
            Self::Production(slabs) => return slabs.add(fill).map(EitherTicket::Production),
            Self::Lab(registry) => registry,
        };
        let mut fill = Some(fill);
        let mut fill = |opened: &Opened| fill.take().into_iter().for_each(|fill| fill(opened));
        registry.add(&mut fill).map(EitherTicket::Lab)
    }

    #[inline]
    fn remove(&self, place: &EitherTicket, empty: impl FnOnce(&Opened)) -> bool {
        match (self, place) {
            (Self::Production(slabs), EitherTicket::Production(ticket)) => {
                slabs.remove(ticket, empty)
            }
            (Self::Lab(registry), EitherTicket::Lab(ticket)) => {
                let mut empty = Some(empty);
                let mut empty =
                    |opened: &Opened| empty.take().into_iter().for_each(|empty| empty(opened));
                registry.remove(*ticket, &mut empty)
            }
            _ => unreachable!("a place is in one registry"),
        }
    }

    #[inline]
    fn with<R>(&self, place: &EitherTicket, look: impl FnOnce(&Opened) -> R) -> Option<R> {
        match (self, place) {
            (Self::Production(slabs), EitherTicket::Production(ticket)) => slabs.with(ticket, look),
            (Self::Lab(registry), EitherTicket::Lab(ticket)) => {
                let mut look = Some(look);
                let mut seen = None;
                registry.with(*ticket, &mut |opened| {
                    seen = look.take().map(|look| look(opened))
                });
                seen
            }
            _ => unreachable!("a place is in one registry"),
        }
    }

    fn list<R>(&self, mut copy: impl FnMut(&Opened) -> Option<R>) -> Vec<R> {
        let registry = match self {
            Self::Production(slabs) => return slabs.list(copy),
            Self::Lab(registry) => registry,
        };
        let mut copies = Vec::new();
        registry.list(&mut |opened| copies.extend(copy(opened)));
        copies
    }
}
