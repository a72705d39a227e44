//! extern4 sync: see ARCHITECTURE.md.
