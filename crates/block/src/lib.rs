//! extern4 block: see ARCHITECTURE.md.
