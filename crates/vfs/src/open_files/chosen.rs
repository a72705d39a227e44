//! A registry that is chosen when a file system is taken into use: so the others are measured in the place of the one in production, with all
//! else that it takes to open a file.

use super::lists::{self, CpuLists, OneList};
use super::registry::Registry;
use super::slabs::{self, Slabs};

/// Which one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegistryKind {
    /// [`Slabs`], as in production.
    #[default]
    Slabs,
    /// [`OneList`].
    OneList,
    /// [`CpuLists`].
    CpuLists,
}

/// The one that was chosen.
#[expect(clippy::large_enum_variant, reason = "a file system has one of them")]
pub(super) enum Chosen<C> {
    Slabs(Slabs<C>),
    OneList(OneList<C>),
    CpuLists(CpuLists<C>),
}

/// Where a record stands in it.
pub(super) enum Ticket {
    Slabs(slabs::Ticket),
    OneList(lists::Ticket),
    CpuLists((usize, lists::Ticket)),
}

impl<C: Default + Send + Sync> Chosen<C> {
    /// An empty one.
    pub(super) fn of(kind: RegistryKind) -> Self {
        match kind {
            RegistryKind::Slabs => Self::Slabs(Slabs::default()),
            RegistryKind::OneList => Self::OneList(OneList::default()),
            RegistryKind::CpuLists => Self::CpuLists(CpuLists::default()),
        }
    }
}

impl<C: Default + Send + Sync> Default for Chosen<C> {
    fn default() -> Self {
        Self::of(RegistryKind::default())
    }
}

impl<C: Default + Send + Sync> Registry<C> for Chosen<C> {
    type Ticket = Ticket;

    #[inline]
    fn add(&self, fill: impl FnOnce(&C)) -> Option<Ticket> {
        Some(match self {
            Self::Slabs(slabs) => Ticket::Slabs(slabs.add(fill)?),
            Self::OneList(list) => Ticket::OneList(list.add(fill)?),
            Self::CpuLists(lists) => Ticket::CpuLists(lists.add(fill)?),
        })
    }

    #[inline]
    fn remove(&self, ticket: &Ticket, empty: impl FnOnce(&C)) -> bool {
        match (self, ticket) {
            (Self::Slabs(slabs), Ticket::Slabs(ticket)) => slabs.remove(ticket, empty),
            (Self::OneList(list), Ticket::OneList(ticket)) => list.remove(ticket, empty),
            (Self::CpuLists(lists), Ticket::CpuLists(ticket)) => lists.remove(ticket, empty),
            _ => unreachable!("a ticket is of one registry"),
        }
    }

    #[inline]
    fn with<R>(&self, ticket: &Ticket, look: impl FnOnce(&C) -> R) -> Option<R> {
        match (self, ticket) {
            (Self::Slabs(slabs), Ticket::Slabs(ticket)) => slabs.with(ticket, look),
            (Self::OneList(list), Ticket::OneList(ticket)) => list.with(ticket, look),
            (Self::CpuLists(lists), Ticket::CpuLists(ticket)) => lists.with(ticket, look),
            _ => unreachable!("a ticket is of one registry"),
        }
    }

    fn list<R>(&self, copy: impl FnMut(&C) -> Option<R>) -> Vec<R> {
        match self {
            Self::Slabs(slabs) => slabs.list(copy),
            Self::OneList(list) => list.list(copy),
            Self::CpuLists(lists) => lists.list(copy),
        }
    }

    fn locks(&self) -> u64 {
        match self {
            Self::Slabs(slabs) => slabs.locks(),
            Self::OneList(list) => list.locks(),
            Self::CpuLists(lists) => lists.locks(),
        }
    }
}
