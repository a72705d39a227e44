//! The library against its judges: the kernel's ext4, debugfs, and images that lie.

mod blocked;
#[cfg(feature = "build")]
mod building;
#[cfg(feature = "build")]
mod built_crash;
#[cfg(feature = "diff")]
mod comparing;
mod copying;
mod describing;
mod dropping;
#[cfg(feature = "build")]
mod exporting;
mod hostile;
mod journal;
mod open_files;
mod ours;
mod permissions;
mod remount;
mod stale;
mod std_parity;
mod transaction;
mod tuning;
#[cfg(feature = "build")]
mod updating;
mod walking;
mod writing;
mod zoo;
