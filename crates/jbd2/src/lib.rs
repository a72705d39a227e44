//! extern4 jbd2: see ARCHITECTURE.md.
