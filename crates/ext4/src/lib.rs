//! extern4 ext4: see ARCHITECTURE.md.
