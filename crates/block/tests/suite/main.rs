//! Tests of the crate as its users see it, one module a subject.

mod cache;
mod partition;
