//! extern4 extern4: see ARCHITECTURE.md.
