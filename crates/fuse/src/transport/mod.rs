//! How requests come from the kernel, and answers go back.

mod clone;
pub(crate) mod dev;
mod waiters;
