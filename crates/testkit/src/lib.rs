//! extern4 testkit: see ARCHITECTURE.md.
