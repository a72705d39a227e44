//! Tests of the file system on real images.
//!
//! The kernel's mount, `debugfs` and `e2fsck` are the oracles: trees, bytes, attributes and errors
//! are compared with theirs. Damage must be refused with the name of its structure. The tests of
//! the library compare every image of the zoo whole; here are a few.

mod absent;
mod answers;
mod attribute_races;
mod attributes;
mod checksum_rewrite;
mod contents;
mod crash;
mod damage;
mod damaged_files;
mod data_journal;
mod deadlocks;
mod encryption;
mod expand;
mod faults;
mod former;
mod fsx;
mod full;
mod full_maps;
mod hostile;
mod lazy_times;
mod links;
mod memory;
mod mmp;
mod model;
mod names;
mod open;
mod orphans;
mod overwrites;
mod own_files;
mod power;
mod quota;
mod reading_damage;
mod record_size;
mod recovery;
mod removal;
mod reserve;
mod set_aside;
mod sharing;
mod side_by_side;
mod synchronous;
mod threads;
mod times;
mod trim;
mod turns;
mod walk;
mod watchdog;
mod windows;
mod zoo;
