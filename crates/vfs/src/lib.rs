//! extern4 vfs: see ARCHITECTURE.md.
