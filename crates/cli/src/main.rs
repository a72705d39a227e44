//! extern4.
fn main() {}
